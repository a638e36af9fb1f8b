// bench.h: how fast the kernels of this build are on this machine, beside what its memory can do in
// the same minutes. Every repetition goes through all measurements once, so that a change of the
// machine's speed meets them all; a figure is the median.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fp4scope {

// What memory allows: `read` loads every byte once, `copy` is memcpy, `stream` a copy with
// non-temporal stores. Bytes of copies count twice, read and written.
struct BenchBound {
  std::string name;
  int threads = 1;
  double bytes_per_second = 0, least = 0, most = 0;
};

struct BenchRow {
  std::string work;   // a recipe, or amax, amax of rows, analyze..., ggml...
  std::string dtype;  // of the input: f32, bf16, f16
  // stats: figures alone; pack: codes and scales; fake: decoded values; all of it; others "-" or
  // "file".
  std::string mode;
  std::string backend;
  int threads = 1;
  std::int64_t elements = 0;
  double seconds = 0, least = 0, most = 0;  // median, shortest and longest
  double bytes = 0;                         // that count: read, and written where there is output
  std::string bound{};                      // its name
  double bound_bytes_per_second = 0;
  double ratio = 0;      // bytes per second to the bound's
  std::string recipe{};  // `work` where that is one
  std::optional<double> instructions_per_element{};
};

struct BenchOptions {
  std::int64_t elements = std::int64_t{64} << 20;  // a multiple of 64 rows of 4096
  std::vector<int> threads{1, 2};
  int repeats = 7;
  std::vector<std::string> backends;  // empty: all with vectors that this processor has
  std::vector<std::string> recipes;   // empty: the hot ones
  std::vector<std::string> dtypes{"f32", "bf16", "f16"};
  std::vector<std::string> modes{"stats", "pack", "fake", "all"};
  // Asked for by name: a mode that a recipe does not have is an error then, otherwise left out.
  bool modes_are_given = false;
  // Bytes of a BF16 file that analyze() reads warm with four recipes; 0: not measured.
  std::int64_t analyze_bytes = 0;
  std::string scratch_folder;  // for that file
  // A shared library with ggml's quantize_row_mxfp4_ref and quantize_row_nvfp4_ref, which are
  // measured, too; "": none.
  std::string ggml_library;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

// Packed output of a recipe beside that of a peer, from the same input in the same run.
struct BenchPeer {
  std::string peer, work, backend;
  int threads = 1;
  double times_as_fast = 0;
};

struct BenchResult {
  std::vector<BenchBound> bounds;
  std::vector<BenchRow> rows;
  std::vector<BenchPeer> peers;
  std::string processor;  // as the system names it
  std::int64_t elements = 0;
  int repeats = 0;
  bool interrupted = false;
};

// Throws Error(kUsage) for unknown names, Error(kData) when there is no memory or disk for it.
BenchResult run_bench(const BenchOptions& options);

}  // namespace fp4scope
