// keys_mx.cc: recipe keys of the MX formats (spec/mx.md section 2.2).
#include <fmt/format.h>

#include <algorithm>

#include "formats/contracts/mx.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

using Rule = MxScaleRule;
using Arith = MxScaleArith;

constexpr KeyValue kScaleRules[] = {key_value("floor", Rule::kFloor),
                                    key_value("ceil", Rule::kCeil),
                                    key_value("even", Rule::kEven),
                                    key_value("rceil", Rule::kRceil),
                                    key_value("ceil-log2", Rule::kCeilLog2),
                                    key_value("field-up", Rule::kFieldUp),
                                    key_value("triton-up", Rule::kTritonUp),
                                    key_value("triton-down", Rule::kTritonDown),
                                    key_value("rint-log2", Rule::kRintLog2),
                                    key_value("down6", Rule::kDown6),
                                    key_value("round-log2", Rule::kRoundLog2),
                                    key_value("mlx-cpu", Rule::kMlxCpu)};
constexpr KeyValue kScaleAriths[] = {
    key_value("field", Arith::kField), key_value("mul", Arith::kMul), key_value("div", Arith::kDiv),
    key_value("rcp", Arith::kRcp), key_value("log2", Arith::kLog2)};
constexpr KeyValue kEvenWidths[] = {key_value("elem", EvenWidth::kElem),
                                    key_value("e2m1", EvenWidth::kE2m1)};
constexpr KeyValue kNarrows[] = {{"none", 0}, {"bf16", 1}};
constexpr KeyValue kTops[] = {key_value("nan", MxTop::kNan), key_value("254", MxTop::k254)};
constexpr KeyValue kNans[] = {
    key_value("propagate", MxNan::kPropagate), key_value("drop", MxNan::kDrop),
    key_value("byte0", MxNan::kByte0),         key_value("254", MxNan::k254),
    key_value("erase", MxNan::kErase),         key_value("pass", MxNan::kPass),
    key_value("refuse", MxNan::kRefuse)};
constexpr KeyValue kInfs[] = {
    key_value("nan", MxInf::kNan),     key_value("254", MxInf::k254),
    key_value("clamp", MxInf::kClamp), key_value("erase", MxInf::kErase),
    key_value("byte0", MxInf::kByte0), key_value("refuse", MxInf::kRefuse)};
constexpr KeyValue kZeroBlocks[] = {
    {"0", 0}, {"refuse", kRefuseZeroBlock}, {"emax", kZeroBlockEmax}};
constexpr KeyValue kByte0s[] = {
    key_value("exact", MxByte0::kExact), key_value("flush", MxByte0::kFlush),
    key_value("wrap", MxByte0::kWrap), key_value("refuse", MxByte0::kRefuse)};
constexpr KeyValue kMxTies[] = {
    key_value("even", Rounding::kEven), key_value("away", Rounding::kAway),
    key_value("zero", Rounding::kZero), key_value("trunc", Rounding::kTrunc)};
constexpr KeyValue kZeroSigns[] = {
    key_value("keep", ZeroSign::kKeep), key_value("drop-input", ZeroSign::kDropInput),
    key_value("drop", ZeroSign::kDrop), key_value("set", ZeroSign::kSet),
    key_value("refuse", ZeroSign::kRefuse)};
constexpr KeyValue kSwitch[] = {{"0", 0}, {"1", 1}};
constexpr KeyValue kInt8Grids[] = {
    key_value("symmetric", Int8Grid::kSymmetric), key_value("full", Int8Grid::kFull),
    key_value("integer127", Int8Grid::kInteger127), key_value("integer128", Int8Grid::kInteger128),
    key_value("sign-magnitude", Int8Grid::kSignMagnitude)};
// 0 is the 2-D form: 32x32 elements share the byte.
constexpr std::uint64_t kBlock2d = 0;
constexpr KeyValue kBlocks[] = {{"8", 8},     {"16", 16},   {"32", 32},      {"64", 64},
                                {"128", 128}, {"256", 256}, {"2d", kBlock2d}};
constexpr KeyValue kAxes[] = {{"-1", 0}};
constexpr KeyValue kMxRaggeds[] = {key_value("pad", Ragged::kPad),
                                   key_value("error", Ragged::kError),
                                   key_value("flat", Ragged::kFlat)};
constexpr KeyValue kNibbleOrders[] = {
    key_value("low-first", Nibbles::kLowFirst), key_value("high-first", Nibbles::kHighFirst),
    key_value("split8", Nibbles::kSplit8), key_value("split16", Nibbles::kSplit16)};

