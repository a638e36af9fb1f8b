// finished_tensor.cc: see finished_tensor.h.
#include "analysis/finished_tensor.h"

#include "analysis/metrics/figures.h"
#include "analysis/tiles.h"
#include "sim/custom_format.h"
#include "sim/rcp_table.h"

namespace fp4scope {
namespace {

Maps make_maps(const Recipe& recipe, const MapGrid& grid, const Totals& totals) {
  Maps maps;
  if (!grid.enabled()) return maps;
  const Tallies& t = totals.tallies;
  maps.grid_rows = grid.grid_rows;
  maps.grid_cols = grid.grid_cols;
  maps.rows_per_cell = grid.rows_per_cell;
  maps.cols_per_cell = grid.blocks_per_cell * recipe.format.block;
  maps.elements = t.map_elements;
  maps.underflow = t.map_underflow;
  maps.saturated = t.map_saturated;
  maps.squared_error = totals.map_squared_error;
  maps.scale_code_sum = t.map_scale_sum;
  maps.blocks = t.map_blocks;
  return maps;
}

std::vector<std::string> notes_of(const Recipe& recipe, const TensorInfo& tensor,
                                  const Counts& counts) {
  std::vector<std::string> notes;
  const std::int64_t block = recipe.format.block, cols = seen_by(recipe, tensor).cols();
  if (cols % block != 0 && recipe.source_refuses_ragged) {
    notes.push_back("the source refuses this shape (contract " + recipe.contract + ": " +
                    std::to_string(cols) + " is no multiple of " + std::to_string(block) +
                    "); quantized with ragged=pad");
  }
  if (!recipe.note.empty()) notes.emplace_back(recipe.note);
  if (const std::string table = rcp_table_note(recipe); !table.empty()) notes.push_back(table);
  if (recipe.library) {
    notes.push_back("names of the format file with XXH3-64 " + recipe.library->hash);
  }
  if (recipe.rht.size != 0) {
    notes.emplace_back("figures compare with the tensor after the Hadamard transform");
  }
  if (counts.nonfinite_in > 0) {
    notes.push_back(std::to_string(counts.nonfinite_in) +
                    " NaN or Inf elements are left out of the error figures");
  }
  if (counts.nonfinite_out > 0) {
    notes.push_back(std::to_string(counts.nonfinite_out) +
                    " finite elements decode to NaN or Inf and are left out too");
  }
  if (crosses_rows(recipe, tensor)) {
    notes.emplace_back("blocks run over the flattened tensor and cross row ends (ragged=flat)");
  }
  return notes;
}

}  // namespace

TensorInfo seen_by(const Recipe& recipe, const TensorInfo& tensor) {
  TensorInfo seen = tensor;
  if (crosses_rows(recipe, tensor)) seen.shape = {tensor.elements};
  return seen;
}

MapGrid map_grid_of(const Recipe& recipe, const TensorInfo& tensor, std::int64_t map_size) {
  const TensorInfo seen = seen_by(recipe, tensor);
  const std::int64_t block = recipe.format.block;
  return make_map_grid(seen.rows(), (seen.cols() + block - 1) / block, map_size);
}

std::vector<Row> rows_of(const FinishedTensor& finished, const TensorInfo& tensor,
                         const std::vector<Recipe>& recipes,
                         const std::vector<const Backend*>& backends, std::int64_t map_size) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < finished.totals.size(); ++i) {
    const Recipe& recipe = recipes[finished.recipe_index[i]];
    const Totals& totals = finished.totals[i];
    Row row;
    row.file = tensor.file;
    row.tensor = tensor.name;
    row.dtype = shown_dtype(tensor);
    row.shape = tensor.shape;
    row.source_hash = finished.hash;
    row.recipe = recipe.text;
    row.recipe_canonical = to_string(recipe);
    row.recipe_full = to_full_string(recipe);
    row.backend = std::string(backends[finished.recipe_index[i]]->name());
    row.notes = notes_of(recipe, tensor, totals.tallies.counts);
    fill_row(row, totals);
    row.maps = make_maps(recipe, map_grid_of(recipe, tensor, map_size), totals);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace fp4scope
