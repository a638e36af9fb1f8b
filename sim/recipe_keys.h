// recipe_keys.h: the recipe keys as tables, private to sim: one keys_<family>.cc per family, walked
// by recipe.cc. One row per key with its legal values, how it is read and how it is set. Parsing,
// printing and help walk these tables. Words: spec/mx.md 2.2, spec/nvfp4.md 1, spec/hif4.md 6,
// spec/more.md 1 and 2.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/recipe.h"

namespace fp4scope {

// In keys, values and names '-' and '_' are the same character and case does not matter.
std::string normalized(std::string_view text);

// `code` is the enum value (or the number) that the field holds.
struct KeyValue {
  std::string_view name;
  std::uint64_t code;
  bool is_synonym = false;  // accepted, never printed
};
template <class Enum>
constexpr KeyValue key_value(std::string_view name, Enum code, bool is_synonym = false) {
  return {name, static_cast<std::uint64_t>(code), is_synonym};
}

// Values that keys of several families share.
inline constexpr KeyValue kRcps[] = {key_value("h200", Rcp::kH200), key_value("rn", Rcp::kRn),
                                     key_value("user", Rcp::kUser)};
inline constexpr KeyValue kScalarDivs[] = {key_value("exact", ScalarDiv::kExact),
                                           key_value("rcp", ScalarDiv::kRcp)};
inline constexpr KeyValue kDTypes[] = {key_value("f32", DType16::kF32),
                                       key_value("bf16", DType16::kBf16),
                                       key_value("f16", DType16::kF16)};
inline constexpr KeyValue kNegZeros[] = {key_value("keep", NegZero::kKeep),
                                         key_value("drop", NegZero::kDrop)};
inline constexpr KeyValue kRaggeds[] = {key_value("pad", Ragged::kPad),
                                        key_value("error", Ragged::kError)};
inline constexpr KeyValue kScaleLayouts[] = {key_value("linear", ScaleLayout::kLinear),
                                             key_value("128x4", ScaleLayout::k128x4),
                                             key_value("8x4", ScaleLayout::k8x4)};

// Values beyond the named ones.
struct KeyNumber {
  enum class Form : std::uint8_t {
    kNone,     // the names are all there is
    kBits,     // the bits of a binary32 number, 0x and 8 hex digits
    kDecimal,  // `prefix` and a decimal number from least to most; the code is number + offset
  };
  Form form = Form::kNone;
  std::string_view prefix = "";
  std::uint64_t least = 0, most = 0, offset = 0;
};
inline constexpr KeyNumber kBinary32Bits{KeyNumber::Form::kBits};

struct KeyRow {
  std::string_view name;
  std::span<const KeyValue> values = {};
  std::uint64_t (*get)(const Recipe&);
  void (*set)(Recipe&, std::uint64_t);
  std::string_view meaning;
  std::string_view alias = "";  // another accepted name of the key
  KeyNumber number = {};
  // Whether the key goes with the contract and the keys before it; null: always. A key that does
  // not is refused when typed and not printed.
  bool (*applies)(const Recipe&) = nullptr;
  // For keys without a default value: whether there is one to print. A key that applies and is
  // `required` must be typed.
  bool (*is_given)(const Recipe&) = nullptr;
  bool required = false;
};

// Reader and writer of one field, e.g. get_field<&Recipe::mx, &MxOptions::top>.
template <auto Part, auto Field>
std::uint64_t get_field(const Recipe& r) {
  return static_cast<std::uint64_t>((r.*Part).*Field);
}
template <auto Part, auto Field>
void set_field(Recipe& r, std::uint64_t code) {
  auto& field = (r.*Part).*Field;
  field = static_cast<std::remove_reference_t<decltype(field)>>(code);
}
#define FP4SCOPE_KEY_FIELD(part, type, field) \
  get_field<&Recipe::part, &type::field>, set_field<&Recipe::part, &type::field>

// What a family knows about its recipes.
struct FamilyKeys {
  // Keys in canonical order. A key whose setter changes the default of another key comes before
  // it; parse_recipe sets keys in this order, not in the typed one.
  std::span<const KeyRow> rows;
  // Sets all fields from a contract row of the recipe's format (name or alias); false when there is
  // none.
  bool (*apply_contract)(Recipe&, std::string_view name);
  std::vector<ContractInfo> (*contracts)(std::string_view format);
  // Puts what the keys say into Recipe::format. Called once after all keys are set.
  void (*finish)(Recipe&);
  // Throws Error(kUsage) where keys contradict each other.
  void (*check)(const Recipe&);
};
const FamilyKeys& mx_keys();
const FamilyKeys& nvfp4_keys();
const FamilyKeys& hif4_keys();
const FamilyKeys& int4_keys();
const FamilyKeys& fp8_keys();
const FamilyKeys& pass_keys();
const FamilyKeys& keys_of(Family family);

// Keys of every family: rht, rht-signs, rht-sum, round, sr, sr-stream, seed (keys_common.cc). They
// come after the family's own.
std::span<const KeyRow> transform_keys();
void check_transforms(const Recipe& recipe);

// "recipe "...": what" as Error(kUsage).
[[noreturn]] void contradiction(const Recipe& recipe, const std::string& what);

template <class Options, std::size_t N>
bool take_contract(const Contract<Options> (&rows)[N], std::string_view name, Recipe& recipe,
                   Options& options) {
  const std::string_view format = recipe.shape.empty() ? recipe.format.name : "custom";
  for (const auto& row : rows) {
    if ((row.name != name && (row.alias.empty() || row.alias != name)) ||
        !applies_to(row, format)) {
      continue;
    }
    recipe.contract = row.name;
    recipe.source_refuses_ragged = row.source_ragged == Ragged::kError;
    recipe.note = row.note;
    recipe.native = row.native;
    options = row.options;
    return true;
  }
  return false;
}
// Each name once: a user-defined format also sees contracts that have a row per format.
template <class Options, std::size_t N>
std::vector<ContractInfo> list_contracts(const Contract<Options> (&rows)[N],
                                         std::string_view format) {
  std::vector<ContractInfo> list;
  for (const auto& row : rows) {
    const auto same = [&](const ContractInfo& other) { return other.name == row.name; };
    if (!applies_to(row, format) || std::any_of(list.begin(), list.end(), same)) continue;
    list.push_back(
        {row.name, row.source, row.vectors, row.evidence, false, row.alias, row.note, row.formats});
  }
  return list;
}

}  // namespace fp4scope
