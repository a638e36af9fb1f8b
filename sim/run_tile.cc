// run_tile.cc: see run_tile.h.
#include "sim/run_tile.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "formats/widen.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// The tile with its values as binary32.
Tile widened(const Tile& tile, std::vector<float>& storage) {
  if (tile.f32 != nullptr || tile.f16 == nullptr) return tile;
  Tile out = tile;
  storage.resize(static_cast<std::size_t>(tile.rows * tile.cols));
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::uint16_t* from = tile.f16 + r * tile.stride;
    float* to = storage.data() + r * tile.cols;
    widen_halves(tile.source == SourceType::kBf16, from, tile.cols, to);
  }
  out.f32 = storage.data();
  out.f16 = nullptr;
  out.stride = tile.cols;
  return out;
}

void pack_row(const std::uint8_t* codes, std::int64_t n, std::uint8_t* packed) {
  for (std::int64_t i = 0; i + 1 < n; i += 2) {
    packed[i / 2] = static_cast<std::uint8_t>(codes[i] | codes[i + 1] << 4);
  }
  if (n % 2 != 0) packed[n / 2] = codes[n - 1];
}

}  // namespace

void run_tile_by_steps(const Backend& backend, const Recipe& recipe, const Tile& given,
                       std::span<const OuterScale32> outer, const TileOutput& out,
                       TileScratch& scratch) {
  if (out.packed != nullptr && !recipe.packs_nibbles()) {
    throw Error(ErrorKind::kUsage, "recipe " + to_string(recipe) + " has no packed nibbles");
  }
  const Tile tile = widened(given, scratch.widened);
  QuantizedTile& q = scratch.quantized;
  backend.quantize(recipe, tile, outer, q);
  const std::int64_t row_scales = q.blocks_per_row * recipe.format.scale_bytes;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    if (out.packed != nullptr) {
      pack_row(q.codes.data() + r * q.padded_cols, q.padded_cols,
               out.packed + r * out.packed_stride);
    }
    if (out.scales != nullptr && row_scales > 0) {
      std::memcpy(out.scales + r * out.scales_stride, q.scales.data() + r * row_scales,
                  static_cast<std::size_t>(row_scales));
    }
  }
  if (out.values == nullptr && out.figures == nullptr && out.statistics == nullptr &&
      out.code_counts == nullptr) {
    return;
  }
  scratch.values.resize(static_cast<std::size_t>(tile.rows * tile.stride));
  backend.dequantize(recipe, q, outer, scratch.values.data(), tile.stride);
  for (std::int64_t r = 0; out.values != nullptr && r < tile.rows; ++r) {
    std::copy_n(scratch.values.data() + r * tile.stride, tile.cols,
                out.values + r * out.values_stride);
  }
  std::optional<StatisticsSink> statistics;
  if (out.statistics != nullptr) statistics.emplace(recipe, *out.statistics);
  FigureSink* figures = statistics ? &*statistics : out.figures;
  measure_tile(recipe, tile, outer, q, scratch.values.data(), figures, out.code_counts);
}

void run_tile(const Backend& backend, const Recipe& recipe, const Tile& tile,
              std::span<const OuterScale32> outer, const TileOutput& out, TileScratch& scratch) {
  if (out.figures != nullptr && out.statistics != nullptr) {
    throw Error(ErrorKind::kUsage, "run_tile: expected figures or statistics, found both");
  }
  if (tile.rows > 0 && tile.cols > kMostTileElements / tile.rows) {
    throw Error(ErrorKind::kUsage, "run_tile: expected a tile of less than 2^32 elements, found " +
                                       std::to_string(tile.rows) + " x " +
                                       std::to_string(tile.cols));
  }
  if (backend.run_fused(recipe, tile, outer, out, scratch)) return;
  run_tile_by_steps(backend, recipe, tile, outer, out, scratch);
}

}  // namespace fp4scope
