// transforms.h: what happens to x before any amax is taken: the random Hadamard transform
// (spec/nvfp4.md section 3.5), and the random bytes of stochastic rounding (spec/scalars.md 2.4).
#pragma once
#include <cstdint>
#include <vector>

#include "sim/backend.h"

namespace fp4scope {

// Rows of `tile` transformed in place: `values` holds rows x cols elements with the tile's stride.
// Needs cols to be a multiple of recipe.rht.size; throws Error(kData) otherwise. The result is
// rounded to the source type of the tile. A binary64 source is rounded to binary32 first.
void apply_rht(const Recipe& recipe, const Tile& tile, float* values);

// The random byte of each of `count` elements of a row of a tile, from column `col` on.
void random_bytes(const Recipe& recipe, const Tile& tile, std::int64_t row, std::int64_t col,
                  std::int64_t count, std::uint8_t* bytes);

}  // namespace fp4scope
