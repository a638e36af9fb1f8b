// keys_hif4.cc: recipe keys of HiF4 and HiFX (spec/hif4.md section 6).
#include "formats/contracts/hif4.h"
#include "formats/scalars.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

constexpr KeyValue kNegZeros[] = {key_value("keep", NegZero::kKeep),
                                  key_value("drop", NegZero::kDrop)};
constexpr KeyValue kProducts[] = {key_value("exact", Hif4Product::kExact),
                                  key_value("fp32", Hif4Product::kFp32),
                                  key_value("bf16", Hif4Product::kBf16)};
constexpr KeyValue kHif4Ties[] = {
    key_value("up", Rounding::kAway), key_value("even", Rounding::kEven),
    key_value("zero", Rounding::kZero), key_value("trunc", Rounding::kTrunc),
    key_value("away", Rounding::kAway, true)};
constexpr KeyValue kE6m2Ties[] = {key_value("even", Rounding::kEven),
                                  key_value("away", Rounding::kAway)};
constexpr KeyValue kOverflows[] = {key_value("clamp", Hif4Overflow::kClamp),
                                   key_value("nan", Hif4Overflow::kNan)};
constexpr KeyValue kZeros[] = {key_value("00", Hif4Zero::k00), key_value("ff", Hif4Zero::kFf)};
constexpr KeyValue kNonfinites[] = {key_value("group-nan", Hif4Nonfinite::kGroupNan),
                                    key_value("saturate", Hif4Nonfinite::kSaturate),
                                    key_value("error", Hif4Nonfinite::kError)};
constexpr KeyValue kCasts[] = {key_value("none", Hif4Cast::kNone),
                               key_value("bf16", Hif4Cast::kBf16)};
constexpr KeyValue kSearches[] = {key_value("greedy", Hif4Search::kGreedy),
                                  key_value("level1", Hif4Search::kLevel1),
                                  key_value("level1-3.5", Hif4Search::kLevel1_3p5)};
constexpr KeyValue kWidths[] = {{"3", 3}, {"4", 4}, {"5", 5}};

constexpr KeyValue kRaggeds[] = {key_value("pad", Ragged::kPad),
                                 key_value("error", Ragged::kError)};

void set_width(Recipe& r, std::uint64_t width) {
  r.hif4.width = static_cast<std::uint32_t>(width);
}

constexpr KeyRow kHif4Keys[] = {
    {"thr", kProducts, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, thr),
     "rounding of the products of the level-2 and level-3 thresholds"},
    {"elem", kProducts, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, elem),
     "rounding of the element products"},
    {"ties", kHif4Ties, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, ties),
     "rounding of an element; up is half away from zero"},
    {"e6m2", kE6m2Ties, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, e6m2),
     "rounding of the level-1 scale"},
    {"overflow", kOverflows, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, overflow),
     "a level-1 scale above the range is 0xFE, or 0xFF (NaN)"},
    {"zero", kZeros, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, zero),
     "level-1 byte of a zero group and of a scale below 2^-48"},
    {"nonfinite", kNonfinites, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, nonfinite),
     "NaN and infinity make their group NaN, are saturated (NaN: code 0), or are refused"},
    {"neg-zero", kNegZeros, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, neg_zero), "code of an input -0"},
    {"cast", kCasts, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, cast),
     "rounding of the input beforehand"},
    {"search", kSearches, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, search),
     "Algorithm 1, or a level-1 scale from amax/1.75 or amax/3.5 with no level bits"},
    {"width", kWidths, get_field<&Recipe::hif4, &Hif4Options::width>, set_width,
     "bits of an element (HiFX)"},
    {"ragged", kRaggeds, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, ragged),
     "a row length that is no multiple of the group is padded with +0, or refused", "tail"},
};

bool apply(Recipe& recipe, std::string_view name) {
  return take_contract(kHif4Contracts, name, recipe, recipe.hif4);
}
std::vector<ContractInfo> contracts(std::string_view format) {
  return list_contracts(kHif4Contracts, format);
}
void finish(Recipe& recipe) {
  if (!recipe.shape.empty()) return;
  const std::uint32_t width = recipe.hif4.width;
  recipe.format.element = width == 3 ? kE1M1 : width == 5 ? kE1M3 : kE1M2;
}
void check(const Recipe&) {}

}  // namespace

const FamilyKeys& hif4_keys() {
  static const FamilyKeys keys{kHif4Keys, apply, contracts, finish, check};
  return keys;
}

}  // namespace fp4scope
