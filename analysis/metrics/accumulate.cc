// accumulate.cc: counts and error sums of one tile. The order of every float addition is fixed by
// block and element index; see totals.h.
#include <algorithm>
#include <cmath>

#include "analysis/metrics/totals.h"
#include "formats/minifloat.h"

namespace fp4scope {
namespace {

std::uint32_t magnitude_bits(float v) {
  return bit_cast<std::uint32_t>(v) & kMagnitudeMask;
}
bool is_finite(float v) {
  return magnitude_bits(v) < kInfBits;
}
bool is_finite(double v) {
  return (bit_cast<std::uint64_t>(v) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull;
}
float magnitude(float v) {
  return bit_cast<float>(magnitude_bits(v));
}
double magnitude(double v) {
  return bit_cast<double>(bit_cast<std::uint64_t>(v) & 0x7fffffffffffffffull);
}
int exponent_of(float v) {
  return std::max(1, static_cast<int>(magnitude_bits(v) >> 23)) - 127;
}
int exponent_of(double v) {
  return std::max(1, static_cast<int>(bit_cast<std::uint64_t>(v) >> 52 & 0x7ff)) - 1023;
}

// Where an unbounded grid would round above the largest code: |element value| beyond `limit`, or
// equal to it when `inclusive` (the tie goes up). limit and values are exact.
struct SaturationLimit {
  std::uint32_t code;  // magnitude code of the largest element
  double value;        // of that code
  double limit;
  bool inclusive;
};
SaturationLimit saturation_limit(const MinifloatSpec& element, Rounding ties) {
  const std::uint32_t top = element.max_finite_code();
  const double value = decode<Lane<1>>(element, top);
  const double step = value - decode<Lane<1>>(element, top - 1);
  if (ties == Rounding::kTrunc) return {top, value, value + step, true};
  const bool tie_goes_up = ties == Rounding::kAway || (ties == Rounding::kEven && (top & 1u) == 1u);
  return {top, value, value + step / 2, tie_goes_up};
}

// Sums of one block in T. Plain additions in element order.
template <class T>
struct BlockSums {
  T squared_error{}, absolute_error{}, error{}, signal{}, value{}, product{};
};

struct Context {
  const TileResult& result;
  Tallies& tallies;
  TileSums& tile;
  SaturationLimit saturation;
  std::uint32_t magnitude_mask;
  int scale_bytes;
  std::uint32_t scale_top;  // largest finite scale code
};

// X: float or double source. T: type of the sums.
template <class X, class T>
ErrorSums sum_block(const X* x, const float* v, int n) {
  BlockSums<T> s;
  for (int i = 0; i < n; ++i) {
    if (!is_finite(x[i]) || !is_finite(v[i])) continue;
    const X d = static_cast<X>(v[i]) - x[i];
    const T dt = d, xt = x[i], vt = v[i];
    s.squared_error += dt * dt;
    s.absolute_error += magnitude(dt);
    s.error += dt;
    s.signal += xt * xt;
    s.value += vt * vt;
    s.product += vt * xt;
  }
  return {s.squared_error, s.absolute_error, s.error, s.signal, s.value, s.product, 0};
}

template <class X>
void count_errors(const X* x, const float* v, int n, Tallies& t) {
  for (int i = 0; i < n; ++i) {
    if (!is_finite(x[i]) || !is_finite(v[i])) continue;
    const float d = magnitude(static_cast<float>(static_cast<X>(v[i]) - x[i]));
    ++t.absolute_error_bins[magnitude_bits(d) >> kErrorBinShift];
    if (x[i] == X{}) continue;
    const float relative =
        static_cast<float>(magnitude(static_cast<X>(v[i]) - x[i]) / magnitude(x[i]));
    ++t.relative_error_bins[magnitude_bits(relative) >> kErrorBinShift];
  }
}

struct CellCounts {
  std::int64_t elements = 0, underflow = 0, saturated = 0;
};

template <class X>
X count_block(const Context& c, const X* x, const float* v, const std::uint8_t* codes,
              bool scale_is_zero, int n, CellCounts& cell) {
  Counts& counts = c.tallies.counts;
  X amax{};
  counts.elements += n;
  for (int i = 0; i < n; ++i) {
    ++c.tallies.codes[codes[i]];
    if (!is_finite(x[i])) {
      ++counts.nonfinite_in;
      continue;
    }
    const X mag = magnitude(x[i]);
    amax = std::max(amax, mag);
    if (mag == X{}) {
      ++counts.zeros;
    } else {
      ++counts.nonzero;
    }
    if (!is_finite(v[i])) {
      ++counts.nonfinite_out;
      continue;
    }
    ++counts.counted;
    ++cell.elements;
    if (static_cast<X>(v[i]) != x[i]) ++counts.inexact;
    const std::uint32_t code = codes[i] & c.magnitude_mask;
    if (mag != X{} && v[i] == 0.0f) {
      ++cell.underflow;
      if (code == 0 && !scale_is_zero) {
        ++counts.underflow_code;
      } else {
        ++counts.underflow_scale;
      }
    } else if (code == c.saturation.code && v[i] != 0.0f) {
      // |x| >= limit * scale, the scale being |v| / value: as cross products, which are exact for
      // binary32 sources because limit and value have few bits.
      const double lhs = static_cast<double>(mag) * c.saturation.value;
      const double rhs = static_cast<double>(magnitude(v[i])) * c.saturation.limit;
      if (lhs > rhs || (c.saturation.inclusive && lhs == rhs)) {
        ++counts.saturated;
        ++cell.saturated;
      }
    }
  }
  return amax;
}

template <class X>
void accumulate_blocks(Context& c, const X* x_tile) {
  const TileResult& r = c.result;
  const QuantizedTile& q = r.quantized;
  const int block = r.recipe.format.block;
  const Family family = r.recipe.family;
  Counts& counts = c.tallies.counts;
  const std::int64_t total = q.rows * q.blocks_per_row;

  std::array<ErrorSums, kStripLanes> lanes{};
  const auto fold = [&] {
    ErrorSums strip;
    for (ErrorSums& lane : lanes) {
      strip.add(lane);
      lane = {};
    }
    c.tile.sums.add(strip);
  };
  if (r.grid.enabled() && total > 0) {
    const std::int64_t first = r.first_row / r.grid.rows_per_cell;
    const std::int64_t last = (r.first_row + q.rows - 1) / r.grid.rows_per_cell;
    c.tile.first_cell = first * r.grid.grid_cols;
    c.tile.cell_error.assign(static_cast<std::size_t>((last - first + 1) * r.grid.grid_cols), 0.0);
  }
  for (std::int64_t index = 0; index < total; ++index) {
    const std::int64_t row = index / q.blocks_per_row, b = index % q.blocks_per_row;
    const int n = static_cast<int>(std::min<std::int64_t>(block, q.cols - b * block));
    const X* x = x_tile + row * r.tile.stride + b * block;
    const float* v = r.values + row * r.tile.stride + b * block;
    const std::uint8_t* codes = q.codes.data() + row * q.padded_cols + b * block;
    const std::uint8_t* scale = q.scales.data() + index * c.scale_bytes;
    const bool scale_is_zero = family == Family::kNvfp4 && (scale[0] & 0x7f) == 0;
    const bool scale_is_nan = scale[0] == 0xff || (family == Family::kNvfp4 && scale[0] == 0x7f);

    CellCounts cell;
    const X amax = count_block(c, x, v, codes, scale_is_zero, n, cell);
    ++counts.blocks;
    ++c.tallies.scales[scale[0]];
    if (amax == X{}) {
      ++counts.zero_blocks;
    } else {
      ++c.tallies.amax_exponents[static_cast<std::size_t>(exponent_of(amax) + kExponentOffset)];
      if (scale_is_zero) ++counts.lost_blocks;
      if (scale[0] == 0) ++counts.scale_min;
    }
    if (scale_is_nan) ++counts.scale_nan;
    if (scale[0] == c.scale_top) ++counts.scale_max;
    if (family == Family::kHif4) {
      for (int j = 0; 8 * j < n; ++j) {
        ++counts.level2_bits;
        counts.level2_set += scale[1] >> j & 1;
      }
      for (int k = 0; 4 * k < n; ++k) {
        ++counts.level3_bits;
        counts.level3_set += scale[2 + k / 8] >> (k % 8) & 1;
      }
    }

    const bool wide = amax != X{} && (amax < X(0x1p-40) || amax > X(0x1p40));
    ErrorSums sums = sizeof(X) == sizeof(double) || wide ? sum_block<X, double>(x, v, n)
                                                         : sum_block<X, X>(x, v, n);
    if (amax != X{} && sums.signal > 0) {
      sums.crest = static_cast<double>(amax) / std::sqrt(sums.signal / n);
      c.tile.crest_max = std::max(c.tile.crest_max, sums.crest);
    }
    c.tile.amax = std::max(c.tile.amax, static_cast<double>(amax));
    const int in_strip = static_cast<int>(index % kStripBlocks);
    lanes[static_cast<std::size_t>(in_strip % kStripLanes)].add(sums);
    if (in_strip == kStripBlocks - 1 || index == total - 1) fold();

    for (int i = 0; i < n; ++i) {
      if (!is_finite(x[i]) || !is_finite(v[i])) continue;
      c.tile.max_abs_err =
          std::max(c.tile.max_abs_err, static_cast<double>(magnitude(static_cast<X>(v[i]) - x[i])));
    }
    const std::int64_t strip = index / kStripBlocks;
    if (r.full_percentiles || strip % kSampleStrips == 0) count_errors(x, v, n, c.tallies);

    if (r.grid.enabled()) {
      const std::int64_t cell_index =
          (r.first_row + row) / r.grid.rows_per_cell * r.grid.grid_cols +
          (r.first_block + b) / r.grid.blocks_per_cell;
      const auto at = static_cast<std::size_t>(cell_index);
      c.tallies.map_elements[at] += cell.elements;
      c.tallies.map_underflow[at] += cell.underflow;
      c.tallies.map_saturated[at] += cell.saturated;
      c.tallies.map_scale_sum[at] += scale[0];
      ++c.tallies.map_blocks[at];
      c.tile.cell_error[static_cast<std::size_t>(cell_index - c.tile.first_cell)] +=
          sums.squared_error;
    }
  }
}

void resize_if_needed(std::vector<std::int64_t>& v, std::size_t n) {
  if (v.size() < n) v.resize(n);
}
void add_vector(std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  resize_if_needed(a, b.size());
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
  lost_blocks += o.lost_blocks;
  scale_min += o.scale_min;
  scale_max += o.scale_max;
  scale_nan += o.scale_nan;
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
  has_level_bits |= o.has_level_bits;
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

void accumulate(const TileResult& result, Tallies& tallies, TileSums& sums) {
  resize_if_needed(tallies.absolute_error_bins, kErrorBins);
  resize_if_needed(tallies.relative_error_bins, kErrorBins);
  resize_if_needed(tallies.amax_exponents, 2 * kExponentOffset);
  if (result.grid.enabled()) {
    const auto cells = static_cast<std::size_t>(result.grid.grid_rows * result.grid.grid_cols);
    resize_if_needed(tallies.map_elements, cells);
    resize_if_needed(tallies.map_underflow, cells);
    resize_if_needed(tallies.map_saturated, cells);
    resize_if_needed(tallies.map_scale_sum, cells);
    resize_if_needed(tallies.map_blocks, cells);
  }
  const Recipe& recipe = result.recipe;
  const Rounding ties = recipe.family == Family::kMx     ? recipe.mx.ties
                        : recipe.family == Family::kHif4 ? recipe.hif4.ties
                                                         : Rounding::kEven;
  Context context{result,
                  tallies,
                  sums,
                  saturation_limit(recipe.format.element, ties),
                  recipe.format.element.magnitude_mask(),
                  recipe.format.scale_bytes,
                  recipe.family == Family::kNvfp4 ? 0x7eu : 0xfeu};
  if (result.tile.f64 != nullptr) {
    accumulate_blocks(context, result.tile.f64);
  } else {
    accumulate_blocks(context, result.tile.f32);
  }
}

}  // namespace fp4scope
