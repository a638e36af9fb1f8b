// nvfp4.h: contracts of NVFP4, if4 and nvint4 (spec/nvfp4.md sections 2 to 6, spec/more.md 3, 4,
// 6). Where a source has no dequantizer of its own the decoded value is fixed here:
//   te, te-fast                       q * f, f = fl(fl(sf*amax) * fl(1/(6M))) (spec/nvfp4.md 3.4)
//   flashinfer*, trtllm, vllm, mslk*  q * f, f = fl(sf * fl(1/g)); scale=row of flashinfer-fast:
//                                     f = fl(sf * fl(rowAmax * fl(1/(6M)))), the scale it stores
//   any of these six, scale=given     with the key amax: as te; without: f = fl(sf * fl(1/g))
//   fouroversix*, if4, nvint4         fl(fl(fl(q*sf) * amax) / (qM)); scale=none and scale=given
//                                     without amax: fl(fl(q*sf) * fl(1/g))
//   modelopt*, torchao                q * fl(sf*g), g the decode scale
//   compressed-tensors                q * fl(sf/g)
//   mlx-*                             fl(fl(fl(q*sf) * amax) / 2688); scale=none: fl(q*sf)
//   onednn                            fl(q*sf)
//   flashinfer-kv                     fl(fl(q*sf) * g), g the decode scale
// scale=none is g = 1 everywhere.
// mlx-cpu (array expressions of mlx/ops.cpp, fp_quantize): s = dt(bmax/6) with dt of the input
// type, sf = E4M3 of s, saturating; y = dt(x/sf); the code is the first entry of [0..6, -0..-6]
// with the least dt(|y - entry|). Refused, since the sources define no codes: a NaN element under
// fouroversix, compressed-tensors and mlx-cpu, zeros under a zero scale (0/0) under mlx-cpu, and an
// all-zero tensor under fouroversix-cuda.
#pragma once
#include "formats/contracts/options.h"

