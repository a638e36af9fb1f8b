// gguf_bytes.h: GGUF files put together byte by byte from ggml's docs/gguf.md, for reader tests.
// Nothing here uses the reader of the library.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/container_bytes.h"

namespace fp4scope::test {

// Numbers of value types and of tensor types.
enum : std::uint32_t {
  kGgufU8 = 0,
  kGgufI8 = 1,
  kGgufU16 = 2,
  kGgufI16 = 3,
  kGgufValueU32 = 4,
  kGgufI32 = 5,
  kGgufF32 = 6,
  kGgufBool = 7,
  kGgufString = 8,
  kGgufArray = 9,
  kGgufU64 = 10,
  kGgufI64 = 11,
  kGgufF64 = 12
};
enum : std::uint32_t {
  kGgmlF32 = 0,
  kGgmlF16 = 1,
  kGgmlQ4_0 = 2,
  kGgmlQ4_1 = 3,
  kGgmlQ5_0 = 6,
  kGgmlQ5_1 = 7,
  kGgmlQ8_0 = 8,
  kGgmlQ4_K = 12,
  kGgmlQ6_K = 14,
  kGgmlI16 = 25,
  kGgmlF64 = 28,
  kGgmlBf16 = 30,
  kGgmlMxfp4 = 39,
  kGgmlNvfp4 = 40
};

class GgufBytes {
 public:
  explicit GgufBytes(bool big_endian = false) : big_(big_endian) {}

  std::string number(std::uint64_t value, int bytes) const {
    std::string out = little_endian(value, bytes);
    if (big_) std::reverse(out.begin(), out.end());
    return out;
  }
  std::string string(std::string_view text) const {
    return number(text.size(), 8) + std::string(text);
  }
  // `value` as stored, behind its type.
  GgufBytes& metadata(std::string_view key, std::uint32_t type, std::string_view value) {
    metadata_ += string(key) + number(type, 4) + std::string(value);
    ++metadata_count;
    return *this;
  }
  // Extents with the fastest first, as the file has them.
  GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& extents,
                    std::uint32_t type, std::uint64_t offset) {
    tensors_ += string(name) + number(extents.size(), 4);
    for (const std::uint64_t extent : extents) tensors_ += number(extent, 8);
    tensors_ += number(type, 4) + number(offset, 8);
    ++tensor_count;
    return *this;
  }
  std::string header() const {
    return "GGUF" + number(version, 4) + number(tensor_count, 8) + number(metadata_count, 8) +
           metadata_ + tensors_;
  }
  std::string file(std::string_view data, std::size_t alignment = 32) const {
    std::string out = header();
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + std::string(data);
  }

  std::uint32_t version = 3;
  std::uint64_t tensor_count = 0, metadata_count = 0;

 private:
  bool big_;
  std::string metadata_, tensors_;
};

}  // namespace fp4scope::test
