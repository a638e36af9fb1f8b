// accumulate.cc: counts and error sums of one tile. The order of every float addition is fixed by
// block and element index; see totals.h.
#include <algorithm>
#include <cmath>

#include "analysis/metrics/totals.h"
#include "formats/codecs/hif4.h"
#include "formats/codecs/mx.h"
#include "formats/codecs/nvfp4.h"

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
// floor(log2(v)) of a positive finite value, from its bits.
int exponent_of(double v) {
  int offset = 1023;
  if (v < 0x1p-1022) {
    v *= 0x1p54;
    offset += 54;
  }
  return static_cast<int>(bit_cast<std::uint64_t>(v) >> 52) - offset;
}

struct Context {
  const TileResult& result;
  Tallies& tallies;
  TileSums& tile;
  SaturationLimit saturation;
  std::uint32_t top_code;  // magnitude code of the largest element
  std::uint32_t magnitude_mask;
  int scale_bytes;
  std::uint32_t scale_top;  // largest finite scale code
  // Code counts of the tile in two halves, so that equal neighbours do not wait for each other.
  std::array<std::array<std::uint32_t, 256>, 2> codes{};
};

// X: float or double source.
template <class X>
struct Block {
  const X* x;
  const float* v;
  const std::uint8_t* codes;
  const std::uint8_t* scale;
  OuterScale32 outer;
  int n;
  bool scale_is_zero;
};

// What is counted in one block. `finite` elements have a finite input, `counted` ones a finite
// decoded value too.
template <class X>
struct BlockCounts {
  int finite = 0, counted = 0, zeros = 0, inexact = 0;
  int underflow = 0, underflow_code = 0, saturated = 0;
  X amax{}, max_error{};
};

// Whether the codec clamped element i: its scaled magnitude, computed by the codec's own text, is
// beyond the largest element. Formats that round binary64 input first see the rounded value.
template <class X>
bool is_saturated(const Context& c, const Block<X>& block, int i) {
  using L = Lane<1>;
  const Recipe& recipe = c.result.recipe;
  const X x = magnitude(block.x[i]);
  double scaled = 0;
  switch (recipe.family) {
    case Family::kMx:
      scaled = mx_scaled(static_cast<double>(x), block.scale[0]);
      break;
    case Family::kNvfp4:
      scaled = static_cast<float>(x) * nvfp4_inverse<L>(block.scale[0], block.outer.encode_scale);
      break;
    case Family::kHif4: {
      const std::uint32_t e8 = block.scale[1] >> (i / 8) & 1u;
      const std::uint32_t e16 = block.scale[2 + i / 32] >> (i / 4 % 8) & 1u;
      const float shift = pow2(-static_cast<int>(e8 + e16));
      scaled = hif4_scaled<L>(recipe.hif4, hif4_input<L>(recipe.hif4, static_cast<float>(x)),
                              e6m2_reciprocal<L>(block.scale[0]), shift);
      break;
    }
  }
  return c.saturation.is_exceeded_by(scaled);
}

// Loops without branches for the usual case that everything is finite.
template <class X>
BlockCounts<X> count_finite_block(const Context& c, const Block<X>& block) {
  BlockCounts<X> r;
  r.finite = r.counted = block.n;
  for (int i = 0; i < block.n; ++i) {
    const X x = block.x[i], v = static_cast<X>(block.v[i]);
    r.zeros += x == X{};
    r.inexact += v != x;
    r.underflow += (x != X{}) & (v == X{});
    r.amax = std::max(r.amax, magnitude(x));
    r.max_error = std::max(r.max_error, magnitude(v - x));
  }
  for (int i = 0; i < block.n; ++i) {
    const std::uint32_t code = block.codes[i] & c.magnitude_mask;
    r.underflow_code += (block.x[i] != X{}) & (block.v[i] == 0.0f) & (code == 0);
  }
  for (int i = 0; i < block.n; ++i) {
    if ((block.codes[i] & c.magnitude_mask) != c.top_code || block.v[i] == 0.0f) continue;
    r.saturated += is_saturated(c, block, i);
  }
  return r;
}

