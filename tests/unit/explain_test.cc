// Explanations (analysis/explain): how a block is named, errors, and the two renderings over every
// kind of recipe. The arithmetic itself is compared with the oracle in tests/cross/trace_test.cc.
#include "analysis/explain.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/support/container_bytes.h"
#include "tests/support/floats.h"
#include "tests/support/paths.h"
#include "tests/support/required_keys.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

const std::string kSample = (data_dir() / "sample/use_lite_slice.safetensors").string();

std::uint32_t bits_of(float v) {
  return bit_cast<std::uint32_t>(v);
}

// The message of the Error that `call` throws, after its exit code.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return std::to_string(e.exit_code()) + " " + e.what();
  }
  return "no error";
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0, start = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', start)) {
    longest = std::max(longest, end - start);
    start = end + 1;
  }
  return longest;
}

Explanation explained(const std::string& recipe, const std::string& values,
                      const OuterOverride& given = {}) {
  return explain_values(parse_recipe(recipe), parse_values(values, SourceType::kF32),
                        SourceType::kF32, given);
}

// BF16 values of a row of a tensor of the sample, read without the library.
std::vector<float> sample_row(const std::string& tensor, std::size_t row, std::size_t cols) {
  std::string bytes;
  {
    std::FILE* file = std::fopen(kSample.c_str(), "rb");
    REQUIRE(file != nullptr);
    char buffer[4096];
    for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, file)) > 0;) {
      bytes.append(buffer, n);
    }
    std::fclose(file);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  const std::size_t first = header[tensor]["data_offsets"][0];
  std::vector<float> values;
  for (std::size_t i = 0; i < cols; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data() + 8 + length + first + 2 * (row * cols + i), 2);
    values.push_back(bit_cast<float>(std::uint32_t{half} << 16));
  }
  return values;
}

}  // namespace

TEST_CASE("values are decimals or binary32 patterns, rows are separated by semicolons") {
  const auto rows = parse_values("6.42, -1.4,0x40cd70a4;-inf,nan,+2,1e-45", SourceType::kF32);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == std::vector<float>{6.42f, -1.4f, bit_cast<float>(0x40cd70a4u)});
  REQUIRE(rows[1].size() == 4);
  CHECK(std::isinf(rows[1][0]));
  CHECK(rows[1][0] < 0);
  CHECK(std::isnan(rows[1][1]));
  CHECK(rows[1][2] == 2.0f);
  CHECK(bits_of(rows[1][3]) == 1u);
  CHECK(bits_of(parse_values("-0", SourceType::kF32)[0][0]) == kSignBit);
}

TEST_CASE("what is no number is an error that shows it") {
  for (const char* text :
       {"", "1,,2", "1,x", "1 2", "0x1", "0x123456789", "0xzzzzzzzz", "1;", "--1", "+-1"}) {
    CAPTURE(text);
    CHECK(error_of([&] { parse_values(text, SourceType::kF32); }).starts_with("2 --values '"));
  }
  CHECK(error_of([] { parse_values("1e60", SourceType::kF32); }).find("range of binary32") !=
        std::string::npos);
}

TEST_CASE("values must be representable in their type") {
  CHECK(parse_values("1.5,-3,nan,inf", SourceType::kBf16)[0].size() == 4);
  const std::string bf16 = error_of([] { parse_values("1,6.42", SourceType::kBf16); });
  CHECK(bf16.starts_with("2 --values '6.42': no bf16 number, the nearest is 6.4"));
  CHECK(error_of([] { parse_values("70000", SourceType::kF16); }).find("no f16 number") !=
        std::string::npos);
}

TEST_CASE("the last @ before two integers names the block") {
  const BlockPlace place = parse_block_place(kSample + ":name@2,x@3,7");
  CHECK(place.operand.file == kSample);
  CHECK(place.operand.tensor == "name@2,x");
  CHECK(place.row == 3);
  CHECK(place.block == 7);
  for (const char* text :
       {"file:t", "file:t@3", "file:t@3,", "file:t@,7", "file:t@-1,0", "file:t@1,-1",
        "file:t@1,2,3", "file:t@1, 2", "t@99999999999999999999,0"}) {
    CAPTURE(text);
    CHECK(error_of([&] { parse_block_place(text); }).find("expected FILE:TENSOR@ROW,BLOCK") !=
          std::string::npos);
  }
}

