// npy_writer.cc: see npy_writer.h.
#include "analysis/io/npy_writer.h"

#include <fmt/format.h>

#include "sim/error.h"

namespace fp4scope {
namespace {

std::string_view descr_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "<f8";
    case DType::kF32:
      return "<f4";
    case DType::kF16:
      return "<f2";
    case DType::kBF16:
      return "|V2";
    default:
      throw Error(ErrorKind::kUnsupported,
                  fmt::format("npy files are written as f64, f32, f16 or bf16, found {}",
                              dtype_name(dtype)));
  }
}

}  // namespace

NpyWriter::NpyWriter(const std::string& path, DType dtype, const std::vector<std::int64_t>& shape)
    : file_(path) {
  std::string extents;  // of a Python tuple: (3,) and (3, 4)
  for (const std::int64_t extent : shape) extents += fmt::format("{}, ", extent);
  if (shape.size() > 1) extents.resize(extents.size() - 2);
  if (shape.size() == 1) extents.resize(extents.size() - 1);
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   descr_of(dtype), extents);
  // Magic, version and length are 10 bytes; the data starts at a multiple of 64.
  constexpr std::size_t kPrefix = 10, kAlignment = 64;
  const std::size_t total = (kPrefix + header.size() + kAlignment) / kAlignment * kAlignment;
  header.resize(total - kPrefix - 1, ' ');
  header += '\n';
  std::string prefix("\x93NUMPY\x01\x00", 8);
  prefix += static_cast<char>(header.size() & 0xff);
  prefix += static_cast<char>(header.size() >> 8);
  file_.write(prefix.data(), prefix.size());
  file_.write(header.data(), header.size());
  data_start_ = static_cast<std::int64_t>(total);
}

void NpyWriter::write(std::int64_t offset, const void* data, std::size_t bytes) {
  file_.write_at(data_start_ + offset, data, bytes);
}

void NpyWriter::commit() {
  file_.commit();
}

}  // namespace fp4scope
