// mx_log2.h: what rounding functions of a binary32 logarithm give, without a logarithm. Sources
// that compute RN32(log2 x) and take its floor, ceiling or nearest integer are off by one close to
// the steps (spec/mx.md section 2.1). For x = 2^k * (1 + f * 2^-23) the result is k or k + 1, and
// the fraction f where it changes depends on k only through the spacing of binary32 next to the
// step, hence the bit length of k (or of -k-1) picks one of nine thresholds. They are the least f
// for which the definition, evaluated with 200 bits, gives k + 1; tests compare with recorded rows
// and, around every step of every binade, with the exact oracle.
#pragma once
#include "formats/lane.h"

namespace fp4scope {

enum class Log2Rounding : std::uint8_t {
  kFloor,
  kCeil,
  kEven,     // nearest, half to even
  kAway,     // nearest, half away from zero
  kBf16Even  // nearest, half to even, of the logarithm rounded once more to BF16; x is a BF16
             // number
};

// A positive binary32 number as k + 1024 and f; subnormals are normalized. Zero gives a k far below
// all others.
inline constexpr std::uint32_t kLog2Offset = 1024;
template <class L>
struct Log2Parts {
  typename L::U exponent;  // k + kLog2Offset
  typename L::U fraction;  // f
};
template <class L>
FP4SCOPE_HD constexpr Log2Parts<L> log2_parts(typename L::U magnitude) {
  using U = typename L::U;
  using F = typename L::F;
  const auto is_small = magnitude < 0x00800000u;
  // Exact: a subnormal times 2^32.
  const U scaled = bit_cast<U>(bit_cast<F>(magnitude) * 0x1p32f);
  const U bits = select(is_small, scaled, magnitude);
  const U offset = select(is_small, U{} + (kLog2Offset - 127u - 32u), U{} + (kLog2Offset - 127u));
  const U exponent = (bits >> 23) + offset;
  return {select(magnitude == U{}, U{}, exponent), bits & 0x007fffffu};
}

// Threshold of the bit length of j = max(k, -k-1).
template <class L>
FP4SCOPE_HD constexpr typename L::U log2_pick(const std::uint32_t (&steps)[9], typename L::U j) {
  using U = typename L::U;
  U t = U{} + steps[0];
  for (int length = 1; length < 9; ++length) {
    t = select(j < (1u << (length - 1)), t, U{} + steps[length]);
  }
  return t;
}

// k or k + 1, plus kLog2Offset.
template <class L>
FP4SCOPE_HD constexpr typename L::U log2_rounded(Log2Rounding rounding, Log2Parts<L> x) {
  using U = typename L::U;
  const auto is_negative = x.exponent < kLog2Offset;
  const U j = select(is_negative, kLog2Offset - 1u - x.exponent, x.exponent - kLog2Offset);
  U threshold{};
  switch (rounding) {
    case Log2Rounding::kFloor: {
      const std::uint32_t steps[9] = {0x800000, 0x800000, 0x7fffff, 0x7ffffe, 0x7ffffb,
                                      0x7ffff5, 0x7fffea, 0x7fffd4, 0x7fffa8};
      threshold = log2_pick<L>(steps, j);
      break;
    }
    case Log2Rounding::kCeil: {
      const std::uint32_t steps[9] = {0x1, 0x1, 0x1, 0x2, 0x3, 0x6, 0xc, 0x17, 0x2d};
      threshold = log2_pick<L>(steps, j);
      break;
    }
    case Log2Rounding::kEven:
    case Log2Rounding::kAway: {
      // Around sqrt(2): where a logarithm that was rounded to k + 1/2 counts as above, and below.
      // Length 0 is k = -1 under half to even, whose step -1/2 is met from the side where binary32
      // is twice as coarse, and k = 0 under half away.
      const std::uint32_t nearest_half = rounding == Log2Rounding::kEven ? 0x3504f3u : 0x3504f4u;
      const std::uint32_t up[9] = {nearest_half, 0x3504f3, 0x3504f3, 0x3504f2, 0x3504f0,
                                   0x3504ec,     0x3504e4, 0x3504d4, 0x3504b5};
      const std::uint32_t down[9] = {0x3504f4, 0x3504f4, 0x3504f5, 0x3504f6, 0x3504f8,
                                     0x3504fc, 0x350503, 0x350513, 0x350532};
      const U half_goes_up =
          rounding == Log2Rounding::kEven ? x.exponent & 1u : select(is_negative, U{}, U{} + 1u);
      threshold = select(half_goes_up == U{}, log2_pick<L>(down, j), log2_pick<L>(up, j));
      break;
    }
    case Log2Rounding::kBf16Even: {
      const std::uint32_t odd[9] = {0x350000, 0x350000, 0x350000, 0x340000, 0x320000,
                                    0x2e0000, 0x260000, 0x190000, 0x360000};
      const std::uint32_t even[9] = {0x360000, 0x360000, 0x370000, 0x370000, 0x390000,
                                     0x3e0000, 0x460000, 0x580000, 0x360000};
      threshold = select((x.exponent & 1u) == U{}, log2_pick<L>(even, j), log2_pick<L>(odd, j));
      break;
    }
  }
  return x.exponent + select(x.fraction < threshold, U{}, U{} + 1u);
}

// spec/mx.md 2.1: 0x507FFFFF, 2^34 minus one ulp, gives 34.
static_assert(log2_rounded<Lane<1>>(Log2Rounding::kFloor, log2_parts<Lane<1>>(0x507fffffu)) ==
              kLog2Offset + 34u);
// 5.6 -> 2 and 5.7 -> 3 under the nearest integer.
static_assert(log2_rounded<Lane<1>>(Log2Rounding::kEven, log2_parts<Lane<1>>(0x40b33333u)) ==
              kLog2Offset + 2u);
static_assert(log2_rounded<Lane<1>>(Log2Rounding::kEven, log2_parts<Lane<1>>(0x40b66666u)) ==
              kLog2Offset + 3u);

}  // namespace fp4scope
