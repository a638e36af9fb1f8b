// name_pattern.h: layer, step, rank, expert and role of a tensor, from the names of its file and
// its own. Expressions of the user come first, then rules for the dump trees of common programs.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/expression.h"
#include "analysis/report.h"

namespace fp4scope {

// Index of a name in kNameFields, or -1.
int name_field_index(std::string_view name);
// Digits, with or without a sign, that fit 64 bits become an integer; anything else stays text.
Value name_value(std::string_view text);
// "layer 3, step 100": the fields that are known; "" for none.
std::string name_fields_text(const NameFields& fields);

// What is matched: `below` is the path of the file below the directory that the operand names, or
// the path as given; `file` the whole path as reported.
struct TensorPath {
  std::string_view below, file, tensor;
};

class NamePatterns {
 public:
  // Only the built-in rules.
  NamePatterns() : NamePatterns(std::vector<std::string>{}) {}
  // Regular expressions with groups (?P<layer>...), also step, rank, expert and role, searched in
  // BELOW:TENSOR and, without a match there, in FILE:TENSOR. Throws Error(kUsage) for a malformed
  // one and for one with unknown groups or none.
  explicit NamePatterns(const std::vector<std::string>& expressions);

  // Each field from the first expression that captures something for it, else by the rules:
  //   layer   the integer after layers. layer. h. blocks. block. blk. layers_ layer_ layer_id= in
  //           the tensor's name, else in the path
  //   step    the integer after iter_ iteration_ step_ global_step checkpoint- (also with = or - or
  //           nothing in between), forward_pass_id=, and of PassN.pt, in the path, else in the name
  //   rank    rank_N, rank=N, TPx_PPy_RankN, mp_rank_TT (with its pipeline and expert parts as text
  //           where there are more: "00_001"), world_size_N_rank_N, sglang_dump_TIME_N
  //   expert  the integer after experts. or expert. (or _) in the tensor's name, else in the path
  //   role    activation, weight, gradient, output, wgrad or dgrad at the end of the file's name
  //           (before _iter_N or __mbN), with .high_precision or .quantized of the tensor's name;
  //           or NAME of name=NAME___
  // `used` gets true at the index of each expression of the user that matches.
  NameFields fields(const TensorPath& path, std::vector<bool>* used = nullptr) const;
  // The expressions of the user that never did.
  std::vector<std::string> unused(std::vector<bool> used) const;

 private:
  struct Pattern {
    std::shared_ptr<const RE2> expression;
    std::vector<std::pair<int, std::size_t>> groups;  // capture, field
  };
  struct Rule {
    std::size_t field;
    bool name_first;  // the tensor's name before the path
    std::shared_ptr<const RE2> expression;
  };
  std::vector<Pattern> patterns_;
  std::vector<Rule> rules_;
  std::shared_ptr<const RE2> part_;
};

}  // namespace fp4scope
