// element.h: one element of a quantized block through the codec's own text, for statistics.
#pragma once
#include <cstdint>

#include "formats/minifloat.h"
#include "sim/backend.h"

namespace fp4scope {

// The elements of the source that share the scale (1-D blocks), one of the two pointers. Needed
// where the stored bytes alone do not tell what the elements were multiplied with: blocks of scale
// byte 0 under mxfp4:contract=universal.
struct SourceBlock {
  const float* f32 = nullptr;
  const double* f64 = nullptr;
  int n = 0;
};

// The magnitude that the element cast of the recipe gets for `value`, the finite element `index` of
// a block with these stored scale bytes, outer scale and choice. For elements from a table how far
// it is outside the table: lut_excess() of formats/lut.h.
double scaled_magnitude(const Recipe& recipe, const OuterScale32& outer, const std::uint8_t* scale,
                        bool choice, int index, double value, const SourceBlock& source = {});
// Beyond it the element was clamped.
SaturationLimit element_limit(const Recipe& recipe);

}  // namespace fp4scope
