// operands_test.cc: dump trees, patterns, raw files and groups by names, through the program.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/cli/process.h"
#include "tests/support/container_bytes.h"

namespace fp4scope::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// 2 x 16 binary32 values, all `value`.
std::string tensor_bytes(const std::string& name, float value) {
  return safetensors_bytes(
      "{\"" + name + R"(":{"dtype":"F32","shape":[2,16],"data_offsets":[0,128]}})",
      bytes_of(std::vector<float>(32, value)));
}
void write(const TempDir& dir, const std::string& name, const std::string& bytes) {
  fs::create_directories((dir.path() / name).parent_path());
  write_file(dir.path() / name, bytes);
}
json run_json(std::vector<std::string> args, int code = 0) {
  args.emplace_back("--json");
  const Result result = run(args);
  CAPTURE(result.err);
  CHECK(result.code == code);
  return json::parse(result.out);
}

TEST_CASE("the rows of a dump tree say layer, step, rank and role, and groups follow them") {
  const TempDir dir;
  for (const char* step : {"2", "10"}) {
    for (const char* layer : {"0", "11"}) {
      write(dir,
            std::string("rank_0/layers.") + layer + ".fc1_activation_iter_" + step + ".safetensors",
            tensor_bytes("high_precision", 1.0f));
    }
  }
  write(dir, "rank_0/embedding.npy.safetensors", tensor_bytes("lm_head", 2.0f));
  const json out = run_json({"analyze", dir.path().string(), "-r", "mxfp4", "--group-fields",
                             "layer", "--group-fields", "step,role"});
  REQUIRE(out["results"].size() == 5);
  const json& row = out["results"][1];  // embedding first, then layers.0 iter_2
  CHECK(row["layer"] == 0);
  CHECK(row["step"] == 2);
  CHECK(row["rank"] == 0);
  CHECK(row["role"] == "activation.high_precision");
  CHECK_FALSE(row.contains("expert"));
  CHECK_FALSE(out["results"][0].contains("layer"));
  CHECK(out["results"][2]["step"] == 10);
  const json& groups = out["aggregates"];
  REQUIRE(groups.size() == 5);  // all, two layers, two steps
  CHECK(groups[0]["tensors"] == 5);
  CHECK(groups[1]["group"] == "layer 0");
  CHECK(groups[1]["layer"] == 0);
  CHECK_FALSE(groups[1].contains("step"));
  CHECK(groups[2]["group"] == "layer 11");
  CHECK(groups[3]["group"] == "step 2, role activation.high_precision");
  CHECK(groups[4]["step"] == 10);
  CHECK(groups[4]["tensors"] == 2);

  const Result csv = run({"analyze", dir.path().string(), "-r", "mxfp4", "--csv"});
  CHECK(contains(csv.out, ",version,git,layer,step,rank,expert,role,recipe_canonical\r\n"));
  CHECK(contains(csv.out, ",11,10,0,,activation.high_precision,"));
  const Result text = run({"info", dir.path().string(), "--verbose"});
  CHECK(contains(text.out, "layer 11, step 10, rank 0, role activation.high_precision"));
  const json info = run_json({"info", dir.path().string(), "--name-pattern",
                              R"(iter_(?P<expert>\d+))", "--include", "high"});
  CHECK(info["results"][0]["expert"] == 2);
  CHECK(info["results"][0]["step"] == 2);

  for (const auto& [option, value, sentence] :
       {std::tuple{"--group-fields", "layers", "'layers' is no field, expected layer, step"},
        std::tuple{"--group-fields", "layer,", "'' is no field"},
        std::tuple{"--name-pattern", "(?P<lay>x)", "has the group 'lay', expected layer, step"}}) {
    const Result bad = run({"analyze", dir.path().string(), option, value});
    CHECK(bad.code == 2);
    CHECK(contains(bad.err, sentence));
  }
}

TEST_CASE("the dumps of other programs open as one data set") {
  const json out = run_json({"info", "data/containers/dumps"});
  CHECK(out["errors"].empty());
  std::vector<std::string> seen;
  for (const json& row : out["results"]) {
    std::string text;
    for (const char* key : {"layer", "step", "rank", "role"}) {
      text += row.contains(key) ? row[key].dump() + ' ' : "- ";
    }
    if (std::find(seen.begin(), seen.end(), text) == seen.end()) seen.push_back(text);
  }
  for (const char* expected :
       {"0 5 0 \"activation.high_precision\" ", "0 5 1 \"activation.high_precision\" ",
        "0 5 0 \"weight.high_precision\" ", "0 10 0 \"gradient.high_precision\" ",
        "0 0 0 \"layer_start__hidden_states\" ", "3 1 0 \"residual\" ", "0 5 0 - ", "- 0 0 - ",
        "0 1 0 - ", "0 5 \"00_000_000\" \"activation\" "}) {
    CAPTURE(expected);
    CHECK(std::find(seen.begin(), seen.end(), expected) != seen.end());
  }
}

