// amax_test.cc: the maxima of every instruction set against a loop that does no more than its
// definition says.
#include "sim/amax.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/cross/hard_blocks.h"

namespace fp4scope {
namespace {

std::uint32_t defined_amax(const std::vector<float>& x) {
  float amax = 0;
  bool has_nan = false;
  for (const float v : x) {
    if (std::isnan(v)) {
      has_nan = true;
    } else {
      amax = std::fmax(amax, std::fabs(v));
    }
  }
  return std::bit_cast<std::uint32_t>(amax) | (has_nan ? 0x80000000u : 0u);
}
// What a stored word means, by the definitions of the two types.
float widened(std::uint16_t word, SourceType source) {
  if (source == SourceType::kBf16) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(word) << 16);
  }
  const int exponent = word >> 10 & 31, fraction = word & 1023;
  const float sign = word >> 15 != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction != 0 ? std::nanf("") : sign * INFINITY;
  return exponent == 0 ? sign * std::ldexp(static_cast<float>(fraction), -24)
                       : sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("amax of every length, place and instruction set") {
  test::BlockSource source(1);
  std::int64_t compared = 0, wrong = 0;
  for (std::int64_t n = 0; n <= 300; ++n) {
    for (const int kind : {0, 1, 2, 3}) {  // numbers; small ones; with infinities; with NaN
      std::vector<std::uint32_t> bits(static_cast<std::size_t>(n) + 1);
      std::vector<std::uint16_t> words(bits.size());
      const std::uint32_t span = kind == 1 ? 0x00900000u : kind == 3 ? 0x7fffffffu : 0x7f800000u;
      for (std::size_t i = 0; i < bits.size(); ++i) {
        const std::uint32_t sign = source.coin() ? 0x80000000u : 0u;
        bits[i] = source.below(span) | sign;
        if (kind == 2 && source.below(40) == 0) bits[i] = 0x7f800000u | sign;
        words[i] = static_cast<std::uint16_t>(bits[i] >> 16);
      }
      // One element further in: not aligned to anything.
      std::vector<float> x(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::bit_cast<float>(bits[i + 1]);
      const auto* at = reinterpret_cast<const float*>(bits.data()) + 1;
      for (const Backend* backend : cpu_backends()) {
        if (!backend->available().ok) continue;
        ++compared;
        wrong += vector_amax_bits(*backend, at, n) != defined_amax(x);
        for (const SourceType type : {SourceType::kBf16, SourceType::kF16}) {
          std::vector<float> wide(static_cast<std::size_t>(n));
          for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = widened(words[i + 1], type);
          ++compared;
          wrong += vector_amax_bits(*backend, words.data() + 1, n, type) != defined_amax(wide);
        }
      }
      wrong += vector_amax_bits(at, n) != defined_amax(x);
    }
  }
  CHECK(compared >= 301 * 4 * 3);
  CHECK(wrong == 0);
}

TEST_SUITE_END();

}  // namespace fp4scope
