// ggml.cc: see work.h: the block quantizers of ggml, one row at a time as its callers do.
#include <dlfcn.h>
#include <fmt/format.h>

#include "analysis/bench/work.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope::bench {
namespace {

using QuantizeRow = void (*)(const float*, void*, std::int64_t);

// ggml-common.h: block_mxfp4 is 32 elements in 17 bytes, block_nvfp4 64 in 36.
struct Function {
  const char* work;
  const char* symbol;
  std::int64_t block, bytes;
};
constexpr Function kFunctions[] = {{"ggml mxfp4", "quantize_row_mxfp4_ref", 32, 17},
                                   {"ggml nvfp4", "quantize_row_nvfp4_ref", 64, 36}};

}  // namespace

std::vector<Work> ggml_works(const BenchOptions& options) {
  std::vector<Work> works;
  if (options.ggml_library.empty()) return works;
  void* library = ::dlopen(options.ggml_library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(ErrorKind::kData, fmt::format("cannot load {}: {}", printable(options.ggml_library),
                                              printable(::dlerror())));
  }
  for (const Function& function : kFunctions) {
    const auto quantize = reinterpret_cast<QuantizeRow>(::dlsym(library, function.symbol));
    if (quantize == nullptr) {
      throw Error(ErrorKind::kData, fmt::format("{} has no function {}",
                                                printable(options.ggml_library), function.symbol));
    }
    const std::int64_t n = options.elements, row_bytes = kCols / function.block * function.bytes;
    Work work;
    work.row = {function.work, "f32", "pack", "ggml"};
    work.row.elements = n;
    work.row.bytes = static_cast<double>(4 * n + n / kCols * row_bytes);
    work.row.bound = "stream";
    work.packed_bytes = n / kCols * row_bytes;
    work.run = [quantize, n, row_bytes](Buffers& buffers, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
      for (std::int64_t r = 0; r < n / kCols; ++r) {
        quantize(buffers.f32.as<float>() + r * kCols, buffers.packed.data() + r * row_bytes, kCols);
      }
    };
    works.push_back(std::move(work));
  }
  return works;
}

}  // namespace fp4scope::bench
