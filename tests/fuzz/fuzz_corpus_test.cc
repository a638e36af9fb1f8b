// fuzz_corpus_test.cc: the ordinary build runs every committed file of the fuzz targets once, so
// that a finding that came back is seen without clang. A program under test that crashes takes this
// one with it; the name of the file is printed before (doctest -s).
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/error.h"
#include "tests/fuzz/target.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

using namespace fp4scope;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of(const char* folder, std::string_view target) {
  std::vector<std::string> files;
  const fs::path path = test::source_dir() / "tests/fuzz" / folder / target;
  if (!fs::exists(path)) return files;
  for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

// Files of other writers, which are seeds as well (run.sh).
std::vector<std::string> containers_of(std::string_view target) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(test::data_dir() / "containers")) {
    const std::string ending = entry.path().extension().string();
    const bool wanted = (target == "zip" && (ending == ".npz" || ending == ".pt")) ||
                        (target == "pickle" && ending == ".pt") ||
                        (target == "hdf5" && ending == ".h5") ||
                        (ending.size() > 1 && ending.substr(1) == target);
    if (wanted) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("every committed input of the fuzz targets ends in a result or in one sentence") {
  for (const fuzz::Target& target : fuzz::all_targets()) {
    CAPTURE(std::string(target.name));
    const std::vector<std::string> corpus = files_of("corpus", target.name);
    CHECK_FALSE(corpus.empty());
    std::vector<std::string> files = files_of("regressions", target.name);
    const std::vector<std::string> containers = containers_of(target.name);
    files.insert(files.end(), corpus.begin(), corpus.end());
    files.insert(files.end(), containers.begin(), containers.end());
    for (const std::string& file : files) {
      CAPTURE(file);
      INFO(file);
      CHECK_NOTHROW(target.run(test::read_file(file)));
    }
  }
}

TEST_CASE("a target notices what must not happen") {
  CHECK_THROWS_AS(fuzz::require(false, "told"), std::logic_error);
  CHECK(fuzz::accepts([] {}));
  CHECK_FALSE(fuzz::accepts([] { throw Error(ErrorKind::kData, "FILE: one sentence"); }));
  CHECK_THROWS_AS(fuzz::accepts([] { throw Error(ErrorKind::kData, ""); }), std::logic_error);
  CHECK_THROWS_AS(fuzz::accepts([] { throw Error(ErrorKind::kData, "two\nlines"); }),
                  std::logic_error);
  CHECK_THROWS_AS(fuzz::accepts([] { throw Error(ErrorKind::kData, "half \xc3"); }),
                  std::logic_error);
  CHECK_THROWS_AS(fuzz::accepts([] { throw Error(ErrorKind::kData, std::string(9999, 'x')); }),
                  std::logic_error);
  CHECK_THROWS_AS(fuzz::accepts([] { throw std::bad_alloc(); }), std::bad_alloc);
}
