// explains.h: whether a recipe is in the set that identify found to explain everything.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

#include "analysis/compare/identify.h"
#include "sim/error.h"

namespace fp4scope::test {

// The recipe `text` with `key` set to `value`, in the place where it has the key; "" where that is
// no recipe.
inline std::string with_key(const std::string& text, const std::string& key,
                            const std::string& value) {
  std::string out;
  std::size_t at = text.find(':');
  out = text.substr(0, at);
  char separator = ':';
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(',', at + 1), text.size());
    const std::string setting = text.substr(at + 1, end - at - 1);
    if (!setting.starts_with(key + "=")) {
      out += separator + setting;
      separator = ',';
    }
    at = end;
  }
  out += separator + key + "=" + value;
  try {
    return to_full_string(parse_recipe(out));
  } catch (const Error&) {
    return "";
  }
}

// As itself, in `also`, or one of the settings without effect away from one of these.
inline bool explains(const ExplainingRecipe& e, const Recipe& recipe) {
  const std::string want = to_full_string(recipe);
  std::vector<std::string> texts = e.also;
  texts.insert(texts.begin(), to_string(e.recipe));
  for (const std::string& text : texts) {
    if (to_full_string(parse_recipe(text)) == want) return true;
    for (const std::string& setting : e.without_effect) {
      const std::size_t equals = setting.find('=');
      const std::string key = setting.substr(0, equals), values = setting.substr(equals + 1);
      for (std::size_t at = 0; at <= values.size();) {
        const std::size_t bar = std::min(values.find('|', at), values.size());
        if (with_key(text, key, values.substr(at, bar - at)) == want) return true;
        at = bar + 1;
      }
    }
  }
  return false;
}
inline bool explains(const IdentifyResult& result, const Recipe& recipe) {
  return std::any_of(result.explaining.begin(), result.explaining.end(),
                     [&](const ExplainingRecipe& e) { return explains(e, recipe); });
}

}  // namespace fp4scope::test
