// oracle_transforms.cc: random Hadamard transform and the random bytes of stochastic rounding, of
// the oracle's own (spec/nvfp4.md 3.5, spec/scalars.md 2.3 and 2.4).
#include "sim/error.h"
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle {

std::uint32_t random_byte(const Recipe&, const Tile&, std::int64_t, std::int64_t) {
  throw Error(ErrorKind::kUnsupported, "not written");
}
Tile transformed(const Recipe&, const Tile&, std::vector<float>&) {
  throw Error(ErrorKind::kUnsupported, "not written");
}

}  // namespace fp4scope::oracle
