// malformed_table.h: the cases of tests/malformed.md, each put together in memory and opened the
// way a command does it.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"

namespace fp4scope::test {

struct MalformedCase {
  std::string name;  // first column of the table
  // Writes into the folder, opens and reads. Throws the Error whose sentence is in the table.
  std::function<void(const TempDir&)> run;
};
using MalformedCases = std::vector<MalformedCase>;

MalformedCases malformed_safetensors();
MalformedCases malformed_arrays();  // npy and raw
MalformedCases malformed_gguf();
MalformedCases malformed_archives();  // npz and PyTorch
MalformedCases malformed_places();    // directories, pipes, files of no container
MalformedCases malformed_texts();     // format files and recipes

// Opens `path` and reads the first row of every tensor.
inline void open_and_read(const std::string& path, const OpenOptions& options = {}) {
  const auto source = open_source(path, options);
  for (const TensorInfo& tensor : source->tensors()) {
    refuse_damaged(tensor);
    if (tensor.rows() == 0 || tensor.cols() == 0) continue;
    if (is_real(tensor.dtype)) {
      std::vector<double> values(static_cast<std::size_t>(tensor.cols()));
      source->read_f64(tensor, 0, 1, 0, tensor.cols(), values.data());
    } else {
      std::vector<unsigned char> bytes(static_cast<std::size_t>(tensor.cols() * 16));
      source->read_raw(tensor, 0, 1, 0, tensor.cols(), bytes.data());
    }
  }
}

// A file named FILE with these bytes.
inline MalformedCase file_case(std::string name, std::string bytes, OpenOptions options = {}) {
  return {std::move(name),
          [bytes = std::move(bytes), options = std::move(options)](const TempDir& dir) {
            write_file(dir.file("FILE"), bytes);
            open_and_read(dir.file("FILE"), options);
          }};
}

}  // namespace fp4scope::test
