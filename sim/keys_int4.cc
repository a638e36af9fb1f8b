// keys_int4.cc: recipe keys of INT4 group quantization (spec/more.md section 1).
#include "sim/recipe_keys.h"

namespace fp4scope {

const FamilyKeys& int4_keys() {
  static const FamilyKeys keys{{},
                               [](Recipe&, std::string_view) { return false; },
                               [](std::string_view) { return std::vector<ContractInfo>{}; },
                               [](Recipe&) {},
                               [](const Recipe&) {}};
  return keys;
}

}  // namespace fp4scope
