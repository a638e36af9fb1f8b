// custom_format.h: user-defined formats, `custom:ELEM(/GROUP:SCALE)+` (grammar and types:
// design/architecture section 6). Scales are listed innermost first; GROUP is a number of elements
// along K, `row` or `tensor`. They run through the same codec text as the named formats, with this
// descriptor in place of the literal one.
#pragma once
#include <string_view>

#include "sim/recipe.h"

namespace fp4scope {

// Family, format and default contract of a normalized shape. Throws Error(kUsage) that names the
// offending part.
Recipe custom_recipe(std::string_view shape);
// A contract of another family that the shape allows changes the family (e4m3/128:e8m0 with an FP8
// contract); otherwise nothing happens.
void choose_custom_family(Recipe& recipe, std::string_view contract);
// What the shape says about keys (scale=tensor|row|none, group), after the contract was applied.
void apply_shape(Recipe& recipe);

}  // namespace fp4scope
