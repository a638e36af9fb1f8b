// expected_containers.h: every tensor of files that other software wrote, element for element.
// data/containers/expected.json has what the containers' own readers (torch, numpy, h5py, gguf,
// safetensors) found: names, shapes and XXH3-64 of the row-major little-endian bytes; its README
// has the rules of names. Rows of "formats/" are files of ../shared/tensors.
#pragma once
#include <doctest/doctest.h>
#include <xxhash.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/paths.h"

namespace fp4scope::test {

using nlohmann::json;

struct Expected {
  std::string dtype, hash, reader;
  std::vector<std::int64_t> shape;
};
using Tensors = std::map<std::string, Expected>;

inline json expected_json() {
  std::ifstream in(source_dir() / "data/containers/expected.json");
  return json::parse(in);
}

// Files below `folder` ("containers" or "formats") with their tensors.
inline std::map<std::string, Tensors> expected_files(const std::string& folder) {
  std::map<std::string, Tensors> files;
  const json all = expected_json();
  for (const json& row : all.at("rows")) {
    const auto file = row.at("file").get<std::string>();
    if (!file.starts_with(folder + "/")) continue;
    files[file.substr(folder.size() + 1)][row.at("tensor")] = {
        row.at("dtype"), row.at("xxh3"), row.at("reader"),
        row.at("shape").get<std::vector<std::int64_t>>()};
  }
  return files;
}

// Tensors that have no bytes for their own reader, or no reader at all; "" for a whole file.
inline std::set<std::pair<std::string, std::string>> refused_there() {
  std::set<std::pair<std::string, std::string>> out;
  const json all = expected_json();
  for (const json& row : all.at("refused")) {
    out.emplace(row.at("file"),
                row.at("tensor").is_null() ? "" : row.at("tensor").get<std::string>());
  }
  return out;
}

inline std::string hash_of(const void* data, std::size_t bytes) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(data, bytes)));
  return text;
}

// In pieces of 3 rows and an even number of columns, so that no reader sees whole rows only.
inline std::vector<unsigned char> read_in_pieces(const TensorSource& source,
                                                 const TensorInfo& tensor, std::size_t bits) {
  const std::int64_t rows = tensor.rows(), cols = tensor.cols();
  const auto bytes_of = [&](std::int64_t elements) {
    return (static_cast<std::size_t>(elements) * bits + 7) / 8;
  };
  std::vector<unsigned char> all(bytes_of(tensor.elements));
  constexpr std::int64_t kRows = 3, kCols = 34;
  std::vector<unsigned char> piece;
  for (std::int64_t r = 0; r < rows && tensor.elements > 0; r += kRows) {
    for (std::int64_t c = 0; c < cols; c += kCols) {
      const std::int64_t nr = std::min(kRows, rows - r), nc = std::min(kCols, cols - c);
      piece.resize(bytes_of(nr * nc));
      source.read_raw(tensor, r, nr, c, nc, piece.data());
      const std::size_t run = bytes_of(nc);
      for (std::int64_t i = 0; i < nr; ++i) {
        std::copy_n(piece.data() + static_cast<std::size_t>(i) * run, run,
                    all.data() + bytes_of((r + i) * cols + c));
      }
    }
  }
  return all;
}

