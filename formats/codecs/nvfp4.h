// nvfp4.h: NVFP4: n x E2M1 (16), one E4M3 scale per block, one binary32 outer scale per tensor or
// row; its siblings if4 and nvint4, and user-defined formats of the same shape. Rules:
// spec/nvfp4.md sections 2 to 6; what differs between stacks is in nvfp4_contracts.h and
// nvfp4_element.h. Block maxima come from outside so that 2-D blocks share the text: block_amax()
// of each row, then their maximum. x[n] -> codes[n], scale, choice; Lane<W> holds W blocks.
#pragma once
#include "formats/amax.h"
#include "formats/codecs/nvfp4_decode.h"
#include "formats/codecs/nvfp4_element.h"

namespace fp4scope {

inline constexpr int kNvfp4MostElements = 256;  // of a user-defined block

// Magnitude bits of the block maximum; NaN is ignored, as fmaxf does.
template <class L>
FP4SCOPE_HD constexpr typename L::U nvfp4_block_amax(const typename L::F* x, int n = 16) {
  using U = typename L::U;
  U amax{};
  for (int i = 0; i < n; ++i) amax = max_of(amax, magnitude_without_nan(bit_cast<U>(x[i])));
  return amax;
}

// A block scale and what goes with it. An adaptive choice has two.
template <class L>
struct Nvfp4Candidate {
  typename L::U scale;
  typename L::F inverse;
};
template <class L>
FP4SCOPE_HD constexpr Nvfp4Candidate<L> nvfp4_candidate(const Nvfp4Rules& r, const Nvfp4Row& row,
                                                        typename L::F bmax, bool four) {
  const typename L::F s = nvfp4_scale_value<L>(r, row, bmax, four);
  const typename L::U scale = nvfp4_scale_code<L>(r, s);
  return {scale, nvfp4_inverse<L>(r, row, scale, bmax, s)};
}

// Codes of one row of a block. `random`: a byte per element for stochastic rounding, or null.
template <class L>
FP4SCOPE_HD constexpr void nvfp4_codes(const Nvfp4Rules& r, int n, typename L::F inverse,
                                       const typename L::F* x, const std::uint8_t* random,
                                       typename L::U* codes, typename L::U& refused) {
  for (int i = 0; i < n; ++i) {
    const std::uint8_t* byte = random == nullptr ? nullptr : random + i;
    codes[i] = nvfp4_element<L>(r, x[i], inverse, false, byte, refused).code;
  }
}

// fl32(d*d + e) with one rounding, without fused instructions: the product is exact in binary64 and
// the sum is rounded to odd there, so that the rounding to binary32 is the only one that counts.
FP4SCOPE_HD constexpr float add_square_once(float e, float d) {
  const double product = static_cast<double>(d) * static_cast<double>(d);
  const double sum = product + static_cast<double>(e);
  const double part = sum - product;
  const double error = (product - (sum - part)) + (static_cast<double>(e) - part);
  std::uint64_t bits = bit_cast<std::uint64_t>(sum);
  const bool is_finite = (bits & 0x7ff0000000000000ull) != 0x7ff0000000000000ull;
  // Both terms are nonnegative, so the sum is positive where it is inexact.
  if (is_finite && error != 0.0 && (bits & 1u) == 0) {
    bits = error > 0.0 ? bits + 1u : bits - 1u;
  }
  return static_cast<float>(bit_cast<double>(bits));
}

// e plus what an element adds to the error (sections 3.3 and 5.1).
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_add_error(const Nvfp4Options& o, typename L::F e,
                                                    typename L::F d) {
  using U = typename L::U;
  using F = typename L::F;
  const FlushOps<L> op{o.ftz};
  const F magnitude = bit_cast<F>(bit_cast<U>(d) & kMagnitudeMask);
  if (o.select == Select::kMae) return op.add(e, magnitude);
  // As integers: a NaN stays the maximum.
  if (o.select == Select::kAbsmax)
    return bit_cast<F>(max_of(bit_cast<U>(e), bit_cast<U>(d) & kMagnitudeMask));
  if (o.sum != SumOrder::kFma) return op.add(e, op.mul(d, d));
  if constexpr (L::kWidth == 1) {
    return op.operand(add_square_once(op.operand(e), op.operand(d)));
  } else {
    F sum{};
    for (int l = 0; l < L::kWidth; ++l)
      sum[l] = add_square_once(op.operand(e)[l], op.operand(d)[l]);
    return op.operand(sum);
  }
}

// Difference between an element and its code under a candidate, as the metric takes it. if4 (5.3)
// scales an integer back after the tensor maximum and divides by a Python number.
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_difference(const Nvfp4Rules& r, const Nvfp4Row& row,
                                                     typename L::F x, typename L::F q,
                                                     typename L::F sf, bool integer) {
  using F = typename L::F;
  const Nvfp4Options& o = r.options;
  const FlushOps<L> op{o.ftz};
  if (o.metric == Metric::kFast) return op.sub(q * sf, op.mul(x, splat<L>(row.g)));
  const bool by_amax = o.score == Score::kAmax;
  F v = op.mul(op.mul(q, sf), splat<L>(by_amax ? row.amax : row.g_inverse));
  if (integer) v = v * 0.8571428571f;
  if (by_amax) {
    v = o.int4_candidate ? scalar_divide<L>(o.scalar_div, v, r.top())
                         : op.div(v, splat<L>(r.top()));
  }
  return op.sub(v, x);
}

// Codes of one row under a candidate and its error.
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_try(const Nvfp4Rules& r, const Nvfp4Row& row, int n,
                                              Nvfp4Candidate<L> c, bool integer,
                                              const typename L::F* x, typename L::U* codes,
                                              typename L::U& refused) {
  using F = typename L::F;
  const Nvfp4Options& o = r.options;
  const FlushOps<L> op{o.ftz};
  const F sf = decode<L>(r.scale, c.scale);
  const bool is_halves = o.sum == SumOrder::kHalves && o.select != Select::kAbsmax;
  const bool is_tree = o.sum == SumOrder::kTree && o.select != Select::kAbsmax;
  F error{}, upper{};
  F parts[kNvfp4MostElements];
  parts[0] = F{};
  for (int i = 0; i < n; ++i) {
    const Nvfp4Element<L> e = nvfp4_element<L>(r, x[i], c.inverse, integer, nullptr, refused);
    codes[i] = e.code;
    const F d = nvfp4_difference<L>(r, row, x[i], e.value, sf, integer);
    if (is_tree) {
      parts[i] = nvfp4_add_error<L>(o, F{}, d);
    } else if (is_halves && i >= n / 2) {
      upper = nvfp4_add_error<L>(o, upper, d);
    } else {
      error = nvfp4_add_error<L>(o, error, d);
    }
  }
  if (is_halves) return op.add(error, upper);
  if (!is_tree) return error;
  for (int half = n / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) parts[i] = op.add(parts[i], parts[i + half]);
  }
  return parts[0];
}

