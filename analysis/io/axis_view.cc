// axis_view.cc: see axis_view.h. With the stored shape [outer..., K, inner..., last], a row of the
// view is (outer, inner, last) and its columns are K. A run of consecutive `last` indices is one
// piece: it is contiguous in the file for every k.
#include "analysis/io/axis_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// Elements of the intermediate buffer that is transposed at a time.
constexpr std::int64_t kBufferElements = 64 * 1024;

}  // namespace

int resolve_axis(const TensorInfo& tensor, int axis) {
  const int rank = std::max(1, static_cast<int>(tensor.shape.size()));
  const int resolved = axis < 0 ? axis + rank : axis;
  if (resolved < 0 || resolved >= rank) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: tensor {} with shape {} has no axis {}", printable(tensor.file),
                            in_quotes(tensor.name), shape_text(tensor.shape), axis));
  }
  return resolved;
}

std::vector<std::int64_t> move_axis_last(const std::vector<std::int64_t>& shape, int axis) {
  std::vector<std::int64_t> moved = shape;
  if (moved.size() > 1) std::rotate(moved.begin() + axis, moved.begin() + axis + 1, moved.end());
  return moved;
}

void for_each_axis_piece(const std::vector<std::int64_t>& stored_shape, int axis, std::int64_t row,
                         std::int64_t rows, const std::function<void(const AxisPiece&)>& visit) {
  const std::int64_t length = stored_shape[static_cast<std::size_t>(axis)];
  const std::int64_t last = stored_shape.back();
  std::int64_t inner = 1;  // product of the dimensions between the axis and the last one
  for (std::size_t d = static_cast<std::size_t>(axis) + 1; d + 1 < stored_shape.size(); ++d) {
    inner *= stored_shape[d];
  }
  for (std::int64_t done = 0; done < rows;) {
    const std::int64_t outer_inner = (row + done) / last;
    AxisPiece piece{};
    piece.first_col = (row + done) % last;
    piece.view_row = row + done;
    piece.count = std::min(rows - done, last - piece.first_col);
    piece.first_row = outer_inner / inner * length * inner + outer_inner % inner;
    piece.row_step = inner;
    visit(piece);
    done += piece.count;
  }
}

AxisView::AxisView(const TensorSource& source, int axis)
    : source_(source), axis_(axis), tensors_(source.tensors()) {
  for (TensorInfo& tensor : tensors_) {
    const int rank = std::max(1, static_cast<int>(tensor.shape.size()));
    const int resolved = axis < 0 ? axis + rank : axis;
    if (resolved >= 0 && resolved < rank) tensor.shape = move_axis_last(tensor.shape, resolved);
  }
}

std::size_t AxisView::position(const TensorInfo& tensor) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (&tensor == &tensors_[i]) return i;
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensor.name == tensors_[i].name && tensor.file == tensors_[i].file) return i;
  }
  throw Error(ErrorKind::kData,
              fmt::format("{} holds no tensor {}", printable(info().path), in_quotes(tensor.name)));
}

template <class T, class Read>
void AxisView::read_moved(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                          std::int64_t col, std::int64_t cols, T* out, std::int64_t bytes,
                          const Read& read) const {
  const std::size_t index = position(tensor);
  const TensorInfo& moved = tensors_[index];
  const TensorInfo& stored = source_.tensors()[index];
  const int axis = resolve_axis(stored, axis_);
  if (stored.shape.size() < 2 || axis + 1 == static_cast<int>(stored.shape.size())) {
    read(stored, row, rows, col, cols, out);
    return;
  }
  const bool inside = row >= 0 && rows >= 0 && col >= 0 && cols >= 0 && rows <= moved.rows() &&
                      row <= moved.rows() - rows && cols <= moved.cols() &&
                      col <= moved.cols() - cols;
  if (!inside) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: tensor {} seen along axis {} has {} rows and {} columns, found a "
                            "request for {} rows from {} and {} columns from {}",
                            printable(moved.file), in_quotes(moved.name), axis, moved.rows(),
                            moved.cols(), rows, row, cols, col));
  }
  if (rows == 0 || cols == 0) {
    read(stored, 0, 0, 0, 0, out);  // checks the dtype
    return;
  }
  // Bytes instead of elements for read_raw, which has T = unsigned char and `bytes` per element.
  std::vector<T> buffer;
  for_each_axis_piece(stored.shape, axis, row, rows, [&](const AxisPiece& piece) {
    // Consecutive k are consecutive stored rows only when nothing lies between axis and last.
    const std::int64_t most =
        piece.row_step == 1 ? std::max<std::int64_t>(1, kBufferElements / piece.count) : 1;
    buffer.resize(static_cast<std::size_t>(std::min(most, cols) * piece.count * bytes));
    T* const to = out + (piece.view_row - row) * cols * bytes;
    for (std::int64_t k = 0; k < cols; k += most) {
      const std::int64_t now = std::min(most, cols - k);
      read(stored, piece.first_row + (col + k) * piece.row_step, now, piece.first_col, piece.count,
           buffer.data());
      for (std::int64_t r = 0; r < piece.count; ++r) {
        for (std::int64_t i = 0; i < now; ++i) {
          const T* const from = buffer.data() + (i * piece.count + r) * bytes;
          T* const target = to + (r * cols + k + i) * bytes;
          if constexpr (sizeof(T) == 1) {
            std::copy_n(from, bytes, target);
          } else {
            *target = *from;
          }
        }
      }
    }
  });
}

void AxisView::read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                        std::int64_t col, std::int64_t cols, float* out) const {
  read_moved(tensor, row, rows, col, cols, out, 1,
             [&](auto&&... request) { source_.read_f32(request...); });
}

void AxisView::read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                        std::int64_t col, std::int64_t cols, double* out) const {
  read_moved(tensor, row, rows, col, cols, out, 1,
             [&](auto&&... request) { source_.read_f64(request...); });
}

void AxisView::read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                        std::int64_t col, std::int64_t cols, void* out) const {
  const TensorInfo& moved = tensors_[position(tensor)];
  // Blocks that the reader decodes come out as whole numbers.
  const bool whole_bytes =
      moved.elements == 0 || moved.decoded || moved.bytes % moved.elements == 0;
  if (!whole_bytes) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: tensor {} of {} cannot be read along another axis than the last",
                            printable(moved.file), in_quotes(moved.name), moved.dtype_text));
  }
  const std::int64_t bytes = moved.elements == 0 ? 1
                             : moved.decoded     ? dtype_bytes(moved.dtype)
                                                 : moved.bytes / moved.elements;
  read_moved(tensor, row, rows, col, cols, static_cast<unsigned char*>(out), bytes,
             [&](auto&&... request) { source_.read_raw(request...); });
}

}  // namespace fp4scope
