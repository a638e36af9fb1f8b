// select.cc: what the user names on the command line: operands, tensor filters, backends.
#include <algorithm>
#include <filesystem>
#include <regex>

#include "analysis/analyze.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

std::regex compile(const char* option, const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error& e) {
    throw Error(ErrorKind::kUsage,
                std::string(option) + " '" + text + "' is not a regular expression: " + e.what());
  }
}
std::vector<std::regex> compile_all(const char* option, const std::vector<std::string>& patterns) {
  std::vector<std::regex> compiled;
  for (const std::string& p : patterns) compiled.push_back(compile(option, p));
  return compiled;
}
bool any_matches(const std::vector<std::regex>& expressions, const std::string& name) {
  return std::any_of(expressions.begin(), expressions.end(),
                     [&](const std::regex& e) { return std::regex_search(name, e); });
}

}  // namespace

std::function<bool(const std::string&)> TensorFilter::compile() const {
  return [included = compile_all("--include", include),
          excluded = compile_all("--exclude", exclude)](const std::string& name) {
    if (!included.empty() && !any_matches(included, name)) return false;
    return !any_matches(excluded, name);
  };
}

Operand split_operand(const std::string& operand) {
  std::error_code ignored;
  if (std::filesystem::exists(operand, ignored)) return {operand, ""};
  // Tensor names may hold colons too: the file is the shortest prefix that exists.
  for (std::size_t colon = operand.find(':'); colon != std::string::npos;
       colon = operand.find(':', colon + 1)) {
    const std::string file = operand.substr(0, colon);
    if (!file.empty() && std::filesystem::exists(file, ignored)) {
      return {file, operand.substr(colon + 1)};
    }
  }
  return {operand, ""};
}

const Backend& choose_backend(const std::string& name, const Recipe& recipe) {
  if (name == "oracle") return oracle_backend();
  if (name == "auto") {
    for (const Backend* backend : cpu_backends()) {
      if (backend->available().ok && backend->supports(recipe).ok) return *backend;
    }
    throw Error(ErrorKind::kUnsupported,
                "no backend of this machine supports the recipe " + to_string(recipe));
  }
  std::string known = "auto";
  for (const Backend* backend : cpu_backends()) {
    known += ", " + std::string(backend->name());
    if (backend->name() != name) continue;
    for (const Support& s : {backend->available(), backend->supports(recipe)}) {
      if (!s.ok) {
        throw Error(ErrorKind::kUnsupported,
                    "backend " + name + " cannot run " + to_string(recipe) + ": " + s.reason);
      }
    }
    return *backend;
  }
  throw Error(ErrorKind::kUsage,
              "unknown backend '" + name + "'; the backends are " + known + ", oracle");
}

}  // namespace fp4scope
