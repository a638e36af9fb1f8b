// exact_format.h: scalar formats from their definition (spec/scalars.md sections 1 to 6). Codes are
// valued one by one and a cast looks for the nearest value by exact distances; nothing here is
// shared with the production encoder.
#pragma once
#include <cstdint>

#include "formats/contracts/options.h"
#include "formats/spec.h"
#include "sim/oracle/dyadic.h"

namespace fp4scope::oracle {

// Value of a code, from the definition of a floating-point number.
Number value(MinifloatSpec spec, std::uint32_t code);

// Magnitude code of the finite value chosen for q >= 0 under a deterministic rounding; saturates at
// both ends of the format.
std::uint32_t nearest(MinifloatSpec spec, const Dyadic& q, Rounding rounding);

// Whole code: the sign bit is copied, NaN and infinity saturate. Unsigned formats give code 0 for
// everything with a sign bit; fnuz formats have no -0.
std::uint32_t cast_saturating(MinifloatSpec spec, const Number& v, Rounding rounding);

// What rounds above the largest finite value becomes infinity, or NaN in fn and fnuz formats;
// formats with neither saturate. A NaN becomes `nan_code`, its sign bit is ignored.
std::uint32_t cast_special(MinifloatSpec spec, const Number& v, Rounding rounding,
                           std::uint32_t nan_code);

// Stochastic rounding of spec/scalars.md 2.3 for one random byte: t = fma(byte * 2^-8, step(a), a)
// in binary32, then truncation by the step of t. The magnitude code of a = |v|.
std::uint32_t stochastic(MinifloatSpec spec, float a, std::uint32_t random_byte);

// E8M0 (spec/scalars.md section 5), named as in that table.
enum class E8m0Cast {
  kUpPtxSatfinite,
  kUpPtxNosat,
  kDown,
  kUpOnnx,
  kNearestTorch,
  kNearestOnnxSaturate,
  kNearestMlDtypes
};
std::uint32_t cast_e8m0(E8m0Cast rule, const Number& v);
// Value of a byte; 255 is NaN.
Number value_e8m0(std::uint32_t byte);
// Smallest byte b with 2^(b-127) * unit >= q, or 255 when even b = 254 is too small; q >= 0.
std::uint32_t smallest_e8m0(const Dyadic& q, const Dyadic& unit);

// The E6M2 reciprocal of spec/scalars.md section 6: BF16 of 1 / value, widened to binary32.
float reciprocal_e6m2(std::uint32_t code);

}  // namespace fp4scope::oracle
