// input_repeats.h: what the operands of one command name more than once counts once, as with
// overlapping patterns of a shell, or a shard beside its index.
#pragma once
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "analysis/io/tensor_source.h"

namespace fp4scope {

class InputRepeats {
 public:
  // A file without regard to the spelling of its folder. A link is a file of its own: tensors that
  // share their bytes (tied weights, snapshots of a cache) have a row each.
  std::string key(const std::string& file);
  // Records that `file` was left out as it had been named before.
  void add(const std::string& file);
  // Whether another file than the `input`-th to be opened gave this tensor before.
  bool is_again(const TensorInfo& tensor, std::size_t input);
  // What was left out, for users; "" for nothing.
  std::string sentence() const;

 private:
  std::map<std::string, std::string> folders_;  // and where links to them lead
  std::unordered_map<std::string, std::size_t> files_;
  std::string last_;  // name of the file whose number is last_number_
  std::size_t last_number_ = 0;
  std::map<std::pair<std::size_t, std::string>, std::size_t> inputs_;  // of file number and tensor
  std::set<std::string> again_;                                        // keys of files
  std::string first_;                                                  // of them, as named
};

}  // namespace fp4scope
