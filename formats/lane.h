// lane.h: the scalar/vector abstraction that every kernel is written over.
// Lane<1> is plain float/uint32_t (reference backend, CUDA thread, constant evaluation);
// Lane<W> is a GNU vector of W independent blocks. There is no horizontal operation, so the order
// of a sum inside a block is the same for every W.
#pragma once
#include <type_traits>

#include "formats/hd.h"

namespace fp4scope {

template <int W>
struct Lane {
  static constexpr int kWidth = W;
  typedef float F __attribute__((vector_size(4 * W)));
  typedef std::uint32_t U __attribute__((vector_size(4 * W)));
};
template <>
struct Lane<1> {
  static constexpr int kWidth = 1;
  using F = float;
  using U = std::uint32_t;
};

// select(mask, a, b): mask is bool for scalars, an integer vector for W > 1.
template <class T>
FP4SCOPE_HD constexpr T select(bool mask, T a, T b) {
  return mask ? a : b;
}
#ifndef __CUDACC__
template <class M, class T>
requires(!std::is_same_v<M, bool>) FP4SCOPE_HD constexpr T select(M mask, T a, T b) {
  return mask ? a : b;
}
#endif

// Minimum of a and a bound as fminf: a NaN in a gives the bound.
template <class T>
FP4SCOPE_HD constexpr T fmin_bound(T a, T bound) {
  return select(a < bound, a, bound);
}
template <class T>
FP4SCOPE_HD constexpr T max_of(T a, T b) {
  return select(a < b, b, a);
}
template <class T>
FP4SCOPE_HD constexpr T min_of(T a, T b) {
  return select(b < a, b, a);
}
#if defined(FP4SCOPE_X86_LANES) && defined(__GNUC__) && !defined(__clang__)
// For files that use these widths in functions for AVX2 and AVX-512 alone. GCC 12 makes a
// comparison and a blend of an unsigned maximum of lanes, and takes the mask into scalars when it
// is used twice.
FP4SCOPE_HD constexpr Lane<8>::U max_of(Lane<8>::U a, Lane<8>::U b) {
  if (__builtin_is_constant_evaluated()) return select(a < b, b, a);
  asm("vpmaxud %2, %1, %0" : "=v"(a) : "v"(a), "vm"(b));
  return a;
}
FP4SCOPE_HD constexpr Lane<16>::U max_of(Lane<16>::U a, Lane<16>::U b) {
  if (__builtin_is_constant_evaluated()) return select(a < b, b, a);
  asm("vpmaxud %2, %1, %0" : "=v"(a) : "v"(a), "vm"(b));
  return a;
}
FP4SCOPE_HD constexpr Lane<8>::U min_of(Lane<8>::U a, Lane<8>::U b) {
  if (__builtin_is_constant_evaluated()) return select(b < a, b, a);
  asm("vpminud %2, %1, %0" : "=v"(a) : "v"(a), "vm"(b));
  return a;
}
FP4SCOPE_HD constexpr Lane<16>::U min_of(Lane<16>::U a, Lane<16>::U b) {
  if (__builtin_is_constant_evaluated()) return select(b < a, b, a);
  asm("vpminud %2, %1, %0" : "=v"(a) : "v"(a), "vm"(b));
  return a;
}
#endif

inline constexpr std::uint32_t kSignBit = 0x80000000u;
inline constexpr std::uint32_t kMagnitudeMask = 0x7fffffffu;
inline constexpr std::uint32_t kInfBits = 0x7f800000u;
inline constexpr std::uint32_t kQuietNanBits = 0x7fc00000u;
inline constexpr std::uint32_t kFloatMaxBits = 0x7f7fffffu;
inline constexpr float kFloatMax = 0x1.fffffep127f;

// 2^e as binary32, -126 <= e <= 127.
FP4SCOPE_HD constexpr float pow2(int e) {
  return bit_cast<float>(static_cast<std::uint32_t>(127 + e) << 23);
}

}  // namespace fp4scope
