// hif4.h: HiF4: 64 sign-magnitude S1P2 elements, one E6M2 scale E, 8 level-2 bits (8 elements each)
// and 16 level-3 bits (4 elements each): x = E * 2^(e8 + e16) * (+-q/4).
// Rules: spec/hif4.md sections 2 (Algorithm 1 of arXiv 2602.11287), 2.1, 5 and 6.
// The maximum tree is 4 -> 2 -> 8, thresholds 4 and 2 are inclusive, the level-3 test comes after
// the level-2 shift, and elements are multiplied by the BF16 reciprocal, never divided.
#pragma once
#include "formats/minifloat.h"

namespace fp4scope {

template <class L>
struct Hif4Block {
  typename L::U codes[64];
  typename L::U scale;    // E6M2 byte
  typename L::U level2;   // bit j: elements 8j..8j+7
  typename L::U level3;   // bit k: elements 4k..4k+3
  typename L::U refused;  // 1: holds NaN or Inf (nonfinite=error reports it)
};

inline constexpr float kBf16Seventh = 0.142578125f;  // BF16(1/7) = 0x3E12

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

// Product of a magnitude and the reciprocal at the precision of a contract. "Exact" is rounded to
// odd: every later comparison and rounding to 7 bits or fewer then equals the exact one.
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
template <class L>
FP4SCOPE_HD constexpr typename L::F hif4_scaled(Hif4Options options, typename L::F a,
                                                typename L::F r, typename L::F shift) {
  return hif4_product<L>(options.elem, a, r) * shift;
}

// The value of an element that the algorithm sees: pre-cast first, so that a finite value that
// overflows BF16 counts as Inf.
template <class L>
FP4SCOPE_HD constexpr typename L::F hif4_input(Hif4Options options, typename L::F x) {
  return options.cast == Hif4Cast::kBf16 ? round_to_bf16<L>(x) : x;
}

// 1 where the range policy stores 0xFF for a scale factor instead of its E6M2 code.
template <class L>
FP4SCOPE_HD constexpr typename L::U hif4_scale_is_ff(Hif4Options options, typename L::F sf) {
  using U = typename L::U;
  const U one = U{} + 1u;
  U is_ff{};
  // 1.625 * 2^15 is the midpoint above the largest scale.
  if (options.overflow == Hif4Overflow::kNan) is_ff = select(sf >= 0x1.ap15f, one, is_ff);
  if (options.zero == Hif4Zero::kFf) is_ff = select(sf < 0x1p-48f, one, is_ff);
  return is_ff;
}

template <class L>
FP4SCOPE_HD constexpr void hif4_quantize(Hif4Options options, MinifloatSpec element,
                                         const typename L::F (&x)[64], Hif4Block<L>& out) {
  using U = typename L::U;
  using F = typename L::F;
  const U one = U{} + 1u;

  // Pre-cast and non-finite policy: magnitudes and sign bits of what Algorithm 1 sees.
  F a[64];
  U sign[64];
  U nonfinite{};
  for (int i = 0; i < 64; ++i) {
    U bits = bit_cast<U>(hif4_input<L>(options, x[i]));
    const U input_mag = bits & kMagnitudeMask;
    const auto is_nan = input_mag > kInfBits;
    const auto is_bad = input_mag > kFloatMaxBits;
    nonfinite = select(is_bad, one, nonfinite);
    bits = select(is_nan, U{}, bits);
    if (options.nonfinite == Hif4Nonfinite::kGroupNan) bits = select(is_bad, U{}, bits);
    const U mag = min_of(bits & kMagnitudeMask, U{} + kFloatMaxBits);
    a[i] = bit_cast<F>(mag);
    sign[i] = bits >> 31;
    if (options.neg_zero == NegZero::kDrop) sign[i] = select(mag == U{}, U{}, sign[i]);
  }
  out.refused = nonfinite;

  F v16[16], v8[8];
  F vm{};
  for (int k = 0; k < 16; ++k) {
    v16[k] = max_of(max_of(a[4 * k], a[4 * k + 1]), max_of(a[4 * k + 2], a[4 * k + 3]));
  }
  for (int j = 0; j < 8; ++j) {
    v8[j] = max_of(v16[2 * j], v16[2 * j + 1]);
    vm = max_of(vm, v8[j]);
  }

  F sf{};
  switch (options.search) {
    case Hif4Search::kGreedy:
      sf = round_to_bf16<L>(vm * kBf16Seventh);
      break;
    case Hif4Search::kLevel1:
      sf = round_to_bf16<L>(vm / 1.75f);
      break;
    case Hif4Search::kLevel1_3p5:
      sf = round_to_bf16<L>(vm / 3.5f);
      break;
    case Hif4Search::kMse:
      break;
  }
  out.scale = encode<L>(kE6M2, options.e6m2, sf);  // clamps at both ends
  const F r = e6m2_reciprocal<L>(out.scale);

  F shift[16];  // 2^-(e8 + e16) of each group of four
  out.level2 = U{};
  out.level3 = U{};
  for (int j = 0; j < 8; ++j) {
    U e8{};
    if (options.search == Hif4Search::kGreedy) {
      e8 = select(hif4_product<L>(options.thr, v8[j], r) >= 4.0f, one, U{});
    }
    const F half8 = select(e8 != U{}, F{} + 0.5f, F{} + 1.0f);
    out.level2 = out.level2 | (e8 << j);
    for (int k = 2 * j; k < 2 * j + 2; ++k) {
      U e16{};
      if (options.search == Hif4Search::kGreedy) {
        e16 = select(hif4_product<L>(options.thr, v16[k], r) * half8 >= 2.0f, one, U{});
      }
      out.level3 = out.level3 | (e16 << k);
      shift[k] = half8 * select(e16 != U{}, F{} + 0.5f, F{} + 1.0f);
    }
  }

  // Scale byte 0xFF by policy: the level bits and magnitudes are written as zero, signs stay.
  const auto is_empty = hif4_scale_is_ff<L>(options, sf) != U{};
  for (int i = 0; i < 64; ++i) {
    const F n = hif4_scaled<L>(options, a[i], r, shift[i / 4]);
    const U magnitude = select(is_empty, U{}, encode<L>(element, options.ties, n));
    out.codes[i] = magnitude | (sign[i] << element.magnitude_bits());
  }
  out.level2 = select(is_empty, U{}, out.level2);
  out.level3 = select(is_empty, U{}, out.level3);
  out.scale = select(is_empty, U{} + 255u, out.scale);
  if (options.nonfinite == Hif4Nonfinite::kGroupNan) {
    out.scale = select(nonfinite != U{}, U{} + 255u, out.scale);
  }
}

// Decode scale of element i: E * 2^(e8 + e16), exact; NaN for byte 0xFF.
template <class L>
FP4SCOPE_HD constexpr typename L::F hif4_decode_scale(typename L::U scale, typename L::U level2,
                                                      typename L::U level3, int i) {
  using U = typename L::U;
  using F = typename L::F;
  const U e8 = (level2 >> (i / 8)) & 1u;
  const U e16 = (level3 >> (i / 4)) & 1u;
  const F factor8 = select(e8 != U{}, F{} + 2.0f, F{} + 1.0f);
  const F factor16 = select(e16 != U{}, F{} + 2.0f, F{} + 1.0f);
  return decode<L>(kE6M2, scale) * factor8 * factor16;
}

template <class L>
FP4SCOPE_HD constexpr typename L::F hif4_decode(MinifloatSpec element, typename L::U code,
                                                typename L::F decode_scale) {
  return decode<L>(element, code) * decode_scale;
}

// spec/hif4.md section 7 [V]: 64 times 2.0 gives E = 0xb9, all level bits set, codes 6.
constexpr bool hif4_worked_example_holds() {
  float x[64]{};
  for (float& v : x) v = 2.0f;
  Hif4Block<Lane<1>> block{};
  hif4_quantize<Lane<1>>({}, kE1M2, x, block);
  return block.scale == 0xb9 && block.level2 == 0xff && block.level3 == 0xffff &&
         block.codes[0] == 6 && block.codes[63] == 6;
}
static_assert(hif4_worked_example_holds());

}  // namespace fp4scope
