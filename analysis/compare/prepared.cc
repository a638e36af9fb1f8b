// prepared.cc: see prepared.h.
#include "analysis/compare/prepared.h"

#include <fmt/format.h>

#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {

PreparedInput::PreparedInput(const TensorSource& source, const TensorInfo& tensor, int axis)
    : source_(&source), tensor_(&tensor) {
  if (!is_real(tensor.dtype)) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: tensor {}: expected F64, F32, F16, BF16 or FP8 numbers, found "
                            "dtype {}",
                            printable(tensor.file), in_quotes(tensor.name), dtype_label(tensor)));
  }
  if (axis != -1 && resolve_axis(tensor, axis) + 1 < static_cast<int>(tensor.shape.size())) {
    axis_ = std::make_unique<AxisView>(source, axis);
    for (std::size_t i = 0; i < source.tensors().size(); ++i) {
      if (&source.tensors()[i] == &tensor) tensor_ = &axis_->tensors()[i];
    }
    source_ = axis_.get();
  }
  inside_ = {tensor_->rows(), tensor_->cols()};
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

bool crosses_rows(const Recipe& recipe, const TensorInfo& tensor) {
  return recipe.ragged() == Ragged::kFlat && tensor.cols() > 0 &&
         tensor.cols() % recipe.format.block != 0;
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
