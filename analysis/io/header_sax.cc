// header_sax.cc: adapter between nlohmann-json's SAX interface and HeaderSax.
#include "analysis/io/header_sax.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/io/message.h"

namespace fp4scope {
namespace {

struct Adapter final : nlohmann::json_sax<nlohmann::json> {
  explicit Adapter(HeaderSax& sax) : to(sax) {}
  HeaderSax& to;

  bool scalar(const char* what) { return to.skipping() || to.scalar(what); }
  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(number_integer_t) override { return scalar("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override { return to.number_unsigned(value); }
  bool number_float(number_float_t, const string_t&) override {
    return scalar("a number that is no 64-bit integer");
  }
  bool string(string_t& value) override { return to.string(value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return start(&HeaderSax::start_object); }
  bool end_object() override { return end(&HeaderSax::end_object); }
  bool start_array(std::size_t) override { return start(&HeaderSax::start_array); }
  bool end_array() override { return end(&HeaderSax::end_array); }
  bool key(string_t& name) override { return to.key(name); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    return to.malformed(position);
  }

  bool start(bool (HeaderSax::*callback)()) {
    if (!to.skipping()) return (to.*callback)();
    to.nest(1);
    return true;
  }
  bool end(bool (HeaderSax::*callback)()) {
    if (!to.skipping()) return (to.*callback)();
    to.nest(-1);
    return true;
  }
};

}  // namespace

std::string json_place(std::string_view text, std::size_t position) {
  constexpr std::size_t kShown = 24;
  const std::size_t end = std::min(position, text.size());
  const std::size_t start = end > kShown ? end - kShown : 0;
  return fmt::format("byte {}, {} {}", position,
                     position > text.size() ? "the end, behind" : "at the end of",
                     in_quotes(text.substr(start, end - start)));
}

void parse_json_header(std::string_view text, HeaderSax& sax) {
  // The parser takes a NUL byte for the end of its input and would not look behind it.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    sax.malformed(nul + 1);
    return;
  }
  Adapter adapter(sax);
  nlohmann::json::sax_parse(text.begin(), text.end(), &adapter);
}

}  // namespace fp4scope
