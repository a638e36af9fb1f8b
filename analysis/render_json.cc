// render_json.cc: the machine-readable report, design/product.md "Machine-readable output".
#include <charconv>
#include <cmath>

#include "analysis/json_text.h"
#include "analysis/render.h"

namespace fp4scope {
namespace {

bool is_plain(const Json& value) {
  return !value.is_structured();
}

void append(const Json& value, int depth, std::string& out) {
  const auto newline = [&](int levels) {
    out += '\n';
    out.append(static_cast<std::size_t>(levels) * 2, ' ');
  };
  if (value.is_object()) {
    if (value.empty()) {
      out += "{}";
      return;
    }
    out += '{';
    const char* separator = "";
    for (const auto& [key, item] : value.items()) {
      out += separator;
      newline(depth + 1);
      append(key, depth + 1, out);
      out += ": ";
      append(item, depth + 1, out);
      separator = ",";
    }
    newline(depth);
    out += '}';
  } else if (value.is_array()) {
    bool one_line = true;
    for (const Json& item : value) {
      // Pairs of plain values, as in amax_exponents, stay on the line as well.
      one_line &= is_plain(item) ||
                  (item.is_array() && item.size() == 2 && is_plain(item[0]) && is_plain(item[1]));
    }
    out += '[';
    const char* separator = "";
    for (const Json& item : value) {
      out += separator;
      if (!one_line) newline(depth + 1);
      append(item, depth + 1, out);
      separator = one_line ? ", " : ",";
    }
    if (!one_line) newline(depth);
    out += ']';
  } else if (value.is_number_float()) {
    const double number = value.get<double>();
    out += std::isfinite(number) ? shortest(number) : "null";
  } else {
    out += value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

Json to_json(const Value& value) {
  return std::visit(
      [](const auto& v) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) {
          return nullptr;
        } else {
          return v;
        }
      },
      value);
}

Json to_json(const std::vector<std::pair<double, Value>>& percentiles) {
  Json out = Json::array();
  for (const auto& [percent, value] : percentiles) out.push_back({percent, to_json(value)});
  return out;
}

Json to_json(const Maps& maps) {
  return {{"grid_rows", maps.grid_rows},
          {"grid_cols", maps.grid_cols},
          {"rows_per_cell", maps.rows_per_cell},
          {"cols_per_cell", maps.cols_per_cell},
          {"elements", maps.elements},
          {"underflow", maps.underflow},
          {"saturated", maps.saturated},
          {"squared_error", maps.squared_error},
          {"scale_code_sum", maps.scale_code_sum},
          {"blocks", maps.blocks}};
}

void add_figures(const Row& row, Json& out) {
  for (std::size_t i = 0; i < columns().size() && i < row.figures.size(); ++i) {
    out[std::string(columns()[i].key)] = to_json(row.figures[i]);
  }
}

void add_distributions(const Row& row, Json& out) {
  if (!row.percentiles.sample.empty()) {
    out["percentiles"] = {{"sample", row.percentiles.sample},
                          {"absolute_error", to_json(row.percentiles.absolute_error)},
                          {"relative_error", to_json(row.percentiles.relative_error)}};
  }
  if (!row.code_histogram.empty()) out["code_histogram"] = row.code_histogram;
  if (!row.scale_histogram.empty()) out["scale_histogram"] = row.scale_histogram;
  if (!row.amax_exponents.empty()) {
    Json pairs = Json::array();
    for (const auto& [exponent, count] : row.amax_exponents) pairs.push_back({exponent, count});
    out["amax_exponents"] = std::move(pairs);
  }
  if (row.maps.grid_rows > 0) out["maps"] = to_json(row.maps);
}

Json result_json(const Row& row) {
  Json out = {{"file", row.file},
              {"tensor", row.tensor},
              {"dtype", row.dtype},
              {"shape", row.shape},
              {"source_hash", row.source_hash},
              {"recipe", row.recipe},
              {"recipe_canonical", row.recipe_canonical},
              {"recipe_full", row.recipe_full},
              {"backend", row.backend},
              {"notes", row.notes}};
  add_fields(row.fields, out);
  add_figures(row, out);
  add_distributions(row, out);
  return out;
}

Json aggregate_json(const Row& row) {
  Json out = {{"group", row.group},
              {"tensors", row.tensors},
              {"recipe", row.recipe},
              {"recipe_canonical", row.recipe_canonical},
              {"recipe_full", row.recipe_full},
              {"notes", row.notes}};
  add_fields(row.fields, out);
  add_figures(row, out);
  add_distributions(row, out);
  return out;
}

}  // namespace

std::string shortest(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string json_text(const Json& value) {
  std::string out;
  append(value, 0, out);
  out += '\n';
  return out;
}

Json json_envelope(const Provenance& provenance) {
  return {
      {"fp4scope",
       {{"version", provenance.version}, {"git", provenance.git}, {"command", provenance.command}}},
      {"results", Json::array()},
      {"aggregates", Json::array()},
      {"errors", Json::array()}};
}

Json to_json(const ErrorRecord& error) {
  return {{"file", error.file},
          {"tensor", error.tensor},
          {"message", error.message},
          {"exit_code", error.exit_code}};
}

void add_fields(const NameFields& fields, Json& out) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (std::holds_alternative<std::monostate>(fields[i])) continue;
    out[std::string(kNameFields[i])] = to_json(fields[i]);
  }
}

std::string render_json(const Report& report, const Provenance& provenance) {
  Json out = json_envelope(provenance);
  out["fp4scope"]["threads"] = report.threads;
  for (const Row& row : report.results) out["results"].push_back(result_json(row));
  for (const Row& row : report.aggregates) out["aggregates"].push_back(aggregate_json(row));
  for (const ErrorRecord& error : report.errors) out["errors"].push_back(to_json(error));
  Json skipped = Json::array();
  for (const ErrorRecord& tensor : report.skipped) {
    skipped.push_back(
        {{"file", tensor.file}, {"tensor", tensor.tensor}, {"message", tensor.message}});
  }
  out["skipped"] = std::move(skipped);
  Json sources = Json::array();
  for (const Report::Source& source : report.sources) {
    sources.push_back(
        {{"file", source.path}, {"container", source.container}, {"bytes", source.bytes}});
  }
  out["sources"] = std::move(sources);
  out["interrupted"] = report.interrupted;
  return json_text(out);
}

}  // namespace fp4scope
