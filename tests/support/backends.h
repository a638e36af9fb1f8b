// backends.h: which backends a test runs over. CPU backends that this processor lacks are named
// once on standard output, so that a log shows what was not tested.
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "sim/backend.h"

namespace fp4scope::test {

inline std::string name_of(const Backend& backend) {
  return std::string(backend.name());
}

// CPU backends of this machine, fastest first, "reference" last.
inline std::vector<const Backend*> available_backends() {
  static bool said = false;
  std::vector<const Backend*> list;
  for (const Backend* backend : cpu_backends()) {
    const Support support = backend->available();
    if (support.ok) {
      list.push_back(backend);
    } else if (!said) {
      std::printf("backend %s is not tested: %s\n", name_of(*backend).c_str(),
                  support.reason.c_str());
    }
  }
  said = true;
  return list;
}
// Those that know the recipe.
inline std::vector<const Backend*> backends_for(const Recipe& recipe) {
  std::vector<const Backend*> list = available_backends();
  std::erase_if(list, [&](const Backend* b) { return !b->supports(recipe).ok; });
  return list;
}
// Links only with fp4scope::oracle.
inline std::vector<const Backend*> backends_and_oracle() {
  std::vector<const Backend*> list = available_backends();
  list.push_back(&oracle_backend());
  return list;
}

}  // namespace fp4scope::test
