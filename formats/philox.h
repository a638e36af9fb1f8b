// philox.h: Philox4x32-10 (Salmon et al., SC11) over lanes, one counter and key per lane. Checked
// against Random123 and the recorded outputs of the CUDA device generator (spec/scalars.md 2.4).
#pragma once
#include "formats/lane.h"

namespace fp4scope {

// High word of a 32x32-bit product from 16-bit halves, so that lanes need no 64-bit type.
template <class U>
FP4SCOPE_HD constexpr U multiply_high(std::uint32_t a, U b) {
  const std::uint32_t a_lo = a & 0xffffu, a_hi = a >> 16;
  const U b_lo = b & 0xffffu, b_hi = b >> 16;
  const U low = b_lo * a_lo;
  const U mid1 = b_lo * a_hi + (low >> 16);
  const U mid2 = b_hi * a_lo + (mid1 & 0xffffu);
  return b_hi * a_hi + (mid1 >> 16) + (mid2 >> 16);
}

template <class L>
FP4SCOPE_HD constexpr void philox4x32_10(const typename L::U (&counter)[4],
                                         const typename L::U (&key)[2], typename L::U (&out)[4]) {
  using U = typename L::U;
  constexpr std::uint32_t kMultiplier0 = 0xd2511f53u, kMultiplier1 = 0xcd9e8d57u;
  constexpr std::uint32_t kWeyl0 = 0x9e3779b9u, kWeyl1 = 0xbb67ae85u;
  U c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  U k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const U hi0 = multiply_high(kMultiplier0, c0), lo0 = c0 * kMultiplier0;
    const U hi1 = multiply_high(kMultiplier1, c2), lo1 = c2 * kMultiplier1;
    c0 = hi1 ^ c1 ^ k0;
    c1 = lo1;
    c2 = hi0 ^ c3 ^ k1;
    c3 = lo0;
    k0 = k0 + kWeyl0;
    k1 = k1 + kWeyl1;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

}  // namespace fp4scope
