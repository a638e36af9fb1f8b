// element.h: one element of a quantized block through the codec's own text, for statistics.
#pragma once
#include <cstdint>

#include "sim/backend.h"

namespace fp4scope {

// The magnitude that the element cast of the recipe gets for `value`, the finite element `index` of
// a block with these stored scale bytes, outer scale and choice. Compare with
// saturation_limit(format.element, recipe.element_ties()).
double scaled_magnitude(const Recipe& recipe, const OuterScale32& outer, const std::uint8_t* scale,
                        bool choice, int index, double value);

}  // namespace fp4scope
