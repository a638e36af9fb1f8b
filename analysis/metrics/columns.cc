// columns.cc: every reported scalar figure, declared once: key, label, kind, meaning and formula.
// Definitions: design/product.md "What analyze reports". An undefined figure is null, never NaN.
#include <cmath>
#include <stdexcept>

#include "analysis/metrics/figures.h"
#include "formats/lane.h"

namespace fp4scope {
namespace {

Value ratio(double a, double b) {
  if (b == 0) return {};
  const double r = a / b;
  return std::isfinite(r) ? Value(r) : Value();
}
Value share(std::int64_t a, std::int64_t b) {
  return ratio(static_cast<double>(a), static_cast<double>(b));
}
std::int64_t underflow(const Counts& c) {
  return c.underflow_code + c.underflow_scale;
}
bool is_exact(const Totals& t) {
  const Counts& c = t.tallies.counts;
  return c.counted > 0 && c.inexact == 0;
}
// Signal power over mean squared error, or 0 where it is undefined.
double signal_to_error(const Totals& t) {
  if (is_exact(t) || t.sums.signal == 0 || t.sums.squared_error == 0) return 0;
  const double r = t.sums.signal / t.sums.squared_error;
  return std::isfinite(r) ? r : 0;
}
Value entropy(const std::vector<std::int64_t>& histogram) {
  std::int64_t total = 0;
  for (const std::int64_t n : histogram) total += n;
  if (total == 0) return {};
  double bits = 0;
  for (const std::int64_t n : histogram) {
    if (n == 0) continue;
    const double p = static_cast<double>(n) / static_cast<double>(total);
    bits -= p * fixed_log2(p);
  }
  return bits;
}

constexpr double kDecibelPerOctave = 3.0102999566398119521;  // 10 * log10(2)

struct Figure {
  Column column;
  Value (*value)(const Totals&);
};
#define FP4SCOPE_COUNT(field) [](const Totals& t) -> Value { return t.tallies.counts.field; }

const Figure kFigures[] = {
    {{"elements", "elements", FigureKind::kCount, "elements of the tensor, padding not counted"},
     FP4SCOPE_COUNT(elements)},
    {{"nonzero", "", FigureKind::kCount, "finite elements that are not zero"},
     FP4SCOPE_COUNT(nonzero)},
    {{"zeros", "", FigureKind::kCount, "elements that are +0 or -0"}, FP4SCOPE_COUNT(zeros)},
    {{"nonfinite_in", "", FigureKind::kCount,
      "NaN and Inf elements, excluded from all error figures"},
     FP4SCOPE_COUNT(nonfinite_in)},
    {{"nonfinite_out", "", FigureKind::kCount,
      "finite elements that decode to NaN or Inf, excluded from all error figures"},
     FP4SCOPE_COUNT(nonfinite_out)},
    {{"amax", "amax", FigureKind::kFigure, "largest magnitude of the finite elements"},
     [](const Totals& t) -> Value {
       const Counts& c = t.tallies.counts;
       return c.nonzero + c.zeros == 0 ? Value() : Value(t.amax);
     }},
    {{"mse", "", FigureKind::kFigure, "mean squared error"},
     [](const Totals& t) {
       return ratio(t.sums.squared_error, static_cast<double>(t.tallies.counts.counted));
     }},
    {{"nmse", "nmse", FigureKind::kFigure, "mean squared error over the mean square of x"},
     [](const Totals& t) { return ratio(t.sums.squared_error, t.sums.signal); }},
    {{"sqnr_db", "SQNR dB", FigureKind::kFigure,
      "signal power over mean squared error in dB; null for a zero signal and for an exact tensor"},
     [](const Totals& t) -> Value {
       const double r = signal_to_error(t);
       return r == 0 ? Value() : Value(kDecibelPerOctave * fixed_log2(r));
     }},
    {{"mae", "", FigureKind::kFigure, "mean absolute error"},
     [](const Totals& t) {
       return ratio(t.sums.absolute_error, static_cast<double>(t.tallies.counts.counted));
     }},
    {{"max_abs_err", "max |err|", FigureKind::kFigure, "largest absolute error"},
     [](const Totals& t) -> Value {
       return t.tallies.counts.counted == 0 ? Value() : Value(t.max_abs_err);
     }},
    {{"cosine", "", FigureKind::kFigure, "cosine between x and its decoded values"},
     [](const Totals& t) {
       return ratio(t.sums.product, std::sqrt(t.sums.signal) * std::sqrt(t.sums.value));
     }},
    {{"bias", "", FigureKind::kFigure, "mean of decoded value minus x"},
     [](const Totals& t) {
       return ratio(t.sums.error, static_cast<double>(t.tallies.counts.counted));
     }},
    {{"effective_bits", "", FigureKind::kFigure,
      "0.5 * log2(signal power / mse); null where sqnr_db is"},
     [](const Totals& t) -> Value {
       const double r = signal_to_error(t);
       return r == 0 ? Value() : Value(0.5 * fixed_log2(r));
     }},
    {{"exact", "", FigureKind::kFlag, "every counted element decodes to its input"},
     [](const Totals& t) -> Value {
       return t.tallies.counts.counted == 0 ? Value() : Value(is_exact(t));
     }},
    {{"underflow", "", FigureKind::kCount, "nonzero elements that decode to zero"},
     [](const Totals& t) -> Value { return underflow(t.tallies.counts); }},
    {{"underflow_share", "underflow", FigureKind::kShare, "underflow over nonzero finite elements"},
     [](const Totals& t) { return share(underflow(t.tallies.counts), t.tallies.counts.nonzero); }},
    {{"underflow_share_all", "", FigureKind::kShare, "underflow over all elements"},
     [](const Totals& t) { return share(underflow(t.tallies.counts), t.tallies.counts.elements); }},
    {{"underflow_code", "", FigureKind::kCount, "underflow with code 0 under a live scale"},
     FP4SCOPE_COUNT(underflow_code)},
    {{"underflow_scale", "", FigureKind::kCount,
      "underflow because the block's scale, or the outer scale above it, is zero"},
     FP4SCOPE_COUNT(underflow_scale)},
    {{"saturated", "", FigureKind::kCount,
      "elements that were clamped: an unbounded grid would have rounded above the largest code"},
     FP4SCOPE_COUNT(saturated)},
    {{"saturated_share", "saturated", FigureKind::kShare, "saturated over finite elements"},
     [](const Totals& t) {
       return share(t.tallies.counts.saturated, t.tallies.counts.nonzero + t.tallies.counts.zeros);
     }},
    {{"blocks", "", FigureKind::kCount, "blocks (2-D blocks: their row pieces)"},
     FP4SCOPE_COUNT(blocks)},
    {{"zero_blocks", "", FigureKind::kCount, "blocks whose elements are all zero"},
     FP4SCOPE_COUNT(zero_blocks)},
    {{"lost_blocks", "", FigureKind::kCount, "nonzero blocks whose scale is zero"},
     FP4SCOPE_COUNT(lost_blocks)},
    {{"scale_min_blocks", "", FigureKind::kCount, "nonzero blocks with scale code 0"},
     FP4SCOPE_COUNT(scale_min)},
    {{"scale_max_blocks", "", FigureKind::kCount, "blocks with the largest finite scale code"},
     FP4SCOPE_COUNT(scale_max)},
    {{"scale_nan_blocks", "", FigureKind::kCount, "blocks with a NaN scale"},
     FP4SCOPE_COUNT(scale_nan)},
    {{"crest_mean", "", FigureKind::kFigure,
      "mean of block amax over block rms, over nonzero blocks"},
     [](const Totals& t) {
       const Counts& c = t.tallies.counts;
       return ratio(t.sums.crest, static_cast<double>(c.nonzero_blocks));
     }},
    {{"crest_max", "", FigureKind::kFigure, "largest block amax over block rms"},
     [](const Totals& t) -> Value { return t.crest_max == 0 ? Value() : Value(t.crest_max); }},
    {{"code_entropy", "", FigureKind::kFigure, "entropy of the element codes in bits"},
     [](const Totals& t) { return t.code_count > 0 ? entropy(t.tallies.codes) : Value(); }},
    {{"scale_entropy", "", FigureKind::kFigure, "entropy of the scale codes in bits"},
     [](const Totals& t) { return t.has_scale_codes ? entropy(t.tallies.scales) : Value(); }},
    {{"map4_share", "", FigureKind::kShare,
      "blocks that took map-to-4 (if4: INT4); null for recipes without a choice"},
     [](const Totals& t) {
       return t.chooses ? share(t.tallies.counts.chosen4, t.tallies.counts.blocks) : Value();
     }},
    {{"level2_share", "", FigureKind::kShare, "HiF4 level-2 bits that are set; null elsewhere"},
     [](const Totals& t) {
       return share(t.tallies.counts.level2_set, t.tallies.counts.level2_bits);
     }},
    {{"level3_share", "", FigureKind::kShare, "HiF4 level-3 bits that are set; null elsewhere"},
     [](const Totals& t) {
       return share(t.tallies.counts.level3_set, t.tallies.counts.level3_bits);
     }},
};
#undef FP4SCOPE_COUNT

std::vector<std::pair<double, Value>> percentiles_of(const std::vector<std::int64_t>& bins) {
  std::int64_t total = 0;
  for (const std::int64_t n : bins) total += n;
  std::vector<std::pair<double, Value>> result;
  // Tenths of a percent, so that the rank is an integer comparison.
  for (const std::int64_t permille : {500, 900, 950, 990, 999}) {
    Value value;
    std::int64_t below = 0;
    for (std::size_t i = 0; i < bins.size() && total > 0; ++i) {
      below += bins[i];
      if (below * 1000 >= total * permille) {
        const auto bits = static_cast<std::uint32_t>(i) << kErrorBinShift;
        if (bits < kInfBits) value = static_cast<double>(bit_cast<float>(bits));
        break;
      }
    }
    result.emplace_back(static_cast<double>(permille) / 10.0, value);
  }
  return result;
}

}  // namespace

double fixed_log2(double x) {
  std::uint64_t bits = bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  if (exponent == -1023) {  // subnormal
    bits = bit_cast<std::uint64_t>(x * 0x1p54);
    exponent = static_cast<int>(bits >> 52) - 1023 - 54;
  }
  double m = bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 * (s + s^3/3 + s^5/5 + ...), s = (m-1)/(m+1), |s| <= 0.1716: 11 terms reach 2^-60.
  const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
  double series = 0;
  for (int k = 23; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  constexpr double kTwoOverLn2 = 2.8853900817779268147;
  return exponent + kTwoOverLn2 * (s * series);
}

std::span<const Column> columns() {
  static const std::vector<Column> list = [] {
    std::vector<Column> c;
    for (const Figure& f : kFigures) c.push_back(f.column);
    return c;
  }();
  return list;
}

int column_index(std::string_view key) {
  const auto all = columns();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].key == key) return static_cast<int>(i);
  }
  return -1;
}

