// input_repeats.cc: see input_repeats.h.
#include "analysis/input_repeats.h"

#include <fmt/format.h>

#include <filesystem>

#include "analysis/io/message.h"
#include "analysis/io/scratch.h"

namespace fp4scope {

std::string InputRepeats::key(const std::string& file) {
  if (is_stream(file)) return file;
  const std::filesystem::path path(file);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const auto [at, is_new] = folders_.try_emplace(folder);
  if (is_new) {
    std::error_code unknown;
    at->second = std::filesystem::canonical(folder, unknown).string();
    if (unknown) at->second = folder;
  }
  return at->second + '/' + path.filename().string();
}

void InputRepeats::add(const std::string& file) {
  if (again_.insert(key(file)).second && again_.size() == 1) first_ = file;
}

bool InputRepeats::is_again(const TensorInfo& tensor, std::size_t input) {
  if (last_.empty() || tensor.file != last_) {
    last_ = tensor.file;
    last_number_ = files_.try_emplace(key(tensor.file), files_.size()).first->second;
  }
  const auto [at, is_new] = inputs_.try_emplace({last_number_, tensor.name}, input);
  if (is_new || at->second == input) return false;
  add(tensor.file);
  return true;
}

std::string InputRepeats::sentence() const {
  if (again_.empty()) return "";
  const std::size_t others = again_.size() - 1;
  return fmt::format("{}{} named more than once by the operands and counted once",
                     printable(first_),
                     others == 0   ? std::string(" is")
                     : others == 1 ? std::string(" and another file are")
                                   : fmt::format(" and {} other files are", others));
}

}  // namespace fp4scope
