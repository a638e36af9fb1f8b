// cpu_fused_hif4.cc: fused kernels (sim/fused.h) of HiF4 by Algorithm 1: the products of gcc, amct
// and a6, each with elements rounded to even or up.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "formats/codecs/hif4_steps.h"
#include "sim/fused.h"

namespace fp4scope {
namespace {

constexpr float kLargest = 1.75f;       // of S1P2
constexpr float kClampedFrom = 1.875f;  // rounds to 2
constexpr float kQuarters = 0x1.8p21f;  // one addition rounds to multiples of 1/4

// The products of a contract (spec/hif4.md section 3). `cast`: elements are rounded to BF16 first.
template <Hif4Product kThresholds, Hif4Product kElements, Rounding kTies, bool kCasts>
class Hif4 {
 public:
  static constexpr int kBlock = 64;
  static constexpr int kScaleBytes = 4;
  static constexpr bool kIsAdaptive = false;
  static constexpr bool kIsEverCareful = kElements == Hif4Product::kExact;
  static constexpr bool kWatches = kIsEverCareful, kTakesSigns = false;

  FP4SCOPE_INLINE explicit Hif4(const Recipe& recipe)
      : options_(recipe.hif4), drops_sign_(recipe.hif4.neg_zero == NegZero::kDrop) {}
  FP4SCOPE_INLINE void set_row(OuterScale32) {}

  template <class L>
  struct State {
    typename L::U scales;      // the four bytes
    typename L::F r;           // reciprocal of the scale
    typename L::F shift[16];   // 2^-(level bits) of each four elements
    typename L::F factor[16];  // what their grid values are multiplied with
  };

  template <class L>
  FP4SCOPE_INLINE void prepare(const typename L::F* x, typename L::U, State<L>& s,
                               typename L::U& unusual, typename L::U& careful) const {
    using U = typename L::U;
    using F = typename L::F;
    const Hif4Shape shape = hif4_shape(kE1M2);
    // As integers; the order of magnitudes is that of their bits.
    U sixteen[16], eight[8], all{}, low{};
    F v16[16], v8[8];
    for (int k = 0; k < 16; ++k) {
      U m{};
      for (int i = 4 * k; i < 4 * k + 4; ++i) {
        low = low | bit_cast<U>(x[i]);
        m = max_of(m, bit_cast<U>(hif4_input<L>(options(), x[i])) & kMagnitudeMask);
      }
      sixteen[k] = m;
      v16[k] = bit_cast<F>(m);
    }
    for (int j = 0; j < 8; ++j) {
      eight[j] = max_of(sixteen[2 * j], sixteen[2 * j + 1]);
      v8[j] = bit_cast<F>(eight[j]);
      all = max_of(all, eight[j]);
    }
    const Hif4Scale<L> scale = hif4_scale<L>(options(), shape, bit_cast<F>(all));
    U e8[8], e16[16];
    // As in on_grid(): a rounded product compares with a threshold as the exact one does, unless it
    // falls on 2 or 4.
    Hif4Options levels = options();
    U doubt = U{} + 0x7fffffffu;
    if constexpr (kThresholds == Hif4Product::kExact) {
      levels.thr = Hif4Product::kFp32;
      for (int k = 0; k < 16; ++k) {
        const U product = bit_cast<U>(hif4_product<L>(Hif4Product::kFp32, v16[k], scale.r));
        doubt = min_of(doubt, (product ^ bit_cast<std::uint32_t>(2.0f)) & ~0x00800000u);
      }
    }
    hif4_level_bits<L>(levels, shape, scale.r, v8, v16, e8, e16, s.shift);
    U level2{}, level3{};
    for (int j = 0; j < 8; ++j) level2 = level2 | e8[j] << j;
    const F value = decode<L>(kE6M2, scale.code);
    for (int k = 0; k < 16; ++k) {
      level3 = level3 | e16[k] << k;
      // value * 2^(e8 + e16), exact: shift is 2^-(e8 + e16).
      s.factor[k] = bit_cast<F>(bit_cast<U>(value) + (127u << 23) - bit_cast<U>(s.shift[k]));
    }
    s.scales = scale.code | level2 << 8 | level3 << 16;
    s.r = scale.r;
    // Products with numbers of 16 significant bits and less are exact as they are.
    const U is_long = min_of(low & 0xffu, U{} + 1u);
    unusual = scale.is_nan | (((doubt - 1u) >> 31) & is_long);
    if constexpr (kCasts) {
      // What the cast makes zero has, under neg-zero=drop, no sign: it is seen as what it was here.
      for (int i = 0; i < 64; ++i) {
        const U magnitude = bit_cast<U>(x[i]) & kMagnitudeMask;
        unusual = unusual | (((magnitude - 0x00800000u) & ~(magnitude - 1u)) >> 31);
      }
    }
    careful = kIsEverCareful ? is_long : U{};
  }

