// bug_cases_codes_test.cc: the cases of ../shared/cases/bugs.md that concern single codes and scale
// bytes, without a block around them: casts, decoding and code books.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/e8m0.h"
#include "formats/minifloat.h"
#include "formats/rounding.h"
#include "formats/scalars.h"
#include "sim/backend.h"
#include "tests/golden/bug_cases_support.h"
#include "tests/support/backends.h"

namespace fp4scope {
namespace {

using test::backends_and_oracle;
using test::from_bits;
using test::kOverflowing;
using test::kSaturating;
using test::L1;

constexpr CastPolicy kIeeeCast{Rounding::kEven, Overflow::kSpecial, {0x7E00, NanRule::Sign::kCopy}};

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

}  // namespace
}  // namespace fp4scope
