// fp8.h: FP8 elements under a binary32 or power-of-two scale, value = code * scale. Rules:
// spec/more.md 2.1 (scales: fp8_scale.h), 2.5 (DeepSeek-V4 cast) and 6 (KV cache).
// x and the factor of its block -> code; lanes may be blocks or elements of one block, since
// nothing here looks beyond one element.
#pragma once
#include "formats/codecs/fp8_scale.h"

namespace fp4scope {

// What the cast does beyond the range: with a scale or amax from outside, an upper bound, a nearest
// power of two, or an infinity under a scale that was clamped to a finite one.
enum class Fp8Cast : std::uint8_t {
  kSaturate,  // NaN has the code 0x7F
  kClamp,     // fmin(fmax()) of CUDA and Triton comes first: NaN becomes the largest value
  kTorch      // infinity becomes NaN (E5M2: infinity)
};
FP4SCOPE_HD constexpr Fp8Cast fp8_cast(Fp8Order order) {
  switch (order) {
    case Fp8Order::kTritonGroup:
    case Fp8Order::kTritonGroupDiv:
    case Fp8Order::kVllmGroup:
    case Fp8Order::kSglToken:
    case Fp8Order::kVllmToken:
    case Fp8Order::kVllmTensor:
    case Fp8Order::kFbgemmTriton:
      return Fp8Cast::kClamp;
    case Fp8Order::kDeepgemm:
    case Fp8Order::kVerlDsv4:
      return Fp8Cast::kTorch;
    default:
      return Fp8Cast::kSaturate;
  }
}

template <class L>
FP4SCOPE_HD constexpr typename L::F fp8_scaled(Fp8Step step, DType16 dtype, typename L::F x,
                                               typename L::F factor) {
  switch (step) {
    case Fp8Step::kMultiply:
      return x * factor;
    case Fp8Step::kDivide:
      return x / factor;
    case Fp8Step::kMultiplyRounded:
      break;
  }
  return round_to_dtype<L>(dtype, x * factor);
}

// A scaled element to its code.
template <class L>
FP4SCOPE_HD constexpr typename L::U fp8_element(Fp8Cast rule, MinifloatSpec spec, Rounding rounding,
                                                typename L::F y,
                                                typename L::U random_byte = typename L::U{}) {
  using U = typename L::U;
  const std::uint32_t nan = spec.special == Special::kFnuz ? spec.sign_mask()
                            : rule == Fp8Cast::kClamp      ? spec.max_finite_code()
                                                           : hardware_nan_code(spec);
  if (rule == Fp8Cast::kTorch) {
    return cast<L>(spec, {rounding, Overflow::kSpecial, {nan, NanRule::Sign::kDrop}}, y,
                   random_byte);
  }
  const U code = encode<L>(spec, rounding, y, random_byte);
  return select((bit_cast<U>(y) & kMagnitudeMask) > kInfBits, U{} + nan, code);
}

template <class L>
FP4SCOPE_HD constexpr typename L::F fp8_decode(MinifloatSpec spec, typename L::U code,
                                               typename L::F scale) {
  return decode<L>(spec, code) * scale;
}

// --- DeepSeek-V4: E2M1 elements under E8M0 bytes to E4M3 under one byte, spec/more.md 2.5 ---

// Byte of a 128x128 block whose largest E8M0 byte is `largest`. The cast is exact when the smallest
// byte is at most 11 below it. Bytes below 6 have no such byte; 0 is the nearest.
FP4SCOPE_HD constexpr std::uint32_t dsv4_out_byte(std::uint32_t largest) {
  return largest < 6u ? 0u : largest - 6u;
}
// One element; the table of the source decodes code 8 to +0, so the sign of -0 is lost.
template <class L>
FP4SCOPE_HD constexpr typename L::U dsv4_element(typename L::U fp4_code, typename L::U byte,
                                                 typename L::U out_byte) {
  using U = typename L::U;
  const U code = select(fp4_code == 8u, U{}, fp4_code);
  // 2^(byte-out); far below the range of E4M3 it may as well be zero.
  const U field = select(byte + 127u < out_byte, U{}, byte + 127u - out_byte);
  const auto factor = bit_cast<typename L::F>(field << 23);
  return cast<L>(kE4M3, {Rounding::kEven, Overflow::kSpecial, {0x7f, NanRule::Sign::kDrop}},
                 decode<L>(kE2M1, code) * factor);
}

}  // namespace fp4scope
