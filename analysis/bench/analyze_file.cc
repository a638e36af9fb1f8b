// analyze_file.cc: see work.h: analyze() over a warm file.
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "analysis/analyze.h"
#include "analysis/bench/work.h"
#include "analysis/io/sinks.h"
#include "sim/error.h"

namespace fp4scope::bench {
namespace {

// A safetensors file with one BF16 tensor of `bytes`, removed when it goes.
class WarmFile {
 public:
  WarmFile(const std::string& folder, std::int64_t bytes, const Buffers& buffers,
           std::int64_t elements)
      : path_(folder + "/fp4scope-bench-" + std::to_string(::getpid()) + ".safetensors") {
    const std::int64_t rows = bytes / 2 / kCols;
    SafetensorsWriter writer(path_, {{"x", DType::kBF16, {rows, kCols}}}, {});
    const std::int64_t piece = 2 * elements;
    for (std::int64_t at = 0; at < 2 * rows * kCols; at += piece) {
      writer.write(0, at, buffers.bf16.data(),
                   static_cast<std::size_t>(std::min(piece, 2 * rows * kCols - at)));
    }
    writer.commit();
  }
  ~WarmFile() { ::unlink(path_.c_str()); }
  WarmFile(const WarmFile&) = delete;
  WarmFile& operator=(const WarmFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::vector<Work> analyze_works(const BenchOptions& options) {
  std::vector<Work> works;
  if (options.analyze_bytes <= 0) return works;
  std::vector<std::string> backends = options.backends;
  if (backends.empty()) backends.emplace_back("auto");
  const auto file = std::make_shared<std::optional<WarmFile>>();
  for (const std::string& backend : backends) {
    AnalyzeOptions analysis;
    for (const char* text : {"nvfp4", "nvfp4:select=mse", "mxfp4", "hif4"}) {
      analysis.recipes.push_back(parse_recipe(text));
    }
    analysis.map_size = 64;
    analysis.stop = options.stop;
    analysis.backend = backend;
    Work work;
    // By name: "auto" may take another one for each recipe.
    work.row = {"analyze, 4 recipes, maps", "bf16", "file", backend};
    work.row.elements = options.analyze_bytes / 2 / kCols * kCols;
    work.row.bytes = 2.0 * static_cast<double>(work.row.elements);
    work.row.bound = "read";
    work.run = [file, options, analysis](Buffers& buffers, int threads) mutable {
      if (!*file) {
        file->emplace(options.scratch_folder, options.analyze_bytes, buffers, options.elements);
      }
      analysis.threads = threads;
      const Report report = analyze({(*file)->path()}, analysis);
      if (!report.errors.empty()) throw Error(ErrorKind::kData, report.errors.front().message);
    };
    works.push_back(std::move(work));
  }
  return works;
}

}  // namespace fp4scope::bench
