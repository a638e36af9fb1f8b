// render_csv.cc: one row per (tensor, recipe), RFC 4180. An undefined figure is an empty field.
#include <cmath>
#include <string_view>

#include "analysis/render.h"
#include "analysis/text_table.h"

namespace fp4scope {
namespace {

// A field that a spreadsheet or parser could split is quoted; quotes inside are doubled.
std::string csv_text(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string field(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* count = std::get_if<std::int64_t>(&value)) return std::to_string(*count);
  if (const auto* text = std::get_if<std::string>(&value)) return csv_text(*text);
  if (const auto* figure = std::get_if<double>(&value)) {
    return std::isfinite(*figure) ? shortest(*figure) : "";
  }
  return "";
}

}  // namespace

std::string render_csv(const Report& report, const Provenance& provenance) {
  std::string out = "file,tensor,dtype,shape,recipe,recipe_full,backend";
  for (const Column& column : columns()) (out += ',') += column.key;
  out += ",notes,source_hash,version,git";
  for (const std::string_view name : kNameFields) (out += ',') += name;
  // What was added later comes last, for readers that go by position.
  out += ",recipe_canonical\r\n";
  for (const Row& row : report.results) {
    for (const std::string& text : {row.file, row.tensor, row.dtype, dimensions(row.shape),
                                    row.recipe, row.recipe_full, row.backend}) {
      out += csv_text(text) + ',';
    }
    for (std::size_t i = 0; i < columns().size(); ++i) {
      if (i < row.figures.size()) out += field(row.figures[i]);
      out += ',';
    }
    out += csv_text(joined(row.notes, "; ")) + ',' + csv_text(row.source_hash) + ',' +
           csv_text(provenance.version) + ',' + csv_text(provenance.git);
    for (const Value& value : row.fields) out += ',' + field(value);
    out += ',' + csv_text(row.recipe_canonical) + "\r\n";
  }
  return out;
}

}  // namespace fp4scope
