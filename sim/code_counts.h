// code_counts.h: how often each of sixteen codes occurs among packed codes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "sim/backend.h"

namespace fp4scope {

// Adds the number of nibbles with value c among `bytes` bytes to counts[c], 16 entries. Integers,
// so that every kind of instructions has the same result; the fastest of the processor are used.
void count_nibbles(const std::uint8_t* packed, std::size_t bytes, std::int64_t* counts);
// With the instructions of one CPU backend, which must be available.
void count_nibbles(const Backend& backend, const std::uint8_t* packed, std::size_t bytes,
                   std::int64_t* counts);

}  // namespace fp4scope
