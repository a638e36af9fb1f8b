// HDF5 files of h5py and of others: names, types and shapes of expected.json, which h5py wrote, and
// the XXH3-64 of the elements as h5py reads them.
#include <doctest/doctest.h>
#include <xxhash.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

using namespace fp4scope;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Datasets that h5py reads and this program refuses, with what the sentence has to name.
struct Refused {
  const char* file;
  const char* tensor;
  const char* names;
};
const Refused kRefused[] = {
    {"containers/h5_external.h5", "outside", "another file"},
    {"containers/h5_virtual.h5", "joined", "virtual dataset"},
};

std::string number_hash(const TensorSource& source, const TensorInfo& tensor) {
  std::string bytes(static_cast<std::size_t>(tensor.bytes), '\0');
  source.read_raw(tensor, 0, tensor.rows(), 0, tensor.cols(), bytes.data());
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return text;
}

// A filter without a plug-in here is a refusal that names it; the sentence, or "".
std::string missing_filter(const TensorSource& source, const TensorInfo& tensor) {
  std::string bytes(static_cast<std::size_t>(tensor.bytes), '\0');
  try {
    source.read_raw(tensor, 0, tensor.rows(), 0, tensor.cols(), bytes.data());
  } catch (const Error& e) {
    const std::string what = e.what();
    if (e.kind() == ErrorKind::kUnsupported && what.find("filter") != std::string::npos) {
      return what;
    }
    throw;
  }
  return "";
}

// HDF5 2.0 writes filtered chunks in a new layout when it is asked for the latest, which 1.10 does
// not know: refused with a sentence that says so.
void check_newer(const TensorSource& source, const TensorInfo& tensor) {
  unsigned char element = 0;
  try {
    source.read_raw(tensor, 0, 1, 0, 1, &element);
    FAIL_CHECK("was read");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::kUnsupported);
    CHECK(std::string(e.what()).find("newer version") != std::string::npos);
  }
}

void check_rows(const fs::path& folder, const std::string& prefix) {
  const json expected = json::parse(test::read_file(test::data_dir() / "containers/expected.json"));
  std::map<std::string, std::map<std::string, json>> files;
  for (const json& row : expected["rows"]) {
    const std::string file = row["file"];
    const std::string ending = fs::path(file).extension().string();
    if (!file.starts_with(prefix) || (ending != ".h5" && ending != ".hdf5")) continue;
    files[file][row["tensor"]] = row;
  }
  std::map<std::string, std::set<std::string>> refused;
  for (const json& row : expected["refused"]) {
    if (!row["tensor"].is_null()) refused[row["file"]].insert(row["tensor"].get<std::string>());
  }
  REQUIRE(!files.empty());
  int unreadable = 0, newer = 0;
  for (const auto& [file, rows] : files) {
    CAPTURE(file);
    const auto source = open_source((folder / fs::path(file).filename()).string());
    CHECK(source->info().container == "hdf5");
    std::set<std::string> names;
    for (const TensorInfo& tensor : source->tensors()) {
      CAPTURE(tensor.name);
      CHECK(names.insert(tensor.name).second);
      if (refused[file].count(tensor.name) != 0) continue;
      const auto found = rows.find(tensor.name);
      REQUIRE(found != rows.end());
      const json& row = found->second;
      if (shown_dtype(tensor) == "unreadable") {
        check_newer(*source, tensor);
        ++newer;
        continue;
      }
      CHECK(shown_dtype(tensor) == row["dtype"]);
      CHECK(json(tensor.shape) == row["shape"]);
      const auto known = std::find_if(
          std::begin(kRefused), std::end(kRefused),
          [&, name = tensor.name](const Refused& r) { return file == r.file && name == r.tensor; });
      if (known != std::end(kRefused)) {
        try {
          (void)number_hash(*source, tensor);
          FAIL_CHECK("was read");
        } catch (const Error& e) {
          CHECK(e.kind() == ErrorKind::kUnsupported);
          CHECK(std::string(e.what()).find(known->names) != std::string::npos);
        }
        continue;
      }
      if (const std::string sentence = missing_filter(*source, tensor); !sentence.empty()) {
        std::printf("not read here: %s\n", sentence.c_str());
        ++unreadable;
        continue;
      }
      CHECK(number_hash(*source, tensor) == row["xxh3"]);
    }
    for (const auto& [name, row] : rows) {
      CAPTURE(name);
      CHECK(names.count(name) == 1);
    }
  }
  std::printf("%zu files; %d datasets need filters that are not here, %d a newer library\n",
              files.size(), unreadable, newer);
}

}  // namespace

TEST_CASE("HDF5 files of h5py read as h5py reads them") {
  check_rows(test::data_dir() / "containers", "containers/");
}

TEST_CASE("HDF5 files of other writers read as h5py reads them") {
  if (!test::have_shared("tensors/formats")) return;
  check_rows(test::shared_dir() / "tensors/formats", "formats/");
}
