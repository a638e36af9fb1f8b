// mx.h: MX contracts (spec/mx.md sections 3 and 4, spec/more.md sections 4.1 and 4.2). The default
// of every MX recipe is torchao-rceil, the replay of NVIDIA activations; paper comparisons use
// ocp-floor-rne. Where a source says nothing about an input, its contract refuses it.
#pragma once
#include "formats/contracts/options.h"

namespace fp4scope {

constexpr MxOptions mx_options(MxScaleRule rule, MxScaleArith arith = MxScaleArith::kField) {
  MxOptions o;
  o.scale_rule = rule;
  o.scale_arith = arith;
  return o;
}
// te-rceil, flashinfer-*: the Blackwell recipe of kernels that ignore NaN in the maximum.
constexpr MxOptions mx_nvidia_kernel(MxScaleArith arith) {
  MxOptions o = mx_options(MxScaleRule::kRceil, arith);
  o.top = MxTop::k254;
  o.nan = MxNan::kDrop;
  o.inf = MxInf::k254;
  return o;
}
constexpr MxOptions mx_te() {
  MxOptions o = mx_nvidia_kernel(MxScaleArith::kMul);
  o.nan_code = MxNanCode::kHostCuda;
  return o;
}
constexpr MxOptions mx_flashinfer(bool ftz) {
  MxOptions o = mx_nvidia_kernel(MxScaleArith::kRcp);
  o.byte0 = MxByte0::kFlush;
  o.ftz = ftz;
  o.quirk = MxQuirk::kZeroInverse254;
  return o;
}
constexpr MxOptions mx_triton(MxScaleRule rule, MxScaleArith arith) {
  MxOptions o = mx_options(rule, arith);
  o.nan = MxNan::kByte0;
  o.nan_code = MxNanCode::kSigned;
  o.byte0 = MxByte0::kFlush;
  return o;
}
constexpr MxOptions mx_microx(MxScaleArith arith, ZeroSign zero_sign, MxQuirk quirk) {
  MxOptions o = mx_options(MxScaleRule::kFloor, arith);
  o.ties = Rounding::kAway;
  o.zero_sign = zero_sign;
  o.quirk = quirk;
  if (quirk == MxQuirk::kMicroxTorch) o.int8_grid = Int8Grid::kSignMagnitude;
  return o;
}
constexpr MxOptions mx_modelopt_qtensor() {
  MxOptions o = mx_options(MxScaleRule::kCeilLog2, MxScaleArith::kDiv);
  o.nan = MxNan::kErase;
  o.inf = MxInf::kErase;
  o.ties = Rounding::kZero;
  o.zero_sign = ZeroSign::kSet;
  return o;
}
constexpr MxOptions mx_modelopt_cuda() {
  MxOptions o = mx_options(MxScaleRule::kCeilLog2, MxScaleArith::kDiv);
  o.nan = MxNan::kDrop;
  o.inf = MxInf::kClamp;
  o.zero_block = 127;
  o.zero_sign = ZeroSign::kRefuse;
  o.int8_grid = Int8Grid::kInteger127;
  return o;
}
constexpr MxOptions mx_ct_even() {
  MxOptions o = mx_options(MxScaleRule::kEven);
  o.even_width = EvenWidth::kE2m1;
  o.nan = MxNan::kByte0;
  o.zero_sign = ZeroSign::kDropInput;
  return o;
}
constexpr MxOptions mx_quark_even() {
  MxOptions o = mx_options(MxScaleRule::kEven);
  o.top = MxTop::k254;
  o.nan = MxNan::kPass;
  o.inf = MxInf::kRefuse;
  return o;
}
constexpr MxOptions mx_ggml_cpu() {
  MxOptions o = mx_options(MxScaleRule::kFloor, MxScaleArith::kLog2);
  o.nan = MxNan::kDrop;
  o.nan_code = MxNanCode::kZero;
  o.inf = MxInf::kRefuse;
  o.byte0 = MxByte0::kWrap;
  o.ties = Rounding::kZero;
  o.zero_sign = ZeroSign::kDrop;
  o.quirk = MxQuirk::kGgml;
  return o;
}
constexpr MxOptions mx_ggml_cuda_act() {
  MxOptions o = mx_options(MxScaleRule::kRintLog2, MxScaleArith::kLog2);
  o.nan = MxNan::kRefuse;
  o.inf = MxInf::kRefuse;
  return o;
}
constexpr MxOptions mx_fos(std::uint32_t divisor) {
  MxOptions o = mx_options(MxScaleRule::kFieldUp, MxScaleArith::kDiv);
  o.divisor = divisor;
  o.nan = MxNan::kByte0;
  o.byte0 = MxByte0::kFlush;
  o.zero_sign = ZeroSign::kDropInput;
  o.quirk = MxQuirk::kFos;
  return o;
}
constexpr MxOptions mx_gfloat() {
  MxOptions o = mx_options(MxScaleRule::kFloor);
  o.nan = MxNan::kRefuse;
  o.inf = MxInf::kRefuse;
  o.int8_grid = Int8Grid::kFull;
  return o;
}
constexpr MxOptions mx_pychop() {
  MxOptions o = mx_options(MxScaleRule::kFloor, MxScaleArith::kLog2);
  o.nan = MxNan::kPass;
  o.inf = MxInf::k254;
  o.zero_block = kRefuseZeroBlock;
  o.byte0 = MxByte0::kRefuse;
  o.zero_sign = ZeroSign::kDropInput;
  o.int8_grid = Int8Grid::kFull;
  o.ragged = Ragged::kFlat;
  return o;
}
constexpr MxOptions mx_universal(Rounding ties) {
  MxOptions o = mx_options(MxScaleRule::kFloor, MxScaleArith::kLog2);
  o.nan = MxNan::kDrop;
  o.nan_code = MxNanCode::kOwn;
  o.inf = MxInf::kByte0;
  o.zero_block = kZeroBlockEmax;
  o.ties = ties;
  o.zero_sign = ZeroSign::kRefuse;
  o.int8_grid = Int8Grid::kInteger128;
  o.quirk = MxQuirk::kUniversal;
  return o;
}
// metal and cuda. The recorded blocks of cuda give byte 1 to a quotient below 2^-126, as triton-up
// does and a plain upward cast does not.
constexpr MxOptions mx_mlx(MxScaleRule rule, MxTop top) {
  MxOptions o = mx_options(rule, MxScaleArith::kDiv);
  o.top = top;
  o.nan = MxNan::kRefuse;
  o.inf = top == MxTop::k254 ? MxInf::k254 : MxInf::kNan;
  return o;
}
constexpr MxOptions mx_mlx_cpu() {
  MxOptions o = mx_mlx(MxScaleRule::kMlxCpu, MxTop::kNan);
  o.inf = MxInf::kRefuse;
  o.dtype = DType16::kBf16;
  o.zero_block = 127;
  o.ties = Rounding::kZero;
  o.zero_sign = ZeroSign::kDrop;
  return o;
}
constexpr MxOptions mx_onednn() {
  MxOptions o = mx_options(MxScaleRule::kFloor);
  o.nan = MxNan::kDrop;
  o.nan_code = MxNanCode::kSigned;
  o.inf = MxInf::kRefuse;
  return o;
}
// DeepSeek's casters: the smallest power of two that is at least fl(max(amax, floor) / 6).
constexpr MxOptions mx_deepseek(std::uint32_t amax_floor) {
  MxOptions o = mx_options(MxScaleRule::kRceil, MxScaleArith::kDiv);
  o.amax_floor = amax_floor;
  return o;
}
// A NaN survives torch's maximum and its exponent is clamped to 254.
constexpr MxOptions mx_deepgemm() {
  MxOptions o = mx_deepseek(0x38d1b717u);  // 1e-4
  o.nan = MxNan::k254;
  o.inf = MxInf::k254;
  o.ties = Rounding::kZero;
  o.zero_sign = ZeroSign::kDrop;
  return o;
}
constexpr MxOptions mx_tilekernels() {
  MxOptions o = mx_deepseek(0x01c00000u);  // 6 * 2^-126
  o.nan = MxNan::kRefuse;
  o.inf = MxInf::kRefuse;
  return o;
}
constexpr NativeLayout mx_native(Nibbles nibbles, ScaleLayout scales = ScaleLayout::kLinear) {
  NativeLayout layout;
  layout.nibbles = nibbles;
  layout.scales = scales;
  return layout;
}
inline constexpr std::string_view kMxFloats = "mxfp4 mxfp6e2m3 mxfp6e3m2 mxfp8e4m3 mxfp8e5m2";
inline constexpr std::string_view kMxFloatsAndInt8 =
    "mxfp4 mxfp6e2m3 mxfp6e3m2 mxfp8e4m3 mxfp8e5m2 mxint8";
inline constexpr std::string_view kTorchaoSource =
    "torchao 36027d8 torchao/prototype/mx_formats/mx_tensor.py to_mx";
inline constexpr std::string_view kTorchaoVectors =
    "mx/mxfp4_blocks.json mx/mxfp8_mxfp6_blocks.json peers/peers.safetensors";
inline constexpr std::string_view kMicroxSource = "microxcaling 7bc4195 mx/mx_ops.py _quantize_mx";
inline constexpr std::string_view kMicroxVectors =
    "mx/mxfp4_blocks.json mx/mxfp8_mxfp6_blocks.json mx/log2_pitfall.json peers/peers.safetensors";
inline constexpr std::string_view kFosSource = "fouroversix dadfad6 PyTorch backend, MXFP4";
inline constexpr std::string_view kFosVectors = "mx/mxfp4_blocks.json peers/peers.safetensors";
inline constexpr std::string_view kTritonSource =
    "Triton python/triton_kernels/numerics_details/mxfp.py downcast_to_mxfp";
inline constexpr std::string_view kFlashinferNote =
    "a block whose amax/6 is below 2^-126 is stored as zero";
inline constexpr std::string_view kLog2Note =
    "the exponent is floor(log2f(amax)), one too high for amax just below some powers of two";
inline constexpr std::string_view kFosNote =
    "a block with a NaN is silently zero; the project's dequantizer works in FP16 and is no "
    "reference for values";

inline constexpr Contract<MxOptions> kMxContracts[] = {
    {"ocp-floor-rne", mx_options(MxScaleRule::kFloor), Ragged::kError,
     "OCP MX v1.0 section 6.3, open points fixed as in torchao to_mx", Evidence::kRead,
     "mx/mxfp4_blocks.json (as torchao-floor) hif4/resq.json", kMxFloatsAndInt8},
    {"torchao-floor", mx_options(MxScaleRule::kFloor), Ragged::kError, kTorchaoSource,
     Evidence::kVerified, kTorchaoVectors, kMxFloats},
    {"torchao-ceil", mx_options(MxScaleRule::kCeil), Ragged::kError, kTorchaoSource,
     Evidence::kVerified, kTorchaoVectors, kMxFloats},
    {"torchao-even", mx_options(MxScaleRule::kEven), Ragged::kError, kTorchaoSource,
     Evidence::kVerified, kTorchaoVectors, kMxFloats},
    {"torchao-rceil", mx_options(MxScaleRule::kRceil, MxScaleArith::kMul), Ragged::kError,
     kTorchaoSource, Evidence::kVerified, kTorchaoVectors, kMxFloats},
    {"te-rceil", mx_te(), Ragged::kError,
     "TransformerEngine d0067d0 transformer_engine/common/cast/mxfp8", Evidence::kRead,
     "mx/mxfp8_mxfp6_blocks.json", "mxfp8e4m3 mxfp8e5m2", "",
     "an E5M2 NaN has the code 0x7e of the vectors; spec/mx.md section 3 says 0x7f"},
    {"flashinfer-cuda", mx_flashinfer(true), Ragged::kError,
     "FlashInfer fb28d72 quantization_utils.cuh", Evidence::kRead, "mx/mxfp4_blocks.json", "mxfp4",
     "", kFlashinferNote, mx_native(Nibbles::kLowFirst, ScaleLayout::k128x4)},
    {"flashinfer-cute", mx_flashinfer(false), Ragged::kError,
     "FlashInfer fb28d72 quantization_cute_dsl_utils.py", Evidence::kRead, "mx/mxfp4_blocks.json",
     "mxfp4", "", "a block whose byte is 0 is stored as zero",
     mx_native(Nibbles::kLowFirst, ScaleLayout::k128x4)},
    {"triton-up", mx_triton(MxScaleRule::kTritonUp, MxScaleArith::kDiv), Ragged::kPad,
     kTritonSource, Evidence::kRead, "mx/mxfp4_blocks.json", "mxfp4 mxfp8e4m3 mxfp8e5m2", "",
     "a block with a NaN gets byte 0 and zero codes, as in the torch reference; the kernel ignores "
     "the NaN in the maximum (nan=drop)"},
    {"triton-down", mx_triton(MxScaleRule::kTritonDown, MxScaleArith::kField), Ragged::kPad,
     kTritonSource, Evidence::kRead, "mx/mxfp4_blocks.json", "mxfp4 mxfp8e4m3 mxfp8e5m2", "",
     "a block whose scale would be below 2^-126 is stored as zero; a block with a NaN gets byte 0 "
     "and zero codes (the kernel: nan=drop)"},
    {"microx-torch", mx_microx(MxScaleArith::kLog2, ZeroSign::kDropInput, MxQuirk::kMicroxTorch),
     Ragged::kPad, kMicroxSource, Evidence::kVerified, kMicroxVectors,
     "mxfp4 mxfp6e2m3 mxfp6e3m2 mxfp8e4m3 mxfp8e5m2 mxint8 mxint4", "",
     "exponents come from a binary32 log2 and elements are rounded by floor(q + 0.5) in binary32: "
     "both are off by one just below some values; the source emits values only, the codes are "
     "fp4scope's"},
    {"microx-cuda", mx_microx(MxScaleArith::kField, ZeroSign::kDrop, MxQuirk::kNone), Ragged::kPad,
     "microxcaling 7bc4195 mx/cpp/quantize.cuh", Evidence::kVerified,
     "mx/mxfp4_blocks.json mx/mxfp8_mxfp6_blocks.json mx/mxint8_blocks.json "
     "peers/peers.safetensors",
     "mxfp4 mxfp6e2m3 mxfp6e3m2 mxfp8e4m3 mxfp8e5m2 mxint8 mxint4", "",
     "verified by running the kernel's arithmetic on a CPU; the source emits values only, the "
     "codes "
     "are fp4scope's"},
    {"modelopt-qtensor", mx_modelopt_qtensor(), Ragged::kPad,
     "Model-Optimizer a2fbac7 modelopt/torch/quantization/qtensor/mxfp4_tensor.py",
     Evidence::kVerified, "mx/mxfp4_blocks.json", "mxfp4", "",
     "a block with a NaN or an infinity is silently erased (byte 0, every code 8), and an input "
     "zero becomes -0"},
    {"modelopt-cuda", mx_modelopt_cuda(), Ragged::kPad,
     "Model-Optimizer a2fbac7 CUDA fake-quantization kernel", Evidence::kRead, "", kMxFloatsAndInt8,
     "", "the source does not say which sign a zero result has (zero-sign=keep for a choice)"},
    {"ct-even", mx_ct_even(), Ragged::kPad,
     "compressed-tensors ac8e2ba compressors/mxfp4, llm-compressor, vLLM reference",
     Evidence::kRead, "mx/mxfp4_blocks.json mx/mxfp8_mxfp6_blocks.json",
     "mxfp4 mxfp8e4m3 mxfp8e5m2", "",
     "the scale is rounded at the fraction width of E2M1 for every element type (even-width=elem "
     "for the element's own), and a block with a NaN gets byte 0; the rule works on the bits of "
     "the "
     "tensor's own type: say dtype=bf16 or dtype=f16 for such a tensor"},
    {"quark-even", mx_quark_even(), Ragged::kPad, "Quark 1d27b55", Evidence::kRead, "", kMxFloats,
     "",
     "NaN passes through fake quantization and so does an infinity, which no code can hold: it is "
     "refused"},
    {"ggml-cpu", mx_ggml_cpu(), Ragged::kError, "ggml d99724f src/ggml-quants.c",
     Evidence::kVerified, "mx/mxfp4_blocks.json mx/log2_pitfall.json", "mxfp4", "",
     "the exponent is floor(log2f(amax)), one too high for amax just below some powers of two; "
     "the byte wraps for amax below 2^-125 (below that amax: read, not verified), and a NaN "
     "becomes 0",
     mx_native(Nibbles::kSplit16)},
    {"ggml-cuda-act", mx_ggml_cuda_act(), Ragged::kPad, "ggml d99724f CUDA activation kernel",
     Evidence::kRead, "", "mxfp4"},
    {"fos-static6", mx_fos(6), Ragged::kPad, kFosSource, Evidence::kVerified, kFosVectors, "mxfp4",
     "", kFosNote, mx_native(Nibbles::kLowFirst, ScaleLayout::k128x4)},
    {"fos-static4", mx_fos(4), Ragged::kPad, kFosSource, Evidence::kVerified, kFosVectors, "mxfp4",
     "", kFosNote, mx_native(Nibbles::kLowFirst, ScaleLayout::k128x4)},
    {"gfloat", mx_gfloat(), Ragged::kPad, "gfloat b142762 block encode", Evidence::kVerified,
     "mx/mxint8_blocks.json (mxint8)", kMxFloatsAndInt8, "",
     "binary64 arrays; for binary32 arrays the exponent is floor(log2f(amax)) (scale-arith=log2)"},
    {"pychop", mx_pychop(), Ragged::kFlat, "pychop 242e079", Evidence::kRead,
     "mx/log2_pitfall.json (its exponents)", kMxFloatsAndInt8, "", kLog2Note},
    {"universal", mx_universal(Rounding::kEven), Ragged::kPad,
     "universal e6aa357 include/sw/universal/number/mxfloat/mxblock_impl.hpp", Evidence::kVerified,
     "mx/log2_pitfall.json (its exponents)", kMxFloats, "",
     "the exponent is floor(log2f(amax)); blocks whose scale is below 2^-127 saturate instead of "
     "underflowing; the source does not say which sign a zero result has (zero-sign=keep)"},
    {"universal", mx_universal(Rounding::kAway), Ragged::kPad,
     "universal e6aa357 include/sw/universal/number/mxfloat/mxblock_impl.hpp", Evidence::kVerified,
     "mx/log2_pitfall.json (its exponents)", "mxint8", "",
     "the scale is taken 2^7 below the maximum, so that the maximum always saturates"},
    {"mlx-metal", mx_mlx(MxScaleRule::kRoundLog2, MxTop::kNan), Ragged::kError,
     "MLX 846d1762 backend/metal/kernels/fp_quantized.h", Evidence::kRead, "more/mlx_sglang.json",
     "mxfp4 mxfp8e4m3"},
    {"mlx-cuda", mx_mlx(MxScaleRule::kTritonUp, MxTop::k254), Ragged::kError,
     "MLX 846d1762 backend/cuda/quantized/fp_quantize.cuh", Evidence::kRead, "more/mlx_sglang.json",
     "mxfp4 mxfp8e4m3"},
    {"mlx-cpu", mx_mlx_cpu(), Ragged::kError, "MLX 846d1762 ops.cpp", Evidence::kRead, "", "mxfp4",
     "", "BF16 array arithmetic; ties go toward zero"},
    {"onednn", mx_onednn(), Ragged::kPad,
     "oneDNN 3f27bec2 src/cpu/matmul/ref_matmul.cpp dynamic_mx", Evidence::kRead, "",
     "mxfp4 mxfp8e4m3 mxfp8e5m2"},
    {"deepgemm-fp4", mx_deepgemm(), Ragged::kPad,
     "DeepGEMM 54e22612 deep_gemm/utils/math.py per_token_cast_to_fp4 (use_ue8m0)", Evidence::kRead,
     "", "mxfp4", "",
     "ties go toward zero, and amax is at least 1e-4, so that an all-zero block has byte 112; the "
     "ties are verified, codes of a NaN (7) and its byte (254) are read; on a GPU torch multiplies "
     "with 1/6 (scale-arith=mul)"},
    {"tilekernels-fp4", mx_tilekernels(), Ragged::kError,
     "TileKernels 36d9e45d tile_kernels/quant/common.py, per_token_cast_kernel.py", Evidence::kRead,
     "", "mxfp4", "",
     "amax is at least 6 * 2^-126, so that an all-zero block has byte 1; whether its maximum "
     "ignores a NaN is not known, so NaN and infinities are refused"},
};

}  // namespace fp4scope
