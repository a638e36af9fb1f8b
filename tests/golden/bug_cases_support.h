// bug_cases_support.h: the casts that the cases of ../shared/cases/bugs.md compare.
#pragma once
#include <cstdint>

#include "formats/minifloat.h"

namespace fp4scope::test {

using L1 = Lane<1>;

constexpr CastPolicy kSaturating{
    Rounding::kEven, Overflow::kSaturate, {0x7F, NanRule::Sign::kDrop}};
constexpr CastPolicy kOverflowing{
    Rounding::kEven, Overflow::kSpecial, {0x7F, NanRule::Sign::kCopy}};

inline float from_bits(std::uint32_t bits) {
  return bit_cast<float>(bits);
}

}  // namespace fp4scope::test
