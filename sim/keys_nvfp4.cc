// keys_nvfp4.cc: recipe keys of NVFP4 and its siblings if4 and nvint4 (spec/nvfp4.md section 1).
// Which stack has which choice: sections 2 to 6 there and spec/more.md 3, 4 and 6.
#include <fmt/format.h>

#include <algorithm>

#include "formats/contracts/nvfp4.h"
#include "formats/scalars.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

using Order = Nvfp4Order;
constexpr std::uint32_t kInfinityBits = 0x7f800000u;

constexpr KeyValue kOuterScales[] = {
    key_value("tensor", OuterScale::kTensor), key_value("row", OuterScale::kRow),
    key_value("none", OuterScale::kNone), key_value("given", OuterScale::kGiven)};
constexpr KeyValue kGRules[] = {key_value("div", GRule::kDiv), key_value("rcp-mul", GRule::kRcpMul),
                                key_value("inv-div", GRule::kInvDiv),
                                key_value("inv-mul", GRule::kInvMul),
                                key_value("div-unguarded", GRule::kDivUnguarded)};
constexpr KeyValue kBlockShapes[] = {key_value("1d", BlockShape::k1d),
                                     key_value("2d", BlockShape::k2d)};
constexpr KeyValue kSelects[] = {key_value("static6", Select::kStatic6),
                                 key_value("static4", Select::kStatic4),
                                 key_value("mse", Select::kMse), key_value("mae", Select::kMae),
                                 key_value("absmax", Select::kAbsmax)};
constexpr KeyValue kMetrics[] = {key_value("exact", Metric::kExact),
                                 key_value("fast", Metric::kFast)};
constexpr KeyValue kScores[] = {key_value("amax", Score::kAmax),
                                key_value("decode", Score::kDecode)};
constexpr KeyValue kSums[] = {key_value("seq", SumOrder::kSeq),
                              key_value("halves", SumOrder::kHalves),
                              key_value("tree", SumOrder::kTree), key_value("fma", SumOrder::kFma)};
constexpr KeyValue kE4m3Maxes[] = {{"448", 448}, {"256", 256}};
constexpr KeyValue kOnOff[] = {{"on", 1}, {"off", 0}};
constexpr KeyValue kNibbleOrders[] = {key_value("low-first", Nibbles::kLowFirst),
                                      key_value("high-first", Nibbles::kHighFirst),
                                      key_value("split8", Nibbles::kSplit8)};

bool is_one_of(const Recipe& r, std::initializer_list<Order> orders) {
  return std::find(orders.begin(), orders.end(), r.nvfp4.order) != orders.end();
}
bool is_te(const Recipe& r) {
  return is_one_of(r, {Order::kTe, Order::kTeFast});
}
bool is_flashinfer(const Recipe& r) {
  return is_one_of(r, {Order::kFlashinfer, Order::kFlashinferFast});
}
bool is_fouroversix(const Recipe& r) {
  return is_one_of(r, {Order::kFouroversix, Order::kFouroversixCuda});
}
bool is_mlx(const Recipe& r) {
  return is_one_of(r, {Order::kMlxMetal, Order::kMlxCuda, Order::kMlxCpu});
}
bool is_sibling(const Recipe& r) {
  return r.format.name == "if4" || r.format.name == "nvint4";
}
// The stacks with two candidates per block. nvint4 has one.
bool can_choose(const Recipe& r) {
  return (is_te(r) || is_flashinfer(r) || is_fouroversix(r)) && r.format.name != "nvint4";
}
bool uses_amax(const Recipe& r) {
  return r.nvfp4.scale == OuterScale::kTensor || r.nvfp4.scale == OuterScale::kGiven;
}
// The ceiling of another scale type is its largest number.
bool has_e4m3_scale(const Recipe& r) {
  for (int i = 0; i < r.format.num_levels; ++i) {
    const ScaleLevel& level = r.format.levels[static_cast<std::size_t>(i)];
    if (level.group != 0 && level.kind == ScaleKind::kMinifloat && level.spec == kUE4M3)
      return true;
  }
  return false;
}

