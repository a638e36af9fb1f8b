// keys_fp8.cc: recipe keys of FP8 (spec/more.md section 2). Which contract uses which key is a
// property of its source; a key that does not apply is refused when typed.
#include <fmt/format.h>

#include "formats/contracts/fp8.h"
#include "formats/scalars.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

constexpr std::uint64_t gran_code(std::uint32_t cols, std::uint32_t rows) {
  return cols | std::uint64_t{rows} << 32;
}
constexpr KeyValue kGrans[] = {{"tensor", gran_code(0, 0)},
                               {"row", gran_code(0, 1)},
                               {"1x128", gran_code(128, 1)},
                               {"128x128", gran_code(128, 128)},
                               {"32x32", gran_code(32, 32)}};
constexpr KeyValue kElems[] = {{"e4m3", 0}, {"e5m2", 1}};
constexpr KeyValue kScaleFmts[] = {key_value("f32", ScaleFmt::kF32),
                                   key_value("pow2", ScaleFmt::kPow2),
                                   key_value("ue8m0", ScaleFmt::kUe8m0)};
constexpr KeyValue kDivs[] = {key_value("ieee", Div::kIeee), key_value("triton", Div::kTriton)};

std::uint64_t get_gran(const Recipe& r) {
  return gran_code(r.fp8.gran.cols, r.fp8.gran.rows);
}
void set_gran(Recipe& r, std::uint64_t code) {
  r.fp8.gran = {static_cast<std::uint32_t>(code), static_cast<std::uint32_t>(code >> 32)};
}
void set_g(Recipe& r, std::uint64_t bits) {
  r.fp8.g_bits = static_cast<std::uint32_t>(bits);
}
void set_amax(Recipe& r, std::uint64_t bits) {
  r.fp8.has_amax = true;
  r.fp8.amax_bits = static_cast<std::uint32_t>(bits);
}

// Which contracts a key goes with.
constexpr bool is_one_of(const Recipe& r, std::initializer_list<Fp8Order> orders) {
  for (const Fp8Order order : orders)
    if (r.fp8.order == order) return true;
  return false;
}
using enum Fp8Order;
constexpr auto kIsNamed = [](const Recipe& r) { return r.shape.empty(); };
constexpr auto kHasElem = [](const Recipe& r) {
  return r.shape.empty() && is_one_of(r, {kTe, kTeDelayed, kTorchaoDyn, kVllmKv});
};
constexpr auto kHasPow2 = [](const Recipe& r) {
  return is_one_of(r, {kTe, kDeepgemm, kTilekernels, kTritonGroup, kTritonGroupDiv, kVllmGroup,
                       kSglGroup, kTorchaoDyn, kTorchaoAffine, kVerlDsv4});
};
constexpr auto kIsTorch = [](const Recipe& r) {
  return is_one_of(r, {kDeepgemm, kTorchaoAffine, kHfBlock, kVerlDsv4});
};
constexpr auto kHasDiv = [](const Recipe& r) {
  return is_one_of(r, {kTritonGroup, kTritonGroupDiv, kVllmGroup, kSglGroup, kSglToken, kVllmToken,
                       kVllmTensor, kFbgemmTriton, kFbgemmCuda});
};
constexpr auto kHasRcp = [](const Recipe& r) { return kHasDiv(r) && r.fp8.div == Div::kTriton; };
// TransformerEngine looks at the type where a scale overflows, but not with one scale per tensor.
constexpr auto kHasDtype = [](const Recipe& r) {
  if (r.fp8.order == kTe) return !r.fp8.gran.is_tensor();
  return is_one_of(r, {kTorchaoAffine, kHfBlock, kVllmTorchTensor});
};
constexpr auto kIsTe = [](const Recipe& r) { return r.fp8.order == kTe; };
constexpr auto kIsDelayed = [](const Recipe& r) { return r.fp8.order == kTeDelayed; };
constexpr auto kHasBound = [](const Recipe& r) {
  return is_one_of(r, {kFbgemmTriton, kFbgemmCuda});
};
constexpr auto kIsKv = [](const Recipe& r) { return r.fp8.order == kVllmKv; };

