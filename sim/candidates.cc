// candidates.cc: see candidates.h.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "sim/candidates.h"

#include "sim/nvfp4_panels.h"

namespace fp4scope {

std::uint8_t candidate_of_block(const Recipe& recipe, const OuterScale32& outer,
                                std::uint32_t amax_bits, bool four, const float* x,
                                std::uint8_t* codes) {
  using L = Lane<1>;
  const Nvfp4Rules rules = nvfp4_rules_of(recipe);
  const Nvfp4Row row = nvfp4_row(rules, {outer.amax, outer.g});
  Nvfp4Choice<L> c = nvfp4_candidates<L>(rules, row, bit_cast<float>(amax_bits));
  c.is_four = four ? ~c.is_zero : 0u;
  std::uint32_t out[kNvfp4MostElements];
  std::uint32_t refused = 0;  // an element without a code is no concern of a comparison
  nvfp4_chosen_codes<L>(rules, recipe.format.block, x, c, out, refused);
  store_codes<1>(out, recipe.format.block, codes);
  return static_cast<std::uint8_t>(nvfp4_chosen_scale<L>(rules, c));
}

}  // namespace fp4scope
