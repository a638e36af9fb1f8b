// safetensors_format.h: what reader, writer and index of safetensors share: dtype names with their
// widths, and the header length field.
#pragma once
#include <cstdint>
#include <string_view>

#include "analysis/io/mmap.h"
#include "analysis/io/tensor_source.h"

namespace fp4scope {

constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsDType {
  std::string_view name;
  DType dtype = DType::kOther;
  int bits = 0;  // 0: unknown name
};
// bits == 0 for a name that is not in the table.
SafetensorsDType safetensors_dtype(std::string_view name);
// The container's spelling; empty for kOther.
std::string_view safetensors_name(DType dtype);

// The first 8 bytes as a little-endian number; the file must have them.
inline std::uint64_t read_header_length(const MappedFile& file) {
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | file.data()[i];
  return length;
}

}  // namespace fp4scope
