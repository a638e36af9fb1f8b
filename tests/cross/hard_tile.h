// hard_tile.h: a tile of hard blocks with the outer scales that it is quantized with.
#pragma once
#include "tests/cross/hard_blocks.h"
#include "tests/support/quantized.h"

namespace fp4scope::test {

// 16 + 8 + 1: a panel of every lane width and the blocks that fill none.
inline constexpr std::int64_t kBlocksPerRow = 25;
// Fewer where a block has many rows and the exact oracle would take minutes.
std::int64_t blocks_per_row(const Recipe& recipe);

struct HardTile {
  std::vector<float> f32;
  std::vector<double> f64;
  Tile tile;
  std::vector<OuterScale32> outer;
};

// All blocks are of one kind. NVFP4 outer scales come from an amax that is the tile's own or an
// unrelated one, since a block meets any tensor.
HardTile hard_tile(BlockSource& source, const Recipe& recipe, Kind kind, std::int64_t rows,
                   bool binary64);
// Block `block` of the rows from `row` on as a tile of its own, with the outer scale that it has.
HardTile one_block(const Recipe& recipe, const HardTile& hard, std::int64_t row,
                   std::int64_t block);

}  // namespace fp4scope::test
