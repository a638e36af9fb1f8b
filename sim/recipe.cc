// recipe.cc: recipe text to options and back (grammar: spec/scalars.md section 0). The keys are
// rows of the tables in keys_*.cc; nothing here knows a single key but `contract`.
#include "sim/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>

#include "formats/scalars.h"
#include "sim/custom_format.h"
#include "sim/error.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

constexpr FormatRow kFormats[] = {
    {Family::kMx, kMxfp4, "torchao-rceil", "E2M1 elements, one E8M0 scale per 32", "OCP MX v1.0"},
    {Family::kMx, kMxfp6e2m3, "torchao-rceil", "E2M3 elements, one E8M0 scale per 32",
     "OCP MX v1.0"},
    {Family::kMx, kMxfp6e3m2, "torchao-rceil", "E3M2 elements, one E8M0 scale per 32",
     "OCP MX v1.0"},
    {Family::kMx, kMxfp8e4m3, "torchao-rceil", "E4M3 elements, one E8M0 scale per 32",
     "OCP MX v1.0"},
    {Family::kMx, kMxfp8e5m2, "torchao-rceil", "E5M2 elements, one E8M0 scale per 32",
     "OCP MX v1.0"},
    {Family::kMx, kMxint8, "microx-cuda", "8-bit integers of unit 2^-6, one E8M0 scale per 32",
     "OCP MX v1.0"},
    {Family::kMx, kMxint4, "microx-cuda", "4-bit integers of unit 2^-2, one E8M0 scale per 32",
     "microxcaling"},
    {Family::kNvfp4, kNvfp4, "te",
     "E2M1 elements, one UE4M3 scale per 16, one binary32 scale per tensor or row",
     "TransformerEngine"},
    {Family::kNvfp4, kIf4, "fouroversix",
     "E2M1 or INT4 elements per block, one UE4M3 scale per 16, one binary32 scale per tensor",
     "fouroversix"},
    {Family::kNvfp4, kNvint4, "fouroversix",
     "INT4 elements, one UE4M3 scale per 16, one binary32 scale per tensor", "fouroversix"},
    {Family::kHif4, kHif4, "gcc",
     "S1P2 elements, one E6M2 scale per 64, one bit per 8 and one bit per 4",
     "HiFloat4, arXiv 2602.11287"},
    {Family::kInt4, kInt4Group, "ct-rtn", "4-bit integers, one scale per group of 32",
     "compressed-tensors, SkyRL, slime, rtp-llm"},
    {Family::kFp8, kFp8, "te", "E4M3 or E5M2 elements, one scale per tensor, row or block",
     "TransformerEngine, DeepGEMM, SGLang, vLLM and others"},
    {Family::kPass, kBf16Pass, "bf16", "the tensor in BF16, not quantized", "bfloat16"},
};

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

std::optional<std::uint64_t> parse_number(const KeyNumber& number, std::string_view value) {
  if (!value.starts_with(number.prefix)) return std::nullopt;
  value.remove_prefix(number.prefix.size());
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc{} || end != value.data() + value.size()) return std::nullopt;
  if (n < number.least || n > number.most) return std::nullopt;
  return n + number.offset;
}

std::uint64_t parse_value(std::string_view text, const KeyRow& row, const Item& item) {
  std::vector<std::string> legal;
  for (const KeyValue& value : row.values) {
    if (value.name == item.value) return value.code;
    if (!value.is_synonym) legal.emplace_back(value.name);
  }
  const KeyNumber& number = row.number;
  switch (number.form) {
    case KeyNumber::Form::kNone:
      break;
    case KeyNumber::Form::kBits:
      if (const auto bits = parse_bits(item.value)) return *bits;
      fail(text, fmt::format("{}={} is not the bits of a binary32 number, expected 0x and 8 hex "
                             "digits such as 0x3f800000",
                             row.name, item.typed_value));
    case KeyNumber::Form::kDecimal:
      if (const auto n = parse_number(number, item.value)) return *n;
      legal.push_back(
          fmt::format("{}N with N from {} to {}", number.prefix, number.least, number.most));
      break;
  }
  fail_listing(text, fmt::format("key {} has no value \"{}\"", row.name, item.typed_value),
               item.value, Names(legal.begin(), legal.end()));
}