constexpr KeyRow kFp8Keys[] = {
    {.name = "gran",
     .values = kGrans,
     .get = get_gran,
     .set = set_gran,
     .meaning = "what shares a scale: the tensor, a row, a block of rows x columns, or N elements "
                "of a row",
     .number = {KeyNumber::Form::kDecimal, "", 8, 1024, gran_code(0, 1)},
     .applies = kIsNamed},
    {.name = "elem",
     .values = kElems,
     .get = get_field<&Recipe::fp8, &Fp8Options::e5m2>,
     .set = set_field<&Recipe::fp8, &Fp8Options::e5m2>,
     .meaning = "type of an element",
     .applies = kHasElem},
    {.name = "scale-fmt",
     .values = kScaleFmts,
     .get = get_field<&Recipe::fp8, &Fp8Options::scale_fmt>,
     .set = set_field<&Recipe::fp8, &Fp8Options::scale_fmt>,
     .meaning = "binary32 scales, powers of two as binary32, or as E8M0 bytes",
     .applies = kHasPow2},
    {.name = "scalar-div",
     .values = kScalarDivs,
     .get = get_field<&Recipe::fp8, &Fp8Options::scalar_div>,
     .set = set_field<&Recipe::fp8, &Fp8Options::scalar_div>,
     .meaning = "amax/448 of torch: a division as on a CPU, or a product with the rounded "
                "reciprocal as on a GPU",
     .applies = kIsTorch},
    {.name = "div",
     .values = kDivs,
     .get = get_field<&Recipe::fp8, &Fp8Options::div>,
     .set = set_field<&Recipe::fp8, &Fp8Options::div>,
     .meaning = "quotients of the kernel: rounded once, or a product with the approximate "
                "reciprocal",
     .applies = kHasDiv},
    {.name = "rcp",
     .values = kRcps,
     .get = get_field<&Recipe::fp8, &Fp8Options::rcp>,
     .set = set_field<&Recipe::fp8, &Fp8Options::rcp>,
     .meaning = "table of the approximate reciprocal",
     .applies = kHasRcp},
    {.name = "dtype",
     .values = kDTypes,
     .get = get_field<&Recipe::fp8, &Fp8Options::dtype>,
     .set = set_field<&Recipe::fp8, &Fp8Options::dtype>,
     .meaning = "type of the input, whose arithmetic or range the source uses",
     .applies = kHasDtype},
    {.name = "eps",
     .get = get_field<&Recipe::fp8, &Fp8Options::eps_bits>,
     .set = set_field<&Recipe::fp8, &Fp8Options::eps_bits>,
     .meaning = "binary32 bits of the smallest amax",
     .number = kBinary32Bits,
     .applies = kIsTe},
    {.name = "amax",
     .get = get_field<&Recipe::fp8, &Fp8Options::amax_bits>,
     .set = set_amax,
     .meaning = "binary32 bits of the amax of the history",
     .number = kBinary32Bits,
     .applies = kIsDelayed,
     .is_given = [](const Recipe& r) { return r.fp8.has_amax; }},
    {.name = "margin",
     .get = get_field<&Recipe::fp8, &Fp8Options::margin>,
     .set = set_field<&Recipe::fp8, &Fp8Options::margin>,
     .meaning = "the amax is mapped to 448/2^margin",
     .number = {KeyNumber::Form::kDecimal, "", 0, 64, 0},
     .applies = kIsDelayed},
    {.name = "upper-bound",
     .get = get_field<&Recipe::fp8, &Fp8Options::bound_bits>,
     .set = set_field<&Recipe::fp8, &Fp8Options::bound_bits>,
     .meaning = "binary32 bits of the largest amax",
     .number = kBinary32Bits,
     .applies = kHasBound},
    {.name = "g",
     .get = get_field<&Recipe::fp8, &Fp8Options::g_bits>,
     .set = set_g,
     .meaning = "binary32 bits of the scale, a decode scale",
     .number = kBinary32Bits,
     .applies = kIsKv},
    {"ragged", kRaggeds, FP4SCOPE_KEY_FIELD(fp8, Fp8Options, ragged),
     "a row length that is no multiple of the block is padded with +0, or refused"},
};

bool apply(Recipe& recipe, std::string_view name) {
  return take_contract(kFp8Contracts, name, recipe, recipe.fp8);
}
std::vector<ContractInfo> contracts(std::string_view format) {
  return list_contracts(kFp8Contracts, format);
}

