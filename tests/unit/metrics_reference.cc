// metrics_reference.cc: see metrics_reference.h. The arithmetic of the error sums is the order of
// design/architecture.md section 9, written for one whole tensor.
#include "tests/unit/metrics_reference.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "formats/scalars.h"

namespace fp4scope::test {
namespace {

// An unsigned or signed minifloat from the definition of a floating-point number.
double minifloat_magnitude(int code, int fraction_bits, int bias, bool subnormals) {
  const int field = code >> fraction_bits;
  const double fraction =
      std::ldexp(code & ((1 << fraction_bits) - 1), -fraction_bits);  // of the hidden bit
  if (subnormals && field == 0) return std::ldexp(fraction, 1 - bias);
  return std::ldexp(1 + fraction, field - bias);
}

// Midpoint of the largest element value and the next value of an unbounded grid (spec/scalars.md
// section 1), and whether nearest rounding takes the midpoint itself to the missing value: the even
// neighbour is the missing one everywhere but in E4M3, and HiF4 rounds ties up.
struct Limit {
  MinifloatSpec spec;
  double midpoint;
  bool inclusive;
};
Limit saturation_limit(const MinifloatSpec& e) {
  static constexpr Limit kLimits[] = {
      {kE2M1, 7, true},       // 6, 8
      {kE2M3, 7.75, true},    // 7.5, 8
      {kE3M2, 30, true},      // 28, 32
      {kE4M3, 464, false},    // 448, 480: spec/scalars.md section 3
      {kE5M2, 61440, true},   // 57344, 65536
      {kE1M2, 1.875, true},   // 1.75, 2
      {kE1M1, 1.75, true},    // 1.5, 2
      {kE1M3, 1.9375, true},  // 1.875, 2
  };
  for (const Limit& l : kLimits) {
    if (l.spec == e) return l;
  }
  throw std::logic_error("no saturation limit for this element");
}

// v to `bits` significant bits, nearest even (binary32 24, BF16 8; inside their normal range).
double to_significant(double v, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(v, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

// The normalised element of spec/hif4.md section 2, n = N(a * R) * 2^-(e8+e16), with the BF16
// reciprocal R of the level-1 scale and the precisions of section 2.1. Products of 24 and 8 bits
// are exact in binary64.
double hif4_normalised(const Hif4Options& o, double x, double level1, int shift) {
  double a = std::fabs(x);
  if (o.cast == Hif4Cast::kBf16) a = to_significant(a, 8);
  double n = a * to_significant(1.0 / level1, 8);
  if (o.elem != Hif4Product::kExact) n = to_significant(n, 24);
  if (o.elem == Hif4Product::kBf16) n = to_significant(n, 8);
  return std::ldexp(n, -shift);
}

struct ScaleByte {
  double value;
  bool zero, nan, smallest, largest;
};
ScaleByte scale_byte(Family family, int b) {
  switch (family) {
    case Family::kMx:
      return {std::ldexp(1.0, b - 127), false, b == 255, b == 0, b == 254};
    case Family::kNvfp4:
      return {minifloat_magnitude(b, 3, 7, true), b == 0, b == 0x7F, b == 0, b == 0x7E};
    case Family::kHif4:
      return {minifloat_magnitude(b, 2, 48, false), false, b == 0xFF, b == 0, b == 0xFE};
    default:
      break;
  }
  throw std::logic_error("family");
}

// Block sums in the arithmetic T: squares, absolute values and the rest in element order.
template <class T>
TreeSums sum_block(const std::vector<T>& x, const std::vector<T>& v, const std::vector<T>& d) {
  T dd = 0, ad = 0, sd = 0, xx = 0, vv = 0, vx = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    dd += d[i] * d[i];
    ad += std::fabs(d[i]);
    sd += d[i];
    xx += x[i] * x[i];
    vv += v[i] * v[i];
    vx += v[i] * x[i];
  }
  return {double(dd), double(ad), double(sd), double(xx), double(vv), double(vx), 0};
}
std::vector<double> widen(const std::vector<float>& v) {
  return {v.begin(), v.end()};
}

// 16 accumulators by block index mod 16 in a strip of 64 blocks; strips in order.
class Tree {
 public:
  void add(const TreeSums& block) {
    lanes_[index_ % 16].add(block);
    if (++index_ == 64) end_strip();
  }
  TreeSums finish() {
    if (index_ > 0) end_strip();
    return tile_;
  }
  bool sampled() const { return strip_ % 16 == 0; }

 private:
  void end_strip() {
    TreeSums strip;
    for (const TreeSums& lane : lanes_) strip.add(lane);
    tile_.add(strip);
    lanes_ = {};
    index_ = 0;
    ++strip_;
  }
  std::array<TreeSums, 16> lanes_{};
  TreeSums tile_;
  int index_ = 0, strip_ = 0;
};

struct Span {
  std::int64_t row, rows, col, cols;
};
// Tiles of 2^20 elements in whole rows (2-D: multiples of 64 rows); longer rows or bands are split
// at multiples of 128 columns.
std::vector<Span> grid(std::int64_t rows, std::int64_t cols, bool bands) {
  std::vector<Span> out;
  if (rows * cols == 0) return out;
  const std::int64_t tile = 1 << 20, unit = bands ? 64 : 1;
  std::int64_t height = unit, width = cols;
  const std::int64_t padded = (cols + 127) / 128 * 128;  // short rows count as one column step
  if (unit * padded <= tile) {
    height = tile / padded / unit * unit;
  } else {
    width = tile / unit / 128 * 128;
  }
  for (std::int64_t r = 0; r < rows; r += height) {
    for (std::int64_t c = 0; c < cols; c += width) {
      out.push_back({r, std::min(height, rows - r), c, std::min(width, cols - c)});
    }
  }
  return out;
}

}  // namespace

void TreeSums::add(const TreeSums& o) {
  dd += o.dd;
  ad += o.ad;
  d += o.d;
  xx += o.xx;
  vv += o.vv;
  vx += o.vx;
  crest += o.crest;
}

Expected brute_force(const Recipe& recipe, const TestTensor& t, const Backend& backend,
                     bool full_percentiles) {
  const std::int64_t rows = t.rows(), cols = t.cols(), block = recipe.format.block;
  const bool f64 = t.dtype == DType::kF64;
  Expected e;
  e.rows = rows;
  e.cols = cols;
  e.block = block;
  e.blocks_per_row = (cols + block - 1) / block;
  const auto size = static_cast<std::size_t>(rows * cols);
  std::vector<float> x32(t.x.begin(), t.x.end()), v(size);

  // Codes and decoded values of the whole tensor in one piece.
  Tile tile{x32.data(), f64 ? t.x.data() : nullptr, rows, cols, cols};
  std::vector<OuterScale32> outer;
  const auto amax_of = [&](std::int64_t first, std::int64_t n) {
    float amax = 0;
    for (std::int64_t i = first; i < first + n; ++i) {
      const float a = std::fabs(x32[static_cast<std::size_t>(i)]);
      if (a > amax) amax = a;  // false for NaN
    }
    std::uint32_t bits;
    std::memcpy(&bits, &amax, 4);
    return bits;
  };
  if (recipe.family == Family::kNvfp4 && recipe.nvfp4.scale == OuterScale::kRow) {
    for (std::int64_t r = 0; r < rows; ++r) {
      outer.push_back(backend.outer_scale(recipe, amax_of(r * cols, cols)));
    }
  } else {
    outer.push_back(backend.outer_scale(recipe, amax_of(0, rows * cols)));
  }
  QuantizedTile q;
  if (size > 0) {
    backend.quantize(recipe, tile, outer, q);
    backend.dequantize(recipe, q, outer, v.data(), cols);
  }

  e.codes.assign(recipe.format.element.code_count(), 0);
  e.scales.assign(256, 0);
  e.finite_at.assign(size, 0);
  e.underflow_at.assign(size, 0);
  e.saturated_at.assign(size, 0);
  e.block_dd.assign(static_cast<std::size_t>(rows * e.blocks_per_row), 0);
  e.block_scale.assign(e.block_dd.size(), 0);
  for (const char* key :
       {"elements", "nonzero", "zeros", "nonfinite_in", "nonfinite_out", "underflow",
        "underflow_code", "underflow_scale", "saturated", "blocks", "zero_blocks", "lost_blocks",
        "scale_min_blocks", "scale_max_blocks", "scale_nan_blocks"}) {
    e.counts[key] = 0;
  }
  auto& n = e.counts;
  const Limit limit = saturation_limit(recipe.format.element);
  const MinifloatSpec spec = recipe.format.element;
  const int magnitude_mask = (1 << (spec.exponent_bits + spec.mantissa_bits)) - 1;

  for (const Span& span : grid(rows, cols, recipe.is_2d())) {
    Tree tree;
    for (std::int64_t r = span.row; r < span.row + span.rows; ++r) {
      for (std::int64_t c0 = span.col; c0 < span.col + span.cols; c0 += block) {
        const std::int64_t c1 = std::min(c0 + block, cols);
        const auto b = static_cast<std::size_t>(r * e.blocks_per_row + c0 / block);
        const auto at = static_cast<std::size_t>(recipe.format.scale_bytes) * b;
        const ScaleByte s = scale_byte(recipe.family, q.scales[at]);
        const std::uint8_t* levels = recipe.family == Family::kHif4 ? &q.scales[at + 1] : nullptr;
        ++e.scales[q.scales[at]];
        e.block_scale[b] = q.scales[at];
        ++n["blocks"];

        double amax = 0;
        bool any_finite = false, any_nonfinite = false;
        std::int64_t finite = 0;
        std::vector<float> xf, vf, df;
        std::vector<double> xd, vd, dd;
        for (std::int64_t c = c0; c < c1; ++c) {
          const auto i = static_cast<std::size_t>(r * cols + c);
          const double x = t.x[i], value = v[i];
          ++n["elements"];
          ++e.codes[q.codes[static_cast<std::size_t>(r * q.padded_cols + c)]];
          if (!std::isfinite(x)) {
            ++n["nonfinite_in"];
            any_nonfinite = true;
            continue;
          }
          any_finite = true;
          ++finite;
          e.finite_at[i] = 1;
          amax = std::max(amax, std::fabs(x));
          ++n[x == 0 ? "zeros" : "nonzero"];
          if (!std::isfinite(value)) {
            ++n["nonfinite_out"];
            continue;
          }
          if (x != 0 && value == 0) {
            ++n["underflow"];
            ++n[s.zero ? "underflow_scale" : "underflow_code"];
            e.underflow_at[i] = 1;
          }
          // What the contract rounds to a code: NVFP4 and HiF4 have roundings of their own on the
          // way, so that |x| over the decode scale would not tell.
          double scaled = std::fabs(x) / s.value;
          if (recipe.family == Family::kNvfp4) {
            const float g = outer[recipe.scales_rows() ? static_cast<std::size_t>(r) : 0].g;
            const float inverse = 1.0f / (static_cast<float>(s.value) * (1.0f / g));
            scaled = std::fabs(static_cast<float>(x) * std::fmin(inverse, FLT_MAX));
          } else if (levels != nullptr) {
            const std::int64_t k = c - c0;
            const int shift = (levels[0] >> (k / 8) & 1) + (levels[1 + k / 32] >> (k / 4 % 8) & 1);
            scaled = hif4_normalised(recipe.hif4, static_cast<float>(x), s.value, shift);
          }
          // Saturated: clamped to the largest code, not just rounded to it. A block whose scale is
          // zero is lost, which is underflow.
          const int code = q.codes[static_cast<std::size_t>(r * q.padded_cols + c)];
          const bool beyond = limit.inclusive ? scaled >= limit.midpoint : scaled > limit.midpoint;
          if ((code & magnitude_mask) == static_cast<int>(spec.max_finite_code()) && !s.zero &&
              beyond) {
            ++n["saturated"];
            e.saturated_at[i] = 1;
          }
          ++e.counted;
          if (value != x) ++e.inexact;
          double d;
          if (f64) {
            d = value - x;
            xd.push_back(x);
            vd.push_back(value);
            dd.push_back(d);
          } else {
            const float f = v[i] - static_cast<float>(x);
            d = f;
            xf.push_back(static_cast<float>(x));
            vf.push_back(v[i]);
            df.push_back(f);
          }
          e.max_abs_err = std::max(e.max_abs_err, std::fabs(d));
          if (full_percentiles || tree.sampled()) {
            e.absolute_sample.push_back(std::fabs(d));
            if (x != 0) e.relative_sample.push_back(std::fabs(d) / std::fabs(x));
          }
        }
        e.finite += finite;
        e.amax = std::max(e.amax, amax);
        const bool extreme = amax != 0 && (amax < 0x1p-40 || amax > 0x1p40);
        TreeSums sums = f64       ? sum_block<double>(xd, vd, dd)
                        : extreme ? sum_block<double>(widen(xf), widen(vf), widen(df))
                                  : sum_block<float>(xf, vf, df);
        e.block_dd[b] = sums.dd;
        if (amax > 0) {
          ++e.nonzero_blocks;
          ++e.amax_exponents[std::ilogb(amax)];
          // In binary64 from the exact squares; the report may differ by binary32 roundings.
          long double xx = 0;
          for (std::int64_t c = c0; c < c1; ++c) {
            const long double x = t.x[static_cast<std::size_t>(r * cols + c)];
            if (std::isfinite(x)) xx += x * x;
          }
          sums.crest = amax / static_cast<double>(std::sqrt(xx / finite));
          e.crest_max = std::max(e.crest_max, sums.crest);
          if (s.zero) ++n["lost_blocks"];
          if (s.smallest) ++n["scale_min_blocks"];
        } else if (any_finite && !any_nonfinite) {
          ++n["zero_blocks"];
        }
        if (s.largest) ++n["scale_max_blocks"];
        if (s.nan) ++n["scale_nan_blocks"];
        if (levels != nullptr) {
          for (std::int64_t j = 0; j < 8 && c0 + 8 * j < c1; ++j) {
            ++e.level2_bits;
            e.level2_set += levels[0] >> j & 1;
          }
          for (std::int64_t k = 0; k < 16 && c0 + 4 * k < c1; ++k) {
            ++e.level3_bits;
            e.level3_set += levels[1 + k / 8] >> (k % 8) & 1;
          }
        }
        tree.add(sums);
      }
    }
    e.sums.add(tree.finish());
  }
  std::sort(e.absolute_sample.begin(), e.absolute_sample.end());
  std::sort(e.relative_sample.begin(), e.relative_sample.end());
  return e;
}

void Expected::add(const Expected& o) {
  for (const auto& [key, count] : o.counts) counts[key] += count;
  for (const auto& [exponent, count] : o.amax_exponents) amax_exponents[exponent] += count;
  counted += o.counted;
  inexact += o.inexact;
  finite += o.finite;
  nonzero_blocks += o.nonzero_blocks;
  sums.add(o.sums);
  amax = std::max(amax, o.amax);
  max_abs_err = std::max(max_abs_err, o.max_abs_err);
  crest_max = std::max(crest_max, o.crest_max);
  level2_bits += o.level2_bits;
  level2_set += o.level2_set;
  level3_bits += o.level3_bits;
  level3_set += o.level3_set;
  codes.resize(std::max(codes.size(), o.codes.size()));
  for (std::size_t i = 0; i < o.codes.size(); ++i) codes[i] += o.codes[i];
  scales.resize(256);
  for (std::size_t i = 0; i < o.scales.size(); ++i) scales[i] += o.scales[i];
  for (const bool relative : {false, true}) {
    auto& to = relative ? relative_sample : absolute_sample;
    const auto& from = relative ? o.relative_sample : o.absolute_sample;
    to.insert(to.end(), from.begin(), from.end());
    std::sort(to.begin(), to.end());
  }
}

}  // namespace fp4scope::test
