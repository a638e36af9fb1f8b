// figures.cc: see figures.h.
#include "sim/figures.h"

#include <algorithm>

#include "formats/lut.h"
#include "formats/minifloat.h"
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

SourceBlock source_of(const MeasuredBlock<float>& block) {
  return {block.x, nullptr, block.n};
}
SourceBlock source_of(const MeasuredBlock<double>& block) {
  return {nullptr, block.x, block.n};
}

template <class X>
struct Counted {
  int finite = 0, counted = 0, zeros = 0, inexact = 0, underflow = 0, underflow_code = 0;
  X amax{}, max_error{};
};

// Loop without branches for the usual case that everything is finite.
template <class X>
Counted<X> count_finite(const MeasuredBlock<X>& block) {
  Counted<X> r;
  r.finite = r.counted = block.n;
  for (int i = 0; i < block.n; ++i) {
    const X x = block.x[i], v = static_cast<X>(block.v[i]);
    r.zeros += x == X{};
    r.inexact += v != x;
    r.underflow += (x != X{}) & (v == X{});
    r.amax = std::max(r.amax, magnitude(x));
    r.max_error = std::max(r.max_error, magnitude(v - x));
  }
  return r;
}
template <class X>
Counted<X> count_any(const MeasuredBlock<X>& block) {
  Counted<X> r;
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
    r.underflow += x != X{} && v == X{};
    r.max_error = std::max(r.max_error, magnitude(v - x));
  }
  return r;
}

// Sums of one block in T: plain additions in element order.
template <class T, class X>
void sum_block(const MeasuredBlock<X>& block, bool all_counted, StripFigures& strip, int at) {
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
  T energy = signal;
  if (!all_counted) {
    energy = T{};
    for (int i = 0; i < block.n; ++i) {
      if (is_finite(block.x[i])) energy += static_cast<T>(block.x[i]) * static_cast<T>(block.x[i]);
    }
  }
  const auto k = static_cast<std::size_t>(at);
  strip.squared_error[k] = squared_error;
  strip.absolute_error[k] = absolute_error;
  strip.error[k] = error;
  strip.signal[k] = signal;
  strip.value[k] = value;
  strip.product[k] = product;
  strip.energy[k] = energy;
}

}  // namespace

double folded(const StripFigures::PerBlock<double>& sums, int count) {
  const auto n = static_cast<std::size_t>(count);
  std::array<double, kStripLanes> lanes{};
  std::size_t i = 0;
  for (; i + kStripLanes <= n; i += kStripLanes) {
    for (std::size_t k = 0; k < kStripLanes; ++k) lanes[k] += sums[i + k];
  }
  for (std::size_t k = 0; i + k < n; ++k) lanes[k] += sums[i + k];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

BlockMeter::BlockMeter(const Recipe& recipe)
    : recipe_(recipe), saturation_(element_limit(recipe)), code_bytes_(recipe.code_bytes()) {
  const BlockFormat& format = recipe.format;
  if (format.element.storage_bits() > 8) return;
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
      is_zero_code_[code] = v == 0;
      is_top_code_[code] = v != 0 && (v == least || v == most);
    } else {
      const MinifloatSpec& element = format.element;
      const bool negative = (code & element.sign_mask()) != 0;
      const std::uint32_t magnitude = !element.is_twos_complement()
                                          ? code & element.magnitude_mask()
                                      : negative ? codes - code
                                                 : code;
      is_zero_code_[code] = element.is_zero_code(code);
      is_top_code_[code] = magnitude >= element.max_finite_code();
    }
  }
}

