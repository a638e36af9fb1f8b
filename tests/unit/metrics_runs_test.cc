// metrics_runs_test.cc: what may not change a figure (threads, backend, memory, companions, axis
// against transposition), tensors of more than one tile, degenerate tensors, and what is skipped,
// refused or selected.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "analysis/analyze.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"
#include "tests/unit/metrics_reference.h"

namespace fp4scope {
namespace {

using test::Expected;
using test::make_tensor;
using test::Numbers;
using test::TempDir;
using test::TestTensor;

const char* const kAll[] = {"mxfp4:contract=ocp-floor-rne",
                            "mxfp8e4m3",
                            "nvfp4",
                            "nvfp4:scale=row",
                            "nvfp4:block=2d",
                            "hif4",
                            "hif4:contract=a6"};

TestTensor bell_tensor(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                       std::uint64_t seed) {
  Numbers numbers(seed);
  return make_tensor(name, dtype, std::move(shape), [&](std::int64_t) { return numbers.bell(); });
}

AnalyzeOptions options_for(const std::vector<std::string>& recipes, int threads = 2) {
  AnalyzeOptions options;
  options.threads = threads;
  for (const std::string& r : recipes) options.recipes.push_back(parse_recipe(r));
  return options;
}
std::vector<std::string> all_recipes() {
  return {std::begin(kAll), std::end(kAll)};
}

const Backend& reference() {
  return *cpu_backends().back();
}

void check_same(const Report& a, const Report& b, const std::string& what) {
  REQUIRE(a.results.size() == b.results.size());
  REQUIRE(a.aggregates.size() == b.aggregates.size());
  for (std::size_t i = 0; i < a.results.size(); ++i) {
    const auto lines = test::row_differences(a.results[i], b.results[i]);
    CHECK_MESSAGE(lines.empty(), what, " | ", a.results[i].recipe, test::join(lines));
  }
  for (std::size_t i = 0; i < a.aggregates.size(); ++i) {
    const auto lines = test::row_differences(a.aggregates[i], b.aggregates[i]);
    CHECK_MESSAGE(lines.empty(), what, " | aggregate | ", a.aggregates[i].recipe,
                  test::join(lines));
  }
}

void check_large(const TestTensor& tensor) {
  const TempDir dir;
  const std::string path = dir.file("large.safetensors");
  test::write_tensors(path, {tensor});
  AnalyzeOptions options = options_for(all_recipes());
  options.map_size = 7;
  const Report first = analyze({path}, options);
  REQUIRE(first.errors.empty());
  REQUIRE(first.results.size() == std::size(kAll));
  for (const Row& row : first.results) {
    const Expected want = test::brute_force(parse_recipe(row.recipe), tensor, reference());
    const auto lines = test::differences(row, want);
    CHECK_MESSAGE(lines.empty(), row.recipe, test::join(lines));
    const auto map_lines = test::map_differences(row.maps, want);
    CHECK_MESSAGE(map_lines.empty(), row.recipe, test::join(map_lines));
  }
  struct Variant {
    int threads;
    std::int64_t memory;
  };
  for (const Variant v : {Variant{1, std::int64_t{1} << 20}, Variant{3, std::int64_t{1} << 33},
                          Variant{7, std::int64_t{1} << 30}}) {
    options.threads = v.threads;
    options.memory_bytes = v.memory;
    check_same(first, analyze({path}, options),
               std::to_string(v.threads) + " threads, memory " + std::to_string(v.memory));
  }
  options.memory_bytes = std::int64_t{1} << 30;
  options.threads = 3;
  for (const Backend* backend : cpu_backends()) {
    if (!backend->available().ok) continue;
    options.backend = backend->name();
    const Report report = analyze({path}, options);
    check_same(first, report, std::string(backend->name()));
    for (const Row& row : report.results) CHECK(row.backend == backend->name());
  }
  // Alone in the run, and in the reverse order of companions.
  options.backend = "auto";
  for (std::size_t i = 0; i < std::size(kAll); ++i) {
    AnalyzeOptions alone = options_for({kAll[i]});
    alone.map_size = 7;
    const Report report = analyze({path}, alone);
    REQUIRE(report.results.size() == 1);
    const auto lines = test::row_differences(report.results[0], first.results[i]);
    CHECK_MESSAGE(lines.empty(), kAll[i], " alone", test::join(lines));
  }
  std::vector<std::string> reversed(std::rbegin(kAll), std::rend(kAll));
  AnalyzeOptions backwards = options_for(reversed);
  backwards.map_size = 7;
  const Report report = analyze({path}, backwards);
  for (std::size_t i = 0; i < std::size(kAll); ++i) {
    const auto lines =
        test::row_differences(report.results[std::size(kAll) - 1 - i], first.results[i]);
    CHECK_MESSAGE(lines.empty(), kAll[i], " in reverse order", test::join(lines));
  }
}

TEST_CASE("a tensor of several tiles has the figures of one piece, however it is run") {
  check_large(bell_tensor("tall", DType::kBF16, {352, 3000}, 31));
}
TEST_CASE("one row of more than a tile has the figures of one piece, however it is run") {
  check_large(bell_tensor("long row", DType::kBF16, {1, 1100000}, 32));
}
TEST_CASE("rows whose bands of 64 exceed a tile have the figures of one piece") {
  check_large(bell_tensor("wide", DType::kF32, {65, 16500}, 33));
}

TEST_CASE("the oracle gives the report of the other backends") {
  const TempDir dir;
  const std::string path = dir.file("x.safetensors");
  test::write_tensors(path, {bell_tensor("x", DType::kBF16, {18, 200}, 34),
                             bell_tensor("y", DType::kF64, {5, 70}, 35)});
  AnalyzeOptions options = options_for(all_recipes());
  options.map_size = 4;
  const Report fast = analyze({path}, options);
  options.backend = "oracle";
  const Report exact = analyze({path}, options);
  check_same(fast, exact, "oracle");
  for (const Row& row : exact.results) CHECK(row.backend == "oracle");
}

TEST_CASE("axis 0 of a matrix gives the figures of its transpose") {
  const TempDir dir;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    const TestTensor t = bell_tensor("t", dtype, {77, 45}, 36);
    const std::string path = dir.file("t.safetensors"), turned = dir.file("turned.safetensors");
    test::write_tensors(path, {t});
    test::write_tensors(turned, {t.transposed()});
    for (const int axis : {0, -2}) {
      AnalyzeOptions options = options_for(all_recipes());
      options.axis = axis;
      options.map_size = 6;
      const Report a = analyze({path}, options);
      options.axis = -1;
      const Report b = analyze({turned}, options);
      REQUIRE(a.errors.empty());
      REQUIRE(a.results.size() == std::size(kAll));
      for (std::size_t i = 0; i < std::size(kAll); ++i) {
        auto lines = test::row_differences(a.results[i], b.results[i]);
        std::erase(lines, "shape differs");  // the report names the stored shape
        std::erase(lines, "source_hash differs");
        CHECK_MESSAGE(lines.empty(), kAll[i], " axis ", axis, test::join(lines));
      }
    }
  }
}

TEST_CASE("a middle axis of rank 3 is moved to the end") {
  const TestTensor t = bell_tensor("t", DType::kF32, {3, 40, 5}, 37);
  TestTensor moved = t;
  moved.shape = {3, 5, 40};
  for (std::size_t a = 0; a < 3; ++a) {
    for (std::size_t b = 0; b < 40; ++b) {
      for (std::size_t c = 0; c < 5; ++c) {
        moved.x[(a * 5 + c) * 40 + b] = t.x[(a * 40 + b) * 5 + c];
      }
    }
  }
  const TempDir dir;
  const std::string path = dir.file("t.safetensors");
  test::write_tensors(path, {t});
  AnalyzeOptions options = options_for(all_recipes());
  options.axis = 1;
  const Report report = analyze({path}, options);
  REQUIRE(report.results.size() == std::size(kAll));
  for (const Row& row : report.results) {
    const auto lines = test::differences(
        row, test::brute_force(parse_recipe(row.recipe), moved, oracle_backend()));
    CHECK_MESSAGE(lines.empty(), row.recipe, test::join(lines));
  }
}

TEST_CASE("an axis that a tensor does not have is an error of that tensor only") {
  const TempDir dir;
  const std::string path = dir.file("t.safetensors");
  test::write_tensors(path, {bell_tensor("vector", DType::kF32, {64}, 38),
                             bell_tensor("matrix", DType::kF32, {4, 64}, 39)});
  AnalyzeOptions options = options_for({"nvfp4"});
  options.axis = 1;
  const Report report = analyze({path}, options);
  REQUIRE(report.results.size() == 1);
  CHECK(report.results[0].tensor == "matrix");
  REQUIRE(report.errors.size() == 1);
  CHECK(report.errors[0].tensor == "vector");
  CHECK(report.errors[0].exit_code != 0);
}

// --- degenerate tensors ---

bool is_null(const Row& row, const char* key) {
  return std::holds_alternative<std::monostate>(row.figure(key));
}
std::int64_t count(const Row& row, const char* key) {
  return std::get<std::int64_t>(row.figure(key));
}
double number(const Row& row, const char* key) {
  return std::get<double>(row.figure(key));
}

TEST_CASE("empty, 0-d, one-element, zero, NaN and exact tensors have the documented figures") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<TestTensor> tensors = {
      make_tensor("empty", DType::kF32, {0, 32}, [](std::int64_t) { return 1.0; }),
      make_tensor("no columns", DType::kF32, {7, 0}, [](std::int64_t) { return 1.0; }),
      make_tensor("0-d", DType::kF32, {}, [](std::int64_t) { return 1.5; }),
      make_tensor("one", DType::kF32, {1, 1}, [](std::int64_t) { return -3.0; }),
      make_tensor("zero", DType::kBF16, {3, 80}, [](std::int64_t) { return 0.0; }),
      make_tensor("nan", DType::kF32, {2, 64}, [=](std::int64_t) { return nan; }),
      // 6, 0, -6, 0, ... is exact in MX and NVFP4 (amax * 448 / 448), 0 and 1.75 in HiF4 too.
      make_tensor("exact", DType::kF32, {2, 64},
                  [](std::int64_t i) { return i % 2 == 0   ? 0.0
                                              : i % 4 == 1 ? 6.0
                                                           : -6.0; }),
  };
  const TempDir dir;
  const std::string path = dir.file("t.safetensors");
  test::write_tensors(path, tensors);
  const std::vector<std::string> recipes = {"mxfp4:contract=ocp-floor-rne", "nvfp4", "hif4"};
  const Report report = analyze({path}, options_for(recipes));
  CHECK(report.errors.empty());
  REQUIRE(report.results.size() == tensors.size() * recipes.size());
  for (std::size_t i = 0; i < report.results.size(); ++i) {
    const Row& row = report.results[i];
    const TestTensor& t = test::tensor_named(tensors, row.tensor);
    CAPTURE(t.name);
    CAPTURE(row.recipe);
    const auto lines =
        test::differences(row, test::brute_force(parse_recipe(row.recipe), t, oracle_backend()));
    CHECK_MESSAGE(lines.empty(), test::join(lines));
    // Once more by hand, from the words of the documents.
    if (t.name == "empty" || t.name == "no columns") {
      CHECK(count(row, "elements") == 0);
      for (const Column& c : columns()) {
        if (c.kind != FigureKind::kCount) CHECK_MESSAGE(is_null(row, c.key.data()), c.key);
      }
    }
    if (t.name == "0-d" || t.name == "one") CHECK(count(row, "elements") == 1);
    if (t.name == "zero") {
      CHECK(number(row, "mse") == 0);
      CHECK(std::get<bool>(row.figure("exact")));
      CHECK(count(row, "underflow") == 0);
      CHECK(count(row, "zeros") == 240);
      for (const char* key : {"sqnr_db", "nmse", "underflow_share", "effective_bits", "cosine"})
        CHECK_MESSAGE(is_null(row, key), key);
      CHECK(number(row, "underflow_share_all") == 0);
      CHECK(count(row, "zero_blocks") == count(row, "blocks"));
    }
    if (t.name == "nan") {
      CHECK(count(row, "nonfinite_in") == 128);
      for (const char* key : {"mse", "nmse", "sqnr_db", "mae", "bias", "cosine", "max_abs_err"})
        CHECK_MESSAGE(is_null(row, key), key);
    }
    if (t.name == "exact" && row.recipe != "hif4") {
      CHECK(std::get<bool>(row.figure("exact")));
      CHECK(number(row, "mse") == 0);
      CHECK(number(row, "cosine") == doctest::Approx(1));
      CHECK(is_null(row, "sqnr_db"));
      CHECK(is_null(row, "effective_bits"));
    }
  }
}

