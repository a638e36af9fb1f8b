// Rectangles of HDF5 datasets of every layout, against values that are their own index; and what
// damaged chunks, absurd sizes and links in circles become.
#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/paths.h"

using namespace fp4scope;
using test::counted;
using test::Hdf5File;

namespace {

const TensorInfo& named(const TensorSource& source, const std::string& name) {
  for (const TensorInfo& tensor : source.tensors()) {
    if (tensor.name == name) return tensor;
  }
  FAIL("no tensor " << name);
  return source.tensors().front();
}

struct Failure {
  ErrorKind kind = ErrorKind::kUsage;
  std::string text;
};
Failure failure_of(const TensorSource& source, const std::string& name) {
  const TensorInfo& tensor = named(source, name);
  try {
    std::vector<unsigned char> element(1 << 16);
    source.read_raw(tensor, 0, 1, 0, 1, element.data());
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  }
  return {};
}

Hid gzip_shuffle(const std::vector<hsize_t>& chunk) {
  Hid properties = Hdf5File::chunked(chunk);
  H5Pset_shuffle(properties.get());
  H5Pset_deflate(properties.get(), 6);
  return properties;
}

}  // namespace

TEST_CASE("rectangles over the edges of chunks hold what the whole tensor holds") {
  const test::TempDir folder;
  const std::string path = folder.file("t.h5");
  const std::vector<hsize_t> shape = {3, 5, 7};
  const std::vector<float> values = counted(3 * 5 * 7);
  const hsize_t inner[] = {5, 7}, pair[] = {7};
  const Hid array2(H5Tarray_create2(H5T_IEEE_F32LE, 2, inner));
  const Hid array1(H5Tarray_create2(H5T_IEEE_F32BE, 1, pair));
  const Hid memory2(H5Tarray_create2(H5T_NATIVE_FLOAT, 2, inner));
  const Hid memory1(H5Tarray_create2(H5T_NATIVE_FLOAT, 1, pair));
  {
    Hdf5File file(path);
    const hid_t f = H5T_NATIVE_FLOAT;
    file.write("contiguous", H5T_IEEE_F32LE, f, shape, values);
    file.write("big_endian", H5T_IEEE_F32BE, f, shape, values);
    file.write("chunked", H5T_IEEE_F32LE, f, shape, values, Hdf5File::chunked({2, 2, 3}));
    file.write("gzip", H5T_IEEE_F32LE, f, shape, values, gzip_shuffle({2, 4, 3}));
    file.write("gzip_big", H5T_IEEE_F32BE, f, shape, values, gzip_shuffle({1, 4, 7}));
    file.write("binary64", H5T_IEEE_F64LE, f, shape, values, gzip_shuffle({3, 1, 2}));
    Hid scale_offset = Hdf5File::chunked({2, 2, 3});  // by the library, not by this program
    H5Pset_scaleoffset(scale_offset.get(), H5Z_SO_FLOAT_DSCALE, 1);
    file.write("library", H5T_IEEE_F32LE, f, shape, values, scale_offset);
    file.write("arrays", array2.get(), memory2.get(), {3}, values);
    file.write("arrays_big", array1.get(), memory1.get(), {3, 5}, values);
  }
  const auto source = open_source(path);
  CHECK(source->tensors().size() == 9);
  for (const TensorInfo& tensor : source->tensors()) {
    CAPTURE(tensor.name);
    REQUIRE(tensor.shape == std::vector<std::int64_t>{3, 5, 7});
    for (std::int64_t row = 0; row < 15; ++row) {
      for (std::int64_t rows = 1; row + rows <= 15; ++rows) {
        for (const auto& [col, cols] : {std::pair<std::int64_t, std::int64_t>{0, 7}, {2, 3}}) {
          std::vector<float> want;
          for (std::int64_t r = row; r < row + rows; ++r) {
            for (std::int64_t c = col; c < col + cols; ++c) {
              want.push_back(static_cast<float>(7 * r + c));
            }
          }
          std::vector<double> wide(want.size());
          source->read_f64(tensor, row, rows, col, cols, wide.data());
          if (!std::equal(want.begin(), want.end(), wide.begin())) {
            FAIL_CHECK("rows " << row << " + " << rows << ", columns " << col << " + " << cols);
          }
          if (tensor.dtype == DType::kF64) continue;
          std::vector<float> got(want.size());
          source->read_f32(tensor, row, rows, col, cols, got.data());
          if (got != want) FAIL_CHECK("f32, rows " << row << " + " << rows);
        }
      }
    }
    float nothing = 0;
    source->read_raw(tensor, 15, 0, 0, 7, &nothing);
    CHECK_THROWS_AS(source->read_raw(tensor, 0, 16, 0, 7, &nothing), Error);
  }
}

