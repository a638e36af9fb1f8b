// aggregate.h: figures over several tensors, weighted by elements: all of them, per group of a
// --group-by expression, and per combination of values of --group-fields. Totals merge in tensor
// order.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/expression.h"
#include "analysis/finished_tensor.h"

namespace fp4scope {

class Aggregator {
 public:
  // Throws Error(kUsage) naming a malformed --group-by expression or an unknown field of
  // --group-fields. Keeps a reference to `options`.
  explicit Aggregator(const AnalyzeOptions& options);
  // `rows` are those of `finished`, in the same order.
  void add(const std::vector<Row>& rows, const FinishedTensor& finished);
  // All tensors first (when there are at least two), then the groups of --group-by in order of
  // appearance, then those of each --group-fields in natural order of their values; recipes in
  // command-line order.
  std::vector<Row> rows() const;
  // Sentences about what formed no group; `files` are those of the input.
  std::vector<std::string> warnings(const std::vector<std::string>& files) const;

 private:
  struct Entry {
    std::int64_t tensors = 0;
    std::string backend;
    Totals totals;
  };
  struct Group {
    // 0: all tensors, then 1 + index of the expression, then those of the field lists
    std::size_t grouping;
    std::string name;   // what the expression captured, or the fields as text
    NameFields fields;  // of a field list
    std::vector<Entry> entries;
  };
  void add_to(std::size_t grouping, const std::string& name, const NameFields& fields,
              std::size_t recipe, const Row& row, const Totals& totals);
  std::string label(const Group& group) const;
  std::vector<const Group*> groups_in_order() const;

  const AnalyzeOptions& options_;
  std::vector<std::shared_ptr<const RE2>> expressions_;
  std::vector<std::vector<std::size_t>> field_lists_;  // indices into kNameFields
  std::vector<Group> groups_;
  std::unordered_map<std::string, std::size_t> index_;  // by grouping NUL name
};

}  // namespace fp4scope
