// fp4scope bench as a user runs it: that it runs and what it says, never how fast it was.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

constexpr const char* kFew = "262144";  // elements: the fewest that bench takes

}  // namespace

TEST_CASE("bench prints bounds and a row for every recipe, dtype, mode, backend and thread count") {
  const Result result = run({"bench", "--elements", kFew, "--repeat", "1", "--threads", "1,2",
                             "--backend", "reference", "-r", "nvfp4", "-r", "mxfp6e2m3", "--dtype",
                             "f32,bf16", "--mode", "stats,fake", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const json report = json::parse(result.out);
  CHECK(report["elements"] == 262144);
  CHECK(report["repeats"] == 1);
  std::set<std::string> bounds;
  for (const json& bound : report["bounds"]) {
    CHECK(bound["gb_s"] > 0);
    bounds.insert(bound["name"].get<std::string>() + std::to_string(bound["threads"].get<int>()));
  }
  CHECK(bounds == std::set<std::string>{"copy1", "copy2", "read1", "read2", "stream1", "stream2"});
  std::map<std::string, int> rows;
  for (const json& row : report["results"]) {
    CHECK(row["seconds"] > 0);
    CHECK(row["ratio"] > 0);
    const double seconds = row["seconds"], bytes = row["bytes"], bound = row["bound_gb_s"];
    CHECK(row["gelem_s"] == doctest::Approx(262144 / seconds / 1e9));
    CHECK(row["gb_s"] == doctest::Approx(bytes / seconds / 1e9));
    CHECK(row["ratio"] == doctest::Approx(bytes / seconds / 1e9 / bound));
    const bool is_recipe = !row["work"].get<std::string>().starts_with("amax");
    CHECK(row["recipe"] == (is_recipe ? row["work"] : json()));
    CHECK(row["backend"] == "reference");
    CHECK(row["elements"] == 262144);
    ++rows[row["work"]];
  }
  // 2 dtypes x 2 thread counts, and 2 modes where there are any.
  CHECK(rows == std::map<std::string, int>{
                    {"amax", 4}, {"amax of rows", 4}, {"mxfp6e2m3", 8}, {"nvfp4", 8}});
  // Bytes that count: 4 or 2 read, 4 written with values.
  for (const json& row : report["results"]) {
    if (row["work"] != "nvfp4") continue;
    const double read = row["dtype"] == "f32" ? 4 : 2;
    const double written = row["mode"] == "fake" ? 4 : 0;
    CHECK(row["bytes"] == 262144 * (read + written));
    CHECK(row["bound"] == (written > 0 ? "stream" : "read"));
  }
}

TEST_CASE("the table of bench says what a ratio is; analyze runs from a file that is removed") {
  TempDir folder;
  ::setenv("TMPDIR", folder.path().c_str(), 1);
  const Result result =
      run({"bench", "--elements", kFew, "--repeat", "1", "--threads", "1", "-r", "hif4", "--dtype",
           "f16", "--mode", "pack", "--analyze", "1048576", "--quiet"});
  ::unsetenv("TMPDIR");
  CAPTURE(result.err);
  CHECK(result.code == 0);
  CHECK(contains(result.out, "analyze, 4 recipes, maps"));
  CHECK(contains(result.out, "ratio: bytes read (and written, where there is output) per second"));
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("bench: input that a recipe refuses, and more memory than there is, are one sentence") {
  const Result refused = run({"bench", "--elements", kFew, "--repeat", "1", "--dtype", "f32",
                              "--mode", "stats", "--threads", "2", "-r", "mxfp4:zero-sign=refuse"});
  CAPTURE(refused.err);
  CHECK(refused.code == 3);
  CHECK(contains(refused.err, "write zero-sign=keep"));
  const Result large = run({"bench", "--elements", "1099511627776"});
  CAPTURE(large.err);
  CHECK(large.code == 3);
  CHECK(contains(large.err, "bytes of memory"));
}

TEST_CASE("rows of bench name the backend that ran") {
  const Result result = run({"bench", "--elements", kFew, "--repeat", "1", "--threads", "1", "-r",
                             "mxfp4", "--dtype", "f32", "--mode", "stats", "--backend",
                             "reference,oracle", "--analyze", "8192", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  std::multiset<std::string> rows;
  const json report = json::parse(result.out);
  for (const json& row : report["results"]) {
    rows.insert(row["work"].get<std::string>() + " " + row["backend"].get<std::string>());
    CHECK(row["input_gb_s"] > 0);
  }
  CHECK(rows == std::multiset<std::string>{
                    "amax reference", "amax of rows reference", "mxfp4 reference", "mxfp4 oracle",
                    "analyze, 4 recipes, maps reference", "analyze, 4 recipes, maps oracle"});
}

TEST_CASE("wrong values of bench are one sentence") {
  for (const auto& [args, want] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--elements", "1000"}, "--elements: expected a multiple of 262144, found 1000"},
           {{"--elements", "4611686018427387904"}, "--elements: expected at most 1099511627776"},
           {{"--repeat", "0"}, "--repeat: expected 1 to 100000"},
           {{"--analyze", "-5"}, "--analyze: expected 0 or at least 8192 bytes, found -5"},
           {{"--analyze", "100"}, "--analyze: expected 0 or at least 8192 bytes, found 100"},
           {{"--threads", "0"}, "--threads: expected 1 to 1024"},
           {{"--backend", "avx1024"}, "avx1024"},
           {{"--dtype", "f64"}, "--dtype: expected f32, bf16 or f16, found f64"},
           {{"--mode", "codes"}, "--mode: expected stats, pack, fake or all, found codes"},
           {{"-r", "nvfp5"}, "nvfp4"},
           {{"-r", "nvfp4:rht=16"}, "recipe nvfp4:rht=16: bench does not run the Hadamard"},
           {{"-r", "mxfp8e4m3", "--mode", "stats,pack"},
            "recipe mxfp8e4m3: has no packed nibbles; expected --mode stats, fake or both"}}) {
    std::vector<std::string> command{"bench"};
    command.insert(command.end(), args.begin(), args.end());
    const Result result = run(command);
    CAPTURE(result.err);
    CHECK(result.code == 2);
    CHECK(contains(result.err, want));
  }
}
