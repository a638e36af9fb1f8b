// mx.h: MXFP4, MXFP6, MXFP8: 32 elements share one E8M0 byte s, value = code * 2^(s-127).
// Rules: spec/mx.md section 2 (pipeline), 2.1 (scale rules), 2.2 (options); OCP MX v1.0 6.3.
// x[32] -> codes[32] and the scale byte of one block; Lane<W> holds W blocks.
#pragma once
#include "formats/amax.h"
#include "formats/e8m0.h"
#include "formats/minifloat.h"

namespace fp4scope {

template <class L>
struct MxBlock {
  typename L::U codes[32];
  typename L::U scale;
};

// The block maximum as exponent and fraction, which binary32 and binary64 sources share.
template <class L>
struct MxAmax {
  typename L::U
      exponent;  // binary32 exponent field + kMxExponentOffset; binary64 may exceed 0..254
  typename L::U fraction;  // 23 bits; of binary64 the upper bits with the rest as a sticky bit
  typename L::F value;     // binary32 only
  typename L::U is_nan;    // 1 when a NaN must propagate
  typename L::U is_inf;
};
inline constexpr std::uint32_t kMxExponentOffset = 4096;  // keeps every exponent nonnegative

// Integer maximum of magnitude bits, so exact and free of order.
template <class L>
FP4SCOPE_HD constexpr MxAmax<L> mx_amax(const typename L::F (&x)[32]) {
  using U = typename L::U;
  using F = typename L::F;
  U amax{}, nan{};
  for (int i = 0; i < 32; ++i) {
    const U bits = bit_cast<U>(x[i]);
    nan = select((bits & kMagnitudeMask) > kInfBits, U{} + 1u, nan);
    amax = max_of(amax, magnitude_without_nan(bits));
  }
  return {(amax >> 23) + kMxExponentOffset, amax & 0x007fffffu, bit_cast<F>(amax), nan,
          select(amax == kInfBits, U{} + 1u, U{})};
}

// The same of a binary64 block (one at a time).
FP4SCOPE_HD constexpr MxAmax<Lane<1>> mx_amax(const double (&x)[32]) {
  std::uint64_t amax = 0;
  std::uint32_t nan = 0;
  for (int i = 0; i < 32; ++i) {
    const std::uint64_t mag = bit_cast<std::uint64_t>(x[i]) & 0x7fffffffffffffffull;
    if (mag > 0x7ff0000000000000ull) {
      nan = 1;
    } else if (mag > amax) {
      amax = mag;
    }
  }
  // 1023 and 127 are the two biases. Subnormals are far below every scale.
  const auto exponent = static_cast<std::uint32_t>(amax >> 52) + kMxExponentOffset + 127u - 1023u;
  const std::uint64_t fraction = amax & 0xfffffffffffffull;
  const std::uint32_t sticky = (fraction & 0x1fffffffull) != 0 ? 1u : 0u;
  return {exponent, static_cast<std::uint32_t>(fraction >> 29) | sticky, 0.0f, nan,
          amax == 0x7ff0000000000000ull ? 1u : 0u};
}

// The scale byte. spec/mx.md 2.1; E = exponent field, M = fraction, emax = exponent of the
// element's largest power of two.
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_scale_byte(MxOptions options, MinifloatSpec element,
                                                  bool is_binary64, MxAmax<L> amax) {
  using U = typename L::U;
  const U one = U{} + 1u;
  const U top = U{} + (options.top == MxTop::kNan ? 255u : 254u);
  const std::uint32_t bottom =
      kMxExponentOffset + static_cast<std::uint32_t>(element.max_exponent());
  U raised = amax.exponent;  // + kMxExponentOffset + emax above the byte
  U overflow{};
  switch (options.scale_rule) {
    case MxScaleRule::kFloor:
    default:
      break;
    case MxScaleRule::kCeil:
      raised = raised + select(amax.fraction != U{}, one, U{});
      break;
    case MxScaleRule::kEven: {
      // The significand is rounded half up at the element's fraction width.
      const U carry = (amax.fraction + (1u << (22 - element.mantissa_bits))) >> 23;
      raised = raised + carry;
      // In binary32 a carry into exponent field 255 is no number any more.
      if (!is_binary64) {
        overflow = select(raised == U{} + (kMxExponentOffset + 255u), one, U{});
      }
      break;
    }
    case MxScaleRule::kRceil: {
      // Exact form: up when the significand exceeds that of the largest element.
      const std::uint32_t largest_fraction =
          (element.max_finite_code() & ((1u << element.mantissa_bits) - 1u))
          << (23 - element.mantissa_bits);
      raised = raised + select(amax.fraction > largest_fraction, one, U{});
      break;
    }
  }
  U byte = select(raised < bottom, U{}, raised - bottom);
  if (options.scale_rule == MxScaleRule::kRceil && options.scale_arith != MxScaleArith::kField &&
      !is_binary64) {
    // The published binary32 form; it differs from the exact one only where the quotient is
    // subnormal (spec/mx.md 2.1).
    const float largest = decode<Lane<1>>(element, element.max_finite_code());
    const auto quotient = options.scale_arith == MxScaleArith::kMul ? amax.value * (1.0f / largest)
                                                                    : amax.value / largest;
    byte = e8m0_encode<L>(E8m0Rule::kUpNoSat, quotient);
  }
  byte = select(byte > 254u, top, byte);
  byte = select(overflow != U{}, top, byte);
  const bool inf_is_nan = options.inf == MxInf::kNan;
  byte = select(amax.is_inf != U{}, U{} + (inf_is_nan ? 255u : 254u), byte);
  if (options.nan == MxNan::kPropagate) {
    byte = select(amax.is_nan != U{}, U{} + 255u, byte);
  }
  return byte;
}

// One scaled element y = x * 2^(127-s) to its code. `is_zero`: the input was +-0.
template <class L, class M>
FP4SCOPE_HD constexpr typename L::U mx_element(MxOptions options, MinifloatSpec element,
                                               typename L::F y, M is_zero) {
  using U = typename L::U;
  U code = encode<L>(element, options.ties, y);
  const U magnitude = code & element.magnitude_mask();
  switch (options.zero_sign) {
    case ZeroSign::kKeep:
      break;
    case ZeroSign::kDropInput:
      code = select(is_zero, magnitude, code);
      break;
    case ZeroSign::kDrop:
      code = select(magnitude == U{}, U{}, code);
      break;
    case ZeroSign::kSet:
      code = select(magnitude == U{}, U{} + element.sign_mask(), code);
      break;
  }
  const U mag = bit_cast<U>(y) & kMagnitudeMask;
  return select(mag > kInfBits, U{} + hardware_nan_code(element), code);
}

template <class L>
FP4SCOPE_HD constexpr void mx_quantize(MxOptions options, MinifloatSpec element,
                                       const typename L::F (&x)[32], MxBlock<L>& out) {
  using U = typename L::U;
  using F = typename L::F;
  const MxAmax<L> amax = mx_amax<L>(x);
  out.scale = mx_scale_byte<L>(options, element, false, amax);
  const auto is_nan_block = out.scale == 255u;
  const F inverse = e8m0_inverse<L>(select(is_nan_block, U{} + 127u, out.scale));
  for (int i = 0; i < 32; ++i) {
    const U code = mx_element<L>(options, element, x[i] * inverse, x[i] == F{});
    out.codes[i] = select(is_nan_block, U{}, code);  // the block decodes to NaN whatever they are
  }
}

// x * 2^(127-s) of a finite scale, exact where binary64 does not underflow.
FP4SCOPE_HD constexpr double mx_scaled(double x, std::uint32_t scale) {
  const std::uint64_t field = 1023u + 127u - scale;
  return x * bit_cast<double>(field << 52);
}

// binary64 input is cast directly (spec/scalars.md section 7): scaling by a power of two is exact,
// and rounding to odd keeps one rounding in all.
FP4SCOPE_HD constexpr void mx_quantize(MxOptions options, MinifloatSpec element,
                                       const double (&x)[32], MxBlock<Lane<1>>& out) {
  const MxAmax<Lane<1>> amax = mx_amax(x);
  out.scale = mx_scale_byte<Lane<1>>(options, element, true, amax);
  const bool is_nan_block = out.scale == 255u;
  const std::uint32_t finite_scale = is_nan_block ? 127u : out.scale;
  for (int i = 0; i < 32; ++i) {
    const double scaled = mx_scaled(x[i], finite_scale);
    const std::uint32_t code =
        mx_element<Lane<1>>(options, element, round_to_odd(scaled), x[i] == 0.0);
    out.codes[i] = is_nan_block ? 0u : code;
  }
}

template <class L>
FP4SCOPE_HD constexpr typename L::F mx_decode(MinifloatSpec element, typename L::U code,
                                              typename L::U scale) {
  return decode<L>(element, code) * e8m0_decode<L>(scale);
}

// spec/mx.md section 5 [V]: [7.0, 0.3, -0.3, 5.5, 0...] under floor and ceil.
constexpr bool mx_worked_example_holds() {
  const float x[32] = {7.0f, 0.3f, -0.3f, 5.5f};
  MxBlock<Lane<1>> floor{}, ceil{};
  MxOptions options;
  mx_quantize<Lane<1>>(options, kE2M1, x, floor);
  options.scale_rule = MxScaleRule::kCeil;
  mx_quantize<Lane<1>>(options, kE2M1, x, ceil);
  return floor.scale == 127 && floor.codes[0] == 7 && floor.codes[1] == 1 && floor.codes[2] == 9 &&
         floor.codes[3] == 7 && ceil.scale == 128 && ceil.codes[0] == 6 && ceil.codes[1] == 0 &&
         ceil.codes[2] == 8 && ceil.codes[3] == 5;
}
static_assert(mx_worked_example_holds());

}  // namespace fp4scope
