// near_names.h: what somebody may have meant who named a tensor that is not there.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "analysis/io/tensor_source.h"

namespace fp4scope {

// For the end of a sentence: "; near it: \"a\", \"b\"" with at most three different names, those
// first that end with `wanted` (or it with them), then those that are few edits away; "" when there
// is none.
std::string near_names(const std::vector<TensorInfo>& tensors, std::string_view wanted);

}  // namespace fp4scope
