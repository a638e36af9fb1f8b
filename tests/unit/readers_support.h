// readers_support.h: whole tensors of a reader, and files that a test writes and opens.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

namespace fp4scope::test {

inline std::vector<float> all_f32(const TensorSource& source, const TensorInfo& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.elements));
  source.read_f32(tensor, 0, tensor.rows(), 0, tensor.cols(), out.data());
  return out;
}

inline std::vector<double> all_f64(const TensorSource& source, const TensorInfo& tensor) {
  std::vector<double> out(static_cast<std::size_t>(tensor.elements));
  source.read_f64(tensor, 0, tensor.rows(), 0, tensor.cols(), out.data());
  return out;
}

inline std::vector<std::uint8_t> all_raw(const TensorSource& source, const TensorInfo& tensor) {
  std::vector<std::uint8_t> out(static_cast<std::size_t>(tensor.bytes));
  source.read_raw(tensor, 0, tensor.rows(), 0, tensor.cols(), out.data());
  return out;
}

inline std::unique_ptr<TensorSource> open_bytes(const TempDir& dir, const std::string& name,
                                                const std::string& bytes,
                                                const std::string& hint = "") {
  write_file(dir.file(name), bytes);
  return open_source(dir.file(name), OpenOptions{hint});
}

inline int exit_code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.exit_code();
  }
  return 0;
}

inline std::string npy_header(const std::string& descr, bool fortran, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }\n";
}

}  // namespace fp4scope::test
