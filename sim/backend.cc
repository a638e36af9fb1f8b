// backend.cc: what every backend needs: shapes of a quantized tile, outer scales by row.
#include "sim/backend.h"

#include <string>

#include "formats/codecs/fp8_scale.h"
#include "sim/error.h"

namespace fp4scope {

void resize(QuantizedTile& tile, const Recipe& recipe, std::int64_t rows, std::int64_t cols) {
  const std::int64_t block = recipe.format.block;
  tile.rows = rows;
  tile.cols = cols;
  tile.blocks_per_row = (cols + block - 1) / block;
  tile.padded_cols = tile.blocks_per_row * block;
  tile.codes.resize(static_cast<std::size_t>(rows * tile.padded_cols * recipe.code_bytes()));
  tile.scales.resize(
      static_cast<std::size_t>(rows * tile.blocks_per_row * recipe.format.scale_bytes));
  const auto blocks = static_cast<std::size_t>(rows * tile.blocks_per_row);
  tile.choices.resize(recipe.chooses() ? blocks : 0);
  tile.errors.resize(recipe.chooses() && tile.wants_errors ? 2 * blocks : 0);
}

void require_outer(const Recipe& recipe, std::int64_t rows, std::size_t outer_scales) {
  if (!recipe.has_outer()) return;
  const std::size_t expected = recipe.scales_rows() ? static_cast<std::size_t>(rows) : 1;
  if (outer_scales == expected) return;
  throw Error(ErrorKind::kUsage, "recipe " + to_string(recipe) + ": expected " +
                                     std::to_string(expected) + " outer scales, found " +
                                     std::to_string(outer_scales));
}

bool propagates_nan(const Recipe& recipe) {
  return recipe.family == Family::kFp8 && fp8_propagates_nan(recipe.fp8.order);
}
std::uint32_t amax_of(const Recipe& recipe, std::uint32_t marked) {
  if ((marked & kSignBit) != 0 && propagates_nan(recipe)) return kQuietNanBits;
  return marked & kMagnitudeMask;
}

OuterScale32 outer_of_row(const Recipe& recipe, std::span<const OuterScale32> outer,
                          std::int64_t row) {
  if (!recipe.has_outer()) return {};
  return outer[recipe.scales_rows() ? static_cast<std::size_t>(row) : 0];
}

}  // namespace fp4scope
