// lut.h: elements from a table of values (custom:lut:NAME). Codes are indices into the table.
#pragma once
#include <string_view>

#include "formats/lane.h"

namespace fp4scope {

inline constexpr int kMaxLutValues = 256;

// `value[i]` belongs to code i, in any order, finite and distinct. A value is encoded as the
// nearest entry; a tie takes the even code, and of two even or two odd codes the smaller.
struct Lut {
  std::string_view name;
  int count;
  float value[kMaxLutValues];
};

}  // namespace fp4scope
