// format_file.h: definitions of user-defined formats in a TOML file (--format-file):
//   [[element]]  name, exponent-bits, mantissa-bits, bias, special = "none|nan|ieee|fnuz"
//   [[lut]]      name, values = [2 to 256 distinct finite numbers]
//   [[format]]   name, element, scales = [{group = 16, type = "e4m3"}, {group = "tensor", type =
//                "f32"}], innermost first
// A format is then custom:NAME; an element can be used in a shape, a table as lut:NAME. Case does
// not matter in these words, and '-' and '_' are the same.
#pragma once
#include <memory>
#include <string>

#include "sim/custom_format.h"

namespace fp4scope {

// Throws Error(kUsage) that names the file, the line and the offending field, and Error(kData) when
// the file cannot be read.
std::shared_ptr<const FormatLibrary> load_format_file(const std::string& path);

}  // namespace fp4scope
