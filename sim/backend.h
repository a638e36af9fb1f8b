// backend.h: an implementation of recipes. Plain data only, so that a CUDA backend can be linked
// without exposing CUDA types. Backends are listed fastest first with "reference" last among the
// automatic ones; "oracle" is exact, slow and only used when asked for by name.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/recipe.h"

namespace fp4scope {

enum class SourceType : std::uint8_t { kF32, kBf16, kF16, kF64 };

// A piece of a tensor: `rows` x `cols` elements, blocks run along the columns. `f32` holds the
// values as binary32 (a binary64 source rounded once, to nearest even); `f64` is set only when the
// source is binary64 and holds the original values. All have the same stride, in elements.
// 2-D recipes need rows in whole bands of format.block_rows, except for the last of the tensor.
struct Tile {
  const float* f32 = nullptr;
  const double* f64 = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
  SourceType source = SourceType::kF32;  // what the values were before they were widened
  // Place in the tensor, for stochastic rounding: random numbers belong to elements of a tensor and
  // not of a tile. tensor_cols 0: the tile is as wide as the tensor.
  std::int64_t first_row = 0, first_col = 0, tensor_cols = 0;
  std::uint64_t tensor_id = 0;
  // For run_tile() only, with `f32` null: BF16 or binary16 values (see `source`) as they are
  // stored.
  const std::uint16_t* f16 = nullptr;
};

// Second-level scale of one tensor, or of one row. Formats without an outer scale ignore it.
struct OuterScale32 {
  float amax = 0;  // of the tensor or row, NaN ignored
  // In the contract's convention: the encode scale of most NVFP4 contracts; a decode scale for
  // modelopt, torchao, flashinfer-kv and FP8.
  float g = 1;
};

// Codes and scales of a tile in logical order.
struct QuantizedTile {
  std::int64_t rows = 0;
  std::int64_t cols = 0;            // of the data, without padding
  std::int64_t blocks_per_row = 0;  // ceil(cols / block)
  std::int64_t padded_cols = 0;     // blocks_per_row * block
  // [rows, padded_cols], one byte per code; bf16: two, little endian
  std::vector<std::uint8_t> codes;
  // [rows, blocks_per_row, format.scale_bytes]. MX and NVFP4: the scale byte. HiF4: E6M2, level-2
  // bits, level-3 bits 0..7, level-3 bits 8..15, bit i of a byte is index i (LSB first). Binary32,
  // BF16 and FP16 block scales: little endian.
  std::vector<std::uint8_t> scales;
  // [rows, blocks_per_row], 1 = map-to-4 (if4: the INT4 candidate); empty unless Recipe::chooses().
  std::vector<std::uint8_t> choices;
  // [rows, blocks_per_row, 2]: the errors of map-to-4 and map-to-6 that were compared (of a 2-D
  // block on each of its rows). Filled when `wants_errors` is set and the recipe chooses.
  std::vector<float> errors;
  bool wants_errors = false;  // in: set before quantize()
};
// Sets the shape and allocates; every code and scale byte is then written by quantize().
void resize(QuantizedTile& tile, const Recipe& recipe, std::int64_t rows, std::int64_t cols);

// For recipes with outer scales: throws Error(kUsage) unless there is one, or one per row for
// scale=row. A slip of the caller that would read past the end.
void require_outer(const Recipe& recipe, std::int64_t rows, std::size_t outer_scales);
// The outer scale of a row; a default one for recipes without.
OuterScale32 outer_of_row(const Recipe& recipe, std::span<const OuterScale32> outer,
                          std::int64_t row);

// Whether a NaN makes the maximum of its tensor, row or block NaN (FP8 contracts of torch); the
// others ignore it.
bool propagates_nan(const Recipe& recipe);
// What Backend::outer_scale() takes, from the bits of marked_amax_bits() (formats/amax.h).
std::uint32_t amax_of(const Recipe& recipe, std::uint32_t marked);

struct TileOutput;  // sim/run_tile.h
struct TileScratch;

struct Support {
  bool ok = true;
  std::string reason;  // when not ok
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual Support available() const = 0;
  virtual Support supports(const Recipe& recipe) const = 0;
  // Outer scale from an amax (binary32 bits of a magnitude; NaN only where propagates_nan()); for
  // scale=none and scale=given as the recipe says.
  virtual OuterScale32 outer_scale(const Recipe& recipe, std::uint32_t amax_bits) const = 0;
  // `outer` has one entry, or tile.rows entries for row scales. `out` is resized.
  // Throws RefusedInput only where the recipe refuses the input (nonfinite=error, or a value that
  // its source says nothing about).
  virtual void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                        QuantizedTile& out) const = 0;
  // Decoded values as binary32, [rows, cols] with the given stride.
  virtual void dequantize(const Recipe& recipe, const QuantizedTile& tile,
                          std::span<const OuterScale32> outer, float* values,
                          std::int64_t stride) const = 0;
  // For run_tile() (sim/run_tile.h): everything that is wanted of a tile in one pass over it, with
  // the bits of quantize(), dequantize() and measure_tile(). False where this backend has no such
  // kernel for the recipe; nothing is written then.
  virtual bool run_fused(const Recipe&, const Tile&, std::span<const OuterScale32>,
                         const TileOutput&, TileScratch&) const {
    return false;
  }
};

// The CPU backends of this build, fastest first, "reference" last; the oracle is not among them.
std::span<const Backend* const> cpu_backends();
// sim/oracle: the exact backend.
const Backend& oracle_backend();

}  // namespace fp4scope
