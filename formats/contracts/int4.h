// int4.h: contracts of INT4 group quantization (spec/more.md 1.1 and 1.2). Where two settings of
// one source exist they are keys: `skyrl` has scale-div and qmin. The asymmetric form of the slime
// kernel has zero points and is not a format of fp4scope. User-defined formats (inferred): 7.5 and
// 7 become (2^n - 1)/2 and (2^n - 2)/2 for n-bit integers and the largest value of an element that
// is no integer; the smallest code is that of the grid; a scale is rounded once more to its type.
#pragma once
#include "formats/contracts/options.h"

namespace fp4scope {

constexpr Int4Options int4_options(Int4Order order, std::uint32_t scale_div_x2, int qmin) {
  Int4Options o;
  o.order = order;
  o.scale_div_x2 = scale_div_x2;
  o.qmin = qmin;
  return o;
}
constexpr Int4Options int4_options_rcp(Int4Order order) {
  Int4Options o = int4_options(order, 14, -7);
  o.scalar_div = ScalarDiv::kRcp;
  return o;
}
inline constexpr NativeLayout kTwosNibbles{.pack = IntPack::kTwos};
inline constexpr Contract<Int4Options> kInt4Contracts[] = {
    {"ct-rtn", int4_options(Int4Order::kCtRtn, 15, -8), Ragged::kError,
     "compressed-tensors ac8e2ba8 quantization/utils/helpers.py, "
     "quantization/lifecycle/forward_helpers.py",
     Evidence::kVerified, "more/int4.json", "", "",
     "A zero group stores the epsilon of the type of the weight as its scale. NaN and infinity are "
     "refused: the source leaves them undefined."},
    {"skyrl", int4_options(Int4Order::kSkyrl, 15, -8), Ragged::kError,
     "SkyRL a9564572 skyrl/backends/skyrl_train/workers/megatron/fake_int4_qat.py (PR 1862)",
     Evidence::kVerified, "more/int4.json", "", "",
     "scale-div=7,qmin=-7 is the grid of the Kimi K2-Thinking and K2.6 releases. NaN and infinity "
     "are refused."},
    {"miles-train", int4_options(Int4Order::kMilesTrain, 14, -7), Ragged::kError,
     "slime 624b824a and miles 31f1ca96 docker/patch/latest/megatron.patch", Evidence::kVerified,
     "more/int4.json", "", "",
     "Fake quantization of the forward pass: the source stores nothing, the binary32 scale is kept "
     "so that the values can be decoded. scalar-div=rcp is what CUDA computes. NaN and infinity "
     "are refused."},
    {"miles-export", int4_options_rcp(Int4Order::kMilesExport), Ragged::kError,
     "slime 624b824a and miles 31f1ca96 "
     "slime/backends/megatron_utils/kernels/int4_qat/fake_int4_quant_cuda.cu, "
     ".../megatron_to_hf/processors/quantizer_compressed_tensors.py",
     Evidence::kVerified, "more/int4.json", "", "",
     "The source does not clamp the codes; +-7 are exceeded only where a BF16 product overflows, "
     "and are clamped there. NaN and infinity are refused."},
    {"rtp-llm", int4_options(Int4Order::kRtpLlm, 14, -8), Ragged::kError,
     "rtp-llm 4b8d39cd rtp_llm/model_loader/w4a8_int4_per_channel_quant_weight.py", Evidence::kRead,
     "more/int4.json", "", "",
     "The stored E4M3 scale is rounded after the codes were computed with the scale before it. A "
     "zero group stores 0. NaN and infinity are refused.",
     kTwosNibbles},
    {"rtp-llm-ct", int4_options(Int4Order::kRtpLlmCt, 14, -7), Ragged::kError,
     "rtp-llm 4b8d39cd rtp_llm/model_loader/compressed_w4a8_int4_per_channel_weight.py",
     Evidence::kRead, "", "", "",
     "A checkpoint as rtp-llm loads it: codes and BF16 scale of skyrl with this scale-div and "
     "qmin, then the scale is cast to E4M3 (NaN above 464). NaN and infinity are refused.",
     kTwosNibbles},
};

}  // namespace fp4scope
