// fused_nvfp4.h: what the fused codecs of NVFP4 share (sim/fused.h): blocks of 16 E2M1 elements
// under E4M3, decoded by one factor; private to sim/cpu_fused_nvfp4*.cc. Include it after the
// pragma that silences -Wpsabi.
#pragma once
#include "sim/fused.h"
#include "sim/nvfp4_panels.h"

namespace fp4scope::fused {

inline constexpr std::uint32_t kSeven = bit_cast<std::uint32_t>(7.0f);  // from here on E2M1 clamps
inline constexpr std::uint32_t kSix = bit_cast<std::uint32_t>(6.0f);

// 1 where nonnegative a >= limit, both as bits.
template <class U>
FP4SCOPE_INLINE U reaches(U a, std::uint32_t limit) {
  return (limit - 1u - a) >> 31;
}

template <class P>
class Nvfp4Codec {
 public:
  static constexpr int kBlock = 16;
  static constexpr int kScaleBytes = 1;
  static constexpr bool kIsEverCareful = true, kWatches = false, kTakesSigns = true;

  FP4SCOPE_INLINE explicit Nvfp4Codec(const Recipe& recipe)
      : drops_sign_(recipe.nvfp4.neg_zero == NegZero::kDrop), rules_(nvfp4_rules_of(recipe)) {}
  FP4SCOPE_INLINE void set_row(OuterScale32 outer) {
    row_ = nvfp4_row(rules(), {outer.amax, outer.g});
    multipliers_ = nvfp4_multipliers(rules(), {outer.amax, outer.g});
    is_usual_row_ = row_.k >= 0.0f && row_.k <= kFloatMax;
  }

  template <class L>
  struct State {
    typename L::U scale, is_four;
    typename L::F inverse, factor;
  };

  template <class L, Care kCare>
  FP4SCOPE_INLINE GridPoint<L> on_grid(const State<L>& s, typename L::F a, int,
                                       typename L::U& saturated, typename L::U&) const {
    using U = typename L::U;
    using F = typename L::F;
    const F y = a * s.inverse;
    if constexpr (kCare == Care::kNone) return nearest_on_grid<L>(kE2M1, y);
    const U sign = bit_cast<U>(y) & kSignBit, magnitude = bit_cast<U>(y) ^ sign;
    saturated = saturated + reaches<U>(magnitude, kSeven);
    return nearest_on_grid<L>(kE2M1, bit_cast<F>(min_of(magnitude, U{} + kSix) | sign));
  }
  template <class L>
  FP4SCOPE_INLINE typename L::F factor(const State<L>& s, int) const {
    return s.factor;
  }
  FP4SCOPE_INLINE bool drops_zero_signs() const { return drops_sign_; }
  template <int W>
  FP4SCOPE_INLINE void store_scales(const State<Lane<W>>& s, std::uint8_t* out) const {
    fused::store_bytes<W>(s.scale, out);
  }
  template <class L>
  FP4SCOPE_INLINE typename L::U is_map4(const State<L>& s) const {
    return s.is_four & 1u;
  }

 protected:
  // With its constants, which are lost in memory.
  FP4SCOPE_INLINE Nvfp4Rules rules() const { return P::fix(rules_); }
  Nvfp4Row row_{};
  Nvfp4Multipliers multipliers_{};
  bool is_usual_row_ = true;  // false: scales may be NaN or negative
  bool drops_sign_;

  // A candidate as nvfp4_candidate() has it, for a usual row, with the value of its scale.
  template <class L>
  struct Candidate {
    GridPoint<L> scale;
    typename L::F inverse;
  };
  template <class L>
  FP4SCOPE_INLINE Candidate<L> candidate(typename L::F bmax, bool four) const {
    using U = typename L::U;
    const typename L::F s = nvfp4_scale_value<L>(rules(), row_, bmax, four);
    // Nonnegative; as integers, so that an infinity is the largest scale, too.
    const U most = U{} + bit_cast<std::uint32_t>(448.0f);
    GridPoint<L> scale =
        nearest_on_grid<L>(kUE4M3, bit_cast<typename L::F>(min_of(bit_cast<U>(s), most)));
    scale.code = scale.code & 0x7fu;
    return {scale, nvfp4_inverse_of<L>(rules(), row_, scale.value, bmax, s)};
  }

  // The factor and whether it and the products with it stay normal. `scale`: its value.
  template <class L>
  FP4SCOPE_INLINE typename L::U set_factor(typename L::F scale, typename L::U amax,
                                           State<L>& s) const {
    using U = typename L::U;
    s.factor = (scale * multipliers_.first) * multipliers_.second;
    const U bits = bit_cast<U>(s.factor);
    const U is_zero_block = (amax - 1u) >> 31;
    const U too_small = ((bits - ((127u - 100u) << 23)) >> 31) & ~is_zero_block;
    const U too_large = (bits | (((127u + 80u) << 23) - bits)) >> 31;  // or negative or NaN
    return is_usual_row_ ? too_small | too_large : U{} + 1u;
  }

 private:
  Nvfp4Rules rules_;
};

}  // namespace fp4scope::fused
