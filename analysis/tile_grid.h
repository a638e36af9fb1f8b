// tile_grid.h: the tile grid of a tensor. It depends on the shape and on the block geometry only,
// so that sums do not depend on threads, memory or the other recipes of a run.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/recipe.h"

namespace fp4scope {

inline constexpr std::int64_t kTileElements = std::int64_t{1} << 20;  // 4 MiB of binary32

// What a tile may not cut: rows in whole bands, columns in whole blocks.
struct TileSteps {
  std::int64_t rows = 1;    // 1, or the least multiple of the rows of a 2-D block from 64 on
  std::int64_t cols = 128;  // a multiple of 128 and of the block
  bool operator==(const TileSteps&) const = default;
};
TileSteps tile_steps(const Recipe& recipe);

struct TileSpan {
  std::int64_t row, rows, col, cols;
  std::int64_t elements() const { return rows * cols; }
};
// Tiles of whole rows; a row (2-D: a band) that exceeds a tile is split at multiples of the column
// step. Row-major order.
std::vector<TileSpan> tile_grid(std::int64_t rows, std::int64_t cols, const TileSteps& steps);

}  // namespace fp4scope
