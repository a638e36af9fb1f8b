// transforms.cc: see transforms.h.
#include "sim/transforms.h"

#include "sim/error.h"

namespace fp4scope {

void apply_rht(const Recipe& recipe, const Tile&, float*) {
  throw Error(ErrorKind::kUnsupported, "no rht yet: " + to_string(recipe));
}

void random_bytes(const Recipe& recipe, const Tile&, std::int64_t, std::int64_t, std::int64_t,
                  std::uint8_t*) {
  throw Error(ErrorKind::kUnsupported, "no stochastic rounding yet: " + to_string(recipe));
}

}  // namespace fp4scope
