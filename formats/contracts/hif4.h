// hif4.h: HiF4 contracts (spec/hif4.md section 2.1). `gcc` reproduces papers, `a6` mimics the
// hardware, `amct` is for checkpoints.
#pragma once
#include "formats/contracts/options.h"

namespace fp4scope {

constexpr Hif4Options hif4_gcc() {
  return {};
}
constexpr Hif4Options hif4_amct() {
  Hif4Options o;
  o.elem = Hif4Product::kBf16;
  o.nonfinite = Hif4Nonfinite::kGroupNan;
  return o;
}
constexpr Hif4Options hif4_a6() {
  Hif4Options o;
  o.thr = Hif4Product::kBf16;
  o.elem = Hif4Product::kBf16;
  o.ties = Rounding::kEven;
  o.cast = Hif4Cast::kBf16;
  return o;
}
inline constexpr Contract<Hif4Options> kHif4Contracts[] = {
    {"gcc", hif4_gcc(), Ragged::kPad,
     "HiFloat4 simulator 6d937b6 hif4_gpu/quant_cy/base/QFuncs/hifx.py", Evidence::kVerified,
     "hif4/groups.json hif4/options.json peers/peers.safetensors"},
    {"amct", hif4_amct(), Ragged::kError,
     "hicann/amct 2be20da amct_pytorch/quantization/dtypes/hifp_impl.py", Evidence::kVerified,
     "hif4/groups.json hif4/options.json"},
    {"a6", hif4_a6(), Ragged::kError, "hw-native-sys/pto-isa 3186c38 include/pto/npu/a6/TQuant.hpp",
     Evidence::kVerified, "hif4/groups.json hif4/options.json"},
};

}  // namespace fp4scope
