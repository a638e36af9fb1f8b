// fp4scope gen as a user runs it: every distribution, containers, errors, interruption.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

const char* const kDistributions[] = {"normal",  "laplace",          "student-t",  "lognormal",
                                      "uniform", "outlier-channels", "tie-aligned"};

// The data of the only tensor: the last bytes of either container.
std::string data_of(const std::string& path, std::size_t bytes) {
  const std::string all = read_file(path);
  REQUIRE(all.size() > bytes);
  return all.substr(all.size() - bytes);
}

}  // namespace

TEST_CASE("every distribution runs, with the same bytes for --threads 1 and 2") {
  TempDir folder;
  std::vector<std::string> seen;
  for (const std::string dist : kDistributions) {
    CAPTURE(dist);
    std::vector<std::string> args = {
        "gen", folder.file("1.safetensors"), "--dist", dist, "--seed", "7", "--shape", "1100x1024"};
    args.insert(args.end(), {"--threads", "1"});
    const Result one = run(args);
    CHECK(one.code == 0);
    CHECK(one.err.empty());
    CHECK(contains(one.out, "bf16   1100x1024"));
    CHECK(contains(one.out, "distribution " + dist + "; seed 7"));
    args[1] = folder.file("2.safetensors");
    args.back() = std::string("2");
    CHECK(run(args).code == 0);
    const std::string bytes = read_file(folder.file("1.safetensors"));
    CHECK(bytes == read_file(folder.file("2.safetensors")));
    CHECK(std::find(seen.begin(), seen.end(), bytes) == seen.end());
    seen.push_back(bytes);
  }
}

TEST_CASE("the examples of gen --help run") {
  const Result help = run({"gen", "--help"});
  REQUIRE(help.code == 0);
  const auto at = help.out.find("Example:\n");
  REQUIRE(at != std::string::npos);
  TempDir folder;
  std::filesystem::create_symlink(FP4SCOPE_BINARY, folder.path() / "fp4scope");
  std::istringstream lines(help.out.substr(at + 9));
  int examples = 0;
  for (std::string line; std::getline(lines, line) && line.starts_with("  fp4scope ");) {
    ++examples;
    CAPTURE(line);
    const std::string shell =
        "cd '" + folder.path().string() + "' && PATH=.:$PATH " + line + " >/dev/null";
    CHECK(std::system(shell.c_str()) == 0);
  }
  CHECK(examples == 3);
}

TEST_CASE("seeds and names give different numbers, an equal seed the same file") {
  TempDir folder;
  const auto make = [&](const std::string& file, const std::string& seed) {
    CHECK(run({"gen", folder.file(file), "--shape", "16x64", "--dtype", "f32", "--seed", seed})
              .code == 0);
    return read_file(folder.file(file));
  };
  const std::string first = make("a.safetensors", "1");
  CHECK(make("b.safetensors", "1") == first);
  CHECK(make("c.safetensors", "0x1") == first);
  CHECK(make("d.safetensors", "18446744073709551615") != first);
  CHECK(run({"gen", folder.file("two.safetensors"), "--shape", "16x64", "--dtype", "f32", "--seed",
             "1", "--name", "x", "--name", "y"})
            .code == 0);
  const std::string two = data_of(folder.file("two.safetensors"), 2 * 16 * 64 * 4);
  CHECK(two.substr(0, 4096) == first.substr(first.size() - 4096));
  CHECK(two.substr(0, 4096) != two.substr(4096));
}

TEST_CASE("npy and safetensors hold equal data, and JSON gives the hash of analyze") {
  TempDir folder;
  for (const std::string dtype : {"f64", "f32", "f16", "bf16"}) {
    CAPTURE(dtype);
    const std::string npy = folder.file("x.npy"), safetensors = folder.file("x.safetensors");
    const Result a = run({"gen", npy, "--shape", "48x96", "--dtype", dtype, "--json"});
    const Result b = run({"gen", safetensors, "--shape", "48x96", "--dtype", dtype, "--json"});
    REQUIRE(a.code == 0);
    REQUIRE(b.code == 0);
    const json row = json::parse(b.out)["results"][0];
    CHECK(json::parse(a.out)["results"][0]["xxh3"] == row["xxh3"]);
    const auto bytes = row["bytes"].get<std::size_t>();
    CHECK(data_of(npy, bytes) == data_of(safetensors, bytes));
    std::vector<std::string> args = {"analyze", npy, "-r", "mxfp4"};
    if (dtype == "bf16") args.insert(args.end(), {"--dtype", "bf16"});
    const Result analysis = run(args);
    CHECK(analysis.code == 0);
    CHECK(contains(analysis.out, "xxh3 " + row["xxh3"].get<std::string>()));
  }
}

TEST_CASE("tie-aligned output says how many elements are ties") {
  TempDir folder;
  for (const std::string recipe : {"mxfp4", "nvfp4", "hif4", "int4", "fp8"}) {
    CAPTURE(recipe);
    const Result result = run({"gen", folder.file("t.safetensors"), "--dist", "tie-aligned", "-r",
                               recipe, "--shape", "64x512", "--json"});
    REQUIRE(result.code == 0);
    const json out = json::parse(result.out);
    CHECK(out["results"][0]["ties"].get<double>() > 0.3 * 64 * 512);
    CHECK(out["parameters"]["ties_of"].get<std::string>().starts_with(recipe + ":contract="));
  }
}

