// cpu_int4.cc: CPU kernels of INT4 group quantization.
#include "sim/cpu_kernels.h"
#include "sim/error.h"

namespace fp4scope {

FamilyKernels int4_kernels(Isa, const Recipe& recipe) {
  throw Error(ErrorKind::kUnsupported, "no CPU kernel for " + to_string(recipe));
}
FamilyRules int4_rules() {
  return {};
}

}  // namespace fp4scope
