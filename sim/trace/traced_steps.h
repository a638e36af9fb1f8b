// traced_steps.h: words and questions about codes that recordings and traces share. Private to
// sim/trace.
#pragma once
#include <string>

#include "formats/contracts/common_options.h"
#include "formats/lut.h"

namespace fp4scope {

// "RNE", "RNA", "RHZ", "RTZ", "SR".
const char* rounding_name(Rounding rounding);

// Whether v lies exactly between two neighbouring finite codes. By a search over all codes, so that
// the answer does not share a line with encode(). Formats of up to 8 bits, and BF16.
bool is_tie_of(MinifloatSpec spec, float v);
bool is_tie_of(const Lut& lut, float v);

// Whether a saturating cast clamps v: a grid that went on would have had another code for it. False
// for NaN, and where an unsigned format sends negative numbers to 0.
bool is_saturated_by(MinifloatSpec spec, Rounding rounding, float v);

}  // namespace fp4scope
