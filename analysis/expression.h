// expression.h: regular expressions of the command line. RE2 takes time linear in the text and no
// recursion, so that neither a hostile expression nor a name of a megabyte hangs or crashes.
#pragma once
#include <re2/re2.h>

#include <memory>
#include <string>

namespace fp4scope {

// Throws Error(kUsage) naming the option and the fault.
std::shared_ptr<const RE2> compile_expression(const char* option, const std::string& text);

}  // namespace fp4scope
