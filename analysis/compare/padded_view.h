// padded_view.h: the input of a layer whose stored codes have more rows or columns than it has.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "analysis/compare/stored.h"

namespace fp4scope {

// A tensor with rows and columns of zeros added. `source` and `tensor` have to outlive the view;
// tensors() has one entry.
class PaddedView final : public TensorSource {
 public:
  PaddedView(const TensorSource& source, const TensorInfo& tensor, StoredShape shape);
  const SourceInfo& info() const override { return source_.info(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, float* out) const override;
  void read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, double* out) const override;
  void read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, void* out) const override;
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return source_.metadata();
  }

 private:
  template <class T, class Read>
  void read_padded(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols, T* out,
                   const Read& read) const;

  const TensorSource& source_;
  const TensorInfo& stored_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace fp4scope
