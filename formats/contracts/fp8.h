// fp8.h: contracts of FP8 with binary32 or power-of-two scales (spec/more.md sections 2.1 and 6).
// The stored scale decodes: x = code * scale. Rules that hold for every row:
// the maximum ignores NaN unless the note says that it propagates; a saturating or torch cast turns
// NaN into 0x7F; a clamp of CUDA or Triton turns it into +448 first, a clamp of torch keeps it.
#pragma once
#include "formats/contracts/options.h"

namespace fp4scope {

inline constexpr Fp8Gran kPerTensor{0, 0};
inline constexpr Fp8Gran kPerRow{0, 1};
inline constexpr Fp8Gran kPerGroup128{128, 1};
inline constexpr Fp8Gran kPerBlock128{128, 128};

constexpr Fp8Options fp8_options(Fp8Order order, Fp8Gran gran, Div div = Div::kIeee) {
  Fp8Options o;
  o.order = order;
  o.gran = gran;
  o.div = div;
  return o;
}
constexpr Fp8Options fp8_options_ue8m0(Fp8Order order, Fp8Gran gran) {
  Fp8Options o = fp8_options(order, gran);
  o.scale_fmt = ScaleFmt::kUe8m0;
  return o;
}
constexpr Fp8Options fp8_options_given(Fp8Order order, std::uint32_t g_bits) {
  Fp8Options o = fp8_options(order, kPerTensor);
  o.has_g = true;
  o.g_bits = g_bits;
  return o;
}
inline constexpr Contract<Fp8Options> kFp8Contracts[] = {
    {"te", fp8_options(Fp8Order::kTe, kPerGroup128), Ragged::kPad,
     "TransformerEngine d0067d0d common/recipe/recipe_common.cuh, current_scaling.cu, "
     "common/transpose/quantize_transpose_vector_blockwise.cu, ..._square_blockwise.cu",
     Evidence::kVerified, "more/fp8.json", "", "",
     "Current scaling with gran=tensor, block scaling otherwise; they differ where the scale "
     "overflows. scale-fmt=pow2 is the default of block scaling there. An amax of 0 or infinity "
     "has scale 1."},
    {"te-delayed", fp8_options(Fp8Order::kTeDelayed, kPerTensor), Ragged::kPad,
     "TransformerEngine d0067d0d common/recipe/delayed_scaling.cu", Evidence::kRead,
     "more/fp8.json (the scales of te)", "", "",
     "amax gives the amax of the history; without it the tensor's own stands for it. Where it is 0 "
     "or not finite the source keeps its previous scale; here that is its initial value 1."},
    {"deepgemm", fp8_options(Fp8Order::kDeepgemm, kPerGroup128), Ragged::kPad,
     "DeepGEMM 54e22612 deep_gemm/utils/math.py", Evidence::kVerified, "more/fp8.json", "", "",
     "NaN propagates: the scale is NaN, with a power-of-two scale 2^127, which an infinity has "
     "too. Codes of binary32 scales "
     "under scalar-div=rcp were not compared with a GPU."},
    {"tilekernels", fp8_options(Fp8Order::kTilekernels, kPerGroup128), Ragged::kPad,
     "TileKernels 36d9e45d tile_kernels/quant/common.py, per_token_cast_kernel.py", Evidence::kRead,
     "more/fp8.json", "", "", "An infinity gives an infinite scale (byte 255) and inverse 0."},
    {"triton-group", fp8_options(Fp8Order::kTritonGroup, kPerGroup128, Div::kTriton),
     Ragged::kError,
     "SGLang 008601fa quantization/fp8_kernel.py; slime 624b824a and miles 31f1ca96 "
     "slime/backends/megatron_utils/kernels/fp8_kernel.py",
     Evidence::kVerified, "more/fp8.json", "", "",
     "The ceiling of log2 is taken exactly. An infinity gives an infinite scale (byte 255)."},
    {"triton-group-div", fp8_options(Fp8Order::kTritonGroupDiv, kPerGroup128, Div::kTriton),
     Ragged::kError,
     "SGLang 008601fa quantization/fp8_kernel.py (column-major); vLLM 007d5005 "
     "quantization/utils/fp8_utils.py",
     Evidence::kInferred, "", "", "",
     "That y/s is a product with the approximate reciprocal is inferred; div=ieee is the other "
     "reading. The ceiling of log2 is taken exactly."},
    {"vllm-group", fp8_options(Fp8Order::kVllmGroup, kPerGroup128), Ragged::kError,
     "vLLM 0f5257e2 csrc/quantization/w8a8/fp8/per_token_group_quant.cu", Evidence::kRead,
     "more/fp8.json", "", "",
     "Whether the published binaries use fast division was not checked: div. An infinity gives an "
     "infinite scale (byte 255)."},
    {"sgl-group", fp8_options(Fp8Order::kSglGroup, kPerGroup128), Ragged::kError,
     "SGLang 00568d90 sgl-kernel/csrc/gemm/per_token_group_quant_8bit.cu", Evidence::kRead,
     "more/fp8.json", "", "",
     "Whether the published binaries use fast division was not checked: div. An infinity gives an "
     "infinite scale (byte 255) and inverse 0."},
    {"sgl-token", fp8_options(Fp8Order::kSglToken, kPerRow), Ragged::kPad,
     "SGLang sgl-kernel/csrc/gemm/per_token_quant_fp8.cu (spec/more.md names no commit for it)",
     Evidence::kRead, "more/fp8.json", "", "",
     "Whether the published binaries use fast division was not checked: div. With scale 0 the "
     "inverse is 0."},
    {"vllm-token", fp8_options(Fp8Order::kVllmToken, kPerRow), Ragged::kPad,
     "vLLM 096d3dc9 csrc/quantization/w8a8/fp8/common.cu", Evidence::kRead, "more/fp8.json", "", "",
     "Whether the published binaries use fast division was not checked: div."},
    {"vllm-tensor", fp8_options(Fp8Order::kVllmTensor, kPerTensor), Ragged::kPad,
     "vLLM 096d3dc9 csrc/quantization/w8a8/fp8/common.cu", Evidence::kRead, "", "", "",
     "An all-zero tensor has scale 0 and, inferred, codes 0x7E: 0 * Inf is NaN and the clamp makes "
     "it 448."},
    {"fbgemm-triton", fp8_options(Fp8Order::kFbgemmTriton, kPerRow, Div::kTriton), Ragged::kPad,
     "FBGEMM 71d6f8b2 fbgemm_gpu/experimental/gemm/triton_gemm/fp8_gemm.py", Evidence::kVerified,
     "more/fp8.json", "", "",
     "Verified for gran=row. An amax above 2^126 has S = 0, zero codes and, as recorded, the scale "
     "2^127."},
    {"fbgemm-cuda", fp8_options(Fp8Order::kFbgemmCuda, kPerRow), Ragged::kPad,
     "FBGEMM 71d6f8b2 fbgemm_gpu/experimental/gen_ai/src/quantize/quantize.cu", Evidence::kRead,
     "more/fp8.json", "", "",
     "The kernel reads its input as BF16 whatever the type is; only BF16 tensors mean anything."},
    {"torchao-dyn", fp8_options(Fp8Order::kTorchaoDyn, kPerRow), Ragged::kPad,
     "torchao 36027d82 float8/float8_utils.py, float8_training_tensor.py", Evidence::kRead,
     "more/fp8.json", "", "", "The floor of log2 is taken exactly."},
    {"torchao-affine", fp8_options(Fp8Order::kTorchaoAffine, kPerRow), Ragged::kPad,
     "torchao 36027d82 quantization/quant_primitives.py", Evidence::kRead, "", "", "",
     "NaN propagates. Nothing guards a zero group: scale 0, codes NaN. The nearest power of two is "
     "taken exactly, with the threshold sqrt(2)."},
    {"hf-block", fp8_options(Fp8Order::kHfBlock, kPerBlock128), Ragged::kPad,
     "slime 624b824a and miles 31f1ca96 tools/convert_hf_to_fp8.py", Evidence::kRead, "", "", "",
     "NaN propagates. Nothing guards a zero block: scale 0, codes NaN; tensor and row have the "
     "floor 1e-12."},
    {"verl-dsv4", fp8_options_ue8m0(Fp8Order::kVerlDsv4, kPerBlock128), Ragged::kPad,
     "verl 021b50c0 verl/utils/vllm/vllm_fp8_utils.py", Evidence::kRead, "", "", "",
     "NaN propagates (byte 255). The ceiling of log2 is taken exactly. The cast does not saturate: "
     "an infinity becomes NaN."},
    {"vllm-torch-tensor", fp8_options(Fp8Order::kVllmTorchTensor, kPerTensor), Ragged::kPad,
     "vLLM 007d5005 quantization/utils/fp8_utils.py input_to_float8", Evidence::kRead, "", "", "",
     "The product is rounded to the type of the input before the FP8 cast. The floor 1e-12 is "
     "rounded to that type too: 0 for FP16."},
    {"vllm-kv", fp8_options_given(Fp8Order::kVllmKv, 0x3f800000), Ragged::kPad,
     "vLLM 0492a439 csrc/quantization/w8a8/fp8/nvidia/quant_utils.cuh", Evidence::kRead, "", "", "",
     "The scale of the KV cache is given, 1 when absent."},
};

}  // namespace fp4scope
