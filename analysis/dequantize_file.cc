// dequantize_file.cc: the reverse of quantize_file.cc. The planes of every tensor are checked
// against the recipe and the shapes that __metadata__ states before the first byte is written.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "analysis/analyze.h"
#include "analysis/input_notes.h"
#include "analysis/io/axis_view.h"
#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "analysis/io/sinks.h"
#include "analysis/quantize_layout.h"
#include "analysis/tiles.h"
#include "sim/custom_format.h"
#include "sim/error.h"
#include "sim/quantized_tensor.h"
#include "sim/rcp_table.h"

namespace fp4scope {
namespace {

struct Buffers {
  QuantizedTile quantized;
  std::vector<std::uint8_t> packed;
  std::vector<float> values, column;
};

struct Job {
  TensorInfo original;  // as __metadata__ states it
  int axis = 0;
  bool moved = false;  // another axis than the last was flattened to the right
  Planes planes;
  const TensorInfo* codes = nullptr;
  const TensorInfo* scales = nullptr;   // null without block scales
  const TensorInfo* choices = nullptr;  // null unless the recipe chooses
  std::vector<OuterScale32> outer;
};

class LayoutReader {
 public:
  LayoutReader(const TensorSource& source, const Recipe& recipe, const Backend& backend)
      : source_(source), recipe_(recipe), backend_(backend), path_(printable(source.info().path)) {
    for (const TensorInfo& tensor : source.tensors()) planes_.emplace(tensor.name, &tensor);
  }

  Job read(const std::string& name, const nlohmann::json& facts) const {
    Job job;
    const auto bad = [&](const std::string& what) {
      throw Error(ErrorKind::kData,
                  fmt::format("{}: __metadata__ of tensor {} {}", path_, in_quotes(name), what));
    };
    if (!facts.is_object() || !facts.contains("shape") || !facts["shape"].is_array()) {
      bad("states no shape");
    }
    for (const nlohmann::json& extent : facts["shape"]) {
      if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > INT64_MAX) {
        bad("states a shape that is no list of integers from 0 to 2^63-1");
      }
      job.original.shape.push_back(extent.get<std::int64_t>());
    }
    const std::optional<std::int64_t> elements = checked_product(job.original.shape);
    std::int64_t ignored = 0;
    if (!elements || __builtin_mul_overflow(*elements, std::int64_t{64}, &ignored)) {
      bad(fmt::format("states the shape {}, whose size exceeds 64 bits",
                      shape_text(job.original.shape)));
    }
    job.original.name = name;
    job.original.elements = *elements;
    job.original.file = source_.info().path;
    job.axis = resolve_axis(job.original, -1);
    if (facts.contains("axis")) {
      const nlohmann::json& axis = facts["axis"];
      if (!axis.is_number_unsigned() || axis.get<std::uint64_t>() >= job.original.shape.size()) {
        bad(fmt::format("states an axis that the shape {} does not have",
                        shape_text(job.original.shape)));
      }
      job.axis = axis.get<int>();
    }
    job.moved = job.axis + 1 < static_cast<int>(job.original.shape.size());
    TensorInfo flat;
    flat.shape = move_axis_last(job.original.shape, job.axis);
    job.planes = planes_of(recipe_, flat.rows(), flat.cols());
    job.codes = plane(name + ".codes", DType::kU8, {job.planes.rows, job.planes.code_cols});
    if (job.planes.scale_bytes > 0) {
      job.scales = plane(name + ".scales", DType::kU8, scales_shape(job.planes));
    }
    if (job.planes.chooses) {
      job.choices = plane(name + ".choice", DType::kU8, {job.planes.rows, job.planes.blocks});
    }
    job.outer.resize(1);
    if (job.planes.outer_entries > 0) read_outer(job);
    return job;
  }

 private:
  const TensorInfo* plane(const std::string& name, DType dtype,
                          const std::vector<std::int64_t>& shape) const {
    const auto found = planes_.find(name);
    if (found == planes_.end()) {
      throw Error(ErrorKind::kData,
                  fmt::format("{} has no tensor {}, expected {} {}", path_, in_quotes(name),
                              dtype_name(dtype), shape_text(shape)));
    }
    const TensorInfo& tensor = *found->second;
    if (tensor.dtype != dtype || tensor.shape != shape) {
      throw Error(ErrorKind::kData,
                  fmt::format("{}: tensor {} is {} {}, expected {} {}", path_, in_quotes(name),
                              printable(tensor.dtype_text), shape_text(tensor.shape),
                              dtype_name(dtype), shape_text(shape)));
    }
    return &tensor;
  }