template <class X>
BlockCounts<X> count_any_block(const Context& c, const Block<X>& block) {
  BlockCounts<X> r;
  for (int i = 0; i < block.n; ++i) {
    const X x = block.x[i];
    if (!is_finite(x)) continue;
    ++r.finite;
    r.zeros += x == X{};
    r.amax = std::max(r.amax, magnitude(x));
    const X v = static_cast<X>(block.v[i]);
    if (!is_finite(v)) continue;
    ++r.counted;
    r.inexact += v != x;
    r.max_error = std::max(r.max_error, magnitude(v - x));
    const std::uint32_t code = block.codes[i] & c.magnitude_mask;
    if (x != X{} && v == X{}) {
      ++r.underflow;
      r.underflow_code += code == 0;
    } else if (code == c.top_code && v != X{}) {
      r.saturated += is_saturated(c, block, i);
    }
  }
  return r;
}

// Sums of one block in T: plain additions in element order.
template <class T, class X>
ErrorSums sum_block(const Block<X>& block, bool all_counted) {
  T squared_error{}, absolute_error{}, error{}, signal{}, value{}, product{};
  for (int i = 0; i < block.n; ++i) {
    const X x = block.x[i];
    const float v = block.v[i];
    if (!all_counted && (!is_finite(x) || !is_finite(v))) continue;
    const X d = static_cast<X>(v) - x;
    const T dt = d, xt = x, vt = v;
    squared_error += dt * dt;
    absolute_error += magnitude(dt);
    error += dt;
    signal += xt * xt;
    value += vt * vt;
    product += vt * xt;
  }
  return {squared_error, absolute_error, error, signal, value, product, 0};
}

// Sum of the squares of the finite x, for the crest factor, which is a property of x alone. Equal
// to ErrorSums::signal when every element is counted.
template <class T, class X>
double energy_of_finite(const Block<X>& block) {
  T energy{};
  for (int i = 0; i < block.n; ++i) {
    if (is_finite(block.x[i])) energy += static_cast<T>(block.x[i]) * static_cast<T>(block.x[i]);
  }
  return energy;
}

template <class X>
void count_errors(const Block<X>& block, Tallies& t) {
  for (int i = 0; i < block.n; ++i) {
    const X x = block.x[i], v = static_cast<X>(block.v[i]);
    if (!is_finite(x) || !is_finite(v)) continue;
    const X d = magnitude(v - x);
    ++t.absolute_error_bins[magnitude_bits(static_cast<float>(d)) >> kErrorBinShift];
    if (x == X{}) continue;
    const auto relative = static_cast<float>(d / magnitude(x));
    ++t.relative_error_bins[magnitude_bits(relative) >> kErrorBinShift];
  }
}

// Scale bytes of one block: histogram, limits, HiF4 level bits.
void count_scales(const Context& c, const std::uint8_t* scale, bool is_nonzero, bool is_zero_scale,
                  int n) {
  Counts& counts = c.tallies.counts;
  const Family family = c.result.recipe.family;
  ++c.tallies.scales[scale[0]];
  if (is_nonzero) {
    counts.lost_blocks += is_zero_scale;
    counts.scale_min += scale[0] == 0;
  }
  counts.scale_nan += scale[0] == 0xff || (family == Family::kNvfp4 && scale[0] == 0x7f);
  counts.scale_max += scale[0] == c.scale_top;
  if (family != Family::kHif4) return;
  for (int j = 0; 8 * j < n; ++j) {
    ++counts.level2_bits;
    counts.level2_set += scale[1] >> j & 1;
  }
  for (int k = 0; 4 * k < n; ++k) {
    ++counts.level3_bits;
    counts.level3_set += scale[2 + k / 8] >> (k % 8) & 1;
  }
}

