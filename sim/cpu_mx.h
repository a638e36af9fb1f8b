// cpu_mx.h: what the CPU kernels of the MX formats share, private to sim.
#pragma once
#include "formats/codecs/mx_scale.h"
#include "sim/recipe.h"

namespace fp4scope {

// Everything about a recipe that is the same for all its blocks, with its reciprocal table.
MxPlan mx_plan_of(const Recipe& recipe);

}  // namespace fp4scope
