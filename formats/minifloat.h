// minifloat.h: encode and decode derived from a MinifloatSpec. The spec is an ordinary argument:
// kernels pass a constant, which folds away, and format-design experiments pass a run-time value
// through the same text. Exact for 0 <= mantissa_bits <= 10 and targets whose smallest normal is a
// binary32 normal (E8M0 needs its own exponent functions, formats/e8m0.h).
// Rules: spec/scalars.md sections 1 to 4, 6 and 7.
#pragma once
#include "formats/rounding.h"
#include "formats/scalars.h"

namespace fp4scope {

// Stochastic rounding in software, spec/scalars.md 2.3 (TransformerEngine common/util/ptx.cuh):
//   u = byte * 2^-8;  t = fl(|x| + u*step(|x|));  code of t truncated to a multiple of step(t).
// step(t) is the quantum of the target format at t. u*step is exact, so the published fma is one
// addition here. Returns t; truncation follows in encode().
template <class L>
FP4SCOPE_HD constexpr typename L::F add_random_fraction(MinifloatSpec spec, typename L::F magnitude,
                                                        typename L::U random_byte) {
  using U = typename L::U;
  using F = typename L::F;
  const std::uint32_t min_field = static_cast<std::uint32_t>(127 + spec.min_exponent());
  const U field = max_of(bit_cast<U>(magnitude) >> 23, U{} + min_field);
  // step = 2^(field - 127 - m), at least 2^-133 (BF16), so u * step is exact.
  const F step = bit_cast<F>(field << 23) * pow2(-spec.mantissa_bits);
  F u{};
  if constexpr (L::kWidth == 1) {
    u = static_cast<float>(random_byte);
  } else {
    u = __builtin_convertvector(random_byte, F);
  }
  return magnitude + (u * 0x1p-8f) * step;
}

// v -> code, saturating to the largest finite magnitude. NaN and Inf saturate as well: NaN policy
// belongs to the caller (cast, or a contract), not to the element encoder. Signed formats copy the
// sign bit, so -0 and negative underflow give the code of -0 (fnuz: +0); unsigned formats send
// negative input to code 0.
template <class L>
FP4SCOPE_HD constexpr typename L::U encode(MinifloatSpec spec, Rounding rounding, typename L::F v,
                                           [[maybe_unused]]
                                           typename L::U random_byte = typename L::U{}) {
  using U = typename L::U;
  using F = typename L::F;
  const int m = spec.mantissa_bits;
  const std::uint32_t min_field = static_cast<std::uint32_t>(127 + spec.min_exponent());
  const std::uint32_t min_normal = min_field << 23;
  const U bits = bit_cast<U>(v);
  U mag = bits & kMagnitudeMask;
  if (rounding == Rounding::kStochastic) {
    // Inf and NaN saturate below; a sum that overflows is Inf and saturates too.
    mag = select(mag < kInfBits,
                 bit_cast<U>(add_random_fraction<L>(spec, bit_cast<F>(mag), random_byte)), mag);
    rounding = Rounding::kTrunc;
  }
  // Normal range: round the binary32 pattern at bit 23-m, drop the low bits, rebase the exponent.
  // Patterns from Inf on are above every finite target and saturate.
  const U lsb = (mag >> (23 - m)) & 1u;
  const U half = U{} + (1u << (22 - m));
  const U normal = ((mag + rounding_addend(rounding, half, lsb)) >> (23 - m)) -
                   (static_cast<std::uint32_t>(127 - spec.bias) << m);
  U tiny{};
  if (spec.has_subnormals) {
    if (rounding == Rounding::kEven) {
      // One binary32 addition aligns and rounds; the integer is in the low bits.
      const std::uint32_t align = (min_field + 23u - static_cast<std::uint32_t>(m)) << 23;
      tiny = bit_cast<U>(bit_cast<F>(mag) + bit_cast<float>(align)) - align;
    } else {
      // Shift the significand to the fixed quantum. From 26 on nothing is left, in every rounding;
      // normal lanes, whose result is not used, may have any shift that is defined.
      const U field = max_of(mag >> 23, U{} + 1u);
      const U hidden = select(mag < 0x00800000u, U{}, U{} + 0x00800000u);
      const U significand = (mag & 0x007fffffu) | hidden;
      const U distance = min_field - field + static_cast<std::uint32_t>(23 - m);
      const U shift = max_of(min_of(distance, U{} + 26u), U{} + 1u);
      const U one = U{} + 1u;
      tiny = (significand + rounding_addend(rounding, one << (shift - 1u), U{})) >> shift;
    }
  }
  U code = select(mag < min_normal, tiny, normal);
  const U sign = bits >> 31;
  if (spec.sign_code == SignCode::kTwosComplementFull) {
    code = min_of(code, sign + spec.max_finite_code());
  } else {
    code = min_of(code, U{} + spec.max_finite_code());
  }
  if (spec.is_twos_complement()) {
    code = select(sign != U{}, (0u - code) & (spec.code_count() - 1u), code);
  } else if (spec.is_signed) {
    const U sign_bit = sign << spec.magnitude_bits();
    if (spec.special == Special::kFnuz) {
      code = select(code == U{}, code, code | sign_bit);
    } else {
      code = code | sign_bit;
    }
  } else {
    code = select(sign != U{}, U{}, code);
  }
  return code;
}

// code -> exact binary32 value. NaN codes give the quiet NaN, Inf codes Inf.
template <class L>
FP4SCOPE_HD constexpr typename L::F decode(MinifloatSpec spec, typename L::U code) {
  using U = typename L::U;
  using F = typename L::F;
  const int m = spec.mantissa_bits;
  U field = code & spec.magnitude_mask();
  if (spec.is_twos_complement()) {
    field = select((code & spec.sign_mask()) != U{}, (0u - code) & (spec.code_count() - 1u), code);
  }
  U magnitude{};
  if (spec.has_subnormals) {
    // A subnormal code is put under the smallest normal exponent, whose hidden bit is subtracted:
    // exact, and unlike a product with 2^(127-bias) without binary32 subnormals, which are slow.
    const U placed = field << (23 - m);
    const std::uint32_t normal = static_cast<std::uint32_t>(127 - spec.bias) << 23;
    const std::uint32_t hidden = static_cast<std::uint32_t>(128 - spec.bias) << 23;
    const F tiny = bit_cast<F>(placed + hidden) - bit_cast<float>(hidden);
    magnitude = select(field < (1u << m), bit_cast<U>(tiny), placed + normal);
  } else {
    magnitude = (field << (23 - m)) + (static_cast<std::uint32_t>(127 - spec.bias) << 23);
  }
  if (spec.special == Special::kNanAllOnes) {
    magnitude = select(field == spec.magnitude_mask(), U{} + kQuietNanBits, magnitude);
  } else if (spec.special == Special::kIeee) {
    const std::uint32_t inf_code = spec.max_finite_code() + 1u;
    magnitude = select(field == inf_code, U{} + kInfBits, magnitude);
    magnitude = select(field > inf_code, U{} + kQuietNanBits, magnitude);
  }
  if (spec.is_signed) {
    const U sign = (code >> spec.magnitude_bits()) & 1u;
    if (spec.special == Special::kFnuz) {
      const U nan_code = U{} + spec.sign_mask();
      magnitude = select((code & (2u * spec.sign_mask() - 1u)) == nan_code, U{} + kQuietNanBits,
                         magnitude | (sign << 31));
    } else {
      magnitude = magnitude | (sign << 31);
    }
  }
  return bit_cast<F>(magnitude);
}

enum class Overflow : std::uint8_t {
  kSaturate,  // the largest finite magnitude, Inf too
  kSpecial    // what rounds above it becomes Inf (IEEE formats) or NaN (fn, fnuz); formats without
              // special codes always saturate
};
struct NanRule {
  enum class Sign : std::uint8_t { kDrop, kCopy, kFlip };  // of the NaN, into the sign bit
  std::uint32_t code;
  Sign sign;
};
struct CastPolicy {
  Rounding rounding;
  Overflow overflow;
  NanRule nan;
};

// A whole published scalar cast: rounding, overflow and NaN (spec/scalars.md sections 2 to 4).
template <class L>
FP4SCOPE_HD constexpr typename L::U cast(MinifloatSpec spec, CastPolicy policy, typename L::F v,
                                         typename L::U random_byte = typename L::U{}) {
  using U = typename L::U;
  U code = encode<L>(spec, policy.rounding, v, random_byte);
  const U bits = bit_cast<U>(v);
  const U mag = bits & kMagnitudeMask;
  const U sign = bits >> 31;
  const auto is_nan = mag > kInfBits;
  const U copied = spec.is_signed ? sign << spec.magnitude_bits() : U{};
  if (policy.overflow == Overflow::kSpecial && spec.special != Special::kNone) {
    // One more binade decides whether the rounded value is still finite.
    const MinifloatSpec wider{spec.exponent_bits + 1, spec.mantissa_bits,  spec.bias,
                              spec.is_signed,         spec.has_subnormals, Special::kNone};
    const U unbounded = encode<L>(wider, policy.rounding, v, random_byte) & wider.magnitude_mask();
    const auto above = unbounded > spec.max_finite_code();
    U special{};
    if (spec.special == Special::kIeee) {
      special = (spec.max_finite_code() + 1u) | copied;
    } else if (spec.special == Special::kFnuz) {
      special = U{} + spec.sign_mask();
    } else {
      special = spec.magnitude_mask() | copied;
    }
    code = select(above, special, code);
    code = select(mag == kInfBits, special, code);
    if (!spec.is_signed) code = select(sign != U{}, U{}, code);
  }
  U nan = U{} + policy.nan.code;
  if (policy.nan.sign == NanRule::Sign::kCopy) nan = nan | copied;
  if (policy.nan.sign == NanRule::Sign::kFlip) nan = nan | (copied ^ spec.sign_mask());
  return select(is_nan, nan, code);
}

// Saturation: an element is clamped when a grid that went on above the largest code would have
// rounded it there. Its scaled magnitude then lies beyond `limit`, or on it when the tie goes up.
struct SaturationLimit {
  double limit;
  bool inclusive;
  constexpr bool is_exceeded_by(double magnitude) const {
    return inclusive ? magnitude >= limit : magnitude > limit;
  }
};
constexpr SaturationLimit saturation_limit(MinifloatSpec spec, Rounding rounding) {
  const std::uint32_t top = spec.max_finite_code();
  const double largest = decode<Lane<1>>(spec, top);
  const double step = largest - decode<Lane<1>>(spec, top - 1);
  if (rounding == Rounding::kTrunc) return {largest + step, true};
  const bool tie_goes_up =
      rounding == Rounding::kAway || (rounding == Rounding::kEven && (top & 1u) == 1u);
  return {largest + step / 2, tie_goes_up};
}
static_assert(saturation_limit(kE2M1, Rounding::kEven).limit == 7.0);
static_assert(saturation_limit(kE4M3, Rounding::kEven).limit == 464.0 &&
              !saturation_limit(kE4M3, Rounding::kEven).inclusive);  // 464 ties to 448

// NaN code of the saturating hardware casts (PTX cvt.rn.satfinite): the largest positive code for
// formats without NaN, 0x7F for E4M3 and E5M2, whatever the sign. spec/scalars.md 2, 3.
FP4SCOPE_HD constexpr std::uint32_t hardware_nan_code(MinifloatSpec spec) {
  return spec.magnitude_mask();
}

}  // namespace fp4scope
