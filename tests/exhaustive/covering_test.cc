// covering_test.cc: every scalar cast against the thresholds of the exact oracle on a covering set:
// every threshold of every rounding (ties and exact values), every exponent edge, zero, subnormals,
// infinity and NaN, each with its neighbours, both signs, plus a stride through all patterns. In
// Lane<1>, Lane<8> and Lane<16>. The sweep over all 2^32 patterns is full_test.cc.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "tests/exhaustive/encoders.h"
#include "tests/exhaustive/expected.h"
#include "tests/support/rules.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

void check(const char* title, const Count& count) {
  std::printf("%-46s %12llu inputs, %llu differ\n", title,
              static_cast<unsigned long long>(count.swept),
              static_cast<unsigned long long>(count.wrong));
  CHECK(count.swept > 0);
  CHECK(count.wrong == 0);
}

// Wide formats have tens of thousands of thresholds; stochastic rounding treats them by a sample.
bool is_wide(MinifloatSpec spec) {
  return spec.magnitude_bits() > 8;
}

constexpr std::uint32_t kStride = 65537;

// The steps of a format under the four deterministic roundings.
struct Steps {
  std::vector<oracle::Step> of[4];
  explicit Steps(MinifloatSpec spec) {
#pragma omp parallel for
    for (int r = 0; r < 4; ++r) of[r] = oracle::thresholds(spec, kDeterministic[r]);
  }
  PatternSet patterns() const {
    PatternSet set = common_patterns(kStride);
    for (const auto& steps : of) {
      for (const oracle::Step& s : steps) set.add_around(s.first);
    }
    return set;
  }
};

}  // namespace

TEST_SUITE_BEGIN("covering");

TEST_CASE("every format and rounding encodes the covering set as the exact oracle does") {
  Count total;
  for (const NamedSpec& named : kScalars) {
    const Steps steps(named.spec);
    const std::vector<std::uint32_t> patterns = steps.patterns().patterns();
    for (int r = 0; r < 4; ++r) {
      const std::vector<std::uint32_t> want =
          wants(all_segments(named.spec, steps.of[r]), patterns);
      const ElementEncoder encoder{named.spec, kDeterministic[r]};
      const std::string what = title(named, kDeterministic[r]);
      for (const Isa isa : widths()) {
        total += compare_patterns(what.c_str(), isa, encoder, patterns, want);
      }
    }
  }
  check("deterministic roundings", total);
}

TEST_CASE("stochastic rounding follows the software rule for all 256 random bytes") {
  Count total;
  for (const NamedSpec& named : kScalars) {
    const ElementEncoder encoder{named.spec, Rounding::kStochastic};
    const std::string what = title(named, Rounding::kStochastic);
    const bool wide = is_wide(named.spec);
    // A wide format: its exact values and ties, thinned out, each through the oracle.
    PatternSet sample;
    if (wide) {
      for (const Rounding r : {Rounding::kTrunc, Rounding::kEven}) {
        const std::vector<oracle::Step> steps = oracle::thresholds(named.spec, r);
        for (std::size_t i = 0; i < steps.size(); i += 97) sample.add_around(steps[i].first);
        sample.add_around(steps[1].first);
        sample.add_around(steps.back().first);
      }
      for (const std::uint32_t m : {0u, kInfBits, kMagnitudeMask}) sample.add_around(m);
    }
    const PatternSet common = common_patterns(1048573);
    Count count;
#pragma omp parallel for schedule(dynamic)
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::vector<std::uint32_t> patterns, want;
      if (wide) {
        patterns = sample.patterns();
        for (const std::uint32_t p : patterns) {
          const float a = bit_cast<float>(p & kMagnitudeMask);
          const std::uint32_t sign = p & kSignBit ? named.spec.sign_mask() : 0u;
          want.push_back(oracle::stochastic(named.spec, a, byte) | sign);
        }
      } else {
        const auto steps = oracle::thresholds_stochastic(named.spec, byte);
        PatternSet set = common;
        for (const oracle::Step& s : steps) set.add_around(s.first);
        patterns = set.patterns();
        want = wants(all_segments(named.spec, steps), patterns);
      }
      Count c;
      for (const Isa isa : widths()) {
        c += compare_patterns(what.c_str(), isa, encoder, patterns, want, byte, 1);
      }
#pragma omp critical
      count += c;
    }
    total += count;
  }
  check("stochastic rounding", total);
}

