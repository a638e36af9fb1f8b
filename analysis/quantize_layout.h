// quantize_layout.h: what quantize_file.cc and dequantize_file.cc share: the planes of fp4scope's
// own layout (product.md, "Machine-readable output"), the tile grid, and the loop over tiles.
#pragma once
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "sim/recipe.h"

namespace fp4scope {

// Shapes of the planes of one tensor flattened to [rows, cols].
struct Planes {
  std::int64_t rows = 0, cols = 0, blocks = 0;
  std::int64_t code_cols = 0;      // bytes of codes per row
  std::int64_t scale_bytes = 1;    // per block
  std::int64_t outer_entries = 0;  // 0: the format has no outer scale
};

inline Planes planes_of(const Recipe& recipe, std::int64_t rows, std::int64_t cols) {
  Planes planes;
  planes.rows = rows;
  planes.cols = cols;
  planes.blocks = cols / recipe.format.block + (cols % recipe.format.block != 0 ? 1 : 0);
  planes.code_cols = recipe.packs_nibbles() ? cols / 2 + cols % 2 : cols;
  planes.scale_bytes = recipe.format.scale_bytes;
  if (recipe.family == Family::kNvfp4 && recipe.nvfp4.scale != OuterScale::kNone) {
    planes.outer_entries = recipe.nvfp4.scale == OuterScale::kRow ? rows : 1;
  }
  return planes;
}

inline std::vector<std::int64_t> scales_shape(const Planes& planes) {
  if (planes.scale_bytes == 1) return {planes.rows, planes.blocks};
  return {planes.rows, planes.blocks, planes.scale_bytes};
}

// Tiles of whole rows, about 2^20 elements, in bands of 64 rows; longer rows are split at multiples
// of 128 columns, which whole blocks of every format divide. The bits do not depend on it.
struct TileGrid {
  struct Tile {
    std::int64_t row, rows, col, cols;
  };
  TileGrid(std::int64_t rows, std::int64_t cols) : rows_(rows), cols_(cols) {
    constexpr std::int64_t kElements = std::int64_t{1} << 20, kBand = 64, kColumns = 128;
    const std::int64_t band = std::clamp<std::int64_t>(rows, 1, kBand);
    tile_cols_ = std::max<std::int64_t>(1, std::min(cols, kElements / band / kColumns * kColumns));
    tile_rows_ = std::max(kBand, kElements / tile_cols_ / kBand * kBand);
    if (rows > 0 && cols > 0) {
      column_tiles_ = (cols - 1) / tile_cols_ + 1;
      count_ = ((rows - 1) / tile_rows_ + 1) * column_tiles_;
    }
  }
  std::int64_t count() const { return count_; }
  Tile tile(std::int64_t index) const {
    Tile t{index / column_tiles_ * tile_rows_, 0, index % column_tiles_ * tile_cols_, 0};
    t.rows = std::min(tile_rows_, rows_ - t.row);
    t.cols = std::min(tile_cols_, cols_ - t.col);
    return t;
  }

 private:
  std::int64_t rows_, cols_, tile_rows_ = 0, tile_cols_ = 0, column_tiles_ = 1, count_ = 0;
};

// Runs work(buffers, tile) for every tile; `Buffers` is made once per thread. Rethrows the
// exception of the lowest tile index.
template <class Buffers, class Work>
void for_each_tile(const TileGrid& grid, int threads, const std::atomic<bool>* stop,
                   const Work& work) {
  std::atomic<std::int64_t> failed_tile{grid.count()};
  std::exception_ptr failure;
  const int team = threads > 0 ? threads : omp_get_num_procs();
#pragma omp parallel num_threads( \
    static_cast <int>(std::min <std::int64_t>(team, std::max <std::int64_t>(grid.count(), 1))))
  {
    Buffers buffers;
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t index = 0; index < grid.count(); ++index) {
      if (index > failed_tile) continue;
      try {
        if (stop != nullptr && *stop) throw Error(ErrorKind::kData, "interrupted");
        work(buffers, grid.tile(index));
      } catch (...) {
#pragma omp critical(fp4scope_tile_failure)
        if (index < failed_tile) {
          failed_tile = index;
          failure = std::current_exception();
        }
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fp4scope
