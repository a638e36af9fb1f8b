// generate_test.cc: the generators against quantiles from mpmath (data/golden/quantiles.csv),
// against the moments and distribution functions of the textbooks, and against themselves in other
// pieces and threads.
#include "analysis/generate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "analysis/inverse_cdf.h"
#include "tests/support/paths.h"

using namespace fp4scope;

namespace {

constexpr Distribution kAll[] = {Distribution::kNormal,   Distribution::kLaplace,
                                 Distribution::kStudent5, Distribution::kStudent3,
                                 Distribution::kUniform,  Distribution::kLogNormal};

std::vector<float> draw(Distribution d, std::uint64_t seed, std::int64_t first, std::size_t count,
                        float scale = 1.0f) {
  std::vector<float> values(count);
  generate(d, seed, first, scale, values);
  return values;
}

bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Distribution functions in closed form.
double cdf(Distribution d, double x) {
  const double pi = std::numbers::pi;
  switch (d) {
    case Distribution::kNormal:
      return 0.5 * std::erfc(-x / std::numbers::sqrt2);
    case Distribution::kLaplace:
      return x < 0 ? 0.5 * std::exp(x) : 1 - 0.5 * std::exp(-x);
    case Distribution::kStudent5: {
      const double u = x / std::sqrt(5.0), w = 1 / (1 + u * u);
      return 0.5 + (std::atan(u) + u * w * (1 + 2 * w / 3)) / pi;
    }
    case Distribution::kStudent3: {
      const double u = x / std::sqrt(3.0);
      return 0.5 + (std::atan(u) + u / (1 + u * u)) / pi;
    }
    case Distribution::kUniform:
      return (x + 1) / 2;
    case Distribution::kLogNormal: {
      if (x == 0) return 0.5;
      const double below = 0.5 * std::erfc(-std::log(std::abs(x)) / std::numbers::sqrt2);
      return x < 0 ? 0.5 * (1 - below) : 0.5 + 0.5 * below;
    }
  }
  return 0;
}

}  // namespace

TEST_CASE("magnitudes agree with the quantiles of mpmath to 1e-9, far into the tails") {
  std::ifstream file(test::data_dir() / "golden" / "quantiles.csv");
  REQUIRE(file.good());
  // Names in the file -> distribution.
  const std::map<std::string, Distribution> names = {{"normal", Distribution::kNormal},
                                                     {"laplace", Distribution::kLaplace},
                                                     {"student5", Distribution::kStudent5},
                                                     {"student3", Distribution::kStudent3},
                                                     {"lognormal", Distribution::kLogNormal}};
  std::map<std::string, int> rows;
  std::map<std::string, std::uint64_t> smallest_tail;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#' || line.rfind("distribution,", 0) == 0) continue;
    CAPTURE(line);
    const std::size_t comma1 = line.find(','), comma2 = line.find(',', comma1 + 1);
    REQUIRE(comma2 != std::string::npos);
    const std::string name = line.substr(0, comma1);
    REQUIRE(names.count(name) == 1);
    const std::uint64_t tail = std::strtoull(line.c_str() + comma1 + 1, nullptr, 16);
    const double want = std::strtod(line.c_str() + comma2 + 1, nullptr);
    const double got = magnitude_of_tail(names.at(name), tail);
    CHECK(std::abs(got - want) <= 1e-9 * want);
    if (rows[name]++ == 0) smallest_tail[name] = tail;
  }
  for (const auto& [name, d] : names) {
    CAPTURE(name);
    CHECK(rows[name] >= 100);
    CHECK(smallest_tail[name] < std::uint64_t{1} << 14);  // a probability below 2^-50
  }
}

TEST_CASE(
    "magnitudes fall with the tail probability to their accuracy of 1e-9, across all pieces") {
  // Both sides of every power of two and fifteen points between them.
  std::set<std::uint64_t> tails;
  for (std::uint64_t octave = 2; octave != 0; octave <<= 1) {
    tails.insert(octave - 1);
    for (std::uint64_t part = 0; part < 16; ++part) tails.insert(octave + (octave >> 4) * part);
  }
  tails.insert(~std::uint64_t{0});
  tails.erase(1);
  for (const Distribution d : kAll) {
    CAPTURE(distribution_name(d));
    // The uniform magnitude is the tail probability itself.
    const double sign = d == Distribution::kUniform ? -1 : 1;
    double previous = sign * magnitude_of_tail(d, *tails.begin());
    for (const std::uint64_t tail : tails) {
      const double x = sign * magnitude_of_tail(d, tail);
      CAPTURE(tail);
      CHECK(x <= previous + 1e-9 * std::abs(previous));
      previous = x;
    }
  }
}

TEST_CASE("a stream has the same bytes in any pieces and in any thread") {
  constexpr std::size_t kCount = 4099;
  const std::int64_t firsts[] = {0, 1, 7, (std::int64_t{1} << 33) - 5, (std::int64_t{1} << 62) + 1};
  for (const Distribution d : kAll) {
    for (const std::int64_t first : firsts) {
      CAPTURE(distribution_name(d));
      CAPTURE(first);
      const std::vector<float> whole = draw(d, 42, first, kCount, 0.75f);
      for (const std::size_t piece : {1u, 2u, 3u, 64u, 1000u}) {
        std::vector<float> pieces(kCount);
        for (std::size_t at = 0; at < kCount; at += piece)
          generate(d, 42, first + static_cast<std::int64_t>(at), 0.75f,
                   std::span(pieces).subspan(at, std::min(piece, kCount - at)));
        CHECK(same_bytes(pieces, whole));
      }
      std::vector<float> shared(kCount);
      std::vector<std::thread> threads;
      for (std::size_t t = 0; t < 7; ++t) {
        threads.emplace_back([&, t] {
          const std::size_t from = kCount * t / 7, to = kCount * (t + 1) / 7;
          generate(d, 42, first + static_cast<std::int64_t>(from), 0.75f,
                   std::span(shared).subspan(from, to - from));
        });
      }
      for (std::thread& thread : threads) thread.join();
      CHECK(same_bytes(shared, whole));
    }
  }
}

