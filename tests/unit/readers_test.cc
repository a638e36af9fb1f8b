// readers_test.cc: well-formed safetensors files, sets of files and large files give the right
// tensors and values; npy_test.cc has those of npy. The bytes are written by the test from the
// definition of the format; expected values follow from them by hand.
#include <doctest/doctest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "analysis/io/tensor_source.h"
#include "analysis/io/widen.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"
#include "tests/unit/readers_support.h"

using namespace fp4scope;
using test::all_f32;
using test::all_f64;
using test::all_raw;
using test::exit_code_of;
using test::npy_header;
using test::open_bytes;
using test::TempDir;

TEST_CASE("a safetensors file gives its tensors in header order with exact values") {
  const TempDir dir;
  // w: F32 [2,3]; h: F16 [4]; b: BF16 [2]; d: F64 []; u: U8 [0,5].
  const std::string header = R"({"__metadata__":{"who":"test","empty":""},)"
                             R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("h":{"dtype":"F16","shape":[4],"data_offsets":[24,32]},)"
                             R"("d":{"dtype":"F64","shape":[],"data_offsets":[36,44]},)"
                             R"("b":{"data_offsets":[32,36],"shape":[2],"dtype":"BF16"},)"
                             R"("u":{"dtype":"U8","shape":[0,5],"data_offsets":[44,44]}}   )";
  const std::string data =
      test::bytes_of<float>({1, 2, 3, 4, 5, -6.5f}) +
      test::bytes_of<std::uint16_t>({0x3C00, 0x8001, 0x7C00, 0x7BFF}) +  // 1, -2^-24, Inf, 65504
      test::bytes_of<std::uint16_t>({0x3F80, 0xC000}) + test::bytes_of<double>({0.1});
  const auto source = open_bytes(dir, "x", test::safetensors_bytes(header, data));
  CHECK(source->info().container == "safetensors");
  CHECK(source->info().path == dir.file("x"));
  CHECK(source->info().bytes == static_cast<std::int64_t>(8 + header.size() + data.size()));
  REQUIRE(source->metadata().size() == 2);
  CHECK(source->metadata()[0] == std::pair<std::string, std::string>{"who", "test"});
  const std::vector<TensorInfo>& t = source->tensors();
  REQUIRE(t.size() == 5);
  CHECK(t[0].name == "w");
  CHECK(t[0].dtype == DType::kF32);
  CHECK(t[0].dtype_text == "F32");
  CHECK(t[0].shape == std::vector<std::int64_t>{2, 3});
  CHECK(t[0].elements == 6);
  CHECK(t[0].bytes == 24);
  CHECK(t[0].file == dir.file("x"));
  CHECK(all_f32(*source, t[0]) == std::vector<float>{1, 2, 3, 4, 5, -6.5f});
  CHECK(all_f64(*source, t[0]) == std::vector<double>{1, 2, 3, 4, 5, -6.5});
  std::vector<float> piece(2);
  source->read_f32(t[0], 1, 1, 1, 2, piece.data());
  CHECK(piece == std::vector<float>{5, -6.5f});
  CHECK(t[1].rows() == 1);
  CHECK(t[1].cols() == 4);
  CHECK(all_f32(*source, t[1]) ==
        std::vector<float>{1, -0x1p-24f, std::numeric_limits<float>::infinity(), 65504});
  source->read_f32(t[1], 0, 1, 2, 2, piece.data());
  CHECK(piece[1] == 65504);
  CHECK(t[2].rows() == 1);
  CHECK(t[2].cols() == 1);
  CHECK(t[2].elements == 1);
  CHECK(all_f64(*source, t[2]) == std::vector<double>{0.1});
  CHECK(exit_code_of([&] { all_f32(*source, t[2]); }) == 4);
  CHECK(all_f32(*source, t[3]) == std::vector<float>{1, -2});
  CHECK(t[4].elements == 0);
  CHECK(t[4].rows() == 0);
  CHECK(t[4].cols() == 5);
  CHECK(all_raw(*source, t[4]).empty());
  // A copy of the description works as well as the original.
  const TensorInfo copy = t[3];
  CHECK(all_f32(*source, copy) == std::vector<float>{1, -2});
  CHECK(exit_code_of([&] { source->read_f32(t[0], 1, 2, 0, 3, piece.data()); }) == 3);
  CHECK(exit_code_of([&] { source->read_f32(t[0], 0, 1, INT64_MAX, 2, piece.data()); }) == 3);
}

