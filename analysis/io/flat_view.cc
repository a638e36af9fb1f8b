// flat_view.cc: see flat_view.h.
#include "analysis/io/flat_view.h"

#include <algorithm>

namespace fp4scope {

FlatView::FlatView(const TensorSource& source, const TensorInfo& tensor)
    : source_(source), stored_(tensor), tensors_{tensor} {
  tensors_[0].shape = {tensor.elements};
}

template <class Visit>
void FlatView::pieces(std::int64_t first, std::int64_t count, const Visit& visit) const {
  const std::int64_t width = stored_.cols();
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t row = (first + done) / width, col = (first + done) % width;
    const std::int64_t left = count - done;
    if (col == 0 && left >= width) {
      const std::int64_t rows = left / width;
      visit(row, rows, 0, width, done);
      done += rows * width;
    } else {
      const std::int64_t cols = std::min(left, width - col);
      visit(row, 1, col, cols, done);
      done += cols;
    }
  }
}

void FlatView::read_f32(const TensorInfo&, std::int64_t, std::int64_t, std::int64_t col,
                        std::int64_t cols, float* out) const {
  pieces(col, cols, [&](auto r, auto rows, auto c, auto n, auto at) {
    source_.read_f32(stored_, r, rows, c, n, out + at);
  });
}
void FlatView::read_f64(const TensorInfo&, std::int64_t, std::int64_t, std::int64_t col,
                        std::int64_t cols, double* out) const {
  pieces(col, cols, [&](auto r, auto rows, auto c, auto n, auto at) {
    source_.read_f64(stored_, r, rows, c, n, out + at);
  });
}
void FlatView::read_raw(const TensorInfo&, std::int64_t, std::int64_t, std::int64_t col,
                        std::int64_t cols, void* out) const {
  const std::int64_t bytes = dtype_bytes(stored_.dtype);
  pieces(col, cols, [&](auto r, auto rows, auto c, auto n, auto at) {
    source_.read_raw(stored_, r, rows, c, n, static_cast<unsigned char*>(out) + at * bytes);
  });
}

}  // namespace fp4scope
