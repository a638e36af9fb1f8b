// gguf_test.cc: GGUF files as operands: listing with metadata, analyze, and the comparison of the
// codes and scales that llama.cpp's package wrote with the recipe of its contract.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/support/gguf_bytes.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

// values() of data/containers/sample_values.py: multiples of 1/64 in [-16, 16) from splitmix64.
std::vector<float> made_values(std::size_t count, std::uint64_t seed) {
  std::vector<float> out;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t x = (i + seed * (UINT64_C(1) << 20)) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    out.push_back((static_cast<float>(x % 2048) - 1024) / 64);
  }
  return out;
}

std::string npy_of(const std::vector<float>& values, std::size_t rows) {
  const std::string shape = std::to_string(rows) + ", " + std::to_string(values.size() / rows);
  return npy_bytes(
      1, std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (") + shape + ")}\n",
      bytes_of(values));
}

}  // namespace

TEST_CASE("info lists a GGUF file with its metadata, companions only where they are named") {
  const Result text = run({"info", "data/containers/fp4.gguf"});
  CHECK(text.code == 0);
  CHECK(contains(text.out, "fp4.gguf (gguf, 7104 bytes, 2 metadata entries)"));
  CHECK(contains(text.out, "mxfp4     "));
  CHECK(!contains(text.out, "mxfp4.codes"));
  CHECK(contains(text.out, "4 tensors "));
  CHECK(contains(text.out, "NAME.codes and NAME.scales"));
  CHECK(contains(run({"info", "data/containers/fp4.gguf:nvfp4.scales"}).out, "8x32"));

  const json all = json::parse(run({"info", "--json", "data/containers/fp4.gguf"}).out);
  CHECK(all.at("totals").at("tensors") == 4);
  REQUIRE(all.at("results").size() == 8);
  CHECK(all.at("results")[0].at("dtype") == "MXFP4");
  CHECK(all.at("results")[1].at("tensor") == "mxfp4.codes");
  CHECK(all.at("results")[1].at("derived") == true);
  CHECK(!all.at("results")[0].contains("derived"));

  const json one = json::parse(run({"info", "--json", "data/containers/metadata.gguf"}).out);
  const json& metadata = one.at("sources")[0].at("metadata");
  CHECK(metadata.size() == 20);
  CHECK(metadata.at("general.architecture") == "llama");
  CHECK(metadata.at("test.string") == "größe \U0001f642");
  CHECK(metadata.at("test.array.nested") == "array[2]: [1, 2], [3]");
}

TEST_CASE("info shows the metadata of safetensors files too") {
  const TempDir folder;
  const std::filesystem::path path = folder.path() / "x.safetensors";
  write_file(path, safetensors_bytes(R"({"__metadata__":{"format":"pt"}})", ""));
  CHECK(contains(run({"info", path.string()}).out, " bytes, 1 metadata entry)"));
  const json all = json::parse(run({"info", "--json", path.string()}).out);
  CHECK(all.at("sources")[0].at("metadata") == json{{"format", "pt"}});
}

TEST_CASE("verify compares MXFP4 blocks of the gguf package with ggml's contract") {
  const TempDir folder;
  const std::filesystem::path x = folder.path() / "x.npy";
  write_file(x, npy_of(made_values(512, 704), 2));
  const std::string tensor = "data/containers/types.gguf:quantized.MXFP4";
  const std::vector<std::string> job = {"verify",          "--input",  x.string(),        "--codes",
                                        tensor + ".codes", "--scales", tensor + ".scales"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> args = job;
    args.insert(args.end(), more);
    return run(args);
  };
  const Result equal = with({"-r", "mxfp4:contract=ggml-cpu"});
  CHECK(equal.code == 0);
  CHECK(contains(equal.out, ": equal"));
  const Result decoded =
      run({"verify", "--input", x.string(), "--fake", tensor, "-r", "mxfp4:contract=ggml-cpu"});
  CHECK(decoded.code == 0);
  // ggml rounds ties toward zero, this contract to even.
  const Result other = with({"-r", "mxfp4:contract=ocp-floor-rne"});
  CHECK(other.code == 1);
  CHECK(contains(other.out, "differ"));
}

TEST_CASE("verify finds the one wrong code of a block") {
  // Scales 2^-2, 2^0 and 2^3; each block holds its largest code, so that floor(log2(amax)) - 2 is
  // its exponent. Element j is byte j's low nibble, element j + 16 its high one.
  const float e2m1[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  const float scales[3] = {0.25f, 1.0f, 8.0f};
  std::string blocks;
  std::vector<float> values;
  for (int b = 0; b < 3; ++b) {
    blocks += "\x7D\x7F\x82"[b];
    for (int j = 0; j < 16; ++j) blocks += static_cast<char>((j % 8) | (7 - j % 8) << 4);
    for (int i = 0; i < 32; ++i) values.push_back(scales[b] * e2m1[i < 16 ? i % 8 : 7 - i % 8]);
  }
  const TempDir folder;
  const std::filesystem::path x = folder.path() / "x.npy", f = folder.path() / "f.gguf";
  write_file(x, npy_of(values, 1));
  const auto verify = [&](const std::string& codes) {
    return run({"verify", "--input", x.string(), "--codes", f.string() + ":" + codes, "--scales",
                f.string() + ":w.scales", "-r", "mxfp4:contract=ggml-cpu"});
  };
  GgufBytes b;
  b.tensor("w", {96}, kGgmlMxfp4, 0);
  write_file(f, b.file(blocks));
  CHECK(verify("w.codes").code == 0);

  blocks[17 + 1 + 3] ^= 0x10;  // element 19 of block 1
  write_file(f, b.file(blocks));
  const Result wrong = verify("w.codes");
  CHECK(wrong.code == 1);
  CHECK(contains(wrong.out, "row 0, block 1 (columns 32-63)"));
  CHECK(contains(wrong.out, "element 19: x 2 "));

  const Result decoded = verify("w");
  CHECK(decoded.code == 3);
  CHECK(contains(decoded.err,
                 "tensor \"w\" is read as the numbers of its MXFP4 blocks, expected "
                 "stored codes or scales; name \"w.codes\" or \"w.scales\""));
}

TEST_CASE("analyze takes decoded tensors and leaves the others out by name") {
  const Result all = run({"analyze", "data/containers/types.gguf", "-r", "mxfp4", "--json"});
  CHECK(all.code == 0);
  const json report = json::parse(all.out);
  CHECK(report.at("results").size() == 15);
  CHECK(report.at("skipped").size() == 2);  // TQ1_0 and TQ2_0
  const Result one = run({"analyze", "data/containers/types.gguf:quantized.TQ1_0", "-r", "mxfp4"});
  CHECK(one.code == 4);
  CHECK(contains(one.err, "found dtype TQ1_0"));
}
