// keys_nvfp4.cc: recipe keys of NVFP4 and its siblings (spec/nvfp4.md section 1).
#include <fmt/format.h>

#include "formats/contracts/nvfp4.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

constexpr KeyValue kOuterScales[] = {
    key_value("tensor", OuterScale::kTensor), key_value("row", OuterScale::kRow),
    key_value("none", OuterScale::kNone), key_value("given", OuterScale::kGiven)};
constexpr KeyValue kBlockShapes[] = {key_value("1d", BlockShape::k1d),
                                     key_value("2d", BlockShape::k2d)};
constexpr KeyValue kSelects[] = {key_value("static6", Select::kStatic6)};
constexpr KeyValue kE4m3Maxes[] = {{"448", 448}, {"256", 256}};
constexpr KeyValue kNegZeros[] = {key_value("keep", NegZero::kKeep),
                                  key_value("drop", NegZero::kDrop)};

constexpr KeyValue kRaggeds[] = {key_value("pad", Ragged::kPad),
                                 key_value("error", Ragged::kError)};

void set_amax(Recipe& r, std::uint64_t bits) {
  r.nvfp4.has_amax = true;
  r.nvfp4.amax_bits = static_cast<std::uint32_t>(bits);
}

constexpr KeyRow kNvfp4Keys[] = {
    {"scale", kOuterScales, FP4SCOPE_KEY_FIELD(nvfp4, Nvfp4Options, scale),
     "outer scale from the maximum of the tensor or of each row, none (1), or given with g"},
    {.name = "g",
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::g_bits>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::g_bits>,
     .meaning = "binary32 bits of the encode scale, with scale=given",
     .number = kBinary32Bits,
     .applies = [](const Recipe& r) { return r.nvfp4.scale == OuterScale::kGiven; },
     .required = true},
    {.name = "amax",
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::amax_bits>,
     .set = set_amax,
     .meaning =
         "binary32 bits that replace the measured tensor maximum, with scale=tensor or given",
     .number = kBinary32Bits,
     .applies =
         [](const Recipe& r) {
           return r.nvfp4.scale == OuterScale::kTensor || r.nvfp4.scale == OuterScale::kGiven;
         },
     .is_given = [](const Recipe& r) { return r.nvfp4.has_amax; }},
    {"block", kBlockShapes, FP4SCOPE_KEY_FIELD(nvfp4, Nvfp4Options, block),
     "1x16, or 16x16 with the scale byte on 16 rows"},
    {"select", kSelects, FP4SCOPE_KEY_FIELD(nvfp4, Nvfp4Options, select),
     "what the block maximum is mapped to"},
    {"e4m3max", kE4m3Maxes, FP4SCOPE_KEY_FIELD(nvfp4, Nvfp4Options, e4m3max),
     "largest block scale that the outer scale aims at"},
    {"neg-zero", kNegZeros, FP4SCOPE_KEY_FIELD(nvfp4, Nvfp4Options, neg_zero),
     "code of an input -0"},
    {"ragged", kRaggeds, FP4SCOPE_KEY_FIELD(nvfp4, Nvfp4Options, ragged),
     "a row length that is no multiple of the block is padded with +0, or refused"},
};

bool apply(Recipe& recipe, std::string_view name) {
  return take_contract(kNvfp4Contracts, name, recipe, recipe.nvfp4);
}
std::vector<ContractInfo> contracts(std::string_view format) {
  return list_contracts(kNvfp4Contracts, format);
}
void finish(Recipe& recipe) {
  recipe.format.block_rows = recipe.nvfp4.block == BlockShape::k2d ? recipe.format.block : 1;
}
void check(const Recipe& recipe) {
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
    if (o.amax_bits > 0x7f800000u)
      contradiction(recipe, fmt::format("amax=0x{:08x} is not a binary32 number of at least +0",
                                        o.amax_bits));
  }
  if (o.scale == OuterScale::kRow && o.block == BlockShape::k2d)
    contradiction(recipe, "scale=row excludes block=2d, whose blocks span 16 rows");
}

}  // namespace

const FamilyKeys& nvfp4_keys() {
  static const FamilyKeys keys{kNvfp4Keys, apply, contracts, finish, check};
  return keys;
}

}  // namespace fp4scope