// Arithmetics of each rule; the first one goes with the rule unless scale-arith says otherwise.
struct RuleArith {
  Rule rule;
  std::array<Arith, 4> legal;
  int count;
};
constexpr RuleArith kRuleAriths[] = {
    {Rule::kFloor, {Arith::kField, Arith::kLog2}, 2},
    {Rule::kCeil, {Arith::kField}, 1},
    {Rule::kEven, {Arith::kField}, 1},
    {Rule::kRceil, {Arith::kMul, Arith::kField, Arith::kDiv, Arith::kRcp}, 4},
    {Rule::kCeilLog2, {Arith::kDiv}, 1},
    {Rule::kFieldUp, {Arith::kDiv, Arith::kMul}, 2},
    {Rule::kTritonUp, {Arith::kDiv}, 1},
    {Rule::kTritonDown, {Arith::kField}, 1},
    {Rule::kRintLog2, {Arith::kLog2}, 1},
    {Rule::kDown6, {Arith::kDiv, Arith::kMul}, 2},
    {Rule::kRoundLog2, {Arith::kDiv}, 1},
    {Rule::kMlxCpu, {Arith::kDiv}, 1},
};
const RuleArith& ariths_of(Rule rule) {
  return *std::find_if(std::begin(kRuleAriths), std::end(kRuleAriths),
                       [&](const RuleArith& row) { return row.rule == rule; });
}

void set_scale_rule(Recipe& r, std::uint64_t code) {
  r.mx.scale_rule = static_cast<Rule>(code);
  // An arithmetic that goes with the rule stays: naming a contract's own rule changes nothing.
  const RuleArith& row = ariths_of(r.mx.scale_rule);
  const auto end = row.legal.begin() + row.count;
  if (std::find(row.legal.begin(), end, r.mx.scale_arith) == end) r.mx.scale_arith = row.legal[0];
  if (r.mx.scale_rule == Rule::kFieldUp && r.mx.divisor == 0) r.mx.divisor = 6;
}
void set_block(Recipe& r, std::uint64_t code) {
  r.mx.is_2d = code == kBlock2d;
  r.mx.block = r.mx.is_2d ? 32 : static_cast<std::uint32_t>(code);
}

bool has_integers(const Recipe& r) {
  return r.shape.empty() && (r.format.name == "mxint8" || r.format.name == "mxint4");
}
bool is_microx(const Recipe& r) {
  return r.contract == "microx-torch" || r.contract == "microx-cuda";
}

