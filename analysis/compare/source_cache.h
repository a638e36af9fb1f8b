// source_cache.h: operands of one run, each file listed once; thousands of cases may name thousands
// of files.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "analysis/io/pooled_source.h"
#include "analysis/io/tensor_source.h"
#include "analysis/report.h"

namespace fp4scope {

class SourceCache {
 public:
  // OpenOptions::raw is about --input: codes and scales have other shapes.
  explicit SourceCache(const OpenOptions& options = {});
  struct Opened {
    const TensorSource* source;
    const TensorInfo* tensor;
  };
  // FILE:TENSOR, or FILE where the file holds one tensor; a directory for a tensor that one of its
  // files holds. Throws Error (kData or kUsage); `option` is named in the sentence. Thread-safe;
  // what it returns lives as long as the cache.
  Opened open(const std::string& operand, std::string_view option);
  // A whole file.
  const TensorSource& open_file(const std::string& path);
  // Of the files opened so far, in order of opening.
  std::vector<Report::Source> sources() const;

 private:
  struct File {
    std::unique_ptr<TensorSource> source;
    std::unordered_map<std::string, const TensorInfo*> by_name;
    // In a directory: where the name is met again.
    std::unordered_map<std::string, const TensorInfo*> again;
  };
  const File& file(const std::string& path, bool is_input);
  const File& open_plane(const std::string& path, std::string_view option);

  SourcePool inputs_, others_;
  bool has_raw_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<File>> files_;
  std::unordered_map<std::string, std::unique_ptr<File>> raw_files_;  // those of --input
  std::vector<const File*> order_;
};

}  // namespace fp4scope
