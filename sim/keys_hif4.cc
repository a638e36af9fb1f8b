// keys_hif4.cc: recipe keys of HiF4 and HiFX (spec/hif4.md section 6), and of user-defined formats
// with one-bit levels.
#include "formats/contracts/hif4.h"
#include "formats/scalars.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

constexpr KeyValue kProducts[] = {key_value("exact", Hif4Product::kExact),
                                  key_value("fp32", Hif4Product::kFp32),
                                  key_value("bf16", Hif4Product::kBf16)};
constexpr KeyValue kHif4Ties[] = {
    key_value("up", Rounding::kAway),         key_value("even", Rounding::kEven),
    key_value("zero", Rounding::kZero),       key_value("trunc", Rounding::kTrunc),
    key_value("away", Rounding::kAway, true), key_value("sr", Rounding::kStochastic, true)};
constexpr KeyValue kE6m2Ties[] = {key_value("even", Rounding::kEven),
                                  key_value("away", Rounding::kAway)};
constexpr KeyValue kOverflows[] = {key_value("clamp", Hif4Overflow::kClamp),
                                   key_value("nan", Hif4Overflow::kNan)};
constexpr KeyValue kZeros[] = {key_value("00", Hif4Zero::k00), key_value("ff", Hif4Zero::kFf)};
constexpr KeyValue kNonfinites[] = {
    key_value("group-nan", Hif4Nonfinite::kGroupNan), key_value("element", Hif4Nonfinite::kElement),
    key_value("saturate", Hif4Nonfinite::kSaturate), key_value("error", Hif4Nonfinite::kError)};
constexpr KeyValue kCasts[] = {key_value("none", Hif4Cast::kNone),
                               key_value("bf16", Hif4Cast::kBf16)};
constexpr KeyValue kSearches[] = {
    key_value("greedy", Hif4Search::kGreedy), key_value("level1", Hif4Search::kLevel1),
    key_value("level1-3.5", Hif4Search::kLevel1_3p5), key_value("mse", Hif4Search::kMse)};
constexpr KeyValue kGeometries[] = {key_value("1x64", Hif4Geometry::k1x64),
                                    key_value("64x64", Hif4Geometry::k64x64)};
constexpr KeyValue kWidths[] = {{"3", 3}, {"4", 4}, {"5", 5}};

constexpr KeyValue kNibbleOrders[] = {key_value("low-first", Nibbles::kLowFirst),
                                      key_value("high-first", Nibbles::kHighFirst)};
constexpr KeyValue kLevelBits[] = {key_value("lsb", LevelBits::kLsb),
                                   key_value("msb", LevelBits::kMsb)};
constexpr KeyValue kCarriers[] = {key_value("u32", Carrier::kU32),
                                  key_value("bytes", Carrier::kBytes),
                                  key_value("f32", Carrier::kF32), key_value("a6", Carrier::kA6)};

// ties=sr is round=sr; finish() puts the rounding of the contract back.
void set_ties(Recipe& r, std::uint64_t ties) {
  r.hif4.ties = static_cast<Rounding>(ties);
  if (r.hif4.ties == Rounding::kStochastic) r.sr.enabled = true;
}
void set_width(Recipe& r, std::uint64_t width) {
  r.hif4.width = static_cast<std::uint32_t>(width);
}
// What is published, or defined here, for the named format only.
constexpr auto kIsNamed = [](const Recipe& r) { return r.shape.empty(); };

