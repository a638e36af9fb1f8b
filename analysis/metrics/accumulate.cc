// accumulate.cc: counts and error sums of one tile. The order of every float addition is fixed by
// block and element index; see totals.h.
#include <algorithm>
#include <cmath>

#include "analysis/metrics/totals.h"
#include "formats/lut.h"
#include "formats/minifloat.h"
#include "formats/scalars.h"
#include "sim/element.h"

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

// What the codes of an element type mean to the counters.
struct CodeTraits {
  std::array<bool, 256> is_zero{}, is_top{};
};
CodeTraits code_traits(const BlockFormat& format) {
  CodeTraits t;
  if (format.element.storage_bits() > 8) return t;
  const std::uint32_t codes = format.lut != nullptr ? static_cast<std::uint32_t>(format.lut->count)
                                                    : format.element.code_count();
  float least = format.lut != nullptr ? format.lut->value[0] : 0.0f, most = least;
  for (std::uint32_t code = 1; format.lut != nullptr && code < codes; ++code) {
    least = std::min(least, format.lut->value[code]);
    most = std::max(most, format.lut->value[code]);
  }
  for (std::uint32_t code = 0; code < codes; ++code) {
    if (format.lut != nullptr) {
      const float v = format.lut->value[code];
      t.is_zero[code] = v == 0;
      t.is_top[code] = v != 0 && (v == least || v == most);
    } else {
      const MinifloatSpec& element = format.element;
      const bool negative = (code & element.sign_mask()) != 0;
      const std::uint32_t magnitude = !element.is_twos_complement()
                                          ? code & element.magnitude_mask()
                                      : negative ? codes - code
                                                 : code;
      t.is_zero[code] = element.is_zero_code(code);
      t.is_top[code] = magnitude >= element.max_finite_code();
    }
  }
  return t;
}

// The outermost stored block scale: what its bytes mean to the counters.
struct ScaleTraits {
  bool exists = false;   // false: the format has an outer scale only, or none
  bool is_byte = false;  // one byte: it has a histogram
  std::array<bool, 256> zero{}, nan{}, top{};
  ScaleKind kind = ScaleKind::kE8m0;
  // Positions of the one-bit levels behind the scale byte: elements per bit.
  std::array<int, 2> micro{};
};
ScaleTraits scale_traits(const Recipe& recipe) {
  ScaleTraits t;
  int micros = 0;
  for (int i = 0; i < recipe.format.num_levels; ++i) {
    const ScaleLevel& level = recipe.format.levels[static_cast<std::size_t>(i)];
    if (level.group == 0) continue;
    if (level.kind == ScaleKind::kMicroExponent) {
      if (micros < 2) t.micro[static_cast<std::size_t>(micros++)] = level.group;
      continue;
    }
    if (t.exists) continue;
    t.exists = true;
    t.kind = level.kind;
    t.is_byte = level.storage_bits() == 8;
    for (std::uint32_t byte = 0; t.is_byte && byte < 256; ++byte) {
      if (level.kind == ScaleKind::kE8m0) {
        t.nan[byte] = byte == 255;
        t.top[byte] = byte == 254;
        continue;
      }
      // if4 marks INT4 blocks in the sign bit of the scale, which no other format uses.
      const std::uint32_t code = level.spec.storage_bits() == 7 ? byte & 0x7fu : byte;
      const float v = decode<Lane<1>>(level.spec, code);
      t.zero[byte] = v == 0;
      t.nan[byte] = v != v;
      t.top[byte] = code == level.spec.max_finite_code();
    }
  }
  return t;
}

// Value of a wider block scale.
float wide_scale(ScaleKind kind, const std::uint8_t* bytes) {
  const std::uint32_t low = bytes[0] | static_cast<std::uint32_t>(bytes[1]) << 8;
  if (kind == ScaleKind::kBinary16) return decode<Lane<1>>(kFP16, low);
  if (kind == ScaleKind::kBfloat16) return bit_cast<float>(low << 16);
  return bit_cast<float>(low | static_cast<std::uint32_t>(bytes[2]) << 16 |
                         static_cast<std::uint32_t>(bytes[3]) << 24);
}

struct Context {
  const TileResult& result;
  Tallies& tallies;
  TileSums& tile;
  SaturationLimit saturation;
  CodeTraits code;
  ScaleTraits scale;
  int scale_bytes;
  int code_bytes;
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
  bool choice;
};

