// scalar_table.h: scalar formats as `fp4scope formats` shows them: limits and codes. Values come
// from the library's decode; nothing is tabulated here.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/json_text.h"
#include "formats/spec.h"

namespace fp4scope::tools {

// A scalar as the tables need it: a minifloat, or E8M0.
struct Scalar {
  std::string name;
  std::string source;
  int bits = 0;
  std::uint32_t code_count = 0;
  std::function<float(std::uint32_t)> decode;
  // Fields of a code for display, most significant first: sign, exponent, fraction.
  int sign_bits = 0, exponent_bits = 0, mantissa_bits = 0, bias = 0;
};

// Every scalar of this build, E8M0 last.
std::vector<Scalar> all_scalars();

// The element of a format that has no name of its own in all_scalars().
Scalar element_scalar(const BlockFormat& format, const std::string& name);

// Limits found by decoding every code.
struct Range {
  float max_finite = 0, min_positive = 0;
  std::uint32_t max_code = 0, min_code = 0;
  std::vector<std::uint32_t> zeros, infinities, nans;
  std::int64_t levels = 0;  // distinct finite values; +0 and -0 are one
};
Range range_of(const Scalar& scalar);

// Exact: a short decimal, else significand * 2^exponent.
std::string exact_text(float value);
// Limits and, up to 8 bits, the code table.
std::string scalar_text(const Scalar& scalar);
Json scalar_json(const Scalar& scalar, bool with_codes);

}  // namespace fp4scope::tools
