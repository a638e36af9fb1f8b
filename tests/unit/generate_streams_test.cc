// generate_streams_test.cc: the streams behind generated files: random words against a second
// Philox written here, normal numbers against erfc, Student-t against its distribution function,
// and the expected maximum against mpmath.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "analysis/generate.h"
#include "analysis/generate_profile.h"

using namespace fp4scope;

namespace {

// Philox4x32-10 with 64-bit products (Salmon et al., SC11).
void other_philox(std::uint64_t low, std::uint64_t high, std::uint64_t seed, std::uint32_t out[4]) {
  std::uint32_t c[4] = {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                        static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
  std::uint32_t k[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xd2511f53} * c[0], b = std::uint64_t{0xcd9e8d57} * c[2];
    const std::uint32_t next[4] = {
        static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    std::memcpy(c, next, sizeof c);
    k[0] += 0x9e3779b9u;
    k[1] += 0xbb67ae85u;
  }
  std::memcpy(out, c, sizeof c);
}
std::uint64_t other_word(StreamKey key, std::uint32_t purpose, std::uint64_t word) {
  std::uint32_t out[4];
  other_philox(word / 2, std::uint64_t{purpose} << 32 | key.tensor, key.seed, out);
  const int half = word % 2 == 0 ? 0 : 2;
  return std::uint64_t{out[half + 1]} << 32 | out[half];
}

// Student-t with df degrees of freedom, Abramowitz and Stegun 26.7.3 and 26.7.4.
double student_cdf(int df, double t) {
  const double theta = std::atan(t / std::sqrt(static_cast<double>(df)));
  const double c = std::cos(theta), s = std::sin(theta);
  double sum = 0, term = df % 2 == 0 ? 1 : c;
  for (int i = df % 2 == 0 ? 2 : 3; i <= df; i += 2) {
    sum += term;
    term *= c * c * (i - 1) / i;
  }
  const double a = df % 2 == 0 ? s * sum : 2 / std::numbers::pi * (theta + s * sum);
  return 0.5 + a / 2;
}

}  // namespace

TEST_CASE("random words are those of a second Philox, also where the counter carries") {
  const std::uint64_t firsts[] = {0, 1, 5, (1ull << 33) - 40, (1ull << 33) - 39, (1ull << 63) + 7};
  for (const std::uint64_t first : firsts) {
    for (const std::uint32_t purpose : {1u, kTiePurpose, student_purpose(7, 3)}) {
      const StreamKey key{0xfedcba9876543210u, 9};
      std::vector<std::uint64_t> words(101);
      random_bits(key, purpose, first, words);
      for (std::size_t i = 0; i < words.size(); ++i)
        REQUIRE(words[i] == other_word(key, purpose, first + i));
    }
  }
}

TEST_CASE("f64 values have the tail probability of their random word, tensor by tensor") {
  for (std::uint32_t tensor = 0; tensor < 3; ++tensor) {
    const StreamKey key{12345678901234567890u, tensor};
    std::vector<double> values(3001);
    generate_f64(Distribution::kNormal, key, 0, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint64_t word = other_word(key, 1, i);
      // erfc has the accuracy of the tails; x has 1e-9, which the density turns into 1e-8 of p.
      const double p = static_cast<double>(word << 2 | 2) * 0x1p-64;
      const double got = std::erfc(std::abs(values[i]) / std::numbers::sqrt2);
      const double density = std::exp(-values[i] * values[i] / 2);
      CHECK(std::abs(got - p) <= 2e-9 * std::abs(values[i]) * density + 1e-15);
      CHECK(std::signbit(values[i]) == (word >> 63 != 0));
    }
  }
}

TEST_CASE("student-t has the same numbers in any pieces") {
  std::vector<double> whole(1300), pieces(1300);
  generate_student_f64(4, {9, 2}, 5, whole);
  for (std::size_t at = 0; at < pieces.size(); at += 77) {
    generate_student_f64(4, {9, 2}, 5 + static_cast<std::int64_t>(at),
                         std::span(pieces).subspan(at, std::min<std::size_t>(77, 1300 - at)));
  }
  CHECK(whole == pieces);
}

TEST_CASE("2^18 student-t values follow their distribution function, Kolmogorov-Smirnov") {
  constexpr std::size_t kCount = std::size_t{1} << 18;
  CHECK(student_cdf(1, 1) == doctest::Approx(0.75));
  CHECK(student_cdf(2, std::sqrt(2.0)) == doctest::Approx(0.5 + std::sqrt(0.125)));
  for (const int df : {1, 2, 3, 4, 5, 6, 7, 30, 99, 100}) {
    CAPTURE(df);
    std::vector<double> values(kCount);
    generate_student_f64(df, {31}, 0, values);
    std::sort(values.begin(), values.end());
    double largest = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double f = student_cdf(df, values[i]);
      largest = std::max(
          {largest, f - static_cast<double>(i) / kCount, static_cast<double>(i + 1) / kCount - f});
    }
    // Exceeded once in a thousand streams.
    CHECK(largest * std::sqrt(static_cast<double>(kCount)) < 1.95);
  }
}

TEST_CASE("student-t of df 2 is the stated quotient of normals of the stated words") {
  std::vector<double> values(50);
  const StreamKey key{77, 4};
  generate_student_f64(2, key, 1000, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double z[3];
    for (int j = 0; j < 3; ++j) {
      const std::uint64_t word =
          other_word(key, student_purpose(2, j / 2), 2 * (1000 + i) + static_cast<unsigned>(j % 2));
      // The inverse of erfc by bisection.
      const double p = static_cast<double>(word << 2 | 2) * 0x1p-64;
      double low = 0, high = 12;
      for (int step = 0; step < 60; ++step) {
        const double middle = (low + high) / 2;
        (std::erfc(middle / std::numbers::sqrt2) > p ? low : high) = middle;
      }
      z[j] = word >> 63 != 0 ? -low : low;
    }
    const double want = z[0] / std::sqrt((z[1] * z[1] + z[2] * z[2]) / 2);
    CHECK(std::abs(values[i] - want) < 1e-7 * std::abs(want));
  }
}

TEST_CASE("the expected maximum of |z| is the integral that mpmath gives") {
  // quad(1 - erf(x / sqrt 2)^T, [0, inf)) at 30 digits; the first two are sqrt(2/pi), 2/sqrt(pi).
  const std::pair<std::int64_t, double> cases[] = {{1, 0.79788456080286536},
                                                   {2, 1.1283791670955126},
                                                   {64, 2.5961107651466503},
                                                   {512, 3.2483905370824904},
                                                   {4096, 3.8022953119032021},
                                                   {98304, 4.5297089692823122},
                                                   {std::int64_t{1} << 31, 6.3171830410914152}};
  for (const auto& [count, want] : cases) {
    CAPTURE(count);
    CHECK(std::abs(expected_maximum(count) - want) < 1e-6 * want);
  }
}
