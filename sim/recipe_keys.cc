// recipe_keys.cc: the rows of recipe_keys.h and the rules that tie keys together.
#include "sim/recipe_keys.h"

#include <fmt/format.h>

#include "formats/contracts/hif4.h"
#include "formats/contracts/mx.h"
#include "formats/contracts/nvfp4.h"
#include "formats/scalars.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

template <class Enum>
constexpr KeyValue value(std::string_view name, Enum code, bool is_synonym = false) {
  return {name, static_cast<std::uint32_t>(code), is_synonym};
}

constexpr KeyValue kScaleRules[] = {
    value("floor", MxScaleRule::kFloor), value("ceil", MxScaleRule::kCeil),
    value("even", MxScaleRule::kEven), value("rceil", MxScaleRule::kRceil)};
constexpr KeyValue kScaleAriths[] = {value("field", MxScaleArith::kField),
                                     value("mul", MxScaleArith::kMul),
                                     value("div", MxScaleArith::kDiv)};
constexpr KeyValue kTops[] = {value("nan", MxTop::kNan), value("254", MxTop::k254)};
constexpr KeyValue kNans[] = {value("propagate", MxNan::kPropagate), value("drop", MxNan::kDrop)};
constexpr KeyValue kInfs[] = {value("nan", MxInf::kNan), value("254", MxInf::k254)};
constexpr KeyValue kMxTies[] = {value("even", Rounding::kEven), value("away", Rounding::kAway),
                                value("zero", Rounding::kZero), value("trunc", Rounding::kTrunc)};
constexpr KeyValue kZeroSigns[] = {value("keep", ZeroSign::kKeep),
                                   value("drop-input", ZeroSign::kDropInput),
                                   value("drop", ZeroSign::kDrop), value("set", ZeroSign::kSet)};
constexpr KeyValue kRaggeds[] = {value("pad", Ragged::kPad), value("error", Ragged::kError)};

constexpr KeyValue kOuterScales[] = {
    value("tensor", OuterScale::kTensor), value("row", OuterScale::kRow),
    value("none", OuterScale::kNone), value("given", OuterScale::kGiven)};
constexpr KeyValue kBlockShapes[] = {value("1d", BlockShape::k1d), value("2d", BlockShape::k2d)};
constexpr KeyValue kSelects[] = {value("static6", Select::kStatic6)};
constexpr KeyValue kE4m3Maxes[] = {{"448", 448}, {"256", 256}};
constexpr KeyValue kNegZeros[] = {value("keep", NegZero::kKeep), value("drop", NegZero::kDrop)};

constexpr KeyValue kProducts[] = {value("exact", Hif4Product::kExact),
                                  value("fp32", Hif4Product::kFp32),
                                  value("bf16", Hif4Product::kBf16)};
constexpr KeyValue kHif4Ties[] = {value("up", Rounding::kAway), value("even", Rounding::kEven),
                                  value("zero", Rounding::kZero), value("trunc", Rounding::kTrunc),
                                  value("away", Rounding::kAway, true)};
constexpr KeyValue kE6m2Ties[] = {value("even", Rounding::kEven), value("away", Rounding::kAway)};
constexpr KeyValue kOverflows[] = {value("clamp", Hif4Overflow::kClamp),
                                   value("nan", Hif4Overflow::kNan)};
constexpr KeyValue kZeros[] = {value("00", Hif4Zero::k00), value("ff", Hif4Zero::kFf)};
constexpr KeyValue kNonfinites[] = {value("group-nan", Hif4Nonfinite::kGroupNan),
                                    value("saturate", Hif4Nonfinite::kSaturate),
                                    value("error", Hif4Nonfinite::kError)};
constexpr KeyValue kCasts[] = {value("none", Hif4Cast::kNone), value("bf16", Hif4Cast::kBf16)};
constexpr KeyValue kSearches[] = {value("greedy", Hif4Search::kGreedy),
                                  value("level1", Hif4Search::kLevel1),
                                  value("level1-3.5", Hif4Search::kLevel1_3p5)};
constexpr KeyValue kWidths[] = {{"3", 3}, {"4", 4}, {"5", 5}};

// Reader and writer of one field, e.g. field<&Recipe::mx, &MxOptions::top>.
template <auto Part, auto Field>
std::uint32_t get(const Recipe& r) {
  return static_cast<std::uint32_t>((r.*Part).*Field);
}
template <auto Part, auto Field>
void set(Recipe& r, std::uint32_t code) {
  auto& field = (r.*Part).*Field;
  field = static_cast<std::remove_reference_t<decltype(field)>>(code);
}
#define FP4SCOPE_FIELD(part, type, field) \
  get<&Recipe::part, &type::field>, set<&Recipe::part, &type::field>

