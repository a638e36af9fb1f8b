// candidates.h: the recipes that identify tries, and single changes of them.
#pragma once
#include <string>
#include <vector>

#include "sim/recipe.h"

namespace fp4scope {

// Contracts of every named format with the settings that stacks choose at run time (kind of outer
// scale, selection, metric, block shape, ceiling, width, group, granularity, ...). Built once.
const std::vector<Recipe>& candidate_recipes();

// A recipe with one key set to another legal value.
struct Variation {
  std::string setting;  // "sum=tree"
  Recipe recipe;
};
// Every single change of a key with named values that can change a bit of the codec: not the keys
// of native layouts, transforms and random numbers.
std::vector<Variation> variations_of(const Recipe& recipe);

}  // namespace fp4scope
