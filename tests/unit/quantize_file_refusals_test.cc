// quantize_file_refusals_test.cc: which tensors go into a file in fp4scope's own layout, and what
// is refused, from the operand to planes that break the layout; a refused run leaves no output.
#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <limits>

#include "analysis/analyze.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"
#include "tests/unit/quantize_file_support.h"

using namespace fp4scope;
using test::contains;
using test::error_of;
using test::find;
using test::one_tensor;
using test::options_for;
using test::sample_values;
using test::TempDir;

TEST_CASE("operands and filters choose tensors, and nothing chosen is an error") {
  const TempDir dir;
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                             R"("i":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
  const std::string in = dir.file("in"), out = dir.file("out");
  test::write_file(in, test::safetensors_bytes(header, std::string(9, '\0')));
  QuantizeOptions options = options_for("mxfp4");
  CHECK(quantize_file(in + ":b", out, options).tensors.size() == 1);
  CHECK(find(*open_source(out), "b.codes").elements == 1);
  CHECK(quantize_file(in, out, options).tensors.size() == 2);
  options.filter.exclude = {"^a$"};
  CHECK(quantize_file(in, out, options).tensors.size() == 1);
  CHECK(dequantize_file(out + ":b", dir.file("back"), options).tensors.size() == 1);
  std::filesystem::remove(out);
  options.filter.include = {"^i$"};
  CHECK(error_of([&] { quantize_file(in + ":a", out, options); }).exit_code() == 2);
  for (const std::string& operand : {in, in + ":zz"}) {
    CAPTURE(operand);
    const Error error = error_of([&] { quantize_file(operand, out, options); });
    CHECK(error.exit_code() == 3);
    CHECK(contains(error.what(), in));
  }
  CHECK(!std::filesystem::exists(out));
  // The same name in two files of a directory: each is named with its file.
  std::filesystem::create_directory(dir.path() / "d");
  for (const char* name : {"d/1.safetensors", "d/2.safetensors"}) {
    test::write_file(dir.file(name), one_tensor("a", "F32", {1}, std::string(4, '\0')));
  }
  const QuantizeResult both = quantize_file(dir.file("d"), out, options_for("mxfp4"));
  REQUIRE(both.tensors.size() == 2);
  CHECK(both.tensors[0].tensor == "1.safetensors:a");
  CHECK(both.tensors[1].tensor == "2.safetensors:a");
  CHECK(both.tensors[1].file == dir.file("d/2.safetensors"));
}

TEST_CASE("what a recipe refuses names file and tensor and leaves no output") {
  const TempDir dir;
  const std::string in = dir.file("in"), out = dir.file("out");
  std::vector<float> values(80, 1.0f);
  values[70] = std::numeric_limits<float>::quiet_NaN();
  test::write_file(in, one_tensor("w", "F32", {2, 40}, test::bytes_of(values)));
  const struct {
    const char* recipe;
    const char* fragment;
  } cases[] = {
      {"mxfp4:ragged=error", "rows of 40 elements, expected a multiple of the block of 32"},
      {"nvfp4:ragged=error", "multiple of the block of 16"},
      {"hif4:nonfinite=error", "tensor \"w\""}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.recipe));
    const Error error = error_of([&] { quantize_file(in, out, options_for(c.recipe)); });
    CHECK(error.exit_code() == 3);
    CHECK(contains(error.what(), c.fragment));
    CHECK(contains(error.what(), in));
    CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
  }
}

TEST_CASE("an interrupted run leaves no output") {
  const TempDir dir;
  const std::vector<float> values = sample_values(100);
  test::write_file(dir.file("in"), one_tensor("w", "F32", {100}, test::bytes_of(values)));
  const std::atomic<bool> stop{true};
  QuantizeOptions options = options_for("mxfp4");
  quantize_file(dir.file("in"), dir.file("packed"), options);
  options.stop = &stop;
  CHECK(contains(error_of([&] { quantize_file(dir.file("in"), dir.file("out"), options); }).what(),
                 "interrupted"));
  CHECK(contains(
      error_of([&] { dequantize_file(dir.file("packed"), dir.file("out"), options); }).what(),
      "interrupted"));
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 2);
}

