// input_notes.cc: see input_notes.h.
#include "analysis/input_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "analysis/expression.h"
#include "analysis/io/message.h"
#include "analysis/io/scratch.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// The first of `files` whose name the expression matches, as a hint in brackets of the sentence.
std::string file_hint(const char* option, const std::string& pattern,
                      const std::vector<std::string>& files) {
  const auto expression = compile_expression(option, pattern);
  const auto found = std::find_if(files.begin(), files.end(), [&](const std::string& file) {
    return RE2::PartialMatch(file, *expression);
  });
  if (found == files.end()) return "";
  return fmt::format(
      "; {} {} matches the name of the file {}, but only names of tensors are "
      "looked at",
      option, in_quotes(pattern), printable(*found));
}

// Whether --dtype says what the elements are: the descr of numpy knows their size alone.
bool takes_hint(const TensorInfo& tensor) {
  return !tensor.decoded &&
         (tensor.dtype_text.find('V') != std::string::npos || tensor.dtype_text.ends_with("f1"));
}

}  // namespace

std::string no_tensor_passes(const std::vector<std::string>& unused,
                             const std::vector<std::string>& files) {
  for (const std::string& pattern : unused) {
    const std::string hint = file_hint("--include", pattern, files);
    if (hint.empty()) continue;
    return "no tensor of the input passes --include and --exclude" + hint +
           ": name the files themselves instead";
  }
  return "no tensor of the input passes --include and --exclude";
}

std::string no_group(const std::string& pattern, const std::vector<std::string>& files) {
  const std::string hint = file_hint("--group-by", pattern, files);
  return fmt::format("--group-by {} matches no tensor, so there is no such group{}",
                     in_quotes(pattern),
                     hint.empty() ? "" : hint + ": --group-fields and --name-pattern go by files");
}

void InputNotes::add_file(const std::string& path) {
  // A user who gives an offset knows that there is a header.
  if (!options_.raw || !options_.raw->ends_file || is_stream(path)) return;
  OpenOptions plain = options_;
  plain.raw.reset();
  try {
    const std::string container = open_source(path, plain)->info().container;
    said_.push_back(
        fmt::format("{} is {} by its content; --shape reads all of it, its header included, as "
                    "bare numbers",
                    printable(path), container));
  } catch (const Error&) {
    // As it should be.
  }
}

void InputNotes::add_tensor(const TensorInfo& tensor) {
  has_tensor_ = true;
  hint_applies_ |= takes_hint(tensor);
}

std::vector<std::string> InputNotes::sentences(const NamePatterns& patterns,
                                               bool any_failed) const {
  std::vector<std::string> out = said_;
  if (!has_tensor_ || any_failed) return out;
  if (!options_.raw && !options_.dtype_hint.empty() && !hint_applies_) {
    out.push_back(
        fmt::format("--dtype {} had no effect: every tensor of the input names its own "
                    "type",
                    options_.dtype_hint));
  }
  for (const std::string& pattern : patterns.unused(pattern_use_)) {
    out.push_back(fmt::format("--name-pattern {} matches no path or name of the input's tensors",
                              in_quotes(pattern)));
  }
  return out;
}

}  // namespace fp4scope
