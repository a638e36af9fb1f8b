// float_environment.h: whether this thread's floating point is the one that fp4scope's bits are
// defined for: round to nearest even, subnormals neither flushed nor read as zero. A library that
// was loaded earlier may have changed that (design/architecture.md 5.6).
#pragma once
#include <cfenv>
#include <string>

#include "formats/hd.h"

namespace fp4scope {

// What is wrong, as a phrase; empty when all is well.
inline std::string float_environment_fault() {
  if (std::fegetround() != FE_TONEAREST) return "the rounding mode is not round-to-nearest";
  // volatile: the compiler would otherwise fold these with its own, correct arithmetic.
  volatile float smallest_normal = 0x1p-126f;
  volatile float subnormal = bit_cast<float>(std::uint32_t{1});
  volatile float scale = 0x1p24f, half = 0.5f;
  const float product = smallest_normal * half;
  if (bit_cast<std::uint32_t>(product) != 0x00400000u)
    return "subnormal results are flushed to zero";
  const float widened = subnormal * scale;
  if (bit_cast<std::uint32_t>(widened) != 0x01000000u) return "subnormal operands are read as zero";
  return "";
}

}  // namespace fp4scope
