// finished_tensor.h: what is known about one tensor when every recipe has run on it, and the rows
// of the report that follow from it. The journal of --resume keeps these and no rows, so that a run
// that goes on writes the rows as one that was never interrupted.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "analysis/metrics/totals.h"
#include "analysis/report.h"
#include "sim/backend.h"
#include "sim/recipe.h"

namespace fp4scope {

struct FinishedTensor {
  std::string hash;                       // XXH3-64 of the tensor's bytes, hex, tile by tile
  std::vector<std::size_t> recipe_index;  // ascending; a recipe that failed is not there
  std::vector<Totals> totals;             // parallel to it
  std::vector<ErrorRecord> errors;        // of the recipes that failed
};

// The tensor as a recipe sees it: one row where blocks cross row ends.
TensorInfo seen_by(const Recipe& recipe, const TensorInfo& tensor);
// The cells of its maps; not enabled for map_size 0.
MapGrid map_grid_of(const Recipe& recipe, const TensorInfo& tensor, std::int64_t map_size);

// One row per entry of `finished`, with the recipes and backends of the run.
std::vector<Row> rows_of(const FinishedTensor& finished, const TensorInfo& tensor,
                         const std::vector<Recipe>& recipes,
                         const std::vector<const Backend*>& backends, std::int64_t map_size);

}  // namespace fp4scope
