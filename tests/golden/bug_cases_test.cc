// bug_cases_test.cc: public reports of other projects turned into tests, from ../shared/cases/
// bugs.md (numbers C01..C34 and expected codes are those of that file). Blocks are here,
// single codes and scale bytes in bug_cases_codes_test.cc, readers and report figures in
// bug_cases_files_test.cc. Every block case runs on every CPU backend of this machine and on the
// exact oracle.
//
// Layouts, packing and masks (C01, C06, C07, C20, C22, C23, C24, C31, C32) are in
// bug_cases_layout_test.cc; what needs the contracts of several stacks is in
// bug_cases_arithmetic_test.cc. C28 (npz) and C30 (HDF5) wait for their readers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "formats/minifloat.h"
#include "sim/backend.h"
#include "sim/error.h"
#include "tests/golden/bug_cases_support.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"

namespace fp4scope {
namespace {

using test::backends_and_oracle;
using test::from_bits;
using test::kOverflowing;
using test::kSaturating;
using test::L1;
using Codes = std::vector<int>;

struct Result : test::Quantized {
  Codes codes(std::size_t row, std::size_t n) const {
    const std::uint8_t* first =
        tile.codes.data() + row * static_cast<std::size_t>(tile.padded_cols);
    return {first, first + n};
  }
};

// Quantizes and decodes; `x` is rounded once to binary32 and kept as binary64 when `f64`.
Result run(const Backend& backend, const std::string& recipe_text, const std::vector<double>& x,
           std::int64_t rows, std::int64_t cols, bool f64 = false) {
  REQUIRE(x.size() == static_cast<std::size_t>(rows * cols));
  const Recipe recipe = parse_recipe(recipe_text);
  const std::vector<float> f(x.begin(), x.end());
  return {test::quantized(backend, recipe, {f.data(), f64 ? x.data() : nullptr, rows, cols, cols})};
}

// `x` followed by +0 up to `n` elements.
std::vector<double> padded(std::vector<double> x, std::size_t n) {
  x.resize(n, 0.0);
  return x;
}

struct BlockCase {
  const char* name;
  const char* recipe;
  std::vector<double> x;  // padded with +0 to one block
  int scale;
  Codes codes;                 // of the leading elements; the rest must be 0
  std::vector<double> values;  // decoded, when given
};

void check_blocks(const std::vector<BlockCase>& cases) {
  for (const BlockCase& c : cases) {
    const auto block = static_cast<std::size_t>(parse_recipe(c.recipe).format.block);
    for (const Backend* backend : backends_and_oracle()) {
      const std::string name = std::string(backend->name());
      const Result r =
          run(*backend, c.recipe, padded(c.x, block), 1, parse_recipe(c.recipe).format.block);
      CAPTURE(c.name);
      CAPTURE(c.recipe);
      CAPTURE(name);
      CHECK(int{r.tile.scales[0]} == c.scale);
      Codes want = c.codes;
      want.resize(block, 0);
      CHECK(r.codes(0, block) == want);
      for (std::size_t i = 0; i < c.values.size(); ++i) CHECK(double(r.values[i]) == c.values[i]);
    }
  }
}

TEST_CASE("C02 the scale rule decides between floor and even, ceil, rceil") {
  const std::vector<double> seven = {7.0, 0.3, -0.3, 5.5}, six = {6.5};
  check_blocks({
      {"7.0", "mxfp4:contract=ocp-floor-rne", seven, 127, {7, 1, 9, 7}, {6, 0.5, -0.5, 6}},
      {"7.0", "mxfp4:contract=torchao-floor", seven, 127, {7, 1, 9, 7}, {}},
      {"7.0", "mxfp4:contract=torchao-even", seven, 128, {6, 0, 8, 5}, {8, 0, 0, 6}},
      {"7.0", "mxfp4:contract=torchao-ceil", seven, 128, {6, 0, 8, 5}, {}},
      {"7.0", "mxfp4:contract=torchao-rceil", seven, 128, {6, 0, 8, 5}, {}},
      {"6.5", "mxfp4:contract=ocp-floor-rne", six, 127, {7}, {6}},
      {"6.5", "mxfp4:contract=torchao-floor", six, 127, {7}, {}},
      {"6.5", "mxfp4:contract=torchao-even", six, 127, {7}, {}},
      {"6.5", "mxfp4:contract=torchao-ceil", six, 128, {5}, {6}},
      {"6.5", "mxfp4:contract=torchao-rceil", six, 128, {5}, {}},
  });
}

TEST_CASE("C03 the rceil quotient keeps the tail that BF16 would drop") {
  const std::vector<double> e2m1 = {6.01171875, 0.5, -0.5, 1.5};
  const std::vector<double> e4m3 = {448.875, 0x1p-9, -3 * 0x1p-9};
  check_blocks({
      {"E2M1", "mxfp4:contract=torchao-rceil", e2m1, 128, {5, 0, 8, 2}, {}},
      {"E2M1, division",
       "mxfp4:contract=torchao-rceil,scale-arith=div",
       e2m1,
       128,
       {5, 0, 8, 2},
       {}},
      {"E4M3", "mxfp8e4m3:contract=torchao-rceil", e4m3, 128, {0x76, 0x00, 0x82}, {}},
      {"E4M3, division",
       "mxfp8e4m3:contract=torchao-rceil,scale-arith=div",
       e4m3,
       128,
       {0x76, 0x00, 0x82},
       {}},
  });
}

TEST_CASE("C04 one ulp below a power of two has the exponent below") {
  const std::vector<double> x = {from_bits(0x507FFFFF), 0x1p31};
  for (const char* recipe : {"mxfp4:contract=ocp-floor-rne", "mxfp4:contract=torchao-floor"}) {
    check_blocks({{"2^34 minus one ulp", recipe, x, 158, {7, 2}, {6 * 0x1p31, 0x1p31}}});
  }
}

TEST_CASE("C09 te: a zero block and a scale above 448 store finite bytes") {
  std::vector<double> x(48, 0.0);
  for (std::size_t i = 16; i < 48; ++i) x[i] = i < 32 ? 1.0 : 1.2;
  for (const Backend* backend : backends_and_oracle()) {
    const Result r = run(*backend, "nvfp4:contract=te,amax=0x3f800000", x, 1, 48);
    CHECK(int{r.tile.scales[0]} == 0x00);
    CHECK(int{r.tile.scales[1]} == 0x7E);
    CHECK(int{r.tile.scales[2]} == 0x7E);
    CHECK(r.codes(0, 16) == Codes(16, 0));
    for (std::size_t i = 0; i < 16; ++i) CHECK(r.values[i] == 0.0f);
    for (const float v : r.values) CHECK(std::isfinite(v));
  }
}

TEST_CASE("C10 a zero tensor or row has finite scales and decodes to zero") {
  std::vector<double> x(64, 0.0);
  std::fill(x.begin() + 32, x.end(), 0.5);
  for (const Backend* backend : backends_and_oracle()) {
    for (const char* recipe : {"nvfp4", "nvfp4:scale=row"}) {
      const Result r = run(*backend, recipe, x, 2, 32);
      for (const OuterScale32& o : r.outer) CHECK(std::isfinite(o.g));
      for (const std::uint8_t s : r.tile.scales) CHECK((s & 0x7F) != 0x7F);
      for (std::size_t i = 0; i < 32; ++i) CHECK(r.values[i] == 0.0f);
      for (std::size_t i = 32; i < 64; ++i) CHECK(r.values[i] == 0.5f);
      if (r.outer.size() == 2) CHECK(r.outer[0].g == 1.0f);
      const Result zero = run(*backend, recipe, std::vector<double>(64, 0.0), 2, 32);
      for (const OuterScale32& o : zero.outer) CHECK(o.g == 1.0f);
      for (const float v : zero.values) CHECK(v == 0.0f);
      for (const std::uint8_t s : zero.tile.scales) CHECK((s & 0x7F) != 0x7F);
    }
  }
}

TEST_CASE("C11 elements are divided by the scale that the file stores") {
  check_blocks({{"6.42",
                 "nvfp4:scale=none",
                 {6.42, 0.27, -1.4, 0.85},
                 0x39,
                 {7, 0, 10, 2},
                 {6.75, 0, -1.125, 1.125}}});
}

TEST_CASE("C12 te multiplies g by 1/6 first, and x by the reciprocal of the scale") {
  for (const Backend* backend : backends_and_oracle()) {
    // Block amax 1.20703125 in a tensor with amax 25.75.
    std::vector<double> x(32, 0.0);
    x[0] = 1.20703125;
    x[16] = 25.75;
    CHECK(int{run(*backend, "nvfp4:contract=te", x, 1, 32).tile.scales[0]} == 0x5B);
    // Element 0.2470703125 under scale byte 0x5B in a tensor with amax 17.25. Block amax
    // 0.84765625: 0.84765625 * 2688 / 17.25 / 6 = 22.01, nearest E4M3 value 22 = 0x5B.
    x.assign(32, 0.0);
    x[0] = 0.84765625;
    x[1] = 0.2470703125;
    x[16] = 17.25;
    const Result r = run(*backend, "nvfp4:contract=te", x, 1, 32);
    CHECK(int{r.tile.scales[0]} == 0x5B);
    CHECK(r.codes(0, 2) == Codes{7, 4});
  }
}

TEST_CASE("C13 the dead zone below amax/24, and blocks lost under a large tensor amax") {
  const double next = std::nextafter(1.0f, 2.0f);
  check_blocks({{"A", "nvfp4:scale=none", {24, 1, next, 0.99}, 0x48, {7, 0, 1, 0}, {24, 0, 2, 0}}});
  for (const Backend* backend : backends_and_oracle()) {
    std::vector<double> x(48, 0.0);
    x[0] = 458752;
    x[16] = 1.0;
    x[32] = next;
    const Result r = run(*backend, "nvfp4:contract=te", x, 1, 48);
    CHECK(int{r.tile.scales[1]} == 0x00);
    CHECK(int{r.tile.scales[2]} == 0x01);
    CHECK(r.values[16] == 0.0f);
    CHECK(r.values[32] != 0.0f);
  }
}

TEST_CASE("C14 above 2688 without an outer scale NVFP4 saturates, and g = 0 is an error") {
  check_blocks(
      {{"5000", "nvfp4:scale=none", {5000, 2500, -1250}, 0x7E, {7, 7, 13}, {2688, 2688, -1344}}});
  CHECK_THROWS_AS(parse_recipe("nvfp4:scale=given,g=0x00000000"), Error);
}

TEST_CASE("C17 seven E2M1 ties separate even, away and toward zero") {
  const std::vector<double> ties = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0};
  struct Case {
    const char* ties;
    Rounding rounding;
    Codes codes;
    std::vector<double> values;
  };
  const Case cases[] = {
      {"even", Rounding::kEven, {0, 2, 2, 4, 4, 6, 6}, {0, 1, 1, 2, 2, 4, 4}},
      {"away", Rounding::kAway, {1, 2, 3, 4, 5, 6, 7}, {0.5, 1, 1.5, 2, 3, 4, 6}},
      {"zero", Rounding::kZero, {0, 1, 2, 3, 4, 5, 6}, {0, 0.5, 1, 1.5, 2, 3, 4}},
      // A tie truncates to its lower neighbour as well.
      {"trunc", Rounding::kTrunc, {0, 1, 2, 3, 4, 5, 6}, {0, 0.5, 1, 1.5, 2, 3, 4}},
  };
  for (const Case& c : cases) {
    std::vector<double> x = {6.0}, values = {6.0};
    Codes codes = {7};
    for (const double sign : {1.0, -1.0}) {
      for (std::size_t i = 0; i < ties.size(); ++i) {
        x.push_back(sign * ties[i]);
        codes.push_back(c.codes[i] | (sign < 0 ? 8 : 0));  // the sign bit is kept: -0.25 -> 8
        values.push_back(sign * c.values[i]);
        const auto code = encode<L1>(kE2M1, c.rounding, static_cast<float>(x.back()));
        CHECK(static_cast<int>(code) == codes.back());
      }
    }
    const std::string recipe = std::string("mxfp4:contract=ocp-floor-rne,ties=") + c.ties;
    check_blocks({{c.ties, recipe.c_str(), x, 127, codes, values}});
  }
}

TEST_CASE("C18 FP32 is not narrowed on the way, FP64 is rounded once") {
  check_blocks({
      {"above 0.25", "mxfp4:contract=ocp-floor-rne", {6, from_bits(0x3E802000)}, 127, {7, 1}, {}},
      {"above 2.5", "mxfp4:contract=ocp-floor-rne", {6, from_bits(0x40202000)}, 127, {7, 5}, {}},
      {"above 0.25", "nvfp4:scale=none", {6, from_bits(0x3E802000)}, 0x38, {7, 1}, {}},
      {"above 2.5", "nvfp4:scale=none", {6, from_bits(0x40202000)}, 0x38, {7, 5}, {}},
  });
  // Through BF16 both are ties to the lower even code.
  CHECK(encode<L1>(kE2M1, Rounding::kEven, round_to_bf16<L1>(from_bits(0x3E802000))) == 0);
  CHECK(encode<L1>(kE2M1, Rounding::kEven, round_to_bf16<L1>(from_bits(0x40202000))) == 4);
  for (const Backend* backend : backends_and_oracle()) {
    const double x = 2.5 + 0x1p-40;
    const Result mx =
        run(*backend, "mxfp4:contract=ocp-floor-rne", padded({6, x}, 32), 1, 32, true);
    CHECK(mx.codes(0, 2) == Codes{7, 5});
    const Result nv = run(*backend, "nvfp4:scale=none", padded({6, x}, 16), 1, 16, true);
    CHECK(nv.codes(0, 2) == Codes{7, 4});
  }
}

TEST_CASE("C19 MXFP8 clamps before the cast; 464 and 4.25 are ties") {
  check_blocks(
      {{"500", "mxfp8e4m3:contract=ocp-floor-rne", {500, 470, 1}, 127, {0x7E, 0x7E, 0x38}, {}}});
  const float above_464 = 464.01f;
  CHECK(decode<L1>(kE4M3, cast<L1>(kE4M3, kSaturating, 464.0f)) == 448.0f);
  CHECK(decode<L1>(kE4M3, cast<L1>(kE4M3, kSaturating, above_464)) == 448.0f);
  CHECK(decode<L1>(kE4M3, cast<L1>(kE4M3, kOverflowing, 464.0f)) == 448.0f);
  CHECK(std::isnan(decode<L1>(kE4M3, cast<L1>(kE4M3, kOverflowing, above_464))));
  for (const CastPolicy& policy : {kSaturating, kOverflowing}) {
    CHECK(decode<L1>(kE4M3, cast<L1>(kE4M3, policy, 4.25f)) == 4.0f);
    CHECK(decode<L1>(kE4M3, cast<L1>(kE4M3, policy, 4.75f)) == 5.0f);
  }
}

TEST_CASE("C20 the sign of zero is kept in the code and never becomes NaN") {
  check_blocks({{"zeros",
                 "mxfp4:contract=ocp-floor-rne",
                 {-0.0, 1.0, -0.0, 2.0, -0.1, 6, 0, 0},
                 127,
                 {8, 2, 8, 4, 8, 7, 0, 0},
                 {0, 1, 0, 2, 0, 6, 0, 0}}});
  CHECK(decode<L1>(kE4M3, 0x80u) == 0.0f);  // NaN in the fnuz formats only
  CHECK(std::signbit(decode<L1>(kE4M3, 0x80u)));
  CHECK(std::isnan(decode<L1>(kE4M3Fnuz, 0x80u)));
}

TEST_CASE("C23 blocks end with the row, and padding changes nothing") {
  std::vector<double> x(80, 0.01);
  std::fill(x.begin() + 40, x.end(), 100.0);
  struct Case {
    const char* recipe;
    std::size_t blocks;
    int row0, row1;
  };
  // mxfp4 floor: 0.01 lies in [2^-7, 2^-6), 100 in [2^6, 2^7). nvfp4: 0.01 / 6 * 26.88 = 0.0448,
  // nearest E4M3 value 1.375 * 2^-5; 448 for the tensor maximum.
  const Case cases[] = {{"mxfp4:contract=ocp-floor-rne", 2, 127 - 7 - 2, 127 + 6 - 2},
                        {"nvfp4", 3, 0x13, 0x7E}};
  for (const Case& c : cases) {
    for (const Backend* backend : backends_and_oracle()) {
      Result r = run(*backend, c.recipe, x, 2, 40);
      CHECK(r.tile.blocks_per_row == static_cast<std::int64_t>(c.blocks));
      for (std::size_t b = 0; b < c.blocks; ++b) {
        CHECK(int{r.tile.scales[b]} == c.row0);
        CHECK(int{r.tile.scales[c.blocks + b]} == c.row1);
      }
      // Codes in the padding are never read.
      const Recipe recipe = parse_recipe(c.recipe);
      const auto width = static_cast<std::size_t>(r.tile.padded_cols);
      for (std::size_t i = 0; i < r.tile.codes.size(); ++i) {
        if (i % width >= 40) r.tile.codes[i] = 15;
      }
      std::vector<float> again(80);
      backend->dequantize(recipe, r.tile, r.outer, again.data(), 40);
      CHECK(again == r.values);
    }
  }
}

TEST_CASE("C33 far underflow inside a block is a signed zero in every format and backend") {
  for (const char* recipe : {"mxfp4:contract=ocp-floor-rne", "mxfp6e2m3:contract=ocp-floor-rne",
                             "mxfp6e3m2:contract=ocp-floor-rne", "mxfp8e4m3:contract=ocp-floor-rne",
                             "mxfp8e5m2:contract=ocp-floor-rne", "nvfp4", "hif4"}) {
    const auto block = static_cast<std::size_t>(parse_recipe(recipe).format.block);
    std::vector<double> x(10 * block, 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      // E5M2 reaches furthest down: amax 1 gives scale 2^-15, so 2^-32 is its tie with zero.
      const int k = 32 + static_cast<int>(i * 118 / x.size());
      x[i] = i % block == 0 ? 1.0 : std::ldexp(i % 2 == 0 ? 1.0 : -1.0, -k);
    }
    for (const Backend* backend : backends_and_oracle()) {
      const Result r = run(*backend, recipe, x, 10, static_cast<std::int64_t>(block));
      int wrong = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (i % block == 0) continue;
        if (r.values[i] != 0.0f || std::signbit(r.values[i]) != (i % 2 != 0)) ++wrong;
      }
      CHECK_MESSAGE(wrong == 0, std::string(recipe), " ", backend->name());
    }
  }
}

}  // namespace
}  // namespace fp4scope
