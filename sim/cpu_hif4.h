// cpu_hif4.h: what the kernels of the named HiF4 formats (cpu_hif4.cc) and of user-defined shapes
// with one-bit levels (cpu_hif4_custom.cc) share, private to sim.
#pragma once
#include <algorithm>

#include "sim/cpu_kernels.h"
#include "sim/transforms.h"

namespace fp4scope {

FP4SCOPE_INLINE void refuse_nonfinite(QuantizeTask& task, std::int64_t row,
                                      std::uint32_t has_nonfinite) {
  if (task.recipe.hif4.nonfinite == Hif4Nonfinite::kError && has_nonfinite != 0) {
    task.refuse(row, "NaN or Inf found, which the recipe refuses (nonfinite=error)");
  }
}

// The options as the codec takes them.
inline Hif4Options codec_options(const Recipe& recipe) {
  Hif4Options options = recipe.hif4;
  if (recipe.sr.enabled) options.ties = Rounding::kStochastic;
  return options;
}

// The random bytes of elements col .. col+n-1 of a row; 0 for the padding, whose code is 0 under
// every byte.
inline void load_random(const QuantizeTask& task, std::int64_t row, std::int64_t col, int n,
                        std::uint32_t* random) {
  std::uint8_t bytes[64];
  for (int i = 0; i < n; i += 64) {
    const int wanted = std::min(64, n - i);
    const std::int64_t valid = std::clamp<std::int64_t>(task.tile.cols - col - i, 0, wanted);
    random_bytes(task.recipe, task.tile, row, col + i, valid, bytes);
    for (int k = 0; k < wanted; ++k) random[i + k] = k < valid ? bytes[k] : 0u;
  }
}

FamilyKernels hif4_custom_kernels(Isa isa, const Recipe& recipe);
double hif4_custom_scaled(const ElementTask& e);

}  // namespace fp4scope
