// custom_format.cc: see custom_format.h.
#include "sim/custom_format.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "formats/scalars.h"
#include "sim/error.h"
#include "sim/recipe_keys.h"

namespace fp4scope {
namespace {

constexpr int kMostElements = 256;  // in a block; what a kernel holds in registers and stack

// NormalFloat of QLoRA (arXiv 2305.14314, appendix E; bitsandbytes nf4): quantiles of N(0, 1)
// scaled to [-1, 1], as binary32 values.
constexpr Lut kNf4{
    "nf4",
    16,
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
     -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
     0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
     0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::kUsage, what);
}

std::optional<int> number_of(std::string_view text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return {};
  return n;
}

// exmy with its bias and specials.
std::optional<MinifloatSpec> minifloat_of(std::string_view name) {
  const std::size_t m = name.find('m');
  if (name.empty() || name[0] != 'e' || m == name.npos) return {};
  const auto e_bits = number_of(name.substr(1, m - 1)), m_bits = number_of(name.substr(m + 1));
  if (!e_bits || !m_bits || *e_bits < 0 || *m_bits < 0) return {};
  // spec/scalars.md section 1, and the elements of HiFX.
  constexpr std::string_view kNamed[] = {"e2m1", "e1m2", "e2m3", "e3m2",
                                         "e4m3", "e5m2", "e1m1", "e1m3"};
  for (const NamedSpec& row : kScalars) {
    for (const std::string_view known : kNamed) {
      if (row.name == known && name == known) return row.spec;
    }
  }
  if (*e_bits < 1 || *e_bits > 6 || *m_bits > 10 || 1 + *e_bits + *m_bits > 8) {
    refuse(
        fmt::format("element {}: expected 1 to 6 exponent bits, at most 10 fraction bits and at "
                    "most 8 bits with the sign",
                    name));
  }
  return MinifloatSpec{*e_bits, *m_bits, (1 << (*e_bits - 1)) - 1, true, true, Special::kNone};
}

struct Element {
  MinifloatSpec spec;
  std::shared_ptr<const Lut> lut;
  std::string name;  // canonical
};

Element element_of(std::string_view text, const FormatLibrary& library) {
  if (text.starts_with("lut:")) {
    const std::string_view name = text.substr(4);
    for (const auto* list : {&library.luts, &built_in_luts()}) {
      for (const NamedLut& known : *list) {
        if (known.name != name) continue;
        int bits = 2;
        while ((1 << bits) < known.lut->count) ++bits;
        // Only the width counts; values come from the table.
        return {integer_spec(bits, 0, SignCode::kTwosComplement), known.lut, std::string(text)};
      }
    }
    std::string names;
    for (const auto* list : {&library.luts, &built_in_luts()}) {
      for (const NamedLut& known : *list) names += (names.empty() ? "" : ", ") + known.name;
    }
    refuse(fmt::format("element lut:{}: no such table; expected one of {}", name, names));
  }
  for (const NamedElement& known : library.elements) {
    if (known.name == text) return {known.spec, nullptr, std::string(text)};
  }
  if (text == "s1p2") return {kE1M2, nullptr, "e1m2"};
  if (text.starts_with("int")) {
    const auto bits = number_of(text.substr(3));
    if (!bits || *bits < 2 || *bits > 8) {
      refuse(fmt::format("element {}: expected int2 to int8", text));
    }
    return {integer_spec(*bits, 0, SignCode::kTwosComplement), nullptr, std::string(text)};
  }
  if (const auto spec = minifloat_of(text)) return {*spec, nullptr, std::string(text)};
  refuse(fmt::format(
      "element \"{}\" is unknown; expected exmy such as e2m1, intN, s1p2 or lut:NAME", text));
}

struct Level {
  int group = 0;  // 0: outer
  bool is_row = false;
  ScaleLevel scale;
  std::string_view type;
};

Level level_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == text.npos) {
    refuse(fmt::format("\"{}\" is no scale, expected GROUP:SCALE such as 16:e4m3 or tensor:f32",
                       text));
  }
  const std::string_view group = text.substr(0, colon), type = text.substr(colon + 1);
  Level level;
  if (group == "row" || group == "tensor") {
    level.is_row = group == "row";
    if (type != "f32") refuse(fmt::format("{}: a scale per tensor or row is f32", text));
  } else {
    const auto n = number_of(group);
    if (!n || *n < 1 || *n > kMostElements) {
      refuse(fmt::format("{}: expected a group of 1 to {} elements, row or tensor", text,
                         kMostElements));
    }
    level.group = *n;
  }
  level.scale.group = level.group;
  constexpr struct {
    std::string_view name, canonical;
    ScaleKind kind;
    MinifloatSpec spec;
  } kTypes[] = {{"e4m3", "e4m3", ScaleKind::kMinifloat, kUE4M3},
                {"ue4m3", "e4m3", ScaleKind::kMinifloat, kUE4M3},
                {"ue5m3", "ue5m3", ScaleKind::kMinifloat, kUE5M3},
                {"e6m2", "e6m2", ScaleKind::kMinifloat, kE6M2},
                {"e8m0", "e8m0", ScaleKind::kE8m0, {}},
                {"micro", "micro", ScaleKind::kMicroExponent, {}},
                {"f32", "f32", ScaleKind::kBinary32, {}},
                {"bf16", "bf16", ScaleKind::kBfloat16, {}},
                {"f16", "f16", ScaleKind::kBinary16, {}}};
  for (const auto& known : kTypes) {
    if (known.name != type) continue;
    level.scale.kind = known.kind;
    level.scale.spec = known.spec;
    level.type = known.canonical;
    return level;
  }
  refuse(
      fmt::format("{}: unknown scale type; expected e4m3, ue5m3, e6m2, e8m0, micro, f32, bf16 "
                  "or f16",
                  text));
}

