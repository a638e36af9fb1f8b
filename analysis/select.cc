// select.cc: what the user names on the command line: operands, tensor filters, backends.
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "analysis/analyze.h"
#include "analysis/expression.h"
#include "analysis/io/message.h"
#include "analysis/io/natural_order.h"
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

std::function<bool(const std::string&)> TensorFilter::compile(std::vector<bool>* used) const {
  if (used != nullptr) used->assign(include.size(), false);
  return [used, included = compile_all("--include", include),
          excluded = compile_all("--exclude", exclude)](const std::string& name) {
    bool passes = included.empty();
    for (std::size_t i = 0; i < included.size() && (used != nullptr || !passes); ++i) {
      if (!RE2::PartialMatch(name, *included[i])) continue;
      passes = true;
      if (used != nullptr) (*used)[i] = true;
    }
    return passes && !any_matches(excluded, name);
  };
}

std::vector<std::string> TensorFilter::unused(const std::vector<bool>& used) const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < include.size(); ++i) {
    if (i >= used.size() || !used[i]) out.push_back(include[i]);
  }
  return out;
}

namespace {

bool names_input(const std::string& path) {
  std::error_code ignored;
  return path == "-" || std::filesystem::exists(path, ignored);
}

// glob(3) without its buffer; in natural order, as the files of a directory.
std::vector<std::string> matching_paths(const std::string& pattern) {
  std::vector<std::string> paths;
  if (pattern.find_first_of("*?[") == std::string::npos) return paths;
  glob_t found{};
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  std::sort(paths.begin(), paths.end(), natural_less);
  return paths;
}

}  // namespace

std::vector<Operand> expand_operand(const std::string& operand) {
  if (names_input(operand)) return {{operand, ""}};
  // Tensor names may hold colons too: the file is the shortest prefix that exists, else the
  // shortest one that matches files.
  std::vector<std::size_t> ends;
  for (std::size_t colon = operand.find(':'); colon != std::string::npos;
       colon = operand.find(':', colon + 1)) {
    if (colon > 0) ends.push_back(colon);
  }
  for (const std::size_t end : ends) {
    const std::string file = operand.substr(0, end);
    if (names_input(file)) return {{file, operand.substr(end + 1)}};
  }
  ends.insert(ends.begin(), operand.size());
  for (const std::size_t end : ends) {
    std::vector<Operand> operands;
    const std::string tensor = end < operand.size() ? operand.substr(end + 1) : "";
    for (std::string& file : matching_paths(operand.substr(0, end))) {
      operands.push_back({std::move(file), tensor});
    }
    if (!operands.empty()) return operands;
  }
  // What other shells have more than glob(3).
  const bool has_braces =
      operand.find('{') != std::string::npos && operand.find('}') != std::string::npos;
  const std::string other =
      operand.find("**") != std::string::npos
          ? "; ** is no pattern here, as a directory is read with its subfolders: name it alone"
      : has_braces ? "; braces are no pattern here: name the files one by one, or with * ? [ ]"
                   : "";
  if (operand.find_first_of("*?[") != std::string::npos || has_braces) {
    throw Error(ErrorKind::kData, printable(operand) +
                                      ": there is no such file, and no file matches it as a "
                                      "pattern" +
                                      other);
  }
  return {{operand, ""}};
}

Operand split_operand(const std::string& operand) {
  std::vector<Operand> operands = expand_operand(operand);
  if (operands.size() == 1) return std::move(operands.front());
  throw Error(ErrorKind::kUsage,
              printable(operand) + " matches " + std::to_string(operands.size()) +
                  " files, expected one: name " + printable(operands.front().file) + " or another");
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
