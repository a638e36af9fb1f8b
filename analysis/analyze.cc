// analyze.cc: from files to a Report. Two passes over a tensor: amax (only for outer scales), then
// every recipe on every tile. Tiles run in parallel; what depends on order is merged in tile order.
#include "analysis/analyze.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <new>
#include <optional>
#include <unordered_map>

#include "analysis/aggregate.h"
#include "analysis/finished_tensor.h"
#include "analysis/input_notes.h"
#include "analysis/inputs.h"
#include "analysis/io/axis_view.h"
#include "analysis/io/flat_view.h"
#include "analysis/metrics/totals.h"
#include "analysis/resume.h"
#include "analysis/tiles.h"
#include "sim/error.h"
#include "sim/run_tile.h"

namespace fp4scope {
namespace {

// One recipe on one tensor while it runs.
struct Job {
  const Recipe* recipe;
  const Backend* backend;
  std::vector<OuterScale32> outer;  // one, or one per row
  MapGrid grid;
  Totals totals;
  std::vector<TileSums> tile_sums;
  std::int64_t failed_tile = std::numeric_limits<std::int64_t>::max();
  std::optional<Error> failure;  // of the lowest failing tile
};

struct TensorRun {
  const TensorSource& source;
  const TensorInfo& tensor;
  const AnalyzeOptions& options;
  int threads;
  std::function<void(std::int64_t)> advance;  // elements done
  bool stopped() const { return options.stop != nullptr && options.stop->load(); }
};

void run_job_on_tile(Job& job, const TensorRun& run, TileBuffer& buffer, const TileSpan& span,
                     std::int64_t index, TileScratch& scratch, std::vector<float>& transformed,
                     Tallies& tallies) {
  const auto outer = outer_of_tile(job.outer, *job.recipe, span);
  const bool has_transform = job.recipe->rht.size != 0;
  if (has_transform) buffer.widen();
  Tile tile = transformed_tile(*job.recipe, buffer.tile, transformed);
  // A fused kernel widens what is stored on its way.
  if (tile.f16 != nullptr && !has_transform) tile.f32 = nullptr;
  const TilePlace place{*job.recipe, tile,
                        span.row,    span.col / job.recipe->format.block,
                        job.grid,    run.options.full_percentiles};
  const auto accumulator =
      make_accumulator(place, tallies, job.tile_sums[static_cast<std::size_t>(index)]);
  TileOutput out;
  out.figures = accumulator.get();
  out.code_counts = tallies.codes.data();
  try {
    if (job.backend->run_fused(*job.recipe, tile, outer, out, scratch)) return;
    if (!has_transform) {
      buffer.widen();
      tile = buffer.tile;
    }
    run_tile_by_steps(*job.backend, *job.recipe, tile, outer, out, scratch);
  } catch (const RefusedInput& e) {
#pragma omp critical(fp4scope_job_failure)
    if (index < job.failed_tile) {
      job.failed_tile = index;
      job.failure = Error(e.kind(), "row " + std::to_string(span.row + e.row()) + ": " + e.what());
    }
  }
}

// Pass 2 over one tile grid: `jobs` share it. Hashes the stored bytes when `hashes` is not null.
void run_grid(const TensorRun& run, const TileSteps& steps, const std::vector<Job*>& jobs,
              std::vector<std::uint64_t>* hashes) {
  const auto grid = tile_grid(run.tensor.rows(), run.tensor.cols(), steps);
  if (hashes != nullptr) hashes->resize(grid.size());
  for (Job* job : jobs) job->tile_sums.resize(grid.size());
  struct Worker {
    TileBuffer buffer;
    TileScratch scratch;
    std::vector<float> transformed;
    std::vector<unsigned char> raw;
    std::vector<Tallies> tallies;  // per job
  };
  std::vector<Worker> workers(static_cast<std::size_t>(run.threads));
  for (Worker& w : workers) w.tallies.resize(jobs.size());

  const auto body = [&](std::int64_t i, int thread) {
    Worker& w = workers[static_cast<std::size_t>(thread)];
    const TileSpan& span = grid[static_cast<std::size_t>(i)];
    if (!jobs.empty() || is_half(run.tensor.dtype)) {
      w.buffer.read_stored(run.source, run.tensor, span);
    }
    if (hashes != nullptr && is_half(run.tensor.dtype)) {
      const auto& stored = w.buffer.f16;
      (*hashes)[static_cast<std::size_t>(i)] =
          XXH3_64bits(stored.data(), stored.size() * sizeof stored[0]);
    } else if (hashes != nullptr) {
      w.raw.resize(static_cast<std::size_t>(span.elements() * dtype_bytes(run.tensor.dtype)));
      run.source.read_raw(run.tensor, span.row, span.rows, span.col, span.cols, w.raw.data());
      (*hashes)[static_cast<std::size_t>(i)] = XXH3_64bits(w.raw.data(), w.raw.size());
    }
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      run_job_on_tile(*jobs[j], run, w.buffer, span, i, w.scratch, w.transformed, w.tallies[j]);
    }
#pragma omp critical(fp4scope_progress)
    run.advance(span.elements());
  };
  for_each_tile(static_cast<std::int64_t>(grid.size()), run.threads, run.options.stop, body);

