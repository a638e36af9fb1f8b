// select.cc: what the user names on the command line: operands, tensor filters, backends.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "analysis/analyze.h"
#include "analysis/expression.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

using Expressions = std::vector<std::shared_ptr<const RE2>>;

Expressions compile_all(const char* option, const std::vector<std::string>& patterns) {
  Expressions compiled;
  for (const std::string& p : patterns) compiled.push_back(compile_expression(option, p));
  return compiled;
}
bool any_matches(const Expressions& expressions, const std::string& name) {
  return std::any_of(expressions.begin(), expressions.end(),
                     [&](const auto& e) { return RE2::PartialMatch(name, *e); });
}

}  // namespace

std::shared_ptr<const RE2> compile_expression(const char* option, const std::string& text) {
  RE2::Options options;
  options.set_log_errors(false);
  // Names need not be UTF-8; bytes match bytes.
  options.set_encoding(RE2::Options::EncodingLatin1);
  auto expression = std::make_shared<const RE2>(text, options);
  if (!expression->ok()) {
    throw Error(ErrorKind::kUsage, std::string(option) + " '" + text +
                                       "' is not a regular expression: " + expression->error());
  }
  return expression;
}

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

void refuse_overwriting(const std::string& out, const std::vector<std::string>& inputs) {
  for (const std::string& in : inputs) {
    std::error_code ignored;
    if (!std::filesystem::equivalent(in, out, ignored)) continue;
    throw Error(ErrorKind::kUsage, "the output " + out + " would replace the input file " + in);
  }
}

const Backend& choose_backend(const std::string& name, const Recipe& recipe) {
  if (name == "cuda" || name == "blackwell") {
    throw Error(ErrorKind::kUnsupported, "this build has no " + name + " backend");
  }
  if (name == "auto") {
    for (const Backend* backend : cpu_backends()) {
      if (backend->available().ok && backend->supports(recipe).ok) return *backend;
    }
    throw Error(ErrorKind::kUnsupported,
                "no backend of this machine supports the recipe " + to_string(recipe));
  }
  std::vector<const Backend*> backends(cpu_backends().begin(), cpu_backends().end());
  backends.push_back(&oracle_backend());
  std::string known = "auto";
  for (const Backend* backend : backends) {
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
  throw Error(ErrorKind::kUsage, "unknown backend '" + name + "'; the backends are " + known);
}

}  // namespace fp4scope