std::string value_text(const KeyRow& row, std::uint64_t code) {
  for (const KeyValue& value : row.values)
    if (value.code == code && !value.is_synonym) return std::string(value.name);
  if (row.number.form == KeyNumber::Form::kBits) return fmt::format("0x{:08x}", code);
  if (row.number.form == KeyNumber::Form::kDecimal)
    return fmt::format("{}{}", row.number.prefix, code - row.number.offset);
  // Only a Recipe that no recipe text stands for gets here, e.g. with stochastic rounding as ties.
  throw Error(ErrorKind::kUsage,
              fmt::format("the value {} of recipe key {} has no name", code, row.name));
}

bool applies(const KeyRow& row, const Recipe& recipe) {
  return row.applies == nullptr || row.applies(recipe);
}
bool has_value(const KeyRow& row, const Recipe& recipe) {
  return applies(row, recipe) && (row.is_given == nullptr || row.is_given(recipe));
}

// The keys of a family in canonical order.
std::vector<KeyRow> rows_of(Family family) {
  const std::span<const KeyRow> own = keys_of(family).rows, common = transform_keys();
  std::vector<KeyRow> rows(own.begin(), own.end());
  rows.insert(rows.end(), common.begin(), common.end());
  return rows;
}

std::string with_items(const Recipe& recipe, const std::vector<std::string>& items) {
  const bool is_custom = !recipe.shape.empty();
  std::string text =
      is_custom ? fmt::format("custom:{}", recipe.shape) : std::string(recipe.format.name);
  if (!items.empty()) text += fmt::format("{}{}", is_custom ? "," : ":", joined(items, ","));
  return text;
}

const FormatRow& row_of(const Recipe& recipe) {
  for (const FormatRow& row : kFormats)
    if (row.format.name == recipe.format.name) return row;
  return kFormats[0];
}

// Format, family and default contract before any key.
Recipe from_format(const FormatRow& row) {
  Recipe recipe;
  recipe.family = row.family;
  recipe.format = row.format;
  recipe.contract = row.default_contract;
  return recipe;
}
// The recipe of a format alone; what to_string compares with.
Recipe start_of(const Recipe& recipe) {
  if (recipe.shape.empty()) return from_format(row_of(recipe));
  return custom_recipe(recipe.shape, recipe.library ? *recipe.library : FormatLibrary{});
}

}  // namespace

std::string normalized(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  return out;
}

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
    case Family::kInt4:
      return int4.ragged;
    case Family::kFp8:
      return fp8.ragged;
    case Family::kPass:
      break;
  }
  return Ragged::kPad;
}

bool Recipe::has_outer() const {
  if (family == Family::kFp8) return fp8.gran.is_tensor() || fp8.gran.is_row();
  return family == Family::kNvfp4;
}
bool Recipe::scales_rows() const {
  if (family == Family::kFp8) return fp8.gran.is_row();
  return family == Family::kNvfp4 && nvfp4.scale == OuterScale::kRow;
}
// A given g decodes with its own reciprocal unless `amax` comes with it, so nothing is measured,
// except for the score of an adaptive choice. A given history replaces the measurement too.
bool Recipe::needs_amax() const {
  if (family == Family::kFp8) return has_outer() && !fp8.has_g && !fp8.has_amax;
  if (family != Family::kNvfp4) return false;
  if (nvfp4.scale == OuterScale::kRow) return true;
  const bool scores_amax = nvfp4.is_adaptive() && nvfp4.metric == Metric::kExact &&
                           nvfp4.score == Score::kAmax && nvfp4.scale == OuterScale::kGiven;
  return !nvfp4.has_amax && (nvfp4.scale == OuterScale::kTensor || scores_amax);
}
bool Recipe::chooses() const {
  return family == Family::kNvfp4 && nvfp4.is_adaptive();
}
bool Recipe::casts_f64_directly() const {
  return family == Family::kMx && !mx.rounds_binary64_first();
}
Rounding Recipe::element_ties() const {
  if (sr.enabled) return Rounding::kStochastic;
  return family == Family::kMx ? mx.ties : family == Family::kHif4 ? hif4.ties : Rounding::kEven;
}
bool Recipe::keeps_nan_elements() const {
  return (family == Family::kHif4 && hif4.nonfinite == Hif4Nonfinite::kElement) ||
         (family == Family::kMx && mx.nan == MxNan::kPass);
}

