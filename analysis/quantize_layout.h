// quantize_layout.h: what quantize_file.cc and dequantize_file.cc share: the planes of fp4scope's
// own layout (product.md, "Machine-readable output").
#pragma once
#include <cstdint>
#include <vector>

#include "sim/quantized_tensor.h"
#include "sim/recipe.h"

namespace fp4scope {

// Shapes of the planes of one tensor flattened to [rows, cols].
struct Planes {
  std::int64_t rows = 0, cols = 0, blocks = 0;
  std::int64_t code_cols = 0;      // bytes of codes per row
  std::int64_t scale_bytes = 1;    // per block
  std::int64_t outer_entries = 0;  // 0: the format has no outer scale
  bool chooses = false;            // there is a plane of choice bits, a byte per block
};

inline Planes planes_of(const Recipe& recipe, std::int64_t rows, std::int64_t cols) {
  Planes planes;
  planes.rows = rows;
  planes.cols = cols;
  planes.blocks = cols / recipe.format.block + (cols % recipe.format.block != 0 ? 1 : 0);
  planes.code_cols = packed_code_bytes(recipe, cols);
  planes.scale_bytes = recipe.format.scale_bytes;
  const bool is_one = recipe.family == Family::kNvfp4 && recipe.nvfp4.scale == OuterScale::kNone;
  if (recipe.has_outer() && !is_one) planes.outer_entries = recipe.scales_rows() ? rows : 1;
  planes.chooses = recipe.chooses();
  return planes;
}

inline std::vector<std::int64_t> scales_shape(const Planes& planes) {
  if (planes.scale_bytes == 1) return {planes.rows, planes.blocks};
  return {planes.rows, planes.blocks, planes.scale_bytes};
}

}  // namespace fp4scope
