// hif4.h: HiF4: 64 sign-magnitude S1P2 elements, one E6M2 scale E, 8 level-2 bits (8 elements each)
// and 16 level-3 bits (4 elements each): x = E * 2^(e8 + e16) * (+-q/4).
// Rules: spec/hif4.md sections 2 (Algorithm 1 of arXiv 2602.11287), 2.1, 5 and 6.
// The maximum tree is 4 -> 2 -> 8, thresholds 4 and 2 are inclusive, the level-3 test comes after
// the level-2 shift, and elements are multiplied by the BF16 reciprocal, never divided.
//
// geometry=64x64 (inferred: only its shape is public): Algorithm 1 with V16 over 4x4, V8 over 8x8
// and Vm over 64x64. Each row stores E, the 8 level-2 bits and the 16 level-3 bits that apply to
// it. Rows beyond the tensor are +0.
//
// search=mse (fp4scope's own, no standard), all of it in binary32, one rounding per operation:
//   Candidates are the scale codes E-2 .. E+2 around the code E of Algorithm 1, each clamped to
//   0 .. 0xFE, in ascending order. Elements are coded as in Algorithm 1 (its N, its rounding) with
//   R = rcp(candidate) and the shift s = e8 + e16; v = candidate value * 2^s * q/4, exact.
//   Error of four elements: e = 0, then in order  d = fl(v - a), e = fl(e + fl(d * d)).
//   For e8 = 0 and 1: each of the two fours takes e16 = 1 when its error is lower than with 0; the
//   error of eight is fl(first four + second four). e8 = 1 is taken when its error is lower.
//   The error of the group is the sum of its eights in order from 0. A candidate replaces the best
//   so far when its error is lower. Lower is `<`: ties, and errors that overflowed to Inf, keep the
//   lower scale code and bit 0. The policies of zero= and overflow= look at SF of Algorithm 1.
//
// Stochastic rounding rounds N to binary32 first (exact for BF16 input); elem=exact is then fp32.
//
// User-defined formats: FMAX is the largest element, emax the exponent of the element's largest
// power of two, k the number of levels of bits (one or two), S the scale type.
//   SF = BF16(fl(Vm * BF16(1/(FMAX * 2^k)))); E = S(SF) under e6m2=even|away, never below the
//   smallest positive and never above the largest finite value of S. R = BF16(1/E).
//   A bit with r levels below it is set when P >= 2^(emax + 1 + r). overflow=nan starts at the
//   midpoint above the largest value, zero=ff below the smallest positive one.
//   The NaN code (0xFF for E6M2) is all ones of S.
#pragma once
#include "formats/codecs/hif4_search.h"
#include "formats/codecs/hif4_steps.h"

