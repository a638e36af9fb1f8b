// aggregate.h: figures over several tensors, weighted by elements: all of them, and per group of a
// --group-by expression. Totals merge in tensor order.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/expression.h"
#include "analysis/metrics/totals.h"

namespace fp4scope {

// The finished rows of one tensor, in recipe order; a recipe that failed has no row.
struct TensorOutcome {
  std::vector<Row> rows;
  std::vector<std::size_t> recipe_index;
  std::vector<Totals> totals;
  std::string hash;  // of the tensor's bytes
  bool stopped = false;
};

class Aggregator {
 public:
  // Throws Error(kUsage) naming a malformed --group-by expression. Keeps a reference to `options`.
  explicit Aggregator(const AnalyzeOptions& options);
  void add(const TensorOutcome& outcome);
  // All tensors first (when there are at least two), then the groups in order of appearance;
  // recipes in command-line order.
  std::vector<Row> rows() const;

 private:
  struct Entry {
    std::int64_t tensors = 0;
    std::string backend;
    Totals totals;
  };
  struct Group {
    std::size_t expression;  // 0: all tensors, otherwise 1 + index of the expression
    std::string name;        // what it captured
    std::vector<Entry> entries;
  };
  void add_to(std::size_t expression, const std::string& name, std::size_t recipe, const Row& row,
              const Totals& totals);
  std::string label(const Group& group) const;

  const AnalyzeOptions& options_;
  std::vector<std::shared_ptr<const RE2>> expressions_;
  std::vector<Group> groups_;
};

}  // namespace fp4scope