  void read_outer(Job& job) const {
    const std::int64_t count = job.planes.outer_entries;
    const TensorInfo* amax = plane(job.original.name + ".amax", DType::kF32, {count});
    const TensorInfo* scale = plane(job.original.name + ".outer_scale", DType::kF32, {count});
    std::vector<float> amax_values(static_cast<std::size_t>(count));
    std::vector<float> scale_values(static_cast<std::size_t>(count));
    source_.read_f32(*amax, 0, 1, 0, count, amax_values.data());
    source_.read_f32(*scale, 0, 1, 0, count, scale_values.data());
    job.outer.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < job.outer.size(); ++i) {
      // An infinite amax is what a tensor with an infinity has.
      const bool is_nan = amax_values[i] != amax_values[i];
      if (is_nan ? !propagates_nan(recipe_) : amax_values[i] < 0) {
        throw Error(ErrorKind::kData,
                    fmt::format("{}: tensor {} has the value {} at {}, expected an amax of 0 or "
                                "more",
                                path_, in_quotes(amax->name), amax_values[i], i));
      }
      // Zero and infinity are what some contracts have for degenerate amax, and wrong elsewhere.
      const OuterScale32 want =
          backend_.outer_scale(recipe_, bit_cast<std::uint32_t>(amax_values[i]));
      const bool both_nan = std::isnan(want.g) && std::isnan(scale_values[i]);
      if (!both_nan &&
          bit_cast<std::uint32_t>(want.g) != bit_cast<std::uint32_t>(scale_values[i])) {
        throw Error(
            ErrorKind::kData,
            fmt::format("{}: tensor {} has the value {} at {}, expected {}, the outer scale "
                        "of the amax {} under the recipe",
                        path_, in_quotes(scale->name), scale_values[i], i, want.g, amax_values[i]));
      }
      job.outer[i] = {amax_values[i], scale_values[i]};
    }
  }

  const TensorSource& source_;
  const Recipe& recipe_;
  const Backend& backend_;
  std::string path_;
  std::unordered_map<std::string, const TensorInfo*> planes_;
};

std::string metadata_text(const TensorSource& source, const std::string& key) {
  for (const auto& [name, value] : source.metadata()) {
    if (name == key) return value;
  }
  throw Error(ErrorKind::kData,
              fmt::format("{} is not in fp4scope's own layout: __metadata__ has no {}",
                          printable(source.info().path), in_quotes(key)));
}

std::string metadata_or_empty(const TensorSource& source, std::string_view key) {
  for (const auto& [name, value] : source.metadata()) {
    if (name == key) return value;
  }
  return "";
}

// The recipe with the files that it needs, which have to be those of quantize.
Recipe recorded_recipe(const TensorSource& source, const QuantizeOptions& options) {
  const std::string text = metadata_text(source, "recipe");
  const std::string path = printable(source.info().path);
  const auto require_same = [&](std::string_view key, std::string_view flag,
                                const std::string& given) {
    const std::string recorded = metadata_or_empty(source, key);
    if (recorded == given) return;
    throw Error(ErrorKind::kUsage,
                fmt::format("{}: expected {} with the hash {}, as when it was written, found {}",
                            path, flag, recorded.empty() ? "of no file" : recorded,
                            given.empty() ? "no file" : given));
  };
  require_same("format_file", "--format-file", options.library ? options.library->hash : "");
  require_same("rcp_table", "--rcp-table", options.user_rcp ? options.user_rcp->hash : "");
  Recipe recipe;
  try {
    recipe = parse_recipe(text, options.library);
  } catch (const Error& error) {
    throw Error(ErrorKind::kData, fmt::format("{}: the recipe in __metadata__ is not usable: {}",
                                              path, error.what()));
  }
  if (rcp_of(recipe) == Rcp::kUser) recipe.user_rcp = options.user_rcp;
  return recipe;
}

