// recipe.h: a recipe is every choice that can change a bit, and nothing else, as one string
// `format[:key=value,...]` (grammar and words: spec/scalars.md section 0). This header is data and
// text; the arithmetic is in formats/codecs and, independently, in sim/oracle.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/contracts/options.h"
#include "formats/spec.h"

namespace fp4scope {

enum class Family : std::uint8_t { kMx, kNvfp4, kHif4 };

// A format that recipes can name.
struct FormatRow {
  Family family;
  BlockFormat format;
  std::string_view summary;
  std::string_view source;
};
std::span<const FormatRow> all_formats();

struct Recipe {
  std::string text;      // what the user typed
  std::string contract;  // name of the contract row it started from
  Family family = Family::kMx;
  BlockFormat format{};  // geometry; the element of hif4:width=3|5 is already substituted
  MxOptions mx{};        // meaningful for kMx
  Nvfp4Options nvfp4{};  // meaningful for kNvfp4
  Hif4Options hif4{};    // meaningful for kHif4

  Ragged ragged() const;
  // The contract's source refuses a row length that is no multiple of the block.
  bool source_refuses_ragged = false;
  // The tensor amax (or row amax) has to be measured before the first block is quantized.
  bool needs_amax() const;
  // One outer scale per row.
  bool scales_rows() const { return family == Family::kNvfp4 && nvfp4.scale == OuterScale::kRow; }
  bool is_2d() const { return family == Family::kNvfp4 && nvfp4.block == BlockShape::k2d; }
  // Whether binary64 input is cast directly (scales are powers of two) or rounded to binary32
  // first (spec/scalars.md section 7).
  bool casts_f64_directly() const { return family == Family::kMx; }
  // Four-bit elements are packed two to a byte, wider ones take a byte each.
  bool packs_nibbles() const { return format.element.storage_bits() <= 4; }
};

// Throws Error(kUsage) with the legal keys or values.
Recipe parse_recipe(std::string_view text);
// Canonical form: fixed key order, defaults omitted. parse_recipe(to_string(r)) gives r again.
std::string to_string(const Recipe& recipe);
// Every key of the format with its value, in fixed order.
std::string to_full_string(const Recipe& recipe);

struct KeyHelp {
  std::string_view key;
  std::string values;  // legal values, separated by |
  std::string_view meaning;
};
std::vector<KeyHelp> recipe_keys(Family family);
struct ContractInfo {
  std::string_view name, source, vectors;
  Evidence evidence;
  bool is_default;
};
std::vector<ContractInfo> contracts_of(Family family);

}  // namespace fp4scope
