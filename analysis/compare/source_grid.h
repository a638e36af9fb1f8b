// source_grid.h: the numbers of a source type in order, so that inputs one step of that type apart
// can be named and a threshold bisected. Magnitudes are counted by their own bit patterns: 0 is +0,
// then the subnormals. FP16 and BF16 are widened exactly (analysis/io/widen.h).
#pragma once
#include <bit>
#include <cstdint>

#include "analysis/io/widen.h"
#include "sim/backend.h"

namespace fp4scope {

class SourceGrid {
 public:
  // kF32, kBf16 or kF16.
  explicit constexpr SourceGrid(SourceType type) : type_(type) {}

  // The step of a magnitude that is not above the largest finite one; and that one.
  constexpr std::int64_t largest() const {
    return type_ == SourceType::kF16 ? 0x7bff : type_ == SourceType::kBf16 ? 0x7f7f : 0x7f7fffff;
  }
  // Steps per binade.
  constexpr std::int64_t binade() const {
    return type_ == SourceType::kF16 ? 0x400 : type_ == SourceType::kBf16 ? 0x80 : 0x800000;
  }
  // Value of a step of either sign; |step| <= largest(). Step 0 is +0.
  constexpr float value(std::int64_t step) const {
    const auto magnitude = static_cast<std::uint32_t>(step < 0 ? -step : step);
    const float v = type_ == SourceType::kF16    ? widen_f16(static_cast<std::uint16_t>(magnitude))
                    : type_ == SourceType::kBf16 ? widen_bf16(static_cast<std::uint16_t>(magnitude))
                                                 : std::bit_cast<float>(magnitude);
    return step < 0 ? -v : v;
  }
  // The step at or next below the magnitude of v, with the sign of v; infinities: the largest.
  constexpr std::int64_t step(float v) const {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
    const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
    std::int64_t found = 0;
    if (type_ == SourceType::kF16) {
      for (std::int64_t bit = 0x4000; bit != 0; bit >>= 1) {
        if (found + bit <= largest() && value(found + bit) <= magnitude) found += bit;
      }
    } else {
      found = type_ == SourceType::kBf16 ? (bits & 0x7fffffffu) >> 16 : bits & 0x7fffffffu;
      if (found > largest()) found = largest();
    }
    return bits >> 31 != 0 ? -found : found;
  }
  // The number at or next below the magnitude of v.
  constexpr float toward_zero(float v) const { return value(step(v)); }

 private:
  SourceType type_;
};

}  // namespace fp4scope
