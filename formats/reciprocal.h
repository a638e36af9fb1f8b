// reciprocal.h: rcp~, the approximate reciprocal of NVIDIA hardware (rcp.approx.ftz.f32) from its
// table, and arithmetic with subnormals flushed to zero (spec/scalars.md section 9, spec/nvfp4.md
// section 4). The table holds a 2-bit two's complement difference to the rounded reciprocal for
// each of the 2^23 fractions: fraction i at bits 2*(i & 3) of byte i / 4. Null: correctly rounded.
#pragma once
#include "formats/lane.h"

namespace fp4scope {

// A subnormal becomes a zero of its sign.
template <class L>
FP4SCOPE_HD constexpr typename L::F flush_subnormal(typename L::F v) {
  using U = typename L::U;
  using F = typename L::F;
  const U bits = bit_cast<U>(v);
  return bit_cast<F>(select((bits & kMagnitudeMask) < 0x00800000u, bits & kSignBit, bits));
}

// The difference of each lane, as the low bits of a two's complement number.
template <class L>
FP4SCOPE_HD constexpr typename L::U rcp_difference(const std::uint8_t* table,
                                                   typename L::U fraction) {
  using U = typename L::U;
  U two_bits{};
  if constexpr (L::kWidth == 1) {
    two_bits = (static_cast<std::uint32_t>(table[fraction >> 2]) >> ((fraction & 3u) * 2u)) & 3u;
  } else {
    for (int l = 0; l < L::kWidth; ++l) {
      const std::uint32_t i = fraction[l];
      two_bits[l] = (static_cast<std::uint32_t>(table[i >> 2]) >> ((i & 3u) * 2u)) & 3u;
    }
  }
  return (two_bits ^ 2u) - 2u;
}

// Subnormal operands count as zero: rcp~(0) = Inf, rcp~(Inf) = 0, a result below 2^-126 is zero.
template <class L>
FP4SCOPE_HD constexpr typename L::F rcp_approx(typename L::F v, const std::uint8_t* table) {
  using U = typename L::U;
  using F = typename L::F;
  const U bits = bit_cast<U>(v);
  const U mag = bits & kMagnitudeMask;
  const U fraction = bits & 0x007fffffu;
  const U exponent = mag & kInfBits;
  // 1 / 1.fraction, shifted by the exponent. 127 << 23 keeps the sum nonnegative.
  U result = bit_cast<U>(1.0f / bit_cast<F>(fraction | 0x3f800000u)) + 0x3f800000u;
  if (table != nullptr) result = result + rcp_difference<L>(table, fraction);
  result = select(result < exponent + 0x00800000u, U{}, result - exponent);
  result = select(mag < 0x00800000u, U{} + kInfBits, result);
  result = select(mag == kInfBits, U{}, result);
  result = select(mag > kInfBits, U{} + kQuietNanBits, result);
  return bit_cast<F>(result | (bits & kSignBit));
}

// One machine operation each, with or without flush-to-zero of operands and result. `on` is
// uniform; a constant folds.
template <class L>
struct FlushOps {
  using F = typename L::F;
  bool on;
  FP4SCOPE_HD constexpr F operand(F v) const { return on ? flush_subnormal<L>(v) : v; }
  FP4SCOPE_HD constexpr F mul(F a, F b) const { return operand(operand(a) * operand(b)); }
  FP4SCOPE_HD constexpr F div(F a, F b) const { return operand(operand(a) / operand(b)); }
  FP4SCOPE_HD constexpr F add(F a, F b) const { return operand(operand(a) + operand(b)); }
  FP4SCOPE_HD constexpr F sub(F a, F b) const { return operand(operand(a) - operand(b)); }
};

// Without a table (correctly rounded), and the flush rule of spec/scalars.md 9.
static_assert(bit_cast<std::uint32_t>(rcp_approx<Lane<1>>(6.0f, nullptr)) == 0x3e2aaaabu);
static_assert(bit_cast<std::uint32_t>(rcp_approx<Lane<1>>(2688.0f, nullptr)) == 0x39c30c31u);
static_assert(rcp_approx<Lane<1>>(0x1p126f, nullptr) == 0x1p-126f);
static_assert(rcp_approx<Lane<1>>(0x1.000002p126f, nullptr) == 0.0f);
static_assert(rcp_approx<Lane<1>>(0x1p127f, nullptr) == 0.0f);

}  // namespace fp4scope
