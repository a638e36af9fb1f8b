// cpu_pass.cc: the pass-through recipe bf16: each element rounded to BF16, no scale. Codes are the
// two bytes of the BF16 pattern, little endian.
#include "formats/rounding.h"
#include "sim/cpu_kernels.h"

namespace fp4scope {
namespace {

void quantize(QuantizeTask& task) {
  const float* x = task.x(task.row);
  std::uint8_t* codes = task.codes(task.row);
  for (std::int64_t i = 0; i < task.out.padded_cols; ++i) {
    const float v = i < task.tile.cols ? round_to_bf16<Lane<1>>(x[i]) : 0.0f;
    const std::uint32_t bits = bit_cast<std::uint32_t>(v);
    codes[2 * i] = static_cast<std::uint8_t>(bits >> 16);
    codes[2 * i + 1] = static_cast<std::uint8_t>(bits >> 24);
  }
}

void decode(const DecodeTask& task) {
  const std::uint8_t* codes = task.codes();
  for (std::int64_t i = 0; i < task.tile.cols; ++i) {
    const std::uint32_t bits = codes[2 * i] | static_cast<std::uint32_t>(codes[2 * i + 1]) << 8;
    task.values[i] = bit_cast<float>(bits << 16);
  }
}

}  // namespace

FamilyKernels pass_kernels(Isa, const Recipe&) {
  return {quantize, decode};
}
FamilyRules pass_rules() {
  return {no_outer_scale,
          [](const ElementTask& e) { return magnitude_of_double(static_cast<float>(e.value)); }};
}

}  // namespace fp4scope
