// quantized_tensor.cc: packing, and whole tensors through a backend.
#include "sim/quantized_tensor.h"

#include <algorithm>
#include <string>

#include "formats/amax.h"
#include "sim/amax.h"
#include "sim/error.h"
#include "sim/transforms.h"

namespace fp4scope {
namespace {

// The levels that are stored per block, with their bytes in the interleaved plane of a tile.
std::vector<ScalePlane> planes_of(const BlockFormat& format) {
  std::vector<ScalePlane> planes;
  for (int i = 0; i < format.num_levels; ++i) {
    const ScaleLevel& level = format.levels[static_cast<std::size_t>(i)];
    if (level.group == 0) continue;  // the outer scale
    const int bits = level.storage_bits() * (format.block / level.group);
    planes.push_back({level, (bits + 7) / 8, {}});
  }
  return planes;
}

QuantizedTile unpacked(const QuantizedTensor& tensor) {
  QuantizedTile tile;
  resize(tile, tensor.recipe, tensor.rows, tensor.cols);
  for (std::int64_t r = 0; r < tensor.rows; ++r) {
    unpack_codes(tensor.recipe, tensor.codes.data() + r * tensor.code_bytes_per_row, tensor.cols,
                 tile.codes.data() + r * tile.padded_cols * tensor.recipe.code_bytes());
  }
  std::int64_t offset = 0;
  const std::int64_t scale_bytes = tensor.recipe.format.scale_bytes;
  for (const ScalePlane& plane : tensor.scales) {
    const std::int64_t n = plane.bytes_per_block;
    for (std::int64_t b = 0; b < tensor.rows * tensor.blocks_per_row; ++b) {
      std::copy_n(plane.bytes.data() + b * n, n, tile.scales.data() + b * scale_bytes + offset);
    }
    offset += n;
  }
  tile.choices = tensor.choices;
  return tile;
}

}  // namespace

std::uint32_t QuantizedTensor::code(std::int64_t row, std::int64_t col) const {
  const std::uint8_t* line = codes.data() + row * code_bytes_per_row;
  if (recipe.code_bytes() == 2) {
    return line[2 * col] | static_cast<std::uint32_t>(line[2 * col + 1]) << 8;
  }
  return recipe.packs_nibbles() ? line[col / 2] >> (col % 2 * 4) & 0xfu : line[col];
}

std::int64_t packed_code_bytes(const Recipe& recipe, std::int64_t cols) {
  return recipe.packs_nibbles() ? cols / 2 + cols % 2 : cols * recipe.code_bytes();
}

void pack_codes(const Recipe& recipe, const std::uint8_t* codes, std::int64_t cols,
                std::uint8_t* packed) {
  if (!recipe.packs_nibbles()) {
    std::copy_n(codes, cols * recipe.code_bytes(), packed);
    return;
  }
  for (std::int64_t c = 0; c + 1 < cols; c += 2) {
    packed[c / 2] = static_cast<std::uint8_t>((codes[c] & 0xf) | codes[c + 1] << 4);
  }
  if (cols % 2 != 0) packed[cols / 2] = codes[cols - 1] & 0xf;
}

void unpack_codes(const Recipe& recipe, const std::uint8_t* packed, std::int64_t cols,
                  std::uint8_t* codes) {
  if (!recipe.packs_nibbles()) {
    std::copy_n(packed, cols * recipe.code_bytes(), codes);
    return;
  }
  for (std::int64_t c = 0; c < cols; ++c) {
    codes[c] = static_cast<std::uint8_t>(packed[c / 2] >> (c % 2 * 4) & 0xf);
  }
}

namespace {

void refuse_shape(const Recipe& recipe, const TensorView& x) {
  require_random_shape(recipe, x.rows, x.cols, x.source);
  const std::int64_t cols = x.cols;
  if (recipe.ragged() == Ragged::kError && cols % recipe.format.block != 0) {
    throw Error(ErrorKind::kData, "recipe " + to_string(recipe) +
                                      ": expected rows of a multiple of " +
                                      std::to_string(recipe.format.block) + " elements, found " +
                                      std::to_string(cols));
  }
}

// The tensor that the codec sees.
TensorView transformed(const TensorView& x, const Recipe& recipe, std::vector<float>& storage) {
  if (recipe.rht.size == 0) return x;
  TensorView out = x;
  storage.resize(static_cast<std::size_t>(x.rows * x.cols));
  for (std::int64_t r = 0; r < x.rows; ++r) {
    std::copy_n(x.f32 + r * x.stride, x.cols, storage.data() + r * x.cols);
  }
  out.f32 = storage.data();
  out.f64 = nullptr;
  out.stride = x.cols;
  apply_rht(recipe, out, storage.data());
  return out;
}

std::vector<OuterScale32> outer_scales(const TensorView& x, const Recipe& recipe,
                                       const Backend& backend) {
  std::vector<OuterScale32> outer;
  std::uint32_t tensor_amax = 0;
  for (std::int64_t r = 0; recipe.has_outer() && r < x.rows; ++r) {
    const std::uint32_t row_amax = vector_amax_bits(x.f32 + r * x.stride, x.cols);
    tensor_amax = merged_amax_bits(tensor_amax, row_amax);
    if (recipe.scales_rows())
      outer.push_back(backend.outer_scale(recipe, amax_of(recipe, row_amax)));
  }
  if (!recipe.scales_rows())
    outer.push_back(backend.outer_scale(recipe, amax_of(recipe, tensor_amax)));
  return outer;
}

}  // namespace

std::vector<float> fake_quantize(const TensorView& source, const Recipe& recipe,
                                 const Backend& backend) {
  refuse_shape(recipe, source);
  std::vector<float> storage, values(static_cast<std::size_t>(source.rows * source.cols));
  TensorView x = transformed(source, recipe, storage);
  std::vector<float> flat;
  std::vector<double> flat64;
  if (recipe.ragged() == Ragged::kFlat && x.cols % recipe.format.block != 0) {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      flat.insert(flat.end(), x.f32 + r * x.stride, x.f32 + r * x.stride + x.cols);
      if (x.f64 != nullptr) {
        flat64.insert(flat64.end(), x.f64 + r * x.stride, x.f64 + r * x.stride + x.cols);
      }
    }
    x.cols = x.stride = x.rows * x.cols;
    x.rows = x.rows > 0 ? 1 : 0;
    x.f32 = flat.data();
    x.f64 = x.f64 != nullptr ? flat64.data() : nullptr;
  }
  const std::vector<OuterScale32> outer = outer_scales(x, recipe, backend);
  QuantizedTile tile;
  backend.quantize(recipe, x, outer, tile);
  backend.dequantize(recipe, tile, outer, values.data(), x.cols);
  if (!recipe.keeps_nan_elements()) return values;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const float v = x.f32[r * x.stride + c];
      if (v != v) values[static_cast<std::size_t>(r * x.cols + c)] = v;
    }
  }
  return values;
}