Family family_of(const Element& element, const std::vector<Level>& blocks, bool has_outer) {
  const bool is_integer = element.spec.is_twos_complement() && element.lut == nullptr;
  if (blocks.empty()) {
    if (element.lut != nullptr) refuse("a table of values needs a block scale");
    return Family::kFp8;
  }
  if (blocks[0].scale.kind == ScaleKind::kMicroExponent) {
    const ScaleKind last = blocks.back().scale.kind;
    if (last != ScaleKind::kMinifloat) {
      refuse("one-bit scales go below a block scale of type e4m3, ue5m3 or e6m2");
    }
    for (std::size_t i = 1; i + 1 < blocks.size(); ++i) {
      if (blocks[i].scale.kind != ScaleKind::kMicroExponent) {
        refuse("between the elements and the block scale there are one-bit scales only");
      }
    }
    if (has_outer) refuse("a format with one-bit scales has no tensor or row scale");
    return Family::kHif4;
  }
  if (blocks.size() > 1) {
    refuse(
        "no contract says how two block scales of more than one bit are computed; expected one "
        "of them, with one-bit scales below it or a tensor or row scale above it");
  }
  switch (blocks[0].scale.kind) {
    case ScaleKind::kE8m0:
      if (has_outer) refuse("no contract combines e8m0 block scales with a tensor or row scale");
      return Family::kMx;
    case ScaleKind::kMinifloat:
      return Family::kNvfp4;
    case ScaleKind::kBinary32:
      if (has_outer) refuse("no contract combines f32 block scales with a tensor or row scale");
      return is_integer ? Family::kInt4 : Family::kFp8;
    default:
      if (has_outer) refuse("no contract combines 16-bit block scales with a tensor or row scale");
      return Family::kInt4;
  }
}

std::string_view default_contract(Family family) {
  switch (family) {
    case Family::kMx:
      return "torchao-rceil";
    case Family::kNvfp4:
      return "te";
    case Family::kHif4:
      return "gcc";
    case Family::kInt4:
      return "ct-rtn";
    case Family::kFp8:
      return "te";
    case Family::kPass:
      break;
  }
  return "bf16";
}

}  // namespace

const std::vector<NamedLut>& built_in_luts() {
  static const std::vector<NamedLut> luts{
      {"nf4", std::shared_ptr<const Lut>(&kNf4, [](const Lut*) {})}};
  return luts;
}

bool uses_library(std::string_view shape, const FormatLibrary& library) {
  std::string_view element = shape.substr(0, shape.find('/'));
  const auto is_named = [&](const auto& known) { return known.name == element; };
  if (std::any_of(library.shapes.begin(), library.shapes.end(),
                  [&](const NamedShape& known) { return known.name == shape; }))
    return true;
  if (std::any_of(library.elements.begin(), library.elements.end(), is_named)) return true;
  if (element.starts_with("lut:")) element.remove_prefix(4);
  return std::any_of(library.luts.begin(), library.luts.end(), is_named);
}

