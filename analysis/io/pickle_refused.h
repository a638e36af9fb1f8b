// pickle_refused.h: globals that a pickle names only to run code. This program would run none of
// them, but a file that names one is an attack on whoever opens it with Python, so it is refused.
#pragma once
#include <string_view>

namespace fp4scope {

// Whether "module.name" is such a thing: whole modules (os, subprocess, ...), single functions
// (builtins.eval, torch.load, ...), and dotted names that lead into such a module.
bool runs_code(std::string_view module, std::string_view name);

}  // namespace fp4scope
