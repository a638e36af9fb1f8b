// quantize_file.cc: whole files to fp4scope's own layout, streamed by tiles. Pass 1, where the
// recipe needs it, takes the amax as an integer maximum of magnitude bits; pass 2 quantizes tile by
// tile and writes codes and scales at their offsets, so the bytes do not depend on threads.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "analysis/analyze.h"
#include "analysis/input_notes.h"
#include "analysis/io/axis_view.h"
#include "analysis/io/container_files.h"
#include "analysis/io/message.h"
#include "analysis/io/near_names.h"
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
  TileBuffer source;
  QuantizedTile quantized;
  std::vector<std::uint8_t> packed;
};

// One tensor on its way to the file.
struct Job {
  std::string name;          // in the output
  std::string file;          // that holds the tensor, below the directory that was named
  const TensorInfo* stored;  // of the source, original shape
  const TensorInfo* moved;   // of the axis view
  int axis = 0;
  Planes planes;
  // Indexes of the writer's entries.
  std::size_t codes = 0, scales = 0, choice = 0, amax = 0, outer = 0;
};

std::string where(const TensorInfo& tensor) {
  return fmt::format("{}: tensor {}", printable(tensor.file), in_quotes(tensor.name));
}

void write_outer(SafetensorsWriter& writer, const Job& job,
                 const std::vector<OuterScale32>& outer) {
  std::vector<float> amax, scale;
  for (const OuterScale32& entry : outer) {
    amax.push_back(entry.amax);
    scale.push_back(entry.g);
  }
  writer.write(job.amax, 0, amax.data(), amax.size() * sizeof(float));
  writer.write(job.outer, 0, scale.data(), scale.size() * sizeof(float));
}

void stop_if_interrupted(bool complete) {
  if (!complete) throw Error(ErrorKind::kData, "interrupted");
}

void quantize_tensor(const TensorSource& source, const Job& job, const Backend& backend,
                     const QuantizeOptions& options, SafetensorsWriter& writer) {
  const Recipe& recipe = options.recipe;
  const Planes& planes = job.planes;
  const bool nibbles = recipe.packs_nibbles();
  const int threads = thread_count(options.threads);
  // With scale=given no rule needs the amax, but the file states it and zero would be wrong.
  AmaxResult amax;
  if (recipe.needs_amax() || (planes.outer_entries > 0 && !recipe.nvfp4.has_amax)) {
    amax = measure_amax(source, *job.moved, recipe.scales_rows(), threads, options.stop, &recipe);
    stop_if_interrupted(amax.complete);
  }
  const std::vector<OuterScale32> outer = outer_scales(backend, recipe, amax);
  if (planes.outer_entries > 0) write_outer(writer, job, outer);

  const auto grid = tile_grid(planes.rows, planes.cols, tile_steps(recipe));
  std::vector<Buffers> workers(static_cast<std::size_t>(threads));
  const auto body = [&](std::int64_t index, int thread) {
    Buffers& buffers = workers[static_cast<std::size_t>(thread)];
    const TileSpan& at = grid[static_cast<std::size_t>(index)];
    buffers.source.read(source, *job.moved, at, &recipe);
    QuantizedTile& quantized = buffers.quantized;
    try {
      backend.quantize(recipe, buffers.source.tile, outer_of_tile(outer, recipe, at), quantized);
    } catch (const RefusedInput& e) {
      throw Error(e.kind(),
                  fmt::format("{}: row {}: {}", where(*job.stored), at.row + e.row(), e.what()));
    }
    const std::int64_t code_bytes = packed_code_bytes(recipe, at.cols);
    buffers.packed.resize(static_cast<std::size_t>(at.rows * code_bytes));
    for (std::int64_t r = 0; r < at.rows; ++r) {
      pack_codes(recipe, quantized.codes.data() + r * quantized.padded_cols * recipe.code_bytes(),
                 at.cols, buffers.packed.data() + r * code_bytes);
    }
    // A tile of whole rows is one run of bytes, a split one is one run per row.
    const std::int64_t code_col = nibbles ? at.col / 2 : at.col * recipe.code_bytes();
    const std::int64_t scale_row = planes.blocks * planes.scale_bytes;
    const std::int64_t scale_run = quantized.blocks_per_row * planes.scale_bytes;
    const std::int64_t scale_col = at.col / recipe.format.block * planes.scale_bytes;
    const std::int64_t runs = at.cols == planes.cols ? 1 : at.rows;
    const std::int64_t rows = at.rows / runs;
    for (std::int64_t r = 0; r < runs; ++r) {
      writer.write(job.codes, (at.row + r) * planes.code_cols + code_col,
                   buffers.packed.data() + r * code_bytes,
                   static_cast<std::size_t>(rows * code_bytes));
      if (planes.scale_bytes > 0) {
        writer.write(job.scales, (at.row + r) * scale_row + scale_col,
                     quantized.scales.data() + r * scale_run,
                     static_cast<std::size_t>(rows * scale_run));
      }
      if (planes.chooses) {
        writer.write(job.choice, (at.row + r) * planes.blocks + at.col / recipe.format.block,
                     quantized.choices.data() + r * quantized.blocks_per_row,
                     static_cast<std::size_t>(rows * quantized.blocks_per_row));
      }
    }
  };
  stop_if_interrupted(
      for_each_tile(static_cast<std::int64_t>(grid.size()), threads, options.stop, body));
}