constexpr KeyRow kHif4Keys[] = {
    {.name = "thr",
     .values = kProducts,
     .get = get_field<&Recipe::hif4, &Hif4Options::thr>,
     .set = set_field<&Recipe::hif4, &Hif4Options::thr>,
     .meaning = "rounding of the products of the level-2 and level-3 thresholds, which "
                "search=greedy alone has",
     .applies = [](const Recipe& r) { return r.hif4.search == Hif4Search::kGreedy; }},
    {"elem", kProducts, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, elem),
     "rounding of the element products"},
    {"ties", kHif4Ties, get_field<&Recipe::hif4, &Hif4Options::ties>, set_ties,
     "rounding of an element; up is half away from zero, sr (for study) means round=sr"},
    {"e6m2", kE6m2Ties, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, e6m2),
     "rounding of the level-1 scale"},
    {"overflow", kOverflows, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, overflow),
     "a level-1 scale above the range is 0xFE, or 0xFF (NaN)"},
    {"zero", kZeros, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, zero),
     "level-1 byte of a zero group and of a scale below 2^-48"},
    {"nonfinite", kNonfinites, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, nonfinite),
     "NaN and infinity make their group NaN; or infinity is saturated and NaN stays NaN in the "
     "decoded values (element) or becomes code 0 (saturate); or both are refused"},
    {"neg-zero", kNegZeros, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, neg_zero), "code of an input -0"},
    {"cast", kCasts, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, cast),
     "rounding of the input beforehand"},
    {.name = "search",
     .values = kSearches,
     .get = get_field<&Recipe::hif4, &Hif4Options::search>,
     .set = set_field<&Recipe::hif4, &Hif4Options::search>,
     .meaning = "Algorithm 1; or a level-1 scale from amax/1.75 or amax/3.5 with no level bits; or "
                "(mse: not standard) scale and level bits of least squared error",
     .applies = kIsNamed},
    {.name = "geometry",
     .values = kGeometries,
     .get = get_field<&Recipe::hif4, &Hif4Options::geometry>,
     .set = set_field<&Recipe::hif4, &Hif4Options::geometry>,
     .meaning = "groups of 64 along K, or squares with 8x8 and 4x4 sub-blocks (inferred: only the "
                "shape is public)",
     .applies = kIsNamed},
    {.name = "width",
     .values = kWidths,
     .get = get_field<&Recipe::hif4, &Hif4Options::width>,
     .set = set_width,
     .meaning = "bits of an element (HiFX)",
     .applies = kIsNamed},
    {"ragged", kRaggeds, FP4SCOPE_KEY_FIELD(hif4, Hif4Options, ragged),
     "a row length that is no multiple of the group is padded with +0, or refused", "tail"},
    {"nibbles", kNibbleOrders, FP4SCOPE_KEY_FIELD(native, NativeLayout, nibbles),
     "native layouts: which nibble of a byte holds the even element"},
    {"bits", kLevelBits, FP4SCOPE_KEY_FIELD(native, NativeLayout, bits),
     "native layouts: end of a byte where level bit 0 is"},
    {"carrier", kCarriers, FP4SCOPE_KEY_FIELD(native, NativeLayout, carrier),
     "native layouts: what holds the four bytes of scale and level bits"},
};

bool apply(Recipe& recipe, std::string_view name) {
  return take_contract(kHif4Contracts, name, recipe, recipe.hif4);
}
std::vector<ContractInfo> contracts(std::string_view format) {
  return list_contracts(kHif4Contracts, format);
}
// Notes of options; "Presumed": with that of the contract.
constexpr std::string_view kMseNote = "search=mse is a rule of fp4scope and no standard";
constexpr std::string_view kMsePresumedNote =
    "search=mse is a rule of fp4scope and no standard; half-to-even elements are presumed";
constexpr std::string_view kSquareNote = "the arithmetic of geometry=64x64 is inferred";
constexpr std::string_view kSquarePresumedNote =
    "the arithmetic of geometry=64x64 is inferred; half-to-even elements are presumed";

void finish(Recipe& recipe) {
  if (recipe.hif4.ties == Rounding::kStochastic) {
    for (const Contract<Hif4Options>& row : kHif4Contracts)
      if (row.name == recipe.contract) recipe.hif4.ties = row.options.ties;
  }
  const bool is_presumed = !recipe.note.empty();
  if (recipe.hif4.search == Hif4Search::kMse)
    recipe.note = is_presumed ? kMsePresumedNote : kMseNote;
  if (recipe.hif4.geometry == Hif4Geometry::k64x64)
    recipe.note = is_presumed ? kSquarePresumedNote : kSquareNote;
  if (!recipe.shape.empty()) return;
  const std::uint32_t width = recipe.hif4.width;
  recipe.format.element = width == 3 ? kE1M1 : width == 5 ? kE1M3 : kE1M2;
  recipe.format.block_rows = recipe.hif4.geometry == Hif4Geometry::k64x64 ? 64 : 1;
}

void check(const Recipe& recipe) {
  const Hif4Options& o = recipe.hif4;
  if (o.ties == Rounding::kStochastic && !recipe.sr.enabled)
    contradiction(recipe, "ties=sr and round=rne contradict each other");
  if (o.search == Hif4Search::kMse && recipe.sr.enabled)
    contradiction(recipe, "search=mse compares deterministic roundings and excludes round=sr");
  if (o.search == Hif4Search::kMse && o.geometry == Hif4Geometry::k64x64)
    contradiction(recipe, "search=mse is defined for geometry=1x64");
  if (recipe.format.lut != nullptr)
    contradiction(recipe, "elements from a table of values do not go with one-bit levels");
}

}  // namespace

const FamilyKeys& hif4_keys() {
  static const FamilyKeys keys{kHif4Keys, apply, contracts, finish, check};
  return keys;
}

}  // namespace fp4scope
