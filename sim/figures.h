// figures.h: what is measured of every block while a tile is quantized, handed over in strips of 64
// blocks. The order of every float addition in a block is fixed (design/architecture, determinism):
//   d = fl(v - x) in binary32 (binary64 for a binary64 source, with all its sums);
//   sums in binary32 in element order, in binary64 when the block's amax is nonzero and outside
//   2^-40..2^40 (same values, widened exactly).
// Kernels that put one block into each lane follow this order by themselves.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/minifloat.h"
#include "sim/backend.h"

namespace fp4scope {

inline constexpr int kStripBlocks = 64;
// A kernel may write as many blocks at once, beyond the end of a strip.
inline constexpr int kMostLanes = 16;

// Blocks first .. first + count - 1 of a tile, counted along its rows; block i of the strip is
// entry i. An element is `finite` when its input is, and `counted` when its decoded value is too;
// what follows `counted` is about those only.
struct StripFigures {
  template <class T>
  using PerBlock = std::array<T, kStripBlocks + kMostLanes>;

  std::int64_t first = 0;
  int count = 0;
  alignas(64) PerBlock<std::int32_t> elements;
  alignas(64) PerBlock<std::int32_t> finite;
  alignas(64) PerBlock<std::int32_t> counted;
  alignas(64) PerBlock<std::int32_t> zeros;           // input +0 or -0
  alignas(64) PerBlock<std::int32_t> inexact;         // decoded value differs from the input
  alignas(64) PerBlock<std::int32_t> underflow;       // x != 0, decoded to 0
  alignas(64) PerBlock<std::int32_t> underflow_code;  // of these, those with a code of zero
  alignas(64) PerBlock<std::int32_t> saturated;       // the cast clamped the element
  alignas(64) PerBlock<double> amax;                  // of the finite elements
  alignas(64) PerBlock<double> max_error;
  alignas(64) PerBlock<double> squared_error, absolute_error, error, signal, value, product;
  alignas(64) PerBlock<double> energy;  // sum of x*x of the finite elements
  alignas(64) PerBlock<std::uint8_t> is_map4;
  // [count, format.scale_bytes], as in QuantizedTile.
  const std::uint8_t* scales = nullptr;
  // Decoded values of each block; only where asked for (FigureSink::wants_values).
  PerBlock<const float*> values;
};

class FigureSink {
 public:
  virtual ~FigureSink() = default;
  // Whether decoded values are wanted for the strip that begins at this block.
  virtual bool wants_values(std::int64_t first) const = 0;
  virtual void add(const StripFigures& strip) = 0;
};

// Block sums into 16 accumulators by block index mod 16 in the strip, these in index order.
inline constexpr std::size_t kStripLanes = 16;
double folded(const StripFigures::PerBlock<double>& sums, int count);

// One block of a tile with its codes and decoded values.
template <class X>
struct MeasuredBlock {
  const X* x;
  const float* v;
  const std::uint8_t* codes;
  const std::uint8_t* scale;
  OuterScale32 outer;
  int n;
  bool is_map4;
};

// Figures of single blocks from codes and decoded values.
class BlockMeter {
 public:
  explicit BlockMeter(const Recipe& recipe);
  // Fills entry `i` of the strip, but not its scales and values.
  void measure(const MeasuredBlock<float>& block, StripFigures& strip, int i) const;
  void measure(const MeasuredBlock<double>& block, StripFigures& strip, int i) const;

 private:
  const Recipe& recipe_;
  // What the codes of the element type mean.
  std::array<bool, 256> is_zero_code_{}, is_top_code_{};
  SaturationLimit saturation_;
  int code_bytes_;
  template <class X>
  void measure_block(const MeasuredBlock<X>& block, StripFigures& strip, int i) const;
};

// Figures of a whole tile. `values`: [rows, cols] with the tile's stride. `sink` may be null.
// `code_counts`, 256 entries or null: how often each code occurs, added to; untouched for 16-bit
// codes.
void measure_tile(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                  const QuantizedTile& quantized, const float* values, FigureSink* sink,
                  std::int64_t* code_counts);

}  // namespace fp4scope
