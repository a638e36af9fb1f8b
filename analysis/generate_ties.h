// generate_ties.h: tie-aligned tensors: values that a recipe's element rounding finds exactly
// between two neighbouring codes, or one ulp of the dtype beside. No quantization arithmetic is
// written here: anchors fix the scales, the recipe's own backend quantizes them, and every value is
// placed where the recipe's own scaled magnitude (sim/element.h) is the midpoint.
//
// The tensor is seen as the recipe sees it, rows x cols with blocks along the columns. In each
// finest group of elements that share a scale (16 of NVFP4, 4 of HiF4) one element, the anchor, is
// the amax; its place, sign and size are drawn. Block anchors are the largest code times a number
// of few significant bits, so that scales are exact where the format allows; HiF4 groups within a
// block have 1, 1/2 or 1/4 of it. The first element (scale=row: of each row) is the amax of the
// tensor. Of the other elements a half is put on a midpoint that is drawn among those up to the
// anchor, a quarter one ulp below and a quarter one ulp above; where no value of the dtype is
// scaled to the midpoint exactly, the nearest one above it counts as the tie. Recipes with a choice
// per block get three quarters of the elements on codes, or the choice would evade the ties.
#pragma once
#include <cstdint>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "analysis/random_bits.h"
#include "sim/backend.h"

namespace fp4scope {

struct TileSpan;  // analysis/tiles.h

struct TieCounts {
  std::int64_t elements = 0;
  std::int64_t ties = 0;  // scaled exactly to a midpoint, measured on the finished tile
};

class TieAligned {
 public:
  // F64, F32, F16 or BF16. `amax` 0: of a few values the first under which the outer scale of the
  // recipe is a power of two. Throws Error(kUsage) for a recipe without fixed element ties
  // (stochastic rounding, Hadamard transform, elements from a table) and for an amax that is no
  // positive normal value of the dtype.
  TieAligned(const Recipe& recipe, DType dtype, std::int64_t cols, StreamKey key, float amax);

  struct Anchor {
    std::int64_t col;  // in the tile
    double magnitude;
  };
  struct Work {                       // of one thread
    std::vector<std::uint64_t> bits;  // per element
    std::vector<float> f32, decoded;
    std::vector<Anchor> anchors;  // per band of rows and finest group
    QuantizedTile quantized, previous;
  };
  // Values of the tile, row-major without gaps, all of them values of the dtype. The span has whole
  // blocks and bands (tile_steps()), except at the ends of the tensor. Adds to `counts`.
  void fill(const TileSpan& span, double* out, Work& work, TieCounts& counts) const;
  float amax() const { return amax_; }

 private:
  struct Pass;  // one tile on its way
  void place_anchors(Pass& pass) const;
  double block_anchor(std::int64_t row, std::int64_t block, std::uint64_t bits) const;
  void quantize(Pass& pass) const;
  void decode_largest(Pass& pass) const;
  void fill_blocks(Pass& pass, const QuantizedTile* before) const;
  double tie_value(const Pass& pass, std::int64_t row, std::int64_t col, double limit) const;
  double value_near(const Pass& pass, std::int64_t row, std::int64_t col, double target,
                    double start) const;
  double scaled(const Pass& pass, std::int64_t row, std::int64_t col, double value) const;
  void count_ties(const Pass& pass, TieCounts& counts) const;

  Recipe recipe_;
  const Backend& backend_;
  DType dtype_;
  std::int64_t cols_;
  StreamKey key_;
  float amax_;
  OuterScale32 outer_;
  std::int64_t group_;             // elements of the finest scale level
  int significand_bits_;           // of the block anchors, over the largest code
  double largest_;                 // magnitude of the largest code
  std::vector<double> midpoints_;  // ascending
};

}  // namespace fp4scope
