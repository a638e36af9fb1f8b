// hif4_steps.h: the steps of Algorithm 1 (spec/hif4.md section 2) that every HiF4 codec is put
// together from: input policy, maximum tree, scale, level bits, codes. A shape says what the group
// looks like; the named formats pass it as a literal, user-defined ones at run time.
// Arrays are per lane: element i of every lane is x[i].
#pragma once
#include "formats/minifloat.h"

namespace fp4scope {

inline constexpr float kBf16Seventh = 0.142578125f;  // BF16(1/7) = 0x3E12

struct Hif4Shape {
  MinifloatSpec element = kE1M2;
  MinifloatSpec scale = kE6M2;
  int block = 64;               // elements of a group
  int outer = 8;                // elements per level-2 bit; 0: one level of bits
  int inner = 4;                // elements per bit of the innermost level
  float factor = kBf16Seventh;  // SF = BF16(fl(Vm * factor))

  FP4SCOPE_HD constexpr int levels() const { return outer != 0 ? 2 : 1; }
  FP4SCOPE_HD constexpr int outer_bits() const { return outer != 0 ? block / outer : 0; }
  FP4SCOPE_HD constexpr int inner_bits() const { return block / inner; }
  // A bit is set from 2^(emax + 1 + r) on, r = levels of bits below it: 2 and 4 for HiF4.
  FP4SCOPE_HD constexpr float inner_threshold() const { return pow2(element.max_exponent() + 1); }
  FP4SCOPE_HD constexpr float outer_threshold() const { return pow2(element.max_exponent() + 2); }
  FP4SCOPE_HD constexpr bool has_e6m2() const {
    return scale.exponent_bits == 6 && scale.mantissa_bits == 2 && scale.bias == 48 &&
           !scale.has_subnormals;
  }
  FP4SCOPE_HD constexpr std::uint32_t nan_code() const { return scale.magnitude_mask(); }
};

// HiF4 and HiFX: widths 3 and 5 keep the scales, the factor and the thresholds of width 4.
FP4SCOPE_HD constexpr Hif4Shape hif4_shape(MinifloatSpec element) {
  Hif4Shape shape;
  shape.element = element;
  return shape;
}

// BF16(1/(FMAX * 2^k)) for k levels of bits, which is BF16(1/7) for HiF4. Rounded by way of
// binary32: FMAX has at most 11 significant bits and a midpoint of BF16 has 9, so FMAX times a
// midpoint misses a power of two by 2^-20 or more and the first rounding (2^-24) cannot reach it.
FP4SCOPE_HD constexpr float hif4_factor(MinifloatSpec element, int levels) {
  const float largest = decode<Lane<1>>(element, element.max_finite_code());
  return round_to_bf16<Lane<1>>(1.0f / (largest * pow2(levels)));
}

// BF16 reciprocal of a finite E6M2 code: a table over the fraction, the exponent negated
// (spec/scalars.md section 6; equals BF16(1/value) for all 255 codes).
template <class L>
FP4SCOPE_HD constexpr typename L::F e6m2_reciprocal(typename L::U code) {
  using U = typename L::U;
  using F = typename L::F;
  const U fraction = code & 3u;
  U bits = U{} + 0x3f800000u;
  bits = select(fraction == 1u, U{} + 0x3f4d0000u, bits);
  bits = select(fraction == 2u, U{} + 0x3f2b0000u, bits);
  bits = select(fraction == 3u, U{} + 0x3f120000u, bits);
  return bit_cast<F>(bits + (48u << 23) - ((code >> 2) << 23));
}

// R: BF16(1/value) of a finite scale code; by way of binary32, see hif4_factor().
template <class L>
FP4SCOPE_HD constexpr typename L::F hif4_reciprocal(Hif4Shape shape, typename L::U code) {
  using F = typename L::F;
  if (shape.has_e6m2()) return e6m2_reciprocal<L>(code);
  return round_to_bf16<L>((F{} + 1.0f) / decode<L>(shape.scale, code));
}

// Product of a magnitude and the reciprocal at the precision of a contract. "Exact" is rounded to
// odd: every later comparison and rounding to 22 bits or fewer then equals the exact one.
template <class L>
FP4SCOPE_HD constexpr typename L::F hif4_product(Hif4Product precision, typename L::F a,
                                                 typename L::F r) {
  switch (precision) {
    case Hif4Product::kExact:
      return multiply_round_to_odd<L>(a, r);
    case Hif4Product::kFp32:
      return a * r;
    case Hif4Product::kBf16:
      return round_to_bf16<L>(a * r);
  }
  return a;
}

// The normalised element that is rounded: N(a * R) times the shift 2^-(e8+e16), which is exact.
// Stochastic rounding takes a binary32 number (spec/scalars.md 2.3): elem=exact is then fp32.
template <class L>
FP4SCOPE_HD constexpr typename L::F hif4_scaled(Hif4Options options, typename L::F a,
                                                typename L::F r, typename L::F shift) {
  const bool narrows = options.ties == Rounding::kStochastic && options.elem == Hif4Product::kExact;
  return hif4_product<L>(narrows ? Hif4Product::kFp32 : options.elem, a, r) * shift;
}

// The value of an element that the algorithm sees: pre-cast first, so that a finite value that
// overflows BF16 counts as Inf.
template <class L>
FP4SCOPE_HD constexpr typename L::F hif4_input(Hif4Options options, typename L::F x) {
  return options.cast == Hif4Cast::kBf16 ? round_to_bf16<L>(x) : x;
}

// Pre-cast and non-finite policy: magnitudes and sign bits (bit 31) of what Algorithm 1 sees.
// Returns 1 where one of the n elements is NaN or Inf. nonfinite=element has the codes of saturate;
// its NaN elements are put back into the decoded values by the caller
// (Recipe::keeps_nan_elements).
template <class L>
FP4SCOPE_HD constexpr typename L::U hif4_magnitudes(Hif4Options options, int n,
                                                    const typename L::F* x, typename L::F* a,
                                                    typename L::U* sign) {
  using U = typename L::U;
  using F = typename L::F;
  const U one = U{} + 1u;
  U nonfinite{};
  for (int i = 0; i < n; ++i) {
    U bits = bit_cast<U>(hif4_input<L>(options, x[i]));
    const U input_mag = bits & kMagnitudeMask;
    const auto is_nan = input_mag > kInfBits;
    const auto is_bad = input_mag > kFloatMaxBits;
    nonfinite = select(is_bad, one, nonfinite);
    bits = select(is_nan, U{}, bits);
    if (options.nonfinite == Hif4Nonfinite::kGroupNan) bits = select(is_bad, U{}, bits);
    const U mag = min_of(bits & kMagnitudeMask, U{} + kFloatMaxBits);
    a[i] = bit_cast<F>(mag);
    sign[i] = bits & kSignBit;
    if (options.neg_zero == NegZero::kDrop) sign[i] = select(mag == U{}, U{}, sign[i]);
  }
  return nonfinite;
}

// Maxima of groups of `size` magnitudes.
template <class L>
FP4SCOPE_HD constexpr void hif4_maxima(int groups, int size, const typename L::F* a,
                                       typename L::F* maxima) {
  for (int k = 0; k < groups; ++k) {
    typename L::F m = a[size * k];
    for (int i = 1; i < size; ++i) m = max_of(m, a[size * k + i]);
    maxima[k] = m;
  }
}

// 1 where the range policy stores the NaN code for a scale factor: from the midpoint above the
// largest scale on (1.625 * 2^15 for E6M2), and below the smallest positive one.
template <class L>
FP4SCOPE_HD constexpr typename L::U hif4_scale_is_nan(Hif4Options options, Hif4Shape shape,
                                                      typename L::F sf) {
  using U = typename L::U;
  const U one = U{} + 1u;
  U is_nan{};
  if (options.overflow == Hif4Overflow::kNan) {
    const std::uint32_t top = shape.scale.max_finite_code();
    const float largest = decode<Lane<1>>(shape.scale, top);
    const float below = decode<Lane<1>>(shape.scale, top - 1u);
    is_nan = select(sf >= largest + (largest - below) * 0.5f, one, is_nan);
  }
  if (options.zero == Hif4Zero::kFf) {
    const std::uint32_t lowest = shape.scale.has_subnormals ? 1u : 0u;
    is_nan = select(sf < decode<Lane<1>>(shape.scale, lowest), one, is_nan);
  }
  return is_nan;
}

template <class L>
struct Hif4Scale {
  typename L::U code;    // finite; the NaN code by policy is put in at the end
  typename L::F r;       // its BF16 reciprocal
  typename L::U is_nan;  // 1: the range policy stores the NaN code
};

// SF of Algorithm 1 (also the start of search=mse), or of the two level-1 searches; then E, clamped
// at both ends to what the scale can express except zero.
template <class L>
FP4SCOPE_HD constexpr Hif4Scale<L> hif4_scale(Hif4Options options, Hif4Shape shape,
                                              typename L::F vm) {
  using U = typename L::U;
  typename L::F sf = vm * shape.factor;
  if (options.search == Hif4Search::kLevel1) sf = vm / 1.75f;
  if (options.search == Hif4Search::kLevel1_3p5) sf = vm / 3.5f;
  sf = round_to_bf16<L>(sf);
  Hif4Scale<L> scale{};
  const std::uint32_t lowest = shape.scale.has_subnormals ? 1u : 0u;
  scale.code = max_of(encode<L>(shape.scale, options.e6m2, sf), U{} + lowest);
  scale.r = hif4_reciprocal<L>(shape, scale.code);
  scale.is_nan = hif4_scale_is_nan<L>(options, shape, sf);
  return scale;
}

// Level bits of Algorithm 1 from the maxima of the two levels, and 2^-(sum of bits) for each of the
// innermost groups. The inner test comes after the outer shift.
template <class L>
FP4SCOPE_HD constexpr void hif4_level_bits(Hif4Options options, Hif4Shape shape, typename L::F r,
                                           const typename L::F* outer_max,
                                           const typename L::F* inner_max, typename L::U* outer,
                                           typename L::U* inner, typename L::F* shift) {
  using U = typename L::U;
  using F = typename L::F;
  const U one = U{} + 1u;
  const bool is_greedy = options.search == Hif4Search::kGreedy;
  for (int j = 0; j < shape.outer_bits(); ++j) {
    outer[j] = U{};
    if (is_greedy) {
      const F p = hif4_product<L>(options.thr, outer_max[j], r);
      outer[j] = select(p >= shape.outer_threshold(), one, U{});
    }
  }
  for (int k = 0; k < shape.inner_bits(); ++k) {
    F half = F{} + 1.0f;
    if (shape.outer != 0) {
      half = select(outer[k * shape.inner / shape.outer] != U{}, F{} + 0.5f, F{} + 1.0f);
    }
    inner[k] = U{};
    if (is_greedy) {
      const F p = hif4_product<L>(options.thr, inner_max[k], r) * half;
      inner[k] = select(p >= shape.inner_threshold(), one, U{});
    }
    shift[k] = half * select(inner[k] != U{}, F{} + 0.5f, F{} + 1.0f);
  }
}

// Codes of `n` elements, `size` to a shift. Where the scale is NaN by policy the magnitudes are
// written as zero and the signs stay. `random` holds the random bytes of ties = kStochastic and is
// null otherwise.
template <class L>
FP4SCOPE_HD constexpr void hif4_codes(Hif4Options options, MinifloatSpec element, int n, int size,
                                      const Hif4Scale<L>& scale, const typename L::F* a,
                                      const typename L::U* sign, const typename L::F* shift,
                                      const typename L::U* random, typename L::U* codes) {
  using U = typename L::U;
  using F = typename L::F;
  for (int i = 0; i < n; ++i) {
    U bits = bit_cast<U>(hif4_scaled<L>(options, a[i], scale.r, shift[i / size]));
    bits = select(scale.is_nan != U{}, U{}, bits) | sign[i];
    codes[i] =
        encode<L>(element, options.ties, bit_cast<F>(bits), random != nullptr ? random[i] : U{});
  }
}

}  // namespace fp4scope