TEST_CASE("metadata alone, empty metadata and an empty object are valid safetensors files") {
  const TempDir dir;
  const struct {
    const char* header;
    std::size_t tensors;
    const char* data;
  } cases[] = {
      {R"({"__metadata__":{"a":"b"}})", 0, ""},
      {R"({"__metadata__":{},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "x"},
      {"{}", 0, ""},
      // Fields that a later version may add, however deeply nested, are ignored.
      {R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"new":{"a":[{"b":null}]},"n":1.5}})",
       1, "x"},
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.header));
    const auto source = open_bytes(dir, "m", test::safetensors_bytes(c.header, c.data));
    CHECK(source->tensors().size() == c.tensors);
  }
}

TEST_CASE("a header length whose low byte is the character '{' is still safetensors") {
  const TempDir dir;
  std::string header = R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize('{', ' ');
  const auto source = open_bytes(dir, "brace", test::safetensors_bytes(header, "x"));
  CHECK(source->info().container == "safetensors");
}

TEST_CASE("F4 tensors have logical shapes and rows that end at whole bytes") {
  const TempDir dir;
  const std::string header = R"({"q":{"dtype":"F4","shape":[2,32],"data_offsets":[0,32]},)"
                             R"("s":{"dtype":"F8_E8M0","shape":[2,1],"data_offsets":[32,34]},)"
                             R"("r":{"dtype":"F4","shape":[3,2],"data_offsets":[34,37]}})";
  std::string data(37, '\0');
  std::iota(data.begin(), data.end(), '\0');
  const auto source = open_bytes(dir, "f4", test::safetensors_bytes(header, data));
  const std::vector<TensorInfo>& t = source->tensors();
  REQUIRE(t.size() == 3);
  CHECK(t[0].shape == std::vector<std::int64_t>{2, 32});
  CHECK(t[0].dtype == DType::kOther);
  CHECK(t[0].dtype_text == "F4");
  CHECK(t[1].dtype == DType::kF8E8M0);
  CHECK(t[2].shape == std::vector<std::int64_t>{3, 2});
  std::vector<std::uint8_t> row(16);
  source->read_raw(t[0], 1, 1, 0, 32, row.data());
  CHECK(row[0] == 16);
  CHECK(row[15] == 31);
  CHECK(exit_code_of([&] { source->read_raw(t[0], 0, 1, 1, 2, row.data()); }) == 4);
  CHECK(exit_code_of([&] { all_f32(*source, t[0]); }) == 4);
  CHECK(all_raw(*source, t[2]) == std::vector<std::uint8_t>{34, 35, 36});
}

TEST_CASE("an unknown safetensors dtype is listed, refused when read, and spares the others") {
  const TempDir dir;
  const std::string header = R"({"new":{"dtype":"F3_X","shape":[8],"data_offsets":[0,3]},)"
                             R"("i":{"dtype":"I32","shape":[1],"data_offsets":[3,7]},)"
                             R"("w":{"dtype":"F32","shape":[1],"data_offsets":[7,11]}})";
  const auto source = open_bytes(
      dir, "u",
      test::safetensors_bytes(header, std::string(3, 'x') + test::bytes_of<std::int32_t>({-2}) +
                                          test::bytes_of<float>({3.5f})));
  const std::vector<TensorInfo>& t = source->tensors();
  CHECK(t[0].dtype == DType::kOther);
  CHECK(t[0].dtype_text == "F3_X");
  std::uint8_t bytes[8];
  CHECK(exit_code_of([&] { source->read_raw(t[0], 0, 1, 0, 8, bytes); }) == 4);
  CHECK(exit_code_of([&] { all_f32(*source, t[1]); }) == 4);
  CHECK(all_raw(*source, t[1]) == std::vector<std::uint8_t>{0xFE, 0xFF, 0xFF, 0xFF});
  CHECK(all_f32(*source, t[2]) == std::vector<float>{3.5f});  // at an odd address
}

