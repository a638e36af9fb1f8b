// totals.h: the mergeable result of one (tensor, recipe): integer counts, histograms and error
// sums. Counts and histograms merge in any order; the sums are added in a fixed order that depends
// on indices only (design/architecture: determinism), so every thread count and backend gives the
// same bits:
//   sums over a block as sim/figures.h says; block sums into 16 accumulators by block index mod 16
//   within a strip of 64 blocks; the 16 in index order; strips, then tiles, in order.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "sim/figures.h"

namespace fp4scope {

// Percentiles come from every 16th strip of a tile unless all are asked for.
inline constexpr int kSampleStrips = 16;
// Histogram bins of |err|: the upper 13 bits of a binary32 pattern, 5 of them fraction bits.
inline constexpr int kErrorBinShift = 18;
inline constexpr int kExponentOffset = 1100;  // amax exponents lie in -1074..1023
inline constexpr int kErrorBins = 1 << (31 - kErrorBinShift);

struct ErrorSums {
  double squared_error = 0;   // d*d
  double absolute_error = 0;  // |d|
  double error = 0;           // d
  double signal = 0;          // x*x
  double value = 0;           // v*v
  double product = 0;         // v*x
  double crest = 0;           // block amax / block rms (of finite x), over nonzero blocks
  void add(const ErrorSums& o);
};

struct Counts {
  std::int64_t elements = 0;
  std::int64_t counted = 0;          // finite input and finite decoded value
  std::int64_t nonzero = 0;          // finite and not zero
  std::int64_t zeros = 0;            // +0 and -0
  std::int64_t nonfinite_in = 0;     // NaN or Inf
  std::int64_t nonfinite_out = 0;    // decoded to NaN or Inf from a finite input
  std::int64_t inexact = 0;          // counted, decoded value differs from the input
  std::int64_t underflow_code = 0;   // x != 0, code 0 under a live scale
  std::int64_t underflow_scale = 0;  // x != 0, decoded 0 because the scale is zero
  std::int64_t saturated = 0;        // an unbounded grid would have rounded above the largest code
  std::int64_t blocks = 0;
  std::int64_t zero_blocks = 0;     // every element is +0 or -0
  std::int64_t nonzero_blocks = 0;  // at least one finite nonzero element
  std::int64_t lost_blocks = 0;     // nonzero block, scale 0: every element decodes to 0
  std::int64_t scale_min = 0;       // nonzero blocks whose scale code is the smallest (0)
  std::int64_t scale_max = 0;       // blocks whose scale code is the largest finite one
  std::int64_t scale_nan = 0;       // blocks whose scale is NaN
  std::int64_t chosen4 = 0;         // blocks that took map-to-4 (recipes that choose)
  std::int64_t level2_bits = 0, level2_set = 0;  // HiF4, sub-groups with at least one element
  std::int64_t level3_bits = 0, level3_set = 0;
  void add(const Counts& o);
};

struct TileSums {
  ErrorSums sums;
  double max_abs_err = 0;
  double amax = 0;
  double crest_max = 0;
  // Squared error of the map cells in the cell rows that the tile touches: cell first_cell + i,
  // each summed in block order.
  std::int64_t first_cell = 0;
  std::vector<double> cell_error;
};

// What merges in any order; one per thread and recipe while tiles run.
struct Tallies {
  Counts counts;
  std::vector<std::int64_t> codes = std::vector<std::int64_t>(256);
  std::vector<std::int64_t> scales = std::vector<std::int64_t>(256);
  std::vector<std::int64_t> amax_exponents;  // blocks by exponent of amax + kExponentOffset
  std::vector<std::int64_t> absolute_error_bins, relative_error_bins;  // kErrorBins or empty
  std::vector<std::int64_t> map_elements, map_underflow, map_saturated, map_scale_sum, map_blocks;
  void add(const Tallies& o);
};

struct Totals {
  Tallies tallies;
  ErrorSums sums;
  double max_abs_err = 0;
  double amax = 0;
  double crest_max = 0;
  std::vector<double> map_squared_error;
  std::size_t code_count = 0;   // of the element format; 0: codes are not tallied
  bool has_scale_codes = true;  // block scales of one byte
  bool chooses = false;         // blocks have a choice bit
  bool full_percentiles = false;
  void add_tile(const TileSums& tile);  // in tile order
  void add(const Totals& o);            // in tensor order, for aggregates
};

// Cells of the maps: `rows_per_cell` rows and `blocks_per_cell` blocks each.
struct MapGrid {
  std::int64_t grid_rows = 0, grid_cols = 0;
  std::int64_t rows_per_cell = 1, blocks_per_cell = 1;
  bool enabled() const { return grid_rows > 0; }
};
MapGrid make_map_grid(std::int64_t rows, std::int64_t blocks_per_row, std::int64_t map_size);

// A tile under a recipe: `first_row` and `first_block` place it in the tensor for the maps.
struct TilePlace {
  const Recipe& recipe;
  const Tile& tile;
  std::int64_t first_row, first_block;
  const MapGrid& grid;
  bool full_percentiles;
};
// Whether the outermost block scale is one byte, which has a histogram.
bool has_scale_codes(const Recipe& recipe);
// Adds the figures of the tile's blocks, which must come in order, to `tallies` and `sums`. What
// `place` refers to must outlive it.
std::unique_ptr<FigureSink> make_accumulator(const TilePlace& place, Tallies& tallies,
                                             TileSums& sums);

}  // namespace fp4scope
