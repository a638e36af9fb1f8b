// full_test.cc: all 2^32 binary32 patterns of every format and deterministic rounding, of every
// E8M0 rule and of the narrowing to BF16, and stochastic rounding over all magnitudes: E2M1 for all
// 256 random bytes, the others for eight. Not part of CI; run with `ctest -L full`.
#include <doctest/doctest.h>

#include <chrono>
#include <ctime>
#include <numeric>
#include <string>

#include "tests/exhaustive/encoders.h"
#include "tests/exhaustive/expected.h"
#include "tests/support/rules.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

// Prints one line per sweep: inputs, differences, seconds of clock and processor.
class Stopwatch {
 public:
  void line(const std::string& what, const Count& count) const {
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double cpu = static_cast<double>(std::clock() - cpu_) / CLOCKS_PER_SEC;
    std::printf("%-34s %14llu inputs, %llu differ, %.1f s, %.1f CPU s\n", what.c_str(),
                static_cast<unsigned long long>(count.swept),
                static_cast<unsigned long long>(count.wrong), wall, cpu);
    std::fflush(stdout);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::clock_t cpu_ = std::clock();
};

constexpr std::uint64_t kAllPatterns = std::uint64_t{1} << 32;

Isa widest() {
  return widths().back();
}

}  // namespace

TEST_SUITE_BEGIN("full");

TEST_CASE("every format and rounding encodes all 2^32 inputs as the exact oracle does") {
  std::printf("%s\n", name_of(widest()));
  Count total;
  const Stopwatch all;
  for (const NamedSpec& named : kScalars) {
    for (const Rounding rounding : kDeterministic) {
      const Stopwatch watch;
      const std::vector<Segment> segments =
          all_segments(named.spec, oracle::thresholds(named.spec, rounding));
      const std::string what = title(named, rounding);
      const Count count =
          sweep(what.c_str(), widest(), ElementEncoder{named.spec, rounding}, segments);
      watch.line(what, count);
      CHECK(count.swept == kAllPatterns);
      CHECK(count.wrong == 0);
      total += count;
    }
  }
  all.line("all formats and roundings", total);
}

TEST_CASE("the narrower lanes encode all 2^32 inputs alike") {
  // The text is the same for every width. Lane<8> is swept under every rounding; Lane<1>, ten times
  // slower, under the rounding of nearly every contract.
  Count total;
  const Stopwatch all;
  for (const NamedSpec& named : kScalars) {
    for (const Rounding rounding : kDeterministic) {
      const Stopwatch watch;
      const std::vector<Segment> segments =
          all_segments(named.spec, oracle::thresholds(named.spec, rounding));
      const ElementEncoder encoder{named.spec, rounding};
      const std::string what = title(named, rounding);
      Count count = sweep(what.c_str(), widths()[1], encoder, segments);
      std::uint64_t sweeps = 1;
      if (rounding == Rounding::kEven) {
        count += sweep(what.c_str(), Isa::kLane1, encoder, segments);
        ++sweeps;
      }
      watch.line(what + (sweeps == 2 ? ", 8 and 1 lanes" : ", 8 lanes"), count);
      CHECK(count.swept == sweeps * kAllPatterns);
      CHECK(count.wrong == 0);
      total += count;
    }
  }
  all.line("narrower lanes", total);
}

TEST_CASE("E8M0 casts all 2^32 inputs by each of its seven rules") {
  for (const auto& [name, production, exact] : kE8m0Rules) {
    const Stopwatch watch;
    const std::string what = std::string("e8m0 ") + name;
    const Count count = sweep(what.c_str(), widest(), E8m0Encoder{production}, all_segments(exact));
    watch.line(what, count);
    CHECK(count.swept == kAllPatterns);
    CHECK(count.wrong == 0);
  }
}

TEST_CASE("narrowing to BF16 follows the exact oracle over all 2^32 inputs") {
  const std::vector<Segment> segments = bf16_segments();
  for (const Isa isa : widths()) {
    const Stopwatch watch;
    Count count = sweep("round_to_bf16", isa, Bf16Encoder{}, segments);
    count += sweep("bf16 cast", isa, kBf16Cast, segments);
    watch.line(std::string("round_to_bf16, bf16 cast, ") + name_of(isa), count);
    CHECK(count.swept == 2 * kAllPatterns);
    CHECK(count.wrong == 0);
  }
}

TEST_CASE("stochastic rounding is exact for random bytes over all magnitudes") {
  // E2M1, the four-bit element, for every byte; the others for the ends, the middle and some
  // between (the covering set has all 256 for every format).
  Count total;
  const Stopwatch all;
  for (const NamedSpec& named : kScalars) {
    std::vector<std::uint32_t> bytes = {0, 1, 64, 127, 128, 200, 254, 255};
    if (named.spec == kE2M1) {
      bytes.resize(256);
      std::iota(bytes.begin(), bytes.end(), 0u);
    }
    const std::string what = title(named, Rounding::kStochastic);
    const Stopwatch watch;
    Count count;
    for (const std::uint32_t byte : bytes) {
      const std::vector<Segment> segments = non_negative_numbers(
          all_segments(named.spec, oracle::thresholds_stochastic(named.spec, byte)));
      count += sweep(what.c_str(), widest(), ElementEncoder{named.spec, Rounding::kStochastic},
                     segments, byte, 1);
    }
    watch.line(what + ", " + std::to_string(bytes.size()) + " bytes", count);
    CHECK(count.swept == bytes.size() * std::uint64_t{2139095041});
    CHECK(count.wrong == 0);
    total += count;
  }
  all.line("stochastic rounding", total);
}

TEST_SUITE_END();
