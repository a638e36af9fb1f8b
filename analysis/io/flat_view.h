// flat_view.h: one tensor as a single row, for contracts whose blocks run over the flattened tensor
// and cross row ends (ragged=flat, spec/layouts.md section 3).
#pragma once
#include "analysis/io/tensor_source.h"

namespace fp4scope {

class FlatView final : public TensorSource {
 public:
  // `source` and `tensor` have to outlive the view; tensors() has one entry of shape [elements].
  FlatView(const TensorSource& source, const TensorInfo& tensor);

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
  // visit(row, rows, col, cols, first element): pieces of elements [first, first + count) of the
  // stored matrix.
  template <class Visit>
  void pieces(std::int64_t first, std::int64_t count, const Visit& visit) const;

  const TensorSource& source_;
  const TensorInfo& stored_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace fp4scope
