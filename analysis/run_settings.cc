// run_settings.cc: what has to be equal for a run to go on where another one stopped; see resume.h.
// The number of threads is not among it: no figure depends on it.
#include <fmt/format.h>

#include "analysis/io/message.h"
#include "analysis/resume.h"
#include "analysis/text_table.h"
#include "sim/custom_format.h"
#include "sim/rcp_table.h"

namespace fp4scope {
namespace {

std::string words(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(shell_word(text));
  return joined(quoted, " ");
}

std::string full(const Recipe& recipe) {
  // The text as typed stands in the report.
  std::string out = recipe.text + " = " + to_full_string(recipe);
  if (recipe.library) out += ", format file " + recipe.library->hash;
  if (recipe.user_rcp) out += ", rcp table " + recipe.user_rcp->hash;
  return out;
}

std::string layout(const RawLayout& raw) {
  return fmt::format("{} {} at byte {}{}", dtype_name(raw.dtype), shape_text(raw.shape), raw.offset,
                     raw.ends_file ? ", up to the end" : "");
}

}  // namespace

RunSettings run_settings(const std::string& program, const std::vector<std::string>& operands,
                         const AnalyzeOptions& options) {
  std::vector<std::string> recipes, backends;
  for (const Recipe& recipe : options.recipes) {
    recipes.push_back(full(recipe));
    backends.emplace_back(choose_backend(options.backend, recipe).name());
  }
  return {{"program", program},
          {"operands", words(operands)},
          {"recipes", joined(recipes, "; ")},
          {"backends", words(backends)},
          {"--include", words(options.filter.include)},
          {"--exclude", words(options.filter.exclude)},
          {"--axis", std::to_string(options.axis)},
          {"--percentiles", options.full_percentiles ? "full" : "sample"},
          {"--map-size", std::to_string(options.map_size)},
          {"--group-by", words(options.group_by)},
          {"--group-fields", words(options.group_fields)},
          {"--name-pattern", words(options.name_patterns)},
          // How many row scales fit.
          {"--memory", std::to_string(options.memory_bytes)},
          {"--dtype", options.open.dtype_hint},
          {"--follow-links", options.open.follow_links ? "on" : "off"},
          {"raw layout", options.open.raw ? layout(*options.open.raw) : ""}};
}

}  // namespace fp4scope