TEST_CASE("overflow becomes infinity or NaN where the cast does not saturate, NaN by its rule") {
  Count total;
  for (const NamedSpec& named : kScalars) {
    const MinifloatSpec spec = named.spec;
    const std::vector<std::uint32_t> patterns = common_patterns(1048573).patterns();
    PatternSet near_top;  // the last finite values and what follows them
    for (const Rounding r : {Rounding::kEven, Rounding::kZero}) {
      const auto steps = oracle::thresholds(spec, r);
      for (std::size_t i = steps.size() - 2; i < steps.size(); ++i) {
        near_top.add_around(steps[i].first);
        near_top.add_around(steps[i].first + (1u << (22 - spec.mantissa_bits)));
        near_top.add_around(steps[i].first + (1u << (23 - spec.mantissa_bits)));
        near_top.add_around(steps[i].first + (3u << (22 - spec.mantissa_bits)));
      }
    }
    std::vector<std::uint32_t> all = patterns;
    for (const std::uint32_t p : near_top.patterns()) all.push_back(p);
    // Truncation is left out: whether it overflows is not a question any source answers.
    for (const Rounding rounding : {Rounding::kEven, Rounding::kAway, Rounding::kZero}) {
      for (const NanRule::Sign sign :
           {NanRule::Sign::kDrop, NanRule::Sign::kCopy, NanRule::Sign::kFlip}) {
        const std::uint32_t nan = spec.special == Special::kFnuz ? 0u : spec.magnitude_mask();
        std::vector<std::uint32_t> want;
        for (const std::uint32_t p : all) {
          const bool negative = (p & kSignBit) != 0;
          const bool set = sign == NanRule::Sign::kCopy   ? negative
                           : sign == NanRule::Sign::kFlip ? !negative
                                                          : false;
          want.push_back(oracle::cast_special(spec, oracle::exact(bit_cast<float>(p)), rounding,
                                              nan | (set ? spec.sign_mask() : 0u)));
        }
        const CastEncoder encoder{spec, {rounding, Overflow::kSpecial, {nan, sign}}};
        const std::string what = title(named, rounding) + " cast";
        for (const Isa isa : widths()) {
          total += compare_patterns(what.c_str(), isa, encoder, all, want);
        }
      }
    }
  }
  check("casts with special values", total);
}

TEST_CASE("narrowing to BF16 is that of the exact oracle, by round_to_bf16 and by the cast") {
  const std::vector<Segment> segments = bf16_segments();
  PatternSet set = common_patterns(kStride);
  for (const Segment& s : segments) set.add_around(s.first);
  const std::vector<std::uint32_t> patterns = set.patterns();
  const std::vector<std::uint32_t> want = wants(segments, patterns);
  Count total;
  for (const Isa isa : widths()) {
    total += compare_patterns("round_to_bf16", isa, Bf16Encoder{}, patterns, want);
    total += compare_patterns("bf16 cast", isa, kBf16Cast, patterns, want);
  }
  check("narrowing to BF16", total);
}

namespace {

template <class L>
std::uint32_t decoded(MinifloatSpec spec, std::uint32_t code) {
  const auto bits = bit_cast<typename L::U>(decode<L>(spec, typename L::U{} + code));
  return detail::lane_of(bits, L::kWidth - 1);
}
template <class L>
std::uint32_t decoded_e8m0(std::uint32_t byte) {
  const auto bits = bit_cast<typename L::U>(e8m0_decode<L>(typename L::U{} + byte));
  return detail::lane_of(bits, L::kWidth - 1);
}

bool same(std::uint32_t got, std::uint32_t want) {
  const bool both_nan = (got & kMagnitudeMask) > kInfBits && (want & kMagnitudeMask) > kInfBits;
  return got == want || both_nan;
}

}  // namespace

TEST_CASE("every code decodes to its value and encodes to itself under every rounding") {
  Count total;
  for (const NamedSpec& named : kScalars) {
    const MinifloatSpec spec = named.spec;
    std::vector<std::uint32_t> finite, codes;
    for (std::uint32_t code = 0; code < spec.code_count(); ++code) {
      const oracle::Number v = oracle::value(spec, code);
      const std::uint32_t want = bit_cast<std::uint32_t>(oracle::round32(v));
      const std::uint32_t got[] = {decoded<Lane<1>>(spec, code), decoded<Lane<8>>(spec, code),
                                   decoded<Lane<16>>(spec, code)};
      for (const std::uint32_t g : got) {
        total += {1, same(g, want) ? 0u : 1u};
        if (!same(g, want)) {
          std::printf("DIFFERS decode %s 0x%x: want 0x%08x, got 0x%08x\n",
                      std::string(named.name).c_str(), code, want, g);
        }
      }
      if (v.is_finite()) {
        finite.push_back(want);
        codes.push_back(code);
      }
    }
    while (finite.size() % 16 != 0) {
      finite.push_back(finite.back());
      codes.push_back(codes.back());
    }
    for (const Isa isa : widths()) {
      for (const Rounding r : kDeterministic) {
        const std::string what = title(named, r) + " round trip";
        total += compare_patterns(what.c_str(), isa, ElementEncoder{spec, r}, finite, codes);
      }
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        const std::string what = title(named, Rounding::kStochastic) + " round trip";
        total += compare_patterns(what.c_str(), isa, ElementEncoder{spec, Rounding::kStochastic},
                                  finite, codes, byte, 1);
      }
    }
  }
  check("decode and round trip", total);
}