// One file: every tensor that the own reader found is there, with these bytes.
inline void check_file(const std::filesystem::path& path, const Tensors& expected, int& compared) {
  CAPTURE(path.string());
  std::unique_ptr<TensorSource> source;
  try {
    source = open_source(path.string(), OpenOptions{});
  } catch (const Error& error) {
    // An npy file whose descr does not say what its elements are.
    if (path.extension() == ".npy" && error.exit_code() == 4) {
      source = open_source(path.string(), OpenOptions{"bf16"});
    } else {
      FAIL_CHECK(std::string(error.what()));
      return;
    }
  }
  std::map<std::string, const TensorInfo*> found;
  for (const TensorInfo& tensor : source->tensors()) found.emplace(tensor.name, &tensor);
  for (const auto& [name, want] : expected) {
    CAPTURE(name);
    CAPTURE(want.reader);
    CAPTURE(want.dtype);
    const auto at = found.find(name);
    if (at == found.end()) {
      FAIL_CHECK("the tensor is missing");
      continue;
    }
    const TensorInfo& tensor = *at->second;
    CHECK(tensor.shape == want.shape);
    if (tensor.shape != want.shape) continue;
    // Where this project has a name for the dtype, it is that one; others keep their container's.
    static const std::set<std::string> kNamed = {"f64",     "f32",     "f16", "bf16", "f8_e4m3",
                                                 "f8_e5m2", "f8_e8m0", "u8",  "i8"};
    if (kNamed.contains(want.dtype)) CHECK(dtype_name(tensor.dtype) == want.dtype);
    const std::size_t bits =
        tensor.elements == 0 ? 8 : static_cast<std::size_t>(8 * tensor.bytes / tensor.elements);
    const std::size_t read_bits =
        tensor.decoded ? 8 * static_cast<std::size_t>(dtype_bytes(tensor.dtype)) : bits;
    try {
      const auto bytes = read_in_pieces(*source, tensor, read_bits);
      CHECK(hash_of(bytes.data(), bytes.size()) == want.hash);
    } catch (const Error& error) {
      FAIL_CHECK(std::string(error.what()));
    }
    ++compared;
  }
}

// Rows that are not read here, each a refusal with exit code 4: block types of ggml that are only
// named; views of PyTorch with the sign inverted; HDF5 data in other files, of a layout that needs
// HDF5 2.0, and through filters that no package of Debian has (with a plug-in, the test of what is
// read covers them).
inline const std::map<std::string, std::set<std::string>>& not_read() {
  static const std::map<std::string, std::set<std::string>> kNotRead = {
      {"containers/other_types.gguf",
       {"IQ1_M", "IQ1_S", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ3_S", "IQ3_XXS", "IQ4_NL", "IQ4_XS",
        "Q2_K", "Q3_K", "Q4_K", "Q5_K", "TQ1_0", "TQ2_0"}},
      {"containers/tensor_kinds.pt", {"neg"}},
      {"containers/types.gguf", {"quantized.TQ1_0", "quantized.TQ2_0"}},
      {"containers/h5_external.h5", {"outside"}},
      {"containers/h5_virtual.h5", {"joined"}},
      {"containers/h5_layout_5.h5", {"gzip"}},
      {"containers/h5_plugin_filters.h5", {"bitshuffle_zstd", "blosc2", "zstd"}}};
  return kNotRead;
}

inline void check_refused(const std::filesystem::path& path, const std::set<std::string>& names) {
  const auto source = open_source(path.string(), OpenOptions{});
  std::size_t refused = 0;
  for (const TensorInfo& tensor : source->tensors()) {
    if (!names.contains(tensor.name)) continue;
    CAPTURE(tensor.name);
    std::vector<unsigned char> bytes(static_cast<std::size_t>(4 * tensor.elements));
    try {
      source->read_raw(tensor, 0, tensor.rows(), 0, tensor.cols(), bytes.data());
      FAIL_CHECK("it was read");
    } catch (const Error& error) {
      CHECK(error.exit_code() == 4);
      ++refused;
    }
  }
  CHECK(refused == names.size());
}

inline void check_folder(const std::string& name, const std::filesystem::path& folder) {
  int compared = 0, left_out = 0;
  for (const auto& [file, tensors] : expected_files(name)) {
    Tensors rows = tensors;
    if (const auto at = not_read().find(name + "/" + file); at != not_read().end()) {
      for (const std::string& tensor : at->second) rows.erase(tensor);
      check_refused(folder / file, at->second);
      left_out += static_cast<int>(tensors.size() - rows.size());
    }
    check_file(folder / file, rows, compared);
  }
  MESSAGE(compared, " tensors of ", name, " compared, ", left_out, " left out");
  CHECK(compared > 600);
}

}  // namespace fp4scope::test
