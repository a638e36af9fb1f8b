// generate.cc: Philox words to random numbers by inversion, in multiplications and additions of
// binary64 only, so that every machine gives the same bytes (no libm, no contraction).
#include "analysis/generate.h"

#include <algorithm>
#include <bit>

#include "analysis/inverse_cdf.h"
#include "formats/philox.h"

namespace fp4scope {
namespace {

#include "analysis/inverse_cdf_tables.inc"

using Pieces = const double[kPieces][kCoefficients];

struct Row {
  std::string_view name;
  Pieces* pieces;        // none: the magnitude is uniform
  bool starts_at_zero;   // piece 0 holds x / c
  bool signed_exponent;  // magnitude exp(+-|z|)
};
const Row& row_of(Distribution d) {
  static constexpr Row kRows[] = {
      {"normal", &kNormal, true, false}, {"laplace", &kLaplace, true, false},
      {"t5", &kStudent5, true, false},   {"t3", &kStudent3, true, false},
      {"uniform", nullptr, true, false}, {"lognormal", &kLognormal, false, true},
  };
  return kRows[static_cast<int>(d)];
}

// Lowest degree first.
double horner(const double (&coefficients)[kCoefficients], double t) {
  double value = coefficients[kCoefficients - 1];
  for (int i = kCoefficients - 2; i >= 0; --i) value = value * t + coefficients[i];
  return value;
}

constexpr double kTwoToMinus64 = 0x1p-64;
constexpr double kLargestBelowOne = 0x1.fffffep-1;  // in binary32

// 64 random bits of one element: sign, sign of z, then 62 bits of the tail probability, which is
// put in the middle of its interval: (m + 1/2) * 2^-62.
double value_of_bits(Distribution d, std::uint64_t bits) {
  const Row& row = row_of(d);
  double x = magnitude_of_tail(d, bits << 2 | 2);
  if (row.signed_exponent && (bits >> 62 & 1) != 0) x = 1.0 / x;
  return bits >> 63 != 0 ? -x : x;
}

// Two elements per Philox call: counter = {pair low, pair high, 0, distribution + 1}, key = seed.
struct Pair {
  std::uint64_t bits[2];
};
Pair random_pair(Distribution d, std::uint64_t seed, std::uint64_t pair) {
  const std::uint32_t counter[4] = {static_cast<std::uint32_t>(pair),
                                    static_cast<std::uint32_t>(pair >> 32), 0,
                                    static_cast<std::uint32_t>(d) + 1};
  const std::uint32_t key[2] = {static_cast<std::uint32_t>(seed),
                                static_cast<std::uint32_t>(seed >> 32)};
  std::uint32_t words[4];
  philox4x32_10<Lane<1>>(counter, key, words);
  return {{std::uint64_t{words[1]} << 32 | words[0], std::uint64_t{words[3]} << 32 | words[2]}};
}

}  // namespace

double magnitude_of_tail(Distribution distribution, std::uint64_t tail) noexcept {
  const Row& row = row_of(distribution);
  // On (-1, 1) as binary32 too: what would round to 1 is the number below.
  if (row.pieces == nullptr)
    return std::min(static_cast<double>(tail) * kTwoToMinus64, kLargestBelowOne);
  const int k = std::countl_zero(tail);
  if (k > 0) {
    // The bits after the leading one say where p lies in [2^-(k+1), 2^-k).
    const std::uint64_t position = tail << (k + 1);
    return horner((*row.pieces)[k], static_cast<double>(position) * (2 * kTwoToMinus64) - 1.0);
  }
  const double c = static_cast<double>(-tail) * kTwoToMinus64;  // 1 - p, modulo 2^64
  const double value = horner((*row.pieces)[0], 4.0 * c - 1.0);
  return row.starts_at_zero ? value * c : value;
}

std::string_view distribution_name(Distribution d) {
  return row_of(d).name;
}

void generate(Distribution d, std::uint64_t seed, std::int64_t first, float scale,
              std::span<float> out) {
  std::uint64_t index = static_cast<std::uint64_t>(first);
  Pair pair{};
  for (std::size_t i = 0; i < out.size(); ++i, ++index) {
    if (i == 0 || index % 2 == 0) pair = random_pair(d, seed, index / 2);
    out[i] = static_cast<float>(value_of_bits(d, pair.bits[index % 2])) * scale;
  }
}

}  // namespace fp4scope