TEST_CASE("E8M0 follows its seven cast rules and decodes all 256 bytes") {
  Count total;
  for (const auto& [name, production, exact] : kE8m0Rules) {
    const std::vector<Segment> segments = all_segments(exact);
    PatternSet set = common_patterns(kStride);
    for (const Segment& s : segments) set.add_around(s.first);
    const std::vector<std::uint32_t> patterns = set.patterns();
    const std::vector<std::uint32_t> want = wants(segments, patterns);
    const std::string what = std::string("e8m0 ") + name;
    for (const Isa isa : widths()) {
      total += compare_patterns(what.c_str(), isa, E8m0Encoder{production}, patterns, want);
    }
  }
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const std::uint32_t want = bit_cast<std::uint32_t>(oracle::round32(oracle::value_e8m0(byte)));
    for (const std::uint32_t got :
         {decoded_e8m0<Lane<1>>(byte), decoded_e8m0<Lane<8>>(byte), decoded_e8m0<Lane<16>>(byte)}) {
      total += {1, same(got, want) ? 0u : 1u};
    }
  }
  check("E8M0", total);
}

TEST_CASE("the comparison notices ties-away, truncation and double rounding through BF16") {
  const std::vector<Segment> even =
      non_negative_numbers(all_segments(kE2M1, oracle::thresholds(kE2M1, Rounding::kEven)));
  // Patterns between two magnitudes, the first included.
  const auto between = [](float a, float b) {
    return static_cast<std::uint64_t>(bit_cast<std::uint32_t>(b) - bit_cast<std::uint32_t>(a));
  };
  const Isa isa = widths().back();
  const Count good = sweep("e2m1", isa, ElementEncoder{kE2M1, Rounding::kEven}, even);
  CHECK(good.swept == 2139095041u);
  CHECK(good.wrong == 0);
  // The published number: the ties 0.25, 1.25, 2.5 and 5 go up instead of down.
  const Count away = sweep("away", isa, ElementEncoder{kE2M1, Rounding::kAway}, even, 0, 0);
  CHECK(away.wrong == 4);
  // Everything that ties-to-even takes up (breakpoints of spec/scalars.md section 2): above the
  // ties 0.25, 1.25, 2.5 and 5, and from the ties 0.75, 1.75 and 3.5 on.
  const std::uint64_t rounded_up = between(0.25f, 0.5f) - 1 + between(0.75f, 1.0f) +
                                   between(1.25f, 1.5f) - 1 + between(1.75f, 2.0f) +
                                   between(2.5f, 3.0f) - 1 + between(3.5f, 4.0f) +
                                   between(5.0f, 6.0f) - 1;
  const Count trunc = sweep("trunc", isa, ElementEncoder{kE2M1, Rounding::kTrunc}, even, 0, 0);
  CHECK(trunc.wrong == rounded_up);
  // BF16 moves the half ulp beside each of the seven ties onto the tie.
  const Count twice = sweep("bf16", isa, DoubleRoundingEncoder{kE2M1}, even, 0, 0);
  CHECK(twice.wrong == 7 * 0x8000u);
  std::printf(
      "sabotage, %s: away %llu, trunc %llu, double rounding %llu of %llu differ\n", name_of(isa),
      static_cast<unsigned long long>(away.wrong), static_cast<unsigned long long>(trunc.wrong),
      static_cast<unsigned long long>(twice.wrong), static_cast<unsigned long long>(good.swept));
}

TEST_CASE("the covering set contains every pattern at which ties matter") {
  const Steps steps(kE2M1);
  const std::vector<std::uint32_t> patterns = steps.patterns().patterns();
  const std::vector<std::uint32_t> want = wants(all_segments(kE2M1, steps.of[0]), patterns);
  std::map<std::uint32_t, int> differing;
  std::vector<std::uint32_t> got(patterns.size());
  encode_all(Isa::kLane1, ElementEncoder{kE2M1, Rounding::kAway}, patterns.data(), got.data(),
             patterns.size(), 0);
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (got[i] != want[i]) ++differing[patterns[i]];
  }
  CHECK(differing.size() == 8);  // four ties, both signs
}

TEST_SUITE_END();