  for (std::size_t j = 0; j < jobs.size(); ++j) {
    Job& job = *jobs[j];
    job.totals.map_squared_error.resize(
        static_cast<std::size_t>(job.grid.grid_rows * job.grid.grid_cols));
    for (const Worker& w : workers) job.totals.tallies.add(w.tallies[j]);
    for (const TileSums& tile : job.tile_sums) job.totals.add_tile(tile);
  }
}

std::string hex64(std::uint64_t v) {
  static const char* digits = "0123456789abcdef";
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, v >>= 4) text[static_cast<std::size_t>(i)] = digits[v & 15];
  return text;
}

// The tile grids of some recipes, each once; the first is that of the source's hash where it is
// taken, whether it has recipes or not.
std::vector<TileSteps> grids_of(const std::vector<const Recipe*>& recipes, bool hashes_source) {
  std::vector<TileSteps> grids;
  if (hashes_source) grids.emplace_back();
  for (const Recipe* recipe : recipes) {
    const TileSteps steps = tile_steps(*recipe);
    if (std::find(grids.begin(), grids.end(), steps) == grids.end()) grids.push_back(steps);
  }
  return grids;
}
// How often the elements of a tensor are gone over after the amax.
std::int64_t passes_over(const TensorInfo& tensor, const std::vector<Recipe>& recipes) {
  std::vector<const Recipe*> by_rows, flat;
  for (const Recipe& recipe : recipes) {
    (crosses_rows(recipe, tensor) ? flat : by_rows).push_back(&recipe);
  }
  return std::ssize(grids_of(by_rows, true)) + std::ssize(grids_of(flat, false));
}

// The outer scales of all jobs: one pass for each Hadamard transform, whose result the amax is of.
void measure_outer_scales(const TensorRun& run, std::vector<Job>& jobs) {
  struct Measured {
    RhtOptions rht;
    AmaxResult amax;
  };
  std::vector<Measured> measured;
  for (Job& job : jobs) {
    const Recipe& recipe = *job.recipe;
    if (!recipe.needs_amax()) {
      job.outer = outer_scales(*job.backend, recipe, {});
      continue;
    }
    const auto same = [&](const auto& other) { return other.rht == recipe.rht; };
    auto found = std::find_if(measured.begin(), measured.end(), same);
    if (found == measured.end()) {
      const bool needs_rows = std::any_of(jobs.begin(), jobs.end(), [&](const Job& other) {
        return other.recipe->rht == recipe.rht && other.recipe->scales_rows();
      });
      measured.push_back({recipe.rht, measure_amax(run.source, run.tensor, needs_rows, run.threads,
                                                   run.options.stop, &recipe)});
      found = measured.end() - 1;
    }
    job.outer = outer_scales(*job.backend, recipe, found->amax);
  }
}

