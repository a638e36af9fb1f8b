// thresholds.h: what a scalar cast does to every binary32 magnitude, as a short list. Casts are
// monotone in the magnitude, so the list of first patterns of each code, found by bisection with
// the exact oracle, is a complete description that a sweep can be compared with.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "formats/contracts/options.h"
#include "formats/spec.h"
#include "sim/oracle/exact_format.h"

namespace fp4scope::oracle {

// Magnitude patterns from `first` up to the next step's `first` get `code`.
struct Step {
  std::uint32_t first;
  std::uint32_t code;
};

inline constexpr std::uint32_t kInfinityPattern = 0x7f800000u;

// Steps of a monotone function over the patterns first..last.
std::vector<Step> steps_of(const std::function<std::uint32_t(std::uint32_t)>& code_of,
                           std::uint32_t first, std::uint32_t last);

// Magnitude codes of the saturating cast over 0..infinity, deterministic roundings.
std::vector<Step> thresholds(MinifloatSpec spec, Rounding rounding);
// Stochastic rounding with one fixed random byte.
std::vector<Step> thresholds_stochastic(MinifloatSpec spec, std::uint32_t random_byte);
// E8M0 bytes of the positive patterns 1..0x7f7fffff; zero, infinity and NaN are the caller's.
std::vector<Step> thresholds_e8m0(E8m0Cast rule);

}  // namespace fp4scope::oracle
