// pickle_text.cc: see the header. Malformed input gives nothing, never an exception: the caller
// knows the opcode.
#include "analysis/io/pickle_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace fp4scope {
namespace {

void append_utf8(std::uint32_t code, std::string& out) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  const auto tail = [&](int shift) { put(0x80u | (code >> shift & 0x3Fu)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0u | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    put(0xE0u | code >> 12);
    tail(6);
    tail(0);
  } else {
    put(0xF0u | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::optional<std::uint32_t> hex_digits(std::string_view text, std::size_t count) {
  std::uint32_t value = 0;
  if (text.size() < count) return std::nullopt;
  const char* end = text.data() + count;
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::uint32_t> take_utf8(std::string_view& text) {
  if (text.empty()) return std::nullopt;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t first = byte(0);
  const std::size_t length = first < 0x80                     ? 1
                             : first >= 0xC2 && first <= 0xDF ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || text.size() < length) return std::nullopt;
  std::uint32_t code = length == 1 ? first : first & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return std::nullopt;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return std::nullopt;
  }
  text.remove_prefix(length);
  return code;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    if (!take_utf8(text)) return false;
  }
  return true;
}

std::optional<std::string> unescape_unicode(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size();
    if (!escape || (line[i + 1] != 'u' && line[i + 1] != 'U')) {
      append_utf8(static_cast<unsigned char>(line[i]), out);
      continue;
    }
    const std::size_t digits = line[i + 1] == 'u' ? 4 : 8;
    const auto code = hex_digits(line.substr(i + 2), digits);
    if (!code || *code > 0x10FFFF) return std::nullopt;
    append_utf8(*code, out);
    i += 1 + digits;
  }
  return out;
}

std::optional<std::string> unescape_string(std::string_view line) {
  if (line.size() < 2 || line.front() != line.back() ||
      (line.front() != '\'' && line.front() != '"')) {
    return std::nullopt;
  }
  line = line.substr(1, line.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out += line[i];
      continue;
    }
    if (++i == line.size()) return std::nullopt;
    constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const std::size_t found = kLetters.find(line[i]);
    if (found != std::string_view::npos) {
      out += kMeanings[found];
    } else if (line[i] == 'x') {
      const auto code = hex_digits(line.substr(i + 1), 2);
      if (!code) return std::nullopt;
      out += static_cast<char>(*code);
      i += 2;
    } else if (line[i] >= '0' && line[i] <= '7') {
      unsigned code = 0;
      std::size_t digits = 0;
      while (digits < 3 && i + digits < line.size() && line[i + digits] >= '0' &&
             line[i + digits] <= '7') {
        code = code * 8 + static_cast<unsigned>(line[i + digits++] - '0');
      }
      out += static_cast<char>(code & 0xFF);
      i += digits - 1;
    } else {  // Python keeps an escape that it does not know
      out += '\\';
      out += line[i];
    }
  }
  return out;
}

std::optional<DecimalInteger> parse_decimal(std::string_view text) {
  std::string_view digits = text;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  if (digits.empty() ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  if (text[0] == '+') text.remove_prefix(1);
  DecimalInteger parsed;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), parsed.value);
  static_cast<void>(stop);
  if (error != std::errc()) parsed = {true, 0};
  return parsed;
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace fp4scope
