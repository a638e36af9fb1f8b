// aggregate.cc: see aggregate.h.
#include "analysis/aggregate.h"

#include <algorithm>
#include <optional>

#include "analysis/metrics/figures.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// First capture of the expression in the tensor's name, or the whole match.
std::optional<std::string> group_name(const std::regex& expression, const std::string& name) {
  std::smatch match;
  if (!std::regex_search(name, match, expression)) return std::nullopt;
  return match.size() > 1 ? match[1].str() : match[0].str();
}

}  // namespace

Aggregator::Aggregator(const AnalyzeOptions& options) : options_(options) {
  for (const std::string& g : options.group_by) {
    try {
      expressions_.emplace_back(g, std::regex::ECMAScript);
    } catch (const std::regex_error& e) {
      throw Error(ErrorKind::kUsage,
                  "--group-by '" + g + "' is not a regular expression: " + e.what());
    }
  }
}

void Aggregator::add(const TensorOutcome& outcome) {
  for (std::size_t j = 0; j < outcome.rows.size(); ++j) {
    const Row& row = outcome.rows[j];
    add_to("", outcome.recipe_index[j], row, outcome.totals[j]);
    for (const std::regex& e : expressions_) {
      if (const auto name = group_name(e, row.tensor)) {
        // The empty name stands for all tensors.
        add_to(name->empty() ? "(empty)" : *name, outcome.recipe_index[j], row, outcome.totals[j]);
      }
    }
  }
}

std::vector<Row> Aggregator::rows() const {
  std::vector<Row> result;
  for (const Group& group : groups_) {
    for (std::size_t i = 0; i < options_.recipes.size(); ++i) {
      const Entry& entry = group.entries[i];
      if (entry.tensors == 0 || (group.name.empty() && entry.tensors < 2)) continue;
      Row row;
      row.group = group.name;
      row.tensors = entry.tensors;
      row.recipe = options_.recipes[i].text;
      row.recipe_canonical = to_string(options_.recipes[i]);
      row.recipe_full = to_full_string(options_.recipes[i]);
      row.backend = entry.backend;
      fill_row(row, entry.totals);
      result.push_back(std::move(row));
    }
  }
  return result;
}

void Aggregator::add_to(const std::string& name, std::size_t recipe, const Row& row,
                        const Totals& totals) {
  auto group =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.name == name; });
  if (group == groups_.end()) {
    groups_.push_back({name, std::vector<Entry>(options_.recipes.size())});
    group = groups_.end() - 1;
  }
  Entry& entry = group->entries[recipe];
  if (entry.tensors++ == 0) entry.totals.code_count = totals.code_count;
  entry.backend = row.backend;
  Totals without_maps = totals;  // maps belong to one tensor
  Tallies& t = without_maps.tallies;
  for (auto* map :
       {&t.map_elements, &t.map_underflow, &t.map_saturated, &t.map_scale_sum, &t.map_blocks}) {
    map->clear();
  }
  entry.totals.add(without_maps);
}

}  // namespace fp4scope