TEST_CASE("wrong usage is one sentence, exit code 2, and no file") {
  TempDir folder;
  const std::string out = folder.file("x.safetensors");
  struct UsageCase {
    std::vector<std::string> args;
    std::string part;
  };
  for (const UsageCase& c : {
           UsageCase{{out}, "--shape is required"},
           UsageCase{{folder.file("x.bin"), "--shape", "4"}, ".safetensors or .npy"},
           UsageCase{{out, "--shape", "4x"}, "as in 96x512"},
           UsageCase{{out, "--shape", "4x0"}, "as in 96x512"},
           UsageCase{{out, "--shape", "1x2x3x4x5"}, "1 to 4"},
           UsageCase{{out, "--shape", "99999999999999999999"}, "as in 96x512"},
           UsageCase{{out, "--shape", "4000000000x4000000000"}, "2^57"},
           UsageCase{{out, "--shape", "4", "--dist", "gauss"}, "known are normal, laplace"},
           UsageCase{{out, "--shape", "4", "--dtype", "f8"}, "f64, f32, f16 or bf16"},
           UsageCase{{out, "--shape", "4", "--seed", "-1"}, "2^64 - 1"},
           UsageCase{{out, "--shape", "4", "--seed", "99999999999999999999"}, "2^64 - 1"},
           UsageCase{{out, "--shape", "4", "--seed", "1e3"}, "2^64 - 1"},
           UsageCase{{out, "--shape", "4", "--df", "3"}, "--df belongs to --dist student-t"},
           UsageCase{{out, "--shape", "4", "--amax", "3"}, "belongs to --dist tie-aligned"},
           UsageCase{{out, "--shape", "4", "--dist", "student-t", "--df", "0"}, "1 to 100"},
           UsageCase{{out, "--shape", "4", "--scale", "0"}, "positive"},
           UsageCase{{out, "--shape", "4", "--dist", "tie-aligned", "--scale", "2"}, "--amax"},
           UsageCase{{out, "--shape", "4", "--dist", "tie-aligned", "-r", "nope"}, "nope"},
           UsageCase{{out, "--shape", "4", "--dist", "tie-aligned", "-r", "nvfp4:rht=16"},
                     "cannot align ties"},
           UsageCase{{out, "--shape", "4", "--dist", "outlier-channels", "--expected-max", "3"},
                     "without --profile"},
           UsageCase{{folder.file("x.npy"), "--shape", "4", "--name", "y"}, "without a name"},
           UsageCase{{out, "--shape", "400", "--dtype", "f16", "--scale", "60000"},
                     "use a smaller --scale"},
       }) {
    CAPTURE(c.part);
    std::vector<std::string> args = c.args;
    args.insert(args.begin(), std::string("gen"));
    const Result result = run(args);
    CAPTURE(result.err);
    CHECK(result.code == 2);
    CHECK(contains(result.err, c.part));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(names_in(folder.path()).empty());
  }
}

TEST_CASE("a profile is read, refused when it does not fit, and never replaced") {
  TempDir folder;
  const std::string profile = folder.file("p.safetensors");
  REQUIRE(run({"gen", profile, "--dist", "uniform", "--shape", "32", "--dtype", "f32"}).code == 0);
  const std::string before = read_file(profile);
  const std::vector<std::string> args = {"gen",       folder.file("x.safetensors"),
                                         "--dist",    "outlier-channels",
                                         "--shape",   "8x32",
                                         "--profile", profile + ":x"};
  const Result negative = run(args);
  CHECK(negative.code == 3);  // uniform numbers have signs
  CHECK(contains(negative.err, "expected finite values >= 0"));
  std::vector<std::string> same = args;
  same[1] = profile;
  const Result refused = run(same);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "would replace the input file"));
  CHECK(read_file(profile) == before);
  std::vector<std::string> missing = args;
  missing.back() = folder.file("none.safetensors");
  CHECK(run(missing).code == 3);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"p.safetensors"});
}

TEST_CASE("an output that exists is replaced whole; a full disk leaves the old one") {
  TempDir folder;
  const std::string out = folder.file("x.safetensors");
  write_file(out, "old");
  const Result full = run({"gen", out, "--shape", "1024x1024"}, {.file_limit = 1 << 16});
  CHECK(full.code == 3);
  CHECK(contains(full.err, "cannot write " + out));
  CHECK(read_file(out) == "old");
  CHECK(names_in(folder.path()).size() == 1);
  CHECK(run({"gen", out, "--shape", "16x16"}).code == 0);
  CHECK(read_file(out).size() > 512);
}

TEST_CASE("Ctrl-C and SIGTERM leave no part of a file") {
  TempDir folder;
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const std::string name : {"x.safetensors", "x.npy"}) {
      std::vector<std::string> before;
      const Result result = run({"gen", folder.file(name), "--shape", "1000000x4096", "--threads",
                                 "1", "--dist", "student-t", "--df", "100"},
                                {.meanwhile = [&](pid_t pid) {
                                  for (int i = 0; i < 200 && before.empty(); ++i) {
                                    std::this_thread::sleep_for(std::chrono::milliseconds(50));
                                    before = names_in(folder.path());
                                  }
                                  ::kill(pid, signal);
                                }});
      CHECK(before.size() == 1);  // the unfinished file
      CHECK(result.code == 128 + signal);
      CHECK(contains(result.err, "interrupted"));
      CHECK(names_in(folder.path()).empty());
    }
  }
}
