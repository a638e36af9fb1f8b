// checkpoints.cc: see checkpoints.h.
#include "sim/layouts/checkpoints.h"

#include <fmt/format.h>

#include "formats/minifloat.h"
#include "sim/error.h"
#include "sim/layouts/sizes.h"

namespace fp4scope {
namespace {

using enum CheckpointRole;
constexpr ScaleConvention kDecode = ScaleConvention::kDecode, kEncode = ScaleConvention::kEncode;
constexpr Evidence kVerified = Evidence::kVerified, kRead = Evidence::kRead;

constexpr std::string_view kModelOpt = "modelopt-nvfp4", kCt = "nvfp4-pack-quantized",
                           kTorchao = "torchao-nvfp4", kGptOss = "gpt-oss-mxfp4",
                           kAmct = "amct-hif4", kInt4 = "pack-quantized", kFp8 = "fp8-block",
                           kDeepSeek = "deepseek-v4";
constexpr std::string_view kModelOptValue = "e2m1 * fl(weight_scale * weight_scale_2)",
                           kCtValue = "e2m1 * fl(weight_scale / weight_global_scale)",
                           kTorchaoValue = "e2m1 * fl(scale * per_tensor_scale)",
                           kGptOssValue = "ldexp(e2m1, byte - 127); byte 255 is Inf",
                           kAmctValue = "E * 2^(e8 + e16) * q/4, bits=msb",
                           kInt4Value = "q * weight_scale, q = stored nibble - 8",
                           kFp8Value = "bf16(fl(e4m3 * weight_scale_inv))",
                           kDeepSeekValue = "FP4: e2m1 * 2^(byte-127), low nibble = even K";

constexpr CheckpointTensor kTensors[] = {
    {kModelOpt, "weight", "U8", "[N, K/2]", kCodes, kDecode, kModelOptValue, kVerified},
    {kModelOpt, "weight_scale", "F8_E4M3", "[N, K/16]", kBlockScale, kDecode, kModelOptValue,
     kVerified},
    {kModelOpt, "weight_scale_2", "F32", "[]", kOuterScale, kDecode, kModelOptValue, kVerified},
    {kModelOpt, "input_scale", "F32", "[]", kInputScale, kDecode, kModelOptValue, kVerified},
    {kCt, "weight_packed", "U8", "[N, K/2]", kCodes, kDecode, kCtValue, kVerified},
    {kCt, "weight_scale", "F8_E4M3", "[N, K/16]", kBlockScale, kDecode, kCtValue, kVerified},
    {kCt, "weight_global_scale", "F32", "[1]", kOuterScale, kEncode, kCtValue, kVerified},
    {kCt, "input_global_scale", "F32", "[1]", kInputScale, kEncode, kCtValue, kVerified},
    {kTorchao, "qdata", "U8", "[N, K/2]", kCodes, kDecode, kTorchaoValue, kVerified},
    {kTorchao, "scale", "F8_E4M3", "[N, K/16]", kBlockScale, kDecode, kTorchaoValue, kVerified},
    {kTorchao, "per_tensor_scale", "F32", "[]", kOuterScale, kDecode, kTorchaoValue, kVerified},
    {kGptOss, "blocks", "U8", "[.., K/32, 16]", kCodes, kDecode, kGptOssValue, kRead},
    {kGptOss, "scales", "U8", "[.., K/32]", kBlockScale, kDecode, kGptOssValue, kRead},
    {kAmct, "weight", "U8", "[N, K/2]", kCodes, kDecode, kAmctValue, kVerified},
    {kAmct, "scale_inv", "U8", "[N, K/64, 4]", kBlockScale, kDecode, kAmctValue, kVerified},
    {kInt4, "weight_packed", "I32", "[N, K/8]", kCodes, kDecode, kInt4Value, kVerified},
    {kInt4, "weight_scale", "BF16", "[N, K/32]", kBlockScale, kDecode, kInt4Value, kVerified},
    {kInt4, "weight_shape", "I64", "[2]", kOther, kDecode, kInt4Value, kVerified},
    {kInt4, "weight_g_idx", "I32", "[K]", kOther, kDecode, kInt4Value, kRead},
    {kFp8, "weight", "F8_E4M3", "[N, K]", kCodes, kDecode, kFp8Value, kRead},
    // A decode scale despite its name.
    {kFp8, "weight_scale_inv", "F32", "[ceil(N/128), ceil(K/128)]", kBlockScale, kDecode, kFp8Value,
     kRead},
    {kDeepSeek, "weight", "I8", "[N, K/2]", kCodes, kDecode, kDeepSeekValue, kRead},
    {kDeepSeek, "scale", "F8_E8M0", "[N, K/32]", kBlockScale, kDecode, kDeepSeekValue, kRead},
};

// Whether the last part of the name is the suffix, or ends with it after '_'.
bool has_suffix(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  const std::string_view before = name.substr(0, name.size() - suffix.size());
  return before.empty() || before.back() == '.' || before.back() == '_';
}

}  // namespace

std::span<const CheckpointTensor> checkpoint_tensors() {
  return kTensors;
}

ScaleConvention outer_scale_convention(std::string_view tensor_name) {
  for (const CheckpointTensor& row : kTensors) {
    const bool is_outer = row.role == kOuterScale || row.role == kInputScale;
    if (is_outer && has_suffix(tensor_name, row.suffix)) return row.convention;
  }
  throw Error(
      ErrorKind::kUnsupported,
      fmt::format("tensor \"{}\": its name does not say whether this outer scale encodes or "
                  "decodes",
                  tensor_name));
}

float checked_outer_scale(std::string_view tensor_name, float scale) {
  const auto bits = bit_cast<std::uint32_t>(scale);
  if (bits != 0 && bits < kInfBits) return scale;
  throw Error(ErrorKind::kData,
              fmt::format("tensor \"{}\": an outer scale is positive and finite, found {}",
                          tensor_name, scale));
}

float combined_scale(ScaleConvention convention, float block_scale, float outer_scale) {
  return convention == ScaleConvention::kDecode ? block_scale * outer_scale
                                                : block_scale / outer_scale;
}

float checkpoint_value(ScaleConvention convention, float element, float block_scale,
                       float outer_scale) {
  return element * combined_scale(convention, block_scale, outer_scale);
}

float gpt_oss_value(std::uint8_t code, std::uint8_t byte) {
  // Byte 0 is the subnormal 2^-127, and 255 << 23 are the bits of Inf.
  const std::uint32_t bits = byte == 0 ? 0x00400000u : std::uint32_t{byte} << 23;
  return decode<Lane<1>>(kE2M1, code) * bit_cast<float>(bits);
}

DeepSeekWeight deepseek_v4_weight(std::string_view dtype, std::int64_t rows, std::int64_t cols,
                                  std::int64_t scale_rows, std::int64_t scale_cols) {
  require_shape(rows, cols, "weight");
  if (dtype == "I8" && scale_rows == rows && cols % 16 == 0 && scale_cols == cols / 16) {
    return DeepSeekWeight::kFp4;
  }
  const auto is_blocked = [&](std::int64_t block) {
    return dtype == "F8_E4M3" && scale_rows == divide_up(rows, block) &&
           scale_cols == divide_up(cols, block);
  };
  if (is_blocked(128)) return DeepSeekWeight::kFp8Block128;
  if (is_blocked(32)) return DeepSeekWeight::kFp8Block32;
  throw Error(
      ErrorKind::kUnsupported,
      fmt::format("a {} weight [{}, {}] with scales [{}, {}] is neither FP4 with a scale per "
                  "32 elements nor FP8 in blocks of 128x128 or 32x32",
                  dtype, rows, cols, scale_rows, scale_cols));
}

}  // namespace fp4scope
