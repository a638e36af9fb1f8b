// bug_cases_arithmetic_test.cc: the arithmetic of ../shared/cases/bugs.md under contracts other
// than those of bug_cases_test.cc. Expected bits are those of the file, or of the rule that it
// names. Every case runs on every CPU backend of this machine and on the exact oracle.
//   C02 rules by name under further contracts    C12 orders of the scale and of the inverse
//   C04 microx-torch, the defect by its name     C13 map-to-4: dead zone below amax/16
//   C05 true nearest beside the casts            C14 single level: saturation of every stack
//   C09 zero blocks of every NVFP4 stack         C15 ceiling 448 and 256 of the largest block
//   C10 zero rows, also of flashinfer-fast       C16 ties and norms of the adaptive choice
//   C11 elements use the stored scale            C18 x through BF16 first (narrow=bf16)
//   C19 E4M3 saturation with a given scale       C23 ragged rows of INT4 and FP8
//   C33 deep underflow of FP8 and INT4
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "sim/backend.h"
#include "sim/error.h"
#include "sim/oracle/exact_format.h"
#include "tests/golden/bug_cases_support.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"

namespace fp4scope {
namespace {

using test::backends_and_oracle;
using test::from_bits;
using Codes = std::vector<int>;

struct Result : test::Quantized {
  std::vector<float> errors;
  Codes codes(std::size_t row, std::size_t n) const {
    const std::uint8_t* first =
        tile.codes.data() + row * static_cast<std::size_t>(tile.padded_cols);
    return {first, first + n};
  }
};
Result run(const Backend& backend, const std::string& text, std::vector<double> x,
           std::int64_t rows, std::int64_t cols) {
  const Recipe recipe = parse_recipe(text);
  x.resize(static_cast<std::size_t>(rows * cols), 0.0);
  const std::vector<float> f(x.begin(), x.end());
  Result r{test::quantized(backend, recipe, f, rows, cols), {}};
  if (recipe.chooses()) {
    QuantizedTile with_errors;
    with_errors.wants_errors = true;
    backend.quantize(recipe, Tile{f.data(), nullptr, rows, cols, cols}, r.outer, with_errors);
    r.errors = with_errors.errors;
  }
  return r;
}

// One block under several recipes: scale byte and leading codes; the rest must be 0. The block
// fills a row many times over, so that the wide kernels (one lane is one block) see it as well.
void check_block(const std::vector<std::string>& recipes, const std::vector<double>& x, int scale,
                 const Codes& codes) {
  constexpr std::size_t kCopies = 37;
  for (const std::string& text : recipes) {
    const auto block = static_cast<std::size_t>(parse_recipe(text).format.block);
    std::vector<double> row(kCopies * block, 0.0);
    Codes want(kCopies * block, 0);
    for (std::size_t i = 0; i < kCopies; ++i) {
      std::copy(x.begin(), x.end(), row.begin() + static_cast<std::ptrdiff_t>(i * block));
      std::copy(codes.begin(), codes.end(), want.begin() + static_cast<std::ptrdiff_t>(i * block));
    }
    for (const Backend* backend : backends_and_oracle()) {
      const std::string name = test::name_of(*backend);
      CAPTURE(text);
      CAPTURE(name);
      const Result r = run(*backend, text, row, 1, static_cast<std::int64_t>(row.size()));
      REQUIRE(r.tile.scales.size() == kCopies);
      for (const std::uint8_t s : r.tile.scales) CHECK(int{s} == scale);
      CHECK(r.codes(0, row.size()) == want);
    }
  }
}

// NVFP4 stacks with g = 1 by their own key.
const char* const kUnitScale[] = {
    "nvfp4:contract=te,scale=none",
    "nvfp4:contract=te-fast,scale=none",
    "nvfp4:contract=flashinfer,scale=given,g=0x3f800000",
    "nvfp4:contract=flashinfer-fast,scale=given,g=0x3f800000",
    "nvfp4:contract=trtllm,scale=given,g=0x3f800000",
    "nvfp4:contract=vllm,scale=given,g=0x3f800000",
    "nvfp4:contract=modelopt,scale=given,g=0x3f800000",
    "nvfp4:contract=compressed-tensors,scale=given,g=0x3f800000",
    "nvfp4:contract=torchao,scale=none",
    "nvfp4:contract=torchao,scale=given,g=0x3f800000",
};
std::vector<std::string> unit_scale() {
  return {std::begin(kUnitScale), std::end(kUnitScale)};
}

TEST_CASE("C02 floor, even and rceil mean the same under every contract that has them") {
  const std::vector<double> seven = {7.0, 0.3, -0.3, 5.5}, six = {6.5};
  const std::vector<std::string> floor = {"mxfp4:contract=gfloat", "mxfp4:contract=microx-cuda"};
  const std::vector<std::string> even = {"mxfp4:contract=quark-even", "mxfp4:contract=ct-even"};
  const std::vector<std::string> rceil = {"mxfp4:contract=flashinfer-cuda",
                                          "mxfp4:contract=flashinfer-cute"};
  check_block(floor, seven, 127, {7, 1, 9, 7});
  check_block(even, seven, 128, {6, 0, 8, 5});
  check_block(rceil, seven, 128, {6, 0, 8, 5});
  check_block(floor, six, 127, {7});
  check_block(even, six, 127, {7});
  check_block(rceil, six, 128, {5});
}

TEST_CASE("C04 microx-torch has the exponent one too high, by its name") {
  check_block({"mxfp4:contract=microx-torch"}, {from_bits(0x507FFFFF), 0x1p31}, 159, {6, 1});
  for (const Backend* backend : backends_and_oracle()) {
    const Result r =
        run(*backend, "mxfp4:contract=microx-torch", {from_bits(0x507FFFFF), 0x1p31}, 1, 32);
    CHECK(double(r.values[0]) == 4 * 0x1p32);
    CHECK(double(r.values[1]) == 0.5 * 0x1p32);
  }
}

TEST_CASE("C05 the true nearest byte beside torch, ONNX and ml_dtypes in the subnormal gap") {
  using oracle::Dyadic;
  struct Case {
    std::uint32_t in;
    int nearest;  // -1: a tie
    std::uint32_t emulated;
  };
  const Dyadic low = oracle::value_e8m0(0).magnitude, high = oracle::value_e8m0(1).magnitude;
  for (const Case& c : {Case{0x00400000, 0, 0}, Case{0x00500000, 0, 1}, Case{0x00600000, -1, 1},
                        Case{0x00700000, 1, 1}}) {
    const oracle::Number x = oracle::exact(from_bits(c.in));
    const auto side = (x.magnitude - low) <=> (high - x.magnitude);
    CAPTURE(c.in);
    CHECK((side < 0 ? 0 : side > 0 ? 1 : -1) == c.nearest);
    for (const oracle::E8m0Cast rule :
         {oracle::E8m0Cast::kNearestTorch, oracle::E8m0Cast::kNearestOnnxSaturate,
          oracle::E8m0Cast::kNearestMlDtypes}) {
      CHECK(oracle::cast_e8m0(rule, x) == c.emulated);
    }
  }
}

TEST_CASE("C09 zero blocks store a finite byte, named per contract, and 537.6 saturates") {
  std::vector<double> x(48, 0.0);
  for (std::size_t i = 16; i < 48; ++i) x[i] = i < 32 ? 1.0 : 1.2;
  struct Case {
    const char* contract;
    int zero;
  };
  for (const Case& c : {Case{"te", 0x00}, Case{"te-fast", 0x00}, Case{"modelopt", 0x38},
                        Case{"compressed-tensors", 0x20}, Case{"torchao", 0x08}}) {
    const std::string text = std::string("nvfp4:contract=") + c.contract + ",amax=0x3f800000";
    for (const Backend* backend : backends_and_oracle()) {
      const std::string name = test::name_of(*backend);
      CAPTURE(text);
      CAPTURE(name);
      const Result r = run(*backend, text, x, 1, 48);
      CHECK(int{r.tile.scales[0]} == c.zero);
      CHECK(int{r.tile.scales[1]} == 0x7E);
      CHECK(int{r.tile.scales[2]} == 0x7E);
      CHECK(r.codes(0, 16) == Codes(16, 0));
      for (std::size_t i = 0; i < 16; ++i) CHECK(r.values[i] == 0.0f);
      for (const float v : r.values) CHECK(std::isfinite(v));
    }
  }
}

TEST_CASE("C10 zero rows: finite scales, except where a stack's own defect is asked for") {
  std::vector<double> x(64, 0.0);
  std::fill(x.begin() + 32, x.end(), 0.5);
  for (const char* text :
       {"nvfp4:contract=te-fast", "nvfp4:contract=te-fast,scale=row", "nvfp4:contract=flashinfer",
        "nvfp4:contract=flashinfer,scale=row", "nvfp4:contract=trtllm", "nvfp4:contract=vllm",
        "nvfp4:contract=modelopt", "nvfp4:contract=compressed-tensors", "nvfp4:contract=torchao"}) {
    for (const Backend* backend : backends_and_oracle()) {
      const std::string name = test::name_of(*backend);
      CAPTURE(text);
      CAPTURE(name);
      const Result r = run(*backend, text, x, 2, 32);
      for (const OuterScale32& o : r.outer) CHECK(std::isfinite(o.g));
      for (const std::uint8_t s : r.tile.scales) CHECK((s & 0x7F) != 0x7F);
      for (std::size_t i = 0; i < 32; ++i) CHECK(r.values[i] == 0.0f);
      for (std::size_t i = 32; i < 64; ++i) CHECK(std::isfinite(r.values[i]));
    }
  }
  // rcp~(0) * 0 of the fast per-token kernel: NaN bytes in the zero row (spec/nvfp4.md 4.1).
  for (const Backend* backend : backends_and_oracle()) {
    const Result r = run(*backend, "nvfp4:contract=flashinfer-fast,scale=row", x, 2, 32);
    CHECK(int{r.tile.scales[0]} == 0x7F);
    CHECK(int{r.tile.scales[1]} == 0x7F);
    CHECK((r.tile.scales[2] & 0x7F) != 0x7F);
  }
}

TEST_CASE("C11 every stack divides elements by the rounded scale") {
  check_block(unit_scale(), {6.42, 0.27, -1.4, 0.85}, 0x39, {7, 0, 10, 2});
}

TEST_CASE("C12 three orders of the block scale and two of the inverse differ in one bit") {
  std::vector<double> x(32, 0.0);
  x[0] = 1.20703125;
  x[16] = 25.75;
  struct Case {
    const char* contract;
    int scale;
  };
  // a * (S * SIXTH) against (a / 6) * S and (a * SIXTH) * S.
  for (const Case& c : {Case{"te", 0x5B}, Case{"te-fast", 0x5B}, Case{"flashinfer", 0x5B},
                        Case{"fouroversix", 0x5A}, Case{"fouroversix-cuda", 0x5A},
                        Case{"flashinfer-fast", 0x5A}, Case{"trtllm", 0x5A}, Case{"vllm", 0x5A}}) {
    const std::string text = std::string("nvfp4:contract=") + c.contract;
    for (const Backend* backend : backends_and_oracle()) {
      const std::string name = test::name_of(*backend);
      CAPTURE(text);
      CAPTURE(name);
      CHECK(int{run(*backend, text, x, 1, 32).tile.scales[0]} == c.scale);
    }
  }
  // Element 0.2470703125 under byte 0x5B: x * (1 / (s * (1/S))) = 1.75; x * (S / s) = 1.7499999.
  x.assign(32, 0.0);
  x[0] = 0.84765625;
  x[1] = 0.2470703125;
  x[16] = 17.25;
  for (const Case& c : {Case{"te", 4}, Case{"flashinfer", 4}, Case{"fouroversix", 4},
                        Case{"mlx-metal,scale=tensor", 3}}) {
    const std::string text = std::string("nvfp4:contract=") + c.contract;
    for (const Backend* backend : backends_and_oracle()) {
      const std::string name = test::name_of(*backend);
      CAPTURE(text);
      CAPTURE(name);
      const Result r = run(*backend, text, x, 1, 32);
      CHECK(int{r.tile.scales[0]} == 0x5B);
      CHECK(r.codes(0, 2) == Codes{7, c.scale});
    }
  }
}

TEST_CASE("C13 map-to-4 loses everything below amax/16") {
  const double next = std::nextafter(1.0f, 2.0f);
  check_block({"nvfp4:contract=fouroversix,select=static4,scale=none"}, {24, 1, next, 0.99}, 0x4C,
              {6, 0, 0, 0});
}

TEST_CASE("C14 a single level clips at 448 * 6 in every stack") {
  check_block(unit_scale(), {5000, 2500, -1250}, 0x7E, {7, 7, 13});
}

TEST_CASE("C15 the block that holds the tensor maximum can map to 4 only below ceiling 256") {
  std::vector<double> x(16, 0.75);
  x[0] = 1.0;
  Codes six(16, 6), four(16, 5);
  six[0] = 7;
  four[0] = 6;
  for (const char* stack : {"te", "flashinfer"}) {
    for (const char* norm : {"mse", "mae"}) {
      const std::string text =
          std::string("nvfp4:contract=") + stack + ",select=" + norm + ",amax=0x3f800000,e4m3max=";
      for (const Backend* backend : backends_and_oracle()) {
        const std::string name = test::name_of(*backend);
        CAPTURE(text);
        CAPTURE(name);
        const Result top = run(*backend, text + "448", x, 1, 16);
        CHECK(int{top.tile.choices[0]} == 0);
        CHECK(int{top.tile.scales[0]} == 0x7E);
        CHECK(top.codes(0, 16) == six);
        CHECK(top.errors[0] == top.errors[1]);  // the same candidate twice
        const Result low = run(*backend, text + "256", x, 1, 16);
        CHECK(int{low.tile.choices[0]} == 1);
        CHECK(int{low.tile.scales[0]} == 0x7C);
        CHECK(low.codes(0, 16) == four);
        CHECK(low.errors[0] == 0.0f);
      }
    }
  }
}

TEST_CASE("C16 ties choose 6, and the norm decides the other block") {
  struct Case {
    const char* norm;
    int choice, scale;
    float four, six;
  };
  for (const char* stack : {"te", "flashinfer"}) {
    for (const Case& c : {Case{"mae", 0, 0x48, 5, 4}, Case{"mse", 1, 0x4C, 7, 16}}) {
      const std::string text =
          std::string("nvfp4:contract=") + stack + ",scale=none,select=" + c.norm;
      for (const Backend* backend : backends_and_oracle()) {
        const std::string name = test::name_of(*backend);
        CAPTURE(text);
        CAPTURE(name);
        const Result tie = run(*backend, text, {24}, 1, 16);
        CHECK(int{tie.tile.choices[0]} == 0);
        CHECK(int{tie.tile.scales[0]} == 0x48);
        CHECK(tie.errors == std::vector<float>{0.0f, 0.0f});
        const Result d = run(*backend, text, {24, 20, 8, 8, 8}, 1, 16);
        CHECK(int{d.tile.choices[0]} == c.choice);
        CHECK(int{d.tile.scales[0]} == c.scale);
        CHECK(d.errors == std::vector<float>{c.four, c.six});
      }
    }
  }
}

TEST_CASE("C18 through BF16 both values become ties, and only where the recipe says so") {
  const std::vector<double> x = {6, from_bits(0x3E802000), from_bits(0x40202000)};
  check_block({"mxfp4:contract=ocp-floor-rne"}, x, 127, {7, 1, 5});
  check_block({"mxfp4:contract=ocp-floor-rne,narrow=bf16"}, x, 127, {7, 0, 4});
}

TEST_CASE("C19 E4M3 elements under a given scale saturate, and 4.25 is a tie") {
  const std::string text = "fp8:contract=vllm-kv,g=0x3f800000";
  for (const Backend* backend : backends_and_oracle()) {
    const Result r = run(*backend, text, {464, 464.01, 465, 4.25, 4.75, -0.0, 500}, 1, 64);
    CHECK(r.codes(0, 7) == Codes{0x7E, 0x7E, 0x7E, 0x48, 0x4A, 0x80, 0x7E});
    CHECK(r.values[3] == 4.0f);
    CHECK(r.values[4] == 5.0f);
  }
}

TEST_CASE("C23 a ragged row of INT4 and FP8 is the row padded with zeros") {
  std::vector<double> x(80, 0.01);
  std::fill(x.begin() + 40, x.end(), 100.0);
  for (const char* text : {"int4:contract=ct-rtn", "int4:contract=miles-export", "fp8:gran=32",
                           "fp8:gran=32,scale-fmt=ue8m0"}) {
    for (const Backend* backend : backends_and_oracle()) {
      const std::string name = test::name_of(*backend);
      CAPTURE(text);
      CAPTURE(name);
      const Result r = run(*backend, text, x, 2, 40);
      REQUIRE(r.tile.blocks_per_row == 2);
      for (std::size_t row = 0; row < 2; ++row) {
        const std::vector<double> one(x.begin() + static_cast<std::ptrdiff_t>(40 * row),
                                      x.begin() + static_cast<std::ptrdiff_t>(40 * row + 40));
        const Result p = run(*backend, text, one, 1, 64);
        const std::size_t bytes = p.tile.scales.size();
        CHECK(std::equal(p.tile.scales.begin(), p.tile.scales.end(),
                         r.tile.scales.begin() + static_cast<std::ptrdiff_t>(row * bytes)));
        CHECK(p.codes(0, 64) == r.codes(row, 64));
        CHECK(p.codes(0, 1) != Codes{0});
        // Both blocks of a row hold one value, so they have one scale: no block mixes rows.
        CHECK(std::equal(p.tile.scales.begin(),
                         p.tile.scales.begin() + static_cast<std::ptrdiff_t>(bytes / 2),
                         p.tile.scales.begin() + static_cast<std::ptrdiff_t>(bytes / 2)));
      }
    }
  }
}

TEST_CASE("C33 far underflow is a signed zero in FP8 and 0 in INT4, whatever the contract") {
  std::vector<double> x(128, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    // E4M3 reaches 2^-10 of 2^-8 times the maximum, so 2^-32 is far below; 2^-149 is the last.
    const int k = 32 + static_cast<int>(i % 118);
    x[i] = i == 0 ? 1.0 : std::ldexp(i % 2 == 0 ? 1.0 : -1.0, -k);
  }
  int contracts = 0;
  for (const FormatRow& row : all_formats()) {
    if (row.family != Family::kInt4 && row.family != Family::kFp8) continue;
    const bool is_int = row.family == Family::kInt4;
    for (const ContractInfo& c : contracts_of(row.family, row.format.name)) {
      const std::string text = std::string(row.format.name) + ":contract=" + std::string(c.name);
      const int group = is_int ? parse_recipe(text).format.block : 128;
      ++contracts;
      for (const Backend* backend : backends_and_oracle()) {
        const std::string name = test::name_of(*backend);
        CAPTURE(text);
        CAPTURE(name);
        const Result r = run(*backend, text, x, 1, 128);
        int wrong = 0;
        for (std::size_t i = 1; i < static_cast<std::size_t>(group); ++i) {
          const int code = r.tile.codes[i];
          const int zero = is_int || i % 2 == 0 ? 0x00 : 0x80;
          if (code != zero || r.values[i] != 0.0f) ++wrong;
        }
        CHECK(wrong == 0);
        CHECK(r.values[0] != 0.0f);
      }
    }
  }
  CHECK(contracts == 25);  // 6 of INT4, 19 of FP8
}

}  // namespace
}  // namespace fp4scope
