// analyze.h: every tensor x every recipe -> figures. Tensors stream in tiles; nothing is loaded
// whole. The numbers do not depend on threads, backend, memory or the other recipes of a run
// (design: fixed summation tree by block index, integers for all counts).
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "analysis/report.h"
#include "sim/backend.h"
#include "sim/recipe.h"

namespace fp4scope {

class ResumeJournal;  // analysis/resume.h

struct TensorFilter {
  std::vector<std::string> include;  // regular expressions, search semantics; empty: all
  std::vector<std::string> exclude;
  // The filter as a function of a tensor name, with the expressions compiled once. Throws
  // Error(kUsage) naming the option and the fault of a malformed expression.
  // `used`, which may be null, has to outlive the function and gets true at the index of each of
  // `include` that matches a name.
  std::function<bool(const std::string& name)> compile(std::vector<bool>* used = nullptr) const;
  bool is_empty() const { return include.empty() && exclude.empty(); }
  // Those of `include` that `used` has no true for.
  std::vector<std::string> unused(const std::vector<bool>& used) const;
};

// What the tile of one thread takes, and so the least memory_bytes that means anything: about 24
// bytes per element of a tile of 2^20.
inline constexpr std::int64_t kMemoryPerThread = std::int64_t{24} << 20;

struct AnalyzeOptions {
  std::vector<Recipe> recipes;
  TensorFilter filter;
  int axis = -1;  // contraction axis; negative counts from the end
  // "auto" takes the fastest backend that supports the recipe; a name forces it.
  std::string backend = "auto";
  int threads = 0;  // 0: all cores
  std::int64_t memory_bytes = std::int64_t{1} << 30;
  bool full_percentiles = false;
  std::int64_t map_size = 0;          // largest number of cells along a side; 0: no maps
  std::vector<std::string> group_by;  // regular expressions; group name = first capture or match
  // Lists of kNameFields ("layer,step"): groups of the tensors with equal values, in natural order.
  std::vector<std::string> group_fields;
  std::vector<std::string> name_patterns;  // regular expressions, see name_pattern.h
  OpenOptions open;
  // Called from one thread at a time with elements done and in total; may be empty.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
  // Called before each input file is opened with the number of those before it; may be empty.
  std::function<void(std::int64_t files)> looking;
  const std::atomic<bool>* stop = nullptr;  // set by Ctrl-C: finish nothing new, keep what is done
  ResumeJournal* journal = nullptr;         // of run_settings() of these operands and options
};

// `files` are operands as expand_operand() takes them. Goes on after a bad file or tensor and
// records it in Report::errors; throws Error(kUsage) for bad options only.
Report analyze(const std::vector<std::string>& files, const AnalyzeOptions& options);

// FILE, DIRECTORY or FILE:TENSOR -> {FILE, TENSOR}; the tensor is empty when `operand` names an
// existing file. "-" is standard input.
struct Operand {
  std::string file, tensor;
};
// What is no existing file and holds * ? or [ is a pattern of glob(3), with or without :TENSOR, and
// gives the files that match in natural order. Throws Error(kData) when none does.
std::vector<Operand> expand_operand(const std::string& operand);
// Where one file is expected. Throws Error(kUsage) for a pattern of several.
Operand split_operand(const std::string& operand);

// An output file must not replace a file that is being read: throws Error(kUsage) when `out` is one
// of `inputs`, through a link or another spelling too.
void refuse_overwriting(const std::string& out, const std::vector<std::string>& inputs);

// --backend NAME: throws Error with the reason when it cannot do the recipe, or is unknown.
const Backend& choose_backend(const std::string& name, const Recipe& recipe);

struct QuantizeOptions {
  Recipe recipe;
  TensorFilter filter;
  int axis = -1;
  std::string backend = "auto";
  int threads = 0;
  OpenOptions open;
  // dequantize: what the recorded recipe needs; quantize has them in its recipe.
  std::shared_ptr<const FormatLibrary> library;
  std::shared_ptr<const RcpTable> user_rcp;
  const std::atomic<bool>* stop = nullptr;
};
struct QuantizedTensorInfo {
  std::string tensor;  // name in the output
  std::string file;    // that holds it
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0, bytes_in = 0, bytes_out = 0;
};
struct QuantizeResult {
  std::vector<QuantizedTensorInfo> tensors;
  std::vector<std::string> skipped;  // tensors that hold no real numbers, with the reason
  std::vector<std::string> notes;    // what a user of the output must know
  std::string backend;
  int threads = 1;
  std::vector<Report::Source> sources;
};
// Writes fp4scope's own layout (product.md, "Machine-readable output") to `out`, a safetensors
// file: NAME.codes, NAME.scales, and for NVFP4 NAME.amax and NAME.outer_scale; __metadata__ holds
// recipe, source name, shape and dtype. Where files of a directory hold tensors of the same name,
// NAME is PATH:NAME for all of them, with the path below the directory. The file appears whole or
// not at all.
QuantizeResult quantize_file(const std::string& in, const std::string& out,
                             const QuantizeOptions& options);
// The reverse: reads fp4scope's own layout and writes NAME as F32 in a safetensors file.
QuantizeResult dequantize_file(const std::string& in, const std::string& out,
                               const QuantizeOptions& options);

}  // namespace fp4scope
