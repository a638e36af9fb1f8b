// npy_writer.h: one tensor as a NumPy file (numpy.lib.format version 1.0), data in any order and in
// pieces. Row-major and little-endian; BF16, which NumPy has no name for, is |V2.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/io/sinks.h"

namespace fp4scope {

class NpyWriter {
 public:
  // F64, F32, F16 or BF16. Throws Error(kData) when the file cannot be created, Error(kUnsupported)
  // for another dtype.
  NpyWriter(const std::string& path, DType dtype, const std::vector<std::int64_t>& shape);
  // Bytes from `offset` of the data; thread-safe for ranges that do not overlap.
  void write(std::int64_t offset, const void* data, std::size_t bytes);
  void commit();

 private:
  AtomicFile file_;
  std::int64_t data_start_ = 0;
};

}  // namespace fp4scope
