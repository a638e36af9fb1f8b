// cmd_formats.cc: what this build knows, and the code table of any scalar. Values come from the
// library's decode; nothing is tabulated here.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "analysis/text_table.h"
#include "common.h"
#include "formats/e8m0.h"
#include "formats/minifloat.h"

namespace fp4scope::tools {
namespace {

// A scalar as the tables below need it: a minifloat, or E8M0.
struct Scalar {
  std::string name;
  std::string source;
  int bits = 0;
  std::uint32_t code_count = 0;
  std::function<float(std::uint32_t)> decode;
  // Fields of a code for display, most significant first: sign, exponent, fraction.
  int sign_bits = 0, exponent_bits = 0, mantissa_bits = 0, bias = 0;
};

std::vector<Scalar> all_scalars() {
  std::vector<Scalar> out;
  for (const NamedSpec& row : kScalars) {
    const MinifloatSpec spec = row.spec;
    out.push_back({std::string(row.name), std::string(row.source), spec.storage_bits(),
                   spec.code_count(),
                   [spec](std::uint32_t code) { return decode<Lane<1>>(spec, code); },
                   spec.is_signed ? 1 : 0, spec.exponent_bits, spec.mantissa_bits, spec.bias});
  }
  out.push_back({"e8m0", "OCP MX v1.0 block scale", 8, 256,
                 [](std::uint32_t code) { return e8m0_decode<Lane<1>>(code); }, 0, 8, 0, 127});
  return out;
}

// Exact: a short decimal, else significand * 2^exponent.
std::string exact_text(float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Inf" : "-Inf";
  const double wide = value;
  std::string decimal = fmt::format("{}", wide);
  if (decimal.size() <= 8 && decimal.find('e') == std::string::npos) return decimal;
  const auto bits = bit_cast<std::uint64_t>(wide);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
  const double significand =
      bit_cast<double>((bits & 0x800fffffffffffffull) | (std::uint64_t{1023} << 52));
  if (std::abs(significand) == 1)
    return fmt::format("{}2^{}", significand < 0 ? "-" : "", exponent);
  return fmt::format("{}*2^{}", significand, exponent);
}

std::string bit_pattern(const Scalar& scalar, std::uint32_t code) {
  std::string out;
  int at = scalar.bits;
  for (const int width : {scalar.sign_bits, scalar.exponent_bits, scalar.mantissa_bits}) {
    if (width == 0) continue;
    if (!out.empty()) out += '\'';
    at -= width;
    out += fmt::format("{:0{}b}", (code >> at) & ((1u << width) - 1u), width);
  }
  return out;
}

// Limits found by decoding every code.
struct Range {
  float max_finite = 0, min_positive = 0;
  std::uint32_t max_code = 0, min_code = 0;
  std::vector<std::uint32_t> zeros, infinities, nans;
  std::int64_t levels = 0;  // distinct finite values; +0 and -0 are one
};
Range range_of(const Scalar& scalar) {
  Range out;
  for (std::uint32_t code = 0; code < scalar.code_count; ++code) {
    const float value = scalar.decode(code);
    if (std::isnan(value)) {
      out.nans.push_back(code);
    } else if (std::isinf(value)) {
      out.infinities.push_back(code);
    } else if (value == 0) {
      out.levels += out.zeros.empty() ? 1 : 0;
      out.zeros.push_back(code);
    } else {
      ++out.levels;
      if (value > out.max_finite) out.max_finite = value, out.max_code = code;
      if (value > 0 && (out.min_positive == 0 || value < out.min_positive)) {
        out.min_positive = value, out.min_code = code;
      }
    }
  }
  return out;
}

std::string code_hex(const Scalar& scalar, std::uint32_t code) {
  return fmt::format("0x{:0{}x}", code, (scalar.bits + 3) / 4);
}

// "0x7f", "0x7f 0xff" or "0x7f81..0x7fff 0xff81..0xffff"; "none" when empty.
std::string code_list(const Scalar& scalar, const std::vector<std::uint32_t>& codes) {
  std::string out;
  for (std::size_t i = 0; i < codes.size();) {
    std::size_t end = i;
    while (end + 1 < codes.size() && codes[end + 1] == codes[end] + 1) ++end;
    if (!out.empty()) out += ' ';
    out += code_hex(scalar, codes[i]);
    if (end > i) out += (end == i + 1 ? " " : "..") + code_hex(scalar, codes[end]);
    i = end + 1;
  }
  return out.empty() ? "none" : out;
}

std::string scalar_text(const Scalar& scalar) {
  const Range range = range_of(scalar);
  std::string out = fmt::format(
      "{}: {} bits, {} sign, {} exponent, {} fraction, bias {}\nsource: {}\n"
      "largest {} ({}), smallest positive {} ({}), {} finite levels\n"
      "zero {}, Inf {}, NaN {}\n",
      scalar.name, scalar.bits, scalar.sign_bits, scalar.exponent_bits, scalar.mantissa_bits,
      scalar.bias, scalar.source, exact_text(range.max_finite), code_hex(scalar, range.max_code),
      exact_text(range.min_positive), code_hex(scalar, range.min_code), range.levels,
      code_list(scalar, range.zeros), code_list(scalar, range.infinities),
      code_list(scalar, range.nans));
  if (scalar.bits > 8) return out;  // 65536 rows help nobody
  // Up to 16 codes with their bits, one a line; more in columns that read downwards.
  const std::uint32_t rows = scalar.code_count <= 16 ? scalar.code_count : scalar.code_count / 4;
  TextTable table;
  for (std::uint32_t first = 0; first < scalar.code_count; first += rows) {
    table.column("code", Align::kLeft);
    table.column("bits", Align::kLeft);
    table.column("value", Align::kRight);
  }
  for (std::uint32_t r = 0; r < rows; ++r) {
    std::vector<std::string> cells;
    for (std::uint32_t code = r; code < scalar.code_count; code += rows) {
      cells.push_back(code_hex(scalar, code));
      cells.push_back(bit_pattern(scalar, code));
      cells.push_back(exact_text(scalar.decode(code)));
    }
    table.row(std::move(cells));
  }
  return out + '\n' + table.str();
}

Json scalar_json(const Scalar& scalar, bool with_codes) {
  const Range range = range_of(scalar);
  Json out = {{"kind", "scalar"},
              {"name", scalar.name},
              {"bits", scalar.bits},
              {"sign_bits", scalar.sign_bits},
              {"exponent_bits", scalar.exponent_bits},
              {"mantissa_bits", scalar.mantissa_bits},
              {"bias", scalar.bias},
              {"max_finite", range.max_finite},
              {"min_positive", range.min_positive},
              {"levels", range.levels},
              {"source", scalar.source}};
  if (with_codes && scalar.bits <= 8) {
    out["codes"] = Json::array();
    for (std::uint32_t code = 0; code < scalar.code_count; ++code) {
      const float value = scalar.decode(code);
      const bool finite = std::isfinite(value);
      out["codes"].push_back({{"code", code},
                              {"bits", bit_pattern(scalar, code)},
                              {"value", finite ? Json(value) : Json(nullptr)},
                              {"text", exact_text(value)}});
    }
  }
  return out;
}

std::string spec_name(const MinifloatSpec& spec) {
  for (const NamedSpec& row : kScalars) {
    if (row.spec == spec) return std::string(row.name);
  }
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
          {"formats", family_formats(family)},
          {"default", contract.is_default},
          {"evidence", evidence_name(contract.evidence)},
          {"source", contract.source},
          {"vectors", contract.vectors}};
}

std::string contracts_text(Family family) {
  std::string out = fmt::format("contracts of {}\n", family_formats(family));
  for (const ContractInfo& contract : contracts_of(family)) {
    out += fmt::format("  {}{}: rules {}\n    source: {}\n    vectors: {}\n", contract.name,
                       contract.is_default ? " (default)" : "", evidence_name(contract.evidence),
                       contract.source, contract.vectors);
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
  for (const Family family : all_families()) out += '\n' + contracts_text(family);
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
    for (const ContractInfo& contract : contracts_of(family)) {
      results.push_back(contract_json(family, contract));
    }
  }
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
      levels_text(format), format.bits_per_element());
  if (format.levels[0].group == 0) out += ", and 32 bits per tensor or row";
  out += "\n\nkeys\n";
  TextTable keys;
  keys.column("", Align::kLeft);
  keys.column("", Align::kLeft);
  keys.column("", Align::kLeft);
  for (const KeyHelp& key : recipe_keys(row.family)) {
    keys.row({"  " + std::string(key.key), key.values, std::string(key.meaning)});
  }
  out += keys.str() + "\ndefaults\n  " + to_full_string(parse_recipe(std::string(format.name))) +
         "\n\n" + contracts_text(row.family) + "\nelement ";
  for (const Scalar& scalar : all_scalars()) {
    if (scalar.name == spec_name(format.element)) out += scalar_text(scalar);
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
  const std::string name = normalised(typed);
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
    for (const ContractInfo& contract : contracts_of(row.family)) {
      out["results"].push_back(contract_json(row.family, contract));
    }
  }
  for (const Scalar& scalar : all_scalars()) {
    if (name != scalar.name) continue;
    text += scalar_text(scalar);
    out["results"].push_back(scalar_json(scalar, true));
  }
  for (const Family family : all_families()) {
    for (const ContractInfo& contract : contracts_of(family)) {
      if (name != contract.name) continue;
      text += fmt::format("contract {}: {}\nrules {}, source: {}\nvectors: {}\n", contract.name,
                          family_formats(family), evidence_name(contract.evidence), contract.source,
                          contract.vectors);
      for (const FormatRow& row : all_formats()) {
        if (row.family != family) continue;
        text += "  " +
                to_full_string(parse_recipe(fmt::format("{}:contract={}", row.format.name, name))) +
                '\n';
      }
      out["results"].push_back(contract_json(family, contract));
    }
  }
  if (text.empty()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("there is no format, scalar or contract '{}'; 'fp4scope formats' lists "
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
