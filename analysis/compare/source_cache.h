// source_cache.h: operands of one run, each file opened once.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "analysis/io/tensor_source.h"
#include "analysis/report.h"

namespace fp4scope {

class SourceCache {
 public:
  explicit SourceCache(OpenOptions options = {}) : options_(std::move(options)) {}
  struct Opened {
    const TensorSource* source;
    const TensorInfo* tensor;
  };
  // FILE:TENSOR, or FILE where the file holds one tensor. Throws Error(kData); `option` is named in
  // the sentence. Thread-safe; what it returns lives as long as the cache.
  Opened open(const std::string& operand, std::string_view option);
  // A whole file.
  const TensorSource& open_file(const std::string& path);
  // Of the files opened so far, in order of opening.
  std::vector<Report::Source> sources() const;

 private:
  struct File {
    std::unique_ptr<TensorSource> source;
    std::unordered_map<std::string, const TensorInfo*> by_name;
  };
  const File& file(const std::string& path);

  OpenOptions options_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<File>> files_;
  std::vector<const File*> order_;
};

}  // namespace fp4scope
