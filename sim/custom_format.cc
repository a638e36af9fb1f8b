// custom_format.cc: see custom_format.h.
#include "sim/custom_format.h"

#include "sim/error.h"

namespace fp4scope {

Recipe custom_recipe(std::string_view) {
  throw Error(ErrorKind::kUsage, "user-defined formats (custom:) do not exist in this version");
}
void choose_custom_family(Recipe&, std::string_view) {}
void apply_shape(Recipe&) {}

}  // namespace fp4scope
