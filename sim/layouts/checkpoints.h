// checkpoints.h: what the tensors of published checkpoint formats are called and how they decode
// (spec/layouts.md section 4, spec/more.md 1.3, 2.1 and 2.5). Whether an outer scale encodes or
// decodes follows from the name of its tensor, never from its magnitude.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "formats/contracts/common_options.h"

namespace fp4scope {

enum class ScaleConvention : std::uint8_t {
  kDecode,  // x = element * fl(block scale * outer scale)
  kEncode   // x = element * fl(block scale / outer scale)
};
enum class CheckpointRole : std::uint8_t { kCodes, kBlockScale, kOuterScale, kInputScale, kOther };

struct CheckpointTensor {
  std::string_view format;
  std::string_view suffix;  // last part of the tensor name, or its end after '_'
  std::string_view dtype;
  std::string_view shape;  // of the stored tensor, for a weight [N, K]
  CheckpointRole role;
  ScaleConvention convention;  // of kOuterScale, kInputScale and kBlockScale
  std::string_view decode;     // the value rule of the format
  Evidence evidence;
};
std::span<const CheckpointTensor> checkpoint_tensors();

// Convention of an outer or input scale from its name. Error(kUnsupported) for a name without one.
ScaleConvention outer_scale_convention(std::string_view tensor_name);
// The scale itself; Error(kData) when it is 0, negative or not finite.
float checked_outer_scale(std::string_view tensor_name, float scale);

// One binary32 operation, and one more for the value.
float combined_scale(ScaleConvention convention, float block_scale, float outer_scale);
float checkpoint_value(ScaleConvention convention, float element, float block_scale,
                       float outer_scale);

// gpt-oss MXFP4: element times 2^(byte-127) with byte 255 as 2^128 = Inf, so code 0 under it is
// NaN.
float gpt_oss_value(std::uint8_t code, std::uint8_t byte);

// What a weight of a DeepSeek-V4 checkpoint is, from the geometry of its scales [scale_rows,
// scale_cols]: I8 [rows, K/2] with one scale per row and 32 elements is FP4, never FP8 or INT8.
enum class DeepSeekWeight : std::uint8_t { kFp4, kFp8Block128, kFp8Block32 };
DeepSeekWeight deepseek_v4_weight(std::string_view dtype, std::int64_t rows, std::int64_t cols,
                                  std::int64_t scale_rows, std::int64_t scale_cols);

}  // namespace fp4scope
