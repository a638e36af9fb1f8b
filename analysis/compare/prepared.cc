// prepared.cc: see prepared.h.
#include "analysis/compare/prepared.h"

#include <fmt/format.h>

#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// One tensor of a source, so that a view over it does not copy the list of all of them.
class OneTensor final : public TensorSource {
 public:
  OneTensor(const TensorSource& source, const TensorInfo& tensor)
      : source_(source), stored_(tensor), tensors_{tensor} {}
  OneTensor(const TensorSource& source, const TensorInfo& tensor, const std::string& name)
      : OneTensor(source, tensor) {
    tensors_[0].name = name;
  }
  const SourceInfo& info() const override { return source_.info(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read_f32(const TensorInfo&, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, float* out) const override {
    source_.read_f32(stored_, row, rows, col, cols, out);
  }
  void read_f64(const TensorInfo&, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, double* out) const override {
    source_.read_f64(stored_, row, rows, col, cols, out);
  }
  void read_raw(const TensorInfo&, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, void* out) const override {
    source_.read_raw(stored_, row, rows, col, cols, out);
  }
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return source_.metadata();
  }

 private:
  const TensorSource& source_;
  const TensorInfo& stored_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace

PreparedInput::PreparedInput(const TensorSource& source, const TensorInfo& tensor, int axis)
    : source_(&source), tensor_(&tensor) {
  refuse_damaged(tensor);
  if (!is_real(tensor.dtype)) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: tensor {}: expected F64, F32, F16, BF16 or FP8 numbers, found "
                            "dtype {}",
                            printable(tensor.file), in_quotes(tensor.name),
                            dtype_label(tensor) + dtype_advice(tensor)));
  }
  if (axis != -1 && resolve_axis(tensor, axis) + 1 < static_cast<int>(tensor.shape.size())) {
    alone_ = std::make_unique<OneTensor>(source, tensor);
    axis_ = std::make_unique<AxisView>(*alone_, axis);
    tensor_ = &axis_->tensors()[0];
    source_ = axis_.get();
  }
  inside_ = {tensor_->rows(), tensor_->cols()};
}

void PreparedInput::rename(const std::string& name) {
  renamed_ = std::make_unique<OneTensor>(*source_, *tensor_, name);
  source_ = renamed_.get();
  tensor_ = &renamed_->tensors()[0];
}

void PreparedInput::flatten() {
  flat_ = std::make_unique<FlatView>(*source_, *tensor_);
  source_ = flat_.get();
  tensor_ = &flat_->tensors()[0];
  inside_ = {1, tensor_->cols()};
}

void PreparedInput::pad(StoredShape shape) {
  if (shape == StoredShape{tensor_->rows(), tensor_->cols()}) return;
  padded_ = std::make_unique<PaddedView>(*source_, *tensor_, shape);
  source_ = padded_.get();
  tensor_ = &padded_->tensors()[0];
}

void refuse_shape(const Recipe& recipe, const TensorInfo& tensor) {
  const std::int64_t cols = tensor.cols();
  const std::string where =
      fmt::format("{}: tensor {}", printable(tensor.file), in_quotes(tensor.name));
  try {
    require_shape(recipe, tensor);
  } catch (const Error& e) {
    throw Error(e.kind(), where + ": " + e.what());
  }
  if (recipe.ragged() == Ragged::kError && cols % recipe.format.block != 0) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: expected rows of a multiple of {} elements (ragged=error), found "
                            "{}",
                            where, recipe.format.block, cols));
  }
}

}  // namespace fp4scope