void refuse_shape(const Recipe& recipe, const Job& job) {
  try {
    require_shape(recipe, *job.moved);
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("{}: {}", where(*job.stored), e.what()));
  }
  if (recipe.ragged() == Ragged::kFlat && job.planes.cols % recipe.format.block != 0) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{} has rows of {} elements, expected a multiple of the block of {}: "
                            "with ragged=flat blocks would cross rows, which this layout cannot "
                            "hold (analyze can)",
                            where(*job.stored), job.planes.cols, recipe.format.block));
  }
  if (recipe.ragged() != Ragged::kError || job.planes.cols % recipe.format.block == 0) return;
  throw Error(ErrorKind::kData,
              fmt::format("{} has rows of {} elements, expected a multiple of the block of {} "
                          "because the recipe says ragged=error",
                          where(*job.stored), job.planes.cols, recipe.format.block));
}

// Written name by name: a JSON object that keeps its order searches linearly on every insertion.
std::string source_facts(const std::vector<Job>& jobs) {
  // A file name may be no UTF-8; tensor names are checked by the writer.
  const auto text_of = [](const nlohmann::ordered_json& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::string facts = "{";
  for (const Job& job : jobs) {
    nlohmann::ordered_json entry;
    entry["shape"] = job.stored->shape;
    entry["dtype"] = dtype_name(job.stored->dtype);
    entry["file"] = job.file;
    if (job.name != job.stored->name) entry["tensor"] = job.stored->name;
    // The axis that was moved last before flattening; absent when it is the last one.
    if (job.axis + 1 < static_cast<int>(job.stored->shape.size())) entry["axis"] = job.axis;
    if (facts.size() > 1) facts += ',';
    facts += text_of(job.name) + ':' + text_of(entry);
  }
  return facts + '}';
}

// The path below a directory that was named, else the name of the file.
std::string path_below(const std::string& operand, const std::string& file) {
  if (file.size() <= operand.size() || !file.starts_with(operand)) {
    return std::filesystem::path(file).filename().string();
  }
  std::size_t start = operand.size();
  while (start < file.size() && file[start] == '/') ++start;
  return file.substr(start);
}

// The files of a dump tree often hold tensors of the same names. Then all of them are named with
// their file, PATH:NAME, as analyze names them below the directory.
void name_outputs(std::vector<Job>& jobs) {
  std::unordered_set<std::string> names;
  const bool unique = std::all_of(jobs.begin(), jobs.end(), [&](const Job& job) {
    return names.insert(job.stored->name).second;
  });
  if (unique) return;
  names.clear();
  for (Job& job : jobs) {
    job.name = printable(job.file) + ':' + job.stored->name;
    if (names.insert(job.name).second) continue;
    throw Error(ErrorKind::kData,
                fmt::format("{} would be in the output twice as {}, expected each name once",
                            where(*job.stored), in_quotes(job.name)));
  }
}

// The planes of a job as entries of the writer; returns their bytes.
std::int64_t add_planes(Job& job, std::vector<SafetensorsWriter::Entry>& entries) {
  std::int64_t bytes_out = 0;
  const auto plane = [&](const char* suffix, DType dtype, std::vector<std::int64_t> shape) {
    std::int64_t bytes = dtype_bytes(dtype);
    for (const std::int64_t extent : shape) bytes *= extent;
    bytes_out += bytes;
    entries.push_back({job.name + suffix, dtype, std::move(shape)});
    return entries.size() - 1;
  };
  job.codes = plane(".codes", DType::kU8, {job.planes.rows, job.planes.code_cols});
  if (job.planes.scale_bytes > 0) {
    job.scales = plane(".scales", DType::kU8, scales_shape(job.planes));
  }
  if (job.planes.chooses) {
    job.choice = plane(".choice", DType::kU8, {job.planes.rows, job.planes.blocks});
  }
  if (job.planes.outer_entries > 0) {
    job.amax = plane(".amax", DType::kF32, {job.planes.outer_entries});
    job.outer = plane(".outer_scale", DType::kF32, {job.planes.outer_entries});
  }
  return bytes_out;
}

}  // namespace

