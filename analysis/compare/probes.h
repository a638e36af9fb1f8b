// probes.h: small tensors of deliberate values for one recipe: both sides of every threshold of its
// scales, choices and codes, the special values, ragged rows and partial bands.
#pragma once
#include <string>
#include <vector>

#include "analysis/compare/outcome.h"

namespace fp4scope {

struct Probe : SmallTensor {
  std::string name;  // letters, digits and '-'
  std::string what;  // one sentence: what it is for
};

// The probes of a recipe with values of `source` (kF32, kBf16 or kF16), the same in every run:
//   scales*     blocks whose maxima are one step of the type apart and get different scales, over
//               the whole range of the type, or up to the maximum of the tensor;
//   ties*       elements on both sides of the threshold between adjacent codes, under several
//               scales;
//   choices*    blocks one step apart in one element with different choices or level bits;
//   zero*, subnormal*, largest, infinity, nan*, underflow*: special values;
//   ragged*     rows that are no multiple of the block, where the recipe takes them;
//   rows, band, random: several rows of different sizes, 2-D blocks with the maximum in each row
//               and a partial band, and ordinary data.
// Recipes whose outer scale follows the tensor get scales, ties and choices under several maxima,
// among them some for which the rules of g differ (spec/nvfp4.md 3.1).
// A tensor is refused as a whole or not at all; those that are have a name that ends in "-refused".
// Throws Error(kUnsupported) for a recipe that no CPU backend runs.
std::vector<Probe> probes_of(const Recipe& recipe, SourceType source);

// The tensor or row maxima that probes (and separate.h) use; {0} where the outer scale does not
// depend on the data.
std::vector<float> probe_maxima(const Recipe& recipe, SourceType source);

}  // namespace fp4scope