TEST_CASE("tensor names may hold escapes, NUL and non-ASCII characters") {
  const TempDir dir;
  const std::string header =
      R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
      "\"\xC3\xA9\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}";
  const auto source = open_bytes(dir, "n", test::safetensors_bytes(header, "xy"));
  CHECK(source->tensors()[0].name == std::string("a\0b", 3));
  CHECK(source->tensors()[1].name == "\xC3\xA9\n");
  CHECK(all_raw(*source, source->tensors()[1]) == std::vector<std::uint8_t>{'y'});
  try {
    float out = 0;
    source->read_f32(source->tensors()[1], 0, 1, 0, 1, &out);
    FAIL("a U8 tensor was read as numbers");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("\"\xC3\xA9\\x0a\"") != std::string::npos);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
  }
}

TEST_CASE("all FP16 and BF16 codes are widened exactly") {
  int different = 0;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const int exponent = static_cast<int>(code >> 10 & 0x1F), fraction = code & 0x3FF;
    std::uint32_t want;
    if (exponent == 31) {
      want = (code & 0x8000u) << 16 | 0x7F800000u | static_cast<std::uint32_t>(fraction) << 13;
    } else {
      // IEEE 754 binary16: fraction * 2^-24, or (1024 + fraction) * 2^(exponent - 25).
      const double value =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      want = std::bit_cast<std::uint32_t>(static_cast<float>(value)) | (code & 0x8000u) << 16;
    }
    const auto bits = static_cast<std::uint16_t>(code);
    different += std::bit_cast<std::uint32_t>(widen_f16(bits)) != want;
    different += std::bit_cast<std::uint32_t>(widen_bf16(bits)) != code << 16;
  }
  CHECK(different == 0);
}

TEST_CASE("tensors of more than 2^31 elements are addressed exactly in a sparse file") {
  const TempDir dir;
  const std::string path = dir.file("sparse.npy");
  const std::int64_t rows = 65537, cols = 32768;  // 2147516416 elements
  const std::string start = test::npy_bytes(1, npy_header("|u1", false, "(65537, 32768)"), "");
  test::write_file(path, start);
  std::error_code error;
  std::filesystem::resize_file(path, start.size() + static_cast<std::uintmax_t>(rows * cols),
                               error);
  REQUIRE_MESSAGE(!error, "the temporary folder cannot hold a sparse file of 2 GiB");
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(start.size()) + (rows - 1) * cols);
    file << "AB";
    file.seekp(static_cast<std::streamoff>(start.size()) + rows * cols - 1);
    file << 'Z';
  }
  const auto source = open_source(path);
  const TensorInfo& tensor = source->tensors()[0];
  CHECK(tensor.elements == 2147516416);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(cols));
  source->read_raw(tensor, rows - 1, 1, 0, cols, row.data());
  CHECK(row[0] == 'A');
  CHECK(row[1] == 'B');
  CHECK(row[2] == 0);
  CHECK(row.back() == 'Z');
  std::uint8_t last = 0;
  source->read_raw(tensor, rows - 1, 1, cols - 1, 1, &last);
  CHECK(last == 'Z');

  const std::string flat = test::npy_bytes(1, npy_header("|u1", false, "(3000000000,)"), "");
  test::write_file(path, flat);
  std::filesystem::resize_file(path, flat.size() + 3000000000u);
  CHECK(open_source(path)->tensors()[0].shape == std::vector<std::int64_t>{3000000000});
}

