// oracle_mx.h: what the two halves of the oracle's MX codec share: scale rules
// (oracle_mx_scale.cc), elements and blocks (oracle_mx.cc). Rules: spec/mx.md sections 2 to 4.
#pragma once
#include <cstdint>

#include "formats/contracts/options.h"
#include "sim/oracle/dyadic.h"
#include "sim/recipe.h"

namespace fp4scope::oracle {

inline constexpr std::uint32_t kMxNanByte = 255;

// RN32(log2(x)) for x > 0: bits of log2 one by one by squaring an enclosing interval, until both
// ends round to the same binary32 number.
float log2_32(const Dyadic& x);
// Its floor, without the digits where the exponent of x decides.
int floor_log2_32(const Dyadic& x);

// Integer elements, whatever the code of their sign.
bool mx_has_integers(const Recipe& recipe);
// Exponent of the element's largest power of two, "emax".
int mx_emax(const Recipe& recipe);
// Largest finite element, "FMAX".
Dyadic mx_element_max(const Recipe& recipe);

// What a scale rule says about a block with a finite maximum above zero: the scale is 2^exponent
// before the range of the byte is looked at, or the rule overflowed.
struct MxExponent {
  int exponent = 0;
  bool overflow = false;
};
// `binary64`: amax comes from binary64 and no step passes through binary32.
MxExponent mx_exponent(const Recipe& recipe, const Dyadic& amax, bool binary64);

}  // namespace fp4scope::oracle