namespace fp4scope {

constexpr Nvfp4Options nvfp4_options(Nvfp4Order order) {
  Nvfp4Options o;
  o.order = order;
  switch (order) {
    case Nvfp4Order::kFlashinfer:
    case Nvfp4Order::kFlashinferFast:
      o.ftz = true;
      break;
    case Nvfp4Order::kFlashinferKv:
      o.ftz = true;
      o.scale = OuterScale::kGiven;
      break;
    case Nvfp4Order::kFouroversix:
    case Nvfp4Order::kModelopt:
    case Nvfp4Order::kModeloptStatic:
    case Nvfp4Order::kCompressedTensors:
      o.neg_zero = NegZero::kDrop;
      break;
    case Nvfp4Order::kMlxCpu:
      o.neg_zero = NegZero::kDrop;
      o.scale = OuterScale::kNone;
      break;
    case Nvfp4Order::kMlxMetal:
    case Nvfp4Order::kMlxCuda:
    case Nvfp4Order::kOnednn:
      o.scale = OuterScale::kNone;
      break;
    default:
      break;
  }
  return o;
}
constexpr Nvfp4Options nvfp4_sglang() {
  Nvfp4Options o = nvfp4_options(Nvfp4Order::kFlashinfer);
  o.g_rule = GRule::kInvMul;
  o.finite_amax = true;
  return o;
}
constexpr Nvfp4Options nvfp4_if4() {
  Nvfp4Options o = nvfp4_options(Nvfp4Order::kFouroversix);
  o.select = Select::kMse;
  o.int4_candidate = true;
  return o;
}

inline constexpr std::string_view kRcpNote =
    "rcp~ from a table measured on an H200 (sm_90); open whether Blackwell has the same";
inline constexpr std::string_view kFouroversixSource =
    "fouroversix dadfad6 src/fouroversix/quantize/pytorch/reference.py";
inline constexpr NativeLayout kNvfp4Swizzled{.scales = ScaleLayout::k128x4};

inline constexpr Contract<Nvfp4Options> kNvfp4Contracts[] = {
    {"te", nvfp4_options(Nvfp4Order::kTe), Ragged::kError,
     "TransformerEngine d0067d0 transformer_engine/common/cast/nvfp4/core_nvfp4.cuh",
     Evidence::kVerified,
     "nvfp4/cases.json nvfp4/global_scale.json (its g) nvfp4/near_ties_4over6.json (its choices)",
     "nvfp4"},
    {"te-fast", nvfp4_options(Nvfp4Order::kTeFast), Ragged::kError,
     "TransformerEngine d0067d0 transformer_engine/common/cast/nvfp4/core_nvfp4.cuh "
     "(NVTE_USE_FAST_MATH=1)",
     Evidence::kRead, "nvfp4/cases.json", "nvfp4"},
    {"flashinfer", nvfp4_options(Nvfp4Order::kFlashinfer), Ragged::kError,
     "FlashInfer fb28d72 csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh "
     "(FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH=1)",
     Evidence::kRead, "nvfp4/cases.json", "nvfp4", "",
     "the strict mode; builds with 8 elements per thread have sum=halves", kNvfp4Swizzled},
    {"flashinfer-fast", nvfp4_options(Nvfp4Order::kFlashinferFast), Ragged::kError,
     "FlashInfer fb28d72 csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh",
     Evidence::kRead, "nvfp4/cases.json", "nvfp4", "", kRcpNote, kNvfp4Swizzled},
    {"trtllm", nvfp4_options(Nvfp4Order::kTrtllm), Ragged::kError,
     "TensorRT-LLM 0193dbd cpp/tensorrt_llm/kernels/quantization.cuh", Evidence::kRead,
     "nvfp4/cases.json", "nvfp4", "", kRcpNote, kNvfp4Swizzled},
    {"vllm", nvfp4_options(Nvfp4Order::kVllm), Ragged::kError,
     "vLLM 20b4ad8 csrc/libtorch_stable/quantization/fp4/nvfp4_utils.cuh", Evidence::kRead,
     "nvfp4/cases.json", "nvfp4", "", kRcpNote, kNvfp4Swizzled},
    {"sglang-online", nvfp4_sglang(), Ragged::kError,
     "SGLang 031bd0c python/sglang/srt/layers/quantization/nvfp4_online.py", Evidence::kRead,
     "more/mlx_sglang.json (key sglang)", "nvfp4", "sglang",
     "weights only; an infinite tensor maximum counts as the largest finite BF16 number, the type "
     "that the source converts weights to"},
    {"fouroversix", nvfp4_options(Nvfp4Order::kFouroversix), Ragged::kPad, kFouroversixSource,
     Evidence::kVerified, "nvfp4/cases.json peers/peers.safetensors", "nvfp4", "",
     "codes above 6 are not saturated: a scale that underflows can give wrong nibbles; the order "
     "of torch's own error sum is open, sum=seq stands for it",
     kNvfp4Swizzled},
    {"fouroversix", nvfp4_if4(), Ragged::kPad, kFouroversixSource, Evidence::kVerified,
     "peers/peers.safetensors", "if4", "",
     "blocks with INT4 elements have 0x80 added to the scale byte; scalar-div acts on the errors "
     "too"},
    {"fouroversix", nvfp4_options(Nvfp4Order::kFouroversix), Ragged::kPad, kFouroversixSource,
     Evidence::kVerified, "peers/peers.safetensors", "nvint4"},
    {"fouroversix-cuda", nvfp4_options(Nvfp4Order::kFouroversixCuda), Ragged::kPad,
     "fouroversix dadfad6 csrc", Evidence::kRead, "nvfp4/cases.json", "nvfp4", "",
     "an all-zero tensor is refused: the source writes no output for it", kNvfp4Swizzled},
    {"modelopt", nvfp4_options(Nvfp4Order::kModelopt), Ragged::kError,
     "Model-Optimizer a2fbac7 modelopt/torch/quantization/qtensor/nvfp4_tensor.py",
     Evidence::kVerified, "nvfp4/cases.json", "nvfp4", "",
     "g is the decode scale weight_scale_2; the code of a NaN element is inferred, and so are "
     "those "
     "of an all-zero tensor, whose scale 0 gives 0/0"},
    {"modelopt-static", nvfp4_options(Nvfp4Order::kModeloptStatic), Ragged::kError,
     "Model-Optimizer a2fbac7 modelopt/torch/quantization/qtensor/nvfp4_tensor.py "
     "(get_weights_scaling_factor_from_quantizer)",
     Evidence::kRead, "", "nvfp4", "",
     "the block scale is taken relative to the tensor maximum; the block maximum is that of the "
     "weights, where the source takes a calibrated one"},
    {"compressed-tensors", nvfp4_options(Nvfp4Order::kCompressedTensors), Ragged::kError,
     "compressed-tensors 52792be src/compressed_tensors/quantization/utils/helpers.py",
     Evidence::kVerified, "nvfp4/cases.json", "nvfp4", "",
     "observers of other llm-compressor versions may compute the maximum in another type "
     "(amax-dtype)"},
    {"torchao", nvfp4_options(Nvfp4Order::kTorchao), Ragged::kError,
     "torchao 36027d8 torchao/prototype/mx_formats/nvfp4_tensor.py", Evidence::kVerified,
     "nvfp4/cases.json peers/peers.safetensors", "nvfp4", "",
     "g is the decode scale per_tensor_scale; the code of a NaN element is inferred, and so are "
     "those "
     "of an all-zero tensor, whose scale 0 gives 0/0"},
    {"mlx-metal", nvfp4_options(Nvfp4Order::kMlxMetal), Ragged::kError,
     "MLX 846d176 mlx/backend/metal/kernels/fp_quantized.h", Evidence::kRead,
     "more/mlx_sglang.json", "nvfp4", "",
     "with an outer scale an all-zero tensor divides 0 by 0: scales 0x7e, codes 7"},
    {"mlx-cuda", nvfp4_options(Nvfp4Order::kMlxCuda), Ragged::kError,
     "MLX 846d176 mlx/backend/cuda/quantized/fp_quantize.cuh", Evidence::kRead,
     "more/mlx_sglang.json", "nvfp4", "",
     "a zero block divides 0 by 0: its codes are 7 under a zero scale"},
    {"mlx-cpu", nvfp4_options(Nvfp4Order::kMlxCpu), Ragged::kError, "MLX 846d176 mlx/ops.cpp",
     Evidence::kRead, "", "nvfp4", "",
     "array arithmetic in the type of the input, never run against the source; a zero block "
     "divides 0 by 0 and is refused"},
    {"onednn", nvfp4_options(Nvfp4Order::kOnednn), Ragged::kError,
     "oneDNN 3f27bec src/cpu/matmul/ref_matmul.cpp (dynamic_fp)", Evidence::kRead, "", "nvfp4", "",
     "the smallest block scale is 0.125, so blocks below 0.03125 become zero; that the inverse is "
     "taken of the rounded scale is inferred"},
    {"mslk", nvfp4_options(Nvfp4Order::kMslk), Ragged::kError,
     "MSLK 2a3c897 mslk/quantize/triton/quantize_kernels/nvfp4.py", Evidence::kRead, "", "nvfp4",
     "", "g is the caller's; by default it is taken from the tensor maximum", kNvfp4Swizzled},
    {"mslk-e8m0", nvfp4_options(Nvfp4Order::kMslkE8m0), Ragged::kError,
     "MSLK 2a3c897 mslk/quantize/triton/quantize_kernels/nvfp4.py (use_e8m0_scale)",
     Evidence::kRead, "", "nvfp4", "",
     "block scales are powers of two stored as E4M3, a zero block has 1; an exact three quarters "
     "of a fraction stays below, as the source adds one less than the half",
     kNvfp4Swizzled},
    {"flashinfer-kv", nvfp4_options(Nvfp4Order::kFlashinferKv), Ragged::kError,
     "FlashInfer fb28d72 csrc/fp4_kv_quantization.cu", Evidence::kRead, "", "nvfp4", "", kRcpNote},
};

}  // namespace fp4scope
