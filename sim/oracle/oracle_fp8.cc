// oracle_fp8.cc: FP8 (spec/more.md section 2).
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle {

OracleFamily fp8_oracle() {
  return {[](const Recipe&) { return Support{false, "not written"}; }, nullptr, nullptr, nullptr};
}

}  // namespace fp4scope::oracle
