// threshold.cc: see threshold.h.
#include "threshold.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "analysis/text_table.h"
#include "sim/error.h"

namespace fp4scope::tools {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

bool Threshold::holds(double value) const {
  switch (op) {
    case Op::kGreater:
      return value > limit;
    case Op::kGreaterEqual:
      return value >= limit;
    case Op::kLess:
      return value < limit;
    case Op::kLessEqual:
      return value <= limit;
  }
  return false;
}

Threshold parse_threshold(const std::string& text, const std::vector<std::string>& known) {
  Threshold out;
  out.text = text;
  const auto at = text.find_first_of("<>");
  if (at == std::string::npos) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--fail-if '{}': expected METRIC>VALUE with one of > >= < <=", text));
  }
  const bool or_equal = at + 1 < text.size() && text[at + 1] == '=';
  if (text[at] == '>') {
    out.op = or_equal ? Threshold::Op::kGreaterEqual : Threshold::Op::kGreater;
  } else {
    out.op = or_equal ? Threshold::Op::kLessEqual : Threshold::Op::kLess;
  }
  out.metric = trimmed(std::string_view(text).substr(0, at));
  const std::string_view value = trimmed(std::string_view(text).substr(at + (or_equal ? 2 : 1)));
  if (std::find(known.begin(), known.end(), out.metric) == known.end()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--fail-if '{}': there is no metric '{}'; known are {}", text,
                            out.metric, joined(known, ", ")));
  }
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out.limit);
  if (error != std::errc{} || end != value.data() + value.size() || std::isnan(out.limit)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--fail-if '{}': '{}' is not a number", text, value));
  }
  return out;
}

}  // namespace fp4scope::tools