TEST_CASE("too many values name the size of the block") {
  CHECK(error_of([] { explained("nvfp4", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"); }) ==
        "2 --values: 17 values in a row, but a block of nvfp4 has 16 elements");
  CHECK(error_of([] { explained("nvfp4", "1;2"); }) ==
        "2 --values: 2 rows, but a block of nvfp4 has 1");
  CHECK(explained("nvfp4:block=2d", "1,2;3").trace.block_rows == 16);
}

TEST_CASE("the outer scale of values is their own unless it is given") {
  const Explanation own = explained("nvfp4", "6,1");
  CHECK(bits_of(own.trace.outer.g) == bits_of(2688.0f / 6.0f));
  const Explanation by_amax = explained("nvfp4", "6,1", {25.75f, std::nullopt});
  CHECK(bits_of(by_amax.trace.outer.g) == bits_of(2688.0f / 25.75f));
  const Explanation by_scale = explained("nvfp4", "6,1", {25.75f, 3.0f});
  CHECK(by_scale.trace.outer.g == 3.0f);
  CHECK(by_scale.trace.outer.amax == 25.75f);
  CHECK(explanation_text(by_scale).find("g, given from outside: 3") != std::string::npos);
  CHECK(error_of([] {
          explained("mxfp4", "1", {1.0f, std::nullopt});
        }).starts_with("2 recipe mxfp4 has no outer scale"));
  CHECK(error_of([] {
          explained("nvfp4", "1", {-1.0f, std::nullopt});
        }).starts_with("2 --amax -1: expected a magnitude"));
}

TEST_CASE("a block of a tensor: its values, columns and the outer scale of the whole tensor") {
  const std::vector<float> row = sample_row("layers.1.attn_out.W", 3, 512);
  const Recipe recipe = parse_recipe("nvfp4");
  const Explanation e =
      explain_tensor(recipe, parse_block_place(kSample + ":layers.1.attn_out.W@3,7"), {});
  CHECK(e.row == 3);
  CHECK(e.block == 7);
  CHECK(e.first_col == 112);
  CHECK(e.dtype == "bf16");
  CHECK(e.shape == std::vector<std::int64_t>{256, 512});
  float tensor_amax = 0;
  for (std::size_t r = 0; r < 256; ++r) {
    for (const float v : sample_row("layers.1.attn_out.W", r, 512)) {
      tensor_amax = std::max(tensor_amax, std::fabs(v));
    }
    if (r == 3) break;
  }
  CHECK(e.trace.outer.amax >= tensor_amax);
  CHECK(bits_of(e.trace.outer.g) == bits_of(2688.0f / e.trace.outer.amax));
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(e.trace.elements[i].input == static_cast<double>(row[112 + i]));
  }
  // The same block from values, with the maximum of the tensor.
  std::string values;
  for (std::size_t i = 0; i < 16; ++i) {
    char hex[16];
    std::snprintf(hex, sizeof hex, "%s0x%08x", i == 0 ? "" : ",", bits_of(row[112 + i]));
    values += hex;
  }
  const Explanation again = explained("nvfp4", values, {e.trace.outer.amax, std::nullopt});
  CHECK(again.trace.scale_bytes == e.trace.scale_bytes);
  CHECK(again.trace.packed_codes == e.trace.packed_codes);
}

TEST_CASE("of an index only the shard of the tensor has to be there") {
  const test::TempDir dir;
  const std::string index = dir.file("m.safetensors.index.json");
  test::write_file(index, R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  test::write_file(
      dir.file("1.safetensors"),
      test::safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1,32],"data_offsets":[0,128]}})",
                              test::bytes_of<float>(std::vector<float>(32, 1.0f))));
  const Recipe recipe = parse_recipe("mxfp4");
  CHECK(explain_tensor(recipe, parse_block_place(index + ":a@0,0"), {}).tensor == "a");
  const auto refuse = [&](const std::string& place, const char* why) {
    CHECK_THROWS_WITH_AS((void)explain_tensor(recipe, parse_block_place(place), {}),
                         doctest::Contains(why), Error);
  };
  refuse(index + ":b@0,0", "2.safetensors, but there is no such file");
  refuse(index + ":c@0,0", "holds no tensor \"c\"; it has 1 tensor");
  refuse(index + "@0,0", "2.safetensors, but there is no such file");
}

TEST_CASE("along another axis a block is a column") {
  ExplainOptions options;
  options.axis = 0;
  const Explanation e = explain_tensor(
      parse_recipe("mxfp4"), parse_block_place(kSample + ":layers.1.attn_out.W@5,1"), options);
  for (const std::size_t i : {0u, 31u}) {
    CHECK(e.trace.elements[i].input ==
          static_cast<double>(sample_row("layers.1.attn_out.W", 32 + i, 512)[5]));
  }
  CHECK(explanation_text(e).find("Blocks run along axis 0") != std::string::npos);
}