// The recipes that `chosen` accepts; nothing when stopped. `stored`: the tensor as it is, whose
// rows groups of the Hadamard transform must not cross.
std::optional<FinishedTensor> analyze_tensor(const TensorRun& run,
                                             const std::vector<const Backend*>& backends,
                                             const std::function<bool(const Recipe&)>& chosen,
                                             bool hashes_source, const TensorInfo& stored) {
  const AnalyzeOptions& options = run.options;
  const TensorInfo& tensor = run.tensor;
  const std::int64_t rows = tensor.rows(), cols = tensor.cols();
  FinishedTensor finished;
  const auto fail = [&](const Recipe& recipe, const Error& e) {
    finished.errors.push_back({tensor.file, tensor.name,
                               tensor.file + ": tensor '" + tensor.name + "', recipe " +
                                   to_string(recipe) + ": " + e.what(),
                               e.exit_code()});
  };

  std::vector<Job> jobs;
  std::vector<std::size_t> recipe_index;
  for (std::size_t i = 0; i < options.recipes.size(); ++i) {
    const Recipe& recipe = options.recipes[i];
    if (!chosen(recipe)) continue;
    try {
      require_shape(recipe, stored);
    } catch (const Error& e) {
      fail(recipe, e);
      continue;
    }
    if (recipe.ragged() == Ragged::kError && cols % recipe.format.block != 0) {
      fail(recipe, Error(ErrorKind::kData,
                         "expected rows of a multiple of " + std::to_string(recipe.format.block) +
                             " elements (ragged=error), found " + std::to_string(cols)));
      continue;
    }
    // Of a whole tensor only the amax and two binary32 scales per row are kept; the rest streams.
    std::int64_t row_bytes = 0;
    if (__builtin_mul_overflow(rows, std::int64_t{12}, &row_bytes)) row_bytes = INT64_MAX;
    if (recipe.scales_rows() && row_bytes > options.memory_bytes) {
      fail(recipe, Error(ErrorKind::kUnsupported, "scale=row needs " + std::to_string(row_bytes) +
                                                      " bytes for " + std::to_string(rows) +
                                                      " row scales, --memory allows " +
                                                      std::to_string(options.memory_bytes)));
      continue;
    }
    Job job{};
    job.recipe = &recipe;
    job.backend = backends[i];
    job.grid = map_grid_of(recipe, stored, options.map_size);
    job.totals.code_count = recipe.format.element.storage_bits() <= 8
                                ? recipe.format.element.code_count()
                                : 0;  // bf16: no histogram of 65536 codes
    job.totals.has_scale_codes = has_scale_codes(recipe);
    job.totals.chooses = recipe.chooses();
    job.totals.full_percentiles = options.full_percentiles;
    jobs.push_back(std::move(job));
    recipe_index.push_back(i);
  }

  measure_outer_scales(run, jobs);

  // One pass per tile grid.
  std::vector<const Recipe*> recipes;
  for (const Job& job : jobs) recipes.push_back(job.recipe);
  const std::vector<TileSteps> grids = grids_of(recipes, hashes_source);
  std::vector<std::uint64_t> hashes;
  for (std::size_t g = 0; g < grids.size(); ++g) {
    std::vector<Job*> on_grid;
    for (Job& job : jobs) {
      if (tile_steps(*job.recipe) == grids[g]) on_grid.push_back(&job);
    }
    run_grid(run, grids[g], on_grid, hashes_source && g == 0 ? &hashes : nullptr);
  }

  if (run.stopped()) return std::nullopt;  // tiles may be missing
  finished.hash = hex64(XXH3_64bits(hashes.data(), hashes.size() * sizeof(hashes[0])));
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    Job& job = jobs[j];
    if (job.failure) {
      fail(*job.recipe, *job.failure);
      continue;
    }
    finished.recipe_index.push_back(recipe_index[j]);
    finished.totals.push_back(std::move(job.totals));
  }
  return finished;
}

// Recipes whose blocks cross row ends see the tensor as one row; the others come first.
std::optional<FinishedTensor> analyze_all(const TensorRun& run,
                                          const std::vector<const Backend*>& backends) {
  const auto crosses = [&](const Recipe& recipe) { return crosses_rows(recipe, run.tensor); };
  std::optional<FinishedTensor> finished = analyze_tensor(
      run, backends, [&](const Recipe& r) { return !crosses(r); }, true, run.tensor);
  const auto& recipes = run.options.recipes;
  if (!finished || std::none_of(recipes.begin(), recipes.end(), crosses)) return finished;
  const FlatView view(run.source, run.tensor);
  const TensorRun flat_run{view, view.tensors()[0], run.options, run.threads, run.advance};
  std::optional<FinishedTensor> flat =
      analyze_tensor(flat_run, backends, crosses, false, run.tensor);
  if (!flat) return flat;
  for (std::size_t i = 0; i < flat->totals.size(); ++i) {
    const auto at = std::lower_bound(finished->recipe_index.begin(), finished->recipe_index.end(),
                                     flat->recipe_index[i]) -
                    finished->recipe_index.begin();
    finished->recipe_index.insert(finished->recipe_index.begin() + at, flat->recipe_index[i]);
    finished->totals.insert(finished->totals.begin() + at, std::move(flat->totals[i]));
  }
  for (ErrorRecord& error : flat->errors) finished->errors.push_back(std::move(error));
  return finished;
}

