// container_kinds_test.cc: which reader takes a file whose first bytes look like two containers,
// and which files of a folder are one and the same.
#include <doctest/doctest.h>

#include <filesystem>

#include "analysis/io/container_files.h"
#include "analysis/io/tensor_source.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

using namespace fp4scope;
using fp4scope::test::TempDir;

namespace {

const std::string kHeader = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

std::string one_float(std::size_t header_bytes, float value) {
  std::string header = kHeader;
  header.resize(header_bytes, ' ');
  return test::safetensors_bytes(header, test::bytes_of<float>({value}));
}

}  // namespace

TEST_CASE("a safetensors file is one whatever the length of its header") {
  // 640 is 80 02, with which a pickle of protocol 2 begins; 0x4b50 begins as a zip archive does.
  const TempDir dir;
  for (std::size_t length = 64; length < 2048; length += 8) {
    CAPTURE(length);
    test::write_file(dir.file("x"), one_float(length, 1.5f));
    const auto source = open_source(dir.file("x"));
    CHECK(source->info().container == "safetensors");
    float value = 0;
    source->read_f32(source->tensors().at(0), 0, 1, 0, 1, &value);
    CHECK(value == 1.5f);
  }
}

TEST_CASE("an HDF5 file behind a user block of zeros is an HDF5 file") {
  const TempDir dir;
  std::string bytes = test::read_file((test::data_dir() / "containers/h5_userblock.h5").string());
  std::fill_n(bytes.begin(), 512, '\0');
  test::write_file(dir.file("x.h5"), bytes);
  CHECK(open_source(dir.file("x.h5"))->info().container == "hdf5");
}

TEST_CASE("a shard under several spellings is read once") {
  const TempDir dir;
  test::write_file(
      dir.file("a.safetensors"),
      test::safetensors_bytes(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                              R"("y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                              test::bytes_of<float>({1, 2})));
  test::write_file(dir.file("m.safetensors.index.json"),
                   R"({"weight_map":{"x":"a.safetensors","y":"./a.safetensors"}})");
  const auto source = open_source(dir.file("m.safetensors.index.json"));
  REQUIRE(source->tensors().size() == 2);
  const auto shard =
      static_cast<std::int64_t>(std::filesystem::file_size(dir.file("a.safetensors")));
  CHECK(source->info().bytes == shard);
}

TEST_CASE("a blobs folder that is a link out of the cache opens no way out") {
  const TempDir dir;
  namespace fs = std::filesystem;
  fs::create_directories(dir.path() / "secret");
  fs::create_directories(dir.path() / "cache/snapshots/abc");
  test::write_file(dir.file("secret/w.safetensors"), one_float(64, 1));
  fs::create_symlink("../../blobs/w.safetensors", dir.path() / "cache/snapshots/abc/w.safetensors");
  const std::string snapshot = dir.file("cache/snapshots/abc");
  fs::create_directory_symlink(dir.path() / "secret", dir.path() / "cache/blobs");
  CHECK_FALSE(Fence(snapshot).holds(snapshot + "/w.safetensors"));
  // The folder itself does.
  fs::remove(dir.path() / "cache/blobs");
  fs::rename(dir.path() / "secret", dir.path() / "cache/blobs");
  CHECK(Fence(snapshot).holds(snapshot + "/w.safetensors"));
}