// Names of the tensors in the order of their codes in the file, then any whose codes are missing.
std::vector<std::string> names_in_order(const TensorSource& source, const nlohmann::json& facts) {
  constexpr std::string_view kEnding = ".codes";
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  for (const TensorInfo& tensor : source.tensors()) {
    if (!tensor.name.ends_with(kEnding)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - kEnding.size());
    if (facts.contains(name) && seen.insert(name).second) names.push_back(name);
  }
  for (const auto& [name, entry] : facts.items()) {
    if (!seen.contains(name)) names.push_back(name);
  }
  return names;
}

// Codes of one tile, one byte each, padding zero.
void read_codes(const TensorSource& source, const Recipe& recipe, const Job& job,
                const TileSpan& at, Buffers& buffers) {
  QuantizedTile& tile = buffers.quantized;
  const bool nibbles = recipe.packs_nibbles();
  const std::int64_t bytes = packed_code_bytes(recipe, at.cols);
  buffers.packed.resize(static_cast<std::size_t>(at.rows * bytes));
  source.read_raw(*job.codes, at.row, at.rows, nibbles ? at.col / 2 : at.col * recipe.code_bytes(),
                  bytes, buffers.packed.data());
  const std::uint32_t codes = recipe.code_bytes() == 1 ? recipe.format.element.code_count() : 256;
  std::fill(tile.codes.begin(), tile.codes.end(), std::uint8_t{0});
  for (std::int64_t r = 0; r < at.rows; ++r) {
    const std::uint8_t* from = buffers.packed.data() + r * bytes;
    std::uint8_t* to = tile.codes.data() + r * tile.padded_cols * recipe.code_bytes();
    unpack_codes(recipe, from, at.cols, to);
    const std::uint32_t largest =
        at.cols == 0 ? 0u : *std::max_element(to, to + at.cols * recipe.code_bytes());
    if (largest >= codes) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: tensor {} has the code {:#x} in row {}, expected less than {:#x}",
                      printable(source.info().path), in_quotes(job.codes->name), largest,
                      at.row + r, codes));
    }
  }
}

// Writes decoded values of a tile at their place in the original shape.
void write_values(SafetensorsWriter& writer, std::size_t entry, const Job& job, const TileSpan& at,
                  Buffers& buffers) {
  const auto put = [&](std::int64_t element, const float* values, std::int64_t count) {
    writer.write(entry, element * std::int64_t{sizeof(float)}, values,
                 static_cast<std::size_t>(count) * sizeof(float));
  };
  if (!job.moved) {
    const std::int64_t runs = at.cols == job.planes.cols ? 1 : at.rows;
    const std::int64_t run = at.rows / runs * at.cols;
    for (std::int64_t r = 0; r < runs; ++r) {
      put((at.row + r) * job.planes.cols + at.col, buffers.values.data() + r * at.cols, run);
    }
    return;
  }
  const std::int64_t last = job.original.cols();
  for_each_axis_piece(job.original.shape, job.axis, at.row, at.rows, [&](const AxisPiece& piece) {
    buffers.column.resize(static_cast<std::size_t>(piece.count));
    for (std::int64_t k = 0; k < at.cols; ++k) {
      for (std::int64_t r = 0; r < piece.count; ++r) {
        buffers.column[static_cast<std::size_t>(r)] =
            buffers.values[static_cast<std::size_t>((piece.view_row - at.row + r) * at.cols + k)];
      }
      put((piece.first_row + (at.col + k) * piece.row_step) * last + piece.first_col,
          buffers.column.data(), piece.count);
    }
  });
}