// What an earlier run of the journal found, or the figures of now, which the journal then keeps;
// nothing when stopped.
std::optional<FinishedTensor> find_or_analyze(const TensorRun& run,
                                              const std::vector<const Backend*>& backends) {
  ResumeJournal* journal = run.options.journal;
  if (journal == nullptr) return analyze_all(run, backends);
  const auto& recipes = run.options.recipes;
  const auto cells = [&](std::size_t recipe) {
    const MapGrid grid = map_grid_of(recipes[recipe], run.tensor, run.options.map_size);
    return static_cast<std::size_t>(grid.grid_rows * grid.grid_cols);
  };
  if (auto known = journal->find(run.tensor, recipes.size(), cells)) {
    run.advance(run.tensor.elements * passes_over(run.tensor, recipes));
    return known;
  }
  std::optional<FinishedTensor> finished = analyze_all(run, backends);
  if (finished) journal->add(run.tensor, *finished);
  return finished;
}

// The tensors of a run with one axis moved last.
struct ViewedTensors {
  struct Entry {
    const TensorSource* source;
    const TensorInfo* tensor;
    const NameFields* fields;
  };
  std::unordered_map<const TensorSource*, std::unique_ptr<AxisView>> views;
  std::vector<Entry> tensors;
};
ViewedTensors with_axis(const InputTensors& inputs, int axis) {
  ViewedTensors viewed;
  for (const InputTensors::Entry& entry : inputs.tensors) {
    if (axis == -1) {
      viewed.tensors.push_back({entry.source, entry.tensor, &entry.fields});
      continue;
    }
    auto& view = viewed.views[entry.source];
    if (!view) view = std::make_unique<AxisView>(*entry.source, axis);
    const auto index = entry.tensor - entry.source->tensors().data();
    viewed.tensors.push_back(
        {view.get(), &view->tensors()[static_cast<std::size_t>(index)], &entry.fields});
  }
  return viewed;
}

}  // namespace

Report analyze(const std::vector<std::string>& files, const AnalyzeOptions& options) {
  std::vector<bool> included;
  const auto accepts = options.filter.compile(&included);
  if (options.recipes.empty()) throw Error(ErrorKind::kUsage, "analyze needs at least one recipe");
  std::vector<const Backend*> backends;
  for (const Recipe& recipe : options.recipes) {
    backends.push_back(&choose_backend(options.backend, recipe));
  }
  Aggregator aggregator(options);
  const NamePatterns patterns(options.name_patterns);
  Report report;
  const int threads = static_cast<int>(std::clamp<std::int64_t>(
      options.memory_bytes / kMemoryPerThread, 1, thread_count(options.threads)));
  report.threads = threads;

  InputTensors inputs = open_inputs(files, options.open, accepts, patterns, options.looking);
  report.unused_includes = options.filter.unused(included);
  report.errors = std::move(inputs.errors);
  report.skipped = std::move(inputs.skipped);
  report.warnings = std::move(inputs.notes);
  const std::vector<std::string> paths = paths_of(inputs.sources);
  report.sources = std::move(inputs.sources);
  const ViewedTensors viewed = with_axis(inputs, options.axis);
  std::int64_t total = 0, done = 0;
  for (const auto& [source, tensor, fields] : viewed.tensors) {
    total += tensor->elements * passes_over(*tensor, options.recipes);
  }
  for (const auto& [source, tensor, fields] : viewed.tensors) {
    const TensorRun run{*source, *tensor, options, threads, [&](std::int64_t n) {
                          done += n;
                          if (options.progress) options.progress(done, total);
                        }};
    try {
      std::optional<FinishedTensor> finished = find_or_analyze(run, backends);
      if (!finished) {
        report.interrupted = true;
        break;
      }
      std::vector<Row> rows =
          rows_of(*finished, *tensor, options.recipes, backends, options.map_size);
      for (Row& row : rows) row.fields = *fields;
      aggregator.add(rows, *finished);
      for (Row& row : rows) report.results.push_back(std::move(row));
      for (ErrorRecord& error : finished->errors) report.errors.push_back(std::move(error));
    } catch (const Error& e) {
      // A reader that stopped waiting says so with an error.
      if (run.stopped()) {
        report.interrupted = true;
        break;
      }
      report.errors.push_back({tensor->file, tensor->name, e.what(), e.exit_code()});
    } catch (const std::bad_alloc&) {
      // What the others gave is not lost.
      report.errors.push_back({tensor->file, tensor->name,
                               tensor->file + ": tensor '" + tensor->name +
                                   "': not enough memory for its tiles and row scales",
                               4});
    }
  }
  report.aggregates = aggregator.rows();
  if (!report.results.empty() && !report.interrupted) {
    for (std::string& warning : aggregator.warnings(paths)) {
      report.warnings.push_back(std::move(warning));
    }
  }
  return report;
}

}  // namespace fp4scope