// --- selection and errors ---

std::vector<std::string> names_of(const Report& report) {
  std::vector<std::string> names;
  for (const Row& row : report.results) names.push_back(row.tensor);
  return names;
}

TEST_CASE("tensors are chosen by include, exclude and FILE:TENSOR") {
  const TempDir dir;
  const std::string path = dir.file("t.safetensors");
  std::vector<TestTensor> tensors;
  for (const char* name : {"a.weight", "a.bias", "b.weight", "b.bias"}) {
    tensors.push_back(bell_tensor(name, DType::kF32, {2, 32}, 40));
  }
  test::write_tensors(path, tensors);
  struct Case {
    std::string operand;
    std::vector<std::string> include, exclude, want;
  };
  const Case cases[] = {
      {path, {}, {}, {"a.weight", "a.bias", "b.weight", "b.bias"}},
      {path, {"weight"}, {}, {"a.weight", "b.weight"}},  // search semantics
      {path, {"^a", "^b.*s$"}, {}, {"a.weight", "a.bias", "b.bias"}},
      {path, {}, {"bias$"}, {"a.weight", "b.weight"}},
      {path, {"^a"}, {"bias"}, {"a.weight"}},
      {path + ":b.bias", {}, {}, {"b.bias"}},
  };
  for (const Case& c : cases) {
    AnalyzeOptions options = options_for({"nvfp4"});
    options.filter.include = c.include;
    options.filter.exclude = c.exclude;
    const Report report = analyze({c.operand}, options);
    CHECK(report.errors.empty());
    auto got = names_of(report), want = c.want;
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    CHECK_MESSAGE(got == want, c.operand);
  }
  AnalyzeOptions bad = options_for({"nvfp4"});
  bad.filter.include = {"("};
  CHECK_THROWS_AS(analyze({path}, bad), Error);
  try {
    analyze({path}, bad);
  } catch (const Error& error) {
    CHECK(error.exit_code() == 2);
  }
}

