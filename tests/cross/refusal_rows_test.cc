// refusal_rows_test.cc: a recipe that refuses a NaN names the row that holds it, also where rows
// share a scale (2-D blocks) and where blocks go through in panels.
#include <doctest/doctest.h>

#include <limits>

#include "sim/error.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

const char* const kRecipes[] = {
    "hif4:geometry=64x64,nonfinite=error",
    "hif4:nonfinite=error",
    "mxfp4:contract=fos-static6,block=2d,nan=refuse",
    "mxfp4:contract=fos-static6,nan=refuse",
    "nvfp4:contract=fouroversix,block=2d",
    "nvfp4:contract=fouroversix,block=2d,select=mse",
    "nvfp4:contract=compressed-tensors",
};
constexpr std::int64_t kRows = 64;
constexpr std::int64_t kCols = 64 * 16 + 40;  // a panel of 16 of the widest blocks, and more

struct Place {
  std::int64_t row, col;
};
// Row that is refused; -1 for none.
std::int64_t refused_row(const Backend& backend, const Recipe& recipe,
                         std::initializer_list<Place> places, float value) {
  std::vector<float> x(static_cast<std::size_t>(kRows * kCols), 1.0f);
  for (const Place& p : places) x[static_cast<std::size_t>(p.row * kCols + p.col)] = value;
  try {
    (void)quantized(backend, recipe, x, kRows, kCols);
  } catch (const RefusedInput& e) {
    return e.row();
  }
  return -1;
}
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("the row that holds a NaN is named, on every backend") {
  for (const std::string text : kRecipes) {
    const Recipe recipe = parse_recipe(text);
    for (const Backend* backend : backends_and_oracle()) {
      for (const std::int64_t row : {5, 0, 63}) {
        for (const std::int64_t col : {std::int64_t{3}, std::int64_t{700}, kCols - 1}) {
          CHECK_MESSAGE(
              refused_row(*backend, recipe, {{row, col}}, kNan) == row,
              text << " on " << name_of(*backend) << ", NaN in row " << row << " column " << col);
        }
      }
      CHECK_MESSAGE(refused_row(*backend, recipe, {}, kNan) == -1, text);
    }
  }
}

TEST_CASE("of several rows the first is named, whatever the order of the blocks") {
  for (const std::string text : kRecipes) {
    const Recipe recipe = parse_recipe(text);
    for (const Backend* backend : available_backends()) {
      CHECK_MESSAGE(refused_row(*backend, recipe, {{9, 3}, {5, kCols - 1}, {7, 700}}, kNan) == 5,
                    text << " on " << name_of(*backend));
    }
  }
}

TEST_CASE("an infinity that a 2-D block of MX refuses is named by its row") {
  const Recipe recipe = parse_recipe("mxfp4:contract=fos-static6,block=2d,inf=refuse");
  for (const Backend* backend : backends_and_oracle()) {
    CHECK_MESSAGE(
        refused_row(*backend, recipe, {{11, 40}}, std::numeric_limits<float>::infinity()) == 11,
        name_of(*backend));
  }
}

TEST_SUITE_END();