Recipe parse_recipe(std::string_view typed, std::shared_ptr<const FormatLibrary> library) {
  const std::string_view text = trimmed(typed);
  if (!text.empty() && text.front() == '@')
    fail(typed, "recipe files (@FILE) do not exist in this version");
  if (text.find('+') != std::string_view::npos)
    fail(typed, "further stages after \"+\" do not exist in this version");
  const std::size_t colon = text.find(':');
  const std::string_view name = trimmed(text.substr(0, colon));
  Recipe recipe;
  std::vector<Item> items;
  if (normalized(name) == "custom") {
    // The shape ends at the first comma.
    if (colon == std::string_view::npos)
      fail(typed, "custom: needs a shape such as custom:e2m1/16:e4m3/tensor:f32");
    const std::string_view rest = text.substr(colon + 1);
    const std::size_t comma = rest.find(',');
    const std::string shape = normalized(trimmed(rest.substr(0, comma)));
    try {
      recipe = custom_recipe(shape, library ? *library : FormatLibrary{});
      if (library && uses_library(shape, *library)) recipe.library = std::move(library);
    } catch (const Error& e) {
      fail(typed, e.what());
    }
    if (comma != std::string_view::npos) items = split_items(typed, rest.substr(comma + 1));
  } else {
    recipe = from_format(find_format(typed, name));
    if (colon != std::string_view::npos) items = split_items(typed, text.substr(colon + 1));
  }
  recipe.text = typed;
  const std::string format_name =
      recipe.shape.empty() ? std::string(recipe.format.name) : "custom:" + recipe.shape;

  // The contract decides which keys there are. A user-defined format may take it from another
  // family that its shape allows.
  const auto contract =
      std::find_if(items.begin(), items.end(), [](const Item& i) { return i.key == "contract"; });
  const std::string contract_name = contract != items.end() ? contract->value : recipe.contract;
  if (contract != items.end() && !recipe.shape.empty()) choose_custom_family(recipe, contract_name);
  if (!keys_of(recipe.family).apply_contract(recipe, contract_name)) {
    Names legal;
    const std::vector<ContractInfo> all =
        contracts_of(recipe.family, recipe.shape.empty() ? recipe.format.name : "custom");
    for (const ContractInfo& info : all) legal.push_back(info.name);
    fail_listing(typed,
                 fmt::format("{} has no contract \"{}\"", format_name, contract->typed_value),
                 contract_name, legal);
  }
  if (!recipe.shape.empty()) apply_shape(recipe);

  // Every item gets its row first, so that a key typed twice is seen under all its names.
  const std::vector<KeyRow> rows = rows_of(recipe.family);
  std::vector<const Item*> chosen(rows.size(), nullptr);
  bool has_contract = false;
  for (const Item& item : items) {
    if (item.key == "contract") {
      if (has_contract) fail(typed, "key \"contract\" is given twice");
      has_contract = true;
      continue;
    }
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const KeyRow& r) {
      return r.name == item.key || (!r.alias.empty() && r.alias == item.key);
    });
    if (row == rows.end()) {
      Names legal{"contract"};
      for (const KeyRow& r : rows) legal.push_back(r.name);
      fail_listing(typed, fmt::format("{} has no key \"{}\"", format_name, item.typed_key),
                   item.key, legal);
    }
    const Item*& slot = chosen[static_cast<std::size_t>(row - rows.begin())];
    if (slot != nullptr) fail(typed, fmt::format("key \"{}\" is given twice", row->name));
    slot = &item;
  }
  const auto refuse_unused = [&](const KeyRow& row) {
    if (applies(row, recipe)) return;
    Names legal{"contract"};
    for (const KeyRow& r : rows)
      if (applies(r, recipe)) legal.push_back(r.name);
    fail(typed, fmt::format("key {} ({}) does not go with contract {} and the other keys; "
                            "expected one of {}",
                            row.name, row.meaning, recipe.contract, joined(legal, ", ")));
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (chosen[i] == nullptr) {
      if (rows[i].required && applies(rows[i], recipe))
        fail(typed, fmt::format("key {} is missing: {}", rows[i].name, rows[i].meaning));
      continue;
    }
    refuse_unused(rows[i]);
    rows[i].set(recipe, parse_value(typed, rows[i], *chosen[i]));
  }
  // A key that comes later in the order can leave an earlier one without a use.
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (chosen[i] != nullptr) refuse_unused(rows[i]);
  const FamilyKeys& keys = keys_of(recipe.family);
  keys.check(recipe);
  check_transforms(recipe);
  check_shape(recipe);
  keys.finish(recipe);
  return recipe;
}