// What is counted in one block. `finite` elements have a finite input, `counted` ones a finite
// decoded value too.
template <class X>
struct BlockCounts {
  int finite = 0, counted = 0, zeros = 0, inexact = 0;
  int underflow = 0, underflow_code = 0, saturated = 0;
  X amax{}, max_error{};
};

SourceBlock source_of(const Block<float>& block) {
  return {block.x, nullptr, block.n};
}
SourceBlock source_of(const Block<double>& block) {
  return {nullptr, block.x, block.n};
}
// Whether the codec clamped element i: its scaled magnitude, computed by the codec's own text, is
// beyond the largest element. Formats that round binary64 input first see the rounded value.
template <class X>
bool is_saturated(const Context& c, const Block<X>& block, int i) {
  return c.saturation.is_exceeded_by(
      scaled_magnitude(c.result.recipe, block.outer, block.scale, block.choice, i,
                       static_cast<double>(block.x[i]), source_of(block)));
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
  if (c.code_bytes != 1) {
    r.underflow_code = r.underflow;  // bf16 has no scale
    return r;
  }
  for (int i = 0; i < block.n; ++i) {
    const bool is_zero = c.code.is_zero[block.codes[i]];
    r.underflow_code += (block.x[i] != X{}) & (block.v[i] == 0.0f) & is_zero;
  }
  for (int i = 0; i < block.n; ++i) {
    if (!c.code.is_top[block.codes[i]] || block.v[i] == 0.0f) continue;
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
    const std::uint8_t code = block.codes[i * c.code_bytes];
    if (x != X{} && v == X{}) {
      ++r.underflow;
      r.underflow_code += c.code_bytes != 1 || c.code.is_zero[code];
    } else if (c.code_bytes == 1 && c.code.is_top[code] && v != X{}) {
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

// Scale bytes of one block: histogram, limits, one-bit levels.
void count_scales(const Context& c, const std::uint8_t* scale, bool is_nonzero, bool is_zero_scale,
                  int n) {
  if (!c.scale.exists) return;
  Counts& counts = c.tallies.counts;
  if (is_nonzero) counts.lost_blocks += is_zero_scale;
  if (!c.scale.is_byte) {
    const float v = wide_scale(c.scale.kind, scale);
    counts.scale_nan += v != v;
    return;
  }
  ++c.tallies.scales[scale[0]];
  counts.scale_min += is_nonzero && scale[0] == 0;
  counts.scale_nan += c.scale.nan[scale[0]];
  counts.scale_max += c.scale.top[scale[0]];
  int at = 8;  // bits of one level begin at a byte
  for (std::size_t level = 0; level < 2 && c.scale.micro[level] != 0; ++level) {
    const int group = c.scale.micro[level];
    std::int64_t& bits = level == 0 ? counts.level2_bits : counts.level3_bits;
    std::int64_t& set = level == 0 ? counts.level2_set : counts.level3_set;
    for (int j = 0; group * j < n; ++j) {
      ++bits;
      set += scale[(at + j) / 8] >> ((at + j) % 8) & 1;
    }
    at += (c.result.recipe.format.block / group + 7) / 8 * 8;
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
                         q.codes.data() + (row * q.padded_cols + b * width) * c.code_bytes,
                         scale,
                         outer_of_row(r.recipe, r.outer, row),
                         static_cast<int>(std::min<std::int64_t>(width, q.cols - b * width)),
                         c.scale.exists && (c.scale.is_byte ? c.scale.zero[scale[0]]
                                                            : wide_scale(c.scale.kind, scale) == 0),
                         !q.choices.empty() && q.choices[static_cast<std::size_t>(index)] != 0};
    counts.chosen4 += block.choice;
    int finite = 1;
    for (int i = 0; i < block.n; ++i) {
      finite &= int{is_finite(block.x[i])} & int{is_finite(block.v[i])};
    }
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
    for (int i = 0; c.code_bytes == 1 && i < block.n; ++i) {
      ++c.codes[static_cast<std::size_t>(i & 1)][block.codes[i]];
    }
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
      if (c.scale.is_byte) c.tallies.map_scale_sum[at] += scale[0];
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

bool has_scale_codes(const Recipe& recipe) {
  return scale_traits(recipe).is_byte;
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
  Context context{result,
                  tallies,
                  sums,
                  element_limit(recipe),
                  code_traits(recipe.format),
                  scale_traits(recipe),
                  recipe.format.scale_bytes,
                  recipe.code_bytes(),
                  {}};
  if (result.tile.f64 != nullptr) {
    accumulate_blocks(context, result.tile.f64);
  } else {
    accumulate_blocks(context, result.tile.f32);
  }
}

}  // namespace fp4scope
