// generate_file.cc: see generate_file.h. Tiles are drawn in binary64, narrowed and written at their
// offsets by several threads; every value depends on its index alone, tie-aligned ones on their
// block.
#include "analysis/generate_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

#include "analysis/dtype_grid.h"
#include "analysis/generate.h"
#include "analysis/generate_profile.h"
#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "analysis/io/npy_writer.h"
#include "analysis/tiles.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::string_view kNames[] = {"normal",  "laplace",          "student-t",  "lognormal",
                                       "uniform", "outlier-channels", "tie-aligned"};

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::kUsage, why);
}

// One of the two containers.
class Output {
 public:
  Output(const std::string& path, const GenerateOptions& options, const GenerateResult& result) {
    if (path.ends_with(".npy")) {
      npy_ = std::make_unique<NpyWriter>(path, options.dtype, options.shape);
      return;
    }
    std::vector<SafetensorsWriter::Entry> entries;
    for (const std::string& name : options.names)
      entries.push_back({name, options.dtype, options.shape});
    std::vector<std::pair<std::string, std::string>> metadata = {{"fp4scope", FP4SCOPE_VERSION}};
    metadata.insert(metadata.end(), result.parameters.begin(), result.parameters.end());
    safetensors_ = std::make_unique<SafetensorsWriter>(path, entries, metadata);
  }
  void write(std::size_t tensor, std::int64_t offset, const void* data, std::size_t bytes) {
    if (npy_) {
      npy_->write(offset, data, bytes);
    } else {
      safetensors_->write(tensor, offset, data, bytes);
    }
  }
  void commit() {
    if (npy_) {
      npy_->commit();
    } else {
      safetensors_->commit();
    }
  }

 private:
  std::unique_ptr<NpyWriter> npy_;
  std::unique_ptr<SafetensorsWriter> safetensors_;
};

struct Worker {
  std::vector<double> values;
  std::vector<unsigned char> stored;
  TieAligned::Work ties;
  TieCounts counts;
};

// One tensor on its way to the file.
struct Job {
  const GenerateOptions& options;
  std::size_t index;
  std::int64_t rows, cols;           // as the tiles see it
  std::vector<double> factors;       // per column; empty: none
  std::unique_ptr<TieAligned> ties;  // kTieAligned
  TileSteps steps;
  StreamKey key() const { return {options.seed, static_cast<std::uint32_t>(index)}; }
};

void draw(const Job& job, std::int64_t first, std::span<double> out) {
  switch (job.options.kind) {
    case GeneratedKind::kNormal:
    case GeneratedKind::kOutlierChannels:
      return generate_f64(Distribution::kNormal, job.key(), first, out);
    case GeneratedKind::kLaplace:
      return generate_f64(Distribution::kLaplace, job.key(), first, out);
    case GeneratedKind::kLogNormal:
      return generate_f64(Distribution::kLogNormal, job.key(), first, out);
    case GeneratedKind::kUniform:
      return generate_f64(Distribution::kUniform, job.key(), first, out);
    case GeneratedKind::kStudent:
      if (job.options.df == 3) return generate_f64(Distribution::kStudent3, job.key(), first, out);
      if (job.options.df == 5) return generate_f64(Distribution::kStudent5, job.key(), first, out);
      return generate_student_f64(job.options.df, job.key(), first, out);
    case GeneratedKind::kTieAligned:
      break;
  }
}

void draw_tile(const Job& job, const TileSpan& span, Worker& worker) {
  worker.values.resize(static_cast<std::size_t>(span.elements()));
  if (job.ties) {
    job.ties->fill(span, worker.values.data(), worker.ties, worker.counts);
    return;
  }
  const auto cols = static_cast<std::size_t>(span.cols);
  const std::size_t rows = span.cols == job.cols ? 1 : static_cast<std::size_t>(span.rows);
  const std::size_t run = worker.values.size() / rows;
  for (std::size_t r = 0; r < rows; ++r) {
    const std::int64_t first = (span.row + static_cast<std::int64_t>(r)) * job.cols + span.col;
    draw(job, first, std::span(worker.values).subspan(r * run, run));
  }
  if (job.factors.empty()) return;
  const double* factors = job.factors.data() + span.col;
  for (std::size_t i = 0; i < worker.values.size(); i += cols) {
    for (std::size_t c = 0; c < cols; ++c) worker.values[i + c] *= factors[c];
  }
}

