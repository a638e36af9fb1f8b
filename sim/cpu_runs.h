// cpu_runs.h: helpers of kernels whose blocks are long and have one number as scale (INT4, FP8),
// private to sim. The scale of a block is computed by the codec text with Lane<1>; its elements
// then go through the same text in runs, a lane being an element, without any transposition.
#pragma once
#include "formats/amax.h"
#include "formats/e8m0.h"
#include "formats/minifloat.h"
#include "sim/cpu_kernels.h"

namespace fp4scope {

// Encoder::code<L>(x) for n elements.
template <int W, class Encoder>
FP4SCOPE_INLINE void encode_run(const Encoder& encoder, const float* x, std::int64_t n,
                                std::uint8_t* codes) {
  std::int64_t i = 0;
  if constexpr (W > 1) {
    for (; i + W <= n; i += W) {
      typename Lane<W>::F v;
      std::memcpy(&v, x + i, sizeof v);
      const auto bytes =
          __builtin_convertvector(encoder.template code<Lane<W>>(v), typename ByteLane<W>::V);
      std::memcpy(codes + i, &bytes, W);
    }
  }
  for (; i < n; ++i) codes[i] = static_cast<std::uint8_t>(encoder.template code<Lane<1>>(x[i]));
}
// A block with `valid` elements; the rest is +0.
template <int W, class Encoder>
FP4SCOPE_INLINE void encode_block(const Encoder& encoder, const float* x, std::int64_t valid,
                                  std::int64_t block, std::uint8_t* codes) {
  encode_run<W>(encoder, x, valid, codes);
  if (valid == block) return;
  const std::uint32_t padding = encoder.template code<Lane<1>>(0.0f);
  std::memset(codes + valid, static_cast<int>(padding), static_cast<std::size_t>(block - valid));
}

// Decoder::value<L>(code) for n codes.
template <int W, class Decoder>
FP4SCOPE_INLINE void decode_run(const Decoder& decoder, const std::uint8_t* codes, std::int64_t n,
                                float* values) {
  std::int64_t i = 0;
  if constexpr (W > 1) {
    for (; i + W <= n; i += W) {
      typename ByteLane<W>::V bytes;
      std::memcpy(&bytes, codes + i, W);
      const auto v =
          decoder.template value<Lane<W>>(__builtin_convertvector(bytes, typename Lane<W>::U));
      std::memcpy(values + i, &v, sizeof v);
    }
  }
  for (; i < n; ++i) values[i] = decoder.template value<Lane<1>>(codes[i]);
}

// Largest magnitudes of a piece of a block: of the numbers, and of everything (NaN is above Inf).
struct RunMaximum {
  std::uint32_t amax = 0, any = 0;
  bool has_nan() const { return any > kInfBits; }
  bool is_finite() const { return any < kInfBits; }
};
FP4SCOPE_INLINE void include_run(RunMaximum& m, const float* x, std::int64_t n) {
  std::uint32_t amax = m.amax, any = m.any;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(x[i]);
    amax = max_of(amax, magnitude_without_nan(bits));
    any = max_of(any, bits & kMagnitudeMask);
  }
  m = {amax, any};
}

// The scale of a block as its kind is stored, little endian.
inline void store_scale(const BlockFormat& format, float scale, std::uint8_t* out) {
  // What torch casts a binary32 scale to binary16 with.
  constexpr CastPolicy kTorchCast{
      Rounding::kEven, Overflow::kSpecial, {0x7fffu, NanRule::Sign::kDrop}};
  const bool is_nan = scale != scale;
  std::uint32_t bits = is_nan ? kQuietNanBits : bit_cast<std::uint32_t>(scale);
  switch (format.levels[0].kind) {
    case ScaleKind::kE8m0:
      bits = e8m0_encode<Lane<1>>(E8m0Rule::kDown, scale);
      break;
    case ScaleKind::kBfloat16:
      bits >>= 16;
      break;
    case ScaleKind::kBinary16:
      bits = cast<Lane<1>>(kFP16, kTorchCast, scale);
      break;
    case ScaleKind::kMinifloat:
      bits = is_nan ? format.levels[0].spec.magnitude_mask()
                    : encode<Lane<1>>(format.levels[0].spec, Rounding::kEven, scale);
      break;
    default:
      break;
  }
  for (int i = 0; i < format.scale_bytes; ++i) out[i] = static_cast<std::uint8_t>(bits >> (8 * i));
}
inline float load_scale(const BlockFormat& format, const std::uint8_t* in) {
  std::uint32_t bits = 0;
  for (int i = 0; i < format.scale_bytes; ++i) {
    bits |= static_cast<std::uint32_t>(in[i]) << (8 * i);
  }
  switch (format.levels[0].kind) {
    case ScaleKind::kE8m0:
      return e8m0_decode<Lane<1>>(bits);
    case ScaleKind::kBfloat16:
      return bit_cast<float>(bits << 16);
    case ScaleKind::kBinary16:
      return decode<Lane<1>>(kFP16, bits);
    case ScaleKind::kMinifloat:
      return decode<Lane<1>>(format.levels[0].spec, bits);
    default:
      return bit_cast<float>(bits);
  }
}

}  // namespace fp4scope