template <class L>
struct Nvfp4Choice {
  Nvfp4Candidate<L> four, six;
  typename L::F error4, error6;
  typename L::U is_four;  // all ones or 0
  typename L::U is_zero;  // the adaptive kernels of FlashInfer write zero bytes for a zero block
};
template <class L>
FP4SCOPE_HD constexpr Nvfp4Choice<L> nvfp4_candidates(const Nvfp4Rules& r, const Nvfp4Row& row,
                                                      typename L::F bmax) {
  using U = typename L::U;
  Nvfp4Choice<L> c{nvfp4_candidate<L>(r, row, bmax, true),
                   nvfp4_candidate<L>(r, row, bmax, false),
                   {},
                   {},
                   {},
                   {}};
  if (r.options.order == Nvfp4Order::kFlashinfer ||
      r.options.order == Nvfp4Order::kFlashinferFast) {
    const FlushOps<L> op{r.options.ftz};
    c.is_zero = select(op.operand(bmax) == typename L::F{}, ~U{}, U{});
  }
  return c;
}
// A tie or a NaN takes map-to-6. A block that is not computed has no errors.
template <class L>
FP4SCOPE_HD constexpr void nvfp4_decide(Nvfp4Choice<L>& c) {
  using U = typename L::U;
  c.is_four = select(c.error4 < c.error6, ~U{}, U{}) & ~c.is_zero;
  c.error4 = bit_cast<typename L::F>(bit_cast<U>(c.error4) & ~c.is_zero);
  c.error6 = bit_cast<typename L::F>(bit_cast<U>(c.error6) & ~c.is_zero);
}
// Scale byte of the chosen candidate; if4 marks INT4 blocks in bit 7.
template <class L>
FP4SCOPE_HD constexpr typename L::U nvfp4_chosen_scale(const Nvfp4Rules& r,
                                                       const Nvfp4Choice<L>& c) {
  using U = typename L::U;
  const U mark = r.options.int4_candidate ? c.is_four & 0x80u : U{};
  return (blend(c.is_four, c.four.scale, c.six.scale) | mark) & ~c.is_zero;
}

