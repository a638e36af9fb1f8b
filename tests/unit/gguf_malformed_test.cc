// gguf_malformed_test.cc: GGUF files that break a rule of the format end in Error with one sentence
// that names the file and the fault; files cut at any byte or with a wrong byte never crash, and
// nothing is allocated because a header says so. The sentences themselves are in
// tests/malformed.md.
#include <doctest/doctest.h>

#include <fstream>
#include <functional>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/allocations.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/paths.h"

using namespace fp4scope;
using test::GgufBytes;
using test::TempDir;

namespace {

constexpr std::size_t kMostAllocated = 64 * 1024;

// Opens and reads every tensor to the end.
void read_all(const std::string& path) {
  const auto source = open_source(path);
  for (const TensorInfo& tensor : source->tensors()) {
    if (is_real(tensor.dtype)) {
      std::vector<double> values(static_cast<std::size_t>(tensor.elements));
      source->read_f64(tensor, 0, tensor.rows(), 0, tensor.cols(), values.data());
    } else if (tensor.dtype == DType::kU8) {
      std::vector<std::uint8_t> raw(static_cast<std::size_t>(tensor.elements));
      source->read_raw(tensor, 0, tensor.rows(), 0, tensor.cols(), raw.data());
    }
  }
}

struct Case {
  const char* name;
  std::string bytes;
  const char* fragment;
  int exit_code = 3;
};

// A file with one metadata entry of this type and value.
std::string with_value(std::uint32_t type, const std::string& value) {
  return GgufBytes().metadata("key", type, value).file("");
}
std::string with_tensor(const std::vector<std::uint64_t>& extents, std::uint32_t type,
                        std::uint64_t offset, std::size_t data) {
  return GgufBytes().tensor("w", extents, type, offset).file(std::string(data, 'd'));
}

}  // namespace

