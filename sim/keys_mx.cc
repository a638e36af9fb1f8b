// keys_mx.cc: recipe keys of the MX formats (spec/mx.md section 2.2).
#include "formats/contracts/mx.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

constexpr KeyValue kScaleRules[] = {
    key_value("floor", MxScaleRule::kFloor), key_value("ceil", MxScaleRule::kCeil),
    key_value("even", MxScaleRule::kEven), key_value("rceil", MxScaleRule::kRceil)};
constexpr KeyValue kScaleAriths[] = {key_value("field", MxScaleArith::kField),
                                     key_value("mul", MxScaleArith::kMul),
                                     key_value("div", MxScaleArith::kDiv)};
constexpr KeyValue kTops[] = {key_value("nan", MxTop::kNan), key_value("254", MxTop::k254)};
constexpr KeyValue kNans[] = {key_value("propagate", MxNan::kPropagate),
                              key_value("drop", MxNan::kDrop)};
constexpr KeyValue kInfs[] = {key_value("nan", MxInf::kNan), key_value("254", MxInf::k254)};
constexpr KeyValue kMxTies[] = {
    key_value("even", Rounding::kEven), key_value("away", Rounding::kAway),
    key_value("zero", Rounding::kZero), key_value("trunc", Rounding::kTrunc)};
constexpr KeyValue kZeroSigns[] = {
    key_value("keep", ZeroSign::kKeep), key_value("drop-input", ZeroSign::kDropInput),
    key_value("drop", ZeroSign::kDrop), key_value("set", ZeroSign::kSet)};
constexpr KeyValue kRaggeds[] = {key_value("pad", Ragged::kPad),
                                 key_value("error", Ragged::kError)};

// The arithmetic that goes with a rule unless scale-arith says otherwise: that of torchao-rceil for
// rceil, and the only one there is for the others.
void set_scale_rule(Recipe& r, std::uint64_t code) {
  r.mx.scale_rule = static_cast<MxScaleRule>(code);
  r.mx.scale_arith =
      r.mx.scale_rule == MxScaleRule::kRceil ? MxScaleArith::kMul : MxScaleArith::kField;
}

constexpr KeyRow kMxKeys[] = {
    {"scale-rule", kScaleRules, get_field<&Recipe::mx, &MxOptions::scale_rule>, set_scale_rule,
     "how the block maximum becomes the E8M0 byte"},
    {"scale-arith", kScaleAriths, FP4SCOPE_KEY_FIELD(mx, MxOptions, scale_arith),
     "arithmetic of the scale rule; mul and div for scale-rule=rceil only"},
    {"ties", kMxTies, FP4SCOPE_KEY_FIELD(mx, MxOptions, ties), "rounding of an element"},
    {"top", kTops, FP4SCOPE_KEY_FIELD(mx, MxOptions, top), "byte of a scale above 2^127"},
    {"nan", kNans, FP4SCOPE_KEY_FIELD(mx, MxOptions, nan),
     "a NaN makes its block NaN, or is ignored in the maximum"},
    {"inf", kInfs, FP4SCOPE_KEY_FIELD(mx, MxOptions, inf), "byte of a block with an infinity"},
    {"zero-sign", kZeroSigns, FP4SCOPE_KEY_FIELD(mx, MxOptions, zero_sign),
     "sign of a zero result"},
    {"ragged", kRaggeds, FP4SCOPE_KEY_FIELD(mx, MxOptions, ragged),
     "a row length that is no multiple of the block is padded with +0, or refused"},
};

bool apply(Recipe& recipe, std::string_view name) {
  return take_contract(kMxContracts, name, recipe, recipe.mx);
}
std::vector<ContractInfo> contracts(std::string_view format) {
  return list_contracts(kMxContracts, format);
}
void finish(Recipe&) {}
void check(const Recipe& recipe) {
  if (recipe.mx.scale_rule != MxScaleRule::kRceil && recipe.mx.scale_arith != MxScaleArith::kField)
    contradiction(recipe,
                  "scale-arith=mul and scale-arith=div go with scale-rule=rceil only; the "
                  "other rules have scale-arith=field");
}

}  // namespace

const FamilyKeys& mx_keys() {
  static const FamilyKeys keys{kMxKeys, apply, contracts, finish, check};
  return keys;
}

}  // namespace fp4scope
