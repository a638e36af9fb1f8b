// hard_tensors.h: random input near the thresholds of a recipe, for the search of separate.h.
#pragma once
#include <vector>

#include "analysis/compare/probe_blocks.h"
#include "analysis/compare/probes.h"

namespace fp4scope {

// Kinds of hard input take turns with `round`: probes with elements moved by a step or two, blocks
// at thresholds of the choice or of level bits under other maxima, values on few bits, similar
// magnitudes, any finite bits, equal elements, subnormals, patterned exponents. About 64 blocks.
SmallTensor hard_tensor(const Backend& backend, const Recipe& recipe, SourceType source,
                        const std::vector<Probe>& probes, std::int64_t round, Random& random);

// Ordinary data: about 4096 blocks, normal or heavy-tailed, with rows of several sizes. Piece
// `round` of the stream of `seed`.
SmallTensor ordinary_tensor(const Recipe& recipe, SourceType source, std::uint64_t seed,
                            std::int64_t round);

}  // namespace fp4scope
