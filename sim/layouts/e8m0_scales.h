// e8m0_scales.h: binary32 scales to E8M0 bytes as a checked conversion, and the check of scale
// planes for NaN bytes (spec/layouts.md section 6, spec/scalars.md 5).
#pragma once
#include <optional>
#include <span>

#include "formats/e8m0.h"

namespace fp4scope {

// Every scale owns one byte. Without a rule a scale must be a power of two from 2^-127 to 2^127,
// else Error(kData) names the first that is not; with a rule each is rounded by it.
void e8m0_from_binary32(std::span<const float> scales, std::optional<E8m0Rule> rule,
                        std::span<std::uint8_t> bytes);

// Bytes that a scale plane of a finite tensor must not contain.
enum class ScaleByte : std::uint8_t {
  kE8m0,  // 0xFF
  kE4m3,  // 0x7F and 0xFF
  kE6m2   // 0xFF (HiF4 level 1)
};
constexpr bool is_nan_scale(ScaleByte kind, std::uint8_t byte) {
  return byte == 0xff || (kind == ScaleByte::kE4m3 && byte == 0x7f);
}
struct NanScales {
  std::int64_t count = 0;
  std::int64_t first = -1;  // index in the plane; -1: none
};
// `plane` holds logical scales only: padding of a hardware layout is no data (load_scales).
NanScales find_nan_scales(ScaleByte kind, std::span<const std::uint8_t> plane);

}  // namespace fp4scope
