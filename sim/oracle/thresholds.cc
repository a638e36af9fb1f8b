// thresholds.cc: bisection over bit patterns.
#include "sim/oracle/thresholds.h"

#include "formats/hd.h"

namespace fp4scope::oracle {
namespace {

using CodeOf = std::function<std::uint32_t(std::uint32_t)>;

// Appends the steps in (low, high]; the codes at both ends are known.
void bisect(const CodeOf& code_of, Step low, Step high, std::vector<Step>& steps) {
  if (low.code == high.code) return;
  if (high.first == low.first + 1) {
    steps.push_back(high);
    return;
  }
  const std::uint32_t middle = low.first + (high.first - low.first) / 2;
  const Step at{middle, code_of(middle)};
  bisect(code_of, low, at, steps);
  bisect(code_of, at, high, steps);
}

Number pattern(std::uint32_t bits) {
  return exact(bit_cast<float>(bits));
}

}  // namespace

std::vector<Step> steps_of(const CodeOf& code_of, std::uint32_t first, std::uint32_t last) {
  std::vector<Step> steps{{first, code_of(first)}};
  const Step begin = steps[0];
  bisect(code_of, begin, {last, code_of(last)}, steps);
  return steps;
}

std::vector<Step> thresholds(MinifloatSpec spec, Rounding rounding) {
  return steps_of(
      [&](std::uint32_t bits) {
        const Number v = pattern(bits);
        return v.is_finite() ? nearest(spec, v.magnitude, rounding) : spec.max_finite_code();
      },
      0, kInfinityPattern);
}

std::vector<Step> thresholds_stochastic(MinifloatSpec spec, std::uint32_t random_byte) {
  return steps_of(
      [&](std::uint32_t bits) { return stochastic(spec, bit_cast<float>(bits), random_byte); }, 0,
      kInfinityPattern);
}

std::vector<Step> thresholds_e8m0(E8m0Cast rule) {
  return steps_of([&](std::uint32_t bits) { return cast_e8m0(rule, pattern(bits)); }, 1,
                  kInfinityPattern - 1);
}

}  // namespace fp4scope::oracle
