// catalog.h: the recipes that a result may be a recipe of: every published contract of every named
// format, crossed with the settings that change its arithmetic. Legality is what the parser says,
// so nothing here repeats which stack has which key (sim/keys_*.cc).
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/recipe.h"

namespace fp4scope {

// Choices of one setting: pieces of recipe text such as "select=mse" or "select=mse,sum=tree". An
// empty piece leaves the contract's own setting.
using KeyChoices = std::vector<std::string>;

// Every contract of a named format with one choice from each list, wherever that is legal; the keys
// that a contract requires (scale=given with g) are added where the choices leave them out. Each
// recipe occurs once, compared by to_full_string(), in the order of the contracts.
std::vector<Recipe> recipes_of(Family family, std::string_view format,
                               std::span<const KeyChoices> lists);

// Adds those of `more` whose full text is not there yet.
void append_new(std::vector<Recipe>& list, std::vector<Recipe> more);

// Every contract of every named format, and the settings of NVFP4 that stacks really differ in:
// kind of outer scale and its rule, block shape, selection with metric, score, sum and ceiling,
// scalar-div and ftz. About 390 recipes. Built once.
const std::vector<Recipe>& contract_catalog();

}  // namespace fp4scope
