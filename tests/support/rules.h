// rules.h: the seven E8M0 cast rules of spec/scalars.md section 5 under the three names that tests
// meet them by: production, exact oracle, column of scalars/e8m0_cast.json.
#pragma once
#include "formats/e8m0.h"
#include "sim/oracle/exact_format.h"

namespace fp4scope::test {

struct E8m0RuleNames {
  const char* name;
  E8m0Rule production;
  oracle::E8m0Cast exact;
};
inline constexpr E8m0RuleNames kE8m0Rules[] = {
    {"down", E8m0Rule::kDown, oracle::E8m0Cast::kDown},
    {"up_ptx_satfinite", E8m0Rule::kUp, oracle::E8m0Cast::kUpPtxSatfinite},
    {"up_ptx_nosat", E8m0Rule::kUpNoSat, oracle::E8m0Cast::kUpPtxNosat},
    {"up_onnx", E8m0Rule::kUpOnnx, oracle::E8m0Cast::kUpOnnx},
    {"nearest_torch", E8m0Rule::kNearestTorch, oracle::E8m0Cast::kNearestTorch},
    {"nearest_onnx_saturate", E8m0Rule::kNearestOnnx, oracle::E8m0Cast::kNearestOnnxSaturate},
    {"nearest_ml_dtypes", E8m0Rule::kNearestMlDtypes, oracle::E8m0Cast::kNearestMlDtypes},
};

}  // namespace fp4scope::test