TEST_CASE("a bad file or an unknown tensor is recorded and the rest goes on") {
  const TempDir dir;
  const std::string path = dir.file("good.safetensors"), broken = dir.file("broken.safetensors");
  test::write_tensors(path, {bell_tensor("x", DType::kF32, {2, 32}, 41)});
  test::write_file(broken, test::read_file(path).substr(0, 60));
  const Report report =
      analyze({broken, path + ":y", path, dir.file("absent.npy")}, options_for({"hif4"}));
  CHECK(names_of(report) == std::vector<std::string>{"x"});
  REQUIRE(report.errors.size() == 3);
  for (const ErrorRecord& error : report.errors) {
    CHECK(error.exit_code == 3);
    CHECK_FALSE(error.message.empty());
  }
  CHECK(report.errors[0].message.find("broken.safetensors") != std::string::npos);
  CHECK(report.errors[1].message.find("y") != std::string::npos);
  CHECK(report.errors[2].message.find("absent.npy") != std::string::npos);
}

TEST_CASE("tensors of integers are skipped with a reason, and an error when named") {
  const TempDir dir;
  const std::string path = dir.file("t.safetensors");
  const std::string header = R"({"codes":{"dtype":"U8","shape":[2,4],"data_offsets":[0,8]},)"
                             R"("x":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]}})";
  test::write_file(path, test::safetensors_bytes(header, std::string(16, '\0')));
  const Report report = analyze({path}, options_for({"nvfp4"}));
  CHECK(names_of(report) == std::vector<std::string>{"x"});
  CHECK(report.errors.empty());
  REQUIRE(report.skipped.size() == 1);
  CHECK(report.skipped[0].tensor == "codes");
  CHECK_FALSE(report.skipped[0].message.empty());

  const Report named = analyze({path + ":codes"}, options_for({"nvfp4"}));
  CHECK(named.results.empty());
  REQUIRE(named.errors.size() == 1);
  CHECK(named.errors[0].exit_code == 4);  // architecture.md section 11: dtype
}

