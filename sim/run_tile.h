// run_tile.h: codes, decoded values and figures of a tile in one call, by the fused kernel of a
// backend where there is one, otherwise step by step. Both give the same bits.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sim/statistics.h"

namespace fp4scope {

// What is made of a tile. Null: not wanted.
struct TileOutput {
  // Two codes to a byte, element 0 in the low nibble, of recipes with packs_nibbles(): [rows,
  // packed_stride] bytes, rows padded to whole blocks.
  std::uint8_t* packed = nullptr;
  std::int64_t packed_stride = 0;
  // [rows, scales_stride] bytes, a row as in QuantizedTile::scales.
  std::uint8_t* scales = nullptr;
  std::int64_t scales_stride = 0;
  // Decoded values, [rows, cols] with a stride in elements.
  float* values = nullptr;
  std::int64_t values_stride = 0;
  // Non-temporal stores of values and packed codes, for what nobody reads soon.
  bool bypass_caches = false;
  // Figures of every block, or the few of Statistics, which are added to; not both.
  FigureSink* figures = nullptr;
  Statistics* statistics = nullptr;
  std::int64_t* code_counts = nullptr;  // 256 entries, added to; untouched for 16-bit codes
};
// Buffers, kept from tile to tile.
struct TileScratch {
  QuantizedTile quantized;
  std::vector<float> widened, values;
};

inline constexpr std::int64_t kMostTileElements = 0xffffffff;  // kernels count in 32 bits

// Input is tile.f32 (and f64), or tile.f16. Throws as Backend::quantize(); the outputs are
// undefined then, and figures may have been handed over.
void run_tile(const Backend& backend, const Recipe& recipe, const Tile& tile,
              std::span<const OuterScale32> outer, const TileOutput& out, TileScratch& scratch);

// The same, always step by step.
void run_tile_by_steps(const Backend& backend, const Recipe& recipe, const Tile& tile,
                       std::span<const OuterScale32> outer, const TileOutput& out,
                       TileScratch& scratch);

}  // namespace fp4scope
