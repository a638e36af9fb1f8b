// stored_files.h: codes and scales in the orders of other programs, written out from the formulas
// of ../shared/spec/layouts.md sections 1, 2 and 5 and spec/more.md 1.3, 2.3 and 6 (nothing here
// calls sim/layouts), and safetensors files that hold them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/container_bytes.h"

namespace fp4scope::test {

using Bytes = std::vector<std::uint8_t>;

inline std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}
inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// --- codes of one row ---

// Elements that are packed together.
inline std::int64_t unit_of_order(std::string_view order) {
  if (order == "bytes") return 1;
  return order == "split16" ? 32 : order == "split8" ? 16 : 2;
}
// Byte and shift of element `i` of a row.
struct CodePlace {
  std::int64_t byte;
  int shift;
};
inline CodePlace code_place(std::string_view order, std::int64_t i) {
  if (order == "bytes") return {i, 0};
  if (order == "high-first") return {i / 2, i % 2 == 0 ? 4 : 0};
  if (order == "split16") return {i / 32 * 16 + i % 16, i % 32 < 16 ? 0 : 4};
  if (order == "split8") return {i / 16 * 8 + i % 8, i % 16 < 8 ? 0 : 4};
  if (order == "low-first" || order == "ct") return {i / 2, i % 2 == 0 ? 0 : 4};
  throw std::invalid_argument("no order of codes " + std::string(order));
}
inline std::int64_t row_bytes_of(std::string_view order, std::int64_t cols) {
  const std::int64_t unit = unit_of_order(order);
  return ceil_div(cols, unit) * (order == "bytes" ? 1 : unit / 2);
}
// `codes`: a byte per code, rows of `stride`. Positions behind a row are 0.
inline Bytes packed_codes(std::string_view order, std::int64_t rows, std::int64_t cols,
                          const Bytes& codes, std::int64_t stride) {
  const std::int64_t width = row_bytes_of(order, cols);
  Bytes out(static_cast<std::size_t>(rows * width));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      int code = codes[static_cast<std::size_t>(r * stride + c)];
      if (order == "ct") code = (code + 8) % 16;  // q + 8
      const CodePlace place = code_place(order, c);
      out[static_cast<std::size_t>(r * width + place.byte)] |=
          static_cast<std::uint8_t>(code << place.shift);
    }
  }
  return out;
}

// --- scales ---

// Entries (bytes, or words of the scale) of a [rows, cols] matrix; nothing: no such shape.
inline std::optional<std::int64_t> scale_entries_of(std::string_view order, std::int64_t rows,
                                                    std::int64_t cols) {
  if (order == "linear" || order == "msb") return rows * cols;
  if (order == "128x4") return 512 * ceil_div(rows, 128) * ceil_div(cols, 4);
  if (order == "8x4") return 32 * ceil_div(rows, 8) * ceil_div(cols, 4);
  if (order == "te-padded") return ceil_div(rows, 128) * 128 * ceil_div(cols, 4) * 4;
  if (order == "deepgemm") return ceil_div(cols, 4) * ceil_div(rows, 4) * 4 * 4;
  if (order == "m-major") return cols * ceil_div(rows, 4) * 4;
  if (order == "trtllm-page") {
    return rows % 4 == 0 && cols % 4 == 0 ? std::optional(rows * cols) : std::nullopt;
  }
  if (order == "a6") return rows % 16 == 0 ? std::optional(rows * cols) : std::nullopt;
  throw std::invalid_argument("no order of scales " + std::string(order));
}
// Byte `b` of the entry of `bytes` bytes in row r, column c.
inline std::int64_t scale_place(std::string_view order, std::int64_t rows, std::int64_t cols,
                                std::int64_t r, std::int64_t c, std::int64_t bytes,
                                std::int64_t b) {
  const std::int64_t col_tiles = ceil_div(cols, 4), m4 = ceil_div(rows, 4) * 4;
  if (order == "a6") {  // 64-byte cells of 16 rows and one group: E and e8, then e16
    return (r / 16 * cols + c) * 64 + (b < 2 ? r % 16 * 2 + b : 32 + r % 16 * 2 + b - 2);
  }
  std::int64_t entry = -1;
  if (order == "linear" || order == "msb") entry = r * cols + c;
  if (order == "128x4") {
    entry = ((r / 128) * col_tiles + c / 4) * 512 + (r % 32) * 16 + ((r % 128) / 32) * 4 + c % 4;
  }
  if (order == "8x4") entry = ((r / 8) * col_tiles + c / 4) * 32 + (r % 8) * 4 + c % 4;
  if (order == "te-padded") entry = r * col_tiles * 4 + c;
  // Word c/4 of row r, words column-major; first group in bits 7:0.
  if (order == "deepgemm") entry = (c / 4 * m4 + r) * 4 + c % 4;
  if (order == "m-major") entry = c * m4 + r;
  if (order == "trtllm-page") {
    entry = (r / 4 * 4 + c / (cols / 4)) * cols + (c % (cols / 4)) * 4 + r % 4;
  }
  if (entry < 0) throw std::invalid_argument("no order of scales " + std::string(order));
  return entry * bytes + b;
}
inline std::uint8_t bits_reversed(std::uint8_t byte) {
  int out = 0;
  for (int i = 0; i < 8; ++i) out |= (byte >> i & 1) << (7 - i);
  return static_cast<std::uint8_t>(out);
}
// `scales`: [rows, cols, bytes]; padding is `padding`.
inline Bytes stored_scales(std::string_view order, std::int64_t rows, std::int64_t cols,
                           std::int64_t bytes, const Bytes& scales, std::uint8_t padding = 0) {
  Bytes out(static_cast<std::size_t>(scale_entries_of(order, rows, cols).value() * bytes), padding);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      for (std::int64_t b = 0; b < bytes; ++b) {
        std::uint8_t value = scales[static_cast<std::size_t>((r * cols + c) * bytes + b)];
        if (order == "msb" && b > 0) value = bits_reversed(value);
        out[static_cast<std::size_t>(scale_place(order, rows, cols, r, c, bytes, b))] = value;
      }
    }
  }
  return out;
}

// --- files ---

struct FileTensor {
  std::string name;
  std::string dtype;  // as safetensors spells it
  std::vector<std::int64_t> shape;
  std::string data;
};

inline std::string data_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}
inline void write_tensors(const std::string& path, const std::vector<FileTensor>& tensors,
                          const nlohmann::json& metadata = {}) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.is_null()) header["__metadata__"] = metadata;
  std::string data;
  for (const FileTensor& t : tensors) {
    const std::size_t begin = data.size();
    data += t.data;
    header[t.name] = {
        {"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  // A new file: cutting an old one short makes some file systems wait for the disk.
  std::filesystem::remove(path);
  write_file(path, safetensors_bytes(header.dump(), data));
}

}  // namespace fp4scope::test
