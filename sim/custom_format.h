// custom_format.h: user-defined formats, `custom:ELEM(/GROUP:SCALE)+` (grammar and types:
// design/architecture section 6). Scales are listed innermost first; GROUP is a number of elements
// along K, `row` or `tensor`. They run through the same codec text as the named formats, with this
// descriptor in place of the literal one. What is beyond a shape (biases, tables of values) comes
// from a library of definitions that a TOML file fills (format_file.h).
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/lut.h"
#include "sim/recipe.h"

namespace fp4scope {

// Element types beyond the built-in ones, and shapes with a name.
struct NamedElement {
  std::string name;
  MinifloatSpec spec;
};
struct NamedLut {
  std::string name;
  std::shared_ptr<const Lut> lut;
};
struct NamedShape {
  std::string name;
  std::string shape;  // ELEM(/GROUP:SCALE)+, normalized
};
struct FormatLibrary {
  std::vector<NamedElement> elements;
  std::vector<NamedLut> luts;
  std::vector<NamedShape> shapes;
  std::string hash;  // XXH3-64 of the file in hex; reports and quantized files state it
};

// Tables that need no file: nf4.
const std::vector<NamedLut>& built_in_luts();

// Whether a normalized shape names something of the library.
bool uses_library(std::string_view shape, const FormatLibrary& library);
// Family, format and default contract of a normalized shape, or of a name of the library. Throws
// Error(kUsage) that names the offending part.
Recipe custom_recipe(std::string_view shape, const FormatLibrary& library = {});
// A contract of another family that the shape allows changes the family (e4m3/128:e8m0 with an FP8
// contract); otherwise nothing happens.
void choose_custom_family(Recipe& recipe, std::string_view contract);
// What the shape says about options (scale=tensor|row|none, group), after the contract was applied.
void apply_shape(Recipe& recipe);
// Throws Error(kUsage) where a key contradicts the shape (scale=row under tensor:f32).
void check_shape(const Recipe& recipe);

}  // namespace fp4scope
