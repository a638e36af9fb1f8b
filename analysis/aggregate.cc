// aggregate.cc: see aggregate.h.
#include "analysis/aggregate.h"

#include <algorithm>
#include <optional>

#include "analysis/metrics/figures.h"

namespace fp4scope {
namespace {

// First capture of the expression in the tensor's name (empty when it took no part), or the whole
// match.
std::optional<std::string> group_name(const RE2& expression, const std::string& name) {
  re2::StringPiece parts[2];
  const int wanted = expression.NumberOfCapturingGroups() > 0 ? 2 : 1;
  if (!expression.Match(name, 0, name.size(), RE2::UNANCHORED, parts, wanted)) return std::nullopt;
  return std::string(parts[wanted - 1]);
}

}  // namespace

Aggregator::Aggregator(const AnalyzeOptions& options) : options_(options) {
  for (const std::string& g : options.group_by) {
    expressions_.push_back(compile_expression("--group-by", g));
  }
}

void Aggregator::add(const TensorOutcome& outcome) {
  for (std::size_t j = 0; j < outcome.rows.size(); ++j) {
    const Row& row = outcome.rows[j];
    add_to(0, "", outcome.recipe_index[j], row, outcome.totals[j]);
    for (std::size_t e = 0; e < expressions_.size(); ++e) {
      if (const auto name = group_name(*expressions_[e], row.tensor)) {
        add_to(e + 1, *name, outcome.recipe_index[j], row, outcome.totals[j]);
      }
    }
  }
}

// Never empty for a group: that is the label of all tensors. With several expressions equal
// captures are told apart by the expression.
std::string Aggregator::label(const Group& group) const {
  if (group.expression == 0) return "";
  const std::string name = group.name.empty() ? "(empty)" : group.name;
  if (expressions_.size() < 2) return name;
  return name + " of " + options_.group_by[group.expression - 1];
}

std::vector<Row> Aggregator::rows() const {
  std::vector<Row> result;
  for (const Group& group : groups_) {
    for (std::size_t i = 0; i < options_.recipes.size(); ++i) {
      const Entry& entry = group.entries[i];
      if (entry.tensors == 0 || (group.expression == 0 && entry.tensors < 2)) continue;
      Row row;
      row.group = label(group);
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

void Aggregator::add_to(std::size_t expression, const std::string& name, std::size_t recipe,
                        const Row& row, const Totals& totals) {
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return g.expression == expression && g.name == name;
  });
  if (group == groups_.end()) {
    groups_.push_back({expression, name, std::vector<Entry>(options_.recipes.size())});
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
