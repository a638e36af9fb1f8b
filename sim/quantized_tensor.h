// quantized_tensor.h: a whole tensor in memory as packed codes and one plane per scale level, and
// the one-call form of a recipe. Logical order only: hardware layouts are separate functions.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/backend.h"

namespace fp4scope {

// A matrix in memory; blocks run along the columns. Like Tile, but for a whole tensor.
using TensorView = Tile;

// Bytes of one scale level, [rows, blocks, bytes_per_block], in the order of BlockFormat::levels
// without the outer scale. Levels of one bit per sub-group are packed LSB first: HiF4 has the
// planes E6M2 (1 byte), level 2 (1 byte, bit j = elements 8j..), level 3 (2 bytes, bit k = elements
// 4k..).
struct ScalePlane {
  ScaleLevel level;
  std::int64_t bytes_per_block = 1;
  std::vector<std::uint8_t> bytes;
};

struct QuantizedTensor {
  Recipe recipe;
  std::int64_t rows = 0, cols = 0;
  std::int64_t blocks_per_row = 0;
  // [rows, code_bytes_per_row]: four-bit codes two to a byte with element 0 in the low nibble,
  // wider ones a byte each. Padding of a ragged last block is not stored.
  std::int64_t code_bytes_per_row = 0;
  std::vector<std::uint8_t> codes;
  std::vector<ScalePlane> scales;
  std::vector<std::uint8_t> choices;  // [rows, blocks], 1 = map-to-4; empty unless recipe.chooses()
  std::vector<OuterScale32> outer;    // one, or one per row

  std::uint32_t code(std::int64_t row, std::int64_t col) const;
};

// Bytes of the codes of `cols` elements.
std::int64_t packed_code_bytes(const Recipe& recipe, std::int64_t cols);
// One row of one-byte codes to packed codes and back; `cols` elements.
void pack_codes(const Recipe& recipe, const std::uint8_t* codes, std::int64_t cols,
                std::uint8_t* packed);
void unpack_codes(const Recipe& recipe, const std::uint8_t* packed, std::int64_t cols,
                  std::uint8_t* codes);

// Applies the recipe's transform, measures the amax where the format has an outer scale, then
// quantizes. Throws Error(kData) for a row length that the recipe refuses and where
// Backend::quantize does, and Error(kUnsupported) where the result has no codes: NaN elements that
// stay NaN, and blocks that cross row ends (ragged=flat).
QuantizedTensor quantize(const TensorView& x, const Recipe& recipe, const Backend& backend);
// Decoded values, [rows, cols].
std::vector<float> dequantize(const QuantizedTensor& tensor, const Backend& backend);
// To codes and back in one call, [rows, cols]; every recipe can do it. With a Hadamard transform
// the values are those of the transformed tensor.
std::vector<float> fake_quantize(const TensorView& x, const Recipe& recipe, const Backend& backend);

}  // namespace fp4scope
