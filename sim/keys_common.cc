// keys_common.cc: keys that every family has (transforms before quantization, stochastic rounding),
// the keys of bf16, and the list of families.
#include <fmt/format.h>

#include "sim/error.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

constexpr KeyValue kRhtSizes[] = {{"none", 0}, {"16", 16}, {"32", 32}, {"64", 64}, {"128", 128}};
constexpr KeyValue kRhtSigns[] = {{"fixed", 0}, {"none", 1}};
constexpr KeyValue kRhtSums[] = {key_value("mma-f32", RhtSum::kMmaF32),
                                 key_value("seq", RhtSum::kSeq)};
constexpr KeyValue kRounds[] = {{"rne", 0}, {"sr", 1}};
constexpr KeyValue kSrs[] = {{"soft", 0}};
constexpr KeyValue kStreams[] = {key_value("index", SrStream::kIndex),
                                 key_value("te", SrStream::kTe)};

void set_rht(Recipe& r, std::uint64_t size) {
  r.rht.size = static_cast<std::uint32_t>(size);
  r.rht.signs = size == 0 || size == 16 ? 0 : 2;  // fixed, seed0
  const bool seq = r.family == Family::kNvfp4 && r.nvfp4.order == Nvfp4Order::kFouroversixCuda;
  r.rht.sum = seq && size != 0 ? RhtSum::kSeq : RhtSum::kMmaF32;
}
constexpr auto kHasRht = [](const Recipe& r) { return r.rht.size != 0; };
constexpr auto kHasSr = [](const Recipe& r) { return r.sr.enabled; };

constexpr KeyRow kTransformKeys[] = {
    {"rht", kRhtSizes, get_field<&Recipe::rht, &RhtOptions::size>, set_rht,
     "random Hadamard transform of that size along K before everything else"},
    {.name = "rht-signs",
     .values = kRhtSigns,
     .get = get_field<&Recipe::rht, &RhtOptions::signs>,
     .set = set_field<&Recipe::rht, &RhtOptions::signs>,
     .meaning = "its signs: the published vector (size 16), all +1, or drawn with a seed",
     .number = {KeyNumber::Form::kDecimal, "seed", 0, 0xffffffffu, 2},
     .applies = kHasRht},
    {.name = "rht-sum",
     .values = kRhtSums,
     .get = get_field<&Recipe::rht, &RhtOptions::sum>,
     .set = set_field<&Recipe::rht, &RhtOptions::sum>,
     .meaning = "its sum: exact and rounded once, or binary32 in element order",
     .applies = kHasRht},
    {"round", kRounds, get_field<&Recipe::sr, &SrOptions::enabled>,
     set_field<&Recipe::sr, &SrOptions::enabled>,
     "element rounding of the contract (rne), or stochastic"},
    {.name = "sr",
     .values = kSrs,
     .get = [](const Recipe&) { return std::uint64_t{0}; },
     .set = [](Recipe&, std::uint64_t) {},
     .meaning = "how the random byte is used: the software path of TransformerEngine",
     .applies = kHasSr},
    {.name = "sr-stream",
     .values = kStreams,
     .get = get_field<&Recipe::sr, &SrOptions::stream>,
     .set = set_field<&Recipe::sr, &SrOptions::stream>,
     .meaning =
         "which random byte an element takes: by its index, or as TransformerEngine's tuned 1D "
         "kernel (for bf16 tensors in multiples of 32; inferred: with a transposed copy)",
     .applies = kHasSr},
    {.name = "seed",
     .values = {},
     .get = get_field<&Recipe::sr, &SrOptions::seed>,
     .set = set_field<&Recipe::sr, &SrOptions::seed>,
     .meaning = "seed of the random numbers",
     .number = {KeyNumber::Form::kDecimal, "", 0, ~std::uint64_t{0}, 0},
     .applies = kHasSr},
};

constexpr Contract<RhtOptions> kPassContracts[] = {
    {"bf16",
     {},
     Ragged::kPad,
     "spec/scalars.md section 7",
     Evidence::kVerified,
     "scalars/bf16_fp16_cast.json"},
};

}  // namespace

std::span<const KeyRow> transform_keys() {
  return kTransformKeys;
}

void check_transforms(const Recipe& recipe) {
  if (recipe.rht.size != 0 && recipe.rht.size != 16 && recipe.rht.signs == 0)
    contradiction(recipe, "rht-signs=fixed is published for rht=16 only");
  if (recipe.sr.enabled && recipe.format.lut != nullptr)
    contradiction(recipe, "round=sr needs elements on a minifloat or integer grid, not a table");
  if (recipe.sr.enabled && recipe.family == Family::kPass)
    contradiction(recipe, "round=sr is not defined for bf16");
  if (recipe.sr.enabled && recipe.contract == "miles-export")
    contradiction(recipe, "miles-export rounds twice, so round=sr is not defined for it");
  const bool is_te = recipe.family == Family::kNvfp4 && recipe.shape.empty() &&
                     recipe.contract == "te" && recipe.nvfp4.block == BlockShape::k1d;
  if (recipe.sr.enabled && recipe.sr.stream == SrStream::kTe && !is_te)
    contradiction(recipe,
                  "sr-stream=te is the stream of a kernel for nvfp4:contract=te in 1-D blocks");
  if (recipe.family == Family::kNvfp4) {
    const Nvfp4Options& o = recipe.nvfp4;
    if (o.scale == OuterScale::kRow && (recipe.rht.size != 0 || recipe.sr.enabled))
      contradiction(recipe, "scale=row excludes rht and round=sr");
    const bool fouroversix =
        o.order == Nvfp4Order::kFouroversix || o.order == Nvfp4Order::kFouroversixCuda;
    if (o.is_adaptive() && recipe.sr.enabled)
      contradiction(recipe, "the adaptive choice excludes round=sr");
    if (o.is_adaptive() && recipe.rht.size != 0 && !fouroversix)
      contradiction(recipe,
                    "the adaptive choice excludes rht (of the stacks that have both, only "
                    "fouroversix combines them)");
    // Its fused kernel keeps the transformed values in binary32 and takes rcp~ (spec/nvfp4.md 3.2).
    if (o.order == Nvfp4Order::kTeFast && recipe.rht.size != 0)
      contradiction(recipe,
                    "te-fast with rht is another kernel, which is not offered; contract=te");
  }
}

void contradiction(const Recipe& recipe, const std::string& what) {
  throw Error(ErrorKind::kUsage, fmt::format("recipe \"{}\": {}", recipe.text, what));
}

const FamilyKeys& pass_keys() {
  static const FamilyKeys keys{
      {},
      [](Recipe& recipe, std::string_view name) {
        RhtOptions unused;
        return take_contract(kPassContracts, name, recipe, unused);
      },
      [](std::string_view format) { return list_contracts(kPassContracts, format); },
      [](Recipe&) {},
      [](const Recipe&) {}};
  return keys;
}

const FamilyKeys& keys_of(Family family) {
  switch (family) {
    case Family::kMx:
      return mx_keys();
    case Family::kNvfp4:
      return nvfp4_keys();
    case Family::kHif4:
      return hif4_keys();
    case Family::kInt4:
      return int4_keys();
    case Family::kFp8:
      return fp8_keys();
    case Family::kPass:
      return pass_keys();
  }
  return pass_keys();
}

}  // namespace fp4scope