TEST_CASE("patterns, several hits of a tensor, and standard input twice") {
  const TempDir dir;
  write(dir, "x2.safetensors", tensor_bytes("w", 1));
  write(dir, "x10.safetensors", tensor_bytes("w", 2));
  const json out = run_json({"analyze", dir.file("x*.safetensors:w"), "-r", "mxfp4"});
  REQUIRE(out["results"].size() == 2);
  CHECK(contains(out["results"][0]["file"].get<std::string>(), "x2.safetensors"));
  const Result none = run({"info", dir.file("y*.npy")});
  CHECK(none.code == 3);
  CHECK(contains(none.err, "no file matches it"));
  CHECK(std::count(none.err.begin(), none.err.end(), '\n') == 1);
  CHECK(run({"analyze", "-", "-"}).code == 2);
  CHECK(run({"info", dir.file("x*") + ":"}).code == 2);
  // Every file of the directory for analyze, one for the commands that compare.
  CHECK(run_json({"info", dir.path().string() + ":w"})["results"].size() == 2);
  const Result missing = run({"analyze", dir.path().string() + ":v"});
  CHECK(missing.code == 3);
  CHECK(contains(missing.err, "no file of this directory that can be read holds a tensor 'v'"));
  for (const auto& args : std::vector<std::vector<std::string>>{
           {"explain", "-r", "mxfp4", dir.path().string() + ":w@0,0"},
           {"verify", "-r", "mxfp4", "--input", dir.path().string() + ":w", "--fake",
            dir.file("x2.safetensors:w")}}) {
    const Result result = run(args);
    CHECK(result.code == 2);
    CHECK(contains(result.err, "x2.safetensors and in "));
    CHECK(contains(result.err, "expected FILE:TENSOR of one file"));
  }
  const Result several =
      run({"quantize", dir.file("x*"), dir.file("out.safetensors"), "-r", "mxfp4"});
  CHECK(several.code == 2);
  CHECK(contains(several.err, "matches 2 files, expected one"));
}

TEST_CASE("raw files through --shape, --dtype and --offset") {
  const TempDir dir;
  // 1, 1.5, -2, 0 as F16, twice, behind a byte; and one more byte.
  const std::string halves("\x00\x3c\x00\x3e\x00\xc0\x00\x00", 8);
  write(dir, "a.raw", halves + halves);
  write(dir, "b.raw", "x" + halves + halves + "y");
  const json row = run_json({"analyze", dir.file("a.raw"), "--shape", "2x4", "--dtype", "f16", "-r",
                             "mxfp4"})["results"][0];
  CHECK(row["tensor"] == "a");
  CHECK(row["dtype"] == "f16");
  CHECK(row["shape"] == json({2, 4}));
  CHECK(row["zeros"] == 2);
  CHECK(run_json({"info", dir.file("a.raw"), "--shape", "4,-1", "--dtype",
                  "u8"})["results"][0]["shape"] == json({4, 4}));
  const std::string place = dir.file("b.raw") + ":b@1,0";
  const std::vector<std::string> raw = {"--shape=2x4", "--dtype", "f16", "--offset", "0x1"};
  std::vector<std::string> args = {"explain", "-r", "mxfp4", place};
  args.insert(args.end(), raw.begin(), raw.end());
  CHECK(run(args).code == 0);
  // What verify suggests carries them.
  write(dir, "zeros.npy",
        npy_bytes(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }\n",
                  std::string(32, '\0')));
  const Result verify =
      run({"verify", "-r", "mxfp4", "--input", dir.file("b.raw"), "--shape", "2x4", "--dtype",
           "f16", "--offset", "1", "--fake", dir.file("zeros.npy")});
  CAPTURE(verify.err);
  CHECK(verify.code == 1);
  CHECK(contains(verify.out, "--dtype f16 --shape=2x4 --offset 1"));
  struct Bad {
    std::vector<std::string> options;
    int code;
    const char* sentence;
  };
  for (const Bad& bad : std::vector<Bad>{
           {{"--shape", "2x4"}, 2, "--shape needs --dtype, one of f64, f32"},
           {{"--dtype", "f16"}, 2, "--dtype f16: expected one of bf16, e4m3"},
           {{"--offset", "1"}, 2, "--offset needs --shape and --dtype"},
           {{"--shape", "2x4", "--dtype", "raw"}, 2, "--dtype raw with --shape"},
           {{"--shape", "2x4", "--dtype", "f17"}, 2, "--dtype f17 with --shape"},
           {{"--shape=2x-4", "--dtype", "f16"}, 2, "a number is negative"},
           {{"--shape=-1x-1", "--dtype", "f16"}, 2, "two numbers are -1"},
           {{"--shape", "2x", "--dtype", "f16"}, 2, "this is no shape"},
           {{"--shape", "2 x4", "--dtype", "f16"}, 2, "this is no shape"},
           {{"--shape", "99999999999999999999", "--dtype", "f16"}, 2, "exceeds 63 bits"},
           {{"--shape", "4294967296x4294967296", "--dtype", "f16"}, 2, "product exceeds 63 bits"},
           {{"--shape", "2x4", "--dtype", "f16", "--offset=-1"}, 2, "expected a number of bytes"},
           {{"--shape", "2x4", "--dtype", "f16", "--offset", "1e3"}, 2, "expected a number"},
           {{"--shape", "2x4", "--dtype", "f16", "--offset", "9223372036854775807"}, 3, "a.raw"},
           {{"--shape", "2x5", "--dtype", "f16"}, 3, "a.raw"},
           {{"--shape", "2x3", "--dtype", "f16"}, 3, "a.raw"},
           {{"--shape", "0x4", "--dtype", "f16"}, 3, "a.raw"},
       }) {
    std::vector<std::string> bad_args = {"info", dir.file("a.raw")};
    bad_args.insert(bad_args.end(), bad.options.begin(), bad.options.end());
    const Result result = run(bad_args);
    CAPTURE(result.err);
    CAPTURE(bad.options.front());
    CHECK(result.code == bad.code);
    CHECK(contains(result.err, bad.sentence));
  }
}

