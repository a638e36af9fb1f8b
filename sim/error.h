// error.h: the one exception type. It is thrown at the boundaries of sim, analysis and gpu and
// caught once in main. The message is one sentence: what, which file and tensor, expected, found.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace fp4scope {

enum class ErrorKind {
  kUsage,  // exit code 2: bad option, recipe, rule file or format text
  kData,   // exit code 3: unreadable, malformed, truncated or inconsistent file, unusable shape
  kUnsupported,  // exit code 4: well-formed but an unknown dtype, missing filter, contract or
                 // device
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }
  int exit_code() const {
    return kind_ == ErrorKind::kUsage ? 2 : kind_ == ErrorKind::kData ? 3 : 4;
  }

 private:
  ErrorKind kind_;
};

// A recipe that refuses its input (nonfinite=error): thrown by backends with the place in the tile;
// the caller knows the tensor and turns it into a sentence.
class RefusedInput : public Error {
 public:
  RefusedInput(std::int64_t row, const std::string& what)
      : Error(ErrorKind::kData, what), row_(row) {}
  std::int64_t row() const { return row_; }  // of the tile

 private:
  std::int64_t row_;
};

}  // namespace fp4scope
