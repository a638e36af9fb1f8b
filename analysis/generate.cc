// generate.cc: Philox words to random numbers by inversion, in multiplications and additions of
// binary64 only, so that every machine gives the same bytes (no libm, no contraction).
#include "analysis/generate.h"

#include <algorithm>
#include <bit>

#include "analysis/inverse_cdf.h"

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

constexpr std::size_t kChunk = 1024;  // elements whose random bits are drawn at once
constexpr double kTwoToMinus64 = 0x1p-64;
constexpr std::uint64_t kTwoToMinus63 = std::bit_cast<std::uint64_t>(0x1p-63);
constexpr std::uint64_t kOneExponent = std::uint64_t{1} << 52;  // doubles a binary64
constexpr double kLargestBelowOne = 0x1.fffffep-1;              // in binary32

// As the conversion of the language, which branches on the top bit: both halves are exact and the
// sum rounds once.
double to_double(std::uint64_t v) {
  return static_cast<double>(static_cast<std::int64_t>(v >> 32)) * 0x1p32 +
         static_cast<double>(static_cast<std::int64_t>(v & 0xffffffffu));
}

// On (-1, 1) as binary32 too: what would round to 1 is the number below.
double uniform_magnitude(std::uint64_t tail) {
  return std::min(to_double(tail) * kTwoToMinus64, kLargestBelowOne);
}

// Where a tail probability lies: its piece, the variable of the polynomial, and what the polynomial
// is multiplied with.
struct Place {
  int piece;
  double t, factor;
};
// Piece 0 has c = 1 - p, modulo 2^64; in the others the bits after the leading one say where p lies
// in [2^-(k+1), 2^-k). Without branches: half of all elements are in piece 0.
Place place_of_tail(bool starts_at_zero, std::uint64_t tail) {
  const int k = std::countl_zero(tail);
  const std::uint64_t central = k == 0 ? ~std::uint64_t{0} : 0;
  const double place = to_double((-tail & central) | (tail << (k + 1) & ~central));
  const double width = std::bit_cast<double>(kTwoToMinus63 + (central & kOneExponent));
  const double c = place * kTwoToMinus64;
  const std::uint64_t multiplied = starts_at_zero ? central : 0;
  return {k, place * width - 1.0,
          std::bit_cast<double>((std::bit_cast<std::uint64_t>(c) & multiplied) |
                                (std::bit_cast<std::uint64_t>(1.0) & ~multiplied))};
}

// 64 random bits of one element: sign, sign of z, then 62 bits of the tail probability, which is
// put in the middle of its interval: (m + 1/2) * 2^-62.
std::uint64_t tail_of_bits(std::uint64_t bits) {
  return bits << 2 | 2;
}
double with_sign(double magnitude, std::uint64_t bits) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(magnitude) | (bits >> 63 << 63));
}

// At most kChunk elements. In two loops, so that the polynomials of many elements overlap.
void values_of_bits(Distribution d, std::span<const std::uint64_t> bits, double* out) {
  const Row& row = row_of(d);
  const std::size_t n = bits.size();
  if (row.pieces == nullptr) {
    for (std::size_t i = 0; i < n; ++i)
      out[i] = with_sign(uniform_magnitude(tail_of_bits(bits[i])), bits[i]);
    return;
  }
  Place places[kChunk];
  for (std::size_t i = 0; i < n; ++i)
    places[i] = place_of_tail(row.starts_at_zero, tail_of_bits(bits[i]));
  for (std::size_t i = 0; i < n; ++i) {
    double x = horner((*row.pieces)[places[i].piece], places[i].t) * places[i].factor;
    if (row.signed_exponent && (bits[i] >> 62 & 1) != 0) x = 1.0 / x;
    out[i] = with_sign(x, bits[i]);
  }
}

}  // namespace

double magnitude_of_tail(Distribution distribution, std::uint64_t tail) noexcept {
  const Row& row = row_of(distribution);
  if (row.pieces == nullptr) return uniform_magnitude(tail);
  const Place place = place_of_tail(row.starts_at_zero, tail);
  return horner((*row.pieces)[place.piece], place.t) * place.factor;
}

std::string_view distribution_name(Distribution d) {
  return row_of(d).name;
}

void generate_f64(Distribution d, StreamKey key, std::int64_t first, std::span<double> out) {
  std::uint64_t bits[kChunk];
  for (std::size_t at = 0; at < out.size(); at += kChunk) {
    const std::size_t n = std::min(kChunk, out.size() - at);
    random_bits(key, static_cast<std::uint32_t>(d) + 1, static_cast<std::uint64_t>(first) + at,
                {bits, n});
    values_of_bits(d, {bits, n}, out.data() + at);
  }
}

void generate_student_f64(int df, StreamKey key, std::int64_t first, std::span<double> out) {
  std::uint64_t bits[kChunk];
  double normal[kChunk], z0[kChunk / 2], chi2[kChunk / 2];
  for (std::size_t at = 0; at < out.size(); at += kChunk / 2) {
    const std::size_t n = std::min(kChunk / 2, out.size() - at);
    std::fill_n(chi2, n, 0.0);
    for (int j = 0; j <= df; j += 2) {
      random_bits(key, student_purpose(df, j / 2), 2 * (static_cast<std::uint64_t>(first) + at),
                  {bits, 2 * n});
      values_of_bits(Distribution::kNormal, {bits, 2 * n}, normal);
      for (std::size_t i = 0; i < n; ++i) {
        const double even = normal[2 * i], odd = normal[2 * i + 1];
        if (j == 0) {
          z0[i] = even;
        } else {
          chi2[i] += even * even;
        }
        if (j < df) chi2[i] += odd * odd;
      }
    }
    // The square root is the correctly rounded one of IEEE 754, not libm's.
    for (std::size_t i = 0; i < n; ++i) out[at + i] = z0[i] / __builtin_sqrt(chi2[i] / df);
  }
}

void generate(Distribution d, std::uint64_t seed, std::int64_t first, float scale,
              std::span<float> out) {
  double values[kChunk];
  for (std::size_t at = 0; at < out.size(); at += kChunk) {
    const std::size_t n = std::min(kChunk, out.size() - at);
    generate_f64(d, {seed}, first + static_cast<std::int64_t>(at), {values, n});
    for (std::size_t i = 0; i < n; ++i) out[at + i] = static_cast<float>(values[i]) * scale;
  }
}

}  // namespace fp4scope
