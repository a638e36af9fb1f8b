// damaged_test.cc: what every command says of an HDF5 dataset that the library cannot open, because
// it is damaged or from a newer version: its reason, never its dtype.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace fp4scope::test;
using nlohmann::json;

namespace {

// A file with one dataset, "other", whose header is at byte 800 and has bytes of ones here.
void write_damaged(const std::string& path) {
  std::string h5 = read_file(source_dir() / "data/containers/h5_links_target.h5");
  REQUIRE(h5.size() > 900);
  std::fill(h5.begin() + 816, h5.begin() + 900, '\xff');
  write_file(path, h5);
}

}  // namespace

TEST_CASE("a damaged dataset is said with its reason by every command, exit code 3") {
  TempDir folder;
  const std::string h5 = folder.file("a.h5"), x = folder.file("x.npy"),
                    out = folder.file("out.npy");
  const std::string sentence = "fp4scope: " + h5 + ": tensor \"other\" cannot be opened: ";
  write_damaged(h5);
  REQUIRE(run({"gen", x, "--shape", "4x32", "--dtype", "f32"}).code == 0);
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"analyze", h5, "-r", "mxfp4"},
           {"agree", "mxfp4", "nvfp4", h5},
           {"verify", "--input", h5 + ":other", "--codes", x, "--scales", x, "-r", "mxfp4"},
           {"verify", "--input", x, "--codes", h5 + ":other", "--scales", x, "-r", "mxfp4"},
           {"identify", "--input", x, "--codes", h5, "--scales", x},
           {"explain", "-r", "mxfp4", h5 + ":other@0,0"},
           {"gen", out, "--dist", "outlier-channels", "--shape", "4x32", "--profile",
            h5 + ":other"},
           {"quantize", h5, folder.file("out.safetensors"), "-r", "mxfp4"}}) {
    const Result result = run(command);
    CAPTURE(command.front());
    CAPTURE(result.err);
    CHECK(result.code == 3);
    CHECK(contains(result.err, sentence));
    CHECK_FALSE(contains(result.err, "unreadable"));
  }
  CHECK(names_in(folder.path()) == std::vector<std::string>{"a.h5", "x.npy"});
  const json info = json::parse(run({"info", h5, "--json"}).out);
  CHECK(info["totals"]["elements"] == 0);
}

TEST_CASE("the other files of a folder with a damaged dataset are read") {
  TempDir folder;
  write_damaged(folder.file("a.h5"));
  REQUIRE(run({"gen", folder.file("b.npy"), "--shape", "4x32", "--dtype", "f32"}).code == 0);
  const Result result = run({"analyze", folder.path().string(), "-r", "mxfp4", "--json"});
  CHECK(result.code == 3);
  const json report = json::parse(result.out);
  REQUIRE(report["results"].size() == 1);
  CHECK(report["results"][0]["tensor"] == "b");
  REQUIRE(report["errors"].size() == 1);
  CHECK(report["errors"][0]["tensor"] == "other");
}

TEST_CASE("a dataset of a newer library is not supported, with the reason") {
  const Result result = run({"analyze", "data/containers/h5_layout_5.h5:gzip", "-r", "mxfp4"});
  CAPTURE(result.err);
  if (result.code == 0) {
    MESSAGE("not checked: this HDF5 library is new enough to read it");
    return;
  }
  CHECK(result.code == 4);
  CHECK(contains(result.err, "tensor \"gzip\" cannot be opened by HDF5 "));
  CHECK(contains(result.err, "as if a newer version wrote it"));
}