// The stored bytes; returns the largest magnitude before the last rounding, as binary32 bits. F64,
// where nothing is rounded: 0, or Inf when there is one.
std::uint32_t narrow(DType dtype, float scale, const std::vector<double>& values,
                     std::vector<unsigned char>& stored) {
  const std::size_t n = values.size();
  stored.resize(n * static_cast<std::size_t>(dtype_bytes(dtype)));
  std::int32_t largest = 0;  // signed: SSE2 has no unsigned maximum
  if (dtype == DType::kF64) {
    auto* out = reinterpret_cast<double*>(stored.data());
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = values[i] * double{scale};
      if (!std::isfinite(out[i])) largest = static_cast<std::int32_t>(kInfBits);
    }
    return static_cast<std::uint32_t>(largest);
  }
  auto* wide = reinterpret_cast<float*>(stored.data());
  auto* half = reinterpret_cast<std::uint16_t*>(stored.data());
  for (std::size_t i = 0; i < n; ++i) {
    const float v = static_cast<float>(values[i]) * scale;
    largest = std::max(largest, bit_cast<std::int32_t>(v) & 0x7fffffff);
    if (dtype == DType::kF32) {
      wide[i] = v;
    } else if (dtype == DType::kBF16) {
      half[i] = stored_bits16(dtype, round_to_bf16<Lane<1>>(v));
    } else {
      half[i] = stored_bits16(dtype, round_to_f16<Lane<1>>(v));
    }
  }
  return static_cast<std::uint32_t>(largest);
}

void refuse_overflow(const Job& job, std::uint32_t largest) {
  const DType dtype = job.options.dtype;
  const float magnitude = bit_cast<float>(largest);
  if (std::isfinite(rounded_to(dtype, magnitude))) return;
  refuse(fmt::format(
      "tensor {}: the values reach {}, beyond the largest finite {}; use a smaller --scale",
      in_quotes(job.options.names[job.index]), magnitude, dtype_name(dtype)));
}

std::string hash_text(const std::vector<std::uint64_t>& hashes) {
  return fmt::format("{:016x}", XXH3_64bits(hashes.data(), hashes.size() * sizeof(hashes[0])));
}

// `done` counts elements of the whole file.
GeneratedTensor write_tensor(const Job& job, Output& output, int threads, std::int64_t& done) {
  const GenerateOptions& options = job.options;
  const auto grid = tile_grid(job.rows, job.cols, job.steps);
  const std::int64_t bytes_each = dtype_bytes(options.dtype), elements = job.rows * job.cols;
  std::vector<std::uint64_t> hashes(grid.size());
  std::vector<Worker> workers(static_cast<std::size_t>(threads));
  const auto body = [&](std::int64_t i, int thread) {
    Worker& worker = workers[static_cast<std::size_t>(thread)];
    const TileSpan& span = grid[static_cast<std::size_t>(i)];
    draw_tile(job, span, worker);
    refuse_overflow(
        job, narrow(options.dtype, job.ties ? 1.0f : options.scale, worker.values, worker.stored));
    hashes[static_cast<std::size_t>(i)] = XXH3_64bits(worker.stored.data(), worker.stored.size());
    const std::int64_t runs = span.cols == job.cols ? 1 : span.rows;
    const std::size_t run = worker.stored.size() / static_cast<std::size_t>(runs);
    for (std::int64_t r = 0; r < runs; ++r) {
      output.write(job.index, ((span.row + r) * job.cols + span.col) * bytes_each,
                   worker.stored.data() + static_cast<std::size_t>(r) * run, run);
    }
#pragma omp critical(fp4scope_progress)
    {
      done += span.elements();
      if (options.progress) {
        options.progress(done, elements * static_cast<std::int64_t>(options.names.size()));
      }
    }
  };
  if (!for_each_tile(static_cast<std::int64_t>(grid.size()), threads, options.stop, body)) {
    throw Error(ErrorKind::kData, "interrupted");
  }
  GeneratedTensor tensor{options.names[job.index],
                         options.dtype,
                         options.shape,
                         elements,
                         elements * bytes_each,
                         {},
                         {}};
  if (job.cols == options.shape.back() && job.steps == TileSteps{}) tensor.hash = hash_text(hashes);
  if (job.ties) {
    tensor.ties = TieCounts{};
    for (const Worker& worker : workers) {
      tensor.ties->elements += worker.counts.elements;
      tensor.ties->ties += worker.counts.ties;
    }
  }
  return tensor;
}

