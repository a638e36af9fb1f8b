// mx_scale.h: the scale byte of an MX block from its maximum: every scale rule and its published
// arithmetic. Rules: spec/mx.md sections 2.1, 2.2 and 3, spec/more.md 4.1 and 4.2. Lane<W> holds W
// blocks.
#pragma once
#include "formats/codecs/mx_log2.h"
#include "formats/e8m0.h"
#include "formats/minifloat.h"
#include "formats/reciprocal.h"

namespace fp4scope {

inline constexpr int kMxMaxBlock = 256;  // elements of the largest block

// The maximum of a block; NaN is left out of it and reported.
template <class L>
struct MxAmax {
  typename L::U
      exponent;  // binary32 exponent field + kMxExponentOffset; binary64 may exceed 0..254
  typename L::U fraction;   // 23 bits; of binary64 the upper bits with the rest as a sticky bit
  typename L::U magnitude;  // binary32 bits; of binary64 only whether it is zero
  typename L::U is_nan;     // 1: there is a NaN
  typename L::U is_inf;
};
inline constexpr std::uint32_t kMxExponentOffset = 4096;  // keeps every exponent nonnegative

template <class L>
FP4SCOPE_HD constexpr MxAmax<L> mx_amax_of_bits(typename L::U magnitude, typename L::U is_nan) {
  using U = typename L::U;
  return {(magnitude >> 23) + kMxExponentOffset, magnitude & 0x007fffffu, magnitude, is_nan,
          select(magnitude == kInfBits, U{} + 1u, U{})};
}
FP4SCOPE_HD constexpr MxAmax<Lane<1>> mx_amax_of_bits(std::uint64_t magnitude,
                                                      std::uint32_t is_nan) {
  // 1023 and 127 are the two biases. Subnormals are far below every scale.
  const auto exponent =
      static_cast<std::uint32_t>(magnitude >> 52) + kMxExponentOffset + 127u - 1023u;
  const std::uint64_t fraction = magnitude & 0xfffffffffffffull;
  const std::uint32_t sticky = (fraction & 0x1fffffffull) != 0 ? 1u : 0u;
  return {exponent, static_cast<std::uint32_t>(fraction >> 29) | sticky, magnitude != 0 ? 1u : 0u,
          is_nan, magnitude == 0x7ff0000000000000ull ? 1u : 0u};
}

// Everything about a recipe that is the same for all blocks.
struct MxPlan {
  MxOptions options;
  MinifloatSpec element;
  std::uint32_t emax = 0;       // exponent of the element's largest power of two
  float largest = 0;            // largest element
  float divisor = 1;            // what the block maximum is divided by in rules with a quotient
  float factor = 1;             // ... or multiplied with
  std::uint32_t even_bits = 0;  // fraction bits at which scale-rule=even rounds
};
FP4SCOPE_HD constexpr MxPlan mx_plan(const MxOptions& options, MinifloatSpec element,
                                     const std::uint8_t* rcp_table = nullptr) {
  MxPlan p{options, element};
  p.emax = static_cast<std::uint32_t>(element.max_exponent());
  // universal takes the exponent of 128 for integers, not that of the largest one (spec/mx.md 3).
  if (options.quirk == MxQuirk::kUniversal && element.is_twos_complement()) ++p.emax;
  p.largest = decode<Lane<1>>(element, element.max_finite_code());
  p.divisor = p.largest;
  if (options.scale_rule == MxScaleRule::kFieldUp) p.divisor = static_cast<float>(options.divisor);
  if (options.scale_rule == MxScaleRule::kDown6) p.divisor = 6.0f;
  p.factor = options.scale_arith == MxScaleArith::kRcp ? rcp_approx<Lane<1>>(p.divisor, rcp_table)
                                                       : 1.0f / p.divisor;
  p.even_bits = static_cast<std::uint32_t>(
      options.even_width == EvenWidth::kE2m1 ? kE2M1.mantissa_bits : element.mantissa_bits);
  return p;
}

// Why a block is refused; 0 is no refusal.
enum class MxRefusal : std::uint32_t { kNo, kNan, kInf, kZeroBlock, kSmallScale, kZeroSign };

// How the elements of a block become codes.
enum class MxMode : std::uint32_t {
  kScaled,   // y = x * inverse
  kErased,   // every code is zero with sign
  kNanBlock  // the scale is NaN (or the codes are +0 whatever the elements are)
};
template <class L>
struct MxScale {
  typename L::U byte;
  typename L::U mode;     // MxMode
  typename L::U refusal;  // MxRefusal
  typename L::F inverse;  // 2^(127 - byte), or what the contract has instead
};

// 1 where a < b, both below 2^31. Integers instead of masks: GCC 12 has no way to keep a 512-bit
// mask that is used twice.
template <class U>
FP4SCOPE_HD constexpr U mx_less(U a, U b) {
  return (a - b) >> 31;
}

// Rules on the exponent field and fraction of amax: E + kMxExponentOffset before emax is taken off.
// Binary64 has no field that overflows.
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_field_exponent(const MxPlan& p, const MxAmax<L>& amax) {
  using U = typename L::U;
  const U one = U{} + 1u;
  switch (p.options.scale_rule) {
    case MxScaleRule::kCeil:
      return amax.exponent + select(amax.fraction != U{}, one, U{});
    case MxScaleRule::kEven:
      // The significand is rounded half up.
      return amax.exponent + ((amax.fraction + (1u << (22u - p.even_bits))) >> 23);
    default:  // floor, triton-down
      return amax.exponent;
  }
}

// fl(amax / divisor) or fl(amax * factor).
template <class L>
FP4SCOPE_HD constexpr typename L::F mx_quotient(const MxPlan& p, typename L::U magnitude) {
  const auto amax = bit_cast<typename L::F>(magnitude);
  const auto q = p.options.scale_arith == MxScaleArith::kDiv ? amax / p.divisor : amax * p.factor;
  return p.options.ftz ? flush_subnormal<L>(q) : q;
}

// A logarithm (+ kLog2Offset) to a byte, between the bytes of 2^-127 and 2^128.
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_byte_of_log2(typename L::U exponent, std::uint32_t emax) {
  using U = typename L::U;
  const U bottom = U{} + (kLog2Offset - 127u + emax);
  return min_of(max_of(bottom, exponent) - bottom, U{} + 255u);
}

// Rules on a binary32 quotient or logarithm, each as its source computes it. Zero amax gives 0.
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_binary32_byte(const MxPlan& p, typename L::U magnitude) {
  using U = typename L::U;
  using F = typename L::F;
  const U one = U{} + 1u;
  switch (p.options.scale_rule) {
    case MxScaleRule::kFloor:
      return mx_byte_of_log2<L>(log2_rounded<L>(Log2Rounding::kFloor, log2_parts<L>(magnitude)),
                                p.emax);
    case MxScaleRule::kRintLog2:
      return mx_byte_of_log2<L>(log2_rounded<L>(Log2Rounding::kEven, log2_parts<L>(magnitude)),
                                p.emax);
    case MxScaleRule::kMlxCpu: {
      const U q = bit_cast<U>(round_to_bf16<L>(mx_quotient<L>(p, magnitude)));
      const U byte =
          mx_byte_of_log2<L>(log2_rounded<L>(Log2Rounding::kBf16Even, log2_parts<L>(q)), 0);
      return min_of(byte, U{} + 254u);
    }
    default:
      break;
  }
  const F quotient = mx_quotient<L>(p, magnitude);
  const U q = bit_cast<U>(quotient);
  switch (p.options.scale_rule) {
    case MxScaleRule::kCeilLog2:
      return mx_byte_of_log2<L>(log2_rounded<L>(Log2Rounding::kCeil, log2_parts<L>(q)), 0);
    case MxScaleRule::kRoundLog2: {
      const U byte = mx_byte_of_log2<L>(log2_rounded<L>(Log2Rounding::kAway, log2_parts<L>(q)), 0);
      return min_of(byte, U{} + 254u);
    }
    case MxScaleRule::kFieldUp:
      return (q >> 23) + select((q & 0x007fffffu) != U{}, one, U{});
    case MxScaleRule::kTritonUp:
      return (q + 0x007fffffu) >> 23;
    case MxScaleRule::kDown6:
      return q >> 23;
    default:  // rceil
      return e8m0_encode<L>(E8m0Rule::kUpNoSat, quotient);
  }
}

// scale-rule=even on the bits of a binary16 maximum.
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_even_byte_f16(const MxPlan& p, typename L::U magnitude) {
  using U = typename L::U;
  // Exact: the elements were rounded to binary16 before.
  const U word = encode<L>(kFP16, Rounding::kEven, bit_cast<typename L::F>(magnitude));
  const U field = (word + (1u << (9u - p.even_bits))) >> 10;
  const U exponent = field + (127u - 15u);
  const U byte = select(exponent < p.emax, U{}, exponent - p.emax);
  return select(field == U{}, U{}, select(field > 30u, U{} + 255u, byte));
}

// Rules on a quotient, exact: the smallest 2^j >= amax / divisor (down6: the largest 2^j <= it),
// from the significands. For scale-arith=field, and for binary64 (spec/mx.md section 2).
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_exact_quotient_byte(const MxPlan& p, typename L::U exponent,
                                                           typename L::U fraction) {
  using U = typename L::U;
  const U one = U{} + 1u;
  const auto divisor = bit_cast<std::uint32_t>(p.divisor);
  const std::uint32_t divisor_fraction = divisor & 0x007fffffu;
  const U bottom = U{} + (kMxExponentOffset + (divisor >> 23) - 127u);
  const U raised = p.options.scale_rule == MxScaleRule::kDown6
                       ? exponent - select(fraction < divisor_fraction, one, U{})
                       : exponent + select(fraction > divisor_fraction, one, U{});
  const U byte = min_of(max_of(bottom, raised) - bottom, U{} + 255u);
  const bool has_field = p.options.scale_rule == MxScaleRule::kFieldUp ||
                         p.options.scale_rule == MxScaleRule::kTritonUp;
  return has_field ? max_of(byte, one) : byte;  // exponent field 0 with a fraction becomes 1
}

// The byte of a finite amax, before what zero, infinite and NaN maxima get. 255: above 2^127.
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_finite_byte(const MxPlan& p, bool is_binary64,
                                                   const MxAmax<L>& amax) {
  using U = typename L::U;
  const MxOptions& o = p.options;
  if (is_binary64 && (o.scale_rule == MxScaleRule::kRceil || o.scale_arith != MxScaleArith::kField))
    return mx_exact_quotient_byte<L>(p, amax.exponent, amax.fraction);
  if (o.scale_arith != MxScaleArith::kField) return mx_binary32_byte<L>(p, amax.magnitude);
  if (o.scale_rule == MxScaleRule::kRceil) {
    const Log2Parts<L> parts = log2_parts<L>(amax.magnitude);
    return mx_exact_quotient_byte<L>(p, parts.exponent + (kMxExponentOffset + 127u - kLog2Offset),
                                     parts.fraction);
  }
  if (o.scale_rule == MxScaleRule::kEven && o.dtype == DType16::kF16)
    return mx_even_byte_f16<L>(p, amax.magnitude);
  const U raised = mx_field_exponent<L>(p, amax);
  const U bottom = U{} + (kMxExponentOffset + p.emax);
  U byte = min_of(max_of(bottom, raised) - bottom, U{} + 255u);
  // In binary32 a carry into exponent field 255 is no number any more.
  if (o.scale_rule == MxScaleRule::kEven && !is_binary64) {
    byte = select(raised > kMxExponentOffset + 254u, U{} + 255u, byte);
  }
  return byte;
}

// What a scale above 2^127 becomes.
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_topped(const MxPlan& p, typename L::U byte) {
  return select(byte > 254u, typename L::U{} + (p.options.top == MxTop::kNan ? 255u : 254u), byte);
}

// The scales of contracts without refusals, flushing and quirks: torchao-*, ocp-floor-rne,
// te-rceil and their key variants. The short way through mx_scale() below.
FP4SCOPE_HD constexpr bool mx_is_plain(const MxOptions& o) {
  return (o.nan == MxNan::kPropagate || o.nan == MxNan::kDrop) &&
         o.nan_code != MxNanCode::kSigned && (o.inf == MxInf::kNan || o.inf == MxInf::k254) &&
         o.zero_block == 0 && o.byte0 == MxByte0::kExact && o.zero_sign != ZeroSign::kRefuse &&
         !o.flush && !o.ftz && o.amax_floor == 0 && !o.narrow_bf16 && o.dtype == DType16::kF32 &&
         o.triton_sticky && o.quirk == MxQuirk::kNone && !o.is_2d &&
         (o.scale_arith == MxScaleArith::kField ||
          (o.scale_rule == MxScaleRule::kRceil && o.scale_arith != MxScaleArith::kLog2));
}
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_plain_byte(const MxPlan& p, const MxAmax<L>& amax) {
  using U = typename L::U;
  U byte = mx_topped<L>(p, mx_finite_byte<L>(p, false, amax));
  const std::uint32_t infinite = p.options.inf == MxInf::kNan ? 255u : 254u;
  byte = select(amax.is_inf != U{}, U{} + infinite, byte);
  if (p.options.nan == MxNan::kPropagate) {
    byte = select(amax.is_nan != U{}, U{} + 255u, byte);
  }
  return byte;
}

// What an infinite maximum does (spec/mx.md 2.2, `inf`).
template <class L>
FP4SCOPE_HD constexpr void mx_apply_inf(const MxPlan& p, typename L::U inf, MxScale<L>& s) {
  using U = typename L::U;
  const auto is_inf = inf != U{};
  switch (p.options.inf) {
    case MxInf::kNan:
      s.byte = select(is_inf, U{} + 255u, s.byte);
      break;
    case MxInf::k254:
      s.byte = select(is_inf, U{} + 254u, s.byte);
      break;
    case MxInf::kClamp: {
      const U largest = mx_finite_byte<L>(p, false, mx_amax_of_bits<L>(U{} + kFloatMaxBits, U{}));
      s.byte = select(is_inf, mx_topped<L>(p, largest), s.byte);
      break;
    }
    case MxInf::kErase:
      s.mode = select(is_inf, U{} + static_cast<std::uint32_t>(MxMode::kErased), s.mode);
      [[fallthrough]];
    case MxInf::kByte0:
      s.byte = select(is_inf, U{}, s.byte);
      break;
    case MxInf::kRefuse:
      s.refusal = select(is_inf, U{} + static_cast<std::uint32_t>(MxRefusal::kInf), s.refusal);
      break;
  }
}
// What a NaN does (`nan`).
template <class L>
FP4SCOPE_HD constexpr void mx_apply_nan(const MxPlan& p, typename L::U nan, MxScale<L>& s) {
  using U = typename L::U;
  const auto is_nan = nan != U{};
  // A rule that gives the block its byte comes before what the source leaves open about the
  // maximum.
  const MxNan rule = p.options.nan;
  if (rule == MxNan::kPropagate || rule == MxNan::kErase || rule == MxNan::kByte0 ||
      rule == MxNan::k254) {
    s.refusal = s.refusal * (1u - min_of(nan, U{} + 1u));
  }
  switch (rule) {
    case MxNan::kPropagate:
      s.byte = select(is_nan, U{} + 255u, s.byte);
      break;
    case MxNan::k254:
      s.byte = select(is_nan, U{} + 254u, s.byte);
      break;
    case MxNan::kDrop:
    case MxNan::kPass:
      break;
    case MxNan::kErase:
      s.mode = select(is_nan, U{} + static_cast<std::uint32_t>(MxMode::kErased), s.mode);
      [[fallthrough]];
    case MxNan::kByte0:
      s.byte = select(is_nan, U{}, s.byte);
      break;
    case MxNan::kRefuse:
      s.refusal = select(is_nan, U{} + static_cast<std::uint32_t>(MxRefusal::kNan), s.refusal);
      break;
  }
}

// The exponent of the scale before it is bounded, k - emax + kLog2Offset, of the floor rule.
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_unbounded(const MxPlan& p, bool is_binary64,
                                                 const MxAmax<L>& amax) {
  if (is_binary64) return amax.exponent - (kMxExponentOffset + 127u - kLog2Offset) - p.emax;
  const Log2Parts<L> parts = log2_parts<L>(amax.magnitude);
  return (p.options.scale_arith == MxScaleArith::kLog2
              ? log2_rounded<L>(Log2Rounding::kFloor, parts)
              : parts.exponent) -
         p.emax;
}

template <class L>
FP4SCOPE_HD constexpr MxScale<L> mx_scale(const MxPlan& p, bool is_binary64,
                                          const MxAmax<L>& measured) {
  using U = typename L::U;
  using F = typename L::F;
  const MxOptions& o = p.options;
  MxAmax<L> amax = measured;
  if (o.ftz) {
    amax = mx_amax_of_bits<L>(bit_cast<U>(flush_subnormal<L>(bit_cast<F>(measured.magnitude))),
                              measured.is_nan);
  }
  if (o.amax_floor != 0) {
    amax = mx_amax_of_bits<L>(max_of(U{} + o.amax_floor, amax.magnitude), amax.is_nan);
  }
  const U scaled = U{} + static_cast<std::uint32_t>(MxMode::kScaled);
  const U no_codes = U{} + static_cast<std::uint32_t>(MxMode::kNanBlock);
  MxScale<L> s{mx_topped<L>(p, mx_finite_byte<L>(p, is_binary64, amax)), scaled, U{}, F{}};
  const U is_zero = mx_less<U>(amax.magnitude, U{} + 1u);
  U all_zero{};  // 1: every code is +0, and a byte of 255 is not NaN's
  F inverse_below = F{};
  U is_below{};
  if (o.byte0 == MxByte0::kWrap || o.byte0 == MxByte0::kRefuse || o.flush ||
      o.quirk == MxQuirk::kUniversal) {
    const U exponent = mx_unbounded<L>(p, is_binary64, amax);
    is_below = mx_less<U>(exponent, U{} + (kLog2Offset - 127u));
    if (o.byte0 == MxByte0::kWrap) {
      const U wrapped = (exponent + (127u + 2048u - kLog2Offset)) & 255u;
      s.byte = select(is_below != U{}, wrapped, s.byte);
      all_zero = is_below;
    }
    if (o.byte0 == MxByte0::kRefuse) {
      s.refusal =
          select(is_below != U{}, U{} + static_cast<std::uint32_t>(MxRefusal::kSmallScale), U{});
    }
    if (o.flush) {
      const U is_small = mx_less<U>(exponent + p.emax, U{} + (kLog2Offset - 126u));
      all_zero = all_zero | is_small;
    }
    if (o.quirk == MxQuirk::kUniversal) inverse_below = inverse_below + bit_cast<float>(kInfBits);
  }
  if (o.zero_block == kRefuseZeroBlock) {
    s.refusal =
        select(is_zero != U{}, U{} + static_cast<std::uint32_t>(MxRefusal::kZeroBlock), s.refusal);
  } else {
    const std::uint32_t byte = o.zero_block == kZeroBlockEmax ? 127u - p.emax : o.zero_block;
    s.byte = select(is_zero != U{}, U{} + byte, s.byte);
    s.refusal = select(is_zero != U{}, U{}, s.refusal);
    all_zero = select(is_zero != U{}, U{}, all_zero);
    is_below = select(is_zero != U{}, U{}, is_below);
  }
  mx_apply_inf<L>(p, amax.is_inf, s);
  mx_apply_nan<L>(p, amax.is_nan, s);
  s.mode = select(s.byte == 255u, no_codes, s.mode);
  s.mode = select(all_zero != U{}, no_codes, s.mode);
  s.inverse = e8m0_inverse<L>(select(s.byte < 255u, s.byte, U{} + 127u));
  if (o.byte0 == MxByte0::kFlush) {
    s.inverse = select(s.byte == U{}, F{}, s.inverse);
    if (o.quirk == MxQuirk::kFos) s.mode = select(s.byte == U{}, no_codes, s.mode);
  }
  if (o.quirk == MxQuirk::kZeroInverse254) s.inverse = select(s.byte == 254u, F{}, s.inverse);
  if (o.quirk == MxQuirk::kUniversal) {
    s.inverse = select(is_below != U{}, inverse_below, s.inverse);
    s.inverse = select(amax.is_inf != U{}, inverse_below, s.inverse);
  }
  s.inverse = select(s.mode == scaled, s.inverse, F{});
  return s;
}

}  // namespace fp4scope
