// tile_grid_test.cc: every element lies in exactly one tile, tiles cut neither bands nor blocks,
// and a step that is larger than a tile should be makes larger tiles, not none.
#include "analysis/tile_grid.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "sim/recipe.h"

namespace fp4scope {
namespace {

TEST_CASE("tiles cover a tensor once and cut at steps alone") {
  const TileSteps all_steps[] = {{1, 128},       {64, 128},  {128, 128},   {1, 3 * 128},
                                 {64, 13 * 128}, {65, 4224}, {251, 32128}, {1, 128 * 91 * 93}};
  for (const TileSteps& steps : all_steps) {
    for (const std::int64_t rows : {0, 1, 63, 64, 65, 200, 5000}) {
      for (const std::int64_t cols : {0, 1, 127, 129, 4224, 40000, 2100000}) {
        if (rows * cols > 30000000) continue;
        CAPTURE(steps.rows);
        CAPTURE(steps.cols);
        CAPTURE(rows);
        CAPTURE(cols);
        std::int64_t elements = 0, last_row = 0, last_col = -1;
        for (const TileSpan& t : tile_grid(rows, cols, steps)) {
          REQUIRE(t.rows > 0);
          REQUIRE(t.cols > 0);
          CHECK(t.row % steps.rows == 0);
          CHECK(t.col % steps.cols == 0);
          CHECK((t.rows % steps.rows == 0 || t.row + t.rows == rows));
          CHECK((t.cols % steps.cols == 0 || t.col + t.cols == cols));
          // Row-major without overlap: with the sum of the elements this is a cover.
          CHECK((t.row > last_row || (t.row == last_row && t.col > last_col)));
          last_row = t.row;
          last_col = t.col;
          elements += t.elements();
          CHECK(t.elements() <= std::max(kTileElements, steps.rows * steps.cols));
        }
        CHECK(elements == rows * cols);
      }
    }
  }
}

TEST_CASE("steps of recipes: whole bands of 64 rows or a little more, whole blocks") {
  struct Case {
    const char* recipe;
    std::int64_t rows, cols;
  };
  for (const Case& c :
       {Case{"nvfp4", 1, 128}, Case{"mxfp4", 1, 128}, Case{"hif4", 1, 128},
        Case{"nvfp4:block=2d", 64, 128}, Case{"fp8:gran=128x128", 128, 128},
        Case{"custom:e2m1/24:e4m3", 1, 384}, Case{"custom:e2m1/33:e4m3,block=2d", 66, 4224},
        Case{"custom:e2m1/251:e4m3,block=2d", 251, 32128}}) {
    CAPTURE(c.recipe);
    const TileSteps steps = tile_steps(parse_recipe(c.recipe));
    CHECK(steps.rows == c.rows);
    CHECK(steps.cols == c.cols);
  }
}

}  // namespace
}  // namespace fp4scope
