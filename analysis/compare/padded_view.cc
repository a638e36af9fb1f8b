// padded_view.cc: see padded_view.h.
#include "analysis/compare/padded_view.h"

#include <algorithm>

namespace fp4scope {

PaddedView::PaddedView(const TensorSource& source, const TensorInfo& tensor, StoredShape shape)
    : source_(source), stored_(tensor), tensors_{tensor} {
  tensors_[0].shape = {shape.rows, shape.cols};
  tensors_[0].elements = shape.rows * shape.cols;
}

template <class T, class Read>
void PaddedView::read_padded(std::int64_t row, std::int64_t rows, std::int64_t col,
                             std::int64_t cols, T* out, const Read& read) const {
  std::fill_n(out, rows * cols, T{});
  const std::int64_t last = std::min(col + cols, stored_.cols());
  if (last <= col) return;
  std::vector<T> line(static_cast<std::size_t>(last - col));
  for (std::int64_t r = 0; r < rows && row + r < stored_.rows(); ++r) {
    read(row + r, col, last - col, line.data());
    std::copy(line.begin(), line.end(), out + r * cols);
  }
}

void PaddedView::read_f32(const TensorInfo&, std::int64_t row, std::int64_t rows, std::int64_t col,
                          std::int64_t cols, float* out) const {
  read_padded(row, rows, col, cols, out, [&](auto r, auto c, auto n, float* to) {
    source_.read_f32(stored_, r, 1, c, n, to);
  });
}
void PaddedView::read_f64(const TensorInfo&, std::int64_t row, std::int64_t rows, std::int64_t col,
                          std::int64_t cols, double* out) const {
  read_padded(row, rows, col, cols, out, [&](auto r, auto c, auto n, double* to) {
    source_.read_f64(stored_, r, 1, c, n, to);
  });
}
void PaddedView::read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                          std::int64_t col, std::int64_t cols, void* out) const {
  const auto read = [&](auto word) {
    using T = decltype(word);
    read_padded(row, rows, col, cols, static_cast<T*>(out),
                [&](auto r, auto c, auto n, T* to) { source_.read_raw(stored_, r, 1, c, n, to); });
  };
  switch (dtype_bytes(tensor.dtype)) {  // +0 has no bit set in any type
    case 1:
      return read(std::uint8_t{});
    case 2:
      return read(std::uint16_t{});
    case 4:
      return read(std::uint32_t{});
    default:
      return read(std::uint64_t{});
  }
}

}  // namespace fp4scope