Recipe custom_recipe(std::string_view shape, const FormatLibrary& library) {
  for (const NamedShape& known : library.shapes) {
    if (known.name != shape) continue;
    FormatLibrary rest = library;
    std::erase_if(rest.shapes, [&](const NamedShape& s) { return s.name == known.name; });
    return custom_recipe(known.shape, rest);
  }
  std::vector<std::string_view> parts;
  for (std::string_view rest = shape;;) {
    const std::size_t slash = rest.find('/');
    parts.push_back(rest.substr(0, slash));
    if (slash == rest.npos) break;
    rest.remove_prefix(slash + 1);
  }
  const Element element = element_of(parts[0], library);
  if (parts.size() == 1) {
    refuse(fmt::format("{} has no scale, expected ELEM/GROUP:SCALE such as e2m1/16:e4m3", shape));
  }
  std::string canonical = element.name;
  std::vector<Level> blocks;  // innermost first
  std::optional<Level> outer;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Level level = level_of(parts[i]);
    if (outer)
      refuse(fmt::format("{} comes after the tensor or row scale, which is outermost", parts[i]));
    if (level.group == 0) {
      outer = level;
    } else {
      if (!blocks.empty() &&
          (level.group % blocks.back().group != 0 || level.group == blocks.back().group)) {
        refuse(fmt::format("group {} does not nest: expected a larger multiple of {}", level.group,
                           blocks.back().group));
      }
      blocks.push_back(level);
    }
    canonical += fmt::format("/{}:{}",
                             level.group != 0 ? std::to_string(level.group)
                             : level.is_row   ? "row"
                                              : "tensor",
                             level.type);
  }
  if (blocks.size() > 3) refuse("expected at most three scales below the tensor or row scale");

  Recipe recipe;
  recipe.family = family_of(element, blocks, outer.has_value());
  recipe.contract = default_contract(recipe.family);
  recipe.shape = canonical;
  recipe.lut = element.lut;
  BlockFormat& format = recipe.format;
  format.name = "custom";
  format.element = element.spec;
  format.lut = element.lut.get();
  format.num_levels = 0;
  const auto push = [&](const ScaleLevel& level) {
    format.levels[static_cast<std::size_t>(format.num_levels++)] = level;
  };
  if (outer) push(outer->scale);
  for (auto level = blocks.rbegin(); level != blocks.rend(); ++level) push(level->scale);
  format.block = blocks.empty() ? 64 : blocks.back().group;
  format.scale_bytes = 0;
  for (const Level& level : blocks) {
    format.scale_bytes += (level.scale.storage_bits() * (format.block / level.group) + 7) / 8;
  }
  return recipe;
}

void choose_custom_family(Recipe& recipe, std::string_view contract) {
  const auto has = [&](Family family) {
    for (const ContractInfo& info : contracts_of(family, "custom")) {
      if (info.name == contract || (!info.alias.empty() && info.alias == contract)) return true;
    }
    return false;
  };
  if (has(recipe.family)) return;
  // Power-of-two scales are those of MX and, with scale-fmt=ue8m0, of FP8.
  if (recipe.family == Family::kMx && has(Family::kFp8)) recipe.family = Family::kFp8;
  // E4M3 scales without an outer one are also those of rtp-llm (INT4).
  const bool has_outer = recipe.format.num_levels > 1;
  if (recipe.family == Family::kNvfp4 && !has_outer && has(Family::kInt4))
    recipe.family = Family::kInt4;
}

void apply_shape(Recipe& recipe) {
  const BlockFormat& format = recipe.format;
  const bool has_outer = format.num_levels > 0 && format.levels[0].group == 0;
  const bool is_row = recipe.shape.find("/row:") != std::string::npos;
  switch (recipe.family) {
    case Family::kMx:
      recipe.mx.block = static_cast<std::uint32_t>(format.block);
      break;
    case Family::kNvfp4:
      recipe.nvfp4.scale = !has_outer ? OuterScale::kNone
                           : is_row   ? OuterScale::kRow
                                      : OuterScale::kTensor;
      break;
    case Family::kInt4:
      recipe.int4.group = static_cast<std::uint32_t>(format.block);
      // ct-rtn stores its scale in the type of the weight.
      if (recipe.int4.order == Int4Order::kCtRtn) {
        recipe.int4.dtype = format.levels[0].kind == ScaleKind::kBinary32   ? DType16::kF32
                            : format.levels[0].kind == ScaleKind::kBinary16 ? DType16::kF16
                                                                            : DType16::kBf16;
      }
      break;
    case Family::kFp8:
      recipe.fp8.gran = !has_outer ? Fp8Gran{static_cast<std::uint32_t>(format.block), 1}
                        : is_row   ? Fp8Gran{0, 1}
                                   : Fp8Gran{0, 0};
      if (!has_outer && format.levels[0].kind == ScaleKind::kE8m0) {
        recipe.fp8.scale_fmt = ScaleFmt::kUe8m0;
      }
      break;
    case Family::kHif4:
    case Family::kPass:
      break;
  }
}

void check_shape(const Recipe& recipe) {
  if (recipe.shape.empty() || recipe.family != Family::kNvfp4) return;
  const bool has_outer = recipe.format.levels[0].group == 0;
  const bool is_row = recipe.shape.find("/row:") != std::string::npos;
  const OuterScale scale = recipe.nvfp4.scale;
  if (!has_outer && scale != OuterScale::kNone) {
    contradiction(recipe, "the shape has no tensor or row scale, so scale=none only");
  }
  if (has_outer && is_row != (scale == OuterScale::kRow)) {
    contradiction(recipe, is_row
                              ? "the shape has a scale per row, so scale=row only"
                              : "the shape has a tensor scale, so scale=row does not go with it");
  }
}

}  // namespace fp4scope
