// threshold.h: --fail-if 'METRIC>VALUE', which turns a report into a gate.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace fp4scope::tools {

struct Threshold {
  enum class Op : std::uint8_t { kGreater, kGreaterEqual, kLess, kLessEqual };
  std::string text;  // as typed
  std::string metric;
  Op op = Op::kGreater;
  double limit = 0;

  bool holds(double value) const;
};

// Throws Error(kUsage) for a malformed text or a metric that is not one of `known`.
Threshold parse_threshold(const std::string& text, const std::vector<std::string>& known);

}  // namespace fp4scope::tools
