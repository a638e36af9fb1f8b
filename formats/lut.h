// lut.h: elements from a table of values (custom:lut:NAME). Codes are indices into the table. Also
// what formats with and without a table answer alike.
#pragma once
#include <string_view>

#include "formats/minifloat.h"

namespace fp4scope {

inline constexpr int kMaxLutValues = 256;

// `value[i]` belongs to code i, in any order, finite and distinct. A value is encoded as the
// nearest entry; a tie takes the even code, and of two even or two odd codes the smaller. NaN takes
// the code of the largest value, as elements without a NaN code do.
struct Lut {
  std::string_view name;
  int count;
  float value[kMaxLutValues];
};

// Largest magnitude, what a scale maps the maximum to.
FP4SCOPE_HD constexpr float lut_max(const Lut& lut) {
  float largest = 0.0f;
  for (int i = 0; i < lut.count; ++i) {
    largest = max_of(largest, lut.value[i] < 0.0f ? -lut.value[i] : lut.value[i]);
  }
  return largest;
}
// Which of two entries is nearer to v, by their midpoint: 2v and the sum of two table values are
// exact in binary64 unless the values are more than 2^28 apart. Scalar only.
FP4SCOPE_HD constexpr std::uint32_t lut_encode(const Lut& lut, float v) {
  if (v != v) v = kFloatMax;
  int best = 0;
  for (int i = 1; i < lut.count; ++i) {
    const double a = lut.value[best], b = lut.value[i], twice = 2.0 * static_cast<double>(v);
    const bool is_tie = twice == a + b;
    const bool is_nearer = b > a ? twice > a + b : twice < a + b;
    // `best` has the smaller code.
    if (is_nearer || (is_tie && best % 2 == 1 && i % 2 == 0)) best = i;
  }
  return static_cast<std::uint32_t>(best);
}

// Saturation: a number is clamped when it lies beyond the smallest or largest entry by more than
// half the distance of that entry to its neighbour, as 7 is the limit above the 6 of E2M1. Returns
// how far beyond, in units of that half distance: clamped above 1, 0 between the end entries.
FP4SCOPE_HD constexpr double lut_excess(const Lut& lut, double v) {
  double low = lut.value[0], high = lut.value[0];
  for (int i = 1; i < lut.count; ++i) {
    low = min_of<double>(low, lut.value[i]);
    high = max_of<double>(high, lut.value[i]);
  }
  if (v >= low && v <= high) return 0.0;
  const bool is_above = v > high;
  const double end = is_above ? high : low;
  double gap = high - low;  // to the neighbour of the end entry
  for (int i = 0; i < lut.count; ++i) {
    const double entry = lut.value[i];
    if (entry != end) gap = min_of(gap, is_above ? end - entry : entry - end);
  }
  return (is_above ? v - end : end - v) / (gap / 2);
}

// The largest element, what a scale maps the maximum of a block to.
FP4SCOPE_HD constexpr float element_max(const BlockFormat& format) {
  if (format.lut != nullptr) return lut_max(*format.lut);
  return decode<Lane<1>>(format.element, format.element.max_finite_code());
}

}  // namespace fp4scope
