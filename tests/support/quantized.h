// quantized.h: a whole tensor through one backend, with everything that a test compares: one byte
// per code, raw scale bytes, outer scales and decoded values. The amax is measured here a second
// time and not by the library.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "formats/lane.h"
#include "sim/backend.h"
#include "sim/error.h"

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

// spec/more.md 2.1: maxima of torch, which a NaN makes NaN.
inline bool has_torch_maximum(const Recipe& recipe) {
  for (const char* contract : {"deepgemm", "torchao-affine", "hf-block", "verl-dsv4"}) {
    if (recipe.family == Family::kFp8 && recipe.contract == contract) return true;
  }
  return false;
}

// Outer scales as the recipe measures them: one, or one per row.
inline std::vector<OuterScale32> measured_scales(const Backend& backend, const Recipe& recipe,
                                                 const Tile& tile) {
  std::vector<OuterScale32> scales;
  std::uint32_t tensor = 0;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const float* x = tile.f32 + row * tile.stride;
    std::uint32_t amax = largest_magnitude(x, tile.cols);
    const bool has_nan = std::any_of(x, x + tile.cols, [](float v) { return v != v; });
    if (has_nan && has_torch_maximum(recipe)) amax = kQuietNanBits;
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
// Nothing where the recipe refuses the input.
inline std::optional<Quantized> try_quantized(const Backend& backend, const Recipe& recipe,
                                              const Tile& tile,
                                              std::span<const OuterScale32> outer) {
  try {
    return quantized(backend, recipe, tile, outer);
  } catch (const RefusedInput&) {
    return std::nullopt;
  }
}
inline Quantized quantized(const Backend& backend, const Recipe& recipe,
                           const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
  return quantized(backend, recipe, Tile{x.data(), nullptr, rows, cols, cols});
}

}  // namespace fp4scope::test
