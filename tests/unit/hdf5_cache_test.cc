// What is kept of the chunks of HDF5 datasets: within OpenDataset, and as a copy in a scratch file
// for those that are read against the order of their chunks.
#include <doctest/doctest.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <filesystem>

#include "analysis/io/hdf5_dataset.h"
#include "analysis/io/scratch.h"
#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/paths.h"

using namespace fp4scope;
using test::counted;
using test::Hdf5File;
namespace fs = std::filesystem;

namespace {

Hid gzip(const std::vector<hsize_t>& chunk) {
  Hid properties = Hdf5File::chunked(chunk);
  H5Pset_deflate(properties.get(), 1);
  return properties;
}

// Open files without a name that lie in the folder.
std::size_t scratch_files(const std::string& folder) {
  std::size_t found = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    found += target.starts_with(folder + "/") && target.ends_with(" (deleted)") ? 1u : 0u;
  }
  return found;
}

}  // namespace

TEST_CASE("the chunks of a band are unpacked once, however its rows are read") {
  const test::TempDir folder;
  const std::string path = folder.file("t.h5");
  // 4 bands of 8 rows, each of 5 chunks of 8 x 16 numbers.
  const std::vector<float> values =
      Hdf5File(path).write_counted("x", H5T_IEEE_F32LE, {32, 80}, gzip({8, 16}));
  const Hid file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  OpenDataset dataset(file.get(), "x", static_cast<std::int64_t>(fs::file_size(path)));
  CHECK(dataset.columns_at_once() == 80);
  std::vector<float> row(80);
  constexpr std::int64_t kChunk = 8 * 16 * 4;
  for (std::int64_t r = 0; r < 32; ++r) {
    Hdf5Request request;
    request.row = r;
    request.rows = 1;
    // Two halves, which share the chunk in the middle.
    for (const std::int64_t col : {0, 40}) {
      request.col = col;
      request.cols = 40;
      REQUIRE(dataset.read(request, reinterpret_cast<unsigned char*>(row.data() + col)) == "");
    }
    CHECK(std::equal(row.begin(), row.end(), values.begin() + r * 80));
    CHECK(dataset.unpacked_bytes() == (r < 8 ? 1 : r < 16 ? 2 : r < 24 ? 3 : 4) * 5 * kChunk);
  }
  // Down a column, every band is needed, and the cache holds one.
  Hdf5Request column;
  column.rows = 32;
  column.cols = 1;
  for (int again = 1; again <= 2; ++again) {
    const std::int64_t before = dataset.unpacked_bytes();
    REQUIRE(dataset.read(column, reinterpret_cast<unsigned char*>(row.data())) == "");
    CHECK(row[31] == 31 * 80);
    // The first of them displaces the first chunk of the last band; then all four stay.
    CHECK(dataset.unpacked_bytes() == before + (again == 1 ? 4 : 0) * kChunk);
  }
}

TEST_CASE("a dataset that is read across its chunks is unpacked into a scratch file, once") {
  const test::TempDir folder, scratch;
  const std::string path = folder.file("t.h5");
  constexpr hsize_t kRows = 1024, kCols = 512;
  const std::vector<float> values = counted(kRows * kCols);
  {
    Hdf5File file(path);
    // Chunks of one row: a column needs all of them, 2 MiB, and the cache holds one.
    file.write("x", H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, {kRows, kCols}, values, gzip({1, kCols}));
    file.write("bands", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {kRows, kCols}, values, gzip({64, 64}));
    file.write("deep", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {16, 64, kCols}, values,
               gzip({1, 16, 100}));
  }
  OpenOptions options;
  options.scratch_folder = scratch.path().string();
  const auto read_columns = [&](const TensorSource& source, std::size_t tensor) {
    std::vector<float> column(kRows);
    for (std::int64_t c = 0; c < static_cast<std::int64_t>(kCols); ++c) {
      source.read_f32(source.tensors()[tensor], 0, kRows, c, 1, column.data());
      for (std::size_t r = 0; r < kRows; ++r) {
        REQUIRE(column[r] == values[r * kCols + static_cast<std::size_t>(c)]);
      }
    }
  };
  const auto source = open_source(path, options);
  REQUIRE(source->tensors().size() == 3);
  for (std::size_t tensor = 0; tensor < 3; ++tensor) {
    CAPTURE(source->tensors()[tensor].name);
    read_columns(*source, tensor);
    CHECK(scratch_files(options.scratch_folder) == 1);
  }
  // Rows in order need none.
  const auto ordered = open_source(path, options);
  std::vector<float> row(kCols);
  for (int pass = 0; pass < 3; ++pass) {
    for (const TensorInfo& tensor : ordered->tensors()) {
      for (std::int64_t r = 0; r < tensor.rows(); ++r) {
        ordered->read_f32(tensor, r, 1, 0, tensor.cols(), row.data());
      }
    }
  }
  CHECK(scratch_files(options.scratch_folder) == 1);  // that of `source`
}