void dequantize_tensor(const TensorSource& source, const Recipe& recipe, const Job& job,
                       const Backend& backend, const QuantizeOptions& options, std::size_t entry,
                       SafetensorsWriter& writer) {
  const Planes& planes = job.planes;
  const std::int64_t block = recipe.format.block;
  const int threads = thread_count(options.threads);
  const auto grid = tile_grid(planes.rows, planes.cols, tile_steps(recipe));
  std::vector<Buffers> workers(static_cast<std::size_t>(threads));
  const auto body = [&](std::int64_t index, int thread) {
    Buffers& buffers = workers[static_cast<std::size_t>(thread)];
    const TileSpan& at = grid[static_cast<std::size_t>(index)];
    QuantizedTile& tile = buffers.quantized;
    resize(tile, recipe, at.rows, at.cols);
    read_codes(source, recipe, job, at, buffers);
    // The scale plane [rows, blocks, bytes] is flattened on the left by the source, so a run of
    // blocks of one row is a run of its rows.
    if (planes.chooses) {
      source.read_raw(*job.choices, at.row, at.rows, at.col / block, tile.blocks_per_row,
                      tile.choices.data());
    }
    if (planes.scale_bytes == 1) {
      source.read_raw(*job.scales, at.row, at.rows, at.col / block, tile.blocks_per_row,
                      tile.scales.data());
    } else if (planes.scale_bytes > 1) {
      for (std::int64_t r = 0; r < at.rows; ++r) {
        source.read_raw(*job.scales, (at.row + r) * planes.blocks + at.col / block,
                        tile.blocks_per_row, 0, planes.scale_bytes,
                        tile.scales.data() + r * tile.blocks_per_row * planes.scale_bytes);
      }
    }
    buffers.values.resize(static_cast<std::size_t>(at.rows * at.cols));
    backend.dequantize(recipe, tile, outer_of_tile(job.outer, recipe, at), buffers.values.data(),
                       at.cols);
    write_values(writer, entry, job, at, buffers);
  };
  if (!for_each_tile(static_cast<std::int64_t>(grid.size()), threads, options.stop, body)) {
    throw Error(ErrorKind::kData, "interrupted");
  }
}

}  // namespace

QuantizeResult dequantize_file(const std::string& in, const std::string& out,
                               const QuantizeOptions& options) {
  std::vector<bool> included;
  const auto accepts = options.filter.compile(&included);
  const Operand operand = split_operand(in);
  const std::unique_ptr<TensorSource> source = open_source(operand.file, options.open);
  refuse_overwriting(out, source_files(*source));
  const Recipe recipe = recorded_recipe(*source, options);
  const Backend& backend = choose_backend(options.backend, recipe);
  const nlohmann::json facts =
      nlohmann::json::parse(metadata_text(*source, "tensors"), nullptr, false);
  if (!facts.is_object()) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: \"tensors\" in __metadata__ is not a JSON object",
                            printable(operand.file)));
  }
  QuantizeResult result;
  result.backend = backend.name();
  result.threads = thread_count(options.threads);
  result.sources.push_back({source->info().path, source->info().container, source->info().bytes});
  std::vector<Job> jobs;
  std::vector<SafetensorsWriter::Entry> entries;
  const LayoutReader layout(*source, recipe, backend);
  bool found = false;
  for (const std::string& name : names_in_order(*source, facts)) {
    if (!operand.tensor.empty() && name != operand.tensor) continue;
    found = true;
    if (!accepts(name)) continue;
    jobs.push_back(layout.read(name, facts[name]));
    const Job& job = jobs.back();
    entries.push_back({name, DType::kF32, job.original.shape});
    std::int64_t bytes_in = job.codes->bytes + (job.scales ? job.scales->bytes : 0) +
                            (job.choices ? job.choices->bytes : 0);
    bytes_in += 2 * job.planes.outer_entries * std::int64_t{sizeof(float)};
    result.tensors.push_back({name, job.original.file, std::string(dtype_name(DType::kF32)),
                              job.original.shape, job.original.elements, bytes_in,
                              job.original.elements * std::int64_t{sizeof(float)}});
  }
  if (!found) {
    throw Error(ErrorKind::kData,
                fmt::format("{} holds no quantized tensor{}", printable(operand.file),
                            operand.tensor.empty() ? "" : " " + in_quotes(operand.tensor)));
  }
  if (jobs.empty()) {
    throw Error(ErrorKind::kUsage,
                no_tensor_passes(options.filter.unused(included), source_files(*source)));
  }
  SafetensorsWriter writer(out, entries,
                           {{"fp4scope", FP4SCOPE_VERSION}, {"recipe", to_full_string(recipe)}});
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    dequantize_tensor(*source, recipe, jobs[i], backend, options, i, writer);
  }
  writer.commit();
  if (recipe.rht.size != 0) {
    result.notes.push_back(fmt::format(
        "the values are those of the tensor after the Hadamard transform (rht={}), which is not "
        "undone",
        recipe.rht.size));
  }
  return result;
}

}  // namespace fp4scope
