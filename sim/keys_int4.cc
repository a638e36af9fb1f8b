// keys_int4.cc: recipe keys of INT4 group quantization (spec/more.md section 1).
#include "formats/contracts/int4.h"
#include "formats/scalars.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

constexpr KeyValue kScaleDivs[] = {{"7.5", 15}, {"7", 14}, {"7.0", 14, true}};
constexpr KeyValue kQmins[] = {key_value("-8", std::int64_t{-8}),
                               key_value("-7", std::int64_t{-7})};
constexpr KeyValue kPacks[] = {key_value("ct", IntPack::kCt), key_value("twos", IntPack::kTwos),
                               key_value("awq", IntPack::kAwq), key_value("gptq", IntPack::kGptq)};

constexpr auto kHasGrid = [](const Recipe& r) {
  return r.int4.order == Int4Order::kSkyrl || r.int4.order == Int4Order::kRtpLlmCt;
};
// The others work on BF16 weights only.
constexpr auto kHasDtype = [](const Recipe& r) {
  return r.int4.order == Int4Order::kCtRtn || r.int4.order == Int4Order::kMilesTrain ||
         r.int4.order == Int4Order::kRtpLlm;
};
constexpr auto kIsNotExport = [](const Recipe& r) {
  return r.int4.order != Int4Order::kMilesExport;
};

constexpr KeyRow kInt4Keys[] = {
    {.name = "group",
     .get = get_field<&Recipe::int4, &Int4Options::group>,
     .set = set_field<&Recipe::int4, &Int4Options::group>,
     .meaning = "elements along K that share a scale, a multiple of 8",
     .number = {KeyNumber::Form::kDecimal, "", 8, 1024, 0},
     .applies = [](const Recipe& r) { return r.shape.empty(); }},
    {.name = "scale-div",
     .values = kScaleDivs,
     .get = get_field<&Recipe::int4, &Int4Options::scale_div_x2>,
     .set = set_field<&Recipe::int4, &Int4Options::scale_div_x2>,
     .meaning = "what the maximum is divided by",
     .applies = kHasGrid},
    {.name = "qmin",
     .values = kQmins,
     .get = get_field<&Recipe::int4, &Int4Options::qmin>,
     .set = set_field<&Recipe::int4, &Int4Options::qmin>,
     .meaning = "smallest code; the largest is 7",
     .applies = kHasGrid},
    {.name = "scalar-div",
     .values = kScalarDivs,
     .get = get_field<&Recipe::int4, &Int4Options::scalar_div>,
     .set = set_field<&Recipe::int4, &Int4Options::scalar_div>,
     .meaning = "the division by scale-div: as a CPU does it, or a product with the rounded "
                "reciprocal as on a GPU",
     .applies = kIsNotExport},
    {.name = "dtype",
     .values = kDTypes,
     .get = get_field<&Recipe::int4, &Int4Options::dtype>,
     .set = set_field<&Recipe::int4, &Int4Options::dtype>,
     .meaning = "type of the weight, whose arithmetic the source computes in",
     .applies = kHasDtype},
    {"pack", kPacks, get_field<&Recipe::native, &NativeLayout::pack>,
     set_field<&Recipe::native, &NativeLayout::pack>,
     "order of the codes in the source's own files"},
    {"ragged", kRaggeds, FP4SCOPE_KEY_FIELD(int4, Int4Options, ragged),
     "a row length that is no multiple of the group is padded with +0, or refused"},
};

bool apply(Recipe& recipe, std::string_view name) {
  return take_contract(kInt4Contracts, name, recipe, recipe.int4);
}
std::vector<ContractInfo> contracts(std::string_view format) {
  return list_contracts(kInt4Contracts, format);
}

// What is stored per group: binary32 by miles-train, E4M3 by rtp-llm, BF16 by miles-export, and the
// type of the weight otherwise.
ScaleLevel stored_scale(const Int4Options& o, int group) {
  switch (o.order) {
    case Int4Order::kMilesTrain:
      return {ScaleKind::kBinary32, {}, group};
    case Int4Order::kMilesExport:
      return {ScaleKind::kBfloat16, {}, group};
    case Int4Order::kRtpLlm:
    case Int4Order::kRtpLlmCt:
      return {ScaleKind::kMinifloat, kUE4M3, group};
    default:
      return {o.dtype == DType16::kF32   ? ScaleKind::kBinary32
              : o.dtype == DType16::kF16 ? ScaleKind::kBinary16
                                         : ScaleKind::kBfloat16,
              {},
              group};
  }
}
void finish(Recipe& recipe) {
  BlockFormat& format = recipe.format;
  if (format.element.is_twos_complement() && format.lut == nullptr) {
    format.element.sign_code =
        recipe.int4.qmin == -8 ? SignCode::kTwosComplementFull : SignCode::kTwosComplement;
  }
  if (!recipe.shape.empty()) return;
  format.block = static_cast<int>(recipe.int4.group);
  format.levels = {stored_scale(recipe.int4, format.block)};
  format.num_levels = 1;
  format.scale_bytes = format.levels[0].storage_bits() / 8;
}
void check(const Recipe& recipe) {
  if (recipe.shape.empty() && recipe.int4.group % 8 != 0)
    contradiction(recipe, "group must be a multiple of 8");
  const bool is_rtp =
      recipe.int4.order == Int4Order::kRtpLlm || recipe.int4.order == Int4Order::kRtpLlmCt;
  const ScaleLevel& level = recipe.format.levels[0];
  if (!recipe.shape.empty() && level.kind == ScaleKind::kMinifloat &&
      !(is_rtp && level.spec == kUE4M3))
    contradiction(recipe, "of scales with a few bits, e4m3 with rtp-llm is all that is defined");
  if (recipe.int4.order == Int4Order::kRtpLlm && recipe.int4.dtype == DType16::kF16)
    contradiction(recipe,
                  "with dtype=f16 the floor 1e-12 of rtp-llm is 0 and a zero group divides by it");
}

}  // namespace

const FamilyKeys& int4_keys() {
  static const FamilyKeys keys{kInt4Keys, apply, contracts, finish, check};
  return keys;
}

}  // namespace fp4scope
