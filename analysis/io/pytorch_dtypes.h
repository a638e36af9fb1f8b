// pytorch_dtypes.h: names of PyTorch's dtypes and storage classes, and of numpy's dtypes as pickles
// spell them.
#pragma once
#include <string>
#include <string_view>

#include "analysis/io/tensor_source.h"

namespace fp4scope {

struct StoredDType {
  DType dtype = DType::kOther;
  std::string text;  // as the container spells it
  int bytes = 0;     // per element; 0: an element cannot be read by itself
  int unit = 0;      // bytes that a change of the byte order swaps: a complex number has two units
};

// Behind the dtype of a view whose values are those of the storage with the other sign: PyTorch
// gives such views out for the imaginary part of a conjugated tensor. They are not read here.
inline constexpr std::string_view kNegatedView = " (negated view)";

// "float32", "bfloat16", ...; null for a name that is none.
const StoredDType* torch_dtype(std::string_view name);
// "FloatStorage", ...: the dtype of its elements; "UntypedStorage" has uint8. Null for a name that
// is none.
const StoredDType* torch_storage_dtype(std::string_view name);
// Of the type string of numpy.dtype ("f4", "U2", "V12", "O8") and its byte order ('<', '>', '|' or
// '='). `bytes` is 0 for objects and for what is no such string.
StoredDType numpy_dtype(std::string_view type, char order, bool& big_endian);

}  // namespace fp4scope
