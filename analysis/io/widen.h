// widen.h: exact widening of stored BF16 and FP16 to binary32 (spec/scalars.md section 7). NaN
// payloads and signs are kept; nothing is quieted or flushed. Written without branches so that the
// compiler can vectorise the loops around it.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

#include "analysis/io/tensor_source.h"

namespace fp4scope {

constexpr float widen_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

constexpr float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t magnitude = bits & 0x7FFFu;
  const std::uint32_t shifted = magnitude << 13;  // exponent and fraction fields in place
  // Exponent 31 (Inf, NaN) moves to 255, the others are rebiased by 127 - 15.
  const std::uint32_t rebias = magnitude >= 0x7C00u ? (255u - 31u) << 23 : (127u - 15u) << 23;
  // Subnormals and zero: magnitude * 2^-24, exact and normal in binary32.
  const float tiny = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f;
  const std::uint32_t wide =
      magnitude < 0x0400u ? std::bit_cast<std::uint32_t>(tiny) : shifted + rebias;
  return std::bit_cast<float>(sign | wide);
}

// `count` stored elements (little-endian, without gaps, at any alignment) to binary32. Throws
// Error(kUnsupported), which require_widenable() does alone, for a dtype that is no F32, F16, BF16
// or FP8.
void widen_elements(const TensorInfo& tensor, const unsigned char* stored, std::size_t count,
                    float* out);
void require_widenable(const TensorInfo& tensor);

}  // namespace fp4scope
