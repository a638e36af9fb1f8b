// What goes wrong outside the program: bad files, full disks, closed pipes, outputs that would
// replace inputs. Nothing is lost and nothing half-written stays.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

TEST_CASE(
    "a --format-file that no recipe uses is wrong usage, and one that is used goes with the file") {
  TempDir folder;
  const std::string toml = folder.file("formats.toml");
  std::ofstream(toml) << "[[lut]]\nname = \"signs\"\nvalues = [-1.0, 1.0]\n";
  const std::string sample =
      (data_dir() / "sample" / "use_lite_slice.safetensors").string() + ":layers.1.attn_out.X";
  const Result unused = run({"analyze", sample, "-r", "mxfp4", "--format-file", toml});
  CHECK(unused.code == 2);
  CHECK(unused.err.find("no recipe uses a name of it") != std::string::npos);
  const std::string q = folder.file("q.safetensors"), d = folder.file("d.safetensors");
  CHECK(
      run({"quantize", sample, q, "-r", "custom:lut:signs/16:bf16", "--format-file", toml}).code ==
      0);
  CHECK(run({"dequantize", q, d}).code == 2);
  CHECK(run({"dequantize", q, d, "--format-file", toml}).code == 0);
}

TEST_CASE("FP8 row scales of a transformed tensor") {
  const std::string sample = (data_dir() / "sample" / "use_lite_slice.safetensors").string();
  CHECK(run({"analyze", sample, "-r", "fp8:contract=te,gran=row,rht=16"}).code == 0);
}

TEST_CASE("a --rcp-table that no recipe uses is wrong usage, not ignored") {
  const std::string table = (data_dir() / "rcp" / "rcp_approx_h200.xz").string();
  const std::string sample = (data_dir() / "sample" / "use_lite_slice.safetensors").string();
  const std::string fast = "nvfp4:contract=flashinfer-fast,rcp=user";
  CHECK(run({"analyze", sample, "-r", fast, "-r", "mxfp4", "--rcp-table", table}).code == 0);
  const Result unused = run({"analyze", sample, "-r", "mxfp4", "--rcp-table", table});
  CHECK(unused.code == 2);
  CHECK(unused.err.find("no recipe uses it") != std::string::npos);
  CHECK(
      run({"quantize", sample, "/nonexistent/out.safetensors", "-r", "mxfp4", "--rcp-table", table})
          .code == 2);
}

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
  CHECK(run({"quantize", folder.file("cut.safetensors"), folder.file("out.safetensors"), "-r",
             "mxfp4"})
            .code == 3);
  CHECK_FALSE(std::filesystem::exists(folder.file("out.safetensors")));
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
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
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

TEST_CASE("one output of several that cannot be written takes no other with it") {
  TempDir folder;
  const auto command = [&](const std::string& last) {
    return std::vector<std::string>{"analyze", kSample,
                                    "--out",   folder.file("first.csv"),
                                    "--out",   folder.file("large.json"),
                                    "--out",   folder.file(last)};
  };
  // 16 KiB hold the table and the CSV files but not the JSON.
  const Result result = run(command("last.csv"), {.file_limit = 16384});
  CHECK(result.code == 3);
  CHECK(result.err == "fp4scope: cannot write " + folder.file("large.json") + ": File too large\n");
  CHECK(contains(result.out, "all, 4 tensors"));
  CHECK(names_in(folder.path()).size() == 2);
  const std::string csv = read_file(folder.file("first.csv"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 13);
  CHECK(read_file(folder.file("last.csv")) == csv);
  // Standard output and a file fail: each says so.
  const Result both = run(command("last.csv"), {.out = Stdout::kFull, .file_limit = 16384});
  CHECK(both.code == 3);
  CHECK(std::count(both.err.begin(), both.err.end(), '\n') == 2);
  CHECK(read_file(folder.file("last.csv")) == csv);
}

TEST_CASE("a full disk under quantize leaves no file and says which") {
  TempDir folder;
  const std::string out = folder.file("q.safetensors");
  write_file(out, "precious");
  const Result result = run({"quantize", kSample, out, "-r", "nvfp4"}, {.file_limit = 16384});
  CHECK(result.code == 3);
  CHECK(result.err == "fp4scope: cannot write " + out + ": File too large\n");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"q.safetensors"});
  CHECK(read_file(out) == "precious");
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

