// recipe.cc: recipe text to options and back (grammar: spec/scalars.md section 0). The keys are
// rows of a table in recipe_keys.cc; nothing here knows a single key but `contract`.
#include "sim/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "formats/scalars.h"
#include "sim/error.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

constexpr FormatRow kFormats[] = {
    {Family::kMx, kMxfp4, "E2M1 elements, one E8M0 scale per 32", "OCP MX v1.0"},
    {Family::kMx, kMxfp6e2m3, "E2M3 elements, one E8M0 scale per 32", "OCP MX v1.0"},
    {Family::kMx, kMxfp6e3m2, "E3M2 elements, one E8M0 scale per 32", "OCP MX v1.0"},
    {Family::kMx, kMxfp8e4m3, "E4M3 elements, one E8M0 scale per 32", "OCP MX v1.0"},
    {Family::kMx, kMxfp8e5m2, "E5M2 elements, one E8M0 scale per 32", "OCP MX v1.0"},
    {Family::kNvfp4, kNvfp4,
     "E2M1 elements, one UE4M3 scale per 16, one binary32 scale per tensor or row",
     "TransformerEngine"},
    {Family::kHif4, kHif4, "S1P2 elements, one E6M2 scale per 64, one bit per 8 and one bit per 4",
     "HiFloat4, arXiv 2602.11287"},
};

// In keys and values '-' and '_' are the same character and case does not matter.
std::string normalized(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  const std::string_view blank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

// Least number of inserted, removed or replaced characters.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

using Names = std::vector<std::string_view>;

template <class Strings>
std::string joined(const Strings& parts, std::string_view separator) {
  std::string out;
  for (const auto& part : parts) {
    if (&part != parts.data()) out += separator;
    out += part;
  }
  return out;
}

[[noreturn]] void fail(std::string_view text, const std::string& what) {
  throw Error(ErrorKind::kUsage, fmt::format("recipe \"{}\": {}", text, what));
}

// "..., expected one of a, b, c" and, for a likely slip of the pen, "did you mean b?". At most two
// edits and fewer than half of the word, so that short words do not match everything.
[[noreturn]] void fail_listing(std::string_view text, const std::string& what,
                               std::string_view found, const Names& legal) {
  std::string_view best;
  std::size_t best_distance = 3;
  for (const std::string_view name : legal) {
    const std::size_t distance = edit_distance(found, name);
    if (distance < best_distance && 2 * distance < name.size())
      best = name, best_distance = distance;
  }
  std::string message = fmt::format("{}; expected {}{}", what, legal.size() == 1 ? "" : "one of ",
                                    joined(legal, ", "));
  if (!best.empty()) message += fmt::format("; did you mean \"{}\"?", best);
  fail(text, message);
}

const FormatRow& find_format(std::string_view text, std::string_view name) {
  const std::string wanted = normalized(name);
  Names legal;
  for (const FormatRow& row : kFormats) {
    if (row.format.name == wanted) return row;
    legal.push_back(row.format.name);
  }
  if (name.empty()) fail_listing(text, "the format is missing", "", legal);
  if (wanted == "custom") fail(text, "user-defined formats (custom:) do not exist in this version");
  fail_listing(text, fmt::format("unknown format \"{}\"", name), wanted, legal);
}

struct Item {
  std::string key, value;  // normalized
  std::string_view typed_key, typed_value;
};

std::vector<Item> split_items(std::string_view text, std::string_view list) {
  std::vector<Item> items;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view item = trimmed(list.substr(0, comma));
    if (item.empty()) fail(text, "an item is empty, expected key=value");
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      fail(text, fmt::format("\"{}\" has no value, expected key=value", item));
    const std::string_view key = trimmed(item.substr(0, equals));
    const std::string_view value = trimmed(item.substr(equals + 1));
    if (key.empty()) fail(text, fmt::format("\"{}\" has no key, expected key=value", item));
    if (value.empty()) fail(text, fmt::format("key \"{}\" has no value, expected key=value", key));
    if (value.find_first_of("=:") != std::string_view::npos || key.find(':') != key.npos)
      fail(text, fmt::format("\"{}\" is not one key=value; items are separated by commas", item));
    items.push_back({normalized(key), normalized(value), key, value});
    if (comma == std::string_view::npos) return items;
    list.remove_prefix(comma + 1);
  }
}

std::optional<std::uint32_t> parse_bits(std::string_view value) {
  if (value.size() != 10 || value.substr(0, 2) != "0x") return std::nullopt;
  std::uint32_t bits = 0;
  for (const char c : value.substr(2)) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    bits = bits << 4 | static_cast<std::uint32_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return bits;
}

std::uint32_t parse_value(std::string_view text, const KeyRow& row, const Item& item) {
  if (row.is_bits()) {
    if (const auto bits = parse_bits(item.value)) return *bits;
    fail(text, fmt::format("{}={} is not the bits of a binary32 number, expected 0x and 8 hex "
                           "digits such as 0x3f800000",
                           row.name, item.typed_value));
  }
  Names legal;
  for (const KeyValue& value : row.values) {
    if (value.name == item.value) return value.code;
    if (!value.is_synonym) legal.push_back(value.name);
  }
  fail_listing(text, fmt::format("key {} has no value \"{}\"", row.name, item.typed_value),
               item.value, legal);
}

std::string value_text(const KeyRow& row, std::uint32_t code) {
  if (row.is_bits()) return fmt::format("0x{:08x}", code);
  for (const KeyValue& value : row.values)
    if (value.code == code && !value.is_synonym) return std::string(value.name);
  // Only a Recipe that no recipe text stands for gets here, e.g. with stochastic rounding.
  throw Error(ErrorKind::kUsage,
              fmt::format("the value {} of recipe key {} has no name", code, row.name));
}

