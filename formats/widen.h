// widen.h: BF16 and binary16 as they are stored to binary32, exactly (spec/scalars.md section 7).
// NaN payloads and signs are kept; nothing is quieted or flushed. Without branches, so that the
// compiler can vectorise the loops around it.
#pragma once
#include "formats/minifloat.h"

namespace fp4scope {

// The bits are in the low half of a lane.
template <class L>
FP4SCOPE_HD constexpr typename L::F widen_binary16(typename L::U half) {
  using U = typename L::U;
  using F = typename L::F;
  const U magnitude = half & 0x7fffu;
  const U placed = magnitude << 13;
  // A subnormal fraction is put under the exponent of 2^-14, whose hidden bit is subtracted.
  const F tiny = bit_cast<F>(placed + 0x38800000u) - bit_cast<float>(0x38800000u);
  const U normal = placed + (112u << 23);
  const U finite = select(magnitude < 0x0400u, bit_cast<U>(tiny), normal);
  const U wide = select(magnitude < 0x7c00u, finite, placed + (224u << 23));
  return bit_cast<F>(wide | (half & 0x8000u) << 16);
}
FP4SCOPE_HD constexpr float widen_f16(std::uint16_t bits) {
  return widen_binary16<Lane<1>>(bits);
}
FP4SCOPE_HD constexpr float widen_bf16(std::uint16_t bits) {
  return bit_cast<float>(std::uint32_t{bits} << 16);
}

// A run of n elements.
inline void widen_halves(bool is_bf16, const std::uint16_t* from, std::int64_t n, float* to) {
  if (is_bf16) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = widen_bf16(from[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = widen_f16(from[i]);
  }
}

}  // namespace fp4scope
