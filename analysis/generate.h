// generate.h: seeded synthetic tensors with the same bytes on every machine. No libm: the inverse
// CDF of each distribution is a set of piecewise polynomials with hexfloat coefficients, written by
// tools/make_inverse_cdf.py; uniform bits come from Philox4x32-10 keyed by (seed, element index).
// Files of such tensors: analysis/generate_file.h.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "analysis/random_bits.h"

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

// The same in binary64, before the narrowing and the scale, of tensor number key.tensor; generate()
// gives tensor 0.
void generate_f64(Distribution d, StreamKey key, std::int64_t first, std::span<double> out);
// Student-t with 1 <= df <= 100 degrees of freedom as z0 / sqrt((z1^2 + ... + z_df^2) / df), summed
// in that order. Normal z_j of element i is word 2i + j % 2 of the stream of call j / 2
// (student_purpose() of random_bits.h). Other bytes than kStudent3 and kStudent5.
void generate_student_f64(int df, StreamKey key, std::int64_t first, std::span<double> out);

}  // namespace fp4scope
