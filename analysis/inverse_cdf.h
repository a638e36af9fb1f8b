// inverse_cdf.h: magnitudes from two-sided tail probabilities, private to the generators and their
// tests. Polynomials and their accuracy: tools/make_inverse_cdf.py.
#pragma once
#include <cstdint>

#include "analysis/generate.h"

namespace fp4scope {

// x with P(|X| > x) = tail * 2^-64, tail >= 2; relative error below 1e-9. For the log-normal
// distribution exp(|z|) with the tail of |z|. The same binary64 on every machine.
double magnitude_of_tail(Distribution distribution, std::uint64_t tail) noexcept;

}  // namespace fp4scope
