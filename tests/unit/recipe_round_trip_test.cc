// recipe_round_trip_test.cc: every value of every key over every contract of every format is
// printed and parsed back to the same options, or refused in one sentence; every value is legal
// somewhere.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "sim/recipe.h"
#include "tests/support/required_keys.h"
#include "tests/unit/recipe_support.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

// Keys that have to come with a key for some contract to use it; the first legal one is taken.
const std::map<std::string, std::vector<std::string>> kCompanions = {
    {"scale-arith", {"", ",scale-rule=rceil", ",scale-rule=floor", ",scale-rule=rint-log2"}},
    {"scale-rule", {"", ",dtype=bf16", ",byte0=exact"}},
    {"rcp", {"", ",scale-rule=rceil,scale-arith=rcp", ",div=triton"}},
    {"even-width", {"", ",scale-rule=even"}},
    {"byte0", {"", ",scale-rule=floor"}},
    {"g", {"", ",scale=given"}},
    {"select", {"", ",e4m3max=448", ",scale=none"}},
    {"metric", {"", ",select=mae"}},
    {"score", {",select=mse", ",select=mse,scale=none"}},
    {"sum", {",select=mse"}},
    {"e4m3max", {"", ",select=mse"}},
    {"scale-fmt", {"", ",gran=1x128", ",gran=128x128"}},
    {"rht-signs", {",rht=16"}},
    {"rht-sum", {",rht=32"}},
    {"sr", {",round=sr"}},
    {"sr-stream", {",round=sr"}},
    {"seed", {",round=sr"}},
    {"ties", {"", ",round=rne"}},
};

// A typed value for one of the listed ones.
std::string typed_value(const std::string& value) {
  if (value == "0x<8 hex digits>") return "0x3f812345";
  if (const std::size_t n = value.find("<N>"); n != value.npos) return value.substr(0, n) + "8";
  return value;
}

// `start` with the key and what it needs; empty when no addition makes it legal.
std::string legal_text(const std::string& start, const std::string& key, const std::string& value) {
  const auto companions = kCompanions.find(key);
  const std::vector<std::string> alone{""};
  for (const std::string& with : companions == kCompanions.end() ? alone : companions->second) {
    const std::string text = required_keys(start + "," + key + "=" + value + with);
    if (is_legal(text)) return text;
  }
  return "";
}

}  // namespace

TEST_CASE("every value of every key survives printing and parsing wherever it is legal") {
  std::set<std::string> legal_somewhere, all;
  int legal = 0, refused = 0;
  for (const FormatRow& row : all_formats()) {
    for (const ContractInfo& contract : contracts_of(row.family, row.format.name)) {
      const std::string start =
          std::string(row.format.name) + ":contract=" + std::string(contract.name);
      const Recipe plain = parse_recipe(required_keys(start));
      CHECK(same_bits(parse_recipe(to_string(plain)), plain));
      CHECK(same_bits(parse_recipe(to_full_string(plain)), plain));
      for (const KeyHelp& key : recipe_keys(row.family)) {
        if (key.key == "contract") continue;
        std::set<std::string> full_forms;
        std::size_t values = 0;
        for (const std::string& listed : split(key.values, '|')) {
          const std::string word = std::to_string(static_cast<int>(row.family)) + " " +
                                   std::string(key.key) + "=" + listed;
          all.insert(word);
          const std::string value = typed_value(listed);
          const std::string typed = legal_text(start, std::string(key.key), value);
          if (typed.empty()) {
            ++refused;
            const std::string text = start + "," + std::string(key.key) + "=" + value;
            CHECK(refusal(text).starts_with("recipe \"" + text + "\": "));
            continue;
          }
          CAPTURE(typed);
          const Recipe recipe = parse_recipe(typed);
          const std::string canonical = to_string(recipe), full = to_full_string(recipe);
          CAPTURE(canonical);
          CHECK(same_bits(parse_recipe(canonical), recipe));
          CHECK(same_bits(parse_recipe(full), recipe));
          CHECK(to_string(parse_recipe(full)) == canonical);
          CHECK(to_full_string(parse_recipe(canonical)) == full);
          CHECK(canonical.size() <= full.size());
          full_forms.insert(full);
          legal_somewhere.insert(word);
          ++values;
          ++legal;
        }
        CAPTURE(start);
        CAPTURE(key.key);
        CHECK(full_forms.size() == values);  // no two values of a key mean the same
      }
    }
  }
  CHECK(legal > 0);
  CHECK(refused > 0);
  // Keys of every family (keys_common.cc) that are refused in some.
  const auto id = [](Family family, const char* word) {
    return std::to_string(static_cast<int>(family)) + " " + word;
  };
  std::set<std::string> nowhere;
  for (const Family family :
       {Family::kMx, Family::kHif4, Family::kInt4, Family::kFp8, Family::kPass})
    nowhere.insert(id(family, "sr-stream=te"));
  for (const char* word : {"round=sr", "sr=soft", "sr-stream=index", "seed=<N>"})
    nowhere.insert(id(Family::kPass, word));
  for (const std::string& word : all) {
    CAPTURE(word);
    CHECK(legal_somewhere.contains(word) != nowhere.contains(word));
  }
}
