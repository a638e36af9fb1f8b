// sparse_mask.h: which elements a structured pattern keeps (spec/resq.md 1.1, 1.3 and 2,
// spec/more.md 5.1). A mask is one byte per element, 1 = kept.
#pragma once
#include <span>
#include <string_view>

#include "formats/contracts/common_options.h"

namespace fp4scope {

enum class SparsePattern : std::uint8_t {
  k2of4,       // two of four elements
  k4of8Pairs,  // two whole pairs of four adjacent pairs
  k1of2        // one of two elements (tf32)
};
// The pattern of the instruction kinds f16, i8, tf32, f8f6f4, mxf8f6f4 (2:4 also when the element
// is E2M1; tf32 1:2) and mxf4, mxf4nvf4 (pairs). Error(kUnsupported) for another name.
SparsePattern sparse_pattern_of_kind(std::string_view kind);

// Elements of a group.
constexpr std::int64_t sparse_group(SparsePattern pattern) {
  return pattern == SparsePattern::k2of4 ? 4 : pattern == SparsePattern::k4of8Pairs ? 8 : 2;
}

enum class MaskTie : std::uint8_t { kLow, kHigh };  // which of equal candidates wins

// Keeps exactly half of every group along the columns: the elements of largest |key|, or the pairs
// of largest binary64 sum of squares; zeros are kept where nothing else is left. A partial last
// group is padded with +0 that never wins (ragged=pad) or refused (ragged=error, Error(kData)); a
// NaN key is refused. Returns the number of partial groups, for the report.
std::int64_t keep_largest(SparsePattern pattern, MaskTie tie, Ragged ragged, std::int64_t rows,
                          std::int64_t cols, std::span<const float> key,
                          std::span<std::uint8_t> mask);

}  // namespace fp4scope
