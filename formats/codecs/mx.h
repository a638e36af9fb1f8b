// mx.h: MXFP4, MXFP6, MXFP8, MXINT8 and other elements: n elements share one E8M0 byte s, value =
// code * 2^(s-127). Rules: spec/mx.md sections 2 (pipeline), 2.2 (options), 3 and 4 (contracts);
// the byte itself is in mx_scale.h. x[n] -> codes[n] and the scale byte; Lane<W> holds W blocks.
// n, the element and the options are arguments; literals of named formats fold.
#pragma once
#include "formats/amax.h"
#include "formats/codecs/mx_scale.h"

namespace fp4scope {

// kSize: elements of the block, or the largest number that a run-time n may have.
template <class L, int kSize = 32>
struct MxBlock {
  typename L::U codes[kSize];
  typename L::U scale;
  typename L::U refusal;  // MxRefusal of the first element or rule that refuses; 0: none
};

// --- before everything: the type that the source works in (spec/mx.md 2, step 1) ---

FP4SCOPE_HD constexpr bool mx_narrows(const MxOptions& o) {
  return o.narrow_bf16 || o.dtype != DType16::kF32;
}
template <class L>
FP4SCOPE_HD constexpr typename L::F mx_narrow(const MxOptions& o, typename L::F v) {
  if (o.narrow_bf16) v = round_to_bf16<L>(v);
  return round_to_dtype<L>(o.dtype, v);
}

// Integer maximum of magnitude bits, so exact and free of order.
template <class L>
FP4SCOPE_HD constexpr MxAmax<L> mx_amax(const typename L::F* x, int n) {
  using U = typename L::U;
  U amax{}, nan{};
  for (int i = 0; i < n; ++i) {
    const U bits = bit_cast<U>(x[i]);
    nan = select((bits & kMagnitudeMask) > kInfBits, U{} + 1u, nan);
    amax = max_of(amax, magnitude_without_nan(bits));
  }
  return mx_amax_of_bits<L>(amax, nan);
}
// The same of a binary64 block (one at a time).
FP4SCOPE_HD constexpr MxAmax<Lane<1>> mx_amax(const double* x, int n) {
  std::uint64_t amax = 0;
  std::uint32_t nan = 0;
  for (int i = 0; i < n; ++i) {
    const std::uint64_t mag = bit_cast<std::uint64_t>(x[i]) & 0x7fffffffffffffffull;
    if (mag > 0x7ff0000000000000ull) {
      nan = 1;
    } else if (mag > amax) {
      amax = mag;
    }
  }
  return mx_amax_of_bits(amax, nan);
}
// The maximum of two parts of one block (the rows of a 2-D block).
template <class L>
FP4SCOPE_HD constexpr MxAmax<L> mx_merge(const MxAmax<L>& a, const MxAmax<L>& b) {
  return mx_amax_of_bits<L>(max_of(a.magnitude, b.magnitude), a.is_nan | b.is_nan);
}

// --- one element ---

// Largest integer not above v, 0 <= v < 2^22.
template <class L>
FP4SCOPE_HD constexpr typename L::F mx_floor(typename L::F v) {
  using F = typename L::F;
  const F nearest = (v + 0x1p23f) - 0x1p23f;
  return nearest - select(nearest > v, F{} + 1.0f, F{});
}

// microxcaling's torch path (mx/elemwise_ops.py; spec/mx.md 4 "Torch path detail"): the private
// exponent from a binary32 logarithm, q = y in steps, floor(q + 0.5) in binary32.
template <class L>
FP4SCOPE_HD constexpr typename L::F mx_microx_torch(const MxPlan& p, typename L::F y) {
  using U = typename L::U;
  using F = typename L::F;
  const int m = p.element.mantissa_bits;
  const U magnitude = bit_cast<U>(y) & kMagnitudeMask;
  const U least =
      U{} + static_cast<std::uint32_t>(static_cast<int>(kLog2Offset) + p.element.min_exponent());
  U exponent = log2_rounded<L>(Log2Rounding::kFloor, log2_parts<L>(magnitude));
  // Larger ones saturate whatever they are.
  exponent = min_of(max_of(least, exponent), U{} + (kLog2Offset + 64u));
  const U step_field = exponent - (kLog2Offset - 127u) - static_cast<std::uint32_t>(m);
  const F step = bit_cast<F>(step_field << 23), per_step = bit_cast<F>((254u - step_field) << 23);
  const F q = fmin_bound(bit_cast<F>(magnitude) * per_step, F{} + 0x1p20f);
  F rounded = mx_floor<L>(p.options.ties == Rounding::kTrunc ? q : q + 0.5f);
  if (p.options.ties == Rounding::kEven) {
    // Down again where q - 0.5 is an even integer.
    const F half = (q - 0.5f) * 0.5f;
    const F tie = select(mx_floor<L>(max_of(half, F{})) == half, F{} + 1.0f, F{});
    rounded = rounded - tie;
  }
  const F value = fmin_bound(rounded * step, F{} + p.largest);
  return bit_cast<F>(bit_cast<U>(value) | (bit_cast<U>(y) & kSignBit));
}

// Code of a NaN element; `bits` carries its sign.
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_nan_code(const MxPlan& p, typename L::U bits) {
  using U = typename L::U;
  const MinifloatSpec element = p.element;
  // The largest positive code for formats without NaN, 0x7F for E4M3 and E5M2.
  std::uint32_t code = hardware_nan_code(element);
  const bool has_nan = element.special != Special::kNone;
  switch (p.options.nan_code) {
    case MxNanCode::kPositive:
      break;
    case MxNanCode::kSigned:
      return element.is_twos_complement() ? U{} + code : code | (bits >> 31) * element.sign_mask();
    case MxNanCode::kZero:
      code = 0;
      break;
    case MxNanCode::kOwn:
      if (!has_nan) code = 0;
      [[fallthrough]];
    case MxNanCode::kHostCuda:
      if (element.special == Special::kIeee) code = element.max_finite_code() + 3u;
      break;
  }
  if (p.options.nan == MxNan::kPass) code = 0;
  return U{} + code;
}

// The sign of a zero result. `is_zero`: the input was +-0.
template <class L, class M>
FP4SCOPE_HD constexpr typename L::U mx_zero_sign(const MxPlan& p, typename L::U code, M is_zero) {
  using U = typename L::U;
  const U magnitude = code & p.element.magnitude_mask();
  if (p.element.is_twos_complement()) return code;
  switch (p.options.zero_sign) {
    case ZeroSign::kKeep:
    case ZeroSign::kRefuse:
      break;
    case ZeroSign::kDropInput:
      return select(is_zero, magnitude, code);
    case ZeroSign::kDrop:
      return select(magnitude == U{}, U{}, code);
    case ZeroSign::kSet:
      return select(is_zero, U{} + p.element.sign_mask(), code);
  }
  return code;
}

// One scaled element y = x * inverse to its code, for plain contracts (mx_is_plain).
template <class L, class M>
FP4SCOPE_HD constexpr typename L::U mx_element(const MxPlan& p, typename L::F y, M is_zero,
                                               typename L::U nan_code) {
  using U = typename L::U;
  const U code = mx_zero_sign<L>(p, encode<L>(p.element, p.options.ties, y), is_zero);
  return select((bit_cast<U>(y) & kMagnitudeMask) > kInfBits, nan_code, code);
}

// One scaled element of any contract. `x_bits` carries the sign of the input.
template <class L>
FP4SCOPE_HD constexpr typename L::U mx_any_element(const MxPlan& p, const MxScale<L>& s,
                                                   typename L::F y, typename L::U x_bits,
                                                   typename L::U is_zero, typename L::U random_byte,
                                                   bool stochastic, typename L::U& refusal) {
  using U = typename L::U;
  using F = typename L::F;
  const MxOptions& o = p.options;
  const MinifloatSpec element = p.element;
  const U magnitude = bit_cast<U>(y) & kMagnitudeMask;
  const U is_nan = mx_less<U>(U{} + kInfBits, magnitude);
  if (o.ftz) y = flush_subnormal<L>(y);
  if (!o.triton_sticky) {
    // Below 1 everything under 2^-23 is cut (spec/scalars.md 2, older Triton): 127 - field bits of
    // the significand, and all of it from 2^-23 down.
    const U field = min_of(magnitude >> 23, U{} + 127u);
    const U drop = min_of(127u - field, U{} + 31u);
    const U kept = (magnitude >> drop) << drop;
    y = bit_cast<F>(select(field < 104u, U{}, kept) | (bit_cast<U>(y) & kSignBit));
  }
  if (o.quirk == MxQuirk::kMicroxTorch) y = mx_microx_torch<L>(p, y);
  U code = encode<L>(element, stochastic ? Rounding::kStochastic : o.ties, y, random_byte);
  if (o.quirk == MxQuirk::kGgml && !element.is_twos_complement()) {
    // Codes from 2^(255 - byte) on are infinite in binary32.
    const auto limit =
        ((255u + static_cast<std::uint32_t>(element.bias) - s.byte) << element.mantissa_bits) - 1u;
    const U sign = code & element.sign_mask();
    code = min_of(code & element.magnitude_mask(), limit) | sign;
  }
  if (o.quirk == MxQuirk::kUniversal && element.special == Special::kIeee && !stochastic) {
    const U infinity = (element.max_finite_code() + 1u) | (code & element.sign_mask());
    code = select(magnitude > bit_cast<std::uint32_t>(p.largest), infinity, code);
  }
  code = mx_zero_sign<L>(p, code, is_zero != U{});
  const U scaled = U{} + static_cast<std::uint32_t>(MxMode::kScaled);
  if (o.zero_sign == ZeroSign::kRefuse && !element.is_twos_complement()) {
    const U why = select(code == element.sign_mask(),
                         U{} + static_cast<std::uint32_t>(MxRefusal::kZeroSign), U{});
    refusal = max_of(refusal, select(s.mode == scaled, why, U{}));
  }
  code = select(is_nan != U{}, mx_nan_code<L>(p, x_bits), code);
  const std::uint32_t zero_with_sign = element.is_twos_complement() ? 0u : element.sign_mask();
  code = select(s.mode == static_cast<std::uint32_t>(MxMode::kErased), U{} + zero_with_sign, code);
  return select(s.mode == static_cast<std::uint32_t>(MxMode::kNanBlock), U{}, code);
}

// --- one block ---

// Plain contracts. n is kSize.
template <class L, int kSize>
FP4SCOPE_HD constexpr void mx_quantize_plain(const MxPlan& p, const typename L::F (&x)[kSize],
                                             MxBlock<L, kSize>& out) {
  using U = typename L::U;
  using F = typename L::F;
  out.scale = mx_plain_byte<L>(p, mx_amax<L>(x, kSize));
  out.refusal = U{};
  const auto is_nan_block = out.scale == 255u;
  const F inverse = e8m0_inverse<L>(select(is_nan_block, U{} + 127u, out.scale));
  const U nan_code = mx_nan_code<L>(p, U{});
  for (int i = 0; i < kSize; ++i) {
    const U code = mx_element<L>(p, x[i] * inverse, x[i] == F{}, nan_code);
    out.codes[i] = select(is_nan_block, U{}, code);  // the block decodes to NaN whatever they are
  }
}

// Any contract. `x` has been through mx_narrow(), `amax` may be that of a larger (2-D) block.
// `random`: a byte per element for stochastic rounding, or null.
template <class L, int kSize>
FP4SCOPE_HD constexpr void mx_quantize_any(const MxPlan& p, int n, const MxAmax<L>& amax,
                                           const typename L::F* x, const std::uint8_t* random,
                                           MxBlock<L, kSize>& out) {
  using U = typename L::U;
  using F = typename L::F;
  const MxScale<L> s = mx_scale<L>(p, false, amax);
  out.scale = s.byte;
  out.refusal = s.refusal;
  const bool stochastic = random != nullptr;
  for (int i = 0; i < n; ++i) {
    U byte{};
    if (stochastic) byte = byte + random[i];
    const F operand = p.options.ftz ? flush_subnormal<L>(x[i]) : x[i];
    out.codes[i] = mx_any_element<L>(p, s, operand * s.inverse, bit_cast<U>(x[i]),
                                     mx_less<U>(bit_cast<U>(x[i]) & kMagnitudeMask, U{} + 1u), byte,
                                     stochastic, out.refusal);
  }
}

// x * 2^(127-s) of a finite scale, exact where binary64 does not underflow.
FP4SCOPE_HD constexpr double mx_scaled(double x, std::uint32_t scale) {
  const std::uint64_t field = 1023u + 127u - scale;
  return x * bit_cast<double>(field << 52);
}

// binary64 input is cast directly (spec/scalars.md section 7): scaling by a power of two is exact,
// and rounding to odd keeps one rounding in all. Stochastic rounding, which is defined on binary32,
// takes the nearest one. Not for recipes that round to binary32 first.
template <int kSize>
FP4SCOPE_HD constexpr void mx_quantize_any(const MxPlan& p, int n, const MxAmax<Lane<1>>& amax,
                                           const double* x, const std::uint8_t* random,
                                           MxBlock<Lane<1>, kSize>& out) {
  using L = Lane<1>;
  const MxScale<L> s = mx_scale<L>(p, true, amax);
  out.scale = s.byte;
  out.refusal = s.refusal;
  const bool is_zeroed = s.inverse == 0.0f;
  for (int i = 0; i < n; ++i) {
    const double scaled = is_zeroed ? x[i] * 0.0 : mx_scaled(x[i], s.byte < 255u ? s.byte : 127u);
    const std::uint32_t sign =
        static_cast<std::uint32_t>(bit_cast<std::uint64_t>(x[i]) >> 32) & kSignBit;
    const bool stochastic = random != nullptr;
    const float y = stochastic ? static_cast<float>(scaled) : round_to_odd(scaled);
    out.codes[i] =
        mx_any_element<L>(p, s, y, sign, x[i] == 0.0 ? 1u : 0u,
                          stochastic ? std::uint32_t{random[i]} : 0u, stochastic, out.refusal);
  }
}

// A whole block of 32 under any recipe; what device code and tests call.
template <class L>
FP4SCOPE_HD constexpr void mx_quantize(const MxOptions& options, MinifloatSpec element,
                                       const typename L::F (&x)[32], MxBlock<L>& out) {
  const MxPlan p = mx_plan(options, element);
  if (mx_is_plain(options)) {
    mx_quantize_plain<L, 32>(p, x, out);
    return;
  }
  typename L::F narrowed[32] = {};
  for (int i = 0; i < 32; ++i) narrowed[i] = mx_narrow<L>(options, x[i]);
  mx_quantize_any<L, 32>(p, 32, mx_amax<L>(narrowed, 32), narrowed, nullptr, out);
}
FP4SCOPE_HD constexpr void mx_quantize(const MxOptions& options, MinifloatSpec element,
                                       const double (&x)[32], MxBlock<Lane<1>>& out) {
  if (options.rounds_binary64_first()) {
    float rounded[32] = {};
    for (int i = 0; i < 32; ++i) rounded[i] = static_cast<float>(x[i]);
    mx_quantize<Lane<1>>(options, element, rounded, out);
    return;
  }
  mx_quantize_any<32>(mx_plan(options, element), 32, mx_amax(x, 32), x, nullptr, out);
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
