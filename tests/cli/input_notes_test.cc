// input_notes_test.cc: what the program says of operands and options that do nothing, or something
// else than was meant.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/support/container_bytes.h"
#include "tests/support/zip_bytes.h"

namespace fp4scope::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string floats_npy(float value) {
  return npy_bytes(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 32), }\n",
                   bytes_of(std::vector<float>(64, value)));
}

// rank_0/x.npy and rank_1/x.npy, with a tensor "x" each.
void write_tree(const TempDir& dir) {
  for (const char* rank : {"rank_0", "rank_1"}) {
    fs::create_directory(dir.path() / rank);
    write_file(dir.path() / rank / "x.npy", floats_npy(1));
  }
}

TEST_CASE("patterns that match no tensor say what they match instead") {
  const TempDir dir;
  write_tree(dir);
  const std::string tree = dir.path().string();
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"analyze", tree, "-r", "mxfp4", "--include", "rank_1"},
           {"agree", "mxfp4", "nvfp4", tree, "--include", "rank_1"},
           {"info", tree, "--include", "rank_1"}}) {
    CAPTURE(command[0]);
    const Result result = run(command);
    CAPTURE(result.err);
    CHECK(result.code == 2);
    CHECK(contains(result.err, "rank_1/x.npy, but only names of tensors are looked at"));
  }
  const Result none = run({"info", tree, "--include", "zz"});
  CHECK(none.code == 2);
  const std::string nothing = "fp4scope: no tensor of the input passes --include and --exclude\n";
  CHECK(none.err == nothing);
  // Patterns that act on tensors, or leave out, are not at fault for matching files, too.
  for (const std::vector<std::string>& filter :
       std::vector<std::vector<std::string>>{{"--exclude", "x"},
                                             {"--include", "x", "--exclude", "x$"},
                                             {"--include", "zz", "--exclude", "npy"}}) {
    for (std::vector<std::string> command : std::vector<std::vector<std::string>>{
             {"info", tree},
             {"analyze", tree, "-r", "mxfp4"},
             {"agree", "mxfp4", "nvfp4", tree},
             {"quantize", tree, dir.file("q.safetensors"), "-r", "mxfp4"}}) {
      CAPTURE(command[0]);
      command.insert(command.end(), filter.begin(), filter.end());
      const Result result = run(command);
      CHECK(result.code == 2);
      CHECK(result.err == nothing);
    }
  }
  const Result quantized =
      run({"quantize", tree, dir.file("q.safetensors"), "-r", "mxfp4", "--include", "rank_1"});
  CHECK(quantized.code == 2);
  CHECK(contains(quantized.err, "rank_1/x.npy, but only names of tensors are looked at"));
  const Result near =
      run({"quantize", tree + "/rank_0/x.npy:y", dir.file("q.safetensors"), "-r", "mxfp4"});
  CHECK(near.code == 3);
  CHECK(contains(near.err, "holds no tensor \"y\"; it has 1 tensor; near it: \"x\""));

  const Result grouped = run({"analyze", tree, "-r", "mxfp4", "--group-by", "rank_(\\d)",
                              "--group-fields", "expert", "--name-pattern", "q(?P<layer>\\d)"});
  CHECK(grouped.code == 0);
  CHECK(contains(grouped.err, "warning: --group-by \"rank_(\\d)\" matches no tensor"));
  CHECK(contains(grouped.err, "rank_0/x.npy, but only names of tensors are looked at"));
  CHECK(contains(grouped.err, "warning: --group-fields expert: no tensor has"));
  CHECK(contains(grouped.err, "warning: --name-pattern \"q(?P<layer>\\d)\" matches no"));
  CHECK(std::count(grouped.err.begin(), grouped.err.end(), '\n') == 3);
  CHECK(contains(run({"info", tree, "--name-pattern", "q(?P<layer>\\d)"}).err, "matches no"));
  // Who knows what a file that failed is named for?
  const Result failed = run(
      {"analyze", tree, dir.file("none.npy"), "-r", "mxfp4", "--name-pattern", "q(?P<layer>\\d)"});
  CHECK(failed.code == 3);
  CHECK_FALSE(contains(failed.err, "matches no"));
  const Result fits = run({"analyze", tree, "-r", "mxfp4", "--group-by", "x", "--group-fields",
                           "rank", "--name-pattern", "_(?P<layer>\\d)"});
  CHECK(fits.err.empty());

  const Result stars = run({"info", tree + "/**/y.npy"});
  CHECK(stars.code == 3);
  CHECK(contains(stars.err, "** is no pattern here"));
  const Result braces = run({"info", tree + "/{rank_0,rank_1}/x.npy"});
  CHECK(braces.code == 3);
  CHECK(contains(braces.err, "braces are no pattern here"));
}