TEST_CASE("every malformed GGUF file is refused with its own sentence") {
  const GgufBytes b;
  const auto n = [&](std::uint64_t value, int bytes) { return b.number(value, bytes); };
  const auto counts = [&](std::uint64_t tensors, std::uint64_t metadata, std::uint32_t version) {
    return "GGUF" + n(version, 4) + n(tensors, 8) + n(metadata, 8);
  };
  const auto alignment = [&](std::uint32_t type, const std::string& value) {
    return GgufBytes().metadata("general.alignment", type, value).file("");
  };
  std::string nested;
  for (int i = 0; i < 5; ++i) nested += n(test::kGgufArray, 4) + n(1, 8);
  const Case cases[] = {
      {"magic alone", "GGUF\x03\0\0\0\0", "a GGUF file has at least 24"},
      {"version 0", counts(0, 0, 0), "GGUF version 0, expected 2 or 3"},
      {"version 1", counts(0, 0, 1), "GGUF version 1, expected 2 or 3; ", 4},
      {"version 4", counts(0, 0, 4), "GGUF version 4, expected 2 or 3", 4},
      {"2^63 tensors", counts(UINT64_C(1) << 63, 0, 3), "claims 9223372036854775808 tensors"},
      {"2^60 entries", counts(0, UINT64_C(1) << 60, 3), "metadata entries, but the 24 bytes"},
      {"key beyond the end", counts(0, 1, 3) + n(100, 8) + std::string(20, 'k'),
       "metadata entry 1 of 1 of the GGUF file has a key of 100 bytes at byte 24, but only 20"},
      {"key of 2^64-1 bytes", counts(0, 1, 3) + n(UINT64_MAX, 8) + std::string(20, 'k'),
       "a key of 18446744073709551615 bytes"},
      {"key of 65536 bytes", counts(0, 1, 3) + b.string(std::string(65536, 'k')) + n(0, 4) + "x",
       "at most 65535"},
      {"value type 13", with_value(13, "x"), "has the value type 13 at byte 35, expected 0 to 12"},
      {"value cut", GgufBytes().metadata("key", test::kGgufU64, "1234567").header(),
       "metadata \"key\" of the GGUF file needs 8 bytes at byte 39, but only 7 follow"},
      {"string beyond the end",
       GgufBytes().metadata("key", test::kGgufString, n(8, 8) + "1234567").header(),
       "has a string of 8 bytes at byte 39, but only 7 follow"},
      {"array of type 13", with_value(test::kGgufArray, n(13, 4) + n(0, 8)),
       "has an array of type 13"},
      {"array of 2^61 u64", with_value(test::kGgufArray, n(test::kGgufU64, 4) + n(1ull << 61, 8)),
       "claims 2305843009213693952 elements of u64"},
      {"array of 2^60 strings",
       with_value(test::kGgufArray, n(test::kGgufString, 4) + n(1ull << 60, 8)),
       "elements of string"},
      {"arrays in arrays", with_value(test::kGgufArray, nested + n(0, 4) + n(0, 8)),
       "nested more than 4 deep"},
      {"a key twice",
       GgufBytes().metadata("k", test::kGgufU8, "1").metadata("k", test::kGgufU8, "2").file(""),
       "metadata \"k\" of the GGUF file comes twice"},
      {"alignment 0", alignment(test::kGgufValueU32, n(0, 4)),
       "is 0 as u32, expected a power of two"},
      {"alignment 12", alignment(test::kGgufValueU32, n(12, 4)),
       "is 12 as u32, expected a power of two"},
      {"alignment as u64", alignment(test::kGgufU64, n(32, 8)), "is 32 as u64, expected"},
      {"alignment as string", alignment(test::kGgufString, b.string("32")),
       "is 32 as string, expected"},
      {"tensor entry missing", counts(1, 0, 3) + std::string(23, '\0'), "at most 0"},
      {"name beyond the end", counts(1, 0, 3) + n(64, 8) + std::string(30, 'n'),
       "tensor entry 1 of 1 of the GGUF file has a name of 64 bytes"},
      {"a tensor twice",
       GgufBytes()
           .tensor("w", {1}, test::kGgmlF32, 0)
           .tensor("w", {1}, test::kGgmlF32, 32)
           .file(std::string(36, 'd')),
       "tensor \"w\" of the GGUF file comes twice"},
      {"five dimensions", with_tensor({1, 1, 1, 1, 1}, test::kGgmlF32, 0, 4), "has 5 dimensions"},
      {"extent 2^63", with_tensor({UINT64_C(1) << 63}, test::kGgmlF32, 0, 4),
       "has an extent of 9223372036854775808"},
      {"product wraps", with_tensor({UINT64_C(1) << 32, UINT64_C(1) << 32}, test::kGgmlF32, 0, 4),
       "shape [4294967296, 4294967296], whose size exceeds 64 bits"},
      {"bits wrap", with_tensor({UINT64_C(1) << 58}, test::kGgmlF32, 0, 4), "exceeds 64 bits"},
      {"half a block", with_tensor({48}, test::kGgmlQ4_0, 0, 27),
       "is Q4_0 [48]: rows of 48 elements do not fill blocks of 32"},
      {"0-d block", with_tensor({}, test::kGgmlQ4_0, 0, 18), "do not fill blocks of 32"},
      {"offset not aligned", with_tensor({1}, test::kGgmlF32, 4, 8),
       "starts at byte 4 of the data, expected a multiple of the alignment 32"},
      {"one byte missing", with_tensor({2}, test::kGgmlF32, 0, 7),
       "is F32 [2]: its 8 bytes from byte 0 of the data are not in the file, which has 7"},
      {"offset behind the data", with_tensor({2}, test::kGgmlF32, 64, 8), "from byte 64"},
      {"offset 2^64-32", with_tensor({2}, test::kGgmlF32, UINT64_MAX - 31, 8),
       "from byte 18446744073709551584"},
      {"unknown type behind the data", with_tensor({2}, 99, 64, 8), "type 99 [2]"},
      {"no data at all", GgufBytes().tensor("w", {1}, test::kGgmlF32, 0).header(), "has 0 bytes"},
      {"overlap",
       GgufBytes()
           .tensor("a", {16}, test::kGgmlF32, 0)
           .tensor("b", {1}, test::kGgmlF32, 32)
           .file(std::string(64, 'd')),
       "tensor \"b\" of the GGUF file starts at byte 32 of the data, inside tensor \"a\", which "
       "ends at byte 64"},
      {"the same data twice",
       GgufBytes()
           .tensor("a", {1}, test::kGgmlF32, 0)
           .tensor("b", {1}, test::kGgmlF32, 0)
           .file(std::string(64, 'd')),
       "inside tensor \""},
      {"name that steers the terminal",
       GgufBytes().tensor(std::string("a\n\0\x1b[2J", 7), {3}, 2, 0).file(""),
       "tensor \"a\\x0a\\x00\\x1b[2J\""},
  };
  const TempDir dir;
  const std::string path = dir.file("bad.gguf");
  for (const Case& c : cases) {
    CAPTURE(std::string(c.name));
    test::write_file(path, c.bytes);
    try {
      test::reset_allocations();
      open_source(path);
      FAIL_CHECK("the file was accepted");
    } catch (const Error& error) {
      const std::string text = error.what();
      CHECK(test::largest_allocation < kMostAllocated);
      CAPTURE(text);
      CHECK(error.exit_code() == c.exit_code);
      CHECK(text.find(c.fragment) != std::string::npos);
      CHECK(text.starts_with(path + ": "));
      CHECK(text.find('\n') == std::string::npos);
      CHECK(text.find('\0') == std::string::npos);
      CHECK(text.size() < path.size() + 400);
    }
  }
}