TEST_CASE("chunks over the end that went through no filter") {
  const test::TempDir folder;
  const std::string path = folder.file("t.h5");
  const std::vector<float> values = counted(24 * 33);
  {
    const Hid access(H5Pcreate(H5P_FILE_ACCESS));
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
    const Hid file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()));
    const Hid space(H5Screate_simple(2, std::vector<hsize_t>{24, 33}.data(), nullptr));
    const Hid shuffled = Hdf5File::chunked({16, 32}), gzipped = gzip_shuffle({16, 32});
    H5Pset_shuffle(shuffled.get());
    for (const auto& [name, properties] : {std::pair("shuffled", &shuffled), {"gzip", &gzipped}}) {
      REQUIRE(H5Pset_chunk_opts(properties->get(), H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) >= 0);
      const Hid dataset(H5Dcreate2(file.get(), name, H5T_IEEE_F32LE, space.get(), H5P_DEFAULT,
                                   properties->get(), H5P_DEFAULT));
      REQUIRE(H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                       values.data()) >= 0);
    }
  }
  const auto source = open_source(path);
  for (const char* name : {"shuffled", "gzip"}) {
    CAPTURE(name);
    std::vector<float> got(values.size());
    source->read_f32(named(*source, name), 0, 24, 0, 33, got.data());
    CHECK(got == values);
  }
}

