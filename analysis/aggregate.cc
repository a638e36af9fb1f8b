// aggregate.cc: see aggregate.h.
#include "analysis/aggregate.h"

#include <algorithm>
#include <optional>

#include "analysis/input_notes.h"
#include "analysis/io/natural_order.h"
#include "analysis/metrics/figures.h"
#include "analysis/name_pattern.h"
#include "analysis/text_table.h"
#include "sim/error.h"

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

// "layer,step" as indices into kNameFields.
std::vector<std::size_t> parse_fields(const std::string& text) {
  std::vector<std::size_t> fields;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const int field = name_field_index(text.substr(start, comma - start));
    if (field < 0) {
      const std::vector<std::string> names(kNameFields.begin(), kNameFields.end());
      throw Error(ErrorKind::kUsage,
                  "--group-fields '" + text + "': '" + text.substr(start, comma - start) +
                      "' is no field, expected " + joined(names, ", ") + ", by commas");
    }
    fields.push_back(static_cast<std::size_t>(field));
    start = comma + 1;
  }
  return fields;
}

// Numbers first, by value, then text in natural order.
bool value_less(const Value& a, const Value& b) {
  if (a.index() != b.index()) return a.index() < b.index();
  if (const auto* number = std::get_if<std::int64_t>(&a))
    return *number < std::get<std::int64_t>(b);
  if (const auto* text = std::get_if<std::string>(&a)) {
    return natural_less(*text, std::get<std::string>(b));
  }
  return false;
}

}  // namespace

Aggregator::Aggregator(const AnalyzeOptions& options) : options_(options) {
  for (const std::string& g : options.group_by) {
    expressions_.push_back(compile_expression("--group-by", g));
  }
  for (const std::string& list : options.group_fields) field_lists_.push_back(parse_fields(list));
}

void Aggregator::add(const std::vector<Row>& rows, const FinishedTensor& finished) {
  for (std::size_t j = 0; j < rows.size(); ++j) {
    const Row& row = rows[j];
    const auto add = [&](std::size_t grouping, const std::string& name, const NameFields& fields) {
      add_to(grouping, name, fields, finished.recipe_index[j], row, finished.totals[j]);
    };
    add(0, "", {});
    for (std::size_t e = 0; e < expressions_.size(); ++e) {
      if (const auto name = group_name(*expressions_[e], row.tensor)) add(1 + e, *name, {});
    }
    // As with an expression that does not match, a tensor without one of the fields is in no group.
    for (std::size_t l = 0; l < field_lists_.size(); ++l) {
      NameFields fields;
      bool has_all = true;
      for (const std::size_t field : field_lists_[l]) {
        fields[field] = row.fields[field];
        has_all &= !std::holds_alternative<std::monostate>(row.fields[field]);
      }
      if (has_all) add(1 + expressions_.size() + l, name_fields_text(fields), fields);
    }
  }
}

std::vector<std::string> Aggregator::warnings(const std::vector<std::string>& files) const {
  std::vector<bool> used(1 + expressions_.size() + field_lists_.size());
  for (const Group& group : groups_) used[group.grouping] = true;
  std::vector<std::string> out;
  for (std::size_t e = 0; e < expressions_.size(); ++e) {
    if (!used[1 + e]) out.push_back(no_group(options_.group_by[e], files));
  }
  for (std::size_t l = 0; l < field_lists_.size(); ++l) {
    if (used[1 + expressions_.size() + l]) continue;
    out.push_back("--group-fields " + options_.group_fields[l] +
                  ": no tensor has all of these fields, so there is no such group");
  }
  return out;
}

// Never empty for a group: that is the label of all tensors. With several expressions equal
// captures are told apart by the expression.
std::string Aggregator::label(const Group& group) const {
  if (group.grouping == 0) return "";
  if (group.grouping > expressions_.size()) return group.name;
  const std::string name = group.name.empty() ? "(empty)" : group.name;
  if (expressions_.size() < 2) return name;
  return name + " of " + options_.group_by[group.grouping - 1];
}

std::vector<const Aggregator::Group*> Aggregator::groups_in_order() const {
  std::vector<const Group*> groups;
  for (const Group& group : groups_) groups.push_back(&group);
  std::stable_sort(groups.begin(), groups.end(), [&](const Group* a, const Group* b) {
    // All tensors and the groups of expressions stay as they appeared.
    const std::size_t last = expressions_.size();
    if (a->grouping <= last && b->grouping <= last) return false;
    if (a->grouping <= last || b->grouping <= last) return a->grouping <= last;
    if (a->grouping != b->grouping) return a->grouping < b->grouping;
    for (const std::size_t field : field_lists_[a->grouping - 1 - last]) {
      if (value_less(a->fields[field], b->fields[field])) return true;
      if (value_less(b->fields[field], a->fields[field])) return false;
    }
    return false;
  });
  return groups;
}

std::vector<Row> Aggregator::rows() const {
  std::vector<Row> result;
  for (const Group* group : groups_in_order()) {
    for (std::size_t i = 0; i < options_.recipes.size(); ++i) {
      const Entry& entry = group->entries[i];
      if (entry.tensors == 0 || (group->grouping == 0 && entry.tensors < 2)) continue;
      Row row;
      row.group = label(*group);
      row.fields = group->fields;
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

void Aggregator::add_to(std::size_t grouping, const std::string& name, const NameFields& fields,
                        std::size_t recipe, const Row& row, const Totals& totals) {
  const auto [found, is_new] =
      index_.emplace(std::to_string(grouping) + '\0' + name, groups_.size());
  if (is_new) {
    groups_.push_back({grouping, name, fields, std::vector<Entry>(options_.recipes.size())});
  }
  Entry& entry = groups_[found->second].entries[recipe];
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
