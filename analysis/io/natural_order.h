// natural_order.h: names as a person counts: iter_2 before iter_10, and paths by their components.
#pragma once
#include <string_view>

namespace fp4scope {

// A strict total order on byte strings: runs of digits compare as numbers of any length, all else
// byte by byte, and '/' before every other byte, so that a folder's files stay together. Names that
// differ in leading zeros alone are told apart by their bytes.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace fp4scope
