// fused_task.h: how the fused kernels of sim/cpu_fused_*.cc are found; for x86-64 only, elsewhere
// tiles go step by step.
#pragma once
#include "sim/cpu_kernels.h"
#include "sim/run_tile.h"

namespace fp4scope {

// The fused kernel of a recipe for an instruction set and a type of input.
struct FusedTask {
  const Recipe& recipe;
  const Tile& tile;
  std::span<const OuterScale32> outer;
  const TileOutput& out;
};
using FusedFn = void (*)(const FusedTask&);
// Null where there is none.
FusedFn nvfp4_fused(Isa isa, const Recipe& recipe, const Tile& tile);
FusedFn nvfp4_fused_adaptive(Isa isa, const Recipe& recipe, const Tile& tile);
FusedFn mx_fused(Isa isa, const Recipe& recipe, const Tile& tile);
FusedFn hif4_fused(Isa isa, const Recipe& recipe, const Tile& tile);

}  // namespace fp4scope
