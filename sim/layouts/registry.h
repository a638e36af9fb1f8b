// registry.h: every layout of this folder that has a formula, as a row for people: `fp4scope
// formats` prints it. The formulas are those of the headers, which hold them as code.
#pragma once
#include <span>
#include <string_view>

#include "formats/contracts/common_options.h"

namespace fp4scope {

struct LayoutInfo {
  std::string_view kind;     // the recipe key, or what is laid out
  std::string_view name;     // the value of the key, or the name of the layout
  std::string_view formula;  // where an element is; integer division
  std::string_view users;    // projects or source
  Evidence evidence;
};
std::span<const LayoutInfo> all_layouts();

}  // namespace fp4scope
