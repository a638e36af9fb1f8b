// cmd_formats.cc: what this build knows: formats, contracts, scalars, layouts and backends.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/text_table.h"
#include "common.h"
#include "formats/scalars.h"
#include "scalar_table.h"
#include "sim/custom_format.h"
#include "sim/layouts/registry.h"

namespace fp4scope::tools {
namespace {

std::string spec_name(const MinifloatSpec& spec) {
  for (const NamedSpec& row : kScalars) {
    if (row.spec == spec) return std::string(row.name);
  }
  if (spec.is_twos_complement()) return fmt::format("int{}", spec.storage_bits());
  return fmt::format("e{}m{}", spec.exponent_bits, spec.mantissa_bits);
}

// "binary32/tensor ue4m3/16": scale levels, outermost first.
std::string levels_text(const BlockFormat& format) {
  std::string out;
  for (int i = 0; i < format.num_levels; ++i) {
    const ScaleLevel& level = format.levels[static_cast<std::size_t>(i)];
    std::string kind;
    switch (level.kind) {
      case ScaleKind::kMinifloat:
        kind = spec_name(level.spec);
        break;
      case ScaleKind::kE8m0:
        kind = "e8m0";
        break;
      case ScaleKind::kBinary32:
        kind = "binary32";
        break;
      case ScaleKind::kBfloat16:
        kind = "bf16";
        break;
      case ScaleKind::kBinary16:
        kind = "fp16";
        break;
      case ScaleKind::kMicroExponent:
        kind = "micro-exponent";
        break;
    }
    out += fmt::format("{}{}/{}", out.empty() ? "" : " ", kind,
                       level.group == 0 ? "tensor" : std::to_string(level.group));
  }
  return out;
}

std::string_view evidence_name(Evidence evidence) {
  switch (evidence) {
    case Evidence::kVerified:
      return "verified";
    case Evidence::kRead:
      return "read";
    case Evidence::kInferred:
      return "inferred";
  }
  return "";
}

// The formats of one family share contracts and keys: "mxfp4, mxfp6e2m3, ...".
std::string family_formats(Family family) {
  std::vector<std::string> names;
  for (const FormatRow& row : all_formats()) {
    if (row.family == family) names.emplace_back(row.format.name);
  }
  return joined(names, ", ");
}

std::string contract_formats(Family family, const ContractInfo& contract) {
  if (contract.formats.empty()) return family_formats(family);
  std::string out(contract.formats);
  for (std::size_t at = out.find(' '); at != std::string::npos; at = out.find(' ', at + 2)) {
    out.replace(at, 1, ", ");
  }
  return out;
}

bool has_contract(const FormatRow& row, std::string_view contract) {
  const auto list = contracts_of(row.family, row.format.name);
  return std::any_of(list.begin(), list.end(),
                     [&](const ContractInfo& c) { return c.name == contract; });
}

std::vector<Family> all_families() {
  std::vector<Family> out;
  for (const FormatRow& row : all_formats()) {
    if (std::find(out.begin(), out.end(), row.family) == out.end()) out.push_back(row.family);
  }
  return out;
}

Json format_json(const FormatRow& row) {
  return {{"kind", "format"},
          {"name", row.format.name},
          {"element", spec_name(row.format.element)},
          {"block", row.format.block},
          {"scales", levels_text(row.format)},
          {"bits_per_value", row.format.bits_per_element()},
          {"summary", row.summary},
          {"source", row.source}};
}

Json contract_json(Family family, const ContractInfo& contract) {
  return {{"kind", "contract"},
          {"name", contract.name},
          {"formats", contract_formats(family, contract)},
          {"default", contract.is_default},
          {"evidence", evidence_name(contract.evidence)},
          {"source", contract.source},
          {"vectors", contract.vectors},
          {"alias", contract.alias.empty() ? Json(nullptr) : Json(contract.alias)},
          {"note", contract.note.empty() ? Json(nullptr) : Json(contract.note)}};
}

// `format` empty: all of the family.
// Source, vectors and note, from `margin` on.
std::string evidence_text(const ContractInfo& c, std::size_t margin) {
  const std::string blank(margin, ' ');
  std::string out = wrapped(blank + "source:", c.source, margin + 9);
  out += wrapped(blank + "vectors:", c.vectors.empty() ? "none; the exact oracle" : c.vectors,
                 margin + 9);
  if (!c.note.empty()) out += wrapped(blank + "note:", c.note, margin + 9);
  return out;
}

std::string contracts_text(Family family, std::string_view format) {
  std::string out = fmt::format("contracts of {}\n",
                                format.empty() ? family_formats(family) : std::string(format));
  for (const ContractInfo& c : contracts_of(family, format.empty() ? "custom" : format)) {
    out += fmt::format("  {}{}{}: rules {}\n", c.name,
                       c.alias.empty() ? "" : fmt::format(" (also {})", c.alias),
                       c.is_default ? " (default)" : "", evidence_name(c.evidence));
    if (format.empty() && !c.formats.empty()) {
      out += wrapped("    formats:", contract_formats(family, c), 13);
    }
    out += evidence_text(c, 4);
  }
  return out;
}

struct BackendRow {
  std::string_view name;
  Support available;
};
std::vector<BackendRow> all_backends() {
  std::vector<BackendRow> out;
  for (const Backend* backend : cpu_backends())
    out.push_back({backend->name(), backend->available()});
  out.push_back({oracle_backend().name(), oracle_backend().available()});
  return out;
}

Json layout_json(const LayoutInfo& layout) {
  return {{"kind", "layout"},      {"name", layout.name},
          {"of", layout.kind},     {"formula", layout.formula},
          {"users", layout.users}, {"evidence", evidence_name(layout.evidence)}};
}
std::string layout_text(const LayoutInfo& layout) {
  return fmt::format("{} {}: {}\n", layout.kind, layout.name, evidence_name(layout.evidence)) +
         wrapped("", layout.formula, 4) + wrapped("    used by:", layout.users, 13);
}

std::string list_text() {
  TextTable formats;
  formats.column("format", Align::kLeft);
  formats.column("element", Align::kLeft);
  formats.column("block", Align::kRight);
  formats.column("scales, outermost first", Align::kLeft);
  formats.column("bits/value", Align::kRight);
  for (const FormatRow& row : all_formats()) {
    formats.row({std::string(row.format.name), spec_name(row.format.element),
                 std::to_string(row.format.block), levels_text(row.format),
                 fmt::format("{}", row.format.bits_per_element())});
  }
  TextTable scalars;
  scalars.column("scalar", Align::kLeft);
  scalars.column("bits", Align::kRight);
  scalars.column("largest", Align::kRight);
  scalars.column("smallest", Align::kRight);
  scalars.column("source", Align::kLeft);
  for (const Scalar& scalar : all_scalars()) {
    const Range range = range_of(scalar);
    scalars.row({scalar.name, std::to_string(scalar.bits), exact_text(range.max_finite),
                 exact_text(range.min_positive), scalar.source});
  }
  std::string out = formats.str();
  for (const Family family : all_families()) out += '\n' + contracts_text(family, "");
  out += "\nlayouts of other projects' files; no code or scale byte depends on them\n";
  for (const LayoutInfo& layout : all_layouts()) out += "  " + layout_text(layout);
  out += '\n' + scalars.str() + "\nbackends, fastest first; 'auto' never takes the oracle\n";
  for (const BackendRow& row : all_backends()) {
    out += fmt::format("  {:<10} {}\n", row.name,
                       row.available.ok ? "available" : "not here: " + row.available.reason);
  }
  return out + "\n'fp4scope formats NAME' shows codes, keys and sources of one of these names.\n";
}

Json list_json() {
  Json out = json_envelope(provenance());
  Json& results = out["results"];
  for (const FormatRow& row : all_formats()) results.push_back(format_json(row));
  for (const Family family : all_families()) {
    for (const ContractInfo& contract : contracts_of(family, "custom")) {
      results.push_back(contract_json(family, contract));
    }
  }
  for (const LayoutInfo& layout : all_layouts()) results.push_back(layout_json(layout));
  for (const Scalar& scalar : all_scalars()) results.push_back(scalar_json(scalar, false));
  for (const BackendRow& row : all_backends()) {
    results.push_back({{"kind", "backend"},
                       {"name", row.name},
                       {"available", row.available.ok},
                       {"reason", row.available.ok ? Json(nullptr) : Json(row.available.reason)}});
  }
  return out;
}

std::string format_text(const FormatRow& row) {
  const BlockFormat& format = row.format;
  std::string out = fmt::format(
      "{}: {}\nsource: {}\nelement {}, block {}, scales (outermost first) {}\n{} bits per value",
      format.name, row.summary, row.source, spec_name(format.element), format.block,
      format.num_levels == 0 ? "none" : levels_text(format), format.bits_per_element());
  if (format.num_levels > 0 && format.levels[0].group == 0)
    out += ", and 32 bits per tensor or row";
  out += "\n\nkeys\n";
  for (const KeyHelp& key : recipe_keys(row.family)) {
    out += wrapped(fmt::format("  {}", key.key), key.meaning, 17);
    out += wrapped("", key.values, 17);
  }
  std::string defaults = to_full_string(parse_recipe(std::string(format.name)));
  out +=
      "\ndefaults\n  " + defaults + "\n\n" + contracts_text(row.family, format.name) + "\nelement ";
  if (format.name == "if4") out += "e2m1 or, in blocks whose scale byte has bit 7 set, int4\n";
  for (const Scalar& scalar : all_scalars()) {
    if (scalar.name == spec_name(format.element)) return out + scalar_text(scalar);
  }
  return out + scalar_text(element_scalar(format, spec_name(format.element)));
}

std::string custom_text() {
  std::string luts;
  for (const NamedLut& lut : built_in_luts()) luts += (luts.empty() ? "" : ", ") + lut.name;
  std::string out = fmt::format(
      "custom:ELEMENT/GROUP:SCALE[/GROUP:SCALE...][,key=value...], scales innermost first\n"
      "  ELEMENT  exmy (x exponent, y fraction bits, at most 8 bits with the sign), int2 to int8,\n"
      "           s1p2, lut:NAME ({}, or a table of --format-file)\n"
      "  GROUP    elements along K, at most 256; row or tensor for an outermost f32\n"
      "  SCALE    e4m3, ue5m3, e6m2, e8m0, micro (one bit, factor 1 or 2), f32, bf16, f16\n"
      "The scales decide the family, and with it contracts and keys:\n",
      luts);
  const struct {
    const char* shape;
    const char* what;
  } kExamples[] = {{"e2m1/32:e8m0", "power-of-two scales"},
                   {"e2m1/16:e4m3/tensor:f32", "minifloat scales, an outer scale or none"},
                   {"e1m2/4:micro/8:micro/64:e6m2", "one-bit scales below a minifloat scale"},
                   {"int4/32:bf16", "16-bit scales; f32 scales of integers"},
                   {"e4m3/128:f32", "f32 scales of minifloats, per block, row or tensor"}};
  for (const auto& example : kExamples) {
    const Recipe recipe = parse_recipe(std::string("custom:") + example.shape);
    out +=
        fmt::format("  {:<30} {}: contracts of {}; {} bits per value\n", example.shape,
                    example.what, family_formats(recipe.family), recipe.format.bits_per_element());
  }
  return out;
}

// Case does not matter and '_' is '-', as in recipes.
std::string normalised(std::string name) {
  for (char& c : name) {
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

int run_formats(const std::string& typed, bool json) {
  if (typed.empty()) {
    write_stdout(json ? json_text(list_json()) : list_text());
    return 0;
  }
  std::string name = normalised(typed);
  if (name.starts_with("lut:")) name.erase(0, 4);
  Json out = json_envelope(provenance());
  std::string text;
  for (const FormatRow& row : all_formats()) {
    if (name != row.format.name) continue;
    text += format_text(row);
    Json entry = format_json(row);
    entry["keys"] = Json::array();
    for (const KeyHelp& key : recipe_keys(row.family)) {
      entry["keys"].push_back({{"key", key.key}, {"values", key.values}, {"meaning", key.meaning}});
    }
    entry["recipe_full"] = to_full_string(parse_recipe(name));
    out["results"].push_back(std::move(entry));
    for (const ContractInfo& contract : contracts_of(row.family, row.format.name)) {
      out["results"].push_back(contract_json(row.family, contract));
    }
  }
  for (const Scalar& scalar : all_scalars()) {
    if (name != scalar.name) continue;
    text += scalar_text(scalar);
    out["results"].push_back(scalar_json(scalar, true));
  }
  for (const Family family : all_families()) {
    for (const ContractInfo& contract : contracts_of(family, "custom")) {
      if (name != contract.name && (contract.alias.empty() || name != contract.alias)) continue;
      text += wrapped("contract", contract.name, 9);
      if (!contract.alias.empty()) text += wrapped("also:", contract.alias, 9);
      text += wrapped("formats:", contract_formats(family, contract), 9);
      text += wrapped("rules:", evidence_name(contract.evidence), 9);
      text += evidence_text(contract, 0);
      for (const FormatRow& row : all_formats()) {
        if (row.family != family || !has_contract(row, contract.name)) continue;
        const std::string recipe = fmt::format("{}:contract={}", row.format.name, contract.name);
        try {
          text += "  " + to_full_string(parse_recipe(recipe)) + '\n';
        } catch (const Error& e) {  // a scale that has to be given
          text += fmt::format("  {}\n", e.what());
        }
      }
      out["results"].push_back(contract_json(family, contract));
    }
  }
  for (const LayoutInfo& layout : all_layouts()) {
    if (name != layout.name) continue;
    text += layout_text(layout);
    out["results"].push_back(layout_json(layout));
  }
  if (name == "custom") {
    text += custom_text();
    out["results"].push_back({{"kind", "grammar"}, {"name", "custom"}, {"text", custom_text()}});
  }
  for (const NamedLut& lut : built_in_luts()) {
    if (name != lut.name) continue;
    const Recipe recipe = parse_recipe("custom:lut:" + lut.name + "/64:bf16");
    const Scalar scalar = element_scalar(recipe.format, "lut:" + lut.name);
    text += scalar_text(scalar);
    out["results"].push_back(scalar_json(scalar, true));
  }
  if (text.empty()) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("there is no format, scalar, contract or layout '{}'; 'fp4scope formats' lists "
                    "all names",
                    typed));
  }
  write_stdout(json ? json_text(out) : text);
  return 0;
}

}  // namespace

void add_formats(CLI::App& app, int& exit_code) {
  auto name = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand("formats", "formats, contracts, scalars and backends");
  sub->add_option("NAME", *name, "a block format, scalar or contract: codes, keys and sources");
  sub->add_flag("--json", *json, "print JSON instead of text");
  sub->footer("Example:\n  fp4scope formats e2m1\n  fp4scope formats nvfp4");
  sub->callback([name, json, &exit_code] { exit_code = run_formats(*name, *json); });
}

}  // namespace fp4scope::tools
