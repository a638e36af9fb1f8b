// candidates.cc: see candidates.h.
#include "analysis/compare/candidates.h"

#include <algorithm>
#include <array>
#include <set>

#include "analysis/compare/catalog.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

std::vector<KeyChoices> choices_of(Family family) {
  switch (family) {
    case Family::kMx:
      return {{"", "ties=even", "ties=away", "ties=trunc"},
              {"", "block=2d", "block=8", "block=16", "block=64", "block=128", "block=256"}};
    case Family::kNvfp4:
      return {{"", "scale=tensor", "scale=row", "scale=none"},
              {"", "select=static4", "select=mse", "select=mae", "select=absmax",
               "select=mse,metric=fast", "select=mae,metric=fast", "select=mse,score=decode",
               "select=mae,score=decode", "select=mse,score=amax", "select=mae,score=amax"},
              {"", "block=2d"},
              {"", "e4m3max=256", "e4m3max=448"}};
    case Family::kHif4:
      return {{"", "width=3", "width=5"}, {"", "geometry=64x64"}};
    case Family::kInt4:
      return {{"", "group=16", "group=32", "group=64", "group=128"},
              {"", "dtype=bf16", "dtype=f16", "dtype=f32"}};
    case Family::kFp8:
      return {{"", "gran=tensor", "gran=row", "gran=32", "gran=64", "gran=128", "gran=128x128"},
              {"", "scale-fmt=f32", "scale-fmt=ue8m0", "scale-fmt=pow2"},
              {"", "elem=e5m2"}};
    case Family::kPass:
      break;
  }
  return {};
}

// Keys whose values are orders of bytes, transforms, random numbers or files.
bool is_no_variation(std::string_view key) {
  constexpr std::string_view kKeys[] = {"contract", "nibbles",   "layout",    "bits",    "carrier",
                                        "pack",     "rht",       "rht-signs", "rht-sum", "round",
                                        "sr",       "sr-stream", "seed",      "ragged",  "tail"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

// The text with `key` set to `value`, in the place where it has the key.
std::string with_setting(const std::string& text, const std::string& key,
                         const std::string& value) {
  for (const char before : {':', ','}) {
    const std::size_t at = text.find(before + key + '=');
    if (at == std::string::npos) continue;
    const std::size_t from = at + 2 + key.size();
    const std::size_t to = std::min(text.find(',', from), text.size());
    return text.substr(0, from) + value + text.substr(to);
  }
  return text + (text.find(':') == std::string::npos ? ":" : ",") + key + '=' + value;
}

}  // namespace

const std::vector<Recipe>& candidate_recipes() {
  static const std::vector<Recipe> kList = [] {
    std::vector<Recipe> list;
    for (const FormatRow& row : all_formats()) {
      append_new(list, recipes_of(row.family, row.format.name, choices_of(row.family)));
    }
    append_new(list, contract_catalog());
    return list;
  }();
  return kList;
}

std::vector<Variation> variations_of(const Recipe& recipe) {
  std::vector<Variation> list;
  const std::string base = to_string(recipe);
  std::set<std::string> seen{to_full_string(recipe)};
  for (const KeyHelp& key : recipe_keys(recipe.family)) {
    if (is_no_variation(key.key)) continue;
    std::size_t at = 0;
    while (at <= key.values.size()) {
      const std::size_t bar = std::min(key.values.find('|', at), key.values.size());
      const std::string value = key.values.substr(at, bar - at);
      at = bar + 1;
      if (value.empty() || value.find('<') != std::string::npos || value == "user" ||
          value == "given") {
        continue;
      }
      const std::string setting = std::string(key.key) + "=" + value;
      const std::string text = with_setting(base, std::string(key.key), value);
      try {
        Recipe varied = parse_recipe(text, recipe.library);
        varied.user_rcp = recipe.user_rcp;
        if (!seen.insert(to_full_string(varied)).second) continue;
        list.push_back({setting, std::move(varied)});
      } catch (const Error&) {  // not a setting of this contract
      }
    }
  }
  return list;
}

}  // namespace fp4scope
