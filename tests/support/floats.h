// floats.h: equality of recorded and computed binary32 values, bit for bit, where any NaN equals
// any NaN and -0 is not +0.
#pragma once
#include <cstdint>

#include "formats/lane.h"

namespace fp4scope::test {

inline bool is_nan_bits(std::uint32_t bits) {
  return (bits & kMagnitudeMask) > kInfBits;
}
inline bool same_float(std::uint32_t got, std::uint32_t want) {
  return got == want || (is_nan_bits(got) && is_nan_bits(want));
}
inline bool same_float(float got, float want) {
  return same_float(bit_cast<std::uint32_t>(got), bit_cast<std::uint32_t>(want));
}

}  // namespace fp4scope::test