// Defaults that follow from the kind of outer scale and the selection (spec/nvfp4.md 1, 4.3).
void set_score_default(Recipe& r) {
  Nvfp4Options& o = r.nvfp4;
  const bool by_decode =
      o.scale == OuterScale::kNone || (is_flashinfer(r) && o.scale != OuterScale::kRow);
  o.score = o.is_adaptive() && by_decode ? Score::kDecode : Score::kAmax;
}
void set_scale(Recipe& r, std::uint64_t code) {
  r.nvfp4.scale = static_cast<OuterScale>(code);
  set_score_default(r);
}
void set_select(Recipe& r, std::uint64_t code) {
  Nvfp4Options& o = r.nvfp4;
  o.select = static_cast<Select>(code);
  o.e4m3max = o.is_adaptive() && (is_te(r) || is_fouroversix(r)) && !is_sibling(r) ? 256 : 448;
  o.metric = Metric::kExact;
  o.sum = o.order == Order::kFouroversixCuda && o.select == Select::kMse ? SumOrder::kFma
                                                                         : SumOrder::kSeq;
  set_score_default(r);
}
void set_amax(Recipe& r, std::uint64_t bits) {
  r.nvfp4.has_amax = true;
  r.nvfp4.amax_bits = static_cast<std::uint32_t>(bits);
}