// One block of one row with its own adaptive choice.
template <class L>
FP4SCOPE_HD constexpr void nvfp4_choose(const Nvfp4Rules& r, const Nvfp4Row& row, int n,
                                        const typename L::F* x, Nvfp4Choice<L>& c,
                                        typename L::U* codes, typename L::U& refused) {
  using U = typename L::U;
  U other[kNvfp4MostElements];
  U refused4{}, refused6{};  // an element without a code matters in the chosen candidate only
  const bool integer = r.options.int4_candidate;
  c.error4 = nvfp4_try<L>(r, row, n, c.four, integer, x, other, refused4);
  c.error6 = nvfp4_try<L>(r, row, n, c.six, false, x, codes, refused6);
  nvfp4_decide<L>(c);
  refused = refused | blend(c.is_four, refused4, refused6);
  for (int i = 0; i < n; ++i) {
    codes[i] = blend(c.is_four, other[i], codes[i]) & ~c.is_zero;
  }
}

// One row of a 2-D block: `c` was decided over all of its rows.
template <class L>
FP4SCOPE_HD constexpr void nvfp4_chosen_codes(const Nvfp4Rules& r, int n, const typename L::F* x,
                                              const Nvfp4Choice<L>& c, typename L::U* codes,
                                              typename L::U& refused) {
  using U = typename L::U;
  const auto inverse = bit_cast<typename L::F>(
      blend(c.is_four, bit_cast<U>(c.four.inverse), bit_cast<U>(c.six.inverse)));
  for (int i = 0; i < n; ++i) {
    U code = nvfp4_element<L>(r, x[i], inverse, false, nullptr, refused).code;
    if (r.options.int4_candidate) {
      const U integer = nvfp4_element<L>(r, x[i], inverse, true, nullptr, refused).code;
      code = blend(c.is_four, integer, code);
    }
    codes[i] = code & ~c.is_zero;
  }
}

// A whole block of 16 under contract te with static6, the shortest way through the text.
template <class L>
struct Nvfp4Block {
  typename L::U codes[16];
  typename L::U scale;
};
template <class L>
FP4SCOPE_HD constexpr void nvfp4_quantize(Nvfp4Options options, float g,
                                          typename L::U block_amax_bits,
                                          const typename L::F (&x)[16], Nvfp4Block<L>& out) {
  Nvfp4Rules rules;
  rules.options = options;
  const Nvfp4Row row = nvfp4_row(rules, {0.0f, g});
  const auto c = nvfp4_candidate<L>(rules, row, bit_cast<typename L::F>(block_amax_bits), false);
  out.scale = c.scale;
  typename L::U refused{};
  nvfp4_codes<L>(rules, 16, c.inverse, x, nullptr, out.codes, refused);
}

// spec/nvfp4.md section 8 [V]: [6.42, 0.27, -1.4, 0.85, 0...] with g = 1.
constexpr bool nvfp4_worked_example_holds() {
  const float x[16] = {6.42f, 0.27f, -1.4f, 0.85f};
  Nvfp4Block<Lane<1>> block{};
  nvfp4_quantize<Lane<1>>({}, 1.0f, nvfp4_block_amax<Lane<1>>(x), x, block);
  return block.scale == 0x39 && block.codes[0] == 7 && block.codes[1] == 0 &&
         block.codes[2] == 10 && block.codes[3] == 2;
}
static_assert(nvfp4_worked_example_holds());

}  // namespace fp4scope