namespace fp4scope {

template <class L>
struct Hif4Block {
  typename L::U codes[64];
  typename L::U scale;    // E6M2 byte
  typename L::U level2;   // bit j: elements 8j..8j+7
  typename L::U level3;   // bit k: elements 4k..4k+3
  typename L::U refused;  // 1: holds NaN or Inf (nonfinite=error reports it)
};

// The scale code to store.
template <class L>
FP4SCOPE_HD constexpr typename L::U hif4_stored_scale(Hif4Options options, Hif4Shape shape,
                                                      const Hif4Scale<L>& scale,
                                                      typename L::U nonfinite) {
  using U = typename L::U;
  U code = select(scale.is_nan != U{}, U{} + shape.nan_code(), scale.code);
  if (options.nonfinite == Hif4Nonfinite::kGroupNan)
    code = select(nonfinite != U{}, U{} + shape.nan_code(), code);
  return code;
}

// `bits` zero-or-one words as one word, LSB first; zero where `is_nan` is set.
template <class L>
FP4SCOPE_HD constexpr typename L::U hif4_packed_bits(int bits, const typename L::U* bit,
                                                     typename L::U is_nan) {
  using U = typename L::U;
  U word{};
  for (int j = 0; j < bits; ++j) word = word | (bit[j] << j);
  return select(is_nan != U{}, U{}, word);
}

// One group of 64. kSearches = false leaves the text of search=mse out. `random`: see hif4_codes().
template <class L, bool kSearches = true>
FP4SCOPE_HD constexpr void hif4_quantize(Hif4Options options, MinifloatSpec element,
                                         const typename L::F (&x)[64], Hif4Block<L>& out,
                                         const typename L::U* random = nullptr) {
  using U = typename L::U;
  using F = typename L::F;
  const Hif4Shape shape = hif4_shape(element);
  F a[64];
  U sign[64];
  out.refused = hif4_magnitudes<L>(options, 64, x, a, sign);
  F v16[16], v8[8], vm[1];
  hif4_maxima<L>(16, 4, a, v16);
  hif4_maxima<L>(8, 2, v16, v8);
  hif4_maxima<L>(1, 8, v8, vm);
  Hif4Scale<L> scale = hif4_scale<L>(options, shape, vm[0]);
  U e8[8], e16[16];
  F shift[16];
  if constexpr (kSearches) {
    if (options.search == Hif4Search::kMse) {
      Hif4Choice<L> best{};
      hif4_search_mse<L>(options, element, scale.code, a, best);
      scale.code = best.code;
      scale.r = e6m2_reciprocal<L>(best.code);
      for (int j = 0; j < 8; ++j) e8[j] = best.e8[j];
      for (int k = 0; k < 16; ++k) {
        e16[k] = best.e16[k];
        const U s = e8[k / 2] + e16[k];
        shift[k] = bit_cast<F>((127u - s) << 23);
      }
    } else {
      hif4_level_bits<L>(options, shape, scale.r, v8, v16, e8, e16, shift);
    }
  } else {
    hif4_level_bits<L>(options, shape, scale.r, v8, v16, e8, e16, shift);
  }
  hif4_codes<L>(options, element, 64, 4, scale, a, sign, shift, random, out.codes);
  out.level2 = hif4_packed_bits<L>(8, e8, scale.is_nan);
  out.level3 = hif4_packed_bits<L>(16, e16, scale.is_nan);
  out.scale = hif4_stored_scale<L>(options, shape, scale, out.refused);
}

// geometry=64x64, row by row: hif4_measure_row() for every row, hif4_decide(), then
// hif4_encode_row() for every row.
template <class L>
struct Hif4Square {
  typename L::F v16[16][16];  // [row/4][column/4]; zero before the first row
  typename L::F shift[16][16];
  typename L::U level2[8], level3[16];  // words by row/8 and row/4
  typename L::U refused;
  typename L::U stored_scale;
  Hif4Scale<L> scale;
};

template <class L>
FP4SCOPE_HD constexpr void hif4_measure_row(Hif4Options options, int row,
                                            const typename L::F (&x)[64], Hif4Square<L>& square) {
  using U = typename L::U;
  using F = typename L::F;
  F a[64], of_row[16];
  U sign[64];
  square.refused = square.refused | hif4_magnitudes<L>(options, 64, x, a, sign);
  hif4_maxima<L>(16, 4, a, of_row);
  for (int k = 0; k < 16; ++k) {
    square.v16[row / 4][k] = max_of(square.v16[row / 4][k], of_row[k]);
  }
}

template <class L>
FP4SCOPE_HD constexpr void hif4_decide(Hif4Options options, MinifloatSpec element,
                                       Hif4Square<L>& square) {
  using U = typename L::U;
  using F = typename L::F;
  const Hif4Shape shape = hif4_shape(element);
  F v8[8][8];
  F vm{};
  for (int i = 0; i < 8; ++i) {
    F upper[8], lower[8];
    hif4_maxima<L>(8, 2, square.v16[2 * i], upper);
    hif4_maxima<L>(8, 2, square.v16[2 * i + 1], lower);
    for (int j = 0; j < 8; ++j) {
      v8[i][j] = max_of(upper[j], lower[j]);
      vm = max_of(vm, v8[i][j]);
    }
  }
  square.scale = hif4_scale<L>(options, shape, vm);
  square.stored_scale = hif4_stored_scale<L>(options, shape, square.scale, square.refused);
  for (int i = 0; i < 16; ++i) {
    U e8[8], e16[16];
    hif4_level_bits<L>(options, shape, square.scale.r, v8[i / 2], square.v16[i], e8, e16,
                       square.shift[i]);
    square.level2[i / 2] = hif4_packed_bits<L>(8, e8, square.scale.is_nan);
    square.level3[i] = hif4_packed_bits<L>(16, e16, square.scale.is_nan);
  }
}

template <class L>
FP4SCOPE_HD constexpr void hif4_encode_row(Hif4Options options, MinifloatSpec element, int row,
                                           const typename L::F (&x)[64],
                                           const Hif4Square<L>& square, Hif4Block<L>& out,
                                           const typename L::U* random = nullptr) {
  using U = typename L::U;
  using F = typename L::F;
  F a[64];
  U sign[64];
  out.refused = hif4_magnitudes<L>(options, 64, x, a, sign);  // of this row
  hif4_codes<L>(options, element, 64, 4, square.scale, a, sign, square.shift[row / 4], random,
                out.codes);
  out.scale = square.stored_scale;
  out.level2 = square.level2[row / 8];
  out.level3 = square.level3[row / 4];
}

// Working arrays of a group of any shape: `a`, `sign` and `codes` have shape.block entries, `outer`
// and `outer_max` shape.outer_bits(), the rest shape.inner_bits().
template <class L>
struct Hif4Work {
  typename L::F *a, *outer_max, *inner_max, *shift;
  typename L::U *sign, *codes, *outer, *inner;
};
// Results: work.codes, work.outer and work.inner (bits as 0 or 1), and these two.
template <class L>
struct Hif4Group {
  typename L::U scale;
  typename L::U refused;
};

// A group of a user-defined format.
template <class L>
FP4SCOPE_HD constexpr Hif4Group<L> hif4_quantize_group(Hif4Options options, Hif4Shape shape,
                                                       const typename L::F* x,
                                                       const typename L::U* random,
                                                       const Hif4Work<L>& work) {
  using U = typename L::U;
  Hif4Group<L> out{};
  out.refused = hif4_magnitudes<L>(options, shape.block, x, work.a, work.sign);
  hif4_maxima<L>(shape.inner_bits(), shape.inner, work.a, work.inner_max);
  if (shape.outer != 0) {
    hif4_maxima<L>(shape.outer_bits(), shape.outer / shape.inner, work.inner_max, work.outer_max);
  }
  typename L::F vm[1];
  hif4_maxima<L>(1, shape.inner_bits(), work.inner_max, vm);
  const Hif4Scale<L> scale = hif4_scale<L>(options, shape, vm[0]);
  hif4_level_bits<L>(options, shape, scale.r, work.outer_max, work.inner_max, work.outer,
                     work.inner, work.shift);
  hif4_codes<L>(options, shape.element, shape.block, shape.inner, scale, work.a, work.sign,
                work.shift, random, work.codes);
  const auto is_nan = scale.is_nan != U{};
  for (int j = 0; j < shape.outer_bits(); ++j) work.outer[j] = select(is_nan, U{}, work.outer[j]);
  for (int k = 0; k < shape.inner_bits(); ++k) work.inner[k] = select(is_nan, U{}, work.inner[k]);
  out.scale = hif4_stored_scale<L>(options, shape, scale, out.refused);
  return out;
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

// Value of an element of any shape: the level bits first, which is exact, then one rounding of the
// product with the scale (only scales near 2^127 or 2^-127 need it).
template <class L>
FP4SCOPE_HD constexpr typename L::F hif4_decode_any(Hif4Shape shape, typename L::U code,
                                                    typename L::U scale, int level_bits) {
  return decode<L>(shape.element, code) * pow2(level_bits) * decode<L>(shape.scale, scale);
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
static_assert(hif4_factor(kE1M2, 2) == kBf16Seventh);

}  // namespace fp4scope