template <class X>
void accumulate_blocks(Context& c, const X* x_tile) {
  const TileResult& r = c.result;
  const QuantizedTile& q = r.quantized;
  const int width = r.recipe.format.block;
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
  std::int64_t row = 0, b = 0;
  for (std::int64_t index = 0; index < total; ++index) {
    const std::uint8_t* scale = q.scales.data() + index * c.scale_bytes;
    const Block<X> block{x_tile + row * r.tile.stride + b * width,
                         r.values + row * r.tile.stride + b * width,
                         q.codes.data() + row * q.padded_cols + b * width,
                         scale,
                         outer_of_row(r.recipe, r.outer, row),
                         static_cast<int>(std::min<std::int64_t>(width, q.cols - b * width)),
                         r.recipe.family == Family::kNvfp4 && (scale[0] & 0x7f) == 0};
    int finite = 1;
    for (int i = 0; i < block.n; ++i) finite &= is_finite(block.x[i]) & is_finite(block.v[i]);
    const BlockCounts<X> k = finite != 0 ? count_finite_block(c, block) : count_any_block(c, block);
    const bool is_nonzero = k.amax != X{};

    counts.elements += block.n;
    counts.counted += k.counted;
    counts.zeros += k.zeros;
    counts.nonzero += k.finite - k.zeros;
    counts.nonfinite_in += block.n - k.finite;
    counts.nonfinite_out += k.finite - k.counted;
    counts.inexact += k.inexact;
    const int live_underflow = block.scale_is_zero ? 0 : k.underflow_code;
    counts.underflow_code += live_underflow;
    counts.underflow_scale += k.underflow - live_underflow;
    counts.saturated += k.saturated;
    ++counts.blocks;
    counts.zero_blocks += k.zeros == block.n;
    counts.nonzero_blocks += is_nonzero;
    for (int i = 0; i < block.n; ++i) ++c.codes[static_cast<std::size_t>(i & 1)][block.codes[i]];
    count_scales(c, scale, is_nonzero, block.scale_is_zero, block.n);

    const bool wide =
        sizeof(X) == sizeof(double) || (is_nonzero && (k.amax < X(0x1p-40) || k.amax > X(0x1p40)));
    ErrorSums sums =
        wide ? sum_block<double>(block, finite != 0) : sum_block<X>(block, finite != 0);
    if (is_nonzero) {
      ++c.tallies.amax_exponents[static_cast<std::size_t>(exponent_of(k.amax) + kExponentOffset)];
      const double energy = finite != 0 ? sums.signal
                            : wide      ? energy_of_finite<double>(block)
                                        : energy_of_finite<X>(block);
      sums.crest = static_cast<double>(k.amax) / std::sqrt(energy / k.finite);
      c.tile.crest_max = std::max(c.tile.crest_max, sums.crest);
    }
    c.tile.amax = std::max(c.tile.amax, static_cast<double>(k.amax));
    c.tile.max_abs_err = std::max(c.tile.max_abs_err, static_cast<double>(k.max_error));
    const int in_strip = static_cast<int>(index % kStripBlocks);
    lanes[static_cast<std::size_t>(in_strip % kStripLanes)].add(sums);
    if (in_strip == kStripBlocks - 1 || index == total - 1) fold();
    const std::int64_t strip = index / kStripBlocks;
    if (r.full_percentiles || strip % kSampleStrips == 0) count_errors(block, c.tallies);

    if (r.grid.enabled()) {
      const std::int64_t cell_index =
          (r.first_row + row) / r.grid.rows_per_cell * r.grid.grid_cols +
          (r.first_block + b) / r.grid.blocks_per_cell;
      const auto at = static_cast<std::size_t>(cell_index);
      c.tallies.map_elements[at] += k.finite;
      c.tallies.map_underflow[at] += k.underflow;
      c.tallies.map_saturated[at] += k.saturated;
      c.tallies.map_scale_sum[at] += scale[0];
      ++c.tallies.map_blocks[at];
      c.tile.cell_error[static_cast<std::size_t>(cell_index - c.tile.first_cell)] +=
          sums.squared_error;
    }
    if (++b == q.blocks_per_row) {
      b = 0;
      ++row;
    }
  }
  for (const auto& half : c.codes) {
    for (std::size_t code = 0; code < half.size(); ++code) c.tallies.codes[code] += half[code];
  }
}

void resize_if_needed(std::vector<std::int64_t>& v, std::size_t n) {
  if (v.size() < n) v.resize(n);
}

}  // namespace

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
                  recipe.format.element.max_finite_code(),
                  recipe.format.element.magnitude_mask(),
                  recipe.format.scale_bytes,
                  recipe.family == Family::kNvfp4 ? 0x7eu : 0xfeu,
                  {}};
  if (result.tile.f64 != nullptr) {
    accumulate_blocks(context, result.tile.f64);
  } else {
    accumulate_blocks(context, result.tile.f32);
  }
}

}  // namespace fp4scope
