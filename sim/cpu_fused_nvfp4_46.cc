// cpu_fused_nvfp4_46.cc: fused kernels (sim/fused.h) of NVFP4 with four-over-six: the adaptive
// choice of contract te by squared or absolute error, exact or fast.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "sim/fused_nvfp4.h"

namespace fp4scope {
namespace {

using nvfp4_panels::Adaptive;
using Order = Nvfp4Order;

// te with 4/6. Differences are taken of magnitudes, which changes their signs alone.
template <Select kSelect, Metric kMetric>
class Adaptive46 : public fused::Nvfp4Codec<Adaptive<Order::kTe, kSelect, kMetric>> {
  using Base = fused::Nvfp4Codec<Adaptive<Order::kTe, kSelect, kMetric>>;

 public:
  static constexpr bool kIsAdaptive = true;
  template <class L>
  using State = typename Base::template State<L>;
  template <class L>
  using Candidate = typename Base::template Candidate<L>;

  FP4SCOPE_INLINE explicit Adaptive46(const Recipe& recipe)
      : Base(recipe),
        top_(this->rules().top()),
        top_inverse_(1.0f / top_),
        by_amax_(recipe.nvfp4.score == Score::kAmax) {}
  FP4SCOPE_INLINE void set_row(OuterScale32 outer) {
    Base::set_row(outer);
    // Outside the quotients of the exact metric may be subnormal.
    const float used = by_amax_ ? outer.amax : this->row_.g_inverse;
    is_usual_metric_ = used == 0.0f || (used > 0x1p-60f && used < 0x1p60f);
  }

  template <class L>
  FP4SCOPE_INLINE void prepare(const typename L::F* x, typename L::U amax, State<L>& s,
                               typename L::U& unusual, typename L::U& careful) const {
    using U = typename L::U;
    using F = typename L::F;
    const F bmax = bit_cast<F>(amax);
    const auto four = this->template candidate<L>(bmax, true);
    const auto six = this->template candidate<L>(bmax, false);
    Nvfp4Choice<L> c{};
    if (kMetric == Metric::kExact && by_amax_) {
      add_errors<L, true>(x, four, six, c);
    } else {
      add_errors<L, false>(x, four, six, c);
    }
    nvfp4_decide<L>(c);
    const auto chosen = [&](const F& a, const F& b) {
      return bit_cast<F>(blend(c.is_four, bit_cast<U>(a), bit_cast<U>(b)));
    };
    s.is_four = c.is_four;
    s.scale = blend(c.is_four, four.scale.code, six.scale.code);
    s.inverse = chosen(four.inverse, six.inverse);
    unusual = this->template set_factor<L>(chosen(four.scale.value, six.scale.value), amax, s);
    if (!is_usual_metric_) unusual = U{} + 1u;
    careful = fused::reaches<U>(bit_cast<U>(bmax * s.inverse), fused::kSeven);
  }

 private:
  float top_, top_inverse_;
  bool by_amax_;
  bool is_usual_metric_ = true;

  // What a grid value becomes in the metric. fl(fl(q * scale * amax) / top) of the exact one is
  // computed for q = 1 and q = 1.5 once per block: the other values are these times powers of two,
  // which every rounding keeps.
  template <class L>
  struct Scored {
    typename L::F inverse, one, one_and_half;
  };
  template <class L, bool kByAmax>
  FP4SCOPE_INLINE Scored<L> scored(const Candidate<L>& c) const {
    using F = typename L::F;
    const F scale = c.scale.value;
    if constexpr (!kByAmax) return {c.inverse, scale, scale};
    return {c.inverse, divide_by_constant<L>(scale * this->row_.amax, top_, top_inverse_),
            divide_by_constant<L>((scale * 1.5f) * this->row_.amax, top_, top_inverse_)};
  }
  template <class L, bool kByAmax>
  FP4SCOPE_INLINE void add_errors(const typename L::F* x, const Candidate<L>& by_four,
                                  const Candidate<L>& by_six, Nvfp4Choice<L>& c) const {
    using U = typename L::U;
    using F = typename L::F;
    const Scored<L> four = scored<L, kByAmax>(by_four), six = scored<L, kByAmax>(by_six);
    F e4{}, e6{};
    for (int i = 0; i < 16; ++i) {
      const F a = bit_cast<F>(bit_cast<U>(x[i]) & kMagnitudeMask);
      e4 = nvfp4_add_error<L>(this->rules().options, e4, difference<L, kByAmax>(a, four));
      e6 = nvfp4_add_error<L>(this->rules().options, e6, difference<L, kByAmax>(a, six));
    }
    c.error4 = e4;
    c.error6 = e6;
  }
  // nvfp4_difference() of a magnitude under a candidate.
  template <class L, bool kByAmax>
  FP4SCOPE_INLINE typename L::F difference(typename L::F a, const Scored<L>& c) const {
    using U = typename L::U;
    using F = typename L::F;
    const U y = min_of(bit_cast<U>(a * c.inverse), U{} + fused::kSix);
    const F q = nearest_on_grid<L>(kE2M1, bit_cast<F>(y)).value;
    if constexpr (kMetric == Metric::kFast) return q * c.one - a * this->row_.g;
    if constexpr (!kByAmax) return (q * c.one) * this->row_.g_inverse - a;
    const U bits = bit_cast<U>(q);
    const F power = bit_cast<F>(bits & kInfBits);
    return power * select((bits & 0x00400000u) != U{}, c.one_and_half, c.one) - a;
  }
};

template <Select kSelect>
FusedFn adaptive(Isa isa, const Recipe& recipe, const Tile& tile) {
  return recipe.nvfp4.metric == Metric::kFast
             ? fused::for_input<Adaptive46<kSelect, Metric::kFast>>(isa, tile)
             : fused::for_input<Adaptive46<kSelect, Metric::kExact>>(isa, tile);
}

}  // namespace

FusedFn nvfp4_fused_adaptive(Isa isa, const Recipe& recipe, const Tile& tile) {
  const Nvfp4Options& o = recipe.nvfp4;
  // The fast-math switch of te-fast does not act on an adaptive choice.
  if ((o.order != Order::kTe && o.order != Order::kTeFast) || o.ftz) return nullptr;
  if (o.sum != SumOrder::kSeq || o.select == Select::kAbsmax) return nullptr;
  return o.select == Select::kMae ? adaptive<Select::kMae>(isa, recipe, tile)
                                  : adaptive<Select::kMse>(isa, recipe, tile);
}

}  // namespace fp4scope
