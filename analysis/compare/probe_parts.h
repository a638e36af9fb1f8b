// probe_parts.h: the parts of probes_of(). Private to probes.cc and probe_specials.cc.
#pragma once
#include "analysis/compare/probe_blocks.h"
#include "analysis/compare/probes.h"

namespace fp4scope {

inline constexpr const char* kRefusedSuffix = "-refused";

// The blocks as a probe; those that the recipe refuses leave it, and the first of them is a probe
// of its own. Nothing for no blocks.
void add_blocks(const BlockLab& lab, const std::string& name, const std::string& what,
                const std::vector<Block>& blocks, std::vector<Probe>& probes);
// Zeros, subnormals, the largest number, infinities, NaN, underflow.
void add_specials(const Backend& backend, const Recipe& recipe, SourceType source,
                  const std::vector<float>& maxima, std::vector<Probe>& probes);
// Ragged rows, several rows, 2-D bands, ordinary data.
void add_shapes(const Recipe& recipe, SourceType source, std::vector<Probe>& probes);

}  // namespace fp4scope
