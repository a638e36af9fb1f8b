// totals.cc: merging of tiles, threads and tensors; see totals.h for what depends on order.
#include "analysis/metrics/totals.h"

#include <algorithm>

namespace fp4scope {
namespace {

void add_vector(std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  if (a.size() < b.size()) a.resize(b.size());
  for (std::size_t i = 0; i < b.size(); ++i) a[i] += b[i];
}

}  // namespace

void ErrorSums::add(const ErrorSums& o) {
  squared_error += o.squared_error;
  absolute_error += o.absolute_error;
  error += o.error;
  signal += o.signal;
  value += o.value;
  product += o.product;
  crest += o.crest;
}

void Counts::add(const Counts& o) {
  elements += o.elements;
  counted += o.counted;
  nonzero += o.nonzero;
  zeros += o.zeros;
  nonfinite_in += o.nonfinite_in;
  nonfinite_out += o.nonfinite_out;
  inexact += o.inexact;
  underflow_code += o.underflow_code;
  underflow_scale += o.underflow_scale;
  saturated += o.saturated;
  blocks += o.blocks;
  zero_blocks += o.zero_blocks;
  nonzero_blocks += o.nonzero_blocks;
  lost_blocks += o.lost_blocks;
  scale_min += o.scale_min;
  scale_max += o.scale_max;
  scale_nan += o.scale_nan;
  chosen4 += o.chosen4;
  level2_bits += o.level2_bits;
  level2_set += o.level2_set;
  level3_bits += o.level3_bits;
  level3_set += o.level3_set;
}

void Tallies::add(const Tallies& o) {
  counts.add(o.counts);
  add_vector(codes, o.codes);
  add_vector(scales, o.scales);
  add_vector(amax_exponents, o.amax_exponents);
  add_vector(absolute_error_bins, o.absolute_error_bins);
  add_vector(relative_error_bins, o.relative_error_bins);
  add_vector(map_elements, o.map_elements);
  add_vector(map_underflow, o.map_underflow);
  add_vector(map_saturated, o.map_saturated);
  add_vector(map_scale_sum, o.map_scale_sum);
  add_vector(map_blocks, o.map_blocks);
}

void Totals::add_tile(const TileSums& tile) {
  sums.add(tile.sums);
  max_abs_err = std::max(max_abs_err, tile.max_abs_err);
  amax = std::max(amax, tile.amax);
  crest_max = std::max(crest_max, tile.crest_max);
  for (std::size_t i = 0; i < tile.cell_error.size(); ++i) {
    map_squared_error[static_cast<std::size_t>(tile.first_cell) + i] += tile.cell_error[i];
  }
}

void Totals::add(const Totals& o) {
  tallies.add(o.tallies);
  sums.add(o.sums);
  max_abs_err = std::max(max_abs_err, o.max_abs_err);
  amax = std::max(amax, o.amax);
  crest_max = std::max(crest_max, o.crest_max);
  code_count = std::max(code_count, o.code_count);
  has_scale_codes = has_scale_codes && o.has_scale_codes;
  chooses = chooses || o.chooses;
  full_percentiles = o.full_percentiles;
}

MapGrid make_map_grid(std::int64_t rows, std::int64_t blocks_per_row, std::int64_t map_size) {
  MapGrid grid;
  if (map_size <= 0 || rows == 0 || blocks_per_row == 0) return grid;
  grid.rows_per_cell = (rows + map_size - 1) / map_size;
  grid.blocks_per_cell = (blocks_per_row + map_size - 1) / map_size;
  grid.grid_rows = (rows + grid.rows_per_cell - 1) / grid.rows_per_cell;
  grid.grid_cols = (blocks_per_row + grid.blocks_per_cell - 1) / grid.blocks_per_cell;
  return grid;
}

}  // namespace fp4scope
