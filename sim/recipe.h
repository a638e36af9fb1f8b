// recipe.h: a recipe is every choice that can change a bit, and nothing else, as one string
// `format[:key=value,...]` (grammar and words: spec/scalars.md section 0), or
// `custom:SHAPE[,key=value,...]` for a user-defined format (sim/custom_format.h). This header is
// data and text; the arithmetic is in formats/codecs and, independently, in sim/oracle.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/contracts/options.h"
#include "formats/spec.h"

namespace fp4scope {

// Formats that share a codec text, contracts and keys.
enum class Family : std::uint8_t {
  kMx,     // power-of-two block scales
  kNvfp4,  // minifloat block scales, with or without an outer scale
  kHif4,   // a minifloat scale and one-bit levels below it
  kInt4,   // integer elements, group scales
  kFp8,    // minifloat elements, binary32 or power-of-two scales
  kPass    // bf16: nothing but a rounding to BF16
};

// A format that recipes can name.
struct FormatRow {
  Family family;
  BlockFormat format;
  std::string_view default_contract;
  std::string_view summary;
  std::string_view source;
};
std::span<const FormatRow> all_formats();

struct RcpTable;       // sim/rcp_table.h
struct FormatLibrary;  // sim/custom_format.h

struct Recipe {
  std::string text;      // what the user typed
  std::string contract;  // name of the contract row it started from
  Family family = Family::kMx;
  // Geometry. What keys and contracts change in it (element of hif4:width=5, group of int4) is
  // already substituted.
  BlockFormat format{};
  std::string shape;     // of a user-defined format, "e2m1/16:e4m3/tensor:f32"; otherwise empty
  MxOptions mx{};        // meaningful for kMx
  Nvfp4Options nvfp4{};  // for kNvfp4
  Hif4Options hif4{};    // for kHif4
  Int4Options int4{};    // for kInt4
  Fp8Options fp8{};      // for kFp8
  RhtOptions rht{};
  SrOptions sr{};
  NativeLayout native{};  // acts on native layouts only
  // The file of --rcp-table with rcp=user; not part of the text.
  std::shared_ptr<const RcpTable> user_rcp{};
  // A table of values of a user-defined format, and where its names come from; kept alive here.
  std::shared_ptr<const Lut> lut{};
  std::shared_ptr<const FormatLibrary> library{};

  // The contract's source refuses a row length that is no multiple of the block.
  bool source_refuses_ragged = false;
  std::string_view note;  // of the contract, "" for most
  Ragged ragged() const;
  // There is an outer scale, one per tensor or per row; it may be the constant 1.
  bool has_outer() const;
  bool scales_rows() const;  // one outer scale per row
  // The tensor amax (or row amax) has to be measured before the first block is quantized.
  bool needs_amax() const;
  bool is_2d() const { return format.block_rows > 1; }
  // Each block has two candidates and a choice bit.
  bool chooses() const;
  // Whether binary64 input is cast directly (scales are powers of two) or rounded to binary32
  // first (spec/scalars.md section 7).
  bool casts_f64_directly() const;
  // Four-bit elements are packed two to a byte, wider ones take a byte each (bf16: two).
  bool packs_nibbles() const { return format.element.storage_bits() <= 4; }
  int code_bytes() const { return family == Family::kPass ? 2 : 1; }
  // Rounding of the element cast, for the limit beyond which it saturates.
  Rounding element_ties() const;
  // Elements that are NaN in the input stay NaN in the decoded values whatever the codes are
  // (policies of fake-quantizing sources); such a recipe has no codes to store.
  bool keeps_nan_elements() const;
};

// Throws Error(kUsage) with the legal keys or values. `library`: what custom: may name beyond the
// built-in types (sim/custom_format.h); null: nothing.
Recipe parse_recipe(std::string_view text, std::shared_ptr<const FormatLibrary> library = nullptr);
// Canonical form: fixed key order, defaults omitted. parse_recipe(to_string(r)) gives r again.
std::string to_string(const Recipe& recipe);
// Every key of the format that the contract uses, with its value, in fixed order.
std::string to_full_string(const Recipe& recipe);

// The table choice of a recipe that has an approximate reciprocal (key rcp), else nothing.
std::optional<Rcp> rcp_of(const Recipe& recipe);

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
  std::string_view alias, note;
  std::string_view formats;  // names of the formats that have it, separated by blanks; "": all
};
// Contracts of a format by its name; of a family with "custom".
std::vector<ContractInfo> contracts_of(Family family, std::string_view format);

}  // namespace fp4scope