namespace {

// Every part of the format once: nested arrays, strings, plain and block tensors.
std::string sample(bool big) {
  GgufBytes b(big);
  const std::string inner = b.number(test::kGgufU8, 4) + b.number(2, 8) + "ab";
  b.metadata("general.alignment", test::kGgufValueU32, b.number(8, 4));
  b.metadata("a", test::kGgufArray, b.number(test::kGgufArray, 4) + b.number(1, 8) + inner);
  b.metadata("s", test::kGgufArray,
             b.number(test::kGgufString, 4) + b.number(2, 8) + b.string("x") + b.string(""));
  b.metadata("t", test::kGgufString, b.string("text"));
  b.tensor("f", {3, 2}, test::kGgmlF32, 0).tensor("q", {32}, test::kGgmlQ4_1, 24);
  b.tensor("m", {32}, test::kGgmlMxfp4, 48).tensor("h", {1}, test::kGgmlF16, 72);
  return b.file(std::string(74, 'd'), 8);
}

}  // namespace

TEST_CASE("a GGUF file cut at any byte is refused with exit code 3") {
  const TempDir dir;
  const std::string path = dir.file("cut.gguf");
  for (const bool big : {false, true}) {
    const std::string bytes = sample(big);
    test::write_file(path, bytes);
    read_all(path);  // the whole file is fine
    for (std::size_t length = bytes.size(); length-- > 0;) {
      CAPTURE(length);
      std::filesystem::resize_file(path, length);
      try {
        test::reset_allocations();
        read_all(path);
        FAIL_CHECK("the file was accepted");
      } catch (const Error& error) {
        CHECK(error.exit_code() == 3);
        CHECK(test::largest_allocation < kMostAllocated);
      }
    }
  }
}

TEST_CASE("a GGUF header with one wrong byte is read or refused, but never crashes") {
  const TempDir dir;
  const std::string path = dir.file("corrupt.gguf");
  std::size_t read = 0, refused = 0;
  for (const bool big : {false, true}) {
    const std::string bytes = sample(big);
    test::write_file(path, bytes);
    // Changed in place: truncating and writing the file anew is slow on some file systems.
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](std::size_t at, char value) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(value);
      file.flush();
    };
    for (std::size_t at = 0; at + 74 < bytes.size(); ++at) {
      std::string values = {'\0', '\xFF', '\x7F', '\x80', '\x09', '\x08'};
      for (int bit = 0; bit < 8; ++bit) values += static_cast<char>(bytes[at] ^ (1 << bit));
      for (const char value : values) {
        put(at, value);
        test::reset_allocations();
        try {
          read_all(path);
          ++read;
        } catch (const Error& error) {
          ++refused;
          const bool one_line = std::string(error.what()).find('\n') == std::string::npos;
          if (!one_line || error.exit_code() < 3) FAIL_CHECK(error.what());
        }
        if (test::largest_allocation >= kMostAllocated) FAIL_CHECK(test::largest_allocation);
      }
      put(at, bytes[at]);
    }
  }
  CHECK(read > 50);
  CHECK(refused > 3 * read);
}