TEST_CASE("reading a large file keeps the resident size of the process small") {
  const TempDir dir;
  const std::string path = dir.file("large.npy");
  const std::int64_t rows = 1024, cols = 262144;  // 512 MiB of BF16
  const std::string start = test::npy_bytes(1, npy_header("<V2", false, "(1024, 262144)"), "");
  test::write_file(path, start);
  std::filesystem::resize_file(path, start.size() + static_cast<std::uintmax_t>(2 * rows * cols));
  const auto resident_mib = [] {
    std::ifstream statm("/proc/self/statm");
    std::int64_t total = 0, resident = 0;
    statm >> total >> resident;
    return resident * ::sysconf(_SC_PAGESIZE) >> 20;
  };
  const auto source = open_source(path, OpenOptions{"bf16"});
  std::vector<float> tile(static_cast<std::size_t>(4 * cols));
  const std::int64_t before = resident_mib();
  std::int64_t largest = 0;
  for (std::int64_t row = 0; row < rows; row += 4) {
    source->read_f32(source->tensors()[0], row, 4, 0, cols, tile.data());
    largest = std::max(largest, resident_mib() - before);
  }
  CHECK(largest < 192);
}

TEST_CASE("a sharded set is read through its index, from the file or its directory") {
  const TempDir dir;
  const auto shard = [](const char* name, float value) {
    return test::safetensors_bytes(
        std::string("{\"") + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
        test::bytes_of<float>({value}));
  };
  std::filesystem::create_directory(dir.path() / "sub");
  test::write_file(dir.file("a.safetensors"), shard("first", 1));
  test::write_file(dir.file("sub/b.safetensors"), shard("second", 2));
  const std::string index = dir.file("model.safetensors.index.json");
  test::write_file(index,
                   R"( {"metadata":{"total_size":8,"x":[1,{"y":2}]},)"
                   R"("weight_map":{"second":"sub/b.safetensors","first":"a.safetensors"}} )");
  test::write_file(dir.file("config.json"), "{}");
  for (const std::string& path : {index, dir.path().string()}) {
    CAPTURE(path);
    const auto source = open_source(path);
    CHECK(source->info().container == "safetensors index");
    REQUIRE(source->tensors().size() == 2);
    CHECK(source->tensors()[0].name == "second");
    CHECK(source->tensors()[0].file == dir.file("sub/b.safetensors"));
    CHECK(all_f32(*source, source->tensors()[0]) == std::vector<float>{2});
    CHECK(all_f32(*source, source->tensors()[1]) == std::vector<float>{1});
  }
}

TEST_CASE("a directory without an index gives the tensors of its files in order of name") {
  const TempDir dir;
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  test::write_file(dir.file("step2.safetensors"),
                   test::safetensors_bytes(header, test::bytes_of<float>({2})));
  test::write_file(dir.file("step1.safetensors"),
                   test::safetensors_bytes(header, test::bytes_of<float>({1})));
  test::write_file(dir.file("y.npy"), test::npy_bytes(1, npy_header("<f4", false, "(1,)"),
                                                      test::bytes_of<float>({3})));
  test::write_file(dir.file("notes.txt"), "no tensors here");
  const auto source = open_source(dir.path().string());
  CHECK(source->info().container == "directory");
  REQUIRE(source->tensors().size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(all_f32(*source, source->tensors()[i]) == std::vector<float>{static_cast<float>(i + 1)});
  }
  CHECK(source->tensors()[1].file == dir.file("step2.safetensors"));
  CHECK(container_files(dir.path().string()).size() == 3);
  CHECK(container_files(dir.file("y.npy")) == std::vector<std::string>{dir.file("y.npy")});
}

TEST_CASE("a file that is cut while it is open gives an error instead of a crash") {
  const TempDir dir;
  const std::string bytes =
      test::npy_bytes(1, npy_header("<f4", false, "(100000,)"), std::string(400000, '\0'));
  const auto source = open_bytes(dir, "a.npy", bytes);
  std::vector<float> out(100000);
  source->read_f32(source->tensors()[0], 0, 1, 0, 100000, out.data());
  std::filesystem::resize_file(dir.file("a.npy"), 1000);
  CHECK(exit_code_of(
            [&] { source->read_f32(source->tensors()[0], 0, 1, 0, 100000, out.data()); }) == 3);
}