QuantizedTensor quantize(const TensorView& source, const Recipe& recipe, const Backend& backend) {
  refuse_shape(recipe, source);
  const bool crosses = recipe.ragged() == Ragged::kFlat && source.cols % recipe.format.block != 0;
  if (recipe.keeps_nan_elements() || crosses) {
    throw Error(ErrorKind::kUnsupported,
                "recipe " + to_string(recipe) +
                    (crosses ? ": blocks would cross row ends, which a quantized tensor cannot hold"
                             : ": NaN elements have values but no codes"));
  }
  std::vector<float> storage;
  const TensorView x = transformed(source, recipe, storage);
  QuantizedTensor out;
  out.recipe = recipe;
  out.rows = x.rows;
  out.cols = x.cols;
  out.outer = outer_scales(x, recipe, backend);

  QuantizedTile tile;
  backend.quantize(recipe, x, out.outer, tile);
  out.blocks_per_row = tile.blocks_per_row;
  out.code_bytes_per_row = packed_code_bytes(recipe, x.cols);
  out.codes.resize(static_cast<std::size_t>(x.rows * out.code_bytes_per_row));
  for (std::int64_t r = 0; r < x.rows; ++r) {
    pack_codes(recipe, tile.codes.data() + r * tile.padded_cols * recipe.code_bytes(), x.cols,
               out.codes.data() + r * out.code_bytes_per_row);
  }
  out.choices = std::move(tile.choices);
  out.scales = planes_of(recipe.format);
  std::int64_t offset = 0;
  const std::int64_t blocks = x.rows * tile.blocks_per_row;
  for (ScalePlane& plane : out.scales) {
    const std::int64_t n = plane.bytes_per_block;
    plane.bytes.resize(static_cast<std::size_t>(blocks * n));
    for (std::int64_t b = 0; b < blocks; ++b) {
      std::copy_n(tile.scales.data() + b * recipe.format.scale_bytes + offset, n,
                  plane.bytes.data() + b * n);
    }
    offset += n;
  }
  return out;
}

std::vector<float> dequantize(const QuantizedTensor& tensor, const Backend& backend) {
  std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.cols));
  backend.dequantize(tensor.recipe, unpacked(tensor), tensor.outer, values.data(), tensor.cols);
  return values;
}

}  // namespace fp4scope
