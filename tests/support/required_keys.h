// required_keys.h: recipes of contracts that need a scale from outside.
#pragma once
#include <string>

#include "sim/error.h"
#include "sim/recipe.h"

namespace fp4scope::test {

inline bool is_legal(const std::string& text) {
  try {
    (void)parse_recipe(text);
    return true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;
    return false;
  }
}

// `text`, with the keys added that its contract requires; unchanged when it is no recipe at all.
inline std::string required_keys(const std::string& text) {
  if (is_legal(text)) return text;
  for (const char* keys : {",g=0x3c800000", ",scale=given,g=0x3c800000", ",amax=0x40380000"}) {
    if (is_legal(text + keys)) return text + keys;
  }
  return text;
}

}  // namespace fp4scope::test
