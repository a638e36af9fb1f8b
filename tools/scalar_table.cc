// scalar_table.cc: see scalar_table.h.
#include "scalar_table.h"

#include <fmt/format.h>

#include <cmath>

#include "analysis/text_table.h"
#include "formats/e8m0.h"
#include "formats/lut.h"
#include "formats/minifloat.h"

namespace fp4scope::tools {
namespace {

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

}  // namespace

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

Scalar element_scalar(const BlockFormat& format, const std::string& name) {
  const MinifloatSpec spec = format.element;
  if (const Lut* lut = format.lut) {
    return {name,
            "a table of values, code i is entry i",
            spec.storage_bits(),
            static_cast<std::uint32_t>(lut->count),
            [lut](std::uint32_t code) { return lut->value[code]; },
            0,
            0,
            spec.storage_bits(),
            0};
  }
  const bool integer = spec.is_twos_complement();
  return {
      name,
      integer ? "two's complement integer times the step of the format" : "element of the format",
      spec.storage_bits(),
      spec.code_count(),
      [spec](std::uint32_t code) { return decode<Lane<1>>(spec, code); },
      1,
      integer ? 0 : spec.exponent_bits,
      integer ? spec.storage_bits() - 1 : spec.mantissa_bits,
      integer ? 0 : spec.bias};
}

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

}  // namespace fp4scope::tools
