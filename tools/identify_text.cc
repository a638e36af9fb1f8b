// identify_text.cc: see identify_text.h.
#include "identify_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "analysis/io/message.h"
#include "analysis/name_pattern.h"
#include "analysis/text_table.h"

namespace fp4scope::tools {
namespace {

std::string orders_text(const ExplainingRecipe& e) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  const auto with_others = [](const std::string& name, const std::vector<std::string>& others) {
    return others.empty() ? name : name + " (the same bytes: " + joined(others, ", ") + ")";
  };
  if (!e.check.inputs.codes.empty()) add("codes " + with_others(e.nibbles, e.other_nibbles));
  if (!e.check.inputs.scales.empty()) add("scales " + with_others(e.layout, e.other_layouts));
  return out;
}

std::string explanation_text(const ExplainingRecipe& e) {
  std::string out =
      wrapped("  ", fmt::format("{} (contract {})", to_string(e.recipe), e.recipe.contract), 2);
  if (const std::string orders = orders_text(e); !orders.empty()) {
    out += wrapped(
        "    ",
        orders +
            (e.differs_from_native ? "; the contract's own project stores them otherwise" : ""),
        4);
  }
  return out;
}

std::string separation_text(const Separation& s) {
  if (!s.input) {
    return wrapped("  ", fmt::format("{} and {}: no input found that tells them apart", s.a, s.b),
                   4);
  }
  const Separator& input = *s.input;
  std::string out = wrapped(
      "  ",
      fmt::format("{} and {}: {} (row {}, block {})", s.a, s.b, input.what, input.row, input.block),
      4);
  // The block in which they differ, and the amax where another element sets it.
  constexpr std::int64_t kMost = 32;
  std::string values;
  float amax = 0;
  for (const float v : input.x) amax = std::max(amax, v < 0 ? -v : v);
  for (std::int64_t c = 0; c < std::min(input.cols, kMost); ++c) {
    values += fmt::format("{}{:.9g}", c == 0 ? "" : ", ",
                          input.x[static_cast<std::size_t>(input.row * input.cols + c)]);
  }
  out += wrapped("    x:",
                 fmt::format("[{}, {}], row {}: {}{}; amax {:.9g}", input.rows, input.cols,
                             input.row, values, input.cols > kMost ? ", ..." : "", amax),
                 7);
  return out;
}

Json explanation_json(const ExplainingRecipe& e) {
  return {{"recipe", to_string(e.recipe)},
          {"recipe_full", to_full_string(e.recipe)},
          {"contract", e.recipe.contract},
          {"nibbles", e.check.inputs.codes.empty() ? Json(nullptr) : Json(e.nibbles)},
          {"layout", e.check.inputs.scales.empty() ? Json(nullptr) : Json(e.layout)},
          {"other_nibbles", e.other_nibbles},
          {"other_layouts", e.other_layouts},
          {"varied", e.is_varied},
          {"differs_from_native", e.differs_from_native},
          {"elements", e.check.elements},
          {"elements_differing", e.check.elements_differing},
          {"scales", e.check.scales},
          {"scales_differing", e.check.scales_differing},
          {"blocks", e.check.blocks},
          {"blocks_differing", e.check.blocks_differing},
          {"outer_scales_differing", e.check.outer_scales_differing},
          {"remainder", e.check.agrees() ? Json(nullptr) : Json(remainder_of(e.check))},
          {"also", e.also},
          {"without_effect", e.without_effect}};
}

}  // namespace

void add_name_fields(const std::string& file, const std::string& tensor, Json& out) {
  static const NamePatterns patterns;
  add_fields(patterns.fields({file, file, tensor}), out);
}

