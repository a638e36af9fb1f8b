// cpu_nvfp4_any.cc: NVFP4 kernels with options and geometry at run time: contracts without a kernel
// of their own, if4, nvint4, user-defined formats, and stochastic rounding.
#pragma GCC diagnostic ignored "-Wpsabi"
#include <vector>

#include "sim/nvfp4_panels.h"
#include "sim/transforms.h"

namespace fp4scope {
namespace {

using namespace nvfp4_panels;

// Stochastic rounding: one block at a time in every backend.
void quantize_random(QuantizeTask& task) {
  const Nvfp4Rules rules = nvfp4_rules_of(task);
  const std::int64_t cols = task.out.padded_cols;
  // Bytes of the padding are not asked for: it is +0, which no random byte moves.
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(task.rows * cols));
  std::vector<const std::uint8_t*> rows;
  for (std::int64_t i = 0; i < task.rows; ++i) {
    random_bytes(task.recipe, task.tile, task.row + i, 0, task.tile.cols, bytes.data() + i * cols);
    rows.push_back(bytes.data() + i * cols);
  }
  const std::int64_t blocks = task.out.blocks_per_row;
  if (task.recipe.is_2d()) {
    const Nvfp4Row shared = nvfp4_row(rules, outer_of(task, task.row));
    for (std::int64_t b = 0; b < blocks; ++b) {
      panel_2d<Any, false, 1>(task, rules, shared, b, rows.data());
    }
    return;
  }
  for (std::int64_t i = 0; i < task.rows; ++i) {
    const Nvfp4Row shared = nvfp4_row(rules, outer_of(task, task.row + i));
    for (std::int64_t b = 0; b < blocks; ++b) {
      panel_1d<Any, false, 1>(task, rules, shared, task.row + i, b,
                              rows[static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace

QuantizeFn nvfp4_any_kernel(Isa isa, const Recipe& recipe) {
  if (recipe.sr.enabled) return quantize_random;
  const bool is_adaptive = recipe.nvfp4.is_adaptive();
  // Tables of values are read one lane at a time.
  const bool has_table = recipe.format.lut != nullptr || recipe.nvfp4.order == Order::kMlxCpu;
  if (has_table) isa = Isa::kReference;
  return is_adaptive ? for_isa<Any, true>(isa) : for_isa<Any, false>(isa);
}

}  // namespace fp4scope
