// pickle_text.h: texts and numbers that pickles spell out, and UTF-8.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fp4scope {

// The code point at the start of `text`, whose bytes are then removed; nothing when the UTF-8
// (RFC 3629: no surrogates, no overlong forms) is ill-formed there.
std::optional<std::uint32_t> take_utf8(std::string_view& text);
bool is_utf8(std::string_view text);

// Argument of UNICODE: Latin-1 with \uXXXX and \UXXXXXXXX, as UTF-8. Nothing when an escape is
// malformed.
std::optional<std::string> unescape_unicode(std::string_view line);
// Argument of STRING: a Python 2 literal in quotes. Nothing when it is malformed.
std::optional<std::string> unescape_string(std::string_view line);

// Decimal integer with an optional sign.
struct DecimalInteger {
  bool big = false;  // does not fit 64 bits
  std::int64_t value = 0;
};
std::optional<DecimalInteger> parse_decimal(std::string_view text);

// repr() of a Python float.
std::string python_float(double value);

}  // namespace fp4scope