QuantizeResult quantize_file(const std::string& in, const std::string& out,
                             const QuantizeOptions& options) {
  const Recipe& recipe = options.recipe;
  const Backend& backend = choose_backend(options.backend, recipe);
  if (recipe.keeps_nan_elements()) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("recipe {} has values but no codes for NaN elements, so there is "
                            "nothing to store; analyze can run it",
                            to_string(recipe)));
  }
  std::vector<bool> included;
  const auto accepts = options.filter.compile(&included);
  const Operand operand = split_operand(in);
  const std::unique_ptr<TensorSource> source = open_source(operand.file, options.open);
  refuse_overwriting(out, source_files(*source));
  const AxisView view(*source, options.axis);

  QuantizeResult result;
  result.backend = backend.name();
  result.threads = thread_count(options.threads);
  result.sources.push_back({source->info().path, source->info().container, source->info().bytes});
  for (const ContainerFiles::Note& file :
       find_containers(operand.file, options.open.follow_links).skipped) {
    result.skipped.push_back(file.message);
  }
  std::vector<Job> jobs;
  bool found = false, any_passes = false;
  for (std::size_t i = 0; i < source->tensors().size(); ++i) {
    const TensorInfo& tensor = source->tensors()[i];
    if (!operand.tensor.empty() && tensor.name != operand.tensor) continue;
    // What another tensor holds already is only taken when it is named.
    if (tensor.derived && operand.tensor.empty()) continue;
    found = true;
    if (!accepts(tensor.name)) continue;
    any_passes = true;
    refuse_damaged(tensor);
    if (!is_real(tensor.dtype)) {
      result.skipped.push_back(fmt::format("{}: {} is not F64, F32, F16, BF16 or FP8",
                                           where(tensor), shown_dtype(tensor)));
      continue;
    }
    Job job{};
    job.name = tensor.name;
    job.file = path_below(operand.file, tensor.file);
    job.stored = &tensor;
    job.moved = &view.tensors()[i];
    job.axis = resolve_axis(tensor, options.axis);
    job.planes = planes_of(recipe, job.moved->rows(), job.moved->cols());
    refuse_shape(recipe, job);
    jobs.push_back(std::move(job));
  }
  if (!operand.tensor.empty() && !found) {
    throw Error(ErrorKind::kData,
                fmt::format("{} holds no tensor {}; it has {}{}", printable(operand.file),
                            in_quotes(operand.tensor), counted(source->tensors().size(), "tensor"),
                            near_names(source->tensors(), operand.tensor)));
  }
  if (found && !any_passes) {
    throw Error(ErrorKind::kUsage,
                no_tensor_passes(options.filter.unused(included), source_files(*source)));
  }
  if (jobs.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{} holds nothing to quantize: expected a tensor of F64, F32, F16, BF16 or "
                    "FP8 that the filter accepts, found {}",
                    printable(in),
                    result.skipped.empty() ? "none" : printable(result.skipped.front())));
  }
  name_outputs(jobs);
  std::vector<SafetensorsWriter::Entry> entries;
  for (Job& job : jobs) {
    const std::int64_t bytes_out = add_planes(job, entries);
    const TensorInfo& tensor = *job.stored;
    result.tensors.push_back({job.name, tensor.file, std::string(dtype_name(tensor.dtype)),
                              tensor.shape, tensor.elements, tensor.bytes, bytes_out});
  }
  std::vector<std::pair<std::string, std::string>> metadata{{"fp4scope", FP4SCOPE_VERSION},
                                                            {"recipe", to_full_string(recipe)},
                                                            {"tensors", source_facts(jobs)}};
  // Files that the codes depend on, by their hash.
  if (recipe.library) metadata.emplace_back("format_file", recipe.library->hash);
  if (recipe.user_rcp) metadata.emplace_back("rcp_table", recipe.user_rcp->hash);
  SafetensorsWriter writer(out, entries, metadata);
  for (const Job& job : jobs) quantize_tensor(view, job, backend, options, writer);
  writer.commit();
  if (!recipe.note.empty()) result.notes.emplace_back(recipe.note);
  if (const std::string table = rcp_table_note(recipe); !table.empty()) {
    result.notes.push_back(table);
  }
  return result;
}

}  // namespace fp4scope
