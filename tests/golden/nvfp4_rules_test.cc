// nvfp4_rules_test.cc: NVFP4 on every CPU backend of this machine against the worked examples of
// spec/nvfp4.md section 8; the magnitude behind the count of clamped elements; and the worst case
// that the adaptive choice improves (section 3.3).
#include <numeric>
#include <string>
#include <vector>

#include "formats/scalars.h"
#include "sim/element.h"
#include "sim/oracle/exact_format.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::available_backends;
using test::Diff;
using test::load_golden;
using test::quantized;

std::string label(const Backend& b, const std::string& what) {
  return std::string(b.name()) + " " + what;
}

// The recorded tensor randn_bf16, [32, 128].
std::vector<float> randn() {
  std::vector<float> x =
      test::bf16_floats(load_golden("nvfp4/inputs.json")["inputs"]["randn_bf16"]["bf16"]);
  REQUIRE(x.size() == 32 * 128);
  return x;
}

struct Example {
  const char* recipe;
  std::vector<float> x;
  std::uint32_t scale;
  std::vector<std::uint32_t> codes;  // of the first elements
};

TEST_CASE("worked examples of spec/nvfp4.md section 8") {
  const float past1 = 0x1.000002p0f;
  const std::vector<float> mostly_three_quarters = [] {
    std::vector<float> x(16, 0.75f);
    x[0] = 1.0f;
    return x;
  }();
  const std::vector<Example> examples{
      // Order of bmax, g and 1/6 decides a tie of the scale.
      {"nvfp4:amax=0x41ce0000", {1.20703125f}, 0x5b, {}},
      {"nvfp4:contract=fouroversix,amax=0x41ce0000", {1.20703125f}, 0x5a, {}},
      {"nvfp4:scale=none", {6.42f, 0.27f, -1.4f, 0.85f}, 0x39, {7, 0, 10, 2}},
      {"nvfp4:scale=none", {5000, 2500, -1250}, 0x7e, {7, 7, 13}},
      {"nvfp4:scale=none", {24, 1, past1, 0.99f}, 0x48, {7, 0, 1, 0}},
      {"nvfp4:amax=0x48e00000", {1}, 0x00, {}},
      {"nvfp4:amax=0x48e00000", {past1}, 0x01, {}},
      {"nvfp4:amax=0x3f800000,select=mae,e4m3max=448", mostly_three_quarters, 0x7e, {7, 6, 6}},
      {"nvfp4:amax=0x3f800000,select=mae", mostly_three_quarters, 0x7c, {6, 5, 5}},
      {"nvfp4:scale=none,select=mae", {24}, 0x48, {7}},
      {"nvfp4:scale=none,select=mae", {24, 20, 8, 8, 8}, 0x48, {7, 6, 4, 4, 4}},
      {"nvfp4:scale=none,select=mse", {24, 20, 8, 8, 8}, 0x4c, {}},
      {"nvfp4", {}, 0x00, {0, 0}},
      {"nvfp4:contract=modelopt,amax=0x3f800000", {}, 0x38, {0, 0}},
      {"nvfp4:contract=compressed-tensors,amax=0x3f800000", {}, 0x20, {0, 0}},
      {"nvfp4:contract=torchao,amax=0x3f800000", {}, 0x08, {0, 0}},
      // spec/more.md 4.3: powers of two at one fraction bit, 1 for a zero block. 7/4 = 1.75 stays.
      {"nvfp4:contract=mslk-e8m0,scale=none", {}, 0x38, {0, 0}},
      {"nvfp4:contract=mslk-e8m0,scale=none", {7, 3.5f}, 0x38, {7, 6}},
      {"nvfp4:contract=mslk-e8m0,scale=none", {7.03125f, 3}, 0x40, {6, 3}},
      {"nvfp4:contract=mslk-e8m0,scale=none", {4, 1}, 0x38, {6, 2}},
      // Section 6, static export: p/(amax/6) * 448 with amax 2688; a zero block counts as p = 1.
      {"nvfp4:contract=modelopt-static,amax=0x45280000", {}, 0x38, {0, 0}},
      {"nvfp4:contract=modelopt-static,amax=0x45280000", {2688}, 0x7e, {7}},
      {"nvfp4:contract=modelopt-static,amax=0x45280000", {6, 3, -0.5f}, 0x38, {7, 5, 9}},
      {"nvfp4:contract=modelopt-static,amax=0x45280000,e4m3max=256", {2688}, 0x78, {7}},
  };
  for (const Backend* backend : available_backends()) {
    Diff scales(label(*backend, "spec/nvfp4.md section 8 scales")),
        codes(label(*backend, "spec/nvfp4.md section 8 codes"));
    for (const Example& e : examples) {
      std::vector<float> one = e.x;
      one.resize(16);
      std::vector<float> x;
      for (int i = 0; i < 17; ++i) x.insert(x.end(), one.begin(), one.end());
      const auto got = quantized(*backend, parse_recipe(e.recipe), x, 1, 17 * 16);
      for (std::size_t b = 0; b < 17; ++b) {
        scales.compare(got.tile.scales[b], e.scale, e.recipe);
        for (std::size_t i = 0; i < e.codes.size(); ++i)
          codes.compare(got.tile.codes[16 * b + i], e.codes[i], e.recipe);
      }
    }
    scales.check();
    codes.check();
  }
}

