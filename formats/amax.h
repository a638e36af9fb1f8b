// amax.h: the largest magnitude of a group as an integer maximum of binary32 bits: exact, and free
// of order. NaN is ignored, as fmaxf does; a group of NaN alone has 0.
#pragma once
#include "formats/lane.h"

namespace fp4scope {

// Magnitude bits of one element, 0 for NaN. U may be lanes.
template <class U>
FP4SCOPE_HD constexpr U magnitude_without_nan(U bits) {
  const U magnitude = bits & kMagnitudeMask;
  return select(magnitude > kInfBits, U{}, magnitude);
}

FP4SCOPE_HD constexpr std::uint32_t amax_bits(const float* x, std::int64_t count) {
  std::uint32_t amax = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    amax = max_of(amax, magnitude_without_nan(bit_cast<std::uint32_t>(x[i])));
  }
  return amax;
}

// amax_bits() with the sign bit set where there is a NaN, for maxima of torch, which propagate it.
// Two of them combine by the larger magnitude and either mark.
FP4SCOPE_HD constexpr std::uint32_t marked_amax_bits(const float* x, std::int64_t count) {
  std::uint32_t any = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    any = max_of(any, bit_cast<std::uint32_t>(x[i]) & kMagnitudeMask);
  }
  if (any <= kInfBits) return any;
  return amax_bits(x, count) | kSignBit;
}
FP4SCOPE_HD constexpr std::uint32_t merged_amax_bits(std::uint32_t a, std::uint32_t b) {
  return max_of(a & kMagnitudeMask, b & kMagnitudeMask) | ((a | b) & kSignBit);
}

}  // namespace fp4scope
