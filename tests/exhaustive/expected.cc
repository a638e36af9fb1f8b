// expected.cc: segments and covering sets (design/architecture.md sections 7 and 15).
#include "tests/exhaustive/expected.h"

#include <algorithm>
#include <cstdio>

namespace fp4scope::test {
namespace {

constexpr std::uint32_t kMagnitudes = 0x80000000u;  // number of magnitude patterns

}  // namespace

const char* name_of(Rounding rounding) {
  switch (rounding) {
    case Rounding::kEven:
      return "even";
    case Rounding::kAway:
      return "away";
    case Rounding::kZero:
      return "zero";
    case Rounding::kTrunc:
      return "trunc";
    case Rounding::kStochastic:
      return "stochastic";
  }
  return "";
}

void report_difference(const char* what, Isa isa, std::uint32_t random_byte, std::uint32_t pattern,
                       std::uint32_t want, std::uint32_t got) {
  std::printf("DIFFERS %s, %s, random byte %u: input 0x%08x (%a), want 0x%x, got 0x%x\n", what,
              name_of(isa), random_byte, pattern, static_cast<double>(bit_cast<float>(pattern)),
              want, got);
}

std::vector<Segment> all_segments(MinifloatSpec spec, const std::vector<oracle::Step>& steps) {
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    // The last step reaches beyond infinity: NaN saturates.
    const std::uint32_t end = i + 1 < steps.size() ? steps[i + 1].first : kMagnitudes;
    segments.push_back({steps[i].first, end - steps[i].first, steps[i].code});
  }
  const std::size_t positive = segments.size();
  for (std::size_t i = 0; i < positive; ++i) {
    Segment s = segments[i];
    s.first |= kSignBit;
    if (!spec.is_signed) {
      s.want = 0;
    } else if (spec.special != Special::kFnuz || s.want != 0) {
      s.want |= spec.sign_mask();
    }
    segments.push_back(s);
  }
  return segments;
}

std::vector<Segment> all_segments(oracle::E8m0Cast rule) {
  const auto cast = [&](std::uint32_t bits) {
    return oracle::cast_e8m0(rule, oracle::exact(bit_cast<float>(bits)));
  };
  const std::vector<oracle::Step> steps = oracle::thresholds_e8m0(rule);
  std::vector<Segment> segments;
  for (const std::uint32_t sign : {0u, kSignBit}) {
    segments.push_back({sign, 1, cast(sign)});
    // Every rule either ignores the sign or sends all negative numbers to one byte.
    const bool one_byte = rule == oracle::E8m0Cast::kNearestMlDtypes && sign != 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::uint32_t end = i + 1 < steps.size() ? steps[i + 1].first : kInfBits;
      segments.push_back(
          {steps[i].first | sign, end - steps[i].first, one_byte ? 255 : steps[i].code});
    }
    segments.push_back({kInfBits | sign, 1, cast(kInfBits | sign)});
    segments.push_back({(kInfBits + 1) | sign, kMagnitudes - kInfBits - 1, 255});
  }
  return segments;
}

std::vector<Segment> bf16_segments() {
  const std::vector<oracle::Step> steps = oracle::steps_of(
      [](std::uint32_t bits) {
        return oracle::cast_special(kBF16, oracle::exact(bit_cast<float>(bits)), Rounding::kEven,
                                    0x7fff);
      },
      0, kInfBits);
  std::vector<Segment> segments;
  for (const std::uint32_t sign : {0u, kSignBit}) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::uint32_t end = i + 1 < steps.size() ? steps[i + 1].first : kInfBits + 1;
      segments.push_back({steps[i].first | sign, end - steps[i].first, steps[i].code | sign >> 16});
    }
    segments.push_back({(kInfBits + 1) | sign, kMagnitudes - kInfBits - 1, 0x7fff});
  }
  return segments;
}

std::vector<Segment> non_negative_numbers(const std::vector<Segment>& segments) {
  std::vector<Segment> kept;
  for (Segment s : segments) {
    if (s.first > kInfBits) continue;
    s.count = std::min<std::uint64_t>(s.count, kInfBits + 1 - s.first);
    kept.push_back(s);
  }
  return kept;
}

std::vector<std::uint32_t> wants(const std::vector<Segment>& segments,
                                 const std::vector<std::uint32_t>& patterns) {
  std::vector<std::uint32_t> codes;
  codes.reserve(patterns.size());
  std::size_t at = 0;
  for (const std::uint32_t p : patterns) {
    while (at + 1 < segments.size() && segments[at + 1].first <= p) ++at;
    codes.push_back(segments[at].want);
  }
  return codes;
}

void PatternSet::add(std::uint32_t magnitude) {
  magnitudes_.push_back(magnitude & kMagnitudeMask);
}

void PatternSet::add_around(std::uint32_t magnitude) {
  for (std::uint32_t d = 0; d <= 6; ++d) add(magnitude + d - 3u);
}

std::vector<std::uint32_t> PatternSet::patterns() const {
  std::vector<std::uint32_t> all = magnitudes_;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const std::size_t positive = all.size();
  for (std::size_t i = 0; i < positive; ++i) all.push_back(all[i] | kSignBit);
  while (all.size() % 16 != 0) all.push_back(all.back());
  return all;
}

PatternSet common_patterns(std::uint32_t stride) {
  PatternSet set;
  for (std::uint32_t field = 0; field <= 255; ++field) {
    set.add_around(field << 23);              // also zero, infinity and the first NaNs
    set.add_around(field << 23 | 0x400000u);  // 1.5 of the binade, the quiet NaN
    set.add_around(field << 23 | 0x7fffffu);
    for (int bit = 0; bit < 23; ++bit) {
      set.add(field << 23 | 1u << bit);                // a walking one
      set.add((field << 23 | 0x7fffffu) ^ 1u << bit);  // a walking zero
    }
  }
  set.add(kMagnitudeMask);
  for (std::uint64_t p = 0; p < kMagnitudes; p += stride) set.add(static_cast<std::uint32_t>(p));
  return set;
}

}  // namespace fp4scope::test
