// outcome.h: a small tensor in memory, what a recipe makes of it on one backend, and where the
// results of two recipes first differ.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/backend.h"

namespace fp4scope {

// [rows, cols]; the values are representable in `source` (kF32, kBf16 or kF16).
struct SmallTensor {
  std::int64_t rows = 0, cols = 0;
  std::vector<float> x;
  SourceType source = SourceType::kF32;
  std::uint64_t tensor_id = 0;  // of its random bits, stream_of() of its name in a file
};

struct Outcome {
  std::string refusal;    // why the recipe refuses the input; empty: it does not
  bool has_codes = true;  // false: values only (NaN that stays NaN, blocks that cross row ends)
  QuantizedTile tile;
  std::vector<OuterScale32> outer;  // one, or one per row
  std::vector<float> values;        // [rows, cols], decoded
  bool is_refused() const { return !refusal.empty(); }
};
// The transform of the recipe, amax, codes and scales, decoded values. `wants_values` false: those
// are left out.
Outcome outcome_of(const Backend& backend, const Recipe& recipe, const SmallTensor& tensor,
                   bool wants_values = true);

// What counts as a difference.
struct ComparedPlanes {
  bool outer = true, scales = true, codes = true, values = true;
};

struct Difference {
  std::int64_t row = 0, block = 0;
  std::string what;  // "scale byte 0x39 and 0x3a", "code 3 and 4 of element 5", "outer scale", ...
};
// Whether codes and scales of the two have the same shape, so that they can be compared at all: the
// text that says what does not, or empty.
std::string shape_difference(const Recipe& a, const Recipe& b);
// The first block, in row-major order, in which two recipes of one shape differ: outer scale, scale
// bytes, codes, decoded values (NaN equals NaN); or one of them refuses the input. Padding does not
std::optional<Difference> first_difference(const Recipe& a, const Outcome& qa, const Recipe& b,
                                           const Outcome& qb, const ComparedPlanes& planes = {});

}  // namespace fp4scope