constexpr KeyRow kNvfp4Keys[] = {
    {.name = "scale",
     .values = kOuterScales,
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::scale>,
     .set = set_scale,
     .meaning = "outer scale from the maximum of the tensor or of each row, none (1), or given "
                "with g",
     .applies = [](const Recipe& r) { return r.nvfp4.order != Order::kOnednn; }},
    {.name = "g",
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::g_bits>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::g_bits>,
     .meaning = "binary32 bits of the outer scale, with scale=given: the encode scale, for "
                "modelopt, torchao and flashinfer-kv the decode scale",
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
         [](const Recipe& r) { return uses_amax(r) && r.nvfp4.order != Order::kFlashinferKv; },
     .is_given = [](const Recipe& r) { return r.nvfp4.has_amax; }},
    {.name = "g-rule",
     .values = kGRules,
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::g_rule>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::g_rule>,
     .meaning = "arithmetic of g from the tensor maximum, with scale=tensor",
     .applies =
         [](const Recipe& r) {
           return r.nvfp4.scale == OuterScale::kTensor &&
                  (is_te(r) || is_flashinfer(r) ||
                   is_one_of(r, {Order::kTrtllm, Order::kVllm, Order::kMslk, Order::kMslkE8m0}));
         }},
    {"block", kBlockShapes, FP4SCOPE_KEY_FIELD(nvfp4, Nvfp4Options, block),
     "1x16, or 16x16 with the scale byte on 16 rows"},
    {"select", kSelects, get_field<&Recipe::nvfp4, &Nvfp4Options::select>, set_select,
     "what the block maximum is mapped to: 6, 4, or the one with the smaller error"},
    {.name = "metric",
     .values = kMetrics,
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::metric>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::metric>,
     .meaning = "error of the adaptive choice: of decoded values, or in units of code times scale",
     .applies = can_choose},
    {.name = "score",
     .values = kScores,
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::score>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::score>,
     .meaning = "decoding inside metric=exact: times amax over 6M, or times 1/g",
     .applies =
         [](const Recipe& r) { return r.nvfp4.is_adaptive() && r.nvfp4.metric == Metric::kExact; }},
    {.name = "e4m3max",
     .values = kE4m3Maxes,
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::e4m3max>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::e4m3max>,
     .meaning = "largest block scale that the outer scale aims at",
     .applies =
         [](const Recipe& r) {
           return has_e4m3_scale(r) && (is_te(r) || is_flashinfer(r) || is_fouroversix(r) ||
                                        is_one_of(r, {Order::kModelopt, Order::kModeloptStatic}));
         }},
    {.name = "sum",
     .values = kSums,
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::sum>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::sum>,
     .meaning = "order of the error sum over the elements of a block row",
     .applies =
         [](const Recipe& r) {
           return r.nvfp4.is_adaptive() && r.nvfp4.select != Select::kAbsmax;
         }},
    {.name = "rcp",
     .values = kRcps,
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::rcp>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::rcp>,
     .meaning = "table of the approximate reciprocal: measured, correctly rounded, or --rcp-table",
     .applies =
         [](const Recipe& r) {
           return is_one_of(
               r, {Order::kFlashinferFast, Order::kTrtllm, Order::kVllm, Order::kFlashinferKv});
         }},
    {.name = "ftz",
     .values = kOnOff,
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::ftz>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::ftz>,
     .meaning = "subnormal operands and results are zeros",
     .applies =
         [](const Recipe& r) {
           return is_flashinfer(r) ||
                  is_one_of(r, {Order::kTrtllm, Order::kVllm, Order::kFlashinferKv});
         }},
    {.name = "scalar-div",
     .values = kScalarDivs,
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::scalar_div>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::scalar_div>,
     .meaning = "torch division by a number: exact (CPU), or times its reciprocal (CUDA); under "
                "fouroversix of decoded values only",
     .applies =
         [](const Recipe& r) {
           return is_fouroversix(r) || is_one_of(r, {Order::kModelopt, Order::kModeloptStatic,
                                                     Order::kCompressedTensors, Order::kTorchao});
         }},
    {.name = "amax-dtype",
     .values = kDTypes,
     .get = get_field<&Recipe::nvfp4, &Nvfp4Options::amax_dtype>,
     .set = set_field<&Recipe::nvfp4, &Nvfp4Options::amax_dtype>,
     .meaning = "type in which the outer scale and the block maximum over 6 are computed",
     .applies = [](const Recipe& r) { return r.nvfp4.order == Order::kCompressedTensors; }},
    {"neg-zero", kNegZeros, FP4SCOPE_KEY_FIELD(nvfp4, Nvfp4Options, neg_zero),
     "code of an input -0"},
    {"ragged", kRaggeds, FP4SCOPE_KEY_FIELD(nvfp4, Nvfp4Options, ragged),
     "a row length that is no multiple of the block is padded with +0, or refused"},
    {"nibbles", kNibbleOrders, FP4SCOPE_KEY_FIELD(native, NativeLayout, nibbles),
     "order of the codes in a byte of the native layout"},
    {"layout", kScaleLayouts, FP4SCOPE_KEY_FIELD(native, NativeLayout, scales),
     "order of the scale bytes in the native layout"},
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

// scale=row and scale=given where the source has them.
void check_outer(const Recipe& recipe) {
  const Nvfp4Options& o = recipe.nvfp4;
  if (o.scale == OuterScale::kGiven) {
    if (is_mlx(recipe))
      contradiction(recipe, fmt::format("contract {} takes a tensor maximum and no scale: use "
                                        "scale=tensor with the key amax",
                                        recipe.contract));
    // A zero or non-finite scale from outside would be inverted to infinity or NaN
    // (spec/layouts.md section 4).
    if (o.g_bits == 0 || o.g_bits >= kInfinityBits)
      contradiction(recipe, fmt::format("g=0x{:08x} is not a finite positive binary32 number, "
                                        "which scale=given needs",
                                        o.g_bits));
  }
  if (o.order == Order::kMlxCpu && o.scale != OuterScale::kNone)
    contradiction(recipe, "contract mlx-cpu has no outer scale: scale=none only");
  // Without the key scale; a shape says it.
  if (o.order == Order::kOnednn && o.scale != OuterScale::kNone)
    contradiction(
        recipe,
        "contract onednn has no outer scale (scale=none): the shape has to end before the "
        "tensor or row scale");
  if (o.order == Order::kFlashinferKv && o.scale != OuterScale::kGiven)
    contradiction(recipe,
                  "contract flashinfer-kv takes its decode scale as an argument: "
                  "scale=given with g");
  if (o.order == Order::kModeloptStatic && o.scale != OuterScale::kTensor)
    contradiction(
        recipe,
        "contract modelopt-static scales blocks by the tensor maximum: scale=tensor, with "
        "amax where it is known from elsewhere");
  if (o.has_amax && o.amax_bits > kInfinityBits)
    contradiction(
        recipe, fmt::format("amax=0x{:08x} is not a binary32 number of at least +0", o.amax_bits));
  if (o.scale == OuterScale::kRow) {
    if (!is_te(recipe) && !is_flashinfer(recipe))
      contradiction(recipe,
                    fmt::format("contract {} has no scale per row (scale=row)", recipe.contract));
    if (o.block == BlockShape::k2d)
      contradiction(recipe, "scale=row excludes block=2d, whose blocks span 16 rows");
  }
}
void check_selection(const Recipe& recipe) {
  const Nvfp4Options& o = recipe.nvfp4;
  if (o.is_adaptive() && !can_choose(recipe))
    contradiction(recipe, fmt::format("{} has no adaptive choice under contract {}: "
                                      "select=static6 only",
                                      recipe.format.name, recipe.contract));
  if (o.select == Select::kStatic4 && (!is_fouroversix(recipe) || is_sibling(recipe)))
    contradiction(recipe,
                  "select=static4 exists for nvfp4 with contract fouroversix or "
                  "fouroversix-cuda only");
  if (o.select == Select::kAbsmax && !is_fouroversix(recipe))
    contradiction(recipe,
                  "select=absmax exists for contracts fouroversix and fouroversix-cuda "
                  "only");
  if (o.int4_candidate && !o.is_adaptive())
    contradiction(recipe, "if4 chooses between two candidates: select=mse, mae or absmax");
  if (o.int4_candidate && o.score == Score::kDecode)
    contradiction(recipe, "if4 has score=amax only");
  if (o.metric == Metric::kFast && (!o.is_adaptive() || is_fouroversix(recipe)))
    contradiction(recipe,
                  "metric=fast goes with select=mse or mae and contracts te, te-fast, "
                  "flashinfer and flashinfer-fast only");
  if (o.sum == SumOrder::kFma && o.select != Select::kMse)
    contradiction(recipe, "sum=fma goes with select=mse only");
  if (o.score == Score::kAmax && o.is_adaptive() && o.metric == Metric::kExact &&
      o.scale == OuterScale::kNone)
    contradiction(recipe, "score=amax needs an outer scale; scale=none has score=decode");
  if (is_fouroversix(recipe) && has_e4m3_scale(recipe)) {
    const std::uint32_t fixed = o.is_adaptive() && !is_sibling(recipe) ? 256 : 448;
    if (o.e4m3max != fixed)
      contradiction(recipe, fmt::format("contract {} has e4m3max={} with this selection",
                                        recipe.contract, fixed));
  }
  if (o.block == BlockShape::k2d && !is_te(recipe) && !is_fouroversix(recipe))
    contradiction(recipe,
                  fmt::format("contract {} has no 16x16 blocks (block=2d)", recipe.contract));
}
bool is_power_of_two(int n) {
  return (n & (n - 1)) == 0;
}
// User-defined formats: what of a contract is written for E2M1 under E4M3 only.
void check_geometry(const Recipe& recipe) {
  const Nvfp4Options& o = recipe.nvfp4;
  const BlockFormat& format = recipe.format;
  const bool is_e2m1 = format.element == kE2M1 && format.lut == nullptr;
  if (!is_sibling(recipe) && (!is_e2m1 || !has_e4m3_scale(recipe)) && !is_te(recipe) &&
      !is_flashinfer(recipe) && !is_one_of(recipe, {Order::kTrtllm, Order::kVllm}))
    contradiction(recipe,
                  fmt::format("contract {} is defined for e2m1 elements under e4m3 scales only",
                              recipe.contract));
  if (o.is_adaptive() && !is_e2m1)
    contradiction(recipe, "the choice between map-to-6 and map-to-4 needs e2m1 elements");
  if (o.is_adaptive() && o.metric == Metric::kFast && !has_e4m3_scale(recipe))
    contradiction(recipe, "metric=fast needs e4m3 scales, whose products with e2m1 fit FP16");
  const bool has_tree = o.is_adaptive() && (o.sum == SumOrder::kTree || o.block == BlockShape::k2d);
  if (has_tree && !is_power_of_two(format.block))
    contradiction(recipe, "sum=tree and an adaptive block=2d need a block of a power of two");
  if (o.is_adaptive() && o.sum == SumOrder::kHalves && format.block % 2 != 0)
    contradiction(recipe, "sum=halves needs an even block");
}
void check(const Recipe& recipe) {
  check_outer(recipe);
  check_selection(recipe);
  check_geometry(recipe);
  if (recipe.sr.enabled && recipe.nvfp4.order != Order::kTe)
    contradiction(recipe, fmt::format("contract {} has no stochastic rounding here: round=sr goes "
                                      "with contract te",
                                      recipe.contract));
}

}  // namespace

const FamilyKeys& nvfp4_keys() {
  static const FamilyKeys keys{kNvfp4Keys, apply, contracts, finish, check};
  return keys;
}

}  // namespace fp4scope
