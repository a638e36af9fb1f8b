// recipe_vectors_test.cc: every recipe string of ../shared/vectors, of data/golden and of the table
// in vectors/README.md parses, and says the same after printing.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/paths.h"
#include "tests/unit/recipe_support.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

bool starts_like_recipe(std::string_view text) {
  for (const FormatRow& row : all_formats()) {
    const std::string_view name = row.format.name;
    if (text.starts_with(name) && text.size() > name.size() && text[name.size()] == ':')
      return true;
  }
  return false;
}

// Strings and keys of a JSON value that look like recipes.
void collect(const nlohmann::json& value, std::set<std::string>& recipes) {
  if (value.is_string() && starts_like_recipe(value.get<std::string>()))
    recipes.insert(value.get<std::string>());
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      if (starts_like_recipe(key)) recipes.insert(key);
      collect(inner, recipes);
    }
  } else if (value.is_array()) {
    for (const auto& inner : value) collect(inner, recipes);
  }
}
std::set<std::string> recipes_below(const std::filesystem::path& folder) {
  std::set<std::string> recipes;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream in(entry.path());
    collect(nlohmann::json::parse(in), recipes);
  }
  return recipes;
}

// Parses a recipe; the stages after "+" (spec/resq.md) are refused by name in this version.
void check_recipe(const std::string& text) {
  CAPTURE(text);
  const std::size_t plus = text.find('+');
  if (plus != std::string::npos) {
    CHECK(refusal(text).find("stages after \"+\" do not exist") != std::string::npos);
  }
  const std::string first = text.substr(0, plus);
  const std::string message = refusal(first);
  CHECK(message == "");
  if (!message.empty()) return;
  const Recipe recipe = parse_recipe(first);
  CHECK(same_bits(parse_recipe(to_string(recipe)), recipe));
  CHECK(same_bits(parse_recipe(to_full_string(recipe)), recipe));
}

// `a|b:contract=x-c|d` in a table of Markdown, where '|' is written "\|": all combinations, with
// x-d for a d without a prefix of its own.
void expand(const std::string& text, std::set<std::string>& recipes) {
  const std::size_t bar = text.find("\\|");
  if (bar == std::string::npos) {
    if (starts_like_recipe(text)) recipes.insert(text);
    return;
  }
  const std::size_t first = text.find_last_of(":=,", bar) + 1;  // npos + 1 is 0
  const std::size_t last = std::min(text.find_first_of(":,", bar), text.size());
  std::string group = text.substr(first, last - first), prefix;
  while (!group.empty()) {
    const std::size_t end = std::min(group.find("\\|"), group.size());
    std::string word = group.substr(0, end);
    if (const std::size_t dash = word.rfind('-'); dash != std::string::npos)
      prefix = word.substr(0, dash + 1);
    else
      word = prefix + word;
    expand(text.substr(0, first) + word + text.substr(last), recipes);
    group.erase(0, end + 2);
  }
}

}  // namespace

TEST_CASE("every recipe of the committed vectors parses") {
  const std::set<std::string> recipes = recipes_below(data_dir() / "golden");
  CHECK(recipes.size() > 300);
  for (const std::string& text : recipes) check_recipe(text);
}

TEST_CASE("every recipe of the shared vectors and of their README parses") {
  if (!have_shared("vectors")) return;
  const std::filesystem::path folder = shared_dir() / "vectors";
  const std::set<std::string> recipes = recipes_below(folder);
  CHECK(recipes.size() > 300);
  for (const std::string& text : recipes) check_recipe(text);

  std::ifstream in(folder / "README.md");
  const std::string readme{std::istreambuf_iterator<char>(in), {}};
  std::set<std::string> named;
  for (const std::string& piece : split(readme, '`')) {
    if (piece.find('\n') == std::string::npos && piece.find("...") == std::string::npos)
      expand(piece, named);
  }
  CHECK(named.size() >= 20);
  for (const std::string& text : named) check_recipe(text);
}
