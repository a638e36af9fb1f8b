// cpu_nvfp4_fixed.cc: NVFP4 kernels of the hot recipes, with the order and, for the adaptive choice
// of contract te, selection and metric as constants.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "sim/nvfp4_panels.h"

namespace fp4scope {
namespace {

using namespace nvfp4_panels;

template <Select kSelect>
QuantizeFn te_adaptive(Isa isa, Metric metric) {
  return metric == Metric::kFast
             ? for_isa<Adaptive<Order::kTe, kSelect, Metric::kFast>, true>(isa)
             : for_isa<Adaptive<Order::kTe, kSelect, Metric::kExact>, true>(isa);
}

}  // namespace

QuantizeFn nvfp4_fixed_kernel(Isa isa, const Recipe& recipe) {
  const Nvfp4Options& o = recipe.nvfp4;
  if (recipe.format.name != "nvfp4") return nullptr;
  if (!o.is_adaptive()) {
    switch (o.order) {
      case Order::kTe:
        return for_isa<Static6<Order::kTe>, false>(isa);
      case Order::kFlashinfer:
        return for_isa<Static6<Order::kFlashinfer>, false>(isa);
      case Order::kFlashinferFast:
        return for_isa<Static6<Order::kFlashinferFast>, false>(isa);
      default:
        return nullptr;
    }
  }
  // The fast-math switch of te-fast does not act on an adaptive choice.
  if (o.order == Order::kTe || o.order == Order::kTeFast) {
    if (o.sum != SumOrder::kSeq) return nullptr;
    return o.select == Select::kMae ? te_adaptive<Select::kMae>(isa, o.metric)
                                    : te_adaptive<Select::kMse>(isa, o.metric);
  }
  return o.order == Order::kFlashinfer ? for_isa<Fixed<Order::kFlashinfer>, true>(isa) : nullptr;
}

}  // namespace fp4scope