constexpr KeyRow kMxKeys[] = {
    {.name = "block",
     .values = kBlocks,
     .get = [](const Recipe& r) { return r.mx.is_2d ? kBlock2d : std::uint64_t{r.mx.block}; },
     .set = set_block,
     .meaning = "elements along K under one scale byte, or 32x32 elements (2d)",
     .applies = [](const Recipe& r) { return r.shape.empty(); }},
    {"scale-rule", kScaleRules, get_field<&Recipe::mx, &MxOptions::scale_rule>, set_scale_rule,
     "how the block maximum becomes the E8M0 byte"},
    {"scale-arith", kScaleAriths, FP4SCOPE_KEY_FIELD(mx, MxOptions, scale_arith),
     "arithmetic of the scale rule, where the rule has more than one"},
    {.name = "rcp",
     .values = kRcps,
     .get = get_field<&Recipe::mx, &MxOptions::rcp>,
     .set = set_field<&Recipe::mx, &MxOptions::rcp>,
     .meaning = "table of the approximate reciprocal, with scale-arith=rcp",
     .applies = [](const Recipe& r) { return r.mx.scale_arith == Arith::kRcp; }},
    {.name = "ftz",
     .values = kSwitch,
     .get = get_field<&Recipe::mx, &MxOptions::ftz>,
     .set = set_field<&Recipe::mx, &MxOptions::ftz>,
     .meaning = "binary32 subnormals are zero, as in a kernel built with flush-to-zero",
     .applies = [](const Recipe& r) { return r.mx.quirk == MxQuirk::kZeroInverse254; }},
    {.name = "even-width",
     .values = kEvenWidths,
     .get = get_field<&Recipe::mx, &MxOptions::even_width>,
     .set = set_field<&Recipe::mx, &MxOptions::even_width>,
     .meaning = "fraction bits at which scale-rule=even rounds: those of the element or of E2M1",
     .applies = [](const Recipe& r) { return r.mx.scale_rule == Rule::kEven; }},
    {.name = "dtype",
     .values = kDTypes,
     .get = get_field<&Recipe::mx, &MxOptions::dtype>,
     .set = set_field<&Recipe::mx, &MxOptions::dtype>,
     .meaning = "type of the source's arrays: x is rounded to it, and the rule works in it",
     .applies = [](const Recipe& r) { return r.contract == "ct-even" || r.contract == "mlx-cpu"; }},
    {"narrow", kNarrows, FP4SCOPE_KEY_FIELD(mx, MxOptions, narrow_bf16),
     "x is rounded to BF16 before everything else"},
    {"ties", kMxTies, FP4SCOPE_KEY_FIELD(mx, MxOptions, ties), "rounding of an element"},
    {"top", kTops, FP4SCOPE_KEY_FIELD(mx, MxOptions, top), "byte of a scale above 2^127"},
    {"nan", kNans, FP4SCOPE_KEY_FIELD(mx, MxOptions, nan),
     "what a NaN does to its block: byte 255, ignored in the maximum, byte 0 or 254, erased, "
     "passed "
     "through (values only), or refused"},
    {"inf", kInfs, FP4SCOPE_KEY_FIELD(mx, MxOptions, inf),
     "what an infinity does to its block: byte 255, 254, that of the largest finite number, "
     "erased, byte 0, or refused"},
    {.name = "zero-block",
     .values = kZeroBlocks,
     .get = get_field<&Recipe::mx, &MxOptions::zero_block>,
     .set = set_field<&Recipe::mx, &MxOptions::zero_block>,
     .meaning = "byte of an all-zero block; emax: 127 - emax of the element",
     .number = {KeyNumber::Form::kDecimal, "", 0, 254, 0},
     .applies = [](const Recipe& r) { return r.mx.amax_floor == 0; }},
    {.name = "byte0",
     .values = kByte0s,
     .get = get_field<&Recipe::mx, &MxOptions::byte0>,
     .set = set_field<&Recipe::mx, &MxOptions::byte0>,
     .meaning = "scale byte 0 and smaller scales: 2^-127, a block of zeros, modulo 256, or refused",
     .applies = [](const Recipe& r) { return r.mx.quirk != MxQuirk::kFos; }},
    {"zero-sign", kZeroSigns, FP4SCOPE_KEY_FIELD(mx, MxOptions, zero_sign),
     "sign of a zero result"},
    {.name = "flush",
     .values = kSwitch,
     .get = get_field<&Recipe::mx, &MxOptions::flush>,
     .set = set_field<&Recipe::mx, &MxOptions::flush>,
     .meaning = "a block whose maximum is a binary32 subnormal becomes zero",
     .applies = is_microx},
    {.name = "triton-sticky",
     .values = kSwitch,
     .get = get_field<&Recipe::mx, &MxOptions::triton_sticky>,
     .set = set_field<&Recipe::mx, &MxOptions::triton_sticky>,
     .meaning = "0: older Triton drops fraction bits below 2^-22 of a scaled element",
     .applies =
         [](const Recipe& r) {
           return r.packs_nibbles() && (r.contract == "triton-up" || r.contract == "triton-down");
         }},
    {.name = "int8-grid",
     .values = kInt8Grids,
     .get = get_field<&Recipe::mx, &MxOptions::int8_grid>,
     .set = set_field<&Recipe::mx, &MxOptions::int8_grid>,
     .meaning = "integer elements: +-127/64, with -128/64, integers to +-127 or to -128, or sign "
                "and magnitude (of mxint4 accordingly)",
     .applies =
         [](const Recipe& r) { return has_integers(r) && r.mx.quirk != MxQuirk::kUniversal; }},
    {.name = "axis",
     .values = kAxes,
     .get = [](const Recipe&) { return std::uint64_t{0}; },
     .set = [](Recipe&, std::uint64_t) {},
     .meaning = "blocks run along the last axis; another one is chosen where the tensor is read",
     .is_given = [](const Recipe&) { return false; }},
    {"ragged", kMxRaggeds, FP4SCOPE_KEY_FIELD(mx, MxOptions, ragged),
     "a row length that is no multiple of the block is padded with +0, or refused, or blocks run "
     "over row ends"},
    {.name = "nibbles",
     .values = kNibbleOrders,
     .get = get_field<&Recipe::native, &NativeLayout::nibbles>,
     .set = set_field<&Recipe::native, &NativeLayout::nibbles>,
     .meaning = "order of the codes in a byte of the native layout",
     .applies = [](const Recipe& r) { return r.packs_nibbles(); }},
    {"layout", kScaleLayouts, FP4SCOPE_KEY_FIELD(native, NativeLayout, scales),
     "order of the scale bytes in the native layout"},
};

bool apply(Recipe& recipe, std::string_view name) {
  return take_contract(kMxContracts, name, recipe, recipe.mx);
}
std::vector<ContractInfo> contracts(std::string_view format) {
  return list_contracts(kMxContracts, format);
}