// Statistics count an element as clamped by the magnitude that its cast got; rounding that
// magnitude must give the stored code, under every contract whose cast is E2M1 to nearest even.
TEST_CASE("scaled_magnitude rounds to the stored code under every contract") {
  const std::vector<float> x = randn();
  const Backend& backend = *available_backends().back();
  Diff diff("scaled_magnitude");
  int recipes = 0;
  for (const ContractInfo& info : contracts_of(Family::kNvfp4, "nvfp4")) {
    if (info.name == "mlx-cpu") continue;  // ties toward zero
    const bool chooses = info.name.starts_with("te") || info.name.starts_with("fouroversix") ||
                         info.name == "flashinfer" || info.name == "flashinfer-fast";
    for (const char* select : {"static6", "mse"}) {
      if (!chooses && std::string(select) == "mse") continue;
      std::string text = "nvfp4:contract=" + std::string(info.name) + ",select=" + select;
      if (info.name == "flashinfer-kv") text += ",scale=given,g=0x3c000000";
      const Recipe recipe = parse_recipe(text);
      const auto got = quantized(backend, recipe, x, 32, 128);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool choice = recipe.chooses() && got.tile.choices[i / 16] == 1;
        const double magnitude =
            scaled_magnitude(recipe, got.outer[0], &got.tile.scales[i / 16], choice,
                             static_cast<int>(i % 16), static_cast<double>(x[i]));
        diff.compare(oracle::cast_saturating(kE2M1, oracle::exact(magnitude), Rounding::kEven),
                     got.tile.codes[i] & 7u, text + " " + std::to_string(i));
      }
      ++recipes;
    }
  }
  CHECK(recipes == 25);  // 19 contracts, six of them with two selections
  diff.check();
}

// Error of one element relative to the range of its block, in exact fractions.
struct WorstCase {
  std::int64_t numerator = 0, denominator = 1, at = -1;
};

// A block whose maximum is 96 and that has one free element v = i/64: g = 1 (scale=none), and 16
// and 24, the scales of map-to-6 and map-to-4, are E4M3 values, so that only elements are rounded.
// The errors are multiples of 1/64, all sums are exact.
WorstCase worst_over_grid(const Backend& backend, const Recipe& recipe, Diff& scales) {
  constexpr std::int64_t kSteps = 96 * 64;
  std::vector<float> x;
  for (std::int64_t i = 0; i <= kSteps; ++i) {
    x.push_back(96.0f);
    x.push_back(static_cast<float>(i) / 64.0f);
    x.insert(x.end(), 14, 0.0f);
  }
  const auto got = quantized(backend, recipe, x, 1, static_cast<std::int64_t>(x.size()));
  WorstCase worst;
  for (std::int64_t i = 0; i <= kSteps; ++i) {
    const auto at = static_cast<std::size_t>(16 * i);
    REQUIRE(got.values[at] == 96.0f);  // the maximum itself is exact under both
    const bool four = recipe.chooses() && got.tile.choices[static_cast<std::size_t>(i)] == 1;
    scales.compare(got.tile.scales[static_cast<std::size_t>(i)], four ? 0x5cu : 0x58u,
                   std::to_string(i));
    const auto units = static_cast<std::int64_t>(got.values[at + 1] * 64.0f) - i;
    const std::int64_t error = units < 0 ? -units : units;
    if (error > worst.numerator) worst = {error, kSteps, i};
  }
  const std::int64_t common = std::gcd(worst.numerator, worst.denominator);
  return {worst.numerator / common, worst.denominator / common, worst.at};
}

TEST_CASE("the worst error in a block falls from 1/6 of its range to 1/8 with map-to-4") {
  for (const Backend* backend : available_backends()) {
    Diff scales(label(*backend, "worst case, block scales"));
    const Recipe six = parse_recipe("nvfp4:scale=none");
    const WorstCase of_six = worst_over_grid(*backend, six, scales);
    // Between 4 and 6 times the scale: 80 = 5 * 16 becomes 64.
    CHECK(of_six.numerator == 1);
    CHECK(of_six.denominator == 6);
    CHECK(of_six.at == 80 * 64);
    for (const char* select : {"mse", "mae"}) {
      const Recipe adaptive = parse_recipe(std::string("nvfp4:scale=none,select=") + select);
      const WorstCase of_both = worst_over_grid(*backend, adaptive, scales);
      // 84 lies between 72 = 3 * 24 (map-to-4) and 96 = 6 * 16 (map-to-6), 12 from each.
      CHECK(of_both.numerator == 1);
      CHECK(of_both.denominator == 8);
      CHECK(of_both.at == 84 * 64);
    }
    scales.check();
  }
}

}  // namespace
}  // namespace fp4scope
