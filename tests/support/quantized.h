// quantized.h: a whole tensor through one backend, with everything that a test compares: one byte
// per code, raw scale bytes, outer scales and decoded values. The amax is measured here a second
// time and not by the library.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "formats/lane.h"
#include "sim/backend.h"
#include "sim/error.h"
#include "sim/run_tile.h"

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
// Throws std::logic_error where the fused kernel of the backend, if it has one for the recipe,
// gives other bits.
inline void require_same_fused(const Backend& backend, const Recipe& recipe, const Tile& tile,
                               const Quantized& q) {
  if (tile.f32 == nullptr || tile.f64 != nullptr || !recipe.packs_nibbles()) return;
  std::vector<std::uint8_t> packed(q.tile.codes.size() / 2), scales(q.tile.scales.size());
  std::vector<float> values(q.values.size());
  TileOutput out;
  out.packed = packed.data();
  out.packed_stride = q.tile.padded_cols / 2;
  out.scales = scales.data();
  out.scales_stride = q.tile.blocks_per_row * recipe.format.scale_bytes;
  out.values = values.data();
  out.values_stride = tile.cols;
  TileScratch scratch;
  if (!backend.run_fused(recipe, tile, q.outer, out, scratch)) return;
  bool is_same = scales == q.tile.scales;
  for (std::size_t i = 0; i < q.tile.codes.size(); ++i) {
    is_same = is_same && (packed[i / 2] >> i % 2 * 4 & 15) == q.tile.codes[i];
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool both_nan = values[i] != values[i] && q.values[i] != q.values[i];
    is_same = is_same && (both_nan || bit_cast<std::uint32_t>(values[i]) ==
                                          bit_cast<std::uint32_t>(q.values[i]));
  }
  if (!is_same) {
    throw std::logic_error("the fused kernel of " + std::string(backend.name()) + " differs, " +
                           to_string(recipe));
  }
}
// Where the backend has a fused kernel, its bits are compared, too.
inline Quantized quantized(const Backend& backend, const Recipe& recipe, const Tile& tile,
                           std::span<const OuterScale32> outer) {
  Quantized q;
  q.outer.assign(outer.begin(), outer.end());
  q.tile.wants_errors = recipe.chooses();
  backend.quantize(recipe, tile, outer, q.tile);
  q.values.resize(static_cast<std::size_t>(tile.rows * tile.cols));
  backend.dequantize(recipe, q.tile, outer, q.values.data(), tile.cols);
  require_same_fused(backend, recipe, tile, q);
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
