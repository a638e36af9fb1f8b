// composite_source.h: several sources as one, for a directory of files of any container.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/io/tensor_source.h"

namespace fp4scope {

class CompositeSource final : public TensorSource {
 public:
  // The tensors of `sources` in their order; `path` is the directory.
  CompositeSource(const std::string& path, std::vector<std::unique_ptr<TensorSource>> sources);

  const SourceInfo& info() const override { return info_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, float* out) const override;
  void read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, double* out) const override;
  void read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, void* out) const override;
  // Empty: of which file would be arbitrary.
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return metadata_;
  }

 private:
  struct Part {
    const TensorSource* source;
    const TensorInfo* tensor;
  };
  const Part& part(const TensorInfo& tensor) const;

  SourceInfo info_;
  std::vector<std::unique_ptr<TensorSource>> sources_;
  std::vector<TensorInfo> tensors_;
  std::vector<Part> parts_;                             // parallel to tensors_
  std::unordered_map<std::string, std::size_t> index_;  // file NUL name
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace fp4scope