template <class X>
void BlockMeter::measure_block(const MeasuredBlock<X>& block, StripFigures& strip, int at) const {
  int all_finite = 1;
  for (int i = 0; i < block.n; ++i) {
    all_finite &= int{is_finite(block.x[i])} & int{is_finite(block.v[i])};
  }
  Counted<X> r = all_finite != 0 ? count_finite(block) : count_any(block);
  int saturated = 0;
  r.underflow_code = r.underflow;  // bf16 has no scale
  if (code_bytes_ == 1) {
    r.underflow_code = 0;
    for (int i = 0; i < block.n; ++i) {
      r.underflow_code += int{is_finite(block.x[i])} & int{block.x[i] != X{}} &
                          int{block.v[i] == 0.0f} & int{is_zero_code_[block.codes[i]]};
    }
    // Clamped: the scaled magnitude, computed by the codec's own text, is beyond the largest
    // element. Formats that round binary64 input first see the rounded value.
    for (int i = 0; i < block.n; ++i) {
      if (!is_top_code_[block.codes[i]] || block.v[i] == 0.0f) continue;
      if (!is_finite(block.x[i]) || !is_finite(block.v[i])) continue;
      saturated += saturation_.is_exceeded_by(
          scaled_magnitude(recipe_, block.outer, block.scale, block.is_map4, i,
                           static_cast<double>(block.x[i]), source_of(block)));
    }
  }
  const auto k = static_cast<std::size_t>(at);
  strip.elements[k] = block.n;
  strip.finite[k] = r.finite;
  strip.counted[k] = r.counted;
  strip.zeros[k] = r.zeros;
  strip.inexact[k] = r.inexact;
  strip.underflow[k] = r.underflow;
  strip.underflow_code[k] = r.underflow_code;
  strip.saturated[k] = saturated;
  strip.amax[k] = static_cast<double>(r.amax);
  strip.max_error[k] = static_cast<double>(r.max_error);
  strip.is_map4[k] = block.is_map4 ? 1 : 0;
  const bool wide =
      sizeof(X) == sizeof(double) || (r.amax != X{} && (r.amax < X(0x1p-40) || r.amax > X(0x1p40)));
  if (wide) {
    sum_block<double>(block, all_finite != 0, strip, at);
  } else {
    sum_block<X>(block, all_finite != 0, strip, at);
  }
}

void BlockMeter::measure(const MeasuredBlock<float>& block, StripFigures& strip, int i) const {
  measure_block(block, strip, i);
}
void BlockMeter::measure(const MeasuredBlock<double>& block, StripFigures& strip, int i) const {
  measure_block(block, strip, i);
}

namespace {

template <class X>
void measure_blocks(const Recipe& recipe, const Tile& tile, const X* x_tile,
                    std::span<const OuterScale32> outer, const QuantizedTile& q,
                    const float* values, FigureSink* sink, std::int64_t* code_counts) {
  const BlockMeter meter(recipe);
  const int width = recipe.format.block;
  const int code_bytes = recipe.code_bytes();
  const std::int64_t total = q.rows * q.blocks_per_row;
  // In two halves, so that equal neighbours do not wait for each other.
  std::array<std::array<std::uint32_t, 256>, 2> codes{};
  StripFigures strip;
  std::int64_t row = 0, b = 0;
  for (std::int64_t index = 0; index < total; ++index) {
    const int i = static_cast<int>(index - strip.first);
    const MeasuredBlock<X> block{
        x_tile + row * tile.stride + b * width,
        values + row * tile.stride + b * width,
        q.codes.data() + (row * q.padded_cols + b * width) * code_bytes,
        q.scales.data() + index * recipe.format.scale_bytes,
        outer_of_row(recipe, outer, row),
        static_cast<int>(std::min<std::int64_t>(width, q.cols - b * width)),
        !q.choices.empty() && q.choices[static_cast<std::size_t>(index)] != 0};
    if (sink != nullptr) meter.measure(block, strip, i);
    for (int k = 0; code_bytes == 1 && k < block.n; ++k) {
      ++codes[static_cast<std::size_t>(k & 1)][block.codes[k]];
    }
    strip.values[static_cast<std::size_t>(i)] = block.v;
    if (i + 1 == kStripBlocks || index + 1 == total) {
      strip.count = i + 1;
      strip.scales = q.scales.data() + strip.first * recipe.format.scale_bytes;
      if (sink != nullptr) sink->add(strip);
      strip.first = index + 1;
    }
    if (++b == q.blocks_per_row) {
      b = 0;
      ++row;
    }
  }
  if (code_counts == nullptr) return;
  for (const auto& half : codes) {
    for (std::size_t code = 0; code < half.size(); ++code) code_counts[code] += half[code];
  }
}

}  // namespace

void measure_tile(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                  const QuantizedTile& quantized, const float* values, FigureSink* sink,
                  std::int64_t* code_counts) {
  if (tile.f64 != nullptr) {
    measure_blocks(recipe, tile, tile.f64, outer, quantized, values, sink, code_counts);
  } else {
    measure_blocks(recipe, tile, tile.f32, outer, quantized, values, sink, code_counts);
  }
}

}  // namespace fp4scope
