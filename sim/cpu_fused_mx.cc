// cpu_fused_mx.cc: fused kernels (sim/fused.h) of MXFP4, of every contract whose elements are
// rounded to nearest even and whose input is taken as it is; the scale rules are all of mx_scale.h.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "formats/codecs/mx.h"
#include "sim/cpu_mx.h"
#include "sim/fused.h"

namespace fp4scope {
namespace {

constexpr std::uint32_t kSeven = bit_cast<std::uint32_t>(7.0f);  // from here on E2M1 clamps
constexpr std::uint32_t kSix = bit_cast<std::uint32_t>(6.0f);

// What is known of a recipe. All but kAny are mx_is_plain().
enum class Known : std::uint8_t { kRceilMul, kFloor, kCeil, kEven, kPlain, kAny };

template <Known kKnown>
class Mxfp4 {
 public:
  static constexpr int kBlock = 32;
  static constexpr int kScaleBytes = 1;
  static constexpr bool kIsEverCareful = true, kWatches = false, kTakesSigns = true;
  static constexpr bool kIsAdaptive = false;

  FP4SCOPE_INLINE explicit Mxfp4(const Recipe& recipe)
      : plan_(mx_plan_of(recipe)), drops_sign_(recipe.mx.zero_sign == ZeroSign::kDropInput) {}
  FP4SCOPE_INLINE void set_row(OuterScale32) {}

  template <class L>
  struct State {
    typename L::U scale;
    typename L::F inverse, factor;
  };

  template <class L>
  FP4SCOPE_INLINE void prepare(const typename L::F*, typename L::U amax, State<L>& s,
                               typename L::U& unusual, typename L::U& careful) const {
    using U = typename L::U;
    using F = typename L::F;
    const MxAmax<L> measured = mx_amax_of_bits<L>(amax, U{});
    if constexpr (kKnown != Known::kAny) {
      s.scale = mx_plain_byte<L>(plan(), measured);
    } else {
      const MxScale<L> scale = mx_scale<L>(plan(), false, measured);
      s.scale = scale.byte;
      unusual = min_of(scale.mode | scale.refusal, U{} + 1u);
    }
    // Scales near the ends have inverses that are subnormal or values that are not finite. A block
    // of zeros has any scale, and nothing that could go wrong, but no inverse of byte 255.
    const U is_far = ((s.scale - 2u) | (250u - s.scale)) >> 31;
    const U is_zero_block = (amax - 1u) >> 31;
    unusual = unusual | (is_far & ~is_zero_block) | ((254u - s.scale) >> 31);
    s.inverse = e8m0_inverse<L>(min_of(s.scale, U{} + 254u));
    s.factor = e8m0_decode<L>(s.scale);
    careful = (kSeven - 1u - bit_cast<U>(bit_cast<F>(amax) * s.inverse)) >> 31;
  }

  template <class L, fused::Care kCare>
  FP4SCOPE_INLINE GridPoint<L> on_grid(const State<L>& s, typename L::F a, int,
                                       typename L::U& saturated, typename L::U&) const {
    using U = typename L::U;
    using F = typename L::F;
    const F y = a * s.inverse;
    if constexpr (kCare == fused::Care::kNone) return nearest_on_grid<L>(kE2M1, y);
    const U sign = bit_cast<U>(y) & kSignBit, magnitude = bit_cast<U>(y) ^ sign;
    saturated = saturated + ((kSeven - 1u - magnitude) >> 31);
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

 private:
  MxPlan plan_;
  bool drops_sign_;

  // With its constants, which are lost in memory.
  FP4SCOPE_INLINE MxPlan plan() const {
    MxPlan p = plan_;
    if constexpr (kKnown == Known::kPlain || kKnown == Known::kAny) return p;
    constexpr MxScaleRule kRule = kKnown == Known::kRceilMul ? MxScaleRule::kRceil
                                  : kKnown == Known::kCeil   ? MxScaleRule::kCeil
                                  : kKnown == Known::kEven   ? MxScaleRule::kEven
                                                             : MxScaleRule::kFloor;
    p.options.scale_rule = kRule;
    p.options.scale_arith = kKnown == Known::kRceilMul ? MxScaleArith::kMul : MxScaleArith::kField;
    p.options.dtype = DType16::kF32;
    p.options.ftz = false;
    return p;
  }
};

Known known_of(const MxOptions& o) {
  if (!mx_is_plain(o)) return Known::kAny;
  if (o.scale_arith == MxScaleArith::kMul) {
    return o.scale_rule == MxScaleRule::kRceil ? Known::kRceilMul : Known::kPlain;
  }
  if (o.scale_arith != MxScaleArith::kField) return Known::kPlain;
  switch (o.scale_rule) {
    case MxScaleRule::kFloor:
      return Known::kFloor;
    case MxScaleRule::kCeil:
      return Known::kCeil;
    case MxScaleRule::kEven:
      return Known::kEven;
    default:
      return Known::kPlain;
  }
}

}  // namespace

FusedFn mx_fused(Isa isa, const Recipe& recipe, const Tile& tile) {
  const MxOptions& o = recipe.mx;
  if (!(recipe.format.element == kE2M1) || recipe.format.lut != nullptr ||
      recipe.format.block != 32 || recipe.is_2d() || recipe.sr.enabled) {
    return nullptr;
  }
  if (o.ties != Rounding::kEven || mx_narrows(o) || o.ftz || !o.triton_sticky ||
      o.quirk != MxQuirk::kNone) {
    return nullptr;
  }
  if (o.zero_sign != ZeroSign::kKeep && o.zero_sign != ZeroSign::kDropInput) return nullptr;
  switch (known_of(o)) {
    case Known::kRceilMul:
      return fused::for_input<Mxfp4<Known::kRceilMul>>(isa, tile);
    case Known::kFloor:
      return fused::for_input<Mxfp4<Known::kFloor>>(isa, tile);
    case Known::kCeil:
      return fused::for_input<Mxfp4<Known::kCeil>>(isa, tile);
    case Known::kEven:
      return fused::for_input<Mxfp4<Known::kEven>>(isa, tile);
    case Known::kPlain:
      return fused::for_input<Mxfp4<Known::kPlain>>(isa, tile);
    case Known::kAny:
      return fused::for_input<Mxfp4<Known::kAny>>(isa, tile);
  }
  return nullptr;
}

}  // namespace fp4scope
