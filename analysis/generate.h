// generate.h: seeded synthetic tensors with the same bytes on every machine. No libm: the inverse
// CDF of each distribution is a set of piecewise polynomials with hexfloat coefficients, written by
// tools/make_inverse_cdf.py; uniform bits come from Philox4x32-10 keyed by (seed, element index).
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace fp4scope {

enum class Distribution : std::uint8_t {
  kNormal,
  kLaplace,
  kStudent5,
  kStudent3,
  kUniform,
  kLogNormal
};
std::string_view distribution_name(Distribution d);  // "normal", "laplace", "t5", ...

// Elements [first, first + out.size()) of the stream of `seed`, scaled by `scale` (one binary32
// multiplication). normal N(0,1); laplace b = 1; t5, t3 Student-t; uniform on (-1,1); lognormal:
// random sign times exp(N(0,1)). Any split into pieces gives the same values.
void generate(Distribution d, std::uint64_t seed, std::int64_t first, float scale,
              std::span<float> out);

}  // namespace fp4scope