TEST_CASE("a recipe that refuses a tensor leaves the other recipes and tensors alone") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const TempDir dir;
  const std::string path = dir.file("t.safetensors");
  test::write_tensors(path, {bell_tensor("ragged", DType::kF32, {2, 40}, 42),
                             bell_tensor("even", DType::kF32, {2, 64}, 43),
                             make_tensor("nan", DType::kF32, {2, 64},
                                         [=](std::int64_t i) { return i == 70 ? nan : 1.0; })});
  struct Case {
    const char *recipe, *refused;
  };
  const Case cases[] = {{"mxfp4:ragged=error", "ragged"},
                        {"nvfp4:ragged=error", "ragged"},
                        {"hif4:ragged=error", "ragged"},
                        {"hif4:nonfinite=error", "nan"}};
  for (const Case& c : cases) {
    CAPTURE(c.recipe);
    for (const int threads : {1, 3}) {
      const Report report = analyze({path}, options_for({"hif4", c.recipe, "mxfp4"}, threads));
      REQUIRE(report.errors.size() == 1);
      CHECK(report.errors[0].tensor == c.refused);
      CHECK(report.errors[0].exit_code == 3);
      CHECK(report.results.size() == 8);
      for (const Row& row : report.results)
        CHECK_FALSE((row.recipe == c.recipe && row.tensor == c.refused));
      // The others have the figures of a run without the refusing recipe.
      const Report plain = analyze({path}, options_for({"hif4", "mxfp4"}));
      std::size_t next = 0;
      for (const Row& row : report.results) {
        if (row.recipe == c.recipe) continue;
        REQUIRE(next < plain.results.size());
        const auto lines = test::row_differences(row, plain.results[next++]);
        CHECK_MESSAGE(lines.empty(), row.recipe, test::join(lines));
      }
      CHECK(next == plain.results.size());
    }
  }
}

