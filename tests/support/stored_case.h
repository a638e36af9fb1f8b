// stored_case.h: a quantized tensor as another program would store it in a file, and the comparison
// of such a file with a recipe.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/compare/verify.h"
#include "tests/support/quantized.h"
#include "tests/support/stored_files.h"

namespace fp4scope::test {

struct StoredCase {
  Recipe recipe;
  std::int64_t rows = 0, cols = 0;
  std::vector<float> x;
  SourceType source = SourceType::kF32;  // or kBf16: the values are exact in BF16
  Quantized q;

  std::int64_t blocks() const { return q.tile.blocks_per_row; }
};

inline StoredCase stored_case(const Backend& backend, const Recipe& recipe, std::vector<float> x,
                              std::int64_t rows, std::int64_t cols,
                              SourceType source = SourceType::kF32) {
  StoredCase c{recipe, rows, cols, std::move(x), source, {}};
  Tile tile{c.x.data(), nullptr, rows, cols, cols};
  tile.source = source;
  c.q = quantized(backend, recipe, tile);
  return c;
}
inline StoredCase stored_case(const std::string& recipe, std::vector<float> x, std::int64_t rows,
                              std::int64_t cols, SourceType source = SourceType::kF32) {
  return stored_case(oracle_backend(), parse_recipe(recipe), std::move(x), rows, cols, source);
}

// Values of both signs over some binades, the same on every machine; exact in BF16.
inline std::vector<float> some_values(std::int64_t count, std::uint32_t seed = 1) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    const std::uint32_t exponent = 122 + (state >> 28) % 6;
    value = bit_cast<float>((state << 3 & 0x80000000u) | exponent << 23 | (state >> 5 & 0x7F0000));
  }
  return values;
}

// The upper halves.
inline std::string bf16_bytes(const std::vector<float>& values) {
  std::string out;
  for (const float v : values) out += little_endian(bit_cast<std::uint32_t>(v) >> 16, 2);
  return out;
}

// x, codes, scales, outer, amax, choice and values, as far as the recipe has them.
inline std::vector<FileTensor> tensors_of(const StoredCase& c, std::string_view nibbles = "",
                                          std::string_view layout = "linear") {
  const QuantizedTile& t = c.q.tile;
  std::vector<FileTensor> out;
  const bool is_bf16 = c.source == SourceType::kBf16;
  for (const float v : c.x) {
    if (is_bf16 && (bit_cast<std::uint32_t>(v) & 0xFFFFu) != 0) {
      throw std::invalid_argument("an input is no BF16 value");
    }
  }
  out.push_back(
      {"x", is_bf16 ? "BF16" : "F32", {c.rows, c.cols}, is_bf16 ? bf16_bytes(c.x) : bytes_of(c.x)});
  if (nibbles.empty()) nibbles = c.recipe.packs_nibbles() ? "low-first" : "bytes";
  const std::int64_t width = c.recipe.code_bytes();
  const Bytes codes = packed_codes(nibbles, c.rows, c.cols * width, t.codes, t.padded_cols * width);
  out.push_back({"codes", "U8", {c.rows, std::ssize(codes) / c.rows}, data_of(codes)});
  if (const std::int64_t bytes = c.recipe.format.scale_bytes; bytes > 0) {
    const Bytes scales = stored_scales(layout, c.rows, t.blocks_per_row, bytes, t.scales);
    out.push_back({"scales", "U8", {std::ssize(scales)}, data_of(scales)});
  }
  if (c.recipe.has_outer()) {
    std::vector<float> g, amax;
    for (const OuterScale32& outer : c.q.outer) {
      g.push_back(outer.g);
      amax.push_back(outer.amax);
    }
    out.push_back({"outer", "F32", {std::ssize(g)}, bytes_of(g)});
    out.push_back({"amax", "F32", {std::ssize(amax)}, bytes_of(amax)});
  }
  if (c.recipe.chooses()) {
    out.push_back({"choice", "U8", {c.rows, t.blocks_per_row}, data_of(t.choices)});
  }
  out.push_back({"values", "F32", {c.rows, c.cols}, bytes_of(c.q.values)});
  return out;
}
inline FileTensor& tensor_named(std::vector<FileTensor>& tensors, std::string_view name) {
  for (FileTensor& t : tensors) {
    if (t.name == name) return t;
  }
  throw std::invalid_argument("no tensor " + std::string(name));
}
inline std::string& data_named(std::vector<FileTensor>& tensors, std::string_view name) {
  return tensor_named(tensors, name).data;
}
// Byte `byte` of `name` becomes `value`.
inline void poke(std::vector<FileTensor>& tensors, std::string_view name, std::int64_t byte,
                 int value) {
  data_named(tensors, name).at(static_cast<std::size_t>(byte)) = static_cast<char>(value);
}
// The low-first code of element (row, col).
inline void poke_code(std::vector<FileTensor>& tensors, std::int64_t row, std::int64_t col,
                      int code) {
  FileTensor& t = tensor_named(tensors, "codes");
  char& byte = t.data.at(static_cast<std::size_t>(row * t.shape.back() + col / 2));
  const int shift = col % 2 == 0 ? 0 : 4;
  byte = static_cast<char>((byte & ~(0xF << shift)) | code << shift);
}

// `parts`: any of codes, scales, outer, amax, choice, values, by blanks.
inline VerifyCase job_of(const std::string& path, const std::string& recipe,
                         std::string_view parts = "codes scales") {
  const auto operand = [&](std::string_view name) {
    return parts.find(name) != std::string_view::npos ? path + ":" + std::string(name)
                                                      : std::string();
  };
  VerifyCase job;
  job.recipe = recipe;
  job.input = path + ":x";
  job.codes = operand("codes");
  job.scales = operand("scales");
  job.outer_scale = operand("outer");
  job.amax = operand("amax");
  job.choice = operand("choice");
  job.fake = operand("values");
  return job;
}

inline VerifyResult verified(const VerifyCase& job, const VerifyOptions& options = {}) {
  SourceCache sources;
  return verify(job, options, sources);
}
// Writes the tensors and compares them.
inline VerifyResult verified(const std::string& path, const std::vector<FileTensor>& tensors,
                             VerifyCase job, const VerifyOptions& options = {}) {
  write_tensors(path, tensors);
  return verified(job, options);
}

// The counts of the classes that occur, as "tie 1, adjacent_code 2"; "" where none does.
inline std::string classes_text(const VerifyResult& result) {
  std::string out;
  for (int i = 0; i < kDifferenceClasses; ++i) {
    const std::int64_t n = result.classes[static_cast<std::size_t>(i)];
    if (n == 0) continue;
    out += (out.empty() ? "" : ", ") + std::string(name_of(static_cast<DifferenceClass>(i))) + " " +
           std::to_string(n);
  }
  return out;
}

}  // namespace fp4scope::test
