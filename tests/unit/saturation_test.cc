// saturation_test.cc: which elements count as clamped where that does not follow from a minifloat:
// tables of values, and mxfp4:contract=universal below 2^-127. Counts are derived by hand from the
// table and from spec/mx.md section 3.
#include <doctest/doctest.h>

#include <limits>

#include "analysis/metrics/totals.h"
#include "formats/lut.h"
#include "sim/custom_format.h"
#include "sim/element.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

std::shared_ptr<const FormatLibrary> library_of(const std::vector<float>& values) {
  auto lut = std::make_shared<Lut>();
  lut->name = "t";
  lut->count = static_cast<int>(values.size());
  std::copy(values.begin(), values.end(), lut->value);
  auto library = std::make_shared<FormatLibrary>();
  library->luts.push_back({"t", lut});
  return library;
}

Counts counts_of(const Backend& backend, const Recipe& recipe, const Tile& tile) {
  const Quantized q = quantized(backend, recipe, tile);
  Tallies tallies;
  TileSums sums;
  const MapGrid grid{};
  const TilePlace place{recipe, tile, 0, 0, grid, false};
  const auto accumulator = make_accumulator(place, tallies, sums);
  measure_tile(recipe, tile, q.outer, q.tile, q.values.data(), accumulator.get(), nullptr);
  return tallies.counts;
}

struct Case {
  const char* shapes;  // recipes, each after a space
  std::vector<float> table, block;
  int saturated;
};
std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> list;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    list.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return list;
}

// 16 elements; every scale is 1, so that x is what the table gets. The smallest values of Wide are
// 10 apart and end at -105, its largest 40 apart and end at 140.
const Case kCases[] = {
    {"custom:lut:t/16:f32 custom:lut:t/16:bf16 custom:lut:t/16:f16 custom:lut:t/16:e4m3",
     {-100, -90, -40, 0, 40, 80, 120},
     {120, -120, -106, -105, -104, -100, 119, 110, 100, 50, 8, 7, 4, 0, -8, -99},
     2},
    // Ends at -0.5625 and 1.25: the placeholder of a table of five would end at 3.5.
    {"custom:lut:t/16:f32 custom:lut:t/16:bf16 custom:lut:t/16:f16 custom:lut:t/16:e4m3",
     {1, 0.5f, 0, -0.375f, -0.5f},
     {1, -1, -0.5625f, -0.625f, -0.5f, -0.4375f, 0.75f, 0.875f, 0, 0, 0.25f, -0.25f, 0, 0, 0, 0},
     2},
    // No zero in the table: 1 and 3 are the ends, 0.5 and 3.5 the limits.
    {"custom:lut:t/16:f32 custom:lut:t/16:bf16 custom:lut:t/16:e4m3",
     {3, 2, 1},
     {3, 2, 1, 0.5f, 0.375f, 0.75f, -3, 2.5f, 2, 2, 2, 2, 2, 2, 2, 2},
     2},
    // A scale above the format's largest is clamped to 448: x = 896 is then y = 2.
    {"custom:lut:t/16:e4m3",
     {1, 0.5f, 0, -0.5f, -1},
     {896, 448, 560, 576, -560, -561, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     3},
};

}  // namespace

TEST_CASE("elements from a table are clamped beyond half a step outside the table") {
  for (const Case& c : kCases) {
    const auto library = library_of(c.table);
    const Tile tile{c.block.data(), nullptr, 1, 16, 16};
    for (const std::string& text : words(c.shapes)) {
      const Recipe recipe = parse_recipe(text, library);
      for (const Backend* backend : backends_for(recipe)) {
        const Counts counts = counts_of(*backend, recipe, tile);
        CHECK_MESSAGE(counts.elements == 16, text);
        CHECK_MESSAGE(counts.saturated == c.saturated, text << " on " << name_of(*backend));
      }
    }
  }
}

TEST_CASE("the distance outside a table counts in half steps of the end that is near") {
  Lut lut{"t", 4, {8, 1, -2, -1}};
  CHECK(lut_excess(lut, 8) == 0);
  CHECK(lut_excess(lut, 11.5) == 1);  // half of 8 - 1 beyond 8
  CHECK(lut_excess(lut, 15) == 2);
  CHECK(lut_excess(lut, -2) == 0);
  CHECK(lut_excess(lut, -2.5) == 1);
  CHECK(lut_excess(lut, std::numeric_limits<double>::infinity()) > 1);
  CHECK_FALSE(lut_excess(lut, std::numeric_limits<double>::quiet_NaN()) > 1);
  const SaturationLimit limit = element_limit(parse_recipe("custom:lut:nf4/16:f32"));
  CHECK_FALSE(limit.is_exceeded_by(1));
  CHECK(limit.is_exceeded_by(1.0000001));
  CHECK(element_limit(parse_recipe("mxfp4")).limit == 7);
}

