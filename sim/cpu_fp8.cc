// cpu_fp8.cc: CPU kernels of FP8.
#include "sim/cpu_kernels.h"
#include "sim/error.h"

namespace fp4scope {

FamilyKernels fp8_kernels(Isa, const Recipe& recipe) {
  throw Error(ErrorKind::kUnsupported, "no CPU kernel for " + to_string(recipe));
}
FamilyRules fp8_rules() {
  return {};
}

}  // namespace fp4scope
