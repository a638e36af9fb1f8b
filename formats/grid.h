// grid.h: values on the grid of a minifloat without the way through its codes, for loops that want
// the decoded value of an element more than its code; and an exact division by a constant.
// tests/exhaustive compares all of it with encode(), decode() and the division over every input.
#pragma once
#include "formats/minifloat.h"

namespace fp4scope {

// A point on the grid of a minifloat.
template <class L>
struct GridPoint {
  typename L::F value;
  typename L::U code;  // of its magnitude in the low bits; what is above them means nothing
};

// encode() to nearest even and decode() of a finite a >= 0 below the saturation limit of `spec`,
// which has at least one fraction bit; above it the grid goes on, with the quantum of each binade.
// Of an a < 0 the value is minus that of -a (but a zero is +0), and the code means nothing.
// One addition rounds: k = 1.5 * 2^(23-m) * 2^e, e the exponent of a (at least that of the smallest
// normal number), has the quantum of the target as its own, and as a multiple of it is even. The
// low bits of a + k count quanta, and a binade has 2^m codes.
template <class L>
FP4SCOPE_HD constexpr GridPoint<L> nearest_on_grid(MinifloatSpec spec, typename L::F a) {
  using U = typename L::U;
  using F = typename L::F;
  const auto least = static_cast<std::uint32_t>(127 + spec.min_exponent()) << 23;
  const auto below = static_cast<std::uint32_t>(23 - spec.mantissa_bits);
  const std::uint32_t up = (below << 23) + 0x400000u;
  const U k = max_of(bit_cast<U>(a) & kInfBits, U{} + least) + up;
  const F sum = a + bit_cast<F>(k);
  return {sum - bit_cast<F>(k), bit_cast<U>(sum) + (k >> below) - ((least + up) >> below)};
}

// fl(v / d) of a finite v by a constant: `d` has at most 12 significant bits and is no power of
// two, `inverse` is fl(1/d), and v/d is normal. The estimate is off by less than 2 units in the
// last place; what is missing comes from the exact remainder v - q*d, taken in two parts. A
// quotient is never a midpoint (d times an odd 25-bit number has more than 24 bits), and it stays
// away from midpoints by 2^-12 of a unit, which the last addition needs.
template <class L>
FP4SCOPE_HD constexpr typename L::F divide_by_constant(typename L::F v, float d, float inverse) {
  using U = typename L::U;
  using F = typename L::F;
  const F q = v * inverse;
  const F high = bit_cast<F>(bit_cast<U>(q) & 0xfffff000u);
  const F rest = (v - high * d) - (q - high) * d;
  return q + rest * inverse;
}

}  // namespace fp4scope
