// metrics_test.cc: every figure of a report recomputed from x and the decoded values
// (metrics_reference.h), on tensors of every dtype with ragged rows, NaN, Inf, zeros, subnormals
// and blocks outside 2^-40..2^40. The decoded values come from the exact oracle.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "analysis/analyze.h"
#include "tests/support/paths.h"
#include "tests/unit/metrics_reference.h"

namespace fp4scope {
namespace {

using test::Expected;
using test::make_tensor;
using test::Numbers;
using test::TempDir;
using test::TestTensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const char* const kRecipes[] = {
    "mxfp4:contract=ocp-floor-rne",
    "mxfp4",
    "mxfp4:contract=torchao-ceil",
    "mxfp4:contract=torchao-even",
    "mxfp6e2m3:contract=ocp-floor-rne",
    "mxfp6e3m2:contract=ocp-floor-rne",
    "mxfp8e4m3:contract=ocp-floor-rne",
    "mxfp8e5m2:contract=ocp-floor-rne",
    "nvfp4",
    "nvfp4:scale=row",
    "nvfp4:block=2d",
    "nvfp4:scale=none",
    "nvfp4:scale=given,g=0x44000000",  // g = 512: large blocks saturate
    "nvfp4:amax=0x3f000000",           // amax 0.5: too small, scales saturate
    "hif4",
    "hif4:contract=amct",
    "hif4:contract=a6",
    "hif4:width=3",
    "hif4:width=5",
};

TestTensor bell_tensor(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                       std::uint64_t seed, double scale = 1) {
  Numbers numbers(seed);
  return make_tensor(name, dtype, std::move(shape),
                     [&](std::int64_t) { return scale * numbers.bell(); });
}

// Tensors of finite numbers only.
std::vector<TestTensor> finite_tensors() {
  std::vector<TestTensor> list;
  list.push_back(bell_tensor("bf16 ragged", DType::kBF16, {37, 100}, 1));
  list.push_back(bell_tensor("f32", DType::kF32, {33, 192}, 2, 0.0371));
  list.push_back(bell_tensor("f16", DType::kF16, {9, 130}, 3, 5));
  list.push_back(bell_tensor("f16 subnormal", DType::kF16, {6, 64}, 4, 0x1p-16));
  list.push_back(bell_tensor("f64", DType::kF64, {21, 90}, 5));
  list.push_back(bell_tensor("f32 rank 3", DType::kF32, {3, 5, 72}, 6));
  list.push_back(bell_tensor("f32 rank 1", DType::kF32, {999}, 7));
  {  // Heavy tails: underflow and saturation.
    Numbers numbers(8);
    list.push_back(make_tensor("bf16 heavy tails", DType::kBF16, {16, 512}, [&](std::int64_t) {
      const double b = numbers.bell();
      return b * b * b * b * b;
    }));
  }
  {  // Mostly zeros, some of them -0; one zero row.
    Numbers numbers(9);
    list.push_back(make_tensor("f32 zeros", DType::kF32, {12, 128}, [&](std::int64_t i) {
      const double b = numbers.bell();
      if (i / 128 == 5) return 0.0;
      return b < 1 ? (b < -1 ? -0.0 : 0.0) : b;
    }));
  }
  // A magnitude per row, from below 2^-40 to above 2^40, with both limits themselves as amax.
  static constexpr int kExponents[] = {-120, -80, -60, -45, -42, -41, -40, -39,
                                       -20,  0,   20,  38,  39,  40,  41,  60};
  Numbers numbers(10);
  list.push_back(make_tensor("f32 wide", DType::kF32, {16, 128}, [&](std::int64_t i) {
    const double u = numbers.uniform() * 2 - 1;
    return std::ldexp(i % 16 == 3 ? 1.0 : u, kExponents[i / 128]);
  }));
  list.push_back(make_tensor("f64 wide", DType::kF64, {16, 96}, [&](std::int64_t i) {
    return std::ldexp(numbers.bell(), kExponents[i / 96] / 2);
  }));
  list.push_back(make_tensor("f32 subnormal", DType::kF32, {4, 64},
                             [&](std::int64_t) { return std::ldexp(numbers.bell(), -134); }));
  return list;
}

std::vector<TestTensor> nonfinite_tensors() {
  std::vector<TestTensor> list;
  Numbers numbers(11);
  const auto with_specials = [&](DType dtype, const char* name) {
    return make_tensor(name, dtype, {10, 192}, [&](std::int64_t i) {
      const std::int64_t row = i / 192, col = i % 192;
      if (row == 1 && col == 7) return kNan;
      if (row == 2 && col == 70) return -kInfinity;
      if (row == 3 && col >= 64 && col < 128) return kNan;           // whole blocks
      if (row == 4 && col < 64) return col == 9 ? kInfinity : 0.0;   // zeros beside Inf
      if (row == 5 && col >= 128) return col % 2 == 0 ? kNan : 0.5;  // half NaN
      return numbers.bell();
    });
  };
  list.push_back(with_specials(DType::kF32, "f32 nonfinite"));
  list.push_back(with_specials(DType::kBF16, "bf16 nonfinite"));
  list.push_back(with_specials(DType::kF16, "f16 nonfinite"));
  list.push_back(with_specials(DType::kF64, "f64 nonfinite"));
  return list;
}

Report run(const TempDir& dir, const std::vector<TestTensor>& tensors, AnalyzeOptions options,
           const std::vector<std::string>& recipes) {
  const std::string path = dir.file("tensors.safetensors");
  test::write_tensors(path, tensors);
  for (const std::string& r : recipes) options.recipes.push_back(parse_recipe(r));
  if (options.threads == 0) options.threads = 2;
  return analyze({path}, options);
}

void check_tensors(const std::vector<TestTensor>& tensors, bool full) {
  const TempDir dir;
  AnalyzeOptions options;
  options.full_percentiles = full;
  options.map_size = 5;
  const std::vector<std::string> recipes(std::begin(kRecipes), std::end(kRecipes));
  const Report report = run(dir, tensors, options, recipes);
  CHECK(report.errors.empty());
  REQUIRE(report.results.size() == tensors.size() * recipes.size());
  std::int64_t saturated = 0, underflow = 0;
  for (std::size_t i = 0; i < report.results.size(); ++i) {
    const Row& row = report.results[i];
    const TestTensor& tensor = test::tensor_named(tensors, row.tensor);
    const std::string& recipe = recipes[i % recipes.size()];
    REQUIRE(row.recipe == recipe);
    CHECK(row.shape == tensor.shape);
    const Expected want = test::brute_force(parse_recipe(recipe), tensor, oracle_backend(), full);
    const auto lines = test::differences(row, want);
    CHECK_MESSAGE(lines.empty(), tensor.name, " | ", recipe, test::join(lines));
    const auto map_lines = test::map_differences(row.maps, want);
    CHECK_MESSAGE(map_lines.empty(), tensor.name, " | ", recipe, test::join(map_lines));
    CHECK(row.maps.grid_rows <= 5);
    CHECK(row.maps.grid_cols <= 5);
    saturated += want.counts.at("saturated");
    underflow += want.counts.at("underflow");
  }
  // The comparison means something only when the counted things occur.
  CHECK(saturated > 1000);
  CHECK(underflow > 1000);
  std::printf("%zu rows, %lld underflows, %lld saturated\n", report.results.size(),
              static_cast<long long>(underflow), static_cast<long long>(saturated));
}

TEST_CASE("every figure of a row follows from x and the decoded values: finite tensors") {
  check_tensors(finite_tensors(), false);
}

TEST_CASE("every figure of a row follows from x and the decoded values: NaN and Inf inside") {
  check_tensors(nonfinite_tensors(), false);
}

TEST_CASE("percentiles of all elements are those of the whole tensor") {
  std::vector<TestTensor> tensors = finite_tensors();
  tensors.erase(tensors.begin() + 1, tensors.end() - 3);
  // More than one strip of 64 blocks even for HiF4, so that a sample would differ.
  tensors.push_back(bell_tensor("several strips", DType::kF32, {36, 512}, 12));
  check_tensors(tensors, true);
}

TEST_CASE("the report says which elements the percentiles come from") {
  const TempDir dir;
  const std::vector<TestTensor> tensors = {bell_tensor("x", DType::kF32, {128, 512}, 1)};
  AnalyzeOptions options;
  const Report sampled = run(dir, tensors, options, {"nvfp4"});
  options.full_percentiles = true;
  const Report full = run(dir, tensors, options, {"nvfp4"});
  CHECK(sampled.results[0].percentiles.sample.find("every 16th strip of 64 blocks") == 0);
  CHECK(full.results[0].percentiles.sample == "all elements");
  CHECK(sampled.results[0].figures == full.results[0].figures);
}

TEST_CASE("FP64 is cast directly by MX beyond the binary32 range, and its errors are FP64") {
  // 3 * 2^-140 and 2^-150 are far below, 2^200 far above binary32; E8M0 ends at 2^127.
  const std::vector<TestTensor> tensors = {
      make_tensor("small", DType::kF64, {1, 32},
                  [](std::int64_t i) { return i == 0   ? 3 * 0x1p-140
                                              : i == 1 ? 0x1p-150
                                                       : 0; }),
      make_tensor("huge", DType::kF64, {1, 64}, [](std::int64_t i) {
        return i < 32 ? (i == 0 ? 0x1p200 : 1.0) : 0.25 + 0x1p-50;
      })};
  const TempDir dir;
  const Report report = run(dir, tensors, {}, {"mxfp4:contract=ocp-floor-rne"});
  REQUIRE(report.results.size() == 2);
  for (const Row& row : report.results) {
    const Expected want = test::brute_force(
        parse_recipe(row.recipe), test::tensor_named(tensors, row.tensor), oracle_backend());
    const auto lines = test::differences(row, want);
    CHECK_MESSAGE(lines.empty(), row.tensor, test::join(lines));
  }
  // By hand: scale 2^-127 = byte 0, its quarter 2^-129 is the tie with zero, so both vanish.
  const Row& small = report.results[0];
  CHECK(std::get<std::int64_t>(small.figure("underflow")) == 2);
  CHECK(std::get<std::int64_t>(small.figure("underflow_code")) == 2);
  CHECK(std::get<std::int64_t>(small.figure("scale_min_blocks")) == 1);
  CHECK(std::get<double>(small.figure("max_abs_err")) == 3 * 0x1p-140);
  // The block with 2^200 has no E8M0 scale: byte 255, all 32 values NaN.
  const Row& huge = report.results[1];
  CHECK(std::get<std::int64_t>(huge.figure("nonfinite_in")) == 0);
  CHECK(std::get<std::int64_t>(huge.figure("nonfinite_out")) == 32);
  CHECK(std::get<std::int64_t>(huge.figure("scale_nan_blocks")) == 1);
  CHECK(std::get<double>(huge.figure("amax")) == 0x1p200);
  // 0.25 + 2^-50 under scale 2^-4 is 4 + 2^-46 -> 4: the error is 2^-50 exactly.
  CHECK(std::get<double>(huge.figure("max_abs_err")) == 0x1p-50);
  CHECK(std::get<double>(huge.figure("bias")) == -0x1p-50);
  CHECK(std::get<double>(huge.figure("mse")) == 0x1p-100);
}

TEST_CASE("a block at 2^40 or 2^-40 sums in binary32, the next ones outside in binary64") {
  // 1 + 2^-12 squared needs 25 bits: binary32 drops 2^-24, binary64 keeps it. Power = mean(x^2).
  struct Case {
    const char* name;
    double amax;
    bool binary64;
  };
  const Case cases[] = {
      {"2^40", 0x1p40, false},
      {"2^-40", 0x1p-40, false},
      {"next above 2^40", 0x1.000002p40, true},
      {"next below 2^-40", 0x1.fffffep-41, true},
  };
  for (const Case& c : cases) {
    const double small = std::ldexp(1 + 0x1p-12, std::ilogb(c.amax) - 1);
    const TestTensor t = make_tensor("t", DType::kF32, {1, 32}, [&](std::int64_t i) {
      return i == 0 ? c.amax : i == 1 ? small : 0;
    });
    const TempDir dir;
    const Report report = run(dir, {t}, {}, {"mxfp4:contract=ocp-floor-rne"});
    const double mse = std::get<double>(report.results[0].figure("mse"));
    const double nmse = std::get<double>(report.results[0].figure("nmse"));
    // Only x[1] (and x[0] where it is no power of two) has an error.
    const Expected want =
        test::brute_force(parse_recipe("mxfp4:contract=ocp-floor-rne"), t, oracle_backend());
    double exact = c.amax * c.amax + small * small;  // rounded once to binary64
    const float rounded = static_cast<float>(c.amax * c.amax) + static_cast<float>(small * small);
    CAPTURE(c.name);
    CHECK((want.sums.xx == exact) == c.binary64);
    CHECK((want.sums.xx == static_cast<double>(rounded)) == !c.binary64);
    CHECK(nmse == mse * 32 / want.sums.xx);
  }
}

TEST_CASE("aggregates merge the sums of all tensors, and of the groups of an expression") {
  const TempDir dir;
  std::vector<TestTensor> tensors;
  const char* names[] = {"layers.0.q", "layers.0.k", "layers.1.q", "head"};
  for (int i = 0; i < 4; ++i) {
    tensors.push_back(bell_tensor(names[i], i % 2 == 0 ? DType::kBF16 : DType::kF32, {11 + i, 80},
                                  static_cast<std::uint64_t>(20 + i), 1 << i));
  }
  AnalyzeOptions options;
  options.group_by = {R"(layers\.(\d+)\.)"};
  const std::vector<std::string> recipes = {"nvfp4", "hif4", "mxfp4:contract=ocp-floor-rne"};
  const Report report = run(dir, tensors, options, recipes);
  CHECK(report.results.size() == 12);
  struct Group {
    std::string name;
    std::vector<std::size_t> members;
  };
  const Group groups[] = {{"", {0, 1, 2, 3}}, {"0", {0, 1}}, {"1", {2}}};
  for (const std::string& recipe : recipes) {
    for (const Group& g : groups) {
      Expected want;
      for (const std::size_t i : g.members) {
        want.add(test::brute_force(parse_recipe(recipe), tensors[i], oracle_backend()));
      }
      const Row* found = nullptr;
      for (const Row& row : report.aggregates) {
        if (row.recipe == recipe && row.group == g.name) {
          CHECK_MESSAGE(found == nullptr, "two aggregates of group '", g.name, "'");
          found = &row;
        }
      }
      REQUIRE_MESSAGE(found != nullptr, recipe, " group '", g.name, "'");
      CHECK(found->tensors == static_cast<std::int64_t>(g.members.size()));
      const auto lines = test::differences(*found, want);
      CHECK_MESSAGE(lines.empty(), recipe, " group '", g.name, "'", test::join(lines));
    }
  }
  // Without --group-by: one aggregate per recipe.
  CHECK(run(dir, tensors, {}, recipes).aggregates.size() == recipes.size());
}

}  // namespace
}  // namespace fp4scope