// The arithmetic that goes with a rule unless scale-arith says otherwise: that of torchao-rceil for
// rceil, and the only one there is for the others.
void set_scale_rule(Recipe& r, std::uint32_t code) {
  r.mx.scale_rule = static_cast<MxScaleRule>(code);
  r.mx.scale_arith =
      r.mx.scale_rule == MxScaleRule::kRceil ? MxScaleArith::kMul : MxScaleArith::kField;
}
void set_amax(Recipe& r, std::uint32_t bits) {
  r.nvfp4.has_amax = true;
  r.nvfp4.amax_bits = bits;
}
void set_width(Recipe& r, std::uint32_t width) {
  r.hif4.width = width;
  r.format.element = width == 3 ? kE1M1 : width == 5 ? kE1M3 : kE1M2;
}

constexpr KeyRow kMxKeys[] = {
    {"scale-rule", kScaleRules, get<&Recipe::mx, &MxOptions::scale_rule>, set_scale_rule,
     "how the block maximum becomes the E8M0 byte"},
    {"scale-arith", kScaleAriths, FP4SCOPE_FIELD(mx, MxOptions, scale_arith),
     "arithmetic of the scale rule; mul and div for scale-rule=rceil only"},
    {"ties", kMxTies, FP4SCOPE_FIELD(mx, MxOptions, ties), "rounding of an element"},
    {"top", kTops, FP4SCOPE_FIELD(mx, MxOptions, top), "byte of a scale above 2^127"},
    {"nan", kNans, FP4SCOPE_FIELD(mx, MxOptions, nan),
     "a NaN makes its block NaN, or is ignored in the maximum"},
    {"inf", kInfs, FP4SCOPE_FIELD(mx, MxOptions, inf), "byte of a block with an infinity"},
    {"zero-sign", kZeroSigns, FP4SCOPE_FIELD(mx, MxOptions, zero_sign), "sign of a zero result"},
    {"ragged", kRaggeds, FP4SCOPE_FIELD(mx, MxOptions, ragged),
     "a row length that is no multiple of the block is padded with +0, or refused"},
};
constexpr KeyRow kNvfp4Keys[] = {
    {"scale", kOuterScales, FP4SCOPE_FIELD(nvfp4, Nvfp4Options, scale),
     "outer scale from the maximum of the tensor or of each row, none (1), or given with g"},
    {"g",
     {},
     FP4SCOPE_FIELD(nvfp4, Nvfp4Options, g_bits),
     "binary32 bits of the encode scale, with scale=given",
     "",
     [](const Recipe& r) { return r.nvfp4.scale == OuterScale::kGiven; }},
    {"amax",
     {},
     get<&Recipe::nvfp4, &Nvfp4Options::amax_bits>,
     set_amax,
     "binary32 bits that replace the measured tensor maximum, with scale=tensor or given",
     "",
     [](const Recipe& r) { return r.nvfp4.has_amax; }},
    {"block", kBlockShapes, FP4SCOPE_FIELD(nvfp4, Nvfp4Options, block),
     "1x16, or 16x16 with the scale byte on 16 rows"},
    {"select", kSelects, FP4SCOPE_FIELD(nvfp4, Nvfp4Options, select),
     "what the block maximum is mapped to"},
    {"e4m3max", kE4m3Maxes, FP4SCOPE_FIELD(nvfp4, Nvfp4Options, e4m3max),
     "largest block scale that the outer scale aims at"},
    {"neg-zero", kNegZeros, FP4SCOPE_FIELD(nvfp4, Nvfp4Options, neg_zero), "code of an input -0"},
    {"ragged", kRaggeds, FP4SCOPE_FIELD(nvfp4, Nvfp4Options, ragged),
     "a row length that is no multiple of the block is padded with +0, or refused"},
};
constexpr KeyRow kHif4Keys[] = {
    {"thr", kProducts, FP4SCOPE_FIELD(hif4, Hif4Options, thr),
     "rounding of the products of the level-2 and level-3 thresholds"},
    {"elem", kProducts, FP4SCOPE_FIELD(hif4, Hif4Options, elem),
     "rounding of the element products"},
    {"ties", kHif4Ties, FP4SCOPE_FIELD(hif4, Hif4Options, ties),
     "rounding of an element; up is half away from zero"},
    {"e6m2", kE6m2Ties, FP4SCOPE_FIELD(hif4, Hif4Options, e6m2), "rounding of the level-1 scale"},
    {"overflow", kOverflows, FP4SCOPE_FIELD(hif4, Hif4Options, overflow),
     "a level-1 scale above the range is 0xFE, or 0xFF (NaN)"},
    {"zero", kZeros, FP4SCOPE_FIELD(hif4, Hif4Options, zero),
     "level-1 byte of a zero group and of a scale below 2^-48"},
    {"nonfinite", kNonfinites, FP4SCOPE_FIELD(hif4, Hif4Options, nonfinite),
     "NaN and infinity make their group NaN, are saturated (NaN: code 0), or are refused"},
    {"neg-zero", kNegZeros, FP4SCOPE_FIELD(hif4, Hif4Options, neg_zero), "code of an input -0"},
    {"cast", kCasts, FP4SCOPE_FIELD(hif4, Hif4Options, cast), "rounding of the input beforehand"},
    {"search", kSearches, FP4SCOPE_FIELD(hif4, Hif4Options, search),
     "Algorithm 1, or a level-1 scale from amax/1.75 or amax/3.5 with no level bits"},
    {"width", kWidths, get<&Recipe::hif4, &Hif4Options::width>, set_width,
     "bits of an element (HiFX)"},
    {"ragged", kRaggeds, FP4SCOPE_FIELD(hif4, Hif4Options, ragged),
     "a row length that is no multiple of the group is padded with +0, or refused", "tail"},
};
#undef FP4SCOPE_FIELD

