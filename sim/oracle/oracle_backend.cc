// oracle_backend.cc: the exact backend, "oracle": slow, independent of every codec, and used only
// when asked for by name. Walks a tile block by block; padding of ragged tails is +0
// (spec/layouts.md section 3).
#include <fmt/format.h>

#include <algorithm>

#include "sim/backend.h"
#include "sim/error.h"
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope {
namespace {

using namespace oracle;

float element_at(const Tile& tile, std::int64_t row, std::int64_t col) {
  const bool inside = row < tile.rows && col < tile.cols;
  return inside ? tile.f32[row * tile.stride + col] : 0.0f;
}

Number number_at(const Tile& tile, std::int64_t row, std::int64_t col) {
  if (row >= tile.rows || col >= tile.cols) return {};
  const std::int64_t at = row * tile.stride + col;
  return tile.f64 != nullptr ? exact(tile.f64[at]) : exact(tile.f32[at]);
}

// Outer scale of a row.
void quantize_mx(const Recipe& recipe, const Tile& tile, QuantizedTile& out) {
  const int size = recipe.format.block;
  std::vector<Number> x(static_cast<std::size_t>(size));
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    for (std::int64_t b = 0; b < out.blocks_per_row; ++b) {
      for (int i = 0; i < size; ++i) {
        x[static_cast<std::size_t>(i)] = number_at(tile, row, b * size + i);
      }
      const MxBlock block =
          encode_mx(recipe.mx, recipe.format.element, x, /*binary64=*/tile.f64 != nullptr);
      out.scales[static_cast<std::size_t>(row * out.blocks_per_row + b)] =
          static_cast<std::uint8_t>(block.byte);
      for (int i = 0; i < size; ++i) {
        out.codes[static_cast<std::size_t>(row * out.padded_cols + b * size + i)] =
            static_cast<std::uint8_t>(block.codes[static_cast<std::size_t>(i)]);
      }
    }
  }
}

void quantize_nvfp4(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                    QuantizedTile& out) {
  constexpr int kSize = 16;
  const int band = recipe.is_2d() ? 16 : 1;  // rows that share a scale byte
  std::vector<float> block;
  for (std::int64_t top = 0; top < tile.rows; top += band) {
    const float g = outer_of_row(recipe, outer, top).encode_scale;
    for (std::int64_t b = 0; b < out.blocks_per_row; ++b) {
      block.clear();
      for (std::int64_t row = top; row < top + band; ++row) {
        for (int i = 0; i < kSize; ++i) block.push_back(element_at(tile, row, b * kSize + i));
      }
      const std::uint32_t byte = scale_byte_te(g, block);
      for (std::int64_t row = top; row < std::min(top + band, tile.rows); ++row) {
        out.scales[static_cast<std::size_t>(row * out.blocks_per_row + b)] =
            static_cast<std::uint8_t>(byte);
        for (int i = 0; i < kSize; ++i) {
          const float x = element_at(tile, row, b * kSize + i);
          out.codes[static_cast<std::size_t>(row * out.padded_cols + b * kSize + i)] =
              static_cast<std::uint8_t>(encode_te(recipe.nvfp4, g, byte, x));
        }
      }
    }
  }
}

void quantize_hif4(const Recipe& recipe, const Tile& tile, QuantizedTile& out) {
  std::array<float, 64> x;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    for (std::int64_t b = 0; b < out.blocks_per_row; ++b) {
      for (int i = 0; i < 64; ++i) {
        x[static_cast<std::size_t>(i)] = element_at(tile, row, b * 64 + i);
      }
      const Hif4Group group = encode_hif4(recipe.hif4, x);
      if (group.refused) {
        throw RefusedInput(row, "NaN or Inf, which the recipe refuses (nonfinite=error)");
      }
      std::array<std::uint32_t, 4> bytes{group.e6m2, 0, 0, 0};
      for (std::size_t j = 0; j < 8; ++j) bytes[1] |= group.e8[j] << j;
      for (std::size_t k = 0; k < 16; ++k) bytes[2 + k / 8] |= group.e16[k] << (k % 8);
      for (std::size_t i = 0; i < 4; ++i) {
        out.scales[static_cast<std::size_t>((row * out.blocks_per_row + b) * 4) + i] =
            static_cast<std::uint8_t>(bytes[i]);
      }
      for (std::size_t i = 0; i < 64; ++i) {
        out.codes[static_cast<std::size_t>(row * out.padded_cols + b * 64) + i] =
            static_cast<std::uint8_t>(group.codes[i]);
      }
    }
  }
}

class OracleBackend final : public Backend {
 public:
  std::string_view name() const override { return "oracle"; }
  Support available() const override { return {}; }
  Support supports(const Recipe&) const override { return {}; }

  OuterScale32 outer_scale(const Recipe& recipe, std::uint32_t amax_bits) const override {
    if (recipe.family == Family::kNvfp4) return outer_te(recipe.nvfp4, amax_bits);
    OuterScale32 none;
    none.amax = bit_cast<float>(amax_bits);
    return none;
  }

  void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                QuantizedTile& out) const override {
    require_outer(recipe, tile.rows, outer.size());
    resize(out, recipe, tile.rows, tile.cols);
    switch (recipe.family) {
      case Family::kMx:
        return quantize_mx(recipe, tile, out);
      case Family::kNvfp4:
        return quantize_nvfp4(recipe, tile, outer, out);
      case Family::kHif4:
        return quantize_hif4(recipe, tile, out);
    }
  }

  void dequantize(const Recipe& recipe, const QuantizedTile& tile,
                  std::span<const OuterScale32> outer, float* values,
                  std::int64_t stride) const override {
    require_outer(recipe, tile.rows, outer.size());
    const int size = recipe.format.block;
    const int scale_bytes = recipe.format.scale_bytes;
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      for (std::int64_t col = 0; col < tile.cols; ++col) {
        const std::uint8_t* scale = &tile.scales[static_cast<std::size_t>(
            (row * tile.blocks_per_row + col / size) * scale_bytes)];
        const std::uint32_t code =
            tile.codes[static_cast<std::size_t>(row * tile.padded_cols + col)];
        values[row * stride + col] = decode(recipe, outer, row, scale, col % size, code);
      }
    }
  }

 private:
  static float decode(const Recipe& recipe, std::span<const OuterScale32> outer, std::int64_t row,
                      const std::uint8_t* scale, std::int64_t i, std::uint32_t code) {
    switch (recipe.family) {
      case Family::kMx:
        return decode_mx(recipe.format.element, scale[0], code);
      case Family::kNvfp4:
        return decode_te(recipe.nvfp4, outer_of_row(recipe, outer, row), scale[0], code);
      case Family::kHif4: {
        const std::uint32_t e8 = scale[1] >> (i / 8) & 1u;
        const std::uint32_t e16 = scale[2 + i / 32] >> (i / 4 % 8) & 1u;
        return decode_hif4(recipe.hif4.width, scale[0], e8, e16, code);
      }
    }
    return 0.0f;
  }
};

}  // namespace

const Backend& oracle_backend() {
  static const OracleBackend backend;
  return backend;
}

}  // namespace fp4scope