void check(const std::string& out, const GenerateOptions& options) {
  if (!out.ends_with(".safetensors") && !out.ends_with(".npy")) {
    refuse(fmt::format("{}: the name of the output has to end in .safetensors or .npy",
                       printable(out)));
  }
  if (options.dtype != DType::kF64 && options.dtype != DType::kF32 &&
      options.dtype != DType::kF16 && options.dtype != DType::kBF16) {
    refuse(fmt::format("tensors are generated as f64, f32, f16 or bf16, found {}",
                       dtype_name(options.dtype)));
  }
  const auto& shape = options.shape;
  const bool positive = std::all_of(shape.begin(), shape.end(), [](auto n) { return n > 0; });
  std::int64_t bytes = 0;
  const auto elements = checked_product(shape);
  if (shape.empty() || shape.size() > 4 || !positive || !elements ||
      __builtin_mul_overflow(*elements, std::int64_t{64}, &bytes)) {
    refuse(
        fmt::format("expected a shape of 1 to 4 positive dimensions with fewer than 2^57 "
                    "elements, found {}",
                    shape_text(shape)));
  }
  if (options.names.empty()) refuse("expected at least one tensor name");
  std::set<std::string> names;
  for (const std::string& name : options.names) {
    if (name == "__metadata__" || !names.insert(name).second) {
      refuse(fmt::format("the tensor name {} occurs twice or is reserved", in_quotes(name)));
    }
  }
  if (out.ends_with(".npy") && options.names.size() > 1) {
    refuse(fmt::format("{}: a npy file holds one tensor, found {} names", printable(out),
                       options.names.size()));
  }
  if (!(options.scale > 0) || !std::isfinite(options.scale)) {
    refuse(fmt::format("expected a positive finite scale, found {}", options.scale));
  }
  if (options.df < 1 || options.df > 100) {
    refuse(fmt::format("expected 1 to 100 degrees of freedom, found {}", options.df));
  }
  if (!(options.expected_max >= 0 && std::isfinite(options.expected_max)) ||
      !(options.outliers >= 0 && options.outliers <= 1) ||
      !(options.outlier_factor >= 0 && std::isfinite(options.outlier_factor))) {
    refuse("expected an expected maximum and an outlier factor >= 0 and a share from 0 to 1");
  }
}

// Before the first value is drawn: a disk that cannot hold the file.
void require_space(const std::string& out, std::int64_t bytes) {
  const std::filesystem::path folder = std::filesystem::absolute(out).parent_path();
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || static_cast<std::uintmax_t>(bytes) <= space.available) return;
  throw Error(ErrorKind::kData, fmt::format("{} needs {} bytes, its folder has {} free",
                                            printable(out), bytes, space.available));
}

// Factors of the columns, and what the file says about them.
std::vector<double> profile_factors(const std::string& out, const GenerateOptions& options,
                                    std::int64_t rows, std::int64_t cols, GenerateResult& result) {
  const ChannelProfile profile = read_profile(options.profile, cols, out);
  const double e = options.expected_max > 0 ? options.expected_max : expected_maximum(rows);
  std::vector<double> factors = profile.amax;
  for (double& factor : factors) factor /= e;
  result.parameters.emplace_back("profile", profile.file + ":" + profile.tensor);
  result.parameters.emplace_back("profile_xxh3", profile.hash);
  result.parameters.emplace_back("expected_max", fmt::format("{}", e));
  return factors;
}

