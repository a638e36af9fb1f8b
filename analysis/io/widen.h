// widen.h: runs of stored elements to binary32, exactly (formats/widen.h).
#pragma once
#include <cstddef>
#include <cstdint>

#include "analysis/io/tensor_source.h"
#include "formats/widen.h"

namespace fp4scope {

// `count` stored elements (little-endian, without gaps, at any alignment) to binary32. Throws
// Error(kUnsupported), which require_widenable() does alone, for a dtype that is no F32, F16, BF16
// or FP8.
void widen_elements(const TensorInfo& tensor, const unsigned char* stored, std::size_t count,
                    float* out);
void require_widenable(const TensorInfo& tensor);

}  // namespace fp4scope
