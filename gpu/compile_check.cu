// compile_check.cu: the codec text of formats/ as CUDA threads: one thread = one block = Lane<1>.
// Compiled only, so that a change of the text that nvcc rejects is noticed; the backend itself is
// not here yet.
#include "formats/codecs/hif4.h"
#include "formats/codecs/mx.h"
#include "formats/codecs/nvfp4.h"
#include "formats/philox.h"

namespace fp4scope {

__global__ void quantize_mx(const float* x, std::uint8_t* codes, std::uint8_t* scales, int blocks,
                            MxOptions options, MinifloatSpec element) {
  const int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= blocks) return;
  float in[32];
  for (int i = 0; i < 32; ++i) in[i] = x[32 * b + i];
  MxBlock<Lane<1>> out{};
  mx_quantize<Lane<1>>(options, element, in, out);
  for (int i = 0; i < 32; ++i) codes[32 * b + i] = static_cast<std::uint8_t>(out.codes[i]);
  scales[b] = static_cast<std::uint8_t>(out.scale);
}

__global__ void quantize_mx_binary64(const double* x, std::uint8_t* codes, std::uint8_t* scales,
                                     int blocks, MxOptions options, MinifloatSpec element) {
  const int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= blocks) return;
  double in[32];
  for (int i = 0; i < 32; ++i) in[i] = x[32 * b + i];
  MxBlock<Lane<1>> out{};
  mx_quantize(options, element, in, out);
  for (int i = 0; i < 32; ++i) codes[32 * b + i] = static_cast<std::uint8_t>(out.codes[i]);
  scales[b] = static_cast<std::uint8_t>(out.scale);
}

__global__ void quantize_nvfp4(const float* x, std::uint8_t* codes, std::uint8_t* scales,
                               int blocks, Nvfp4Options options, float g) {
  const int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= blocks) return;
  float in[16];
  for (int i = 0; i < 16; ++i) in[i] = x[16 * b + i];
  Nvfp4Block<Lane<1>> out{};
  nvfp4_quantize<Lane<1>>(options, g, nvfp4_block_amax<Lane<1>>(in), in, out);
  for (int i = 0; i < 16; ++i) codes[16 * b + i] = static_cast<std::uint8_t>(out.codes[i]);
  scales[b] = static_cast<std::uint8_t>(out.scale);
}

__global__ void quantize_hif4(const float* x, std::uint8_t* codes, std::uint32_t* metadata,
                              int blocks, Hif4Options options, MinifloatSpec element) {
  const int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= blocks) return;
  float in[64];
  for (int i = 0; i < 64; ++i) in[i] = x[64 * b + i];
  Hif4Block<Lane<1>> out{};
  hif4_quantize<Lane<1>>(options, element, in, out);
  for (int i = 0; i < 64; ++i) codes[64 * b + i] = static_cast<std::uint8_t>(out.codes[i]);
  metadata[b] = out.scale | out.level2 << 8 | out.level3 << 16;
}

__global__ void cast_scalar(const float* x, std::uint32_t* codes, float* values, int n,
                            MinifloatSpec spec, CastPolicy policy, std::uint32_t seed) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const std::uint32_t counter[4] = {static_cast<std::uint32_t>(i), 0, 0, 0};
  const std::uint32_t key[2] = {seed, 0};
  std::uint32_t random[4];
  philox4x32_10<Lane<1>>(counter, key, random);
  codes[i] = cast<Lane<1>>(spec, policy, x[i], random[0] & 255u);
  values[i] = decode<Lane<1>>(spec, codes[i]) + e8m0_decode<Lane<1>>(codes[i] & 255u);
}

}  // namespace fp4scope