// The tensor as the recipe sees it.
void align_ties(const GenerateOptions& options, Job& job) {
  const Recipe& recipe = *options.recipe;
  const bool is_ragged = job.cols % recipe.format.block != 0;
  if (is_ragged && recipe.ragged() == Ragged::kError) {
    refuse(fmt::format("recipe {} needs rows of a multiple of {} elements, found {}",
                       to_string(recipe), recipe.format.block, job.cols));
  }
  if (is_ragged && recipe.ragged() == Ragged::kFlat) {
    job.cols *= job.rows;
    job.rows = 1;
  }
  job.steps = tile_steps(recipe);
  job.ties = std::make_unique<TieAligned>(recipe, options.dtype, job.cols, job.key(), options.amax);
}

}  // namespace

std::string_view generated_name(GeneratedKind kind) {
  return kNames[static_cast<int>(kind)];
}

GeneratedKind parse_generated(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<GeneratedKind>(i);
    known += (i == 0 ? "" : ", ") + std::string(kNames[i]);
  }
  refuse(fmt::format("unknown distribution {}; known are {}", in_quotes(name), known));
}

GenerateResult generate_file(const std::string& out, const GenerateOptions& options) {
  check(out, options);
  TensorInfo matrix;
  matrix.shape = options.shape;
  const std::int64_t rows = matrix.rows(), cols = matrix.cols();
  std::int64_t bytes = 0;  // check() has looked at the elements of one tensor
  if (__builtin_mul_overflow(rows * cols * dtype_bytes(options.dtype),
                             static_cast<std::int64_t>(options.names.size()), &bytes)) {
    refuse("the tensors together exceed 64 bits");
  }
  require_space(out, bytes);
  GenerateResult result;
  result.threads = thread_count(options.threads);
  result.parameters = {{"distribution", std::string(generated_name(options.kind))},
                       {"seed", std::to_string(options.seed)}};
  std::vector<double> factors;
  std::vector<Job> jobs;
  const auto state = [&](const char* key, const auto& value) {
    result.parameters.emplace_back(key, fmt::format("{}", value));
  };
  const bool is_outliers = options.kind == GeneratedKind::kOutlierChannels;
  if (options.kind == GeneratedKind::kStudent) state("df", options.df);
  if (is_outliers && !options.profile.empty()) {
    factors = profile_factors(out, options, rows, cols, result);
  } else if (is_outliers) {
    state("outliers", options.outliers);
    state("outlier_factor", options.outlier_factor);
  }
  for (std::size_t i = 0; i < options.names.size(); ++i) {
    Job job{options, i, rows, cols, factors, nullptr, {}};
    if (is_outliers && options.profile.empty()) {
      job.factors = synthetic_factors(job.key(), cols, options.outliers, options.outlier_factor);
    }
    if (options.kind == GeneratedKind::kTieAligned) align_ties(options, job);
    jobs.push_back(std::move(job));
  }
  if (options.kind == GeneratedKind::kTieAligned) {
    state("ties_of", to_full_string(*options.recipe));
    state("amax", jobs[0].ties->amax());
  } else {
    state("scale", options.scale);
  }
  if (out.ends_with(".npy") && options.dtype == DType::kBF16) {
    result.notes.emplace_back("npy has no bf16: the file says |V2, read it with --dtype bf16");
  }
  Output output(out, options, result);
  std::int64_t done = 0;
  for (const Job& job : jobs) {
    result.tensors.push_back(write_tensor(job, output, result.threads, done));
    if (out.ends_with(".npy")) result.tensors.back().name.clear();
  }
  output.commit();
  return result;
}

}  // namespace fp4scope
