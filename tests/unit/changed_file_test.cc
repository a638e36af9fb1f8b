// changed_file_test.cc: files whose bytes change in place while they are read, with the size that
// they had, give no figures.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "analysis/io/file_identity.h"
#include "analysis/io/scratch.h"
#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"
#include "tests/support/zip_bytes.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

// The last byte gets its own value again: the time alone tells.
void touch_last_byte(const std::string& path) {
  // Longer than a tick of the clock of files.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const auto byte = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(byte);
  REQUIRE(file.flush().good());
}

std::string failure_of(const TensorSource& source) {
  const TensorInfo& tensor = source.tensors().at(0);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(tensor.bytes));
  try {
    source.read_raw(tensor, 0, tensor.rows(), 0, tensor.cols(), bytes.data());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kData);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a file that is written to while it is read is an error of its tensors") {
  const TempDir dir;
  const std::string npy = npy_bytes(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
                                    bytes_of<float>({1.5f, -2.0f}));
  write_file(dir.file("a.npy"), npy);
  write_file(dir.file("stored.npz"), zip_bytes({stored_part("a.npy", npy)}));
  write_file(dir.file("deflated.npz"), zip_bytes({deflated_part("a.npy", npy)}));
  write_file(
      dir.file("1.safetensors"),
      safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678"));
  write_file(dir.file("m.safetensors.index.json"), R"({"weight_map":{"a":"1.safetensors"}})");
  std::filesystem::copy_file(data_dir() / "containers" / "h5_btree_v1.h5", dir.path() / "t.h5");
  const struct {
    const char* opened;
    const char* written;
  } cases[] = {{"a.npy", "a.npy"},
               {"stored.npz", "stored.npz"},
               {"deflated.npz", "deflated.npz"},
               {"1.safetensors", "1.safetensors"},
               {"m.safetensors.index.json", "1.safetensors"},
               {"t.h5", "t.h5"}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.opened));
    const std::string written = dir.file(c.written);
    const auto source = open_source(dir.file(c.opened));
    CHECK(failure_of(*source) == "");
    touch_last_byte(written);
    if (std::string(c.opened) == "deflated.npz") {
      CHECK(failure_of(*source) == "");  // what was unpacked before stays as it was
      const auto again = open_source(written);
      touch_last_byte(written);
      CHECK(failure_of(*again).starts_with(written +
                                           " was written to or touched while it was being read"));
      continue;
    }
    CHECK(
        failure_of(*source) ==
        written +
            " was written to or touched while it was being read; run again when nobody does that");
    CHECK(failure_of(*open_source(dir.file(c.opened))) == "");
  }
}

TEST_CASE("a time of which a network file system cut off a part is no change") {
  CHECK(is_same_time(100, 123456789, 100, 123456789));
  CHECK(is_same_time(100, 123456789, 100, 123456700));
  CHECK(is_same_time(100, 123456789, 100, 123456000));
  CHECK(is_same_time(100, 123456789, 100, 123000000));
  CHECK(is_same_time(100, 123456789, 100, 0));
  CHECK_FALSE(is_same_time(100, 123456789, 101, 123456789));
  CHECK_FALSE(is_same_time(100, 123456789, 101, 0));
  CHECK_FALSE(is_same_time(100, 123456789, 100, 123456790));
  CHECK_FALSE(is_same_time(100, 0, 100, 123456789));
  const TempDir dir;
  const std::string path = dir.file("a.npy");
  write_file(path, npy_bytes(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
                             bytes_of<float>({1.5f, -2.0f})));
  const auto set_time = [&](long nanoseconds) {
    const timespec times[2] = {{1'700'000'000, 0}, {1'700'000'000, nanoseconds}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  };
  set_time(123456789);
  const auto source = open_source(path);
  const auto identity = identify_file(path);
  set_time(0);
  CHECK(failure_of(*source) == "");
  CHECK(is_unchanged(identity, identify_file(path)));
  set_time(5);
  CHECK(failure_of(*source).find("was written to or touched") != std::string::npos);
  CHECK_FALSE(is_unchanged(identity, identify_file(path)));
  CHECK_FALSE(is_unchanged(std::nullopt, std::nullopt));
}

TEST_CASE("the time of a file of its own says nothing") {
  const TempDir dir;
  ScratchFile scratch(dir.path().string(), "x");
  scratch.write("12345678", 8);
  const auto file = scratch.finish("x");
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with(dir.path().string() + "/")) path = entry.path().string();
  }
  REQUIRE(path != "");
  const timespec times[2] = {{1'700'000'000, 0}, {1'700'000'000, 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  CHECK_NOTHROW(file->check());
}

TEST_CASE("a file that is renamed or deleted while it is read can be read to its end") {
  const TempDir dir;
  write_file(dir.file("a.npy"),
             npy_bytes(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
                       bytes_of<float>({1.5f, -2.0f})));
  const auto source = open_source(dir.file("a.npy"));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  std::filesystem::rename(dir.file("a.npy"), dir.file("b.npy"));
  CHECK(failure_of(*source) == "");
  std::filesystem::remove(dir.file("b.npy"));
  CHECK(failure_of(*source) == "");
}
