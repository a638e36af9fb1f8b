// quantize_file_test.cc: files in fp4scope's own layout (product.md, "Machine-readable output");
// quantize_file_refusals_test.cc has what is chosen for them and what is refused.
// Expected codes and scales come from spec/ and cases/bugs.md by hand, or from the exact backend
// on the whole tensor at once, which shares no arithmetic, tiling or packing with the files.
#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/analyze.h"
#include "sim/error.h"
#include "tests/support/backends.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"
#include "tests/support/quantized.h"
#include "tests/unit/quantize_file_support.h"

using namespace fp4scope;
using test::bytes_of;
using test::contains;
using test::error_of;
using test::find;
using test::floats_of;
using test::one_tensor;
using test::options_for;
using test::sample_values;
using test::Shape;
using test::shape_json;
using test::TempDir;

namespace {

// Element 0 in the low nibble, no padding but the last nibble of an odd row.
std::vector<std::uint8_t> packed(const QuantizedTile& tile, bool nibbles) {
  std::vector<std::uint8_t> out;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    for (std::int64_t c = 0; c < tile.cols; c += nibbles ? 2 : 1) {
      const std::size_t at = static_cast<std::size_t>(r * tile.padded_cols + c);
      const int high = nibbles && c + 1 < tile.cols ? tile.codes[at + 1] : 0;
      out.push_back(static_cast<std::uint8_t>(tile.codes[at] + 16 * high));
    }
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

const char* const kRecipes[] = {"mxfp4",
                                "mxfp6e2m3",
                                "mxfp8e4m3",
                                "nvfp4",
                                "nvfp4:scale=row",
                                "nvfp4:scale=none",
                                "nvfp4:scale=given,g=0x43960000",
                                "nvfp4:amax=0x43960000",
                                "nvfp4:block=2d",
                                "hif4",
                                "hif4:width=5"};

}  // namespace

TEST_CASE("the bytes of small tensors are those of the published cases") {
  const TempDir dir;
  // cases/bugs.md C02 (scale byte 127, codes 1 9 7 after the 7) and C17 (ties to even, scale 1).
  std::vector<float> mx(33, 0.0f);
  mx[0] = 7.0f, mx[1] = 0.3f, mx[2] = -0.3f, mx[3] = 5.5f, mx[32] = -6.0f;
  test::write_file(dir.file("in"), one_tensor("m", "F32", {33}, test::bytes_of(mx)));
  quantize_file(dir.file("in"), dir.file("out"), options_for("mxfp4:contract=ocp-floor-rne"));
  const auto source = open_source(dir.file("out"));
  REQUIRE(source->tensors().size() == 2);
  CHECK(find(*source, "m.codes").shape == Shape{1, 17});
  CHECK(find(*source, "m.codes").dtype == DType::kU8);
  CHECK(find(*source, "m.scales").shape == Shape{1, 2});
  std::vector<std::uint8_t> codes(17, 0);
  codes[0] = 0x17, codes[1] = 0x79, codes[16] = 0x0F;
  CHECK(bytes_of(*source, "m.codes") == codes);
  CHECK(bytes_of(*source, "m.scales") == std::vector<std::uint8_t>{127, 127});

  std::vector<float> ties{0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, -0.25f, 6.0f};
  test::write_file(dir.file("in"), one_tensor("t", "F32", {9}, test::bytes_of(ties)));
  quantize_file(dir.file("in"), dir.file("out"), options_for("nvfp4:scale=none"));
  const auto tied = open_source(dir.file("out"));
  REQUIRE(tied->tensors().size() == 2);  // no outer scale, no planes for it
  CHECK(bytes_of(*tied, "t.codes") == std::vector<std::uint8_t>{0x20, 0x42, 0x64, 0x86, 7});
  CHECK(bytes_of(*tied, "t.scales") == std::vector<std::uint8_t>{0x38});
}

TEST_CASE("metadata holds version, full recipe, and name, shape and dtype of every source") {
  const TempDir dir;
  const std::string header = R"({"a.w":{"dtype":"BF16","shape":[2,3,4],"data_offsets":[0,48]},)"
                             R"("ids":{"dtype":"I64","shape":[1],"data_offsets":[48,56]},)"
                             R"("b":{"dtype":"F64","shape":[],"data_offsets":[56,64]},)"
                             R"("none":{"dtype":"F16","shape":[0,32],"data_offsets":[64,64]}})";
  test::write_file(dir.file("in.safetensors"),
                   test::safetensors_bytes(header, std::string(64, '\0')));
  const QuantizeResult result =
      quantize_file(dir.file("in.safetensors"), dir.file("out"), options_for("nvfp4"));
  REQUIRE(result.tensors.size() == 3);
  CHECK(result.tensors[0].tensor == "a.w");
  CHECK(result.tensors[0].dtype == "bf16");
  CHECK(result.tensors[0].elements == 24);
  CHECK(result.tensors[0].bytes_in == 48);
  CHECK(result.tensors[0].bytes_out == 6 * 2 + 6 + 4 + 4);
  REQUIRE(result.skipped.size() == 1);
  CHECK(contains(result.skipped[0], "ids"));
  CHECK(contains(result.skipped[0], "I64"));
  const auto source = open_source(dir.file("out"));
  REQUIRE(source->metadata().size() == 3);
  CHECK(source->metadata()[0].first == "fp4scope");
  CHECK(source->metadata()[1] ==
        std::pair<std::string, std::string>{"recipe", to_full_string(parse_recipe("nvfp4"))});
  CHECK(nlohmann::json::parse(source->metadata()[2].second) == nlohmann::json::parse(R"({
    "a.w": {"shape": [2, 3, 4], "dtype": "bf16", "file": "in.safetensors"},
    "b": {"shape": [], "dtype": "f64", "file": "in.safetensors"},
    "none": {"shape": [0, 32], "dtype": "f16", "file": "in.safetensors"}})"));
  CHECK(find(*source, "a.w.codes").shape == Shape{6, 2});
  CHECK(find(*source, "a.w.amax").shape == Shape{1});
  CHECK(find(*source, "b.codes").shape == Shape{1, 1});
  CHECK(find(*source, "none.codes").shape == Shape{0, 16});
  CHECK(find(*source, "none.scales").shape == Shape{0, 2});
  // And back: shapes of the originals.
  dequantize_file(dir.file("out"), dir.file("back"), options_for(""));
  const auto back = open_source(dir.file("back"));
  REQUIRE(back->tensors().size() == 3);
  CHECK(back->tensors()[0].name == "a.w");
  CHECK(back->tensors()[0].shape == Shape{2, 3, 4});
  CHECK(back->tensors()[1].shape == Shape{});
  CHECK(back->tensors()[2].shape == Shape{0, 32});
}

TEST_CASE(
    "every recipe gives the planes and values of the exact backend, and survives the way back") {
  const TempDir dir;
  const Shape shapes[] = {{67, 200}, {3, 5, 33}, {64, 64}, {1}, {17, 7}};
  for (const char* text : kRecipes) {
    for (const Shape& shape : shapes) {
      CAPTURE(std::string(text));
      CAPTURE(shape_json(shape));
      const QuantizeOptions options = options_for(text);
      const std::int64_t cols = shape.back();
      std::int64_t rows = 1;
      for (std::size_t d = 0; d + 1 < shape.size(); ++d) rows *= shape[d];
      const std::vector<float> values = sample_values(rows * cols);
      const test::Quantized want =
          test::quantized(oracle_backend(), options.recipe, values, rows, cols);
      test::write_file(dir.file("in"), one_tensor("w", "F32", shape, test::bytes_of(values)));
      quantize_file(dir.file("in"), dir.file("out"), options);
      const auto source = open_source(dir.file("out"));
      const std::int64_t blocks = want.tile.blocks_per_row;
      CHECK(
          find(*source, "w.scales").shape ==
          (options.recipe.family == Family::kHif4 ? Shape{rows, blocks, 4} : Shape{rows, blocks}));
      CHECK(bytes_of(*source, "w.codes") == packed(want.tile, options.recipe.packs_nibbles()));
      CHECK(bytes_of(*source, "w.scales") == want.tile.scales);
      const bool has_outer = options.recipe.family == Family::kNvfp4 &&
                             options.recipe.nvfp4.scale != OuterScale::kNone;
      CHECK(source->tensors().size() == (has_outer ? 4 : 2));
      if (has_outer) {
        std::vector<float> amax, scale;
        for (const OuterScale32& outer : want.outer) {
          amax.push_back(outer.amax);
          scale.push_back(outer.g);
        }
        CHECK(same_bits(floats_of(*source, "w.amax"), amax));
        CHECK(same_bits(floats_of(*source, "w.outer_scale"), scale));
      }
      dequantize_file(dir.file("out"), dir.file("back"), options_for(""));
      const auto back = open_source(dir.file("back"));
      CHECK(find(*back, "w").shape == shape);
      CHECK(same_bits(floats_of(*back, "w"), want.values));
    }
  }
}

TEST_CASE("the bytes of a file do not depend on the number of threads or on the tile grid") {
  const TempDir dir;
  // More than one tile along the rows, along both directions, and along one long row.
  const Shape shapes[] = {{8300, 130}, {70, 20001}, {1, 1100003}};
  for (const char* text : {"nvfp4:scale=row", "nvfp4:block=2d", "hif4"}) {
    for (const Shape& shape : shapes) {
      CAPTURE(std::string(text));
      CAPTURE(shape_json(shape));
      QuantizeOptions options = options_for(text);
      const std::vector<float> values = sample_values(shape[0] * shape[1]);
      const test::Quantized want = test::quantized(*test::available_backends().front(),
                                                   options.recipe, values, shape[0], shape[1]);
      test::write_file(dir.file("in"), one_tensor("w", "F32", shape, test::bytes_of(values)));
      std::string first, first_back;
      for (const int threads : {1, 2, 7}) {
        options.threads = threads;
        quantize_file(dir.file("in"), dir.file("out"), options);
        dequantize_file(dir.file("out"), dir.file("back"), options);
        if (threads == 1) {
          first = test::read_file(dir.file("out"));
          first_back = test::read_file(dir.file("back"));
          const auto source = open_source(dir.file("out"));
          CHECK(bytes_of(*source, "w.codes") == packed(want.tile, true));
          CHECK(bytes_of(*source, "w.scales") == want.tile.scales);
          CHECK(same_bits(floats_of(*open_source(dir.file("back")), "w"), want.values));
        } else {
          CHECK((test::read_file(dir.file("out")) == first));
          CHECK((test::read_file(dir.file("back")) == first_back));
        }
      }
    }
  }
}

TEST_CASE("another axis gives the codes of the transposed tensor and comes back in place") {
  const TempDir dir;
  const Shape shape{5, 70, 3, 6};
  const std::vector<float> values = sample_values(5 * 70 * 3 * 6);
  std::vector<float> moved;  // axis 1 last: [5, 3, 6, 70]
  for (std::size_t a = 0; a < 5; ++a) {
    for (std::size_t b = 0; b < 18; ++b) {
      for (std::size_t k = 0; k < 70; ++k) moved.push_back(values[(a * 70 + k) * 18 + b]);
    }
  }
  for (const char* text : {"nvfp4:scale=row", "hif4"}) {
    QuantizeOptions options = options_for(text);
    options.axis = 1;
    const test::Quantized want = test::quantized(oracle_backend(), options.recipe, moved, 90, 70);
    test::write_file(dir.file("in"), one_tensor("w", "F32", shape, test::bytes_of(values)));
    quantize_file(dir.file("in"), dir.file("out"), options);
    const auto source = open_source(dir.file("out"));
    CHECK(find(*source, "w.codes").shape == Shape{90, 35});
    CHECK(bytes_of(*source, "w.codes") == packed(want.tile, true));
    CHECK(bytes_of(*source, "w.scales") == want.tile.scales);
    CHECK(nlohmann::json::parse(source->metadata()[2].second)["w"]["axis"] == 1);
    dequantize_file(dir.file("out"), dir.file("back"), options_for(""));
    const auto back = open_source(dir.file("back"));
    CHECK(find(*back, "w").shape == shape);
    const std::vector<float> decoded = floats_of(*back, "w");
    bool equal = true;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      const std::size_t a = i / (18 * 70), b = i / 70 % 18, k = i % 70;
      equal &= std::bit_cast<std::uint32_t>(decoded[(a * 70 + k) * 18 + b]) ==
               std::bit_cast<std::uint32_t>(want.values[i]);
    }
    CHECK(equal);
  }
  QuantizeOptions options = options_for("mxfp4");
  options.axis = 4;
  const Error error = error_of([&] { quantize_file(dir.file("in"), dir.file("none"), options); });
  CHECK(error.exit_code() == 3);
  CHECK(contains(error.what(), "has no axis 4"));
  CHECK(!std::filesystem::exists(dir.file("none")));
}