TEST_CASE("NaN takes the code of the largest value of a table") {
  std::vector<float> x(16, 1.0f);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  for (const std::string text : {"custom:lut:nf4/16:f32", "custom:lut:nf4/16:e4m3"}) {
    const Recipe recipe = parse_recipe(text);
    for (const Backend* backend : backends_for(recipe)) {
      const Quantized q = quantized(*backend, recipe, x, 1, 16);
      for (int i = 0; i < 16; ++i) {
        CHECK_MESSAGE(q.tile.codes[static_cast<std::size_t>(i)] == 15,
                      text << " on " << name_of(*backend) << " element " << i);
      }
    }
  }
}

// spec/mx.md section 3: below 2^-127 the byte is 0 and the elements use the unclamped exponent, so
// that everything but zero is clamped. With byte 0 and an exponent of -127 nothing is.
TEST_CASE("universal clamps every element of a block whose scale is below 2^-127") {
  struct Universal {
    const char* recipe;
    float x[4];  // eight times
    int saturated, nonfinite_out;
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Universal cases[] = {
      {"mxfp4", {1e-40f, -1e-40f, 1e-41f, 1e-42f}, 32, 0},
      {"mxfp4", {1e-40f, -1e-40f, 1e-41f, 0}, 24, 0},
      {"mxfp6e2m3", {1e-40f, -1e-40f, 1e-41f, 1e-42f}, 32, 0},
      {"mxfp6e3m2", {1e-40f, -1e-40f, 1e-41f, 1e-42f}, 32, 0},
      {"mxfp8e4m3", {1e-40f, -1e-40f, 1e-41f, 1e-42f}, 32, 0},
      {"mxfp8e5m2", {1e-40f, -1e-40f, 1e-41f, 1e-42f}, 0, 32},   // infinite instead of clamped
      {"mxfp4", {0x3p-126f, -0x3p-126f, 0x1p-126f, 0}, 0, 0},    // y = 6, -6, 2
      {"mxfp4", {0x7.8p-127f, -0x3p-126f, 0x1p-126f, 0}, 8, 0},  // y = 7.5
      {"mxfp4", {0x3.fp-127f, 0x1p-127f, 0, 0}, 16, 0},          // y would be 3.9
      {"mxfp4", {kInf, 1.0f, -2.0f, 0x1p-140f}, 24, 0},          // an infinite maximum is byte 0
      // Integers up to 127 under the exponent of 128: the maximum is y = 192, and 127 beside it is
      // not clamped. Alone that is a block below 2^-127.
      {"mxint8", {0x3p-121f, 0x1.fcp-121f, 0x1p-121f, 0}, 8, 0},
      {"mxint8", {0x1.fcp-121f, 0x1p-121f, 0x1p-140f, 0}, 24, 0},
  };
  for (const Universal& c : cases) {
    const std::string text = std::string(c.recipe) + ":contract=universal" +
                             (std::string(c.recipe) == "mxint8" ? "" : ",zero-sign=keep");
    const Recipe recipe = parse_recipe(text);
    std::vector<float> x;
    for (int i = 0; i < 32; ++i) x.push_back(c.x[i % 4]);
    const std::vector<double> x64(x.begin(), x.end());
    for (const Backend* backend : backends_and_oracle()) {
      for (const double* f64 : {static_cast<const double*>(nullptr), x64.data()}) {
        const Tile tile{x.data(), f64, 1,
                        32,       32,  f64 != nullptr ? SourceType::kF64 : SourceType::kF32};
        const Counts counts = counts_of(*backend, recipe, tile);
        CHECK_MESSAGE(counts.saturated == c.saturated, text << " on " << name_of(*backend)
                                                            << ", x[0] = " << c.x[0]
                                                            << (f64 != nullptr ? " f64" : " f32"));
        CHECK_MESSAGE(counts.nonfinite_out == c.nonfinite_out, text);
      }
    }
  }
}
