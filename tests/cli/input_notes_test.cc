// input_notes_test.cc: what the program says of operands and options that do nothing, or something
// else than was meant.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/support/container_bytes.h"

namespace fp4scope::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

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
  CHECK(none.err == "fp4scope: no tensor of the input passes --include and --exclude\n");

  const Result grouped = run({"analyze", tree, "-r", "mxfp4", "--group-by", "rank_(\\d)",
                              "--group-fields", "expert", "--name-pattern", "q(?P<layer>\\d)"});
  CHECK(grouped.code == 0);
  CHECK(contains(grouped.err, "warning: --group-by \"rank_(\\d)\" matches no tensor"));
  CHECK(contains(grouped.err, "rank_0/x.npy, but only names of tensors are looked at"));
  CHECK(contains(grouped.err, "warning: --group-fields expert: no tensor has"));
  CHECK(contains(grouped.err, "warning: --name-pattern \"q(?P<layer>\\d)\" matches no"));
  CHECK(std::count(grouped.err.begin(), grouped.err.end(), '\n') == 3);
  CHECK(contains(run({"info", tree, "--name-pattern", "q(?P<layer>\\d)"}).err, "matches no"));
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
    CHECK(contains(result.err, "read once") == warned);
  };
  rows({file, file}, 1, true);
  rows({file, dir.file("rank_0/link.npy")}, 1, true);
  rows({tree, tree + "/rank_1"}, 2, true);
  rows({tree + "/*/x.npy", tree}, 2, true);
  rows({file, dir.file("rank_1/x.npy")}, 2, false);
  const Result info = run({"info", file, file, "--json"});
  CHECK(json::parse(info.out)["results"].size() == 1);
  CHECK(contains(info.err, "warning: " + file + " is named by more than one operand"));
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
    CHECK(contains(shape.err, "is a npy file by its content"));
    CHECK(run({command, dir.file("x.raw"), "--dtype", "f32", "--shape", "-1"}).err.empty());
  }
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
  write_file(dir.path() / "codes.bin", std::string(32, '\x77'));
  for (const char* option : {"--codes", "--scales"}) {
    const Result result =
        run({"verify", "-r", "mxfp4", "--input", dir.file("x.npy"), option, dir.file("codes.bin")});
    CHECK(result.code == 3);
    CHECK(contains(result.err, option));
    CHECK(contains(result.err, "np.save("));
  }
  write_file(dir.path() / "x.npy.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b", 11));
  const Result gz = run({"analyze", dir.file("x.npy.gz")});
  CHECK(gz.code == 4);
  CHECK(contains(gz.err, "compressed with gzip"));
  CHECK(contains(gz.err, "gunzip -k"));
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
  const std::string csv = read_file(dir.path() / "r.csv");
  CHECK(csv.starts_with("file,tensor,dtype,shape,recipe,recipe_canonical,recipe_full,"));
  CHECK(contains(csv, ",mxfp4:block=32,mxfp4,"));
}

}  // namespace
}  // namespace fp4scope::test
