// generate_file.h: files of synthetic tensors, for tests, benchmarks and examples: safetensors with
// one or several tensors, or npy with one. Nothing is held whole, and the bytes depend on the
// options alone: not on threads, machine or instruction set (no libm anywhere).
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/generate_ties.h"
#include "analysis/report.h"
#include "sim/recipe.h"

namespace fp4scope {

enum class GeneratedKind : std::uint8_t {
  kNormal,
  kLaplace,
  kStudent,
  kLogNormal,
  kUniform,
  kOutlierChannels,
  kTieAligned
};
std::string_view generated_name(GeneratedKind kind);  // "normal", "student-t", "tie-aligned", ...
// Throws Error(kUsage) that lists the names.
GeneratedKind parse_generated(std::string_view name);

struct GenerateOptions {
  GeneratedKind kind = GeneratedKind::kNormal;
  DType dtype = DType::kBF16;              // F64, F32, F16 or BF16
  std::vector<std::int64_t> shape;         // 1 to 4 positive dimensions, flattened on the left
  std::vector<std::string> names = {"x"};  // tensor i of the file has tensor number i of the seed
  std::uint64_t seed = 0;
  // Not for kTieAligned. Values are drawn in binary64. F64: times the scale. Other dtypes: rounded
  // to binary32, times the scale in binary32, rounded to F16 or BF16; each rounding to nearest
  // even.
  float scale = 1;
  int df = 5;  // kStudent, 1 to 100; 3 and 5 by inversion, the others from df + 1 normals
  // kOutlierChannels: x = z * factor[column], binary64, z ~ N(0, 1). The factors are amax / E of a
  // profile (generate_profile.h), or outlier_factor at a share of the columns.
  std::string profile;      // FILE:TENSOR; empty: none
  double expected_max = 0;  // E; 0: expected_maximum(rows)
  double outliers = 0.01;   // 0 to 1
  double outlier_factor = 50;
  // kTieAligned, see generate_ties.h.
  std::optional<Recipe> recipe;
  float amax = 0;
  int threads = 0;                                                      // 0: all cores
  std::function<void(std::int64_t done, std::int64_t total)> progress;  // from one thread at a time
  const std::atomic<bool>* stop = nullptr;
};

struct GeneratedTensor {
  std::string name;  // empty in npy files
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0, bytes = 0;
  // As analyze prints it. Empty where the blocks of a tie-aligned tensor need other tiles.
  std::string hash;
  std::optional<TieCounts> ties;  // kTieAligned
};
struct GenerateResult {
  std::vector<GeneratedTensor> tensors;
  // What made the tensors, also in __metadata__ of safetensors files.
  std::vector<std::pair<std::string, std::string>> parameters;
  std::vector<std::string> notes;
  int threads = 1;
};

// Writes `out`, .safetensors or .npy by its ending, whole or not at all. Throws Error(kUsage) for
// options out of range and for values beyond the dtype, Error(kData) for a bad profile, a file that
// cannot be written, and when `stop` was set.
GenerateResult generate_file(const std::string& out, const GenerateOptions& options);

}  // namespace fp4scope
