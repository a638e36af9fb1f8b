// work.h: what bench measures, piece by piece: kernels over a tensor in memory, maxima, analyze()
// over a file, and other projects' functions.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analysis/bench/bench.h"
#include "analysis/bench/memory.h"
#include "sim/backend.h"

namespace fp4scope::bench {

inline constexpr std::int64_t kCols = 4096;
inline constexpr std::int64_t kTileRows = 64;  // 1 MiB of binary32: what one thread does at once

// The tensor in three types, and room for what is made of it.
struct Buffers {
  BenchBuffer f32, bf16, f16, values, packed, scales;
  Buffers(std::int64_t elements, std::int64_t packed_bytes, std::int64_t scale_bytes);
  static std::int64_t bytes(std::int64_t elements) {
    return 12 * elements;
  }  // without the last two
  const std::uint16_t* half(SourceType input) const {
    return (input == SourceType::kBf16 ? bf16 : f16).as<std::uint16_t>();
  }
};

// One row of the result before its repetitions. `run` is empty until the buffers exist.
struct Work {
  BenchRow row;
  std::function<void(Buffers&, int threads)> run;
  std::int64_t packed_bytes = 0, scale_bytes = 0;  // of output that it needs
};

// Kernels and maxima, by the options. Throws Error(kUsage) for names that are unknown.
std::vector<Work> kernel_works(const BenchOptions& options);

// analyze() of a BF16 file that is written by the first run and removed with the last copy.
std::vector<Work> analyze_works(const BenchOptions& options);

// ggml's quantize_row_mxfp4_ref and quantize_row_nvfp4_ref out of a shared library
// (tools/ggml_peer.sh). Throws Error(kData) where it has none.
std::vector<Work> ggml_works(const BenchOptions& options);

}  // namespace fp4scope::bench