template <class Options, std::size_t N>
bool take_contract(const Contract<Options> (&rows)[N], std::string_view name, Recipe& recipe,
                   Options& options) {
  for (const auto& row : rows) {
    if (row.name != name) continue;
    recipe.contract = row.name;
    recipe.source_refuses_ragged = row.source_ragged == Ragged::kError;
    options = row.options;
    return true;
  }
  return false;
}
template <class Options, std::size_t N>
std::vector<ContractInfo> list_contracts(const Contract<Options> (&rows)[N],
                                         std::string_view default_name) {
  std::vector<ContractInfo> list;
  for (const auto& row : rows)
    list.push_back({row.name, row.source, row.vectors, row.evidence, row.name == default_name});
  return list;
}

[[noreturn]] void contradiction(const Recipe& recipe, const std::string& what) {
  throw Error(ErrorKind::kUsage, fmt::format("recipe \"{}\": {}", recipe.text, what));
}

void check_outer_scale(const Recipe& recipe) {
  const Nvfp4Options& o = recipe.nvfp4;
  if (o.scale == OuterScale::kGiven) {
    // A zero or non-finite scale from outside would be inverted to infinity or NaN
    // (spec/layouts.md section 4).
    if (o.g_bits == 0 || o.g_bits >= 0x7f800000u)
      contradiction(recipe, fmt::format("g=0x{:08x} is not a finite positive binary32 number, "
                                        "which scale=given needs",
                                        o.g_bits));
  }
  if (o.has_amax) {
    if (o.scale != OuterScale::kTensor && o.scale != OuterScale::kGiven)
      contradiction(recipe, "amax goes with scale=tensor or scale=given only");
    if (o.amax_bits > 0x7f800000u)
      contradiction(recipe, fmt::format("amax=0x{:08x} is not a binary32 number of at least +0",
                                        o.amax_bits));
  }
  if (o.scale == OuterScale::kRow && o.block == BlockShape::k2d)
    contradiction(recipe, "scale=row excludes block=2d, whose blocks span 16 rows");
}

}  // namespace

std::span<const KeyRow> key_rows(Family family) {
  switch (family) {
    case Family::kMx:
      return kMxKeys;
    case Family::kNvfp4:
      return kNvfp4Keys;
    case Family::kHif4:
      return kHif4Keys;
  }
  return {};
}

std::string_view default_contract(Family family) {
  switch (family) {
    case Family::kMx:
      return kMxDefaultContract;
    case Family::kNvfp4:
      return kNvfp4DefaultContract;
    case Family::kHif4:
      return kHif4DefaultContract;
  }
  return {};
}

bool apply_contract(Recipe& recipe, std::string_view name) {
  switch (recipe.family) {
    case Family::kMx:
      return take_contract(kMxContracts, name, recipe, recipe.mx);
    case Family::kNvfp4:
      return take_contract(kNvfp4Contracts, name, recipe, recipe.nvfp4);
    case Family::kHif4:
      return take_contract(kHif4Contracts, name, recipe, recipe.hif4);
  }
  return false;
}

void check_combination(const Recipe& recipe) {
  if (recipe.family == Family::kMx && recipe.mx.scale_rule != MxScaleRule::kRceil &&
      recipe.mx.scale_arith != MxScaleArith::kField)
    contradiction(recipe,
                  "scale-arith=mul and scale-arith=div go with scale-rule=rceil only; the "
                  "other rules have scale-arith=field");
  if (recipe.family == Family::kNvfp4) check_outer_scale(recipe);
}

std::vector<ContractInfo> contracts_of(Family family) {
  switch (family) {
    case Family::kMx:
      return list_contracts(kMxContracts, kMxDefaultContract);
    case Family::kNvfp4:
      return list_contracts(kNvfp4Contracts, kNvfp4DefaultContract);
    case Family::kHif4:
      return list_contracts(kHif4Contracts, kHif4DefaultContract);
  }
  return {};
}

}  // namespace fp4scope
