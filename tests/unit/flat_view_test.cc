// flat_view_test.cc: a tensor as one row (analysis/io/flat_view.h), and analyze with ragged=flat:
// the example of spec/layouts.md section 3, tensors of several tiles, other axes, refusals.
#include "analysis/io/flat_view.h"

#include <doctest/doctest.h>

#include <numeric>

#include "analysis/analyze.h"
#include "analysis/io/sinks.h"
#include "sim/error.h"
#include "tests/support/paths.h"

namespace fp4scope {
namespace {

using test::TempDir;

void write_tensor(const std::string& path, const std::vector<std::int64_t>& shape,
                  const std::vector<float>& values) {
  SafetensorsWriter writer(path, {{"x", DType::kF32, shape}}, {});
  writer.write(0, 0, values.data(), values.size() * sizeof(float));
  writer.commit();
}
Report run(const std::string& path, const std::vector<std::string>& recipes, int threads = 1,
           int axis = -1) {
  AnalyzeOptions options;
  for (const std::string& r : recipes) options.recipes.push_back(parse_recipe(r));
  options.threads = threads;
  options.axis = axis;
  return analyze({path}, options);
}
bool has_note(const Row& row, const std::string& part) {
  for (const std::string& note : row.notes)
    if (note.find(part) != std::string::npos) return true;
  return false;
}
// Number of blocks with a scale byte.
std::int64_t blocks_with(const Row& row, std::size_t byte) {
  return byte < row.scale_histogram.size() ? row.scale_histogram[byte] : 0;
}
std::int64_t count(const Row& row, std::string_view key) {
  return std::get<std::int64_t>(row.figure(key));
}
const std::string kPad = "mxfp4:contract=ocp-floor-rne";
const std::string kFlat = kPad + ",ragged=flat";

TEST_CASE("a view reads any run of elements across row ends") {
  TempDir dir;
  const std::string path = dir.file("v.safetensors");
  std::vector<float> values(2 * 3 * 5);
  std::iota(values.begin(), values.end(), 1.0f);
  write_tensor(path, {2, 3, 5}, values);
  const auto source = open_source(path);
  const FlatView view(*source, source->tensors()[0]);
  REQUIRE(view.tensors().size() == 1);
  const TensorInfo& flat = view.tensors()[0];
  CHECK(flat.shape == std::vector<std::int64_t>{30});
  CHECK(flat.rows() == 1);
  CHECK(flat.cols() == 30);
  CHECK(flat.name == "x");
  CHECK(view.info().path == source->info().path);
  for (std::int64_t first = 0; first < 30; ++first) {
    for (std::int64_t n = 1; first + n <= 30; ++n) {
      const std::vector<float> want(values.begin() + first, values.begin() + first + n);
      std::vector<float> got(static_cast<std::size_t>(n)), raw(static_cast<std::size_t>(n));
      view.read_f32(flat, 0, 1, first, n, got.data());
      view.read_raw(flat, 0, 1, first, n, raw.data());
      CHECK(got == want);
      CHECK(raw == want);
    }
  }
}

TEST_CASE("analyze with ragged=flat: the example of the specification") {
  TempDir dir;
  const std::string path = dir.file("e.safetensors");
  std::vector<float> x(96);
  for (std::size_t i = 32; i < 48; ++i) x[i] = 0.01f;
  for (std::size_t i = 48; i < 64; ++i) x[i] = 100.0f;
  write_tensor(path, {2, 48}, x);
  // Results keep the order of the command line.
  const Report report = run(path, {kFlat, kPad, "mxfp4:ragged=flat"});
  CHECK(report.errors.empty());
  REQUIRE(report.results.size() == 3);
  const Row& flat = report.results[0];
  const Row& pad = report.results[1];
  CHECK(flat.recipe == kFlat);
  CHECK(pad.recipe == kPad);
  CHECK(report.results[2].recipe == "mxfp4:ragged=flat");

  CHECK(count(flat, "blocks") == 3);
  CHECK(blocks_with(flat, 131) == 1);
  CHECK(blocks_with(flat, 118) == 0);
  CHECK(count(flat, "underflow") == 16);
  CHECK(count(pad, "blocks") == 4);
  CHECK(blocks_with(pad, 131) == 1);
  CHECK(blocks_with(pad, 118) == 1);
  CHECK(count(pad, "underflow") == 0);
  for (const Row& row : report.results) {
    CHECK(count(row, "elements") == 96);
    CHECK(row.shape == std::vector<std::int64_t>{2, 48});
    CHECK(row.source_hash == pad.source_hash);
  }
  CHECK(has_note(flat, "blocks run over the flattened tensor and cross row ends"));
  CHECK(!has_note(pad, "flattened"));
}

TEST_CASE("flat figures are those of the same numbers as one row, for tiles, threads and axes") {
  // More than one tile of 2^20 elements, rows of 1001, and the same numbers along another axis.
  constexpr std::int64_t kRows = 2200, kCols = 1001;
  std::vector<float> x(kRows * kCols), turned(x.size());
  std::uint32_t state = 12345;
  for (std::size_t i = 0; i < x.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    x[i] = static_cast<float>(static_cast<std::int32_t>(state >> 8) - (1 << 23)) / 1048576.0f;
  }
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kCols; ++c)
      turned[static_cast<std::size_t>(c * kRows + r)] = x[static_cast<std::size_t>(r * kCols + c)];
  }
  TempDir dir;
  const std::string rows = dir.file("rows.safetensors"), one = dir.file("one.safetensors"),
                    other = dir.file("axis.safetensors");
  write_tensor(rows, {kRows, kCols}, x);
  write_tensor(one, {1, kRows * kCols}, x);
  write_tensor(other, {kCols, kRows}, turned);
  const Report want = run(one, {kPad});
  REQUIRE(want.results.size() == 1);
  for (const Report& report :
       {run(rows, {kFlat}), run(rows, {kFlat}, 2), run(other, {kFlat}, 1, 0)}) {
    REQUIRE(report.results.size() == 1);
    const Row& row = report.results[0];
    CHECK(row.scale_histogram == want.results[0].scale_histogram);
    CHECK(row.code_histogram == want.results[0].code_histogram);
    CHECK(row.figures == want.results[0].figures);
    CHECK(row.amax_exponents == want.results[0].amax_exponents);
  }
  const Report padded = run(rows, {kPad});
  REQUIRE(padded.results.size() == 1);
  CHECK(padded.results[0].code_histogram != want.results[0].code_histogram);
}

