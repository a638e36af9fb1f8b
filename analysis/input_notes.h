// input_notes.h: sentences for users about operands and options that do nothing, or something else
// than was meant.
#pragma once
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/name_pattern.h"

namespace fp4scope {

// Why a run has nothing to do when --include and --exclude leave no tensor. Says so when one of
// `unused`, the patterns of --include that no tensor has, would match the name of one of `files`,
// which is not looked at.
std::string no_tensor_passes(const std::vector<std::string>& unused,
                             const std::vector<std::string>& files);
// The same for --group-by, of which `pattern` formed no group.
std::string no_group(const std::string& pattern, const std::vector<std::string>& files);

// What one run sees of its inputs.
class InputNotes {
 public:
  explicit InputNotes(const OpenOptions& options) : options_(options) {}
  // A file that was opened. Looks at it once more where --shape hides what it is.
  void add_file(const std::string& path);
  void add_tensor(const TensorInfo& tensor);
  std::vector<bool>& pattern_use() { return pattern_use_; }
  // --dtype and --name-pattern without effect, and containers that are read as bare numbers. Where
  // inputs have failed nobody knows whether these were for them.
  std::vector<std::string> sentences(const NamePatterns& patterns, bool any_failed) const;

 private:
  OpenOptions options_;
  bool has_tensor_ = false, hint_applies_ = false;
  std::vector<bool> pattern_use_;
  std::vector<std::string> said_;
};

}  // namespace fp4scope
