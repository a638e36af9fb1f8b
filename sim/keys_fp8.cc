// keys_fp8.cc: recipe keys of FP8 (spec/more.md section 2).
#include "sim/recipe_keys.h"

namespace fp4scope {

const FamilyKeys& fp8_keys() {
  static const FamilyKeys keys{{},
                               [](Recipe&, std::string_view) { return false; },
                               [](std::string_view) { return std::vector<ContractInfo>{}; },
                               [](Recipe&) {},
                               [](const Recipe&) {}};
  return keys;
}

}  // namespace fp4scope