TEST_CASE("rows and blocks that are not there name the range") {
  const auto at = [](const char* place, const char* recipe = "nvfp4") {
    return error_of(
        [&] { explain_tensor(parse_recipe(recipe), parse_block_place(kSample + place), {}); });
  };
  CHECK(at(":layers.1.attn_out.W@256,0").find("has the rows 0 to 255, there is no row 256") !=
        std::string::npos);
  CHECK(at(":layers.1.attn_out.W@0,32").find("blocks 0 to 31 of 16 elements") != std::string::npos);
  CHECK(at(":layers.1.attn_out.W@0,32").starts_with("2 "));
  CHECK(at(":nothing@0,0").starts_with("3 "));
  CHECK(at("@0,0").starts_with("2 "));  // several tensors
  CHECK(error_of([] {
          explain_tensor(parse_recipe("nvfp4"), parse_block_place("missing:t@0,0"), {});
        }).starts_with("3 "));
}

TEST_CASE("a value that the recipe refuses is named with its reason") {
  CHECK(error_of([] {
          explained("int4", "1,nan");
        }).starts_with("3 --values: row 0: NaN or Inf, which no contract of INT4"));
  CHECK(error_of([] { explained("hif4:nonfinite=error", "inf"); }).find("nonfinite=error") !=
        std::string::npos);
}

TEST_CASE("every format and contract has a text of at most 79 columns, and JSON with every step") {
  const std::string plain =
      "0.012345679,-1234.5677,3.4028235e+38,-1.1754944e-38,0x00000001,-0,0.1,100.00001";
  const std::string small = "0.012345679,-1.2345677,0.33333334,-0.0011754944,0,-0,0.1,5.0000005";
  std::vector<std::string> recipes = {"nvfp4:select=mse",
                                      "nvfp4:select=mae,metric=fast",
                                      "nvfp4:block=2d,select=mse",
                                      "nvfp4:select=mse,sum=fma",
                                      "nvfp4:rht=16",
                                      "nvfp4:rht=128",
                                      "nvfp4:round=sr,seed=3",
                                      "mxfp4:contract=fos-static6,block=2d",
                                      "mxfp4:round=sr",
                                      "hif4:search=mse",
                                      "hif4:search=level1",
                                      "hif4:geometry=64x64",
                                      "hif4:width=5",
                                      "fp8:gran=row",
                                      "fp8:gran=128x128",
                                      "fp8:gran=tensor",
                                      "fp8:scale-fmt=ue8m0",
                                      "custom:e2m1/4:micro/8:micro/32:e4m3",
                                      "custom:e1m2/4:micro/64:e6m2",
                                      "custom:lut:nf4/64:bf16",
                                      "custom:int8/128:bf16",
                                      "custom:e3m4/row:f32",
                                      "custom:e2m1/24:e4m3/row:f32"};
  for (const FormatRow& row : all_formats()) {
    for (const ContractInfo& c : contracts_of(row.family, row.format.name)) {
      recipes.push_back(
          required_keys(std::string(row.format.name) + ":contract=" + std::string(c.name)));
    }
  }
  int explained_blocks = 0;
  for (const std::string& text : recipes) {
    for (const std::string& values : {plain, small, std::string("0")}) {
      CAPTURE(text);
      CAPTURE(values);
      Explanation e;
      try {
        e = explained(text, values);
      } catch (const Error& refused) {
        CHECK(refused.kind() == ErrorKind::kData);  // signs of zero, all-zero tensors
        continue;
      }
      ++explained_blocks;
      const std::string out = explanation_text(e);
      CHECK(longest_line(out) <= 79);
      CHECK(out.find("\nelements\n") != std::string::npos);
      CHECK(out.find("  codes:") != std::string::npos);
      const Json json = explanation_json(e);
      for (const char* key : {"file",
                              "tensor",
                              "dtype",
                              "shape",
                              "row",
                              "block",
                              "first_col",
                              "elements",
                              "block_rows",
                              "recipe",
                              "recipe_canonical",
                              "recipe_full",
                              "backend",
                              "notes",
                              "outer",
                              "block_amax",
                              "block_amax_bits",
                              "phases",
                              "candidates",
                              "choice",
                              "levels",
                              "values",
                              "scale_bytes",
                              "code_bytes"}) {
        CHECK_MESSAGE(json.contains(key), key);
      }
      REQUIRE(json["values"].size() == static_cast<std::size_t>(e.trace.block_size));
      CHECK(json["candidates"].size() == (e.recipe.chooses() ? 2u : 0u));
      const std::string dumped = json_text(json);
      // A NaN or Infinity token would be an error of the parser.
      CHECK(nlohmann::json::parse(dumped)["recipe"] == text);
    }
  }
  CHECK(explained_blocks > 150);
}

TEST_CASE("names from files cannot steer the terminal, and long ones are folded") {
  Explanation e = explained("nvfp4", "1,2");
  e.file = std::string(200, 'f') + "\x1b[31m";
  e.tensor = std::string(300, 't');
  const std::string text = explanation_text(e);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(longest_line(text) <= 79);
}
