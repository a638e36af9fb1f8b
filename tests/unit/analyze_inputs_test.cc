// analyze_inputs_test.cc: what analyze and quantize do with unusual inputs: hostile names and
// expressions, mixed folders, FP8 numbers, outputs that would replace an input, refusals and notes.
#include <doctest/doctest.h>

#include <filesystem>
#include <limits>

#include "analysis/analyze.h"
#include "analysis/io/sinks.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

namespace fp4scope {
namespace {

using test::TempDir;

struct Entry {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

void write_tensors(const std::string& path, const std::vector<Entry>& entries) {
  std::vector<SafetensorsWriter::Entry> header;
  for (const Entry& e : entries) header.push_back({e.name, DType::kF32, e.shape});
  SafetensorsWriter writer(path, header, {});
  for (std::size_t i = 0; i < entries.size(); ++i) {
    writer.write(i, 0, entries[i].values.data(), entries[i].values.size() * sizeof(float));
  }
  writer.commit();
}

AnalyzeOptions options_for(const std::string& recipe) {
  AnalyzeOptions options;
  options.recipes = {parse_recipe(recipe)};
  options.threads = 1;
  return options;
}

bool has_note(const Row& row, const std::string& part) {
  for (const std::string& note : row.notes) {
    if (note.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST_CASE("rows that cannot be counted in memory are an error of their tensor, not of the run") {
  TempDir dir;
  write_tensors(dir.file("good.safetensors"), {{"x", {1, 16}, std::vector<float>(16, 1.0f)}});
  test::write_file(dir.file("rows.npy"),
                   test::npy_bytes(1,
                                   "{'descr': '<f4', 'fortran_order': False, 'shape': "
                                   "(1152921504606846976, 0)}",
                                   ""));
  const Report report =
      analyze({dir.file("good.safetensors"), dir.file("rows.npy")}, options_for("nvfp4:scale=row"));
  REQUIRE(report.results.size() == 1);
  CHECK(report.results[0].tensor == "x");
  REQUIRE(report.errors.size() == 1);
  CHECK(report.errors[0].exit_code == 4);
  CHECK(report.errors[0].message.find("rows.npy") != std::string::npos);
}

TEST_CASE("names of 200000 characters and nested repetitions neither crash nor hang") {
  TempDir dir;
  const std::string path = dir.file("long.safetensors");
  const std::string name = std::string(200000, 'a') + "!";
  write_tensors(path, {{name, {1, 16}, std::vector<float>(16, 1.0f)}});
  AnalyzeOptions options = options_for("nvfp4");
  for (const char* expression : {"(x|y)*z", "^(a|aa)*b$", ".*y", "(a*)*b"}) {
    options.filter.include = {expression};
    CHECK(analyze({path}, options).results.empty());
  }
  options.filter.include = {"^(a|aa)*!$"};
  options.group_by = {"(a|b)*"};
  CHECK(analyze({path}, options).results.size() == 1);
  options.filter.include = {"*"};
  CHECK_THROWS_WITH_AS(analyze({path}, options),
                       doctest::Contains("--include '*' is not a regular expression"), Error);
}

TEST_CASE("groups of two expressions stay apart, and an empty capture is no total") {
  TempDir dir;
  const std::string path = dir.file("g.safetensors");
  std::vector<Entry> entries;
  for (const char* name : {"layers.0.expert.0.w", "layers.0.expert.1.w", "layers.1.expert.0.w",
                           "layers.1.expert.1.w"}) {
    entries.push_back({name, {1, 16}, std::vector<float>(16, 1.0f)});
  }
  write_tensors(path, entries);
  AnalyzeOptions options = options_for("nvfp4");
  options.group_by = {R"(layers\.(\d))", R"(expert\.(\d))"};
  const Report report = analyze({path}, options);
  REQUIRE(report.aggregates.size() == 5);  // all, two layers, two experts
  CHECK(report.aggregates[0].tensors == 4);
  for (std::size_t i = 1; i < 5; ++i) CHECK(report.aggregates[i].tensors == 2);
  CHECK(report.aggregates[1].group == R"(0 of layers\.(\d))");
  options.group_by = {"layers(x?)"};
  const Report empty = analyze({path}, options);
  REQUIRE(empty.aggregates.size() == 2);
  CHECK(empty.aggregates[0].tensors == 4);
  CHECK(empty.aggregates[1].group == "(empty)");
  CHECK(empty.aggregates[1].tensors == 4);
}

TEST_CASE("a folder goes on after a bad file and names what it cannot read") {
  TempDir dir;
  write_tensors(dir.file("a.safetensors"), {{"x", {1, 16}, std::vector<float>(16, 1.0f)}});
  test::write_file(dir.file("b.npy"), "\x93NUMPY");
  test::write_file(dir.file("c.pt"), "PK");
  test::write_file(dir.file("d.bin"), "no tensors");
  const Report report = analyze({dir.path().string()}, options_for("nvfp4"));
  CHECK(report.results.size() == 1);
  REQUIRE(report.errors.size() == 2);
  for (const ErrorRecord& error : report.errors) CHECK(error.exit_code == 3);
  CHECK(report.errors[0].file.find("b.npy") != std::string::npos);
  CHECK(report.errors[1].file.find("c.pt") != std::string::npos);
  REQUIRE(report.skipped.size() == 1);
  CHECK(report.skipped[0].message.find("d.bin: not read") != std::string::npos);
}

TEST_CASE("FP8 tensors are numbers; codes of other dtypes are skipped and unknown ones an error") {
  TempDir dir;
  const std::string path = dir.file("f8.safetensors");
  // E4M3: 0x38 = 1, 0x7e = 448, 0xb8 = -1, 0x01 = 2^-9. E5M2: 0x3c = 1, 0x7b = 57344.
  test::write_file(path, test::safetensors_bytes(
                             R"({"a":{"dtype":"F8_E4M3","shape":[1,4],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F8_E5M2","shape":[1,2],"data_offsets":[4,6]},)"
                             R"("i":{"dtype":"I16","shape":[1],"data_offsets":[6,8]},)"
                             R"("u":{"dtype":"F7_Q","shape":[2],"data_offsets":[8,10]}})",
                             std::string("\x38\x7e\xb8\x01\x3c\x7b\0\0\0\0", 10)));
  const auto source = open_source(path);
  std::vector<float> values(4);
  source->read_f32(source->tensors()[0], 0, 1, 0, 4, values.data());
  CHECK(values == std::vector<float>{1.0f, 448.0f, -1.0f, 0x1p-9f});
  values.resize(2);
  source->read_f32(source->tensors()[1], 0, 1, 0, 2, values.data());
  CHECK(values == std::vector<float>{1.0f, 57344.0f});
  const Report report = analyze({path}, options_for("mxfp8e4m3:contract=torchao-floor"));
  REQUIRE(report.results.size() == 2);
  CHECK(report.results[0].dtype == "f8_e4m3");
  REQUIRE(report.skipped.size() == 1);
  CHECK(report.skipped[0].tensor == "i");
  REQUIRE(report.errors.size() == 1);
  CHECK(report.errors[0].tensor == "u");
  CHECK(report.errors[0].exit_code == 4);
}

TEST_CASE("quantize refuses to replace a file that it reads, also through a folder or a link") {
  TempDir dir;
  const std::string path = dir.file("a.safetensors");
  write_tensors(path, {{"x", {1, 16}, std::vector<float>(16, 1.0f)}});
  const std::string before = test::read_file(path);
  std::filesystem::create_hard_link(path, dir.file("hard.bin"));
  QuantizeOptions options;
  options.recipe = parse_recipe("nvfp4");
  for (const auto& [in, out] :
       {std::pair{path, path}, std::pair{dir.path().string(), path},
        std::pair{dir.path().string(), dir.path().string() + "/./a.safetensors"},
        std::pair{path, dir.file("hard.bin")}, std::pair{path + ":x", path}}) {
    CHECK_THROWS_WITH_AS(quantize_file(in, out, options),
                         doctest::Contains("would replace the input file"), Error);
  }
  CHECK(test::read_file(path) == before);
  const std::string quantized = dir.file("q.safetensors");
  quantize_file(path, quantized, options);
  CHECK_THROWS_WITH_AS(dequantize_file(quantized, quantized, options),
                       doctest::Contains("would replace the input file"), Error);
}

TEST_CASE("refusals give the row of the tensor and reports say what was left out") {
  TempDir dir;
  const std::string path = dir.file("n.safetensors");
  // More than one tile of 2^20 elements, so that the row of the tile is not the row of the tensor.
  constexpr std::int64_t kRows = 9000, kCols = 256;
  std::vector<float> values(kRows * kCols, 1.0f);
  values[8200 * kCols + 5] = std::numeric_limits<float>::quiet_NaN();
  write_tensors(path, {{"x", {kRows, kCols}, values}});
  const Report refused = analyze({path}, options_for("hif4:nonfinite=error"));
  REQUIRE(refused.errors.size() == 1);
  CHECK(refused.errors[0].message.find("row 8200: NaN or Inf found") != std::string::npos);
  QuantizeOptions options;
  options.recipe = parse_recipe("hif4:nonfinite=error");
  CHECK_THROWS_WITH_AS(quantize_file(path, dir.file("q.safetensors"), options),
                       doctest::Contains("row 8200: NaN or Inf found"), Error);
  CHECK_FALSE(std::filesystem::exists(dir.file("q.safetensors")));

  const Report noted = analyze({path}, options_for("mxfp4"));
  REQUIRE(noted.results.size() == 1);
  CHECK(has_note(noted.results[0], "1 NaN or Inf elements are left out"));
  CHECK(has_note(noted.results[0], "31 finite elements decode to NaN or Inf"));  // byte 255

  AnalyzeOptions small = options_for("nvfp4:scale=row");
  small.memory_bytes = 1000;
  const Report no_room = analyze({path}, small);
  REQUIRE(no_room.errors.size() == 1);
  CHECK(no_room.errors[0].exit_code == 4);
  CHECK(no_room.errors[0].message.find("scale=row needs 108000 bytes for 9000 row scales") !=
        std::string::npos);
}

TEST_CASE("a backend that does not know a recipe refuses it with its reason, the oracle too") {
  const Recipe recipe = parse_recipe("custom:lut:nf4/64:bf16");
  CHECK(choose_backend("reference", recipe).name() == "reference");
  try {
    choose_backend("oracle", recipe);
    FAIL("accepted a table of values");
  } catch (const Error& e) {
    CHECK(e.exit_code() == 4);
    CHECK(std::string(e.what()).find(oracle_backend().supports(recipe).reason) !=
          std::string::npos);
  }
}

TEST_CASE("backends of other builds are not supported here rather than unknown") {
  for (const char* name : {"cuda", "blackwell"}) {
    try {
      choose_backend(name, parse_recipe("nvfp4"));
      FAIL("accepted ", name);
    } catch (const Error& e) {
      CHECK(e.exit_code() == 4);
      CHECK(std::string(e.what()) == std::string("this build has no ") + name + " backend");
    }
  }
}

}  // namespace
}  // namespace fp4scope
