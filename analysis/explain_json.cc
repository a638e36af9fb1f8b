// explain_json.cc: an Explanation as JSON.
#include <fmt/format.h>

#include <cmath>

#include "analysis/explain.h"

namespace fp4scope {
namespace {

// The shortest number that reads back as the same binary32 number.
Json number(float v) {
  return std::isfinite(v) ? Json(std::stod(float_text(v))) : Json(nullptr);
}
// An input is binary32 unless the source is binary64.
Json input_number(double v) {
  const auto rounded = static_cast<float>(v);
  return static_cast<double>(rounded) == v ? number(rounded) : Json(v);
}
Json to_json(const std::vector<TraceStep>& steps) {
  Json out = Json::array();
  for (const TraceStep& step : steps) {
    Json row = {{"what", step.what}, {"expression", step.expression}};
    if (step.is_number) {
      row["value"] = number(step.value);
      row["bits"] = bits_text(step.value);
    }
    if (step.kind == StepKind::kCast || step.kind == StepKind::kDecode) row["code"] = step.code;
    out.push_back(std::move(row));
  }
  return out;
}
Json to_json(const TracedElement& e, int bits) {
  return {{"index", e.index},
          {"input", input_number(e.input)},
          {"scaled", number(e.scaled)},
          {"scaled_bits", bits_text(e.scaled)},
          {"code", e.code},
          {"binary", fmt::format("{:0{}b}", e.code, bits)},
          {"value", number(e.value)},
          {"value_bits", bits_text(e.value)},
          {"error", e.error},
          {"tie", e.tie},
          {"saturated", e.saturated},
          {"padding", e.is_padding},
          {"steps", to_json(e.steps)}};
}
Json to_json(const TracedCandidate& c) {
  Json differences = Json::array(), rows = Json::array();
  for (const float d : c.differences) differences.push_back(number(d));
  for (const float e : c.row_errors) rows.push_back(number(e));
  return {{"name", c.name},
          {"scale", c.scale},
          {"scale_value", number(c.scale_value)},
          {"codes", c.codes},
          {"differences", std::move(differences)},
          {"row_errors", std::move(rows)},
          {"error", number(c.error)},
          {"error_bits", bits_text(c.error)},
          {"chosen", c.chosen},
          {"steps", to_json(c.steps)}};
}
Json to_json(const TracedLevel& level) {
  Json out = {{"first", level.first}, {"count", level.count}};
  if (level.has_outer) {
    out["outer_max"] = number(level.outer_max);
    if (level.is_tested) out["outer_product"] = number(level.outer_product);
    out["outer_bit"] = level.outer_bit;
  }
  out["inner_max"] = number(level.inner_max);
  if (level.is_tested) out["inner_product"] = number(level.inner_product);
  out["inner_bit"] = level.inner_bit;
  if (level.errors.empty()) return out;
  out["errors"] = Json::array();
  for (const float error : level.errors) out["errors"].push_back(number(error));
  return out;
}

}  // namespace

Json explanation_json(const Explanation& e) {
  const BlockTrace& t = e.trace;
  const int bits = e.recipe.family == Family::kPass ? 16 : e.recipe.format.element.storage_bits();
  Json out = {{"file", e.file.empty() ? Json(nullptr) : Json(e.file)},
              {"tensor", e.file.empty() ? Json(nullptr) : Json(e.tensor)},
              {"dtype", e.dtype},
              {"shape", e.shape},
              {"row", e.row},
              {"block", e.block},
              {"first_col", e.first_col},
              {"elements", t.valid},
              {"block_rows", t.block_rows},
              {"recipe", e.recipe.text},
              {"recipe_canonical", to_string(e.recipe)},
              {"recipe_full", to_full_string(e.recipe)},
              {"backend", "reference"}};
  std::vector<std::string> notes = e.notes;
  notes.insert(notes.end(), t.notes.begin(), t.notes.end());
  if (!e.recipe.note.empty()) notes.emplace_back(e.recipe.note);
  out["notes"] = std::move(notes);
  if (t.has_outer) {
    out["outer"] = {{"amax", number(t.outer.amax)},
                    {"amax_bits", bits_text(t.outer.amax)},
                    {"scale", number(t.outer.g)},
                    {"scale_bits", bits_text(t.outer.g)}};
  } else {
    out["outer"] = nullptr;
  }
  out["block_amax"] = number(t.amax);
  out["block_amax_bits"] = bits_text(t.amax);
  out["phases"] = Json::array();
  for (const TracePhase& phase : t.phases) {
    out["phases"].push_back(
        {{"title", phase.title}, {"formula", phase.formula}, {"steps", to_json(phase.steps)}});
  }
  out["candidates"] = Json::array();
  for (const TracedCandidate& c : t.candidates) out["candidates"].push_back(to_json(c));
  out["choice"] = t.choice ? Json(*t.choice) : Json(nullptr);
  out["levels"] = Json::array();
  for (const TracedLevel& level : t.levels) out["levels"].push_back(to_json(level));
  out["values"] = Json::array();
  for (const TracedElement& element : t.elements) out["values"].push_back(to_json(element, bits));
  out["scale_bytes"] = t.scale_bytes;
  out["code_bytes"] = t.packed_codes;
  return out;
}

}  // namespace fp4scope