TEST_CASE("verify reads a raw input beside codes and scales in a container") {
  const TempDir dir;
  const Result quantized =
      run({"quantize", kSample, dir.file("q.safetensors"), "-r", "mxfp4", "--include", "f32"});
  REQUIRE(quantized.code == 0);
  // The F32 tensor of the sample, cut out of the file by its own header.
  const std::string bytes = read_file(source_dir() / kSample);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const json header = json::parse(bytes.substr(8, length));
  const auto at = header["layers.1.attn_out.W.f32"]["data_offsets"].get<std::vector<std::size_t>>();
  write_file(dir.path() / "x.bin", bytes.substr(8 + length + at[0], at[1] - at[0]));
  const std::string name = "layers.1.attn_out.W.f32";
  const Result result =
      run({"verify", "-r", "mxfp4", "--input", dir.file("x.bin"), "--shape", "16x512", "--dtype",
           "f32", "--codes", dir.file("q.safetensors") + ":" + name + ".codes", "--scales",
           dir.file("q.safetensors") + ":" + name + ".scales"});
  CAPTURE(result.err);
  CHECK(result.code == 0);
}

TEST_CASE("5000 files need few descriptors") {
  const TempDir dir;
  constexpr int kFiles = 5000;
  fs::create_directory(dir.path() / "d");
  for (int i = 0; i < kFiles; ++i) {
    write_file(dir.path() / "d" / ("iter_" + std::to_string(i) + ".safetensors"),
               tensor_bytes("w", static_cast<float>(i % 7)));
  }
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{256, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);  // inherited by the program
  const Result analyzed =
      run({"analyze", dir.file("d"), "-r", "mxfp4", "--json", "--threads", "2"});
  const Result quantized =
      run({"quantize", dir.file("d") + ":none", dir.file("out.safetensors"), "-r", "mxfp4"});
  const Result info = run({"info", dir.file("d/iter_*.safetensors"), "--json"});
  ::setrlimit(RLIMIT_NOFILE, &before);
  CAPTURE(analyzed.err);
  REQUIRE(analyzed.code == 0);
  const json out = json::parse(analyzed.out);
  CHECK(out["results"].size() == kFiles);
  for (int i = 0; i < kFiles; i += 999)
    CHECK(out["results"][static_cast<std::size_t>(i)]["step"] == i);
  CHECK(out["aggregates"][0]["tensors"] == kFiles);
  CHECK(quantized.code == 3);
  CHECK(contains(quantized.err, "holds no tensor"));
  CHECK(json::parse(info.out)["results"].size() == kFiles);
}

TEST_CASE("tensors of more than 2^31 elements and files of more than 4 GiB are listed and read") {
  const TempDir dir;
  write_sparse_npy(dir.path() / "layers.3_iter_7.npy", 1 << 17, 1 << 15);  // 2^32 elements, 16 GiB
  const json info = run_json({"info", dir.path().string()});
  REQUIRE(info["results"].size() == 1);
  CHECK(info["results"][0]["elements"] == std::int64_t{1} << 32);
  CHECK(info["results"][0]["layer"] == 3);
  const std::string place = dir.file("layers.3_iter_7.npy") + "@131071,1023";
  const Result end = run({"explain", "-r", "mxfp4", place});
  CAPTURE(end.err);
  CHECK(end.code == 0);
  // The last 64 bytes of the same file as a raw one.
  const Result raw = run({"info", dir.file("layers.3_iter_7.npy"), "--shape", "16", "--dtype",
                          "f32", "--offset", "17179869248", "--json"});
  CHECK(raw.code == 0);
}

}  // namespace
}  // namespace fp4scope::test