TEST_CASE("--out never replaces an input file") {
  TempDir folder;
  const std::string sample = read_file(source_dir() / kSample);
  const std::string index = R"({"weight_map": {"layers.1.attn_out.X": "shard.json",
      "layers.1.attn_out.W": "shard.json", "layers.1.mlp_down.X": "shard.json",
      "layers.1.attn_out.W.f32": "shard.json"}})";
  std::filesystem::create_directory(folder.path() / "set");
  const std::string shard = folder.file("set/shard.json");
  const std::string index_path = folder.file("set/model.safetensors.index.json");
  const auto reset = [&] {
    write_file(shard, sample);
    write_file(index_path, index);
    write_file(folder.file("tensors.json"), sample);
  };
  reset();
  std::filesystem::create_directory(folder.path() / "files");
  write_file(folder.file("files/x.safetensors"), sample);
  std::filesystem::create_symlink(folder.file("files/x.safetensors"), folder.file("link.csv"));
  struct Case {
    const char* name;
    std::string in, out, replaced;
  };
  for (const Case& c : std::vector<Case>{
           {"the file", folder.file("tensors.json"), folder.file("tensors.json"), "tensors.json"},
           {"spelled otherwise", folder.file("tensors.json"), folder.file("set/../tensors.json"),
            "tensors.json"},
           {"a tensor of it", folder.file("tensors.json") + ":layers.1.attn_out.X",
            folder.file("tensors.json"), "tensors.json"},
           {"an index", index_path, index_path, "model.safetensors.index.json"},
           {"a shard of an index", index_path, shard, "shard.json"},
           {"the index of a directory", folder.file("set"), index_path,
            "model.safetensors.index.json"},
           {"a shard of a directory", folder.file("set"), shard, "shard.json"},
           {"a file of a directory, through a link", folder.file("files"), folder.file("link.csv"),
            "x.safetensors"},
       }) {
    CAPTURE(c.name);
    // The second operand is not the one.
    const Result result = run({"analyze", kSample, c.in, "-r", "mxfp4", "--out", c.out});
    CAPTURE(result.err);
    CHECK(result.code == 2);
    CHECK(result.out == "");
    CHECK(result.err.starts_with("fp4scope: --out " + c.out + " would replace the input file "));
    CHECK(result.err.ends_with(c.replaced + "\n"));
    CHECK(read_file(shard) == sample);
    CHECK(read_file(index_path) == index);
    CHECK(read_file(folder.file("tensors.json")) == sample);
    CHECK(read_file(folder.file("files/x.safetensors")) == sample);
    reset();
  }
  // A file beside the inputs is no input: the report of yesterday may be replaced.
  write_file(folder.file("files/old.json"), "{}");
  CHECK(
      run({"analyze", folder.file("files"), "-r", "mxfp4", "--out", folder.file("files/old.json")})
          .code == 0);
  CHECK(json::parse(read_file(folder.file("files/old.json")))["results"].size() == 4);
}

TEST_CASE("info goes on after a bad file of a directory, as analyze does") {
  TempDir folder;
  const std::string sample = read_file(source_dir() / kSample);
  write_file(folder.file("a.safetensors"), sample);
  write_file(folder.file("b.safetensors"), sample.substr(0, 100));
  write_file(folder.file("c.safetensors"), sample);
  write_file(folder.file("d.bin"), "no tensors");
  const Result text = run({"info", folder.path().string()});
  CHECK(text.code == 3);
  CHECK(contains(text.err, "b.safetensors"));
  CHECK(std::count(text.err.begin(), text.err.end(), '\n') == 1);
  const auto first = text.out.find("a.safetensors (safetensors, 541344 bytes, 4 metadata entries)");
  const auto second =
      text.out.find("c.safetensors (safetensors, 541344 bytes, 4 metadata entries)");
  const auto errors = text.out.find("\nerrors\n");
  CHECK(first < second);
  CHECK(second < errors);
  REQUIRE(errors != std::string::npos);
  CHECK(text.out.find("b.safetensors") > errors);
  const auto skipped = text.out.find("\nskipped\n");
  CHECK(second < skipped);
  CHECK(text.out.find("d.bin") > skipped);
  CHECK(contains(text.out, "total: 8 tensors, 524288 elements, 1081344 bytes\n"));

  const Result result = run({"info", folder.path().string(), "--json"});
  CHECK(result.code == 3);
  const json out = json::parse(result.out);
  CHECK(out["results"].size() == 8);
  CHECK(out["sources"].size() == 2);
  REQUIRE(out["errors"].size() == 1);
  CHECK(contains(out["errors"][0]["file"].get<std::string>(), "b.safetensors"));
  CHECK(out["errors"][0]["exit_code"] == 3);
  REQUIRE(out["skipped"].size() == 1);
  CHECK(contains(out["skipped"][0]["file"].get<std::string>(), "d.bin"));
}

TEST_CASE("quantize writes a file that dequantize reads, in fp4scope's own layout") {
  TempDir folder;
  const std::string packed = folder.file("packed.safetensors");
  const std::string values = folder.file("values.safetensors");
  const Result quantized =
      run({"quantize", kSample, packed, "-r", "nvfp4", "--include", "attn_out.X", "--json",
           "--threads", "3", "--backend", "reference"});
  CAPTURE(quantized.err);
  REQUIRE(quantized.code == 0);
  const json row = json::parse(quantized.out)["results"][0];
  CHECK(row["tensor"] == "layers.1.attn_out.X");
  CHECK(row["elements"] == 49152);
  const json document = json::parse(quantized.out);
  CHECK(row["backend"] == "reference");
  CHECK(document["fp4scope"]["threads"] == 3);
  REQUIRE(document["sources"].size() == 1);
  CHECK(document["sources"][0] ==
        json({{"file", kSample}, {"container", "safetensors"}, {"bytes", 541344}}));
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

  const Result dequantized = run({"dequantize", packed, values, "--json", "--threads", "2"});
  REQUIRE(dequantized.code == 0);
  CHECK(json::parse(dequantized.out)["fp4scope"]["threads"] == 2);
  CHECK(json::parse(dequantized.out)["results"][0]["backend"].is_string());
  CHECK(json::parse(dequantized.out)["sources"][0]["file"] == packed);
  CHECK(json::parse(dequantized.out)["sources"][0]["bytes"] == std::filesystem::file_size(packed));
  const json back = json::parse(run({"info", values, "--json"}).out)["results"];
  REQUIRE(back.size() == 1);
  CHECK(back[0]["tensor"] == "layers.1.attn_out.X");
  CHECK(back[0]["dtype"] == "f32");
  CHECK(back[0]["shape"] == json({96, 512}));
  CHECK(run({"dequantize", kSample, folder.file("x.safetensors")}).code != 0);
}