std::string to_string(const Recipe& recipe) {
  // What a parser would have before each key; a key is printed where it says something else.
  Recipe known = start_of(recipe);
  const bool is_default = known.contract == recipe.contract && known.family == recipe.family;
  known.family = recipe.family;
  keys_of(known.family).apply_contract(known, recipe.contract);
  if (!known.shape.empty()) apply_shape(known);
  std::vector<std::string> items;
  if (!is_default) items.push_back(fmt::format("contract={}", recipe.contract));
  for (const KeyRow& row : rows_of(recipe.family)) {
    if (!has_value(row, recipe)) continue;
    const std::uint64_t code = row.get(recipe);
    const bool always = row.required || row.is_given != nullptr;
    if (!always && row.get(known) == code) continue;
    items.push_back(fmt::format("{}={}", row.name, value_text(row, code)));
    row.set(known, code);
  }
  return with_items(recipe, items);
}

std::string to_full_string(const Recipe& recipe) {
  std::vector<std::string> items{fmt::format("contract={}", recipe.contract)};
  for (const KeyRow& row : rows_of(recipe.family))
    if (has_value(row, recipe))
      items.push_back(fmt::format("{}={}", row.name, value_text(row, row.get(recipe))));
  return with_items(recipe, items);
}

std::optional<Rcp> rcp_of(const Recipe& recipe) {
  for (const KeyRow& row : rows_of(recipe.family))
    if (row.name == "rcp" && applies(row, recipe)) return static_cast<Rcp>(row.get(recipe));
  return std::nullopt;
}

std::vector<KeyHelp> recipe_keys(Family family) {
  std::vector<std::string> names;
  for (const ContractInfo& info : contracts_of(family, "custom")) names.emplace_back(info.name);
  std::vector<KeyHelp> help{
      {"contract", joined(names, "|"), "the published rules that all other keys start from"}};
  for (const KeyRow& row : rows_of(family)) {
    names.clear();
    for (const KeyValue& value : row.values)
      if (!value.is_synonym) names.emplace_back(value.name);
    if (row.number.form == KeyNumber::Form::kBits) names.emplace_back("0x<8 hex digits>");
    if (row.number.form == KeyNumber::Form::kDecimal)
      names.push_back(fmt::format("{}<N>", row.number.prefix));
    help.push_back({row.name, joined(names, "|"), row.meaning});
  }
  return help;
}

std::vector<ContractInfo> contracts_of(Family family, std::string_view format) {
  std::vector<ContractInfo> list = keys_of(family).contracts(format);
  for (const FormatRow& row : kFormats) {
    if (row.family != family || (row.format.name != format && format != "custom")) continue;
    for (ContractInfo& info : list) info.is_default |= info.name == row.default_contract;
  }
  return list;
}

}  // namespace fp4scope
