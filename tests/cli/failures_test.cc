// What goes wrong outside the program: bad files, full disks, closed pipes, Ctrl-C. Nothing is lost
// and nothing half-written stays.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a file that cannot be used is one sentence that names it, and exit code 3") {
  TempDir folder;
  const std::string sample = read_file(source_dir() / kSample);
  write_file(folder.file("cut.safetensors"), sample.substr(0, sample.size() - 1));
  write_file(folder.file("header.safetensors"), sample.substr(0, 100));
  write_file(folder.file("empty.safetensors"), "");
  write_file(folder.file("text.txt"), "this is no tensor file, whatever it is\n");
  std::filesystem::create_directory(folder.path() / "empty_folder");
  for (const char* name : {"missing.safetensors", "cut.safetensors", "header.safetensors",
                           "empty.safetensors", "empty_folder"}) {
    for (const char* command : {"info", "analyze"}) {
      CAPTURE(command);
      CAPTURE(name);
      const Result result = run({command, folder.file(name)});
      CAPTURE(result.err);
      CHECK(result.code == 3);
      CHECK(result.err.starts_with("fp4scope: "));
      CHECK(contains(result.err, name));
      CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    }
  }
  const int unknown = run({"info", folder.file("text.txt")}).code;
  CHECK((unknown == 3 || unknown == 4));
  CHECK(run({"analyze", kSample + ":no.such.tensor"}).code == 3);
  CHECK(run({"info", kSample + ":no.such.tensor"}).code == 3);
  CHECK(run({"quantize", folder.file("cut.safetensors"), folder.file("out"), "-r", "mxfp4"}).code ==
        3);
  CHECK_FALSE(std::filesystem::exists(folder.file("out")));
}

TEST_CASE("with several inputs the good ones are analyzed and the exit code is the worst") {
  TempDir folder;
  write_file(folder.file("bad.npy"), "\x93NUMPY\x01");
  const Result result = run({"analyze", folder.file("bad.npy"), kSample, "-r", "mxfp4", "--json",
                             "--fail-if", "elements>0"});
  CHECK(result.code == 3);
  const json out = json::parse(result.out);
  CHECK(out["results"].size() == 4);
  REQUIRE(out["errors"].size() == 1);
  CHECK(out["errors"][0]["exit_code"] == 3);
  CHECK(contains(out["errors"][0]["file"].get<std::string>(), "bad.npy"));
}

TEST_CASE("a result that standard output does not take is an error, and --out files are whole") {
  for (const Stdout out : {Stdout::kFull, Stdout::kClosedPipe, Stdout::kClosed}) {
    CAPTURE(static_cast<int>(out));
    TempDir folder;
    const Result result =
        run({"analyze", kSample, "-r", "mxfp4", "--out", folder.file("r.json")}, {.out = out});
    CHECK(result.code == 3);
    CHECK(contains(result.err, "standard output"));
    CHECK(json::parse(read_file(folder.file("r.json")))["results"].size() == 4);
    CHECK(run({"formats"}, {.out = out}).code == 3);
    CHECK(run({"--help"}, {.out = out}).code == 3);
    CHECK(run({"--version"}, {.out = out}).code == 3);
  }
}

TEST_CASE("a full disk under --out leaves no file, and the table still appears") {
  TempDir folder;
  write_file(folder.file("old.json"), "precious");
  for (const char* name : {"new.json", "old.json"}) {
    // 16 KiB hold the table on stdout but not the JSON.
    const Result result =
        run({"analyze", kSample, "--out", folder.file(name)}, {.file_limit = 16384});
    CAPTURE(result.err);
    CHECK(result.code == 3);
    CHECK(contains(result.err, name));
    CHECK(contains(result.out, "SQNR"));
    CHECK(contains(result.out, "all, 4 tensors"));
  }
  CHECK(names_in(folder.path()) == std::vector<std::string>{"old.json"});
  CHECK(read_file(folder.file("old.json")) == "precious");
}

TEST_CASE("an --out target that cannot be written is found before the work starts") {
  TempDir folder;
  write_sparse_npy(folder.file("huge.npy"), 1 << 17, 1 << 15);  // 16 GiB: minutes of work
  for (const std::string& target :
       {folder.file("missing/r.json"), folder.path().string() + "/d.csv"}) {
    std::filesystem::create_directory(folder.path() / "d.csv");
    const auto start = std::chrono::steady_clock::now();
    const Result result = run({"analyze", folder.file("huge.npy"), "--backend", "reference",
                               "--threads", "1", "--out", target});
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
    CHECK(result.code == 3);
    CHECK(contains(result.err, target));
  }
}

