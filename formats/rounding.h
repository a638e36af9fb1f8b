// rounding.h: the integer roundings that every conversion uses, narrowing to BF16 and FP16,
// rounding to odd, and division by a number as torch does it. Bit picture of a right shift by s
// with the discarded part d (s bits), half h = 1 << (s-1):
//   RNE adds h-1 plus the lowest kept bit, RNA adds h, RHZ adds h-1, RTZ adds 0.
#pragma once
#include "formats/contracts/options.h"
#include "formats/lane.h"

namespace fp4scope {

// What is added below the kept bits before truncation; `half` and `kept_lsb` may be lanes.
template <class U>
FP4SCOPE_HD constexpr U rounding_addend(Rounding rounding, U half, U kept_lsb) {
  switch (rounding) {
    case Rounding::kEven:
      return half - 1u + kept_lsb;
    case Rounding::kAway:
      return half;
    case Rounding::kZero:
      return half - 1u;
    default:
      return U{};
  }
}

// binary32 -> BF16 -> binary32, RNE, overflow to Inf, subnormals rounded; NaN stays NaN
// (0x7FFF0000, as the CUDA conversion). spec/scalars.md section 7.
template <class L>
FP4SCOPE_HD constexpr typename L::F round_to_bf16(typename L::F v) {
  using U = typename L::U;
  using F = typename L::F;
  const U bits = bit_cast<U>(v);
  const U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  return bit_cast<F>(select((bits & kMagnitudeMask) > kInfBits, U{} + 0x7fff0000u, rounded));
}

// binary32 -> FP16 -> binary32, RNE, overflow to Inf, subnormals rounded; NaN stays NaN.
template <class L>
FP4SCOPE_HD constexpr typename L::F round_to_f16(typename L::F v) {
  using U = typename L::U;
  using F = typename L::F;
  const U bits = bit_cast<U>(v);
  const U magnitude = bits & kMagnitudeMask;
  const U rounded = (magnitude + 0x0fffu + ((magnitude >> 13) & 1u)) & 0xffffe000u;
  // 65520 and above round to 65536, beyond the largest finite value.
  const U normal = select(rounded >= 0x47800000u, U{} + kInfBits, rounded);
  // Below 2^-14 the quantum is 2^-24, that of binary32 at 0.5: one addition rounds.
  const F aligned = bit_cast<F>(magnitude) + 0.5f;
  const U tiny = bit_cast<U>(aligned - 0.5f);
  const U result = select(magnitude < 0x38800000u, tiny, normal) | (bits & kSignBit);
  return bit_cast<F>(select(magnitude > kInfBits, U{} + kQuietNanBits, result));
}

// One operation of torch on tensors of a 16-bit type, dt() of spec/more.md: its binary32 result
// rounded to the type.
template <class L>
FP4SCOPE_HD constexpr typename L::F round_to_dtype(DType16 dtype, typename L::F v) {
  if (dtype == DType16::kBf16) return round_to_bf16<L>(v);
  if (dtype == DType16::kF16) return round_to_f16<L>(v);
  return v;
}

// tensor / python_number of torch: a quotient, or on CUDA a product with the rounded reciprocal
// (spec/scalars.md section 8).
template <class L>
FP4SCOPE_HD constexpr typename L::F scalar_divide(ScalarDiv how, typename L::F v, float number) {
  return how == ScalarDiv::kExact ? v / number : v * (1.0f / number);
}

// a * b rounded to odd: exact when representable, otherwise the neighbour with an odd significand.
// A later rounding to at most 22 bits then equals one rounding of the exact product. Needs b with
// at most 12 significant bits and all partial products normal or zero.
// Veltkamp's idea by masking: a = hi + lo with 12 bits each, both products are exact, and
// Fast2Sum gives the error of their sum exactly.
template <class L>
FP4SCOPE_HD constexpr typename L::F multiply_round_to_odd(typename L::F a, typename L::F b) {
  using U = typename L::U;
  using F = typename L::F;
  const F a_hi = bit_cast<F>(bit_cast<U>(a) & 0xfffff000u);
  const F p_hi = a_hi * b;
  const F p_lo = (a - a_hi) * b;
  const F sum = p_hi + p_lo;
  const F error = p_lo - (sum - p_hi);
  const U bits = bit_cast<U>(sum);
  // An even significand with a nonzero error moves one step toward the error. Integers instead of
  // masks: GCC 12 takes 512-bit masks that are used twice apart into scalars.
  const U error_bits = bit_cast<U>(error);
  const U inexact = min_of(error_bits & kMagnitudeMask, U{} + 1u);
  const U moves = inexact & ~bits;                       // bit 0
  const U step = 1u - ((error_bits ^ bits) >> 31) * 2u;  // +1 or -1
  return bit_cast<F>(bits + (step & (0u - (moves & 1u))));
}

// binary64 -> binary32 rounded to odd, saturating at FLT_MAX (odd) instead of overflowing. For
// conversions that round once more to at most 22 bits. Scalar only: binary64 input has no lanes.
FP4SCOPE_HD constexpr float round_to_odd(double v) {
  const std::uint64_t bits = bit_cast<std::uint64_t>(v);
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 32) & kSignBit;
  const std::uint64_t mag = bits & 0x7fffffffffffffffull;
  if (mag >= 0x7ff0000000000000ull) {  // Inf, NaN
    return bit_cast<float>(sign | (mag == 0x7ff0000000000000ull ? kInfBits : kQuietNanBits));
  }
  const int exponent = static_cast<int>(mag >> 52) - 1023;
  if (mag == 0) return bit_cast<float>(sign);
  if (exponent > 127) return bit_cast<float>(sign | kFloatMaxBits);
  const std::uint64_t fraction = mag & 0xfffffffffffffull;
  const std::uint64_t significand = fraction | (exponent > -1023 ? 1ull << 52 : 0ull);
  // Bits below the binary32 quantum: 29 for normals, more for what becomes a subnormal.
  int shift = 29 + (exponent < -126 ? -126 - exponent : 0);
  if (shift > 63) shift = 63;
  const std::uint64_t kept = significand >> shift;
  const bool sticky = (significand & ((1ull << shift) - 1ull)) != 0;
  const std::uint32_t exponent_field =
      exponent < -126 ? 0u : static_cast<std::uint32_t>(exponent + 126) << 23;
  // `kept` carries the hidden bit, hence +126 and not +127 above.
  return bit_cast<float>(
      sign | ((exponent_field + static_cast<std::uint32_t>(kept)) | (sticky ? 1u : 0u)));
}

}  // namespace fp4scope