void finish(Recipe& recipe) {
  if (!recipe.shape.empty()) return;
  const Fp8Options& o = recipe.fp8;
  BlockFormat& format = recipe.format;
  format.element = o.e5m2 ? kE5M2 : kE4M3;
  format.num_levels = 1;
  if (recipe.has_outer()) {
    format.block = 64;
    format.block_rows = 1;
    format.levels = {ScaleLevel{ScaleKind::kBinary32, {}, 0}};
    format.scale_bytes = 0;
    return;
  }
  format.block = static_cast<int>(o.gran.cols);
  format.block_rows = static_cast<int>(o.gran.rows);
  const bool is_byte = o.scale_fmt == ScaleFmt::kUe8m0;
  format.levels = {ScaleLevel{is_byte ? ScaleKind::kE8m0 : ScaleKind::kBinary32, {}, format.block}};
  format.scale_bytes = is_byte ? 1 : 4;
}

// A zero or non-finite scale from outside would be divided by (spec/layouts.md section 4), and a
// maximum has no sign.
void check_bits(const Recipe& recipe) {
  constexpr std::uint32_t kInfinityBits = 0x7f800000u;
  const Fp8Options& o = recipe.fp8;
  if (kIsKv(recipe) && (o.g_bits == 0 || o.g_bits >= kInfinityBits))
    contradiction(recipe,
                  fmt::format("g=0x{:08x} is not a finite positive binary32 number", o.g_bits));
  // A NaN in the history of te-delayed has a meaning (spec/more.md 2.1).
  constexpr std::uint32_t kLargestNan = 0x7fffffffu;
  const struct {
    std::string_view key;
    std::uint32_t bits, most;
  } magnitudes[] = {{"eps", o.eps_bits, kInfinityBits},
                    {"amax", o.amax_bits, kLargestNan},
                    {"upper-bound", o.bound_bits, kInfinityBits}};
  for (const auto& m : magnitudes)
    if (m.bits > m.most)
      contradiction(recipe, fmt::format("{}=0x{:08x} is not a binary32 number of at least +0",
                                        m.key, m.bits));
}

// Refuses granularities and scale types that the source of the contract does not have.
void check(const Recipe& recipe) {
  check_bits(recipe);
  const Fp8Options& o = recipe.fp8;
  const Fp8Gran& gran = o.gran;
  if (is_one_of(recipe, {kTeDelayed, kVllmTensor, kVllmTorchTensor, kVllmKv}) && !gran.is_tensor())
    contradiction(recipe, "this contract has gran=tensor only");
  if (is_one_of(recipe, {kSglToken, kVllmToken, kFbgemmCuda}) && !gran.is_row())
    contradiction(recipe, "this contract has gran=row only");
  if (o.order == kTorchaoDyn && !recipe.has_outer())
    contradiction(recipe, "torchao-dyn has gran=tensor and gran=row only");
  if (o.order == kFbgemmTriton && gran.is_tensor())
    contradiction(recipe, "fbgemm-triton has no gran=tensor");
  if (is_one_of(recipe, {kTilekernels, kTritonGroup, kTritonGroupDiv, kVllmGroup, kSglGroup}) &&
      recipe.has_outer())
    contradiction(recipe, "this contract scales blocks; gran=tensor and gran=row are no blocks");
  if (o.scale_fmt == ScaleFmt::kUe8m0 && recipe.has_outer())
    contradiction(recipe,
                  "scale-fmt=ue8m0 stores a byte per block; gran=tensor and gran=row "
                  "have scale-fmt=pow2");
  if (o.scale_fmt != ScaleFmt::kF32 && !kHasPow2(recipe))
    contradiction(recipe, "this contract has no rule for power-of-two scales");
  if (!recipe.shape.empty() && !recipe.has_outer() &&
      (recipe.format.levels[0].kind == ScaleKind::kE8m0) != (o.scale_fmt == ScaleFmt::kUe8m0))
    contradiction(recipe, "scale-fmt=ue8m0 goes with scales of type e8m0 and the others with f32");
  if (o.order == kVerlDsv4 && o.scale_fmt == ScaleFmt::kF32)
    contradiction(recipe, "verl-dsv4 has powers of two only, scale-fmt=pow2 or ue8m0");
  if (is_one_of(recipe, {kTorchaoDyn, kTorchaoAffine}) && o.scale_fmt == ScaleFmt::kUe8m0)
    contradiction(recipe, "this contract stores binary32 scales, scale-fmt=f32 or pow2");
}

}  // namespace

const FamilyKeys& fp8_keys() {
  static const FamilyKeys keys{kFp8Keys, apply, contracts, finish, check};
  return keys;
}

}  // namespace fp4scope
