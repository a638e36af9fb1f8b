// prepared.h: the input of a comparison as a recipe sees it: an axis moved last, padded with zeros
// to the shape that was stored, flattened where blocks cross row ends; and its outer scales.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "analysis/compare/padded_view.h"
#include "analysis/io/axis_view.h"
#include "analysis/io/flat_view.h"
#include "analysis/tiles.h"

namespace fp4scope {

// Views over one tensor; the source has to outlive them.
class PreparedInput {
 public:
  // Throws Error(kData) for a dtype that holds no numbers or an axis that the tensor lacks.
  PreparedInput(const TensorSource& source, const TensorInfo& tensor, int axis);
  // Under another name, which decides the random bits of stochastic rounding.
  void rename(const std::string& name);
  // Seen as one row (ragged=flat).
  void flatten();
  void pad(StoredShape shape);
  const TensorSource& source() const { return *source_; }
  const TensorInfo& tensor() const { return *tensor_; }
  // Before any padding.
  StoredShape inside() const { return inside_; }

 private:
  const TensorSource* source_;
  const TensorInfo* tensor_;
  StoredShape inside_;
  std::unique_ptr<TensorSource> alone_, renamed_;
  std::unique_ptr<AxisView> axis_;
  std::unique_ptr<FlatView> flat_;
  std::unique_ptr<PaddedView> padded_;
};

// Throws Error(kData) where the recipe refuses the shape (ragged=error, transform, random numbers).
void refuse_shape(const Recipe& recipe, const TensorInfo& tensor);

}  // namespace fp4scope
