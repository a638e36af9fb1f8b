// compile_check.cu: what of formats/ tests/gpu/text_on_device.cu does not run: whole casts, E8M0,
// Philox, decode factors. Compiled only, so that a change of the text that nvcc rejects is noticed;
// the backend itself is not here yet.
#include "formats/codecs/hif4.h"
#include "formats/codecs/mx.h"
#include "formats/codecs/nvfp4.h"
#include "formats/philox.h"

namespace fp4scope {

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

__global__ void decode_factors(const std::uint32_t* scales, float* factors, int n,
                               Nvfp4Options options, std::uint32_t amax_bits) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Nvfp4Outer outer = nvfp4_outer(options, amax_bits);
  const std::uint32_t word = scales[i];
  factors[3 * i] = nvfp4_decode_factor<Lane<1>>(options, outer, word & 255u);
  factors[3 * i + 1] = mx_decode<Lane<1>>(kE2M1, word >> 8 & 15u, word & 255u);
  factors[3 * i + 2] = hif4_decode_scale<Lane<1>>(word & 255u, word >> 8 & 255u, word >> 16, 5);
}

}  // namespace fp4scope