TEST_CASE("files that break fp4scope's own layout are refused with their own sentence") {
  const TempDir dir;
  // Four tensors of NVFP4 with 20 elements: codes [1,10], scales [1,2], amax [1], outer_scale [1].
  const std::string nvfp4 = R"("recipe":"nvfp4")";
  const auto file = [](const std::string& metadata, const std::string& planes,
                       const std::string& data) {
    return test::safetensors_bytes("{\"__metadata__\":{" + metadata + "}" + planes + "}", data);
  };
  const std::string facts = R"("tensors":"{\"w\":{\"shape\":[20]}}")";
  const std::string codes = R"(,"w.codes":{"dtype":"U8","shape":[1,10],"data_offsets":[8,18]})";
  const std::string scales = R"(,"w.scales":{"dtype":"U8","shape":[1,2],"data_offsets":[18,20]})";
  const std::string amax = R"(,"w.amax":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string outer = R"(,"w.outer_scale":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
  const auto data = [](float amax_value, float outer_value) {
    return test::bytes_of<float>({amax_value, outer_value}) + std::string(12, '\0');
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string planes = codes + scales + amax + outer;
  const struct {
    const char* name;
    std::string bytes;
    const char* fragment;
  } cases[] = {
      {"no recipe", file(facts, planes, data(1, 1)), "__metadata__ has no \"recipe\""},
      {"no tensors", file(nvfp4, planes, data(1, 1)), "__metadata__ has no \"tensors\""},
      {"unknown recipe", file(R"("recipe":"nvfp5",)" + facts, planes, data(1, 1)),
       "the recipe in __metadata__ is not usable"},
      {"tensors no JSON", file(nvfp4 + R"(,"tensors":"{")", planes, data(1, 1)),
       "is not a JSON object"},
      {"tensors a list", file(nvfp4 + R"(,"tensors":"[1]")", planes, data(1, 1)),
       "is not a JSON object"},
      {"no tensor at all", file(nvfp4 + R"(,"tensors":"{}")", planes, data(1, 1)),
       "holds no quantized tensor"},
      {"no shape", file(nvfp4 + R"(,"tensors":"{\"w\":{}}")", planes, data(1, 1)),
       "states no shape"},
      {"negative extent",
       file(nvfp4 + R"(,"tensors":"{\"w\":{\"shape\":[-20]}}")", planes, data(1, 1)),
       "no list of integers"},
      {"shape overflows",
       file(nvfp4 + R"(,"tensors":"{\"w\":{\"shape\":[4294967296,4294967296]}}")", planes,
            data(1, 1)),
       "exceeds 64 bits"},
      {"axis beyond the rank",
       file(nvfp4 + R"(,"tensors":"{\"w\":{\"shape\":[20],\"axis\":1}}")", planes, data(1, 1)),
       "states an axis"},
      {"shape of other codes",
       file(nvfp4 + R"(,"tensors":"{\"w\":{\"shape\":[2,10]}}")", planes, data(1, 1)),
       "\"w.codes\" is U8 [1, 10], expected u8 [2, 5]"},
      {"name without planes",
       file(nvfp4 + R"(,"tensors":"{\"v\":{\"shape\":[20]}}")", planes, data(1, 1)),
       "has no tensor \"v.codes\", expected u8 [1, 10]"},
      {"no scales",
       test::safetensors_bytes(
           "{\"__metadata__\":{" + nvfp4 + "," + facts + "}" + codes + amax + outer + "}",
           data(1, 1).substr(0, 18)),
       "has no tensor \"w.scales\""},
      {"scales of another dtype",
       file(nvfp4 + "," + facts,
            codes + R"(,"w.scales":{"dtype":"I8","shape":[1,2],"data_offsets":[18,20]})" + amax +
                outer,
            data(1, 1)),
       "\"w.scales\" is I8 [1, 2], expected u8 [1, 2]"},
      {"outer scale 0", file(nvfp4 + "," + facts, planes, data(1, 0)),
       "the outer scale of the amax"},
      {"outer scale NaN", file(nvfp4 + "," + facts, planes, data(1, nan)),
       "the outer scale of the amax"},
      {"outer scale infinite",
       file(nvfp4 + "," + facts, planes, data(1, std::numeric_limits<float>::infinity())),
       "the outer scale of the amax"},
      {"amax NaN", file(nvfp4 + "," + facts, planes, data(nan, 1)), "expected an amax"},
      {"amax negative", file(nvfp4 + "," + facts, planes, data(-1, 1)), "expected an amax"},
      {"6-bit code out of range",
       test::safetensors_bytes(
           R"({"__metadata__":{"recipe":"mxfp6e2m3","tensors":"{\"w\":{\"shape\":[2]}}"},)"
           R"("w.codes":{"dtype":"U8","shape":[1,2],"data_offsets":[0,2]},)"
           R"("w.scales":{"dtype":"U8","shape":[1,1],"data_offsets":[2,3]}})",
           "\x3F\x40\x7F"),
       "has the code 0x40 in row 0, expected less than 0x40"},
      {"a file of another kind", one_tensor("w", "F32", {1}, std::string(4, '\0')),
       "is not in fp4scope's own layout"},
  };
  const std::string in = dir.file("in");
  for (const auto& c : cases) {
    CAPTURE(std::string(c.name));
    test::write_file(in, c.bytes);
    const Error error = error_of([&] { dequantize_file(in, dir.file("out"), options_for("")); });
    const std::string text = error.what();
    CAPTURE(text);
    CHECK(error.exit_code() == 3);
    CHECK(contains(text, c.fragment));
    CHECK(contains(text, in));
    CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
  }
  test::write_file(in, file(nvfp4 + "," + facts, planes, data(1, 2688)));  // the base is valid
  CHECK(dequantize_file(in, dir.file("out"), options_for("")).tensors.size() == 1);
}
