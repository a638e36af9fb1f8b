// lut.h: elements from a table of values (custom:lut:NAME). Codes are indices into the table.
#pragma once
#include <string_view>

#include "formats/lane.h"

namespace fp4scope {

inline constexpr int kMaxLutValues = 256;

// `value[i]` belongs to code i, in any order, finite and distinct. A value is encoded as the
// nearest entry; a tie takes the even code, and of two even or two odd codes the smaller.
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

}  // namespace fp4scope
