// backend.cc: shapes of a quantized tile.
#include "sim/backend.h"

namespace fp4scope {

void resize(QuantizedTile& tile, const Recipe& recipe, std::int64_t rows, std::int64_t cols) {
  const std::int64_t block = recipe.format.block;
  tile.rows = rows;
  tile.cols = cols;
  tile.blocks_per_row = (cols + block - 1) / block;
  tile.padded_cols = tile.blocks_per_row * block;
  tile.codes.resize(static_cast<std::size_t>(rows * tile.padded_cols));
  tile.scales.resize(
      static_cast<std::size_t>(rows * tile.blocks_per_row * recipe.format.scale_bytes));
}

}  // namespace fp4scope
