// agree.cc: see agree.h. Tiles in parallel; counts are integers, so the order of threads does not
// matter, and the described blocks are the first in row order.
#include "analysis/compare/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "analysis/compare/prepared.h"
#include "analysis/input_notes.h"
#include "analysis/inputs.h"
#include "analysis/io/message.h"
#include "sim/error.h"
#include "sim/rcp_table.h"

namespace fp4scope {
namespace {

// One of the two recipes on a tile.
struct Half {
  QuantizedTile quantized;
  std::vector<float> values, transformed;
  Tile tile;  // after the recipe's transform
};
struct Worker {
  TileBuffer buffer;
  Half a, b;
  AgreeCounts counts;
  std::vector<DifferingBlock> first;
  std::vector<std::int64_t> code_table;  // [code a * 256 + code b]
};

struct Run {
  const AgreeOptions& options;
  const PreparedInput& input;
  AgreeRow& row;
  const Backend &backend_a, &backend_b;
  std::string operand;  // FILE:TENSOR
  std::vector<OuterScale32> outer_a, outer_b;
};

// A tile of both grids.
TileSteps common_steps(const Recipe& a, const Recipe& b) {
  const TileSteps s = tile_steps(a), t = tile_steps(b);
  const TileSteps common{std::lcm(s.rows, t.rows), std::lcm(s.cols, t.cols)};
  // Blocks of 1 to 256 elements: neither number nor the product can overflow.
  if (common.rows * common.cols <= 16 * kTileElements) return common;
  throw Error(ErrorKind::kUnsupported,
              fmt::format("blocks of {} and {} elements have no common tile below {} elements; "
                          "compare each with a third recipe",
                          a.format.block, b.format.block, 16 * kTileElements));
}

void run_half(const Recipe& recipe, const Backend& backend, std::span<const OuterScale32> outer,
              const TileSpan& span, const Tile& source, Half& half) {
  half.tile = transformed_tile(recipe, source, half.transformed);
  const Tile& tile = half.tile;
  half.quantized.wants_errors = recipe.chooses();
  try {
    backend.quantize(recipe, tile, outer, half.quantized);
  } catch (const RefusedInput& e) {
    throw Error(e.kind(), fmt::format("recipe {}: row {}: {}", to_string(recipe),
                                      span.row + e.row(), e.what()));
  }
  half.values.resize(static_cast<std::size_t>(span.elements()));
  backend.dequantize(recipe, half.quantized, outer, half.values.data(), span.cols);
  keep_nan_elements(recipe, tile, half.values.data());
}

// Exact and near ties of one candidate pair; NaN is neither.
struct Tie {
  bool exact = false, near = false;
};
Tie tie_of(const QuantizedTile& tile, std::int64_t block) {
  if (tile.errors.empty()) return {};
  const double e4 = tile.errors[static_cast<std::size_t>(2 * block)];
  const double e6 = tile.errors[static_cast<std::size_t>(2 * block + 1)];
  if (e4 == e6) return {true, false};
  return {false, std::abs(e4 - e6) <= 0x1p-20 * std::max(e4, e6)};
}

void count_choices(const Run& run, const Worker& w, std::int64_t i, AgreeCounts& counts) {
  const Tie a = tie_of(w.a.quantized, i), b = tie_of(w.b.quantized, i);
  const bool exact = a.exact || b.exact, near = !exact && (a.near || b.near);
  counts.ties += exact ? 1 : 0;
  counts.near_ties += near ? 1 : 0;
  if (!run.row.has_choices) return;
  const bool four_a = w.a.quantized.choices[static_cast<std::size_t>(i)] != 0;
  const bool four_b = w.b.quantized.choices[static_cast<std::size_t>(i)] != 0;
  ++counts.choice_table[four_a ? 1 : 0][four_b ? 1 : 0];
  if (four_a == four_b) return;
  ++counts.choices_differing;
  counts.choices_differing_at_ties += exact ? 1 : 0;
  counts.choices_differing_at_near_ties += near ? 1 : 0;
}

// Elements first .. last-1 of a row of the tile; whether any differs.
bool count_elements(const Run& run, Worker& w, std::int64_t r, std::int64_t first,
                    std::int64_t last) {
  bool differs = false;
  if (run.row.has_codes) {
    const std::int64_t width = run.row.a.code_bytes();
    const auto code = [&](const QuantizedTile& t, std::int64_t c) {
      const std::uint8_t* p = t.codes.data() + (r * t.padded_cols + c) * width;
      return width == 1 ? p[0] : p[0] | static_cast<std::uint32_t>(p[1]) << 8;
    };
    for (std::int64_t c = first; c < last; ++c) {
      const std::uint32_t x = code(w.a.quantized, c), y = code(w.b.quantized, c);
      if (x == y) continue;
      differs = true;
      ++w.counts.codes_differing;
      if (width == 1) ++w.code_table[x * 256 + y];
    }
  }
  if (run.row.has_values) {
    const std::int64_t at = r * w.buffer.tile.cols;
    for (std::int64_t c = first; c < last; ++c) {
      const auto k = static_cast<std::size_t>(at + c);
      if (equal_value(w.a.values[k], w.b.values[k])) continue;
      differs = true;
      ++w.counts.values_differing;
    }
  }
  return differs;
}

// Whole rows that are equal in every byte need no look at their elements.
bool row_elements_differ(const Run& run, const Worker& w, std::int64_t r) {
  const QuantizedTile &a = w.a.quantized, &b = w.b.quantized;
  const std::int64_t width = run.row.a.code_bytes();
  if (run.row.has_codes && std::memcmp(a.codes.data() + r * a.padded_cols * width,
                                       b.codes.data() + r * b.padded_cols * width,
                                       static_cast<std::size_t>(a.cols * width)) != 0) {
    return true;
  }
  const auto at = static_cast<std::size_t>(r * a.cols);
  return run.row.has_values && std::memcmp(w.a.values.data() + at, w.b.values.data() + at,
                                           static_cast<std::size_t>(a.cols) * sizeof(float)) != 0;
}

void compare_tile(const Run& run, const TileSpan& span, Worker& w) {
  const AgreeRow& row = run.row;
  w.buffer.read(run.input.source(), run.input.tensor(), span);
  const auto outer_a = outer_of_tile(run.outer_a, row.a, span);
  const auto outer_b = outer_of_tile(run.outer_b, row.b, span);
  run_half(row.a, run.backend_a, outer_a, span, w.buffer.tile, w.a);
  run_half(row.b, run.backend_b, outer_b, span, w.buffer.tile, w.b);
  const Side a{row.a, w.a.quantized, w.a.values.data(), outer_a};
  const Side b{row.b, w.b.quantized, w.b.values.data(), outer_b};
  const std::int64_t n = row.a.format.block, blocks = w.a.quantized.blocks_per_row;
  const std::int64_t bytes = row.a.format.scale_bytes;
  std::size_t described = 0;
  for (std::int64_t r = 0; r < span.rows; ++r) {
    const bool elements_differ = row_elements_differ(run, w, r);
    for (std::int64_t k = 0; k < blocks; ++k) {
      const std::int64_t i = r * blocks + k;
      bool differs = false;
      if (row.has_scales && std::memcmp(w.a.quantized.scales.data() + i * bytes,
                                        w.b.quantized.scales.data() + i * bytes,
                                        static_cast<std::size_t>(bytes)) != 0) {
        ++w.counts.scales_differing;
        differs = true;
      }
      // Of the recipe that chooses, as it sees the block.
      if (row.has_ties && (row.a.chooses() ? is_live_block(row.a, w.a.tile, r, k)
                                           : is_live_block(row.b, w.b.tile, r, k))) {
        ++w.counts.live_blocks;
        const std::int64_t before = w.counts.choices_differing;
        count_choices(run, w, i, w.counts);
        differs |= w.counts.choices_differing != before;
      }
      if (elements_differ) {
        differs |= count_elements(run, w, r, k * n, std::min(span.cols, (k + 1) * n));
      }
      if (!differs) continue;
      ++w.counts.blocks_differing;
      if (described == run.options.first) continue;
      ++described;
      DifferingBlock d = differing_block(w.a.tile, a, b, r, k, span.row, span.col / n);
      d.command = explain_command(row.a, run.operand, d.row, d.block, run.options.explain_options);
      w.first.push_back(std::move(d));
    }
  }
  keep_first(w.first, run.options.first);
}

// False: stopped.
bool measure_one(const Run& run, const Recipe& recipe, const Backend& backend, int threads,
                 std::vector<OuterScale32>& outer) {
  AmaxResult amax;
  if (recipe.needs_amax()) {
    amax = measure_amax(run.input.source(), run.input.tensor(), recipe.scales_rows(), threads,
                        run.options.stop, &recipe);
  }
  outer = outer_scales(backend, recipe, amax);
  return amax.complete;
}

// The same amax for both where both measure one: one pass over the tensor less. False: stopped.
bool measure(Run& run, int threads) {
  const Recipe &a = run.row.a, &b = run.row.b;
  if (a.needs_amax() && b.needs_amax() && a.rht == b.rht) {
    const AmaxResult amax =
        measure_amax(run.input.source(), run.input.tensor(), a.scales_rows() || b.scales_rows(),
                     threads, run.options.stop, &a);
    run.outer_a = outer_scales(run.backend_a, a, amax);
    run.outer_b = outer_scales(run.backend_b, b, amax);
    return amax.complete;
  }
  return measure_one(run, a, run.backend_a, threads, run.outer_a) &&
         measure_one(run, b, run.backend_b, threads, run.outer_b);
}

void count_outer(const Run& run, AgreeCounts& counts) {
  if (!run.row.a.has_outer() || !run.row.b.has_outer()) return;
  const std::size_t n = std::max(run.outer_a.size(), run.outer_b.size());
  for (std::size_t i = 0; i < n; ++i) {
    const float x = run.outer_a[run.outer_a.size() == 1 ? 0 : i].g;
    const float y = run.outer_b[run.outer_b.size() == 1 ? 0 : i].g;
    ++counts.outer_scales;
    const bool same =
        bit_cast<std::uint32_t>(x) == bit_cast<std::uint32_t>(y) || (x != x && y != y);
    counts.outer_scales_differing += same ? 0 : 1;
  }
}

void add_notes(AgreeRow& row) {
  const auto note = [&](std::string text) {
    if (std::find(row.notes.begin(), row.notes.end(), text) == row.notes.end()) {
      row.notes.push_back(std::move(text));
    }
  };
  for (const Recipe* recipe : {&row.a, &row.b}) {
    if (!recipe->note.empty()) note(std::string(recipe->note));
    if (std::string table = rcp_table_note(*recipe); !table.empty()) note(std::move(table));
  }
  if (!row.has_scales) note("scales are not compared: the blocks or scale types differ");
  if (!row.has_codes) note("codes are not compared: the elements differ");
  if (!row.has_values) note("values are not compared: the Hadamard transforms differ");
}

// False: stopped.
bool agree_tensor(Run& run, int threads, const std::function<void(std::int64_t)>& advance) {
  AgreeRow& row = run.row;
  if (!measure(run, threads)) return false;
  const auto grid =
      tile_grid(run.input.tensor().rows(), run.input.tensor().cols(), common_steps(row.a, row.b));
  std::vector<Worker> workers(static_cast<std::size_t>(threads));
  for (Worker& w : workers) w.code_table.resize(256 * 256);
  const auto body = [&](std::int64_t i, int thread) {
    const TileSpan& span = grid[static_cast<std::size_t>(i)];
    compare_tile(run, span, workers[static_cast<std::size_t>(thread)]);
#pragma omp critical(fp4scope_agree_progress)
    advance(span.elements());
  };
  if (!for_each_tile(std::ssize(grid), threads, run.options.stop, body)) return false;
  for (Worker& w : workers) {
    row.counts.add(w.counts);
    for (std::uint32_t k = 0; k < w.code_table.size(); ++k) {
      if (w.code_table[k] != 0) row.counts.code_table[{k / 256, k % 256}] += w.code_table[k];
    }
    row.first.insert(row.first.end(), w.first.begin(), w.first.end());
  }
  keep_first(row.first, run.options.first);
  const std::int64_t rows = run.input.tensor().rows(), cols = run.input.tensor().cols();
  row.counts.elements = rows * cols;
  row.counts.blocks = rows * divide_up(cols, row.a.format.block);
  count_outer(run, row.counts);
  return true;
}

}  // namespace

void AgreeCounts::add(const AgreeCounts& o) {
  elements += o.elements;
  blocks += o.blocks;
  blocks_differing += o.blocks_differing;
  scales_differing += o.scales_differing;
  codes_differing += o.codes_differing;
  values_differing += o.values_differing;
  outer_scales += o.outer_scales;
  outer_scales_differing += o.outer_scales_differing;
  live_blocks += o.live_blocks;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) choice_table[i][j] += o.choice_table[i][j];
  }
  ties += o.ties;
  near_ties += o.near_ties;
  choices_differing += o.choices_differing;
  choices_differing_at_ties += o.choices_differing_at_ties;
  choices_differing_at_near_ties += o.choices_differing_at_near_ties;
  for (const auto& [codes, n] : o.code_table) code_table[codes] += n;
}

