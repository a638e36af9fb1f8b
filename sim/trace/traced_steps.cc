// traced_steps.cc: see traced_steps.h, and the texts of trace.h.
#include "sim/trace/traced_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "sim/trace/trace.h"

namespace fp4scope {
namespace {

// The largest entry at or below v and the smallest at or above it, of `count` numbers.
template <class Value>
bool is_midpoint(float v, std::uint32_t count, const Value& value) {
  double low = -HUGE_VAL, high = HUGE_VAL;
  for (std::uint32_t i = 0; i < count; ++i) {
    const double entry = value(i);
    if (!std::isfinite(entry)) continue;
    if (entry <= v) low = std::max(low, entry);
    if (entry >= v) high = std::min(high, entry);
  }
  // Numbers of binary32 next to each other in a table: their sum is exact in binary64, or the
  // formats are so wide that no table of theirs has two numbers that near.
  return low < high && low + high == 2.0 * static_cast<double>(v);
}

}  // namespace

const char* rounding_name(Rounding rounding) {
  switch (rounding) {
    case Rounding::kEven:
      return "RNE";
    case Rounding::kAway:
      return "RNA";
    case Rounding::kZero:
      return "RHZ";
    case Rounding::kTrunc:
      return "RTZ";
    case Rounding::kStochastic:
      return "SR";
  }
  return "";
}

bool is_tie_of(MinifloatSpec spec, float v) {
  if (!std::isfinite(v)) return false;
  if (spec == kBF16) return (bit_cast<std::uint32_t>(v) & 0xffffu) == 0x8000u;
  return is_midpoint(v, spec.code_count(), [&](std::uint32_t code) {
    return static_cast<double>(decode<Lane<1>>(spec, code));
  });
}
bool is_tie_of(const Lut& lut, float v) {
  return std::isfinite(v) && is_midpoint(v, static_cast<std::uint32_t>(lut.count),
                                         [&](std::uint32_t i) { return double{lut.value[i]}; });
}

bool is_saturated_by(MinifloatSpec spec, Rounding rounding, float v) {
  if (v != v || rounding == Rounding::kStochastic || (!spec.is_signed && v < 0.0f)) return false;
  SaturationLimit limit = saturation_limit(spec, rounding);
  if (v < 0.0f && spec.sign_code == SignCode::kTwosComplementFull) {
    // One more code, of the other parity.
    limit.limit += decode<Lane<1>>(spec, 1);
    if (rounding == Rounding::kEven) limit.inclusive = !limit.inclusive;
  }
  return limit.is_exceeded_by(std::fabs(static_cast<double>(v)));
}

std::string float_text(float v) {
  if (std::isnan(v)) return "nan";
  return fmt::format("{}", v);
}
std::string bits_text(float v) {
  return fmt::format("0x{:08x}", bit_cast<std::uint32_t>(v));
}
std::string code_text(std::uint32_t code, int storage_bits) {
  return fmt::format("0x{:0{}x}", code, (storage_bits + 3) / 4);
}

std::string spec_text(MinifloatSpec spec) {
  if (spec.is_twos_complement()) return fmt::format("INT{}", spec.storage_bits());
  for (const NamedSpec& named : kScalars) {
    if (named.spec != spec) continue;
    std::string name(named.name);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return name;
  }
  return fmt::format("{}E{}M{}", spec.is_signed ? "" : "U", spec.exponent_bits, spec.mantissa_bits);
}

}  // namespace fp4scope
