// nvfp4.h: NVFP4: 16 x E2M1, one E4M3 scale, one binary32 outer scale per tensor or row.
// Rules: spec/nvfp4.md sections 3.1, 3.2 and 3.4, contract te (TransformerEngine). Symbols: g =
// outer encode scale, M = E4M3 ceiling, sf = block scale, q = code. Block maxima come from outside
// so that 16x16 blocks share the text: block_amax() of 16 rows, then their maximum.
#pragma once
#include "formats/amax.h"
#include "formats/minifloat.h"

namespace fp4scope {

template <class L>
struct Nvfp4Block {
  typename L::U codes[16];
  typename L::U scale;
};

inline constexpr float kSixth = 0x1.555556p-3f;  // binary32 1/6, 0x3E2AAAAB

// g(amax) = min(fl((6M)/amax), FMAX); 1 when amax is zero or the quotient is (amax = Inf); a NaN
// amax gives FMAX.
FP4SCOPE_HD constexpr float nvfp4_encode_scale(float amax, float e4m3_max) {
  if (amax == 0.0f) return 1.0f;
  const float g = fmin_bound(e4m3_max * 6.0f / amax, kFloatMax);
  return g == 0.0f ? 1.0f : g;
}

// The second-level scale: tensor or row amax and encode scale g. Options decide which amax counts
// and whether g comes from it (tensor, row), is 1 (none) or is given.
struct Nvfp4Outer {
  float amax;
  float g;
};
FP4SCOPE_HD constexpr Nvfp4Outer nvfp4_outer(Nvfp4Options options, std::uint32_t amax_bits) {
  const float amax = bit_cast<float>(options.has_amax ? options.amax_bits : amax_bits);
  switch (options.scale) {
    case OuterScale::kNone:
      return {amax, 1.0f};
    case OuterScale::kGiven:
      return {amax, bit_cast<float>(options.g_bits)};
    default:
      return {amax, nvfp4_encode_scale(amax, static_cast<float>(options.e4m3max))};
  }
}

// Magnitude bits of the block maximum; NaN is ignored, as fmaxf does.
template <class L>
FP4SCOPE_HD constexpr typename L::U nvfp4_block_amax(const typename L::F (&x)[16]) {
  using U = typename L::U;
  U amax{};
  for (int i = 0; i < 16; ++i) amax = max_of(amax, magnitude_without_nan(bit_cast<U>(x[i])));
  return amax;
}

// What x is multiplied with. A zero block or an underflowed scale gives 1/0, clamped to the largest
// finite float.
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_inverse(typename L::U scale, float g) {
  using F = typename L::F;
  return fmin_bound(1.0f / (decode<L>(kUE4M3, scale) * (1.0f / g)), F{} + kFloatMax);
}

template <class L>
FP4SCOPE_HD constexpr void nvfp4_quantize(Nvfp4Options options, float g,
                                          typename L::U block_amax_bits,
                                          const typename L::F (&x)[16], Nvfp4Block<L>& out) {
  using F = typename L::F;
  using U = typename L::U;
  const F block_amax = bit_cast<F>(block_amax_bits);
  // 1/6 is multiplied into g first: another order moves E4M3 ties (spec/nvfp4.md section 8).
  const F scale = fmin_bound(block_amax * (g * kSixth), F{} + kFloatMax);
  out.scale = encode<L>(kUE4M3, Rounding::kEven, scale);
  const F inverse = nvfp4_inverse<L>(out.scale, g);
  for (int i = 0; i < 16; ++i) {
    const F scaled = x[i] * inverse;
    U code = encode<L>(kE2M1, Rounding::kEven, scaled);
    if (options.neg_zero == NegZero::kDrop) code = select(x[i] == F{}, U{}, code);
    // NaN (an input NaN, or Inf under the inverse of an infinite scale) gives +6.
    out.codes[i] = select(scaled == scaled, code, U{} + 7u);
  }
}

// What multiplies a code on decode. With a tensor or row scale it is the published kernel's
// fl(fl(sf*amax) * fl(1/(6M))), spec/nvfp4.md 3.4; with scale=given that needs the amax key, and
// without it, as with scale=none, fl(sf * fl(1/g)).
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_decode_factor(Nvfp4Options options, Nvfp4Outer outer,
                                                        typename L::U scale) {
  const typename L::F sf = decode<L>(kUE4M3, scale);
  const bool by_amax = options.scale == OuterScale::kTensor || options.scale == OuterScale::kRow ||
                       (options.scale == OuterScale::kGiven && options.has_amax);
  if (!by_amax) return sf * (1.0f / outer.g);
  return (sf * outer.amax) * (1.0f / (6.0f * static_cast<float>(options.e4m3max)));
}

template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_decode(typename L::U code, typename L::F factor) {
  return decode<L>(kE2M1, code) * factor;
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
