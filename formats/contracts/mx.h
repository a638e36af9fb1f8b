// mx.h: MX contracts (spec/mx.md section 3). The default of every MX recipe is torchao-rceil, the
// replay of NVIDIA activations; paper comparisons use ocp-floor-rne.
#pragma once
#include "formats/contracts/options.h"

namespace fp4scope {

constexpr MxOptions mx_options(MxScaleRule rule, MxScaleArith arith = MxScaleArith::kField) {
  MxOptions o;
  o.scale_rule = rule;
  o.scale_arith = arith;
  return o;
}
inline constexpr std::string_view kTorchaoSource =
    "torchao 36027d8 torchao/prototype/mx_formats/mx_tensor.py to_mx";
inline constexpr std::string_view kTorchaoVectors =
    "mx/mxfp4_blocks.json mx/mxfp8_mxfp6_blocks.json peers/peers.safetensors";
inline constexpr Contract<MxOptions> kMxContracts[] = {
    {"ocp-floor-rne", mx_options(MxScaleRule::kFloor), Ragged::kError,
     "OCP MX v1.0 section 6.3, open points fixed as in torchao to_mx", Evidence::kRead,
     "mx/mxfp4_blocks.json (as torchao-floor)"},
    {"torchao-floor", mx_options(MxScaleRule::kFloor), Ragged::kError, kTorchaoSource,
     Evidence::kVerified, kTorchaoVectors},
    {"torchao-ceil", mx_options(MxScaleRule::kCeil), Ragged::kError, kTorchaoSource,
     Evidence::kVerified, kTorchaoVectors},
    {"torchao-even", mx_options(MxScaleRule::kEven), Ragged::kError, kTorchaoSource,
     Evidence::kVerified, kTorchaoVectors},
    {"torchao-rceil", mx_options(MxScaleRule::kRceil, MxScaleArith::kMul), Ragged::kError,
     kTorchaoSource, Evidence::kVerified, kTorchaoVectors},
};

}  // namespace fp4scope