TEST_CASE("a set stop flag ends the run without an error and marks the report") {
  const TempDir dir;
  const std::string path = dir.file("t.safetensors");
  test::write_tensors(path, {bell_tensor("x", DType::kF32, {64, 64}, 44)});
  std::atomic<bool> stop = true;
  AnalyzeOptions options = options_for({"nvfp4"});
  options.stop = &stop;
  const Report report = analyze({path}, options);
  CHECK(report.interrupted);
  CHECK(report.results.empty());
  CHECK(report.errors.empty());
  stop = false;
  CHECK_FALSE(analyze({path}, options).interrupted);
  CHECK(analyze({path}, options).results.size() == 1);
}

TEST_CASE("progress grows to the total and the source hash follows the bytes") {
  const TempDir dir;
  const std::string path = dir.file("t.safetensors");
  TestTensor t = bell_tensor("x", DType::kF32, {300, 4000}, 45);
  test::write_tensors(path, {t});
  AnalyzeOptions options = options_for({"nvfp4", "nvfp4:block=2d"});
  std::vector<std::int64_t> seen;
  std::int64_t total = 0;
  options.progress = [&](std::int64_t done, std::int64_t all) {
    seen.push_back(done);
    total = all;
  };
  const Report before = analyze({path}, options);
  REQUIRE_FALSE(seen.empty());
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK(seen.back() == total);
  // The hash uses one grid for all recipes and sees every element.
  CHECK(before.results[0].source_hash == before.results[1].source_hash);
  for (const std::size_t i : {std::size_t{0}, t.x.size() - 1}) {
    TestTensor changed = t;
    changed.x[i] += 1;
    test::write_tensors(path, {changed});
    CHECK(analyze({path}, options).results[0].source_hash != before.results[0].source_hash);
  }
}

TEST_CASE("a backend that does not exist is refused by name") {
  const TempDir dir;
  const std::string path = dir.file("t.safetensors");
  test::write_tensors(path, {bell_tensor("x", DType::kF32, {2, 32}, 46)});
  AnalyzeOptions options = options_for({"nvfp4"});
  options.backend = "no-such-backend";
  CHECK_THROWS_AS(analyze({path}, options), Error);
}

}  // namespace
}  // namespace fp4scope