std::optional<double> agreement(std::int64_t differing, std::int64_t of) {
  if (of == 0) return std::nullopt;
  return static_cast<double>(of - differing) / static_cast<double>(of);
}

AgreeResult agree(const std::vector<std::string>& files, const AgreeOptions& options) {
  std::vector<bool> included;
  const auto accepts = options.filter.compile(&included);
  const Backend& backend_a = choose_backend(options.backend, options.a);
  const Backend& backend_b = choose_backend(options.backend, options.b);
  AgreeResult result;
  // A tile of two recipes takes twice the buffers of one.
  result.threads = static_cast<int>(std::clamp<std::int64_t>(
      options.memory_bytes / (2 * kMemoryPerThread), 1, thread_count(options.threads)));
  const NamePatterns patterns(options.name_patterns);
  InputTensors inputs = open_inputs(files, options.open, accepts, patterns, options.looking);
  result.warnings = std::move(inputs.notes);
  const std::vector<std::string> paths = paths_of(inputs.sources);
  result.errors = std::move(inputs.errors);
  result.skipped = std::move(inputs.skipped);
  result.sources = std::move(inputs.sources);
  if (inputs.tensors.empty() && result.errors.empty()) {
    // A gate over nothing would pass.
    const bool filtered = !options.filter.is_empty();
    if (!result.skipped.empty()) {
      throw Error(ErrorKind::kUnsupported, result.skipped.front().message);
    }
    throw Error(filtered ? ErrorKind::kUsage : ErrorKind::kData,
                filtered ? no_tensor_passes(options.filter.unused(included), paths)
                         : "the input holds no tensor that could be compared");
  }
  std::int64_t total = 0, done = 0;
  for (const InputTensors::Entry& entry : inputs.tensors) total += entry.tensor->elements;
  const auto advance = [&](std::int64_t n) {
    done += n;
    if (options.progress) options.progress(done, total);
  };
  AgreeCounts sum;
  for (const InputTensors::Entry& entry : inputs.tensors) {
    AgreeRow row;
    row.a = options.a;
    row.b = options.b;
    try {
      PreparedInput input(*entry.source, *entry.tensor, options.axis);
      refuse_shape(row.a, input.tensor());
      refuse_shape(row.b, input.tensor());
      const bool flat_a = crosses_rows(row.a, input.tensor());
      if (flat_a != crosses_rows(row.b, input.tensor())) {
        throw Error(
            ErrorKind::kData,
            fmt::format("the blocks of one recipe cross row ends (ragged=flat) and those of "
                        "the other do not: rows of {} elements cannot be compared",
                        input.tensor().cols()));
      }
      if (flat_a) input.flatten();
      row.source_hash = source_hash(*entry.source, *entry.tensor, result.threads, options.stop);
      row.file = entry.tensor->file;
      row.tensor = entry.tensor->name;
      row.fields = entry.fields;
      row.dtype = shown_dtype(*entry.tensor);
      row.shape = entry.tensor->shape;
      row.backend_a = backend_a.name();
      row.backend_b = backend_b.name();
      row.has_scales = same_blocks(row.a, row.b);
      row.has_codes = same_elements(row.a, row.b);
      row.has_values = same_values(row.a, row.b);
      row.has_choices = row.a.chooses() && row.b.chooses() &&
                        row.a.format.block == row.b.format.block &&
                        row.a.nvfp4.int4_candidate == row.b.nvfp4.int4_candidate;
      row.has_ties =
          (row.a.chooses() || row.b.chooses()) && row.a.format.block == row.b.format.block;
      Run run{options, input, row, backend_a, backend_b, entry.operand, {}, {}};
      if (!agree_tensor(run, result.threads, advance)) {
        result.interrupted = true;
        return result;
      }
      add_notes(row);
      sum.add(row.counts);
      result.rows.push_back(std::move(row));
    } catch (const Error& e) {
      result.errors.push_back({entry.tensor->file, entry.tensor->name,
                               fmt::format("{}: tensor {}: {}", printable(entry.tensor->file),
                                           in_quotes(entry.tensor->name), e.what()),
                               e.exit_code()});
    }
  }
  if (result.rows.size() > 1) result.total = std::move(sum);
  return result;
}

}  // namespace fp4scope