std::string identify_text(const IdentifyResult& r) {
  std::string out = fmt::format("{}, {} {}: {} recipes tried\n", printable(r.tensor), r.dtype,
                                dimensions(r.shape), r.tried);
  if (!r.casts.empty()) {
    out += r.casts.size() == 1 ? "a scalar cast explains every element:\n"
                               : "scalar casts that explain every element:\n";
    for (const CastExplanation& cast : r.casts) out += wrapped("  ", to_text(cast), 4);
  }
  if (!r.explaining.empty()) {
    std::vector<std::string> varied;
    std::size_t plain = 0;
    for (const ExplainingRecipe& e : r.explaining) {
      if (e.is_varied) {
        varied.push_back(to_string(e.recipe));
      } else {
        ++plain;
      }
    }
    out += plain == 1 ? "explains every byte:\n"
                      : fmt::format(
                            "{} contracts explain every byte and cannot be told apart on "
                            "this data:\n",
                            plain);
    const char* where = r.on_sample ? "on the sample" : "here";
    for (const ExplainingRecipe& e : r.explaining) {
      if (e.is_varied) continue;
      out += explanation_text(e);
      if (!e.also.empty()) {
        constexpr std::size_t kMost = 4;
        std::vector<std::string> some(
            e.also.begin(),
            e.also.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, e.also.size())));
        if (e.also.size() > kMost) some.push_back(fmt::format("{} more", e.also.size() - kMost));
        out += wrapped(r.on_sample ? "    also, on the sample: " : "    also: ", joined(some, ", "),
                       6);
      }
      if (!e.without_effect.empty()) {
        out += wrapped(fmt::format("    settings without effect {}: ", where),
                       joined(e.without_effect, ", "), 6);
      }
    }
    if (!varied.empty()) {
      out += wrapped(
          "other contracts, with a setting that is not their own: ", joined(varied, ", "), 2);
    }
    if (!r.separations.empty()) out += "inputs that tell them apart:\n";
    for (const Separation& s : r.separations) out += separation_text(s);
  } else if (r.casts.empty()) {
    out += "no recipe explains every byte; the best are:\n";
    for (const ExplainingRecipe& e : r.best) {
      out += explanation_text(e);
      out += wrapped("    unexplained: ", remainder_of(e.check), 6);
    }
  }
  for (const std::string& warning : r.warnings) out += wrapped("warning:", printable(warning), 9);
  for (const std::string& note : r.notes) out += wrapped("note:", printable(note), 6);
  return out;
}

Json identify_json(const IdentifyResult& r) {
  Json out = {{"file", r.file},
              {"tensor", r.tensor},
              {"dtype", r.dtype},
              {"shape", r.shape},
              {"source_hash", r.source_hash},
              {"tried", r.tried},
              {"explained", !r.explaining.empty() || !r.casts.empty()}};
  add_name_fields(r.file, r.tensor, out);
  out["on_sample"] = r.on_sample;
  out["casts"] = Json::array();
  for (const CastExplanation& c : r.casts) {
    out["casts"].push_back({{"scalar", c.scalar},
                            {"rounding", c.rounding},
                            {"overflow", c.overflow},
                            {"nan", c.nan},
                            {"packing", c.packing}});
  }
  out["explaining"] = Json::array();
  for (const ExplainingRecipe& e : r.explaining) out["explaining"].push_back(explanation_json(e));
  out["best"] = Json::array();
  for (const ExplainingRecipe& e : r.best) out["best"].push_back(explanation_json(e));
  out["separations"] = Json::array();
  for (const Separation& s : r.separations) {
    Json entry = {{"a", s.a}, {"b", s.b}, {"what", nullptr}, {"shape", nullptr}, {"x", nullptr}};
    if (s.input) {
      entry["what"] = s.input->what;
      entry["shape"] = {s.input->rows, s.input->cols};
      entry["row"] = s.input->row;
      entry["block"] = s.input->block;
      entry["x"] = Json::array();
      entry["x_bits"] = Json::array();  // NaN and infinity are no JSON numbers
      for (const float v : s.input->x) {
        entry["x"].push_back(double{v});
        entry["x_bits"].push_back(fmt::format("0x{:08x}", std::bit_cast<std::uint32_t>(v)));
      }
    }
    out["separations"].push_back(std::move(entry));
  }
  out["warnings"] = r.warnings;
  out["notes"] = r.notes;
  return out;
}

}  // namespace fp4scope::tools