// Elements of mxint8 and mxint4 under int8-grid (spec/scalars.md section 1: unit 2^-6, and 2^-2).
MinifloatSpec integer_element(const BlockFormat& format, Int8Grid grid) {
  const int bits = format.name == "mxint8" ? 8 : 4;
  const int unit = 2 - bits;
  switch (grid) {
    case Int8Grid::kSymmetric:
      break;
    case Int8Grid::kFull:
      return integer_spec(bits, unit, SignCode::kTwosComplementFull);
    case Int8Grid::kInteger127:
      return integer_spec(bits, 0, SignCode::kTwosComplement);
    case Int8Grid::kInteger128:
      return integer_spec(bits, 0, SignCode::kTwosComplementFull);
    case Int8Grid::kSignMagnitude:
      return integer_spec(bits, unit, SignCode::kMagnitude);
  }
  return integer_spec(bits, unit, SignCode::kTwosComplement);
}
void finish(Recipe& recipe) {
  BlockFormat& format = recipe.format;
  format.block = static_cast<int>(recipe.mx.block);
  format.levels[0].group = format.block;
  format.block_rows = recipe.mx.is_2d ? format.block : 1;
  if (has_integers(recipe)) format.element = integer_element(format, recipe.mx.int8_grid);
}

std::string_view name_of(std::span<const KeyValue> values, std::uint64_t code) {
  for (const KeyValue& value : values) {
    if (value.code == code) return value.name;
  }
  return "";
}
void check_scale(const Recipe& recipe) {
  const MxOptions& o = recipe.mx;
  const RuleArith& row = ariths_of(o.scale_rule);
  const auto end = row.legal.begin() + row.count;
  if (std::find(row.legal.begin(), end, o.scale_arith) == end) {
    std::string legal;
    for (auto a = row.legal.begin(); a != end; ++a) {
      if (!legal.empty()) legal += " or ";
      legal += name_of(kScaleAriths, static_cast<std::uint64_t>(*a));
    }
    contradiction(
        recipe, fmt::format("scale-rule={} has scale-arith={} only",
                            name_of(kScaleRules, static_cast<std::uint64_t>(o.scale_rule)), legal));
  }
  if (o.scale_rule == Rule::kMlxCpu && o.dtype != DType16::kBf16)
    contradiction(recipe, "scale-rule=mlx-cpu is described for dtype=bf16 only");
  if ((o.byte0 == MxByte0::kWrap || o.byte0 == MxByte0::kRefuse) && o.scale_rule != Rule::kFloor)
    contradiction(recipe, "byte0=wrap and byte0=refuse go with scale-rule=floor only");
}
void check(const Recipe& recipe) {
  const MxOptions& o = recipe.mx;
  check_scale(recipe);
  if (o.quirk == MxQuirk::kMicroxTorch) {
    if (recipe.sr.enabled)
      contradiction(recipe,
                    "contract microx-torch has its own element arithmetic and excludes "
                    "round=sr");
    if (o.ties == Rounding::kZero)
      contradiction(recipe, "contract microx-torch has ties=away, even or trunc");
  }
  if (o.is_2d && o.quirk != MxQuirk::kFos)
    contradiction(recipe, "block=2d exists for contracts fos-static6 and fos-static4 only");
  if (o.is_2d && o.ragged == Ragged::kFlat) contradiction(recipe, "block=2d excludes ragged=flat");
  // Mixtures of a project's special rules with those of others, which no source describes.
  const bool erases = o.nan == MxNan::kErase || o.inf == MxInf::kErase;
  if (erases && (recipe.contract != "modelopt-qtensor" ||
                 (o.nan == MxNan::kErase) != (o.inf == MxInf::kErase)))
    contradiction(recipe, "nan=erase and inf=erase go together, in contract modelopt-qtensor only");
  if (o.quirk == MxQuirk::kUniversal &&
      (o.scale_rule != Rule::kFloor || o.byte0 != MxByte0::kExact || o.inf != MxInf::kByte0))
    contradiction(recipe,
                  "contract universal has scale-rule=floor, byte0=exact and inf=byte0 only");
  if (o.quirk == MxQuirk::kUniversal && o.nan != MxNan::kDrop)
    contradiction(recipe, "contract universal has nan=drop only");
  if (recipe.contract == "pychop" && o.nan != MxNan::kPass)
    contradiction(recipe, "contract pychop passes a NaN through (nan=pass) and has no other rule");
  if (o.ftz && o.scale_rule == Rule::kTritonUp)
    contradiction(recipe, "scale-rule=triton-up counts subnormal quotients, which ftz=1 excludes");
  if (recipe.format.lut != nullptr)
    contradiction(recipe, "no MX contract says how a table of values is scaled");
}

}  // namespace

const FamilyKeys& mx_keys() {
  static const FamilyKeys keys{kMxKeys, apply, contracts, finish, check};
  return keys;
}

}  // namespace fp4scope
