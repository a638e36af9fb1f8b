// aggregate.h: figures over several tensors, weighted by elements: all of them, and per group of a
// --group-by expression. Totals merge in tensor order.
#pragma once
#include <regex>
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/metrics/totals.h"

namespace fp4scope {

// The finished rows of one tensor, in recipe order; a recipe that failed has no row.
struct TensorOutcome {
  std::vector<Row> rows;
  std::vector<std::size_t> recipe_index;
  std::vector<Totals> totals;
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
    std::string name;  // empty: all tensors
    std::vector<Entry> entries;
  };
  void add_to(const std::string& name, std::size_t recipe, const Row& row, const Totals& totals);

  const AnalyzeOptions& options_;
  std::vector<std::regex> expressions_;
  std::vector<Group> groups_;
};

}  // namespace fp4scope