const Value& Row::figure(std::string_view key) const {
  const int i = column_index(key);
  if (i < 0) throw std::out_of_range("no figure of this name");
  return figures.at(static_cast<std::size_t>(i));
}

std::vector<Value> make_figures(const Totals& totals) {
  std::vector<Value> values;
  for (const Figure& f : kFigures) values.push_back(f.value(totals));
  return values;
}

Percentiles make_percentiles(const Totals& totals) {
  return {percentiles_of(totals.tallies.absolute_error_bins),
          percentiles_of(totals.tallies.relative_error_bins),
          totals.full_percentiles ? "all elements" : "every 16th strip of 64 blocks of each tile"};
}

void fill_row(Row& row, const Totals& totals) {
  row.figures = make_figures(totals);
  const Tallies& t = totals.tallies;
  row.code_histogram.assign(t.codes.begin(),
                            t.codes.begin() + static_cast<std::ptrdiff_t>(totals.code_count));
  row.scale_histogram.clear();
  if (totals.has_scale_codes) row.scale_histogram = t.scales;
  row.amax_exponents.clear();
  for (std::size_t i = 0; i < t.amax_exponents.size(); ++i) {
    if (t.amax_exponents[i] == 0) continue;
    row.amax_exponents.emplace_back(static_cast<int>(i) - kExponentOffset, t.amax_exponents[i]);
  }
  row.percentiles = make_percentiles(totals);
}

}  // namespace fp4scope