TEST_CASE("a path longer than the window between the processes is listed as damaged") {
  const test::TempDir folder;
  const std::string path = folder.file("t.h5");
  {
    Hdf5File file(path);
    file.write_counted("short", H5T_IEEE_F32LE, {2});
    std::vector<Hid> groups;
    hid_t at = file.get();
    for (const char letter : {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n',
                              'o', 'p', 'q', 'r'}) {
      groups.emplace_back(H5Gcreate2(at, std::string(500'000, letter).c_str(), H5P_DEFAULT,
                                     H5P_DEFAULT, H5P_DEFAULT));
      REQUIRE(groups.back());
      at = groups.back().get();
    }
    const Hid space(H5Screate(H5S_SCALAR));
    REQUIRE(Hid(
        H5Dcreate2(at, "w", H5T_IEEE_F32LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
  }
  const auto source = open_source(path);
  REQUIRE(source->tensors().size() == 2);
  const std::string cut = std::string(100, 'a') + "...";
  CHECK(failure_of(*source, "short").text.empty());
  const Failure failure = failure_of(*source, cut);
  CHECK(failure.kind == ErrorKind::kData);
  CHECK(failure.text.find("has a path of 1500002 bytes, expected at most 1048576") !=
        std::string::npos);
}

TEST_CASE("a tensor larger than the window between the processes comes whole") {
  const test::TempDir folder;
  const std::string path = folder.file("t.h5");
  const std::int64_t rows = 3, cols = 3'000'001;  // one row is more than 8 MiB
  const std::vector<float> values = counted(static_cast<std::size_t>(rows * cols));
  {
    Hdf5File file(path);
    file.write("wide", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT,
               {static_cast<hsize_t>(rows), static_cast<hsize_t>(cols)}, values);
    file.write("tall", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT,
               {static_cast<hsize_t>(cols), static_cast<hsize_t>(rows)}, values,
               gzip_shuffle({100'000, 2}));
  }
  const auto source = open_source(path);
  for (const char* name : {"wide", "tall"}) {
    const TensorInfo& tensor = named(*source, name);
    std::vector<float> got(values.size());
    source->read_f32(tensor, 0, tensor.rows(), 0, tensor.cols(), got.data());
    CHECK(got == values);
  }
}

TEST_CASE("threads read at the same time") {
  const test::TempDir folder;
  const std::string path = folder.file("t.h5");
  std::vector<float> values;
  {
    Hdf5File file(path);
    values = file.write_counted("a", H5T_IEEE_F32LE, {64, 100}, gzip_shuffle({7, 30}));
    file.write_counted("b", H5T_IEEE_F32BE, {64, 100});
  }
  const auto source = open_source(path);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const TensorInfo& tensor = source->tensors()[static_cast<std::size_t>(t % 2)];
      for (std::int64_t i = 0; i < 200; ++i) {
        const std::int64_t row = (i * 7 + t) % 60;
        std::vector<float> got(400);
        source->read_f32(tensor, row, 4, 0, 100, got.data());
        wrong[static_cast<std::size_t>(t)] +=
            !std::equal(got.begin(), got.end(), values.begin() + row * 100);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>{0, 0, 0, 0});
}

// ../shared/cases/bugs.md C30: 0 + 1 + ... + 329.
TEST_CASE("chunks that skipped their filters, and edge chunks, sum up as the contiguous dataset") {
  for (const char* name : {"h5_skipped_filters.h5", "h5_filters.h5"}) {
    const auto source = open_source((test::data_dir() / "containers" / name).string());
    int summed = 0;
    for (const TensorInfo& tensor : source->tensors()) {
      CAPTURE(tensor.name);
      if (tensor.dtype != DType::kF32) continue;
      std::vector<float> values(330);
      source->read_f32(tensor, 0, 10, 0, 33, values.data());
      CHECK(std::accumulate(values.begin(), values.end(), 0.0) == 54285.0);
      ++summed;
    }
    CHECK(summed >= 2);
  }
}

TEST_CASE("a chunk that unpacks to another size is an error of its dataset alone") {
  const test::TempDir folder;
  const std::string path = folder.file("t.h5");
  {
    Hdf5File file(path);
    const hsize_t origin[] = {0, 0};
    const auto stored = [&](const std::string& name, const Hid& properties, std::uint32_t mask,
                            const std::string& bytes) {
      const Hid dataset = file.create(name, H5T_IEEE_F32LE, {8, 8}, properties);
      REQUIRE(H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, mask, origin, bytes.size(),
                             bytes.data()) >= 0);
    };
    // zlib streams (RFC 1950, 1951) of one stored block each: 8 bytes; 300 zeros.
    const std::string eight(
        "\x78\x01\x01\x08\x00\xf7\xff"
        "abcdefgh\x0e\x00\x03\x25",
        19);
    const std::string many = std::string("\x78\x01\x01\x2c\x01\xd3\xfe", 7) +
                             std::string(300, '\0') + std::string("\x01\x2c\x00\x01", 4);
    stored("short", gzip_shuffle({8, 8}), 0, eight);
    stored("long", gzip_shuffle({8, 8}), 0, many);
    stored("cut", gzip_shuffle({8, 8}), 0, eight.substr(0, 12));
    stored("skipped", gzip_shuffle({8, 8}), 3, "only these bytes");
    Hid checked = Hdf5File::chunked({8, 8});
    H5Pset_fletcher32(checked.get());
    stored("checksum", checked, 0, std::string(260, 'x'));
    file.write("whole", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {8, 8}, counted(64),
               gzip_shuffle({8, 8}));
  }
  const auto source = open_source(path);
  struct Case {
    const char* tensor;
    const char* reason;
  };
  for (const Case& c : {
           Case{"short", "it has 8 bytes, expected 256"},
           Case{"long", "it unpacks to more than 264 bytes"},
           Case{"cut", "its compressed bytes end too early"},
           Case{"skipped", "it has 16 bytes, expected 256"},
           Case{"checksum", "its fletcher32 checksum does not match"},
       }) {
    CAPTURE(c.tensor);
    const Failure failure = failure_of(*source, c.tensor);
    CHECK(failure.kind == ErrorKind::kData);
    CHECK(failure.text == path + ": tensor \"" + c.tensor +
                              "\" cannot be read: the chunk at [0, 0] is damaged: " + c.reason);
  }
  std::vector<float> whole(64);
  source->read_f32(named(*source, "whole"), 0, 8, 0, 8, whole.data());
  CHECK(whole == counted(64));
}

TEST_CASE("claimed sizes cost nothing") {
  const test::TempDir folder;
  const std::string path = folder.file("t.h5");
  {
    Hdf5File file(path);
    const hsize_t side = hsize_t{1} << 29;
    Hid filled = Hdf5File::chunked({1024, 1024});
    const float fill = 2.5f;
    H5Pset_fill_value(filled.get(), H5T_NATIVE_FLOAT, &fill);
    (void)file.create("sparse", H5T_IEEE_F32LE, {side, side}, filled);
    (void)file.create("chunk", H5T_IEEE_F32LE, {1 << 28, 1}, gzip_shuffle({1 << 28, 1}));
    (void)file.create("bytes", H5T_IEEE_F64LE, {hsize_t{1} << 31, hsize_t{1} << 31},
                      gzip_shuffle({16, 16}));
  }
  const auto source = open_source(path);
  CHECK(source->info().bytes < 20'000);
  const TensorInfo& sparse = named(*source, "sparse");
  CHECK(sparse.elements == std::int64_t{1} << 58);
  float value = 0;
  source->read_f32(sparse, (std::int64_t{1} << 29) - 1, 1, (std::int64_t{1} << 29) - 1, 1, &value);
  CHECK(value == 2.5f);
  CHECK(failure_of(*source, "chunk")
            .text.find("has chunks of 1073741824 bytes, which cannot come "
                       "out of") != std::string::npos);
  const TensorInfo& bytes = named(*source, "bytes");
  CHECK_FALSE(bytes.known_dtype);
  CHECK(failure_of(*source, "bytes").text.find("more than 2^63") != std::string::npos);
}

TEST_CASE("links that lead to one group on 2^30 paths are refused, long chains are walked") {
  const test::TempDir folder;
  {
    Hdf5File file(folder.file("many.h5"));
    for (int i = 30; i >= 0; --i) {
      std::string name = "g", next = "/g";
      name += std::to_string(i);
      next += std::to_string(i + 1);
      const Hid group(H5Gcreate2(file.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
      for (const char* link : {"a", "b"}) {
        if (i == 30) break;
        H5Lcreate_hard(file.get(), next.c_str(), group.get(), link, H5P_DEFAULT, H5P_DEFAULT);
      }
    }
    Hdf5File deep(folder.file("deep.h5"));
    std::vector<Hid> groups;
    for (int i = 0; i < 1000; ++i) {
      const hid_t parent = groups.empty() ? deep.get() : groups.back().get();
      groups.emplace_back(H5Gcreate2(parent, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
      REQUIRE(groups.back());
    }
    const Hid space(H5Screate(H5S_SCALAR));
    const Hid data(H5Dcreate2(groups.back().get(), "x", H5T_IEEE_F32LE, space.get(), H5P_DEFAULT,
                              H5P_DEFAULT, H5P_DEFAULT));
    REQUIRE(data);
  }
  CHECK_THROWS_WITH_AS((void)open_source(folder.file("many.h5")),
                       doctest::Contains("on so many paths"), Error);
  const auto deep = open_source(folder.file("deep.h5"));
  REQUIRE(deep->tensors().size() == 1);
  CHECK(deep->tensors()[0].name.size() == 2001);
  float value = 1;
  deep->read_f32(deep->tensors()[0], 0, 1, 0, 1, &value);
  CHECK(value == 0);
}