bool has_value(const KeyRow& row, const Recipe& recipe) {
  return row.is_given == nullptr || row.is_given(recipe);
}

std::string with_items(const Recipe& recipe, const std::vector<std::string>& items) {
  std::string text(recipe.format.name);
  if (!items.empty()) text += fmt::format(":{}", joined(items, ","));
  return text;
}

Recipe from_format(const FormatRow& row) {
  Recipe recipe;
  recipe.family = row.family;
  recipe.format = row.format;
  return recipe;
}

}  // namespace

std::span<const FormatRow> all_formats() {
  return kFormats;
}

Ragged Recipe::ragged() const {
  switch (family) {
    case Family::kMx:
      return mx.ragged;
    case Family::kNvfp4:
      return nvfp4.ragged;
    case Family::kHif4:
      return hif4.ragged;
  }
  return Ragged::kPad;
}

// A given g decodes with its own reciprocal unless `amax` comes with it, so nothing is measured.
bool Recipe::needs_amax() const {
  if (family != Family::kNvfp4) return false;
  return nvfp4.scale == OuterScale::kRow || (nvfp4.scale == OuterScale::kTensor && !nvfp4.has_amax);
}

Recipe parse_recipe(std::string_view typed) {
  const std::string_view text = trimmed(typed);
  if (!text.empty() && text.front() == '@')
    fail(typed, "recipe files (@FILE) do not exist in this version");
  if (text.find('+') != std::string_view::npos)
    fail(typed, "further stages after \"+\" do not exist in this version");
  const std::size_t colon = text.find(':');
  Recipe recipe = from_format(find_format(typed, trimmed(text.substr(0, colon))));
  recipe.text = typed;
  std::vector<Item> items;
  if (colon != std::string_view::npos) items = split_items(typed, text.substr(colon + 1));

  // Every item gets its row first, so that a key typed twice is seen under all its names.
  const std::span<const KeyRow> rows = key_rows(recipe.family);
  std::vector<const Item*> chosen(rows.size(), nullptr);
  const Item* contract = nullptr;
  for (const Item& item : items) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const KeyRow& r) {
      return r.name == item.key || (!r.alias.empty() && r.alias == item.key);
    });
    if (row == rows.end() && item.key != "contract") {
      Names legal{"contract"};
      for (const KeyRow& r : rows) legal.push_back(r.name);
      fail_listing(typed, fmt::format("{} has no key \"{}\"", recipe.format.name, item.typed_key),
                   item.key, legal);
    }
    const Item*& slot = row == rows.end() ? contract : chosen[row - rows.begin()];
    if (slot != nullptr)
      fail(typed,
           fmt::format("key \"{}\" is given twice", row == rows.end() ? "contract" : row->name));
    slot = &item;
  }

  const std::string contract_name =
      contract ? contract->value : std::string(default_contract(recipe.family));
  if (!apply_contract(recipe, contract_name)) {
    Names legal;
    for (const ContractInfo& info : contracts_of(recipe.family)) legal.push_back(info.name);
    fail_listing(
        typed, fmt::format("{} has no contract \"{}\"", recipe.format.name, contract->typed_value),
        contract_name, legal);
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (chosen[i] != nullptr) rows[i].set(recipe, parse_value(typed, rows[i], *chosen[i]));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // The bit-valued keys go with one value of another key.
    if (!rows[i].is_bits()) continue;
    if (has_value(rows[i], recipe) && chosen[i] == nullptr)
      fail(typed, fmt::format("key {} is missing: {}", rows[i].name, rows[i].meaning));
    if (!has_value(rows[i], recipe) && chosen[i] != nullptr)
      fail(typed, fmt::format("key {} does not apply here: {}", rows[i].name, rows[i].meaning));
  }
  check_combination(recipe);
  return recipe;
}

std::string to_string(const Recipe& recipe) {
  // What a parser would have before each key; a key is printed where it says something else.
  Recipe known = recipe;
  for (const FormatRow& row : kFormats)
    if (row.format.name == recipe.format.name) known.format = row.format;
  apply_contract(known, recipe.contract);
  std::vector<std::string> items;
  if (recipe.contract != default_contract(recipe.family))
    items.push_back(fmt::format("contract={}", recipe.contract));
  for (const KeyRow& row : key_rows(recipe.family)) {
    const std::uint32_t code = row.get(recipe);
    if (!has_value(row, recipe) || (!row.is_bits() && row.get(known) == code)) continue;
    items.push_back(fmt::format("{}={}", row.name, value_text(row, code)));
    row.set(known, code);
  }
  return with_items(recipe, items);
}

std::string to_full_string(const Recipe& recipe) {
  std::vector<std::string> items{fmt::format("contract={}", recipe.contract)};
  for (const KeyRow& row : key_rows(recipe.family))
    if (has_value(row, recipe))
      items.push_back(fmt::format("{}={}", row.name, value_text(row, row.get(recipe))));
  return with_items(recipe, items);
}

std::vector<KeyHelp> recipe_keys(Family family) {
  std::vector<std::string_view> names;
  for (const ContractInfo& info : contracts_of(family)) names.push_back(info.name);
  std::vector<KeyHelp> help{
      {"contract", joined(names, "|"), "the published rules that all other keys start from"}};
  for (const KeyRow& row : key_rows(family)) {
    names.clear();
    for (const KeyValue& value : row.values)
      if (!value.is_synonym) names.push_back(value.name);
    if (row.is_bits()) names.push_back("0x<8 hex digits>");
    help.push_back({row.name, joined(names, "|"), row.meaning});
  }
  return help;
}

}  // namespace fp4scope
