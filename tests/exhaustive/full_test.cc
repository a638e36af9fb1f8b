// full_test.cc: all 2^32 binary32 patterns of every format and deterministic rounding, of every
// E8M0 rule, and E2M1 stochastic rounding for all 256 random bytes over all magnitudes. Not part of
// CI; run with `ctest -L full`.
#include <doctest/doctest.h>

#include <chrono>
#include <ctime>
#include <string>

#include "tests/exhaustive/encoders.h"
#include "tests/exhaustive/expected.h"

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
      const std::string what = std::string(named.name) + " " + name_of(rounding);
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
      const std::string what = std::string(named.name) + " " + name_of(rounding);
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
  using oracle::E8m0Cast;
  const std::pair<E8m0Rule, E8m0Cast> rules[] = {
      {E8m0Rule::kUp, E8m0Cast::kUpPtxSatfinite},
      {E8m0Rule::kUpNoSat, E8m0Cast::kUpPtxNosat},
      {E8m0Rule::kDown, E8m0Cast::kDown},
      {E8m0Rule::kUpOnnx, E8m0Cast::kUpOnnx},
      {E8m0Rule::kNearestTorch, E8m0Cast::kNearestTorch},
      {E8m0Rule::kNearestOnnx, E8m0Cast::kNearestOnnxSaturate},
      {E8m0Rule::kNearestMlDtypes, E8m0Cast::kNearestMlDtypes}};
  for (const auto& [production, exact] : rules) {
    const Stopwatch watch;
    const std::string what = "e8m0 rule " + std::to_string(static_cast<int>(production));
    const Count count = sweep(what.c_str(), widest(), E8m0Encoder{production}, all_segments(exact));
    watch.line(what, count);
    CHECK(count.swept == kAllPatterns);
    CHECK(count.wrong == 0);
  }
}

TEST_CASE("E2M1 stochastic rounding is exact for all 256 bytes over all magnitudes") {
  const Stopwatch watch;
  Count total;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const std::vector<Segment> segments =
        non_negative_numbers(all_segments(kE2M1, oracle::thresholds_stochastic(kE2M1, byte)));
    total += sweep("e2m1 stochastic", widest(), ElementEncoder{kE2M1, Rounding::kStochastic},
                   segments, byte, 1);
  }
  watch.line("e2m1 stochastic, 256 bytes", total);
  CHECK(total.swept == 256 * std::uint64_t{2139095041});
  CHECK(total.wrong == 0);
}

TEST_SUITE_END();
