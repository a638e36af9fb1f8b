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
// The two goldens of CANN: amct and a6 with 0xFF for every scale outside of the range.
constexpr Hif4Options hif4_dynamic_mx_quant() {
  Hif4Options o = hif4_amct();
  o.ties = Rounding::kEven;
  o.overflow = Hif4Overflow::kNan;
  o.zero = Hif4Zero::kFf;
  return o;
}
constexpr Hif4Options hif4_moe_routing() {
  Hif4Options o = hif4_a6();
  o.overflow = Hif4Overflow::kNan;
  o.zero = Hif4Zero::kFf;
  return o;
}
// How the sources store the level bits (spec/hif4.md section 4) and their carrier
// (spec/layouts.md section 5).
constexpr NativeLayout hif4_native(LevelBits bits, Carrier carrier) {
  NativeLayout layout;
  layout.bits = bits;
  layout.carrier = carrier;
  return layout;
}
inline constexpr Contract<Hif4Options> kHif4Contracts[] = {
    {"gcc", hif4_gcc(), Ragged::kPad,
     "HiFloat4 simulator 6d937b6 hif4_gpu/quant_cy/base/QFuncs/hifx.py", Evidence::kVerified,
     "hif4/groups.json hif4/options.json peers/peers.safetensors"},
    {.name = "amct",
     .options = hif4_amct(),
     .source_ragged = Ragged::kError,
     .source = "hicann/amct 2be20da amct_pytorch/quantization/dtypes/hifp_impl.py",
     .evidence = Evidence::kVerified,
     .vectors = "hif4/groups.json hif4/options.json",
     .native = hif4_native(LevelBits::kMsb, Carrier::kBytes)},
    {.name = "a6",
     .options = hif4_a6(),
     .source_ragged = Ragged::kError,
     .source = "hw-native-sys/pto-isa 3186c38 include/pto/npu/a6/TQuant.hpp",
     .evidence = Evidence::kVerified,
     .vectors = "hif4/groups.json hif4/options.json",
     .native = hif4_native(LevelBits::kLsb, Carrier::kA6)},
    {.name = "dynamic-mx-quant",
     .options = hif4_dynamic_mx_quant(),
     .source_ragged = Ragged::kError,
     .source = "hicann/ops-nn quant/dynamic_mx_quant/tests/assets/golden.py",
     .evidence = Evidence::kRead,
     .vectors = "hif4/options.json (as amct,ties=even,overflow=nan,zero=ff)",
     .note = "half-to-even elements are presumed: the source calls an E1M2 cast of a library",
     .native = hif4_native(LevelBits::kLsb, Carrier::kU32)},
    {.name = "moe-routing",
     .options = hif4_moe_routing(),
     .source_ragged = Ragged::kError,
     .source = "hicann/ops-transformer moe/moe_init_routing_v3/tests/assets/golden.py",
     .evidence = Evidence::kRead,
     .vectors = "",
     .note = "half-to-even elements are presumed: the source calls an E1M2 cast of a library",
     .native = hif4_native(LevelBits::kLsb, Carrier::kU32)},
};

}  // namespace fp4scope
