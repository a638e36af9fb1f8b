// cpu_fused_nvfp4.cc: fused kernels (sim/fused.h) of NVFP4 with one candidate, under contracts te
// and flashinfer.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "sim/fused_nvfp4.h"

namespace fp4scope {
namespace {

using nvfp4_panels::Static6;
using Order = Nvfp4Order;

template <Order kOrder>
class Static : public fused::Nvfp4Codec<Static6<kOrder>> {
  using Base = fused::Nvfp4Codec<Static6<kOrder>>;

 public:
  static constexpr bool kIsAdaptive = false;
  template <class L>
  using State = typename Base::template State<L>;
  using Base::Base;

  template <class L>
  FP4SCOPE_INLINE void prepare(const typename L::F*, typename L::U amax, State<L>& s,
                               typename L::U& unusual, typename L::U& careful) const {
    using U = typename L::U;
    using F = typename L::F;
    const F bmax = bit_cast<F>(amax);
    const auto c = this->template candidate<L>(bmax, false);
    s.scale = c.scale.code;
    s.inverse = c.inverse;
    unusual = this->template set_factor<L>(c.scale.value, amax, s);
    const U top = bit_cast<U>(bmax * c.inverse);
    careful = fused::reaches<U>(top, fused::kSeven);
    if constexpr (kOrder == Order::kFlashinfer) {
      // Elements and products that are flushed are below 2^-126; beside an amax of 2^-40 and a
      // scaled amax below 2^60 they are zero on the grid either way.
      unusual = unusual | fused::reaches<U>(top, (127u + 60u) << 23);
    }
  }
};

}  // namespace

FusedFn nvfp4_fused(Isa isa, const Recipe& recipe, const Tile& tile) {
  const Nvfp4Options& o = recipe.nvfp4;
  if (recipe.format.name != "nvfp4" || recipe.is_2d() || recipe.sr.enabled) return nullptr;
  if (o.is_adaptive()) return nvfp4_fused_adaptive(isa, recipe, tile);
  if (o.select != Select::kStatic6) return nullptr;
  if (o.order == Order::kTe && !o.ftz) {
    return fused::for_input<Static<Order::kTe>>(isa, tile);
  }
  // A flushed element has no sign to drop; here it would have one.
  const bool keeps_signs = !o.ftz || o.neg_zero == NegZero::kKeep;
  if (o.order == Order::kFlashinfer && keeps_signs) {
    return fused::for_input<Static<Order::kFlashinfer>>(isa, tile);
  }
  return nullptr;
}

}  // namespace fp4scope