TEST_CASE("seeds, positions and distributions give different streams") {
  for (const Distribution d : kAll) {
    const std::vector<float> base = draw(d, 1, 0, 256);
    CHECK(!same_bytes(base, draw(d, 2, 0, 256)));
    CHECK(!same_bytes(base, draw(d, 1 + (std::uint64_t{1} << 32), 0, 256)));
    CHECK(!same_bytes(base, draw(d, 1, std::int64_t{1} << 33, 256)));
  }
  // Signs come straight from the random bits, so equal bits would show.
  const std::vector<float> normal = draw(Distribution::kNormal, 1, 0, 4096);
  const std::vector<float> laplace = draw(Distribution::kLaplace, 1, 0, 4096);
  int equal_signs = 0;
  for (std::size_t i = 0; i < normal.size(); ++i)
    equal_signs += std::signbit(normal[i]) == std::signbit(laplace[i]);
  CHECK(std::abs(equal_signs - 2048) < 160);  // five standard deviations of a fair coin
}

TEST_CASE("scale is one binary32 multiplication") {
  for (const Distribution d : kAll) {
    const std::vector<float> plain = draw(d, 3, 10, 1000);
    const std::vector<float> scaled = draw(d, 3, 10, 1000, 0.3f);
    for (std::size_t i = 0; i < plain.size(); ++i) CHECK(scaled[i] == plain[i] * 0.3f);
  }
}

TEST_CASE("2^20 values follow their distribution function, Kolmogorov-Smirnov below 1.95") {
  // sqrt(n) * D exceeds 1.95 once in a thousand streams; six streams with fixed seeds.
  constexpr std::size_t kCount = std::size_t{1} << 20;
  for (const Distribution d : kAll) {
    CAPTURE(distribution_name(d));
    std::vector<float> values = draw(d, 20, 0, kCount);
    std::sort(values.begin(), values.end());
    double largest = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double f = cdf(d, values[i]);
      largest = std::max(
          {largest, f - static_cast<double>(i) / kCount, static_cast<double>(i + 1) / kCount - f});
    }
    CHECK(largest * std::sqrt(static_cast<double>(kCount)) < 1.95);
  }
}

TEST_CASE("moments of 2^20 values are those of the textbook within five standard errors") {
  constexpr std::size_t kCount = std::size_t{1} << 20;
  struct MomentCase {
    Distribution distribution;
    double mean_square;  // E x^2
    double mean_fourth;  // E x^4; 0 where it does not exist or is too uncertain to use
    double mean_eighth;  // E x^8, for the standard error of the fourth moment
  };
  const double e2 = std::exp(2.0), e8 = std::exp(8.0);
  const MomentCase cases[] = {
      {Distribution::kNormal, 1, 3, 105},
      {Distribution::kLaplace, 2, 24, 40320},
      {Distribution::kStudent5, 5.0 / 3, 25, 0},
      {Distribution::kStudent3, 3, 0, 0},
      {Distribution::kUniform, 1.0 / 3, 1.0 / 5, 1.0 / 9},
      {Distribution::kLogNormal, e2, e8, 0},
  };
  const double root = std::sqrt(static_cast<double>(kCount));
  for (const MomentCase& c : cases) {
    CAPTURE(distribution_name(c.distribution));
    double sum = 0, square = 0, fourth = 0;
    for (const float v : draw(c.distribution, 21, 0, kCount)) {
      const double x = v;
      sum += x;
      square += x * x;
      fourth += x * x * x * x;
    }
    const double n = static_cast<double>(kCount);
    CHECK(std::abs(sum / n) < 5 * std::sqrt(c.mean_square) / root);
    if (c.mean_fourth != 0)
      CHECK(std::abs(square / n - c.mean_square) <
            5 * std::sqrt(c.mean_fourth - c.mean_square * c.mean_square) / root);
    if (c.mean_eighth != 0)
      CHECK(std::abs(fourth / n - c.mean_fourth) <
            5 * std::sqrt(c.mean_eighth - c.mean_fourth * c.mean_fourth) / root);
  }
}

TEST_CASE("neighbouring elements are uncorrelated, also across the two halves of a Philox call") {
  constexpr std::size_t kCount = std::size_t{1} << 20;
  const std::vector<float> values = draw(Distribution::kNormal, 22, 0, kCount);
  for (const std::size_t distance : {1u, 2u, 16u, 1024u}) {
    double sum = 0;
    for (std::size_t i = distance; i < kCount; ++i)
      sum += static_cast<double>(values[i]) * values[i - distance];
    CAPTURE(distance);
    CHECK(std::abs(sum / std::sqrt(static_cast<double>(kCount))) < 5);
  }
}

TEST_CASE("every value is finite and the uniform distribution stays inside its open interval") {
  for (const Distribution d : kAll)
    for (const float v : draw(d, 23, 0, std::size_t{1} << 18)) CHECK(std::isfinite(v));
  // The extreme tail probabilities of the generator, 2^-63 and 1 - 2^-63.
  CHECK(static_cast<float>(magnitude_of_tail(Distribution::kUniform, ~std::uint64_t{0} - 1)) <
        1.0f);
  CHECK(magnitude_of_tail(Distribution::kUniform, 2) == 0x1p-63);
}