  template <class L, fused::Care kCare>
  FP4SCOPE_INLINE GridPoint<L> on_grid(const State<L>& s, typename L::F magnitude, int i,
                                       typename L::U& saturated, typename L::U& doubt) const {
    using U = typename L::U;
    using F = typename L::F;
    const F a = hif4_input<L>(options(), magnitude);
    // A product that is rounded compares with every midpoint as the exact one does, unless it falls
    // on it.
    constexpr Hif4Product kShort = kElements == Hif4Product::kExact && kCare != fused::Care::kFull
                                       ? Hif4Product::kFp32
                                       : kElements;
    const F y = hif4_product<L>(kShort, a, s.r) * s.shift[i / 4];
    saturated = plus_one_where<L::kWidth>(y >= kClampedFrom, saturated);
    const U clamped = min_of(bit_cast<U>(y), U{} + bit_cast<std::uint32_t>(kLargest));
    // A midpoint is even in its last bit: made odd it is rounded up, and no other number changes
    // sides.
    const U rounded = kTies == Rounding::kAway ? clamped | 1u : clamped;
    const F sum = bit_cast<F>(rounded) + kQuarters;
    const GridPoint<L> q{sum - kQuarters, bit_cast<U>(sum)};  // the sum counts quarters
    if constexpr (kCare == fused::Care::kWatch) {
      const U distance = bit_cast<U>(y - q.value) & kMagnitudeMask;
      doubt = min_of(doubt, distance ^ bit_cast<std::uint32_t>(0.125f));
    }
    return q;
  }
  template <class L>
  FP4SCOPE_INLINE typename L::F factor(const State<L>& s, int i) const {
    return s.factor[i / 4];
  }
  FP4SCOPE_INLINE bool drops_zero_signs() const { return drops_sign_; }
  template <int W>
  FP4SCOPE_INLINE void store_scales(const State<Lane<W>>& s, std::uint8_t* out) const {
    std::memcpy(out, &s.scales, sizeof s.scales);
  }

 private:
  Hif4Options options_;
  // With its constants, which are lost in memory.
  FP4SCOPE_INLINE Hif4Options options() const {
    Hif4Options o = options_;
    o.thr = kThresholds;
    o.elem = kElements;
    o.ties = kTies;
    o.search = Hif4Search::kGreedy;
    o.cast = kCasts ? Hif4Cast::kBf16 : Hif4Cast::kNone;
    return o;
  }
  bool drops_sign_;
};

template <Hif4Product kThresholds, Hif4Product kElements, bool kCasts>
FusedFn by_ties(Isa isa, const Recipe& recipe, const Tile& tile) {
  if (recipe.hif4.ties == Rounding::kAway) {
    using Codec = Hif4<kThresholds, kElements, Rounding::kAway, kCasts>;
    return fused::for_input<Codec>(isa, tile);
  }
  if (recipe.hif4.ties == Rounding::kEven) {
    using Codec = Hif4<kThresholds, kElements, Rounding::kEven, kCasts>;
    return fused::for_input<Codec>(isa, tile);
  }
  return nullptr;
}

}  // namespace

FusedFn hif4_fused(Isa isa, const Recipe& recipe, const Tile& tile) {
  const Hif4Options& o = recipe.hif4;
  if (!recipe.shape.empty() || o.width != 4 || o.search != Hif4Search::kGreedy ||
      o.geometry != Hif4Geometry::k1x64 || recipe.sr.enabled) {
    return nullptr;
  }
  const bool casts = o.cast == Hif4Cast::kBf16;
  if (o.thr == Hif4Product::kExact && o.elem == Hif4Product::kExact && !casts) {
    return by_ties<Hif4Product::kExact, Hif4Product::kExact, false>(isa, recipe, tile);
  }
  if (o.thr == Hif4Product::kExact && o.elem == Hif4Product::kBf16 && !casts) {
    return by_ties<Hif4Product::kExact, Hif4Product::kBf16, false>(isa, recipe, tile);
  }
  if (o.thr == Hif4Product::kBf16 && o.elem == Hif4Product::kBf16 && casts) {
    return by_ties<Hif4Product::kBf16, Hif4Product::kBf16, true>(isa, recipe, tile);
  }
  return nullptr;
}

}  // namespace fp4scope
