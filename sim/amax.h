// amax.h: the largest magnitude of a run of elements near the speed of memory. An integer maximum
// has the same bits whatever the instructions, so the widest ones of the processor are used, also
// where a backend is asked for by name.
#pragma once
#include <cstdint>

#include "sim/backend.h"

namespace fp4scope {

// marked_amax_bits() of formats/amax.h: the bits of the largest binary32 magnitude without NaN, and
// the sign bit where there is a NaN.
std::uint32_t vector_amax_bits(const float* x, std::int64_t count);
// The same of BF16 or binary16 values as they are stored, as binary32.
std::uint32_t vector_amax_bits(const std::uint16_t* x, std::int64_t count, SourceType source);

// With the instructions of one CPU backend, which must be available.
std::uint32_t vector_amax_bits(const Backend& backend, const float* x, std::int64_t count);
std::uint32_t vector_amax_bits(const Backend& backend, const std::uint16_t* x, std::int64_t count,
                               SourceType source);

}  // namespace fp4scope