TEST_CASE("rows of whole blocks are not flattened, and other files are refused") {
  TempDir dir;
  const std::string whole = dir.file("w.safetensors"), ragged = dir.file("r.safetensors");
  std::vector<float> x(192, 1.0f);
  x[0] = 3.0f;
  write_tensor(whole, {3, 64}, x);
  write_tensor(ragged, {4, 48}, x);
  const Report report = run(whole, {kFlat, kPad});
  REQUIRE(report.results.size() == 2);
  CHECK(report.results[0].figures == report.results[1].figures);
  CHECK(!has_note(report.results[0], "flattened"));

  QuantizeOptions options;
  options.recipe = parse_recipe(kFlat);
  CHECK_THROWS_WITH_AS(quantize_file(ragged, dir.file("q.safetensors"), options),
                       doctest::Contains("with ragged=flat blocks would cross rows"), Error);
  CHECK(!std::filesystem::exists(dir.file("q.safetensors")));
  CHECK(quantize_file(whole, dir.file("q.safetensors"), options).tensors.size() == 1);

  // The transform runs along the rows of the tensor and needs whole groups there (layouts.md 3).
  const Report transformed = run(ragged, {kFlat + ",rht=32"});
  CHECK(transformed.results.empty());
  REQUIRE(transformed.errors.size() == 1);
  CHECK(transformed.errors[0].exit_code == 3);
  CHECK(run(ragged, {kFlat + ",rht=16"}).results.size() == 1);
}

}  // namespace
}  // namespace fp4scope
