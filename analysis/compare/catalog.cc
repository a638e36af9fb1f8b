// catalog.cc: see the header.
#include "analysis/compare/catalog.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "sim/error.h"

namespace fp4scope {
namespace {

std::optional<Recipe> parsed(const std::string& text) {
  try {
    return parse_recipe(text);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;
    return std::nullopt;
  }
}

// With a scale from outside where the contract takes it as an argument: 1/64 as a decode scale.
std::optional<Recipe> with_required_keys(const std::string& text) {
  for (const char* keys : {"", ",g=0x3c800000", ",scale=given,g=0x3c800000"}) {
    if (auto recipe = parsed(text + keys)) return recipe;
  }
  return std::nullopt;
}

// Calls body(text) for `text` with each combination of one choice from every list.
template <class Body>
void for_each_combination(const std::string& text, std::span<const KeyChoices> lists,
                          const Body& body) {
  if (lists.empty()) {
    body(text);
    return;
  }
  for (const std::string& choice : lists.front()) {
    for_each_combination(choice.empty() ? text : text + "," + choice, lists.subspan(1), body);
  }
}

std::vector<Recipe> nvfp4_catalog(std::string_view format) {
  const KeyChoices single = {"",
                             "scale=row",
                             "scale=none",
                             "block=2d",
                             "select=static4",
                             "e4m3max=256",
                             "g-rule=rcp-mul",
                             "g-rule=inv-div",
                             "g-rule=inv-mul",
                             "g-rule=div-unguarded",
                             "scalar-div=rcp",
                             "ftz=on",
                             "ftz=off"};
  const KeyChoices select = {"select=mse", "select=mae", "select=absmax"};
  const KeyChoices with_select = {
      "",         "metric=fast", "score=amax",     "score=decode",     "sum=seq",     "sum=halves",
      "sum=tree", "sum=fma",     "scale=row",      "scale=none",       "e4m3max=448", "e4m3max=256",
      "block=2d", "ftz=off",     "scalar-div=rcp", "scale=row,ftz=off"};
  std::vector<Recipe> list = recipes_of(Family::kNvfp4, format, std::vector<KeyChoices>{single});
  append_new(list,
             recipes_of(Family::kNvfp4, format, std::vector<KeyChoices>{select, with_select}));
  return list;
}

}  // namespace

std::vector<Recipe> recipes_of(Family family, std::string_view format,
                               std::span<const KeyChoices> lists) {
  std::vector<Recipe> list;
  std::unordered_set<std::string> seen;
  for (const ContractInfo& contract : contracts_of(family, format)) {
    const std::string base = std::string(format) + ":contract=" + std::string(contract.name);
    for_each_combination(base, lists, [&](const std::string& text) {
      std::optional<Recipe> recipe = with_required_keys(text);
      if (recipe && seen.insert(to_full_string(*recipe)).second) list.push_back(std::move(*recipe));
    });
  }
  return list;
}

void append_new(std::vector<Recipe>& list, std::vector<Recipe> more) {
  std::unordered_set<std::string> seen;
  for (const Recipe& recipe : list) seen.insert(to_full_string(recipe));
  for (Recipe& recipe : more) {
    if (seen.insert(to_full_string(recipe)).second) list.push_back(std::move(recipe));
  }
}

const std::vector<Recipe>& contract_catalog() {
  static const std::vector<Recipe> catalog = [] {
    std::vector<Recipe> list;
    for (const FormatRow& row : all_formats()) {
      append_new(list, row.family == Family::kNvfp4 ? nvfp4_catalog(row.format.name)
                                                    : recipes_of(row.family, row.format.name, {}));
    }
    return list;
  }();
  return catalog;
}

}  // namespace fp4scope
