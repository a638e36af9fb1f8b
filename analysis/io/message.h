// message.h: pieces of error sentences. Names and header texts come from untrusted files, so
// control characters and ill-formed UTF-8 are escaped and long texts are cut.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fp4scope {

// Without quotes, for file names; control characters and ill-formed UTF-8 become \xNN.
std::string printable(std::string_view text, std::size_t limit = 4096);
// In double quotes, cut after `limit` bytes.
std::string in_quotes(std::string_view text, std::size_t limit = 120);
// "1 tensor", "3 tensors".
std::string counted(std::size_t count, std::string_view noun);
// "[2, 32]", "[]" for 0-d.
std::string shape_text(const std::vector<std::int64_t>& shape);
// The text as one word of a POSIX shell, for commands that a sentence proposes.
std::string shell_word(const std::string& text);
// The system's text for an errno value, without the shared buffer of strerror.
std::string system_message(int error_number);

}  // namespace fp4scope