TEST_CASE("Ctrl-C ends the run soon and leaves no part of a file") {
  TempDir folder;
  write_sparse_npy(folder.file("huge.npy"), 1 << 17, 1 << 15);
  std::filesystem::create_directory(folder.path() / "out");
  const std::vector<std::vector<std::string>> commands = {
      {"analyze", folder.file("huge.npy"), "--backend", "reference", "--threads", "1", "--out",
       folder.file("out/r.json")},
      {"quantize", folder.file("huge.npy"), folder.file("out/q.safetensors"), "-r", "nvfp4",
       "--backend", "reference", "--threads", "1"}};
  for (const auto& command : commands) {
    for (const int signal : {SIGINT, SIGTERM}) {
      CAPTURE(command[0]);
      auto sent = std::chrono::steady_clock::now();
      const Result result = run(command, {.meanwhile = [&](pid_t pid) {
                                  std::this_thread::sleep_for(std::chrono::milliseconds(700));
                                  sent = std::chrono::steady_clock::now();
                                  ::kill(pid, signal);
                                }});
      CAPTURE(result.err);
      CHECK(result.code == 130);
      CHECK(std::chrono::steady_clock::now() - sent < std::chrono::seconds(10));
      CHECK(names_in(folder.path() / "out").empty());
    }
  }
}

TEST_CASE("a second Ctrl-C ends the run at once") {
  TempDir folder;
  // The exact oracle takes about a second for a tile of a million elements, and the first signal
  // alone waits for the end of a tile.
  write_sparse_npy(folder.file("x.npy"), 4096, 1024);
  {
    std::fstream data(folder.file("x.npy"), std::ios::in | std::ios::out | std::ios::binary);
    data.seekp(128);
    std::vector<float> row(1024);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i % 97) * 0.37f;
    for (int r = 0; r < 4096; ++r) {
      data.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(4 * 1024));
    }
  }
  const Result result = run({"quantize", folder.file("x.npy"), folder.file("q.safetensors"), "-r",
                             "hif4", "--backend", "oracle", "--threads", "1"},
                            {.meanwhile = [&](pid_t pid) {
                              std::this_thread::sleep_for(std::chrono::milliseconds(400));
                              ::kill(pid, SIGINT);
                              std::this_thread::sleep_for(std::chrono::milliseconds(50));
                              ::kill(pid, SIGINT);
                            }});
  CHECK(result.code == 130);
  CHECK(result.err == "");  // the orderly end after one signal says that it was interrupted
  CHECK(names_in(folder.path()) == std::vector<std::string>{"x.npy"});
}

TEST_CASE("quantize writes a file that dequantize reads, in fp4scope's own layout") {
  TempDir folder;
  const std::string packed = folder.file("packed.safetensors");
  const std::string values = folder.file("values.safetensors");
  const Result quantized =
      run({"quantize", kSample, packed, "-r", "nvfp4", "--include", "attn_out.X", "--json"});
  CAPTURE(quantized.err);
  REQUIRE(quantized.code == 0);
  const json row = json::parse(quantized.out)["results"][0];
  CHECK(row["tensor"] == "layers.1.attn_out.X");
  CHECK(row["elements"] == 49152);
  // 96 x 512 codes of 4 bits, 96 x 32 scale bytes, amax and outer scale.
  CHECK(row["bytes_out"] == 96 * 512 / 2 + 96 * 32 + 8);

  const json info = json::parse(run({"info", packed, "--json"}).out)["results"];
  const auto shape_of = [&](const std::string& name) -> json {
    for (const json& tensor : info) {
      if (tensor["tensor"] == name) return {tensor["dtype"], tensor["shape"]};
    }
    return nullptr;
  };
  CHECK(shape_of("layers.1.attn_out.X.codes") == json::parse(R"(["u8", [96, 256]])"));
  CHECK(shape_of("layers.1.attn_out.X.scales") == json::parse(R"(["u8", [96, 32]])"));
  CHECK(shape_of("layers.1.attn_out.X.amax") == json::parse(R"(["f32", [1]])"));
  CHECK(shape_of("layers.1.attn_out.X.outer_scale") == json::parse(R"(["f32", [1]])"));

  CHECK(run({"dequantize", packed, values}).code == 0);
  const json back = json::parse(run({"info", values, "--json"}).out)["results"];
  REQUIRE(back.size() == 1);
  CHECK(back[0]["tensor"] == "layers.1.attn_out.X");
  CHECK(back[0]["dtype"] == "f32");
  CHECK(back[0]["shape"] == json({96, 512}));
  CHECK(run({"dequantize", kSample, folder.file("x.safetensors")}).code != 0);
}