TEST_CASE("binary64 is cast directly by MX and rounded once to binary32 by the others") {
  const TempDir dir;
  // cases/bugs.md C18: 2.5 + 2^-40 is above the tie, its binary32 value is the tie.
  test::write_file(dir.file("in"),
                   one_tensor("d", "F64", {2}, test::bytes_of<double>({2.5 + 0x1p-40, 6.0})));
  quantize_file(dir.file("in"), dir.file("mx"), options_for("mxfp4"));
  CHECK(bytes_of(*open_source(dir.file("mx")), "d.codes") == std::vector<std::uint8_t>{0x75});
  quantize_file(dir.file("in"), dir.file("nv"), options_for("nvfp4:scale=none"));
  CHECK(bytes_of(*open_source(dir.file("nv")), "d.codes") == std::vector<std::uint8_t>{0x74});
}

TEST_CASE("the tensor amax ignores NaN and keeps infinity") {
  const TempDir dir;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  test::write_file(dir.file("in"),
                   one_tensor("a", "F32", {2, 2}, test::bytes_of<float>({1, -nan, -3, infinity})));
  quantize_file(dir.file("in"), dir.file("out"), options_for("nvfp4:scale=row"));
  CHECK(floats_of(*open_source(dir.file("out")), "a.amax") == std::vector<float>{1, infinity});
  dequantize_file(dir.file("out"), dir.file("back"), options_for(""));  // not refused
}
