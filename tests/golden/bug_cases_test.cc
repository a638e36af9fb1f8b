// bug_cases_test.cc: public reports of other projects turned into tests, from ../shared/cases/
// bugs.md (numbers C01..C34 and expected codes are those of that file). Blocks and casts are here,
// readers and report figures in bug_cases_files_test.cc. Every block case runs on every CPU backend
// of this machine and on the exact oracle.
//
// Layouts, packing and masks (C01, C06, C07, C20, C22, C23, C24, C31, C32) are in
// bug_cases_layout_test.cc; what needs the contracts of several stacks is in
// bug_cases_arithmetic_test.cc. C28 (npz) and C30 (HDF5) wait for their readers.
#include <cmath>
#include <limits>
#include <string>

#include "formats/e8m0.h"
#include "formats/minifloat.h"
#include "sim/backend.h"
#include "sim/error.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::backends_and_oracle;
using L1 = Lane<1>;
using Codes = std::vector<int>;

constexpr CastPolicy kSaturating{
    Rounding::kEven, Overflow::kSaturate, {0x7F, NanRule::Sign::kDrop}};
constexpr CastPolicy kOverflowing{
    Rounding::kEven, Overflow::kSpecial, {0x7F, NanRule::Sign::kCopy}};
constexpr CastPolicy kIeeeCast{Rounding::kEven, Overflow::kSpecial, {0x7E00, NanRule::Sign::kCopy}};

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
float from_bits(std::uint32_t bits) {
  return bit_cast<float>(bits);
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

TEST_CASE("C01 binary32 powers of two become E8M0 bytes, other values are rounded by name") {
  struct Case {
    float in;
    std::uint32_t down, up, nearest;
  };
  const Case cases[] = {{0x1p-127f, 0x00, 0x00, 0x00},
                        {1.0f, 0x7F, 0x7F, 0x7F},
                        {1.5f, 0x7F, 0x80, 0x80},
                        {2.0f, 0x80, 0x80, 0x80},
                        {4.0f, 0x81, 0x81, 0x81}};
  for (const Case& c : cases) {
    CAPTURE(c.in);
    CHECK(e8m0_encode<L1>(E8m0Rule::kDown, c.in) == c.down);
    CHECK(e8m0_encode<L1>(E8m0Rule::kUp, c.in) == c.up);
    CHECK(e8m0_encode<L1>(E8m0Rule::kNearestTorch, c.in) == c.nearest);
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

TEST_CASE("C05 E8M0 nearest of torch, ONNX and ml_dtypes in the subnormal gap") {
  struct Case {
    std::uint32_t in, byte;
  };
  for (const Case c : {Case{0x00400000, 0}, {0x00500000, 1}, {0x00600000, 1}, {0x00700000, 1}}) {
    for (const E8m0Rule rule :
         {E8m0Rule::kNearestTorch, E8m0Rule::kNearestOnnx, E8m0Rule::kNearestMlDtypes}) {
      CHECK(e8m0_encode<L1>(rule, from_bits(c.in)) == c.byte);
    }
  }
}

TEST_CASE("C06 scale bytes narrowed to FP16 flush and overflow, in FP32 they are exact") {
  struct Case {
    std::uint32_t byte, fp16;
  };
  const Case cases[] = {{102, 0x0000}, {103, 0x0001}, {112, 0x0200},
                        {113, 0x0400}, {142, 0x7800}, {143, 0x7C00}};
  for (const Case& c : cases) {
    CAPTURE(c.byte);
    const float scale = e8m0_decode<L1>(c.byte);
    CHECK(double(scale) == std::ldexp(1.0, static_cast<int>(c.byte) - 127));
    CHECK(cast<L1>(kFP16, kIeeeCast, scale) == c.fp16);
  }
  // Byte 102 with E2M1 code 7: product first gives 6 * 2^-25, scale first gives 0.
  const float six = decode<L1>(kE2M1, 7u), scale = e8m0_decode<L1>(102u);
  CHECK(cast<L1>(kFP16, kIeeeCast, six * scale) == 0x0003);
  const float narrow = decode<L1>(kFP16, cast<L1>(kFP16, kIeeeCast, scale));
  CHECK(cast<L1>(kFP16, kIeeeCast, six * narrow) == 0x0000);
}

TEST_CASE("C07 all 127 E4M3 scale bytes decode with E2M1 code 7, subnormals too") {
  const Recipe recipe = parse_recipe("nvfp4:scale=none");
  for (const Backend* backend : backends_and_oracle()) {
    QuantizedTile tile;
    resize(tile, recipe, 127, 16);
    std::fill(tile.codes.begin(), tile.codes.end(), std::uint8_t{7});
    for (std::size_t b = 0; b < 127; ++b) tile.scales[b] = static_cast<std::uint8_t>(b);
    const OuterScale32 outer[] = {backend->outer_scale(recipe, 0)};
    std::vector<float> values(127 * 16);
    backend->dequantize(recipe, tile, outer, values.data(), 16);
    for (int b = 0; b < 127; ++b) {
      // E4M3 by definition: 0..7 are multiples of 2^-9, then 2^(field-7) * (1 + m/8).
      const double scale = b < 8 ? b * 0x1p-9 : std::ldexp(1 + (b & 7) / 8.0, (b >> 3) - 7);
      CAPTURE(b);
      CHECK(double(values[static_cast<std::size_t>(b) * 16 + 5]) == 6 * scale);
    }
    struct Case {
      std::size_t byte;
      double value;
    };
    for (const Case c : {Case{0x01, 0.01171875},
                         {0x07, 0.08203125},
                         {0x08, 0.09375},
                         {0x38, 6.0},
                         {0x7E, 2688.0}}) {
      CHECK(double(values[c.byte * 16]) == c.value);
    }
  }
}

TEST_CASE("C08 the top binade of E4M3 holds numbers, only 0x7F is NaN") {
  struct Code {
    std::uint32_t code;
    double value;
  };
  for (const MinifloatSpec spec : {kE4M3, kUE4M3}) {
    for (const Code c : {Code{0x77, 240}, {0x78, 256}, {0x7C, 384}, {0x7E, 448}}) {
      CHECK(double(decode<L1>(spec, c.code)) == c.value);
    }
    CHECK(std::isnan(decode<L1>(spec, 0x7Fu)));
    struct Value {
      float in;
      std::uint32_t saturating, overflowing;
    };
    const Value values[] = {{256, 0x78, 0x78}, {288, 0x79, 0x79}, {384, 0x7C, 0x7C},
                            {448, 0x7E, 0x7E}, {449, 0x7E, 0x7E}, {464, 0x7E, 0x7E},
                            {465, 0x7E, 0x7F}};
    for (const Value& v : values) {
      CAPTURE(v.in);
      CHECK(cast<L1>(spec, kSaturating, v.in) == v.saturating);
      CHECK(cast<L1>(spec, kOverflowing, v.in) == v.overflowing);
    }
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

TEST_CASE("C21 the code books of E2M1 and S1P2") {
  const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double s1p2[] = {0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75};
  for (std::uint32_t c = 0; c < 8; ++c) {
    CHECK(double(decode<L1>(kE2M1, c)) == e2m1[c]);
    CHECK(double(decode<L1>(kE2M1, c + 8)) == -e2m1[c]);
    CHECK(double(decode<L1>(kE1M2, c)) == s1p2[c]);
    CHECK(double(decode<L1>(kE1M2, c + 8)) == -s1p2[c]);
  }
  // The same through every backend's decoder, under scale 1 (E8M0 127, E4M3 0x38, E6M2 0xC0).
  struct Case {
    const char* recipe;
    std::uint8_t scale;
    const double* book;
  };
  for (const Case& c :
       {Case{"mxfp4", 127, e2m1}, {"nvfp4:scale=none", 0x38, e2m1}, {"hif4", 0xC0, s1p2}}) {
    const Recipe recipe = parse_recipe(c.recipe);
    for (const Backend* backend : backends_and_oracle()) {
      QuantizedTile tile;
      resize(tile, recipe, 1, recipe.format.block);
      std::fill(tile.scales.begin(), tile.scales.end(), std::uint8_t{0});
      tile.scales[0] = c.scale;
      for (std::size_t i = 0; i < tile.codes.size(); ++i) tile.codes[i] = i % 16;
      const OuterScale32 outer[] = {backend->outer_scale(recipe, 0)};
      std::vector<float> values(tile.codes.size());
      backend->dequantize(recipe, tile, outer, values.data(), recipe.format.block);
      for (std::size_t i = 0; i < 16; ++i)
        CHECK(double(values[i]) == (i < 8 ? c.book[i] : -c.book[i - 8]));
    }
  }
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

TEST_CASE("C33 every finite code survives decode and encode") {
  const NamedSpec specs[] = {{"e2m1", kE2M1, ""}, {"e2m3", kE2M3, ""}, {"e3m2", kE3M2, ""},
                             {"e4m3", kE4M3, ""}, {"e5m2", kE5M2, ""}, {"e6m2", kE6M2, ""}};
  for (const NamedSpec& s : specs) {
    int kept = 0;
    for (std::uint32_t code = 0; code < s.spec.code_count(); ++code) {
      const float value = decode<L1>(s.spec, code);
      if (!std::isfinite(value)) continue;
      CAPTURE(s.name);
      CHECK(encode<L1>(s.spec, Rounding::kEven, value) == code);
      ++kept;
    }
    // NaN and Inf codes (spec/scalars.md section 1): E4M3 2, E5M2 8, E6M2 1, none elsewhere.
    const int special = s.name == "e4m3" ? 2 : s.name == "e5m2" ? 8 : s.name == "e6m2" ? 1 : 0;
    CHECK(kept == static_cast<int>(s.spec.code_count()) - special);
  }
  for (std::uint32_t byte = 0; byte < 255; ++byte) {
    for (const E8m0Rule rule : {E8m0Rule::kUp, E8m0Rule::kDown, E8m0Rule::kNearestTorch}) {
      CHECK(e8m0_encode<L1>(rule, e8m0_decode<L1>(byte)) == byte);
    }
  }
}

TEST_CASE("C33 powers of two are exact down to the smallest code, then signed zero") {
  struct Case {
    const char* name;
    MinifloatSpec spec;
    int tie;  // 2^tie is half of the smallest subnormal and goes to zero
  };
  const Case cases[] = {{"e2m1", kE2M1, -2},
                        {"e2m3", kE2M3, -4},
                        {"e3m2", kE3M2, -5},
                        {"e4m3", kE4M3, -10},
                        {"e5m2", kE5M2, -17}};
  for (const Case& c : cases) {
    for (int k = 1; k <= 1074; ++k) {
      for (const bool negative : {false, true}) {
        const double x = negative ? -std::ldexp(1.0, -k) : std::ldexp(1.0, -k);
        CAPTURE(c.name);
        CAPTURE(k);
        std::vector<std::uint32_t> codes = {encode<L1>(c.spec, Rounding::kEven, round_to_odd(x))};
        if (k <= 149) codes.push_back(encode<L1>(c.spec, Rounding::kEven, static_cast<float>(x)));
        for (const std::uint32_t code : codes) {
          const float v = decode<L1>(c.spec, code);
          CHECK(double(v) == (-k > c.tie ? x : 0.0));
          CHECK(std::signbit(v) == negative);
        }
      }
    }
  }
  CHECK(encode<L1>(kE2M1, Rounding::kEven, from_bits(0x3E800002)) == 1);
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
