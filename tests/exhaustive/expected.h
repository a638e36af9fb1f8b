// expected.h: what the exact oracle says about every binary32 pattern, as segments, and the
// covering set of patterns around every place where something can go wrong.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "formats/contracts/options.h"
#include "formats/scalars.h"
#include "sim/oracle/thresholds.h"
#include "tests/exhaustive/sweep.h"

namespace fp4scope::test {

inline constexpr Rounding kDeterministic[] = {Rounding::kEven, Rounding::kAway, Rounding::kZero,
                                              Rounding::kTrunc};
const char* name_of(Rounding rounding);
inline std::string title(const NamedSpec& named, Rounding rounding) {
  return std::string(named.name) + " " + name_of(rounding);
}

// All 2^32 patterns of a saturating cast whose magnitude codes are `steps`: the sign bit is copied,
// NaN saturates, unsigned formats send negative input to code 0, fnuz formats have no -0.
std::vector<Segment> all_segments(MinifloatSpec spec, const std::vector<oracle::Step>& steps);
// All 2^32 patterns of an E8M0 cast.
std::vector<Segment> all_segments(oracle::E8m0Cast rule);
// All 2^32 patterns of the narrowing to BF16 (spec/scalars.md section 7): RNE, overflow to
// infinity, the sign bit is copied, every NaN becomes 0x7FFF.
std::vector<Segment> bf16_segments();
// The part without a sign bit, up to infinity: 2 139 095 041 patterns.
std::vector<Segment> non_negative_numbers(const std::vector<Segment>& segments);
// Codes of patterns, which are sorted.
std::vector<std::uint32_t> wants(const std::vector<Segment>& segments,
                                 const std::vector<std::uint32_t>& patterns);

// A sorted set of patterns, both signs, filled up to a multiple of 16.
class PatternSet {
 public:
  // A magnitude with its neighbours up to 3 ulps away.
  void add_around(std::uint32_t magnitude);
  void add(std::uint32_t magnitude);
  std::vector<std::uint32_t> patterns() const;

 private:
  std::vector<std::uint32_t> magnitudes_;
};
// Zero, subnormals, every exponent edge, infinity, NaNs, patterned fractions, and every
// `stride`-th magnitude.
PatternSet common_patterns(std::uint32_t stride);

}  // namespace fp4scope::test