TEST_CASE("without room for the copy it is read from its chunks all the same") {
  const test::TempDir folder, writable;
  const std::string path = folder.file("t.h5");
  const std::vector<float> values =
      Hdf5File(path).write_counted("x", H5T_IEEE_F32LE, {1024, 512}, gzip({1, 512}));
  for (const bool has_room : {true, false}) {
    OpenOptions options;
    options.scratch_folder = has_room ? writable.path().string() : folder.file("nowhere");
    const auto source = open_source(path, options);
    std::vector<float> column(1024);
    for (std::size_t c = 0; c < 60; ++c) {
      source->read_f32(source->tensors()[0], 0, 1024, static_cast<std::int64_t>(c), 1,
                       column.data());
      for (std::size_t r = 0; r < 1024; ++r) REQUIRE(column[r] == values[r * 512 + c]);
    }
    // 60 columns are enough for a copy where there is room.
    CHECK(scratch_files(writable.path().string()) == (has_room ? 1 : 0));
  }
}

TEST_CASE("a copy stays while there is no room for that of another dataset") {
  const test::TempDir folder;
  const std::string path = folder.file("t.h5"), scratch = folder.file("scratch");
  {
    Hdf5File file(path);
    file.write_counted("x", H5T_IEEE_F32LE, {1024, 512}, gzip({1, 512}));
    file.write_counted("y", H5T_IEEE_F32LE, {1024, 512}, gzip({1, 512}));
  }
  fs::create_directory(scratch);
  OpenOptions options;
  options.scratch_folder = scratch;
  const auto source = open_source(path, options);
  std::vector<float> column(1024);
  for (const std::size_t tensor : {0u, 1u}) {
    for (std::int64_t c = 0; c < 60; ++c) {
      source->read_f32(source->tensors()[tensor], 0, 1024, c, 1, column.data());
    }
    CHECK(scratch_files(scratch) == 1);
    fs::remove(scratch);  // the file in it has no name
  }
}

TEST_CASE("a copy takes half of what is free, and little of the memory") {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  struct statfs status {};
  const std::string disk = test::source_dir().string();
  REQUIRE(::statfs(disk.c_str(), &status) == 0);
  const bool disk_is_memory = status.f_type == TMPFS_MAGIC;
  const bool has_memory = ::statfs("/dev/shm", &status) == 0 && status.f_type == TMPFS_MAGIC &&
                          static_cast<std::int64_t>(status.f_bavail) > 1024 * kMiB / status.f_bsize;
  if (disk_is_memory || !has_memory) {
    test::skip("needs a disk below the repository and a free GiB in a tmpfs /dev/shm");
    return;
  }
  CHECK(has_scratch_room("/dev/shm", 256 * kMiB, 0));
  CHECK_FALSE(has_scratch_room("/dev/shm", 256 * kMiB + 1, 0));
  const auto free = static_cast<std::int64_t>(fs::space(disk).available);
  CHECK(has_scratch_room(disk, free / 4, 0));
  CHECK_FALSE(has_scratch_room(disk, free / 4 * 3, 0));
  CHECK(has_scratch_room(disk, free / 4 * 3, free));
  CHECK_FALSE(has_scratch_room(disk + "/nowhere", 1, 0));
}

TEST_CASE("reasons of the HDF5 library are told without the names of its code") {
  CHECK(hdf5_reason("truncated file: eof = 8580, sblock->base_addr = 512, stored_eof = 17160") ==
        "the file has 9092 bytes, its header says 17160 (truncated?)");
  CHECK(hdf5_reason("unable to load object header") ==
        "the HDF5 library could not load object header");
  CHECK(hdf5_reason("H5Z_FLAG_MANDATORY: no such filter") ==
        "the HDF5 library gives no reason in plain words");
  CHECK(hdf5_reason("wrong B-tree signature") == "wrong B-tree signature");
  CHECK(hdf5_reason("") == "the HDF5 library gives no reason");
}
