// golden: test vectors of one recipe of each family, as safetensors and JSON, and what goes wrong.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

TEST_CASE("a recipe of each family gets its test vectors") {
  struct Case {
    const char *recipe, *scales, *ties;
  };
  for (const Case& c :
       {Case{"mxfp4", "255 of 256 codes of the scale type; no input gave 0xfe", "14 of 14 pairs"},
        Case{"nvfp4", "127 of 128 codes", "14 of 14 pairs"},
        Case{"hif4", "255 of 256 codes", "14 of 14 pairs"},
        Case{"int4", "different ones", "15 of 15 pairs"},
        Case{"fp8", "different ones", "252 of 252 pairs"}}) {
    CAPTURE(c.recipe);
    TempDir folder;
    const std::string out = folder.file("g.safetensors");
    const Result result = run({"golden", "-r", c.recipe, out});
    CHECK(result.code == 0);
    CHECK(result.err.empty());
    CHECK(contains(result.out, c.scales));
    CHECK(contains(result.out, c.ties));
    CHECK(contains(result.out, "exact backend (oracle)"));
    CHECK(contains(result.out, "wrote " + out));
    CHECK(names_in(folder.path()) == std::vector<std::string>{"g.safetensors"});
    CHECK(std::filesystem::file_size(out) < 2000000);
    // It is a file that the other commands read.
    const Result info = run({"info", out});
    CHECK(info.code == 0);
    CHECK(contains(info.out, "ties.codes"));
  }
}

TEST_CASE("JSON output, type and seed") {
  TempDir folder;
  const std::string out = folder.file("g.json");
  const Result result = run({"golden", "-r", "nvfp4:scale=row", out, "--dtype", "bf16", "--json"});
  REQUIRE(result.code == 0);
  const json report = json::parse(result.out);
  const json& row = report["results"][0];
  CHECK(row["recipe"] == "nvfp4:scale=row");
  CHECK(row["dtype"] == "bf16");
  CHECK(row["ties"] == 14);
  CHECK(row["not_separated_from"].is_array());
  CHECK(row["bytes"] == std::filesystem::file_size(out));
  CHECK(report["out"] == out);
  const json file = json::parse(read_file(out));
  CHECK(file["dtype"] == "bf16");
  CHECK(file["cases"].size() == row["cases"].get<std::size_t>());
  const json& x = file["cases"][0]["x"];
  CHECK(x.size() == file["cases"][0]["rows"].get<std::size_t>());
  CHECK(x[0].get<std::string>().size() == 4 * file["cases"][0]["cols"].get<std::size_t>());
  // The same bytes in the next run.
  const std::string again = folder.file("again.json");
  REQUIRE(run({"golden", "-r", "nvfp4:scale=row", again, "--dtype", "bf16"}).code == 0);
  CHECK(read_file(again) == read_file(out));
}

TEST_CASE("custom formats have goldens too") {
  TempDir folder;
  const Result result = run({"golden", "-r", "custom:e2m1/32:ue5m3", folder.file("g.safetensors")});
  CHECK(result.code == 0);
  CHECK(contains(result.out, "256 codes of the scale type"));
  const Result lut = run({"golden", "-r", "custom:lut:nf4/64:bf16", folder.file("l.json")});
  CHECK(lut.code == 0);
  // The oracle has no elements from a table, and the file says so.
  CHECK(contains(json::parse(read_file(folder.file("l.json")))["made_by"].get<std::string>(),
                 "the exact backend does not have this recipe"));
}

TEST_CASE("errors are one sentence, and nothing is written") {
  TempDir folder;
  struct Case {
    std::vector<std::string> args;
    int code;
    const char* says;
  };
  const std::string out = folder.file("g.safetensors");
  for (const Case& c :
       {Case{{"golden", out}, 2, "--recipe is required"},
        Case{{"golden", "-r", "mxfp4"}, 2, "OUT is required"},
        Case{{"golden", "-r", "mxfp5", out}, 2, "unknown format"},
        Case{{"golden", "-r", "mxfp4", folder.file("g.txt")}, 2, "ends in .safetensors or .json"},
        Case{{"golden", "-r", "mxfp4", out, "--dtype", "f64"}, 2, "--dtype"},
        Case{{"golden", "-r", "mxfp4", folder.file("none/g.json")}, 3, "none"},
        Case{{"golden", "-r", "mxfp4", out, "--rcp-table", folder.file("absent")}, 3, "absent"}}) {
    CAPTURE(c.args);
    const Result result = run(c.args);
    CHECK(result.code == c.code);
    CHECK(contains(result.err, c.says));
    CHECK(result.out.empty());
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("a full disk leaves no file") {
  TempDir folder;
  for (const char* name : {"g.safetensors", "g.json"}) {
    const Result result = run({"golden", "-r", "mxfp4", folder.file(name)}, {.file_limit = 65536});
    CHECK(result.code == 3);
    CHECK(contains(result.err, name));
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("the help documents both forms and its example works") {
  const Result help = run({"golden", "--help"});
  CHECK(help.code == 0);
  CHECK(contains(help.out, "8 digits per binary32"));
  const auto at = help.out.find("Example:\n  fp4scope ");
  REQUIRE(at != std::string::npos);
  const std::string line = help.out.substr(at + 9, help.out.find('\n', at + 9) - at - 9);
  TempDir folder;
  std::filesystem::create_symlink(FP4SCOPE_BINARY, folder.path() / "fp4scope");
  const std::string shell =
      "cd '" + folder.path().string() + "' && PATH=.:$PATH " + line + " >/dev/null";
  CHECK(std::system(shell.c_str()) == 0);
  CHECK(names_in(folder.path()).size() == 2);
}
