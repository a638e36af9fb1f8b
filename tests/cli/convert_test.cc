// convert_test.cc: quantize and dequantize of dump trees, what their output may be named, and what
// a killed run leaves.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/support/container_bytes.h"

namespace fp4scope::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A tensor "w" of 2 x 32 binary32 values, all `value`, and a tensor "n" of 2 integers.
std::string file_bytes(float value) {
  return safetensors_bytes(R"({"w":{"dtype":"F32","shape":[2,32],"data_offsets":[0,256]},)"
                           R"("n":{"dtype":"I64","shape":[2],"data_offsets":[256,272]}})",
                           bytes_of(std::vector<float>(64, value)) + std::string(16, '\0'));
}

TEST_CASE("the tensors of a dump tree keep apart by their files through quantize and dequantize") {
  const TempDir dir;
  for (const char* name : {"d/rank_0/x.safetensors", "d/rank_1/x.safetensors"}) {
    fs::create_directories((dir.path() / name).parent_path());
    write_file(dir.path() / name, file_bytes(contains(name, "rank_0") ? 1.0f : 4.0f));
  }
  const std::string packed = dir.file("q.safetensors"), values = dir.file("v.safetensors");
  for (const char* slash : {"", "/"}) {
    const Result quantized = run({"quantize", dir.file("d") + slash, packed, "-r", "mxfp4"});
    CAPTURE(quantized.err);
    REQUIRE(quantized.code == 0);
    CHECK(contains(quantized.out, "rank_1/x.safetensors:w"));
    CHECK(contains(quantized.out, "rank_1/x.safetensors: tensor \"n\": "));
  }
  const Result dequantized = run({"dequantize", packed, values});
  CAPTURE(dequantized.err);
  REQUIRE(dequantized.code == 0);
  // Names as given in the output; one value of each tensor: 1 and 4 are values of the format.
  const json report = json::parse(run({"analyze", values, "-r", "mxfp4", "--json"}).out);
  REQUIRE(report["results"].size() == 2);
  CHECK(report["results"][0]["tensor"] == "rank_0/x.safetensors:w");
  CHECK(report["results"][0]["amax"] == 1.0);
  CHECK(report["results"][1]["tensor"] == "rank_1/x.safetensors:w");
  CHECK(report["results"][1]["amax"] == 4.0);
  CHECK(run({"dequantize", packed + ":rank_1/x.safetensors:w", values}).code == 0);
  // Names that occur once stay as they are.
  REQUIRE(run({"quantize", dir.file("d/rank_0"), packed, "-r", "mxfp4"}).code == 0);
  CHECK(run({"dequantize", packed + ":w", values}).code == 0);
}

TEST_CASE("filters that no tensor passes are wrong usage, a name that is not there is not") {
  const TempDir dir;
  const std::string packed = dir.file("q.safetensors"), out = dir.file("out.safetensors");
  write_file(dir.path() / "x.safetensors", file_bytes(1));
  REQUIRE(run({"quantize", dir.file("x.safetensors"), packed, "-r", "mxfp4"}).code == 0);
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"quantize", dir.file("x.safetensors"), out, "-r", "mxfp4", "--include", "zzz"},
           {"dequantize", packed, out, "--include", "zzz"},
           {"dequantize", packed, out, "--exclude", "w"}}) {
    const Result result = run(command);
    CAPTURE(command.front());
    CHECK(result.code == 2);
    CHECK(contains(result.err, "no tensor of the input passes --include and --exclude"));
  }
  const Result missing = run({"dequantize", packed + ":zzz", out});
  CHECK(missing.code == 3);
  CHECK(contains(missing.err, "holds no quantized tensor \"zzz\""));
  CHECK_FALSE(fs::exists(out));
}

TEST_CASE("quantize and dequantize write safetensors under no other name") {
  const TempDir dir;
  const std::string packed = dir.file("q.safetensors");
  REQUIRE(run({"quantize", kSample, packed, "-r", "mxfp4"}).code == 0);
  for (const char* name : {"out.pt", "out.npz", "out.h5", "out.gguf", "out"}) {
    CAPTURE(name);
    for (const Result& result : {run({"quantize", kSample, dir.file(name), "-r", "mxfp4"}),
                                 run({"dequantize", packed, dir.file(name)}),
                                 run({"gen", dir.file(name), "--shape", "2x32"})}) {
      CHECK(result.code == 2);
      CHECK(contains(result.err, "has to end in .safetensors"));
    }
    CHECK_FALSE(fs::exists(dir.file(name)));
  }
}

TEST_CASE("only tensors of a GGUF file are listed, not the planes of their blocks") {
  const TempDir dir;
  const Result result = run(
      {"quantize", "data/containers/fp4.gguf", dir.file("q.safetensors"), "-r", "mxfp4", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const json out = json::parse(result.out);
  CHECK(out["results"].size() == 4);
  CHECK(out["skipped"].empty());
}

TEST_CASE("what a killed quantize leaves is removed by the next one of the same output") {
  const TempDir dir;
  write_sparse_npy(dir.file("huge.npy"), 1 << 17, 1 << 13);
  write_sparse_npy(dir.file("small.npy"), 2, 32);
  fs::create_directory(dir.path() / "out");
  const std::string out = dir.file("out/q.safetensors");
  const Result killed =
      run({"quantize", dir.file("huge.npy"), out, "-r", "mxfp4", "--threads", "1"},
          {.meanwhile = [&](pid_t pid) {
            for (int i = 0; i < 1000 && names_in(dir.path() / "out").empty(); ++i) {
              std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }
            ::kill(pid, SIGKILL);
          }});
  REQUIRE(killed.code == -SIGKILL);
  const std::vector<std::string> left = names_in(dir.path() / "out");
  REQUIRE(left.size() == 1);
  CHECK(left[0].ends_with(".tmp"));
  REQUIRE(run({"quantize", dir.file("small.npy"), out, "-r", "mxfp4"}).code == 0);
  CHECK(names_in(dir.path() / "out") == std::vector<std::string>{"q.safetensors"});
}

}  // namespace
}  // namespace fp4scope::test
