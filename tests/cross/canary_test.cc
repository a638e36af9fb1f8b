// canary_test.cc: blocks whose Four-over-Six choice flips when a product and a sum are contracted
// into a fused multiply-add (spec/scalars.md section 0: never, unless a rule says fma). Every
// backend and the oracle must choose as two roundings do. The contracted form is written out here
// with std::fma, so that a block which has stopped to tell the two apart fails the test as well.
// Found by a search over Gaussian blocks, BF16 and binary32.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "formats/minifloat.h"
#include "sim/backend.h"
#include "tests/cross/canary_blocks.h"
#include "tests/support/backends.h"

namespace fp4scope {
namespace {

using L1 = Lane<1>;

enum class Form { kPlain, kContracted };

float round_trip(MinifloatSpec spec, float v) {
  return decode<L1>(spec, encode<L1>(spec, Rounding::kEven, v));
}

// The error of one candidate (spec/nvfp4.md 3.3 and 4.3), elements in order.
float error_of(const test::CanaryCase& c, float g, float amax, const std::vector<float>& x,
               float sf, Form form) {
  const float gd = 1.0f / g, inverse = 1.0f / (sf * gd), six_m = 6.0f * c.m;
  float sum = 0.0f;
  for (const float v : x) {
    const float q = round_trip(kE2M1, v * inverse), product = q * sf;
    float d = 0;
    switch (c.metric) {
      case test::CanaryMetric::kAmax: {
        // d is the difference of a quotient: only the square of mse can be contracted.
        const float w = product * amax / six_m;
        d = w - v;
        break;
      }
      case test::CanaryMetric::kDecode: {
        const float w = product * gd;
        d = form == Form::kContracted ? std::fma(product, gd, -v) : w - v;
        break;
      }
      case test::CanaryMetric::kFast: {
        const float w = v * g;
        d = form == Form::kContracted ? std::fma(-v, g, product) : product - w;
        break;
      }
    }
    if (!c.is_mse) {
      sum = sum + std::fabs(d);
    } else if (form == Form::kContracted) {
      sum = std::fma(d, d, sum);
    } else {
      const float square = d * d;
      sum = sum + square;
    }
  }
  return sum;
}

struct Errors {
  float four, six;
  int choice() const { return four < six ? 1 : 0; }
};
Errors errors_of(const test::CanaryCase& c, float amax, const std::vector<float>& x, Form form) {
  const float g = 6.0f * c.m / amax;
  float bmax = 0;
  for (const float v : x) bmax = std::fmax(bmax, std::fabs(v));
  const float base = bmax / 6.0f * g, base4 = base * 1.5f;
  const float sf4 = round_trip(kUE4M3, std::fmin(base4, 448.0f));
  const float sf6 = round_trip(kUE4M3, std::fmin(base, 448.0f));
  return {error_of(c, g, amax, x, sf4, form), error_of(c, g, amax, x, sf6, form)};
}

std::vector<float> block_of(std::string_view hex) {
  const std::size_t digits = hex.size() / 16;  // BF16: 4, binary32: 8
  std::vector<float> x;
  for (std::size_t i = 0; i < 16; ++i) {
    const std::string word(hex.substr(i * digits, digits));
    const auto bits = static_cast<std::uint32_t>(std::stoul(word, nullptr, 16));
    x.push_back(bit_cast<float>(digits == 4 ? bits << 16 : bits));
  }
  return x;
}

struct Chosen {
  int choice;
  float four, six;
  bool operator==(const Chosen&) const = default;
};
// The block fills a row many times over: one lane is one block, so a few blocks would run through
// the scalar kernel alone. Full panels of 16 and 8 lanes and a remainder; all must agree.
constexpr std::int64_t kCopies = 37;
Chosen chosen_by(const Backend& backend, const Recipe& recipe, const std::vector<float>& x) {
  std::vector<float> row;
  for (std::int64_t i = 0; i < kCopies; ++i) row.insert(row.end(), x.begin(), x.end());
  QuantizedTile tile;
  tile.wants_errors = true;
  const OuterScale32 outer[] = {backend.outer_scale(recipe, 0)};
  const std::int64_t cols = 16 * kCopies;
  backend.quantize(recipe, Tile{row.data(), nullptr, 1, cols, cols}, outer, tile);
  REQUIRE(tile.choices.size() == static_cast<std::size_t>(kCopies));
  REQUIRE(tile.errors.size() == 2 * tile.choices.size());
  const Chosen first = {tile.choices[0], tile.errors[0], tile.errors[1]};
  for (std::size_t i = 1; i < tile.choices.size(); ++i) {
    CHECK(Chosen{tile.choices[i], tile.errors[2 * i], tile.errors[2 * i + 1]} == first);
  }
  return first;
}

TEST_CASE("no backend contracts the error of a Four-over-Six candidate") {
  for (const test::CanaryCase& c : test::kCanaryCases) {
    int blocks = 0, checks = 0;
    for (const test::CanaryBlock& b : c.blocks) {
      const std::vector<float> x = block_of(b.x);
      const std::string text = std::string(c.recipe) + ",amax=" + std::string(b.amax);
      const float amax =
          bit_cast<float>(static_cast<std::uint32_t>(std::stoul(std::string(b.amax), nullptr, 16)));
      CAPTURE(text);
      CAPTURE(blocks);
      const Errors plain = errors_of(c, amax, x, Form::kPlain);
      const Errors contracted = errors_of(c, amax, x, Form::kContracted);
      // The canary still tells the two apart.
      CHECK(plain.choice() == b.choice);
      CHECK(contracted.choice() != b.choice);
      const Recipe recipe = parse_recipe(text);
      for (const Backend* backend : test::backends_and_oracle()) {
        const std::string name = test::name_of(*backend);
        CAPTURE(name);
        const Chosen got = chosen_by(*backend, recipe, x);
        CHECK(got.choice == b.choice);
        CHECK(bit_cast<std::uint32_t>(got.four) == bit_cast<std::uint32_t>(plain.four));
        CHECK(bit_cast<std::uint32_t>(got.six) == bit_cast<std::uint32_t>(plain.six));
        ++checks;
      }
      // Where only the square can be contracted, sum=fma is that form by name and must flip.
      if (c.is_mse && c.metric == test::CanaryMetric::kAmax) {
        const Recipe fused = parse_recipe(text + ",sum=fma");
        for (const Backend* backend : test::backends_and_oracle()) {
          const Chosen got = chosen_by(*backend, fused, x);
          CHECK(got.choice == contracted.choice());
          CHECK(bit_cast<std::uint32_t>(got.four) == bit_cast<std::uint32_t>(contracted.four));
          CHECK(bit_cast<std::uint32_t>(got.six) == bit_cast<std::uint32_t>(contracted.six));
        }
      }
      ++blocks;
    }
    std::printf("canary %-45s %d blocks, %d choices\n", std::string(c.recipe).c_str(), blocks,
                checks);
    CHECK(blocks >= 12);
  }
}

}  // namespace
}  // namespace fp4scope
