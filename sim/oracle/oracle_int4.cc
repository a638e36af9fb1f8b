// oracle_int4.cc: INT4 group quantization (spec/more.md section 1).
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle {

OracleFamily int4_oracle() {
  return {[](const Recipe&) { return Support{false, "not written"}; }, nullptr, nullptr, nullptr};
}

}  // namespace fp4scope::oracle
