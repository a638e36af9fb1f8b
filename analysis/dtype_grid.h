// dtype_grid.h: the values of the dtypes that generators write, F64, F32, F16 and BF16: rounding to
// them, their neighbours and their stored bytes. Roundings: formats/rounding.h.
#pragma once
#include <bit>
#include <cstdint>

#include "analysis/io/tensor_source.h"
#include "formats/minifloat.h"

namespace fp4scope {

// To nearest even, overflow to Inf; for the 16-bit types by way of binary32, as all data is.
inline double rounded_to(DType dtype, double v) {
  if (dtype == DType::kF64) return v;
  const auto narrow = static_cast<float>(v);
  if (dtype == DType::kBF16) return round_to_bf16<Lane<1>>(narrow);
  if (dtype == DType::kF16) return round_to_f16<Lane<1>>(narrow);
  return narrow;
}
// Bits of a value of F16 or BF16 as stored.
inline std::uint16_t stored_bits16(DType dtype, float v) {
  if (dtype == DType::kF16) {
    const auto code = encode<Lane<1>>(kFP16, Rounding::kEven, v);
    return static_cast<std::uint16_t>(code);
  }
  return static_cast<std::uint16_t>(bit_cast<std::uint32_t>(v) >> 16);
}

// Significant bits of a normal number.
inline int significant_bits(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 53;
    case DType::kF16:
      return kFP16.mantissa_bits + 1;
    case DType::kBF16:
      return kBF16.mantissa_bits + 1;
    default:
      return 24;
  }
}

// The magnitude `steps` ulps above (below, if negative) a magnitude of the dtype; itself where that
// leaves the finite magnitudes.
inline double neighbour(DType dtype, double magnitude, int steps) {
  if (dtype == DType::kF64) {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(magnitude);
    const std::uint64_t moved = bits + static_cast<std::uint64_t>(std::int64_t{steps});
    return moved < 0x7ff0000000000000u ? std::bit_cast<double>(moved) : magnitude;
  }
  const auto v = static_cast<float>(magnitude);
  if (dtype == DType::kF16) {
    const std::uint32_t moved = stored_bits16(dtype, v) + static_cast<std::uint32_t>(steps);
    return moved <= kFP16.max_finite_code() ? decode<Lane<1>>(kFP16, moved) : magnitude;
  }
  const int shift = dtype == DType::kBF16 ? 16 : 0;
  const std::uint32_t moved =
      (bit_cast<std::uint32_t>(v) >> shift) + static_cast<std::uint32_t>(steps);
  return moved < kInfBits >> shift ? bit_cast<float>(moved << shift) : magnitude;
}

}  // namespace fp4scope
