// candidates.h: one of the two candidates of an adaptive block through the codec's own text
// (spec/nvfp4.md sections 3.3 and 5): what a block would be with the other choice.
#pragma once
#include <cstdint>

#include "sim/backend.h"

namespace fp4scope {

// One row of a block of a recipe that chooses (Recipe::chooses()). `amax_bits`: magnitude bits of
// the whole block, of all its rows where it is 2-D. x[n], n = format.block; codes[n]. Returns the
// scale byte.
std::uint8_t candidate_of_block(const Recipe& recipe, const OuterScale32& outer,
                                std::uint32_t amax_bits, bool four, const float* x,
                                std::uint8_t* codes);

}  // namespace fp4scope
