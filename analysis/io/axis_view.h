// axis_view.h: a source in which one axis of every tensor is moved last, so that blocks can run
// along any axis. The remaining dimensions keep their order. Elements are gathered per tile.
#pragma once
#include <functional>

#include "analysis/io/tensor_source.h"

namespace fp4scope {

class AxisView final : public TensorSource {
 public:
  // `axis` counts from the front, or from the end when negative. `source` has to outlive the view.
  // tensors() has the order of source.tensors(), with moved shapes; a tensor that has no such axis
  // keeps its shape and throws Error(kData) when it is read.
  AxisView(const TensorSource& source, int axis);

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
  std::size_t position(const TensorInfo& tensor) const;
  template <class T, class Read>
  void read_moved(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                  std::int64_t cols, T* out, std::int64_t out_bytes, const Read& read) const;

  const TensorSource& source_;
  int axis_;
  std::vector<TensorInfo> tensors_;
};

// 0 <= result < rank (0 for a 0-d tensor with axis 0 or -1). Throws Error(kData) naming the tensor.
int resolve_axis(const TensorInfo& tensor, int axis);
// The shape with `axis` (already resolved) moved last.
std::vector<std::int64_t> move_axis_last(const std::vector<std::int64_t>& shape, int axis);

// A rectangle of the moved view, cut into pieces that are rectangles of the stored tensor (rank at
// least 2, `axis` not the last one): view rows [view_row, view_row + count) and view column k lie
// at stored row first_row + k * row_step, columns [first_col, first_col + count).
struct AxisPiece {
  std::int64_t view_row, count;
  std::int64_t first_row, row_step;
  std::int64_t first_col;
};
void for_each_axis_piece(const std::vector<std::int64_t>& stored_shape, int axis, std::int64_t row,
                         std::int64_t rows, const std::function<void(const AxisPiece&)>& visit);

}  // namespace fp4scope
