// hard_tile.cc: see the header.
#include "tests/cross/hard_tile.h"

#include <cmath>

namespace fp4scope::test {

std::int64_t blocks_per_row(const Recipe& recipe) {
  return recipe.format.block_rows >= 64 ? 2 : kBlocksPerRow;
}

HardTile hard_tile(BlockSource& source, const Recipe& recipe, Kind kind, std::int64_t rows,
                   bool binary64) {
  const std::int64_t size = recipe.format.block;
  const std::int64_t blocks = blocks_per_row(recipe);
  const std::int64_t cols = blocks * size;
  HardTile hard;
  hard.f32.resize(static_cast<std::size_t>(rows * cols));
  const Backend& oracle = oracle_backend();
  std::vector<float> g(static_cast<std::size_t>(rows), 1.0f);
  if (recipe.has_outer()) {
    const bool by_row = recipe.scales_rows();
    for (std::int64_t row = 0; row < (by_row ? rows : 1); ++row) {
      const int e = source.below(8) == 0 ? static_cast<int>(source.below(277)) - 149
                                         : static_cast<int>(source.below(20)) - 10;
      const float amax =
          source.below(16) == 0
              ? 0.0f
              : std::ldexp(1.0f + std::ldexp(static_cast<float>(source.below(128)), -7), e);
      hard.outer.push_back(oracle.outer_scale(recipe, bit_cast<std::uint32_t>(amax)));
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      g[static_cast<std::size_t>(row)] = hard.outer[by_row ? static_cast<std::size_t>(row) : 0].g;
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      fill_block(source, kind, recipe, g[static_cast<std::size_t>(row)],
                 std::span(hard.f32).subspan(static_cast<std::size_t>(row * cols + b * size),
                                             static_cast<std::size_t>(size)));
    }
  }
  if (binary64) {
    hard.f64 = widen(source, hard.f32);
    for (std::size_t i = 0; i < hard.f64.size(); ++i) hard.f32[i] = static_cast<float>(hard.f64[i]);
  }
  hard.tile = {hard.f32.data(), binary64 ? hard.f64.data() : nullptr, rows, cols, cols};
  if (!recipe.has_outer()) {
    hard.outer = {OuterScale32{}};
  } else if (source.coin()) {
    hard.outer = measured_scales(oracle, recipe, hard.tile);
  }
  return hard;
}

HardTile one_block(const Recipe& recipe, const HardTile& hard, std::int64_t row,
                   std::int64_t block) {
  const std::int64_t size = recipe.format.block, rows = recipe.format.block_rows;
  HardTile one;
  for (std::int64_t r = row; r < row + rows; ++r) {
    const std::int64_t first = r * hard.tile.stride + block * size;
    one.f32.insert(one.f32.end(), hard.tile.f32 + first, hard.tile.f32 + first + size);
    if (hard.tile.f64 != nullptr) {
      one.f64.insert(one.f64.end(), hard.tile.f64 + first, hard.tile.f64 + first + size);
    }
  }
  one.tile = {one.f32.data(), hard.tile.f64 != nullptr ? one.f64.data() : nullptr, rows, size,
              size};
  one.outer = {hard.outer[recipe.scales_rows() ? static_cast<std::size_t>(row) : 0]};
  return one;
}

}  // namespace fp4scope::test