// A safetensors file with F32 tensors of 32 ones, and `codes`, a U8 tensor of 4 bytes.
std::string model_bytes(const std::vector<std::string>& names) {
  std::string header = R"({"codes":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  std::size_t at = 4;
  for (const std::string& name : names) {
    header += ",\"" + name + R"(":{"dtype":"F32","shape":[32],"data_offsets":[)" +
              std::to_string(at) + ',' + std::to_string(at + 128) + "]}";
    at += 128;
  }
  return safetensors_bytes(header + '}',
                           "abcd" + bytes_of(std::vector<float>(32 * names.size(), 1)));
}

std::vector<std::string> tensors_of(const Result& result) {
  std::vector<std::string> out;
  const json report = json::parse(result.out);
  for (const json& row : report["results"]) out.push_back(row["tensor"]);
  return out;
}

TEST_CASE("a tensor that operands reach in two ways counts once") {
  const TempDir dir;
  const std::string one = dir.file("1.safetensors"),
                    index = dir.file("model.safetensors.index.json");
  write_file(dir.path() / "1.safetensors", model_bytes({"a", "b"}));
  write_file(dir.path() / "2.safetensors", model_bytes({"c"}));
  write_file(dir.path() / "model.safetensors.index.json",
             R"({"weight_map":{"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"}})");
  using Names = std::vector<std::string>;
  const auto check = [&](const Names& operands, const Names& expected, const std::string& warned) {
    for (const char* command : {"analyze", "info"}) {
      Names args = {command};
      args.insert(args.end(), operands.begin(), operands.end());
      args.insert(args.end(), {"--json", "--include", "^[abc]$"});
      if (args[0] == "analyze") args.insert(args.end(), {"-r", "mxfp4"});
      const Result result = run(args);
      CAPTURE(command);
      CHECK(result.code == 0);
      CHECK(tensors_of(result) == expected);
      CHECK(result.err == (warned.empty() ? "" : "fp4scope: warning: " + warned + "\n"));
      const json out = json::parse(result.out);
      if (args[0] == "info") CHECK(out["totals"]["tensors"] == expected.size());
      if (args[0] == "analyze") CHECK(out["aggregates"][0]["tensors"] == expected.size());
    }
  };
  const std::string once = " named more than once by the operands and counted once";
  check({one, one + ":a"}, {"a", "b"}, one + " is" + once);
  check({one + ":b", one}, {"b", "a"}, one + " is" + once);
  check({one + ":a", one + ":b"}, {"a", "b"}, "");
  check({index, one}, {"a", "b", "c"}, one + " is" + once);
  check({dir.file("*")}, {"a", "b", "c"}, one + " and another file are" + once);
  // A section of a container that has nothing new is left out.
  CHECK(json::parse(run({"info", one, one + ":a", "--json"}).out)["sources"].size() == 1);
  // What is left out in passing is still an error where it is asked for.
  const Result codes = run({"analyze", one, one + ":codes", "-r", "mxfp4"});
  CHECK(codes.code == 4);
  CHECK(contains(codes.err, "tensor 'codes': expected F64"));
}

TEST_CASE("an operand is found also where another one reads its file") {
  const TempDir dir;
  write_tree(dir);
  fs::rename(dir.path() / "rank_0" / "x.npy", dir.path() / "rank_0" / "y.npy");
  const std::string tree = dir.path().string();
  for (const auto& operands : std::vector<std::vector<std::string>>{
           {tree + "/rank_1:x", tree + ":x"}, {tree + ":x", tree + "/rank_1:x"}}) {
    const Result info = run({"info", operands[0], operands[1]});
    CHECK(info.code == 0);
    CHECK_FALSE(contains(info.err, "no file of this directory"));
    CHECK(run({"analyze", operands[0], operands[1], "-r", "mxfp4"}).code == 0);
  }
  // The file that is named has to hold the tensor; one of a directory need not.
  for (const char* command : {"info", "analyze"}) {
    const Result named = run({command, tree + ":x", dir.file("rank_0/y.npy") + ":x"});
    CHECK(named.code == 3);
    CHECK(contains(named.err, "y.npy: no tensor is named 'x'; found 1 tensor; near it"));
  }
}

TEST_CASE("a file that two operands name is read once") {
  const TempDir dir;
  write_tree(dir);
  const std::string tree = dir.path().string(), file = dir.file("rank_0/x.npy");
  fs::create_symlink("x.npy", dir.path() / "rank_0" / "link.npy");
  const auto rows = [&](std::vector<std::string> operands, std::size_t expected, bool warned) {
    operands.insert(operands.begin(), "analyze");
    operands.insert(operands.end(), {"-r", "mxfp4", "--json"});
    const Result result = run(operands);
    CAPTURE(result.err);
    CHECK(result.code == 0);
    CHECK(json::parse(result.out)["results"].size() == expected);
    CHECK(contains(result.err, "counted once") == warned);
  };
  rows({file, file}, 1, true);
  rows({file, tree + "/rank_1/../rank_0//./x.npy"}, 1, true);
  // Links to files are files, as tied weights are; links to folders are spellings.
  rows({file, dir.file("rank_0/link.npy")}, 2, false);
  fs::create_directory_symlink("rank_0", dir.path() / "same");
  rows({file, dir.file("same/x.npy")}, 1, true);
  fs::remove(dir.path() / "same");
  fs::remove(dir.path() / "rank_0" / "link.npy");
  rows({tree, tree + "/rank_1"}, 2, true);
  rows({tree + "/*/x.npy", tree}, 2, true);
  rows({file, dir.file("rank_1/x.npy")}, 2, false);
  const Result info = run({"info", file, file, "--json"});
  CHECK(json::parse(info.out)["results"].size() == 1);
  CHECK(contains(info.err, "warning: " + file + " is named more than once"));
}

TEST_CASE("--dtype and --shape that do not fit the file are said so") {
  const TempDir dir;
  write_file(dir.path() / "x.npy", floats_npy(1));
  write_file(dir.path() / "v.npy",
             npy_bytes(1, "{'descr': '|V2', 'fortran_order': False, 'shape': (1, 32), }\n",
                       std::string(64, '\0')));
  write_file(dir.path() / "x.raw", std::string(128, '\0'));
  for (const char* command : {"analyze", "info"}) {
    const Result hint = run({command, dir.file("x.npy"), "--dtype", "bf16"});
    CHECK(hint.code == 0);
    CHECK(contains(hint.err, "warning: --dtype bf16 had no effect"));
    CHECK(run({command, dir.file("x.npy"), dir.file("v.npy"), "--dtype", "bf16"}).err.empty());
    const Result shape = run({command, dir.file("x.npy"), "--dtype", "e4m3", "--shape=-1"});
    CHECK(contains(shape.err, "x.npy is npy by its content; --shape reads all of it"));
    // Who knows what a file that failed needs?
    const Result failed = run({command, dir.file("x.npy"), dir.file("v.npy"), "--dtype", "e4m3"});
    CHECK(failed.code == 4);
    CHECK_FALSE(contains(failed.err, "had no effect"));
    CHECK(run({command, dir.file("x.raw"), "--dtype", "f32", "--shape", "-1"}).err.empty());
  }
  // Where --dtype is no option it is not proposed.
  write_file(dir.path() / "v.npz",
             zip_bytes({stored_part("v.npy", read_file(dir.path() / "v.npy"))}));
  const Result profile = run({"gen", dir.file("g.npy"), "--dist", "outlier-channels", "--shape",
                              "4x32", "--profile", dir.file("v.npz")});
  CAPTURE(profile.err);
  CHECK(contains(profile.err, "found |V2"));
  CHECK_FALSE(contains(profile.err, "--dtype"));
  // Bytes are spelled as info does, whatever the container calls them.
  write_file(dir.path() / "u.npy",
             npy_bytes(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }\n", "abcd"));
  const std::string bytes = run({"analyze", dir.file("u.npy") + ":u"}).err;
  CHECK(contains(bytes, "found dtype u8"));
  CHECK_FALSE(contains(run({"analyze", "--help"}).out, "u8"));
  CHECK(contains(run({"info", "--help"}).out, "u8, i8"));
}

TEST_CASE("codes without a header, and compressed files, get advice") {
  const TempDir dir;
  write_file(dir.path() / "x.npy", floats_npy(1));
  for (const std::string& bytes : {std::string(32, '\x77'), std::string(64, '\0'),
                                   std::string(8, '\x77'), std::string("\2")}) {
    write_file(dir.path() / "codes.bin", bytes);
    for (const char* option : {"--codes", "--scales"}) {
      const Result result = run(
          {"verify", "-r", "mxfp4", "--input", dir.file("x.npy"), option, dir.file("codes.bin")});
      CHECK(result.code == 3);
      CHECK(contains(result.err, option));
      CHECK(contains(result.err, "np.save("));
      CHECK(contains(result.err, "codes.bin\", np.uint8)"));
    }
  }
  write_file(dir.path() / "x.npy.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b", 11));
  const Result gz = run({"analyze", dir.file("x.npy.gz")});
  CHECK(gz.code == 4);
  CHECK(contains(gz.err, "compressed with gzip"));
  CHECK(contains(gz.err, "gzip -dc " + dir.file("x.npy.gz") + " > NEW"));
}

TEST_CASE("agree names the files of several, and what their names say") {
  const TempDir dir;
  write_tree(dir);
  const Result text = run({"agree", "mxfp4", "nvfp4", dir.path().string()});
  CHECK(text.code == 0);
  CHECK(contains(text.out, dir.file("rank_1/x.npy") + ":x, f32 2x32"));
  const Result one = run({"agree", "mxfp4", "nvfp4", dir.file("rank_1/x.npy"), "--json",
                          "--name-pattern", "_(?P<layer>\\d)"});
  const json row = json::parse(one.out)["results"][0];
  CHECK(row["rank"] == 1);
  CHECK(row["layer"] == 1);
  const std::string x = dir.file("rank_1/x.npy");
  REQUIRE(run({"quantize", x, dir.file("q.safetensors"), "-r", "mxfp4"}).code == 0);
  for (const char* command : {"verify", "identify"}) {
    std::vector<std::string> args = {command,
                                     "--input",
                                     x,
                                     "--codes",
                                     dir.file("q.safetensors:x.codes"),
                                     "--scales",
                                     dir.file("q.safetensors:x.scales"),
                                     "--json"};
    if (std::string(command) == "verify") args.insert(args.end(), {"-r", "mxfp4"});
    const json named = json::parse(run(args).out)["results"][0];
    CHECK(named["rank"] == 1);
    CHECK_FALSE(named.contains("layer"));
  }
}

TEST_CASE("a report without --resume says that a journal is left, and CSV has the short recipe") {
  const TempDir dir;
  write_file(dir.path() / "x.npy", floats_npy(1));
  write_file(dir.path() / "r.csv.resume", "left");
  const Result result = run({"analyze", dir.file("x.npy"), "-r", "mxfp4:block=32", "--out",
                             dir.file("r.csv"), "--quiet"});
  CHECK(result.code == 0);
  CHECK(contains(result.err, "r.csv.resume of an earlier run with --resume is still there"));
  CHECK(contains(result.err, "--resume with its settings goes on from there"));
  // Nor is anything said of the file of a run in progress.
  const int held = ::open(dir.file("r.csv.resume").c_str(), O_RDONLY);
  REQUIRE(::flock(held, LOCK_EX | LOCK_NB) == 0);
  CHECK(run({"analyze", dir.file("x.npy"), "-r", "mxfp4", "--out", dir.file("r.csv"), "--quiet"})
            .err.empty());
  ::close(held);
  const std::string csv = read_file(dir.path() / "r.csv");
  CHECK(csv.starts_with("file,tensor,dtype,shape,recipe,recipe_full,"));
  CHECK(contains(csv, ",role,recipe_canonical\r\n"));
  CHECK(csv.ends_with(",mxfp4\r\n"));
}

}  // namespace
}  // namespace fp4scope::test
