// recipe_keys.h: the recipe keys as a table, private to sim/recipe.cc. One row per key and family
// with its legal values, how it is read and how it is set. Parsing, printing and help walk this
// table. Words: spec/mx.md 2.2, spec/nvfp4.md 1, spec/hif4.md 6.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "sim/recipe.h"

namespace fp4scope {

// `code` is the enum value (or the number) that the field holds.
struct KeyValue {
  std::string_view name;
  std::uint32_t code;
  bool is_synonym = false;  // accepted, never printed
};

struct KeyRow {
  std::string_view name;
  std::span<const KeyValue> values;  // empty: the bits of a binary32 number, 0x and 8 hex digits
  std::uint32_t (*get)(const Recipe&);
  void (*set)(Recipe&, std::uint32_t);
  std::string_view meaning;
  std::string_view alias = "";                // another accepted name of the key
  bool (*is_given)(const Recipe&) = nullptr;  // for bits: whether there is a value to print
  bool is_bits() const { return values.empty(); }
};

// Keys of a family in canonical order. A key whose setter changes the default of another key comes
// before it; parse_recipe sets keys in this order, not in the typed one.
std::span<const KeyRow> key_rows(Family family);

// Name of the default contract.
std::string_view default_contract(Family family);
// Sets all fields from a contract row; false when there is none of that name.
bool apply_contract(Recipe& recipe, std::string_view name);
// Throws Error(kUsage) where keys contradict each other.
void check_combination(const Recipe& recipe);

}  // namespace fp4scope
