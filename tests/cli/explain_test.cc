// `explain` as a user runs it: both ways to name a block, JSON, errors with their exit codes.
#include <doctest/doctest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

Result explain(std::vector<std::string> args) {
  args.insert(args.begin(), "explain");
  return run(args);
}
std::string ok(const std::vector<std::string>& args) {
  const Result result = explain(args);
  CAPTURE(result.err);
  CHECK(result.code == 0);
  CHECK(result.err == "");
  return result.out;
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
void check_lines(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CHECK_MESSAGE(line.size() <= 79, line);
    CHECK_MESSAGE(!line.ends_with(' '), line);
  }
}

}  // namespace

TEST_CASE("the worked example of spec/nvfp4.md 8, from the command line") {
  const std::string out = ok({"-r", "nvfp4:scale=none", "--values", "6.42,0.27,-1.4,0.85"});
  check_lines(out);
  CHECK(has(out, "UE4M3 RNE: 1.07 -> 0x39 = 1.125"));
  CHECK(has(out, "scale bytes: 39\n"));
  CHECK(has(out, "codes: 07 2a 00 00 00 00 00 00 (low nibble first)"));
  CHECK(has(out, "Filled up with +0 to 16 elements."));
  // Bit patterns name the same numbers.
  const std::string bits =
      ok({"-r", "nvfp4:scale=none", "--values=0x40cd70a4,0x3e8a3d71,0xbfb33333,0x3f59999a"});
  CHECK(bits == out);
}

TEST_CASE("a block of a tensor of the sample, as text and as JSON") {
  const std::string place = kSample + ":layers.1.attn_out.W@3,7";
  const std::string text = ok({place, "-r", "nvfp4:select=mse"});
  check_lines(text);
  CHECK(has(text, "row 3, block 7 (columns 112 to 127)"));
  CHECK(has(text, "map-to-4: scale 0x"));
  CHECK(has(text, ", chosen\n"));
  const json out = json::parse(ok({place, "-r", "nvfp4:select=mse", "--json"}));
  CHECK(out["fp4scope"]["command"][0] == "explain");
  REQUIRE(out["results"].size() == 1);
  const json& block = out["results"][0];
  CHECK(block["file"] == kSample);
  CHECK(block["tensor"] == "layers.1.attn_out.W");
  CHECK(block["dtype"] == "bf16");
  CHECK(block["row"] == 3);
  CHECK(block["block"] == 7);
  CHECK(block["first_col"] == 112);
  CHECK(block["recipe"] == "nvfp4:select=mse");
  REQUIRE(block["candidates"].size() == 2);
  CHECK(block["candidates"][0]["chosen"] != block["candidates"][1]["chosen"]);
  REQUIRE(block["values"].size() == 16);
  for (const json& value : block["values"]) {
    CHECK(value["steps"].size() >= 3);
    CHECK(value["error"].get<double>() ==
          doctest::Approx(value["value"].get<double>() - value["input"].get<double>()));
  }
}

TEST_CASE("explain and quantize agree about a block of the sample") {
  TempDir folder;
  const std::string packed = folder.file("packed.safetensors");
  REQUIRE(run({"quantize", kSample, packed, "-r", "nvfp4"}).code == 0);
  const json block = json::parse(
      ok({kSample + ":layers.1.attn_out.W@9,4", "-r", "nvfp4", "--json"}))["results"][0];
  const std::string bytes = read_file(packed);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const json header = json::parse(bytes.substr(8, length));
  const auto byte = [&](const std::string& name, std::size_t at) {
    const std::size_t first = header[name]["data_offsets"][0];
    return static_cast<unsigned>(static_cast<unsigned char>(bytes[8 + length + first + at]));
  };
  CHECK(block["scale_bytes"][0] == byte("layers.1.attn_out.W.scales", 9 * 32 + 4));
  REQUIRE(block["code_bytes"].size() == 8);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(block["code_bytes"][i] == byte("layers.1.attn_out.W.codes", 9 * 256 + 4 * 8 + i));
  }
}

TEST_CASE("an outer scale from outside, an element of one's choice") {
  const std::string out = ok({"-r", "nvfp4", "--values=-1,2", "--amax", "25.75", "--outer-scale",
                              "0x42d0c7ce", "--element", "1"});
  check_lines(out);
  CHECK(has(out, "element 1, step by step"));
  CHECK(has(out, "0x42d0c7ce"));
  CHECK(has(ok({"-r", "nvfp4:contract=mlx-cpu", "--values", "1.5,-3", "--source-dtype", "bf16"}),
            "as bf16"));
}

TEST_CASE("wrong usage is exit code 2 with a sentence") {
  struct Case {
    std::vector<std::string> args;
    int code;
    const char* message;
  };
  const std::string tensor = kSample + ":layers.1.attn_out.W";
  for (const Case& c : std::vector<Case>{
           {{"-r", "nvfp4"}, 2, "either FILE:TENSOR@ROW,BLOCK or --values"},
           {{tensor + "@0,0", "-r", "nvfp4", "--values", "1"}, 2, "either"},
           {{tensor, "-r", "nvfp4"}, 2, "expected FILE:TENSOR@ROW,BLOCK"},
           {{tensor + "@256,0", "-r", "nvfp4"}, 2, "has the rows 0 to 255"},
           {{tensor + "@0,99", "-r", "nvfp4"}, 2, "has the blocks 0 to 31"},
           {{kSample + ":none@0,0", "-r", "nvfp4"}, 3, "holds no tensor \"none\""},
           {{"-r", "nvfp4", "--values", "1,b"}, 2, "--values 'b'"},
           {{"-r", "nvfp4", "--values", ""}, 2, "--values ''"},
           {{"-r", "nvfp4", "--values", "6.42", "--source-dtype", "bf16"}, 2, "no bf16 number"},
           {{tensor + "@0,0", "-r", "nvfp4", "--source-dtype", "bf16"},
            2,
            "--source-dtype requires"},
           {{"-r", "nvfp4", "--values", "1", "--element", "16"}, 2, "the elements 0 to 15"},
           {{"-r", "mxfp4", "--values", "1", "--amax", "2"}, 2, "has no outer scale"},
           {{"-r", "nvfp4", "--values", "1", "--amax", "x"}, 2, "--amax 'x'"},
           {{"-r", "int4", "--values", "nan"}, 3, "no contract of INT4 groups"},
           {{"--values", "1"}, 2, "--recipe is required"},
           {{"missing.safetensors:x@0,0", "-r", "nvfp4"}, 3, "missing.safetensors"}}) {
    const Result result = explain(c.args);
    CAPTURE(c.message);
    CAPTURE(result.err);
    CHECK(result.code == c.code);
    CHECK(result.out == "");
    CHECK(has(result.err, c.message));
  }
}

TEST_CASE("a format file and a reciprocal table reach the recipe") {
  TempDir folder;
  const std::string path = folder.file("formats.toml");
  write_file(path,
             "[[lut]]\nname = \"quarter\"\nvalues = [-1, -0.5, 0, 0.5]\n\n[[format]]\n"
             "name = \"mine\"\nelement = \"lut:quarter\"\nscales = [{ group = 32, type = "
             "\"bf16\" }]\n");
  const std::string out =
      ok({"-r", "custom:mine", "--format-file", path, "--values", "4,-1,0.1,2"});
  check_lines(out);
  CHECK(has(out, "nearest entry"));
  CHECK(explain({"-r", "nvfp4", "--format-file", path, "--values", "1"}).code == 2);
}
