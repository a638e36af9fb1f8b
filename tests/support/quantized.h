// quantized.h: a whole tensor through one backend, with everything that a test compares: one byte
// per code, raw scale bytes, outer scales and decoded values. The amax is measured here a second
// time and not by the library.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "formats/lane.h"
#include "sim/backend.h"

namespace fp4scope::test {

// Magnitude bits of the largest of n elements, NaN ignored.
inline std::uint32_t largest_magnitude(const float* x, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = bit_cast<std::uint32_t>(x[i]) & kMagnitudeMask;
    if (magnitude <= kInfBits && magnitude > largest) largest = magnitude;
  }
  return largest;
}

// Outer scales as the recipe measures them: one, or one per row.
inline std::vector<OuterScale32> measured_scales(const Backend& backend, const Recipe& recipe,
                                                 const Tile& tile) {
  std::vector<OuterScale32> scales;
  std::uint32_t tensor = 0;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const std::uint32_t amax = largest_magnitude(tile.f32 + row * tile.stride, tile.cols);
    tensor = std::max(tensor, amax);
    if (recipe.scales_rows()) scales.push_back(backend.outer_scale(recipe, amax));
  }
  if (!recipe.scales_rows()) scales.push_back(backend.outer_scale(recipe, tensor));
  return scales;
}

struct Quantized {
  QuantizedTile tile;
  std::vector<OuterScale32> outer;
  std::vector<float> values;  // [rows, cols]
};
inline Quantized quantized(const Backend& backend, const Recipe& recipe, const Tile& tile,
                           std::span<const OuterScale32> outer) {
  Quantized q;
  q.outer.assign(outer.begin(), outer.end());
  q.tile.wants_errors = recipe.chooses();
  backend.quantize(recipe, tile, outer, q.tile);
  q.values.resize(static_cast<std::size_t>(tile.rows * tile.cols));
  backend.dequantize(recipe, q.tile, outer, q.values.data(), tile.cols);
  return q;
}
inline Quantized quantized(const Backend& backend, const Recipe& recipe, const Tile& tile) {
  return quantized(backend, recipe, tile, measured_scales(backend, recipe, tile));
}
inline Quantized quantized(const Backend& backend, const Recipe& recipe,
                           const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
  return quantized(backend, recipe, Tile{x.data(), nullptr, rows, cols, cols});
}

}  // namespace fp4scope::test
