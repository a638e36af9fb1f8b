// tiles.h: the tile grid of a tensor and reading one tile. The grid depends on the shape and on the
// block geometry only, so that sums do not depend on threads, memory or the other recipes of a run.
#pragma once
#include <cstdint>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "sim/backend.h"

namespace fp4scope {

inline constexpr std::int64_t kTileElements = std::int64_t{1} << 20;  // 4 MiB of binary32
inline constexpr std::int64_t kTileColumnStep = 128;                  // a multiple of every block
inline constexpr std::int64_t kTileRows2d = 64;  // a multiple of every 2-D block

struct TileSpan {
  std::int64_t row, rows, col, cols;
  std::int64_t elements() const { return rows * cols; }
};
// Tiles of whole rows; a row (2-D: a band of 64) that exceeds a tile is split at multiples of 128
// columns. Row-major order.
std::vector<TileSpan> tile_grid(std::int64_t rows, std::int64_t cols, bool two_dimensional);

// One tile in memory, reused from tile to tile.
struct TileBuffer {
  std::vector<float> f32;
  std::vector<double> f64;  // only for binary64 sources
  Tile tile;
  void read(const TensorSource& source, const TensorInfo& tensor, const TileSpan& span);
};

// Integer maximum of magnitude bits, NaN ignored.
std::uint32_t amax_bits(const float* x, std::int64_t n);

}  // namespace fp4scope
