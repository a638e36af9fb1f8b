// grid_test.cc: the short ways of formats/grid.h and formats/widen.h against the long ones: grid
// values against encode() and decode(), which the other tests here compare with the exact oracle;
// the division by a constant against the division; binary16 against decode().
#include "formats/grid.h"

#include <doctest/doctest.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>

#include "formats/widen.h"

using namespace fp4scope;

namespace {

using L = Lane<1>;

// Differences over the patterns first, first + step, ... below end.
template <class Wrong>
std::int64_t sweep(std::uint64_t first, std::uint64_t end, std::uint64_t step, const Wrong& wrong) {
  const auto n = static_cast<std::int64_t>((end - first + step - 1) / step);
  std::int64_t count = 0;
#pragma omp parallel for reduction(+ : count)
  for (std::int64_t i = 0; i < n; ++i) {
    count +=
        wrong(static_cast<std::uint32_t>(first + static_cast<std::uint64_t>(i) * step)) ? 1 : 0;
  }
  return count;
}

bool is_wrong_on_grid(MinifloatSpec spec, std::uint32_t bits) {
  const float a = bit_cast<float>(bits & kMagnitudeMask);
  const SaturationLimit limit = saturation_limit(spec, Rounding::kEven);
  if (!(a <= kFloatMax) || limit.is_exceeded_by(a)) return false;
  const std::uint32_t code = encode<L>(spec, Rounding::kEven, a);
  const GridPoint<L> got = nearest_on_grid<L>(spec, a), negative = nearest_on_grid<L>(spec, -a);
  if (-negative.value != got.value) return true;
  return (got.code & spec.magnitude_mask()) != code ||
         bit_cast<std::uint32_t>(got.value) != bit_cast<std::uint32_t>(decode<L>(spec, code));
}

bool is_wrong_quotient(float d, std::uint32_t bits) {
  const float v = bit_cast<float>(bits);
  const float want = v / d;
  const float magnitude = want < 0 ? -want : want;
  // Below, quotients are subnormal; above, products of the remainder overflow.
  if (!(magnitude >= 0x1p-126f * 0x1p24f && magnitude <= 0x1p100f)) return false;
  return bit_cast<std::uint32_t>(divide_by_constant<L>(v, d, 1.0f / d)) !=
         bit_cast<std::uint32_t>(want);
}

void check_all(std::uint64_t step) {
  constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
  constexpr std::uint64_t kMagnitudes = std::uint64_t{1} << 31;
  for (const auto& [name, spec] : {std::pair{"e2m1", kE2M1},
                                   {"e2m3", kE2M3},
                                   {"e3m2", kE3M2},
                                   {"e4m3", kE4M3},
                                   {"e5m2", kE5M2},
                                   {"e1m2", kE1M2}}) {
    const MinifloatSpec s = spec;
    const std::int64_t wrong =
        sweep(0, kMagnitudes, step, [&](std::uint32_t bits) { return is_wrong_on_grid(s, bits); });
    std::printf("%s on its grid: %llu inputs, %lld differ\n", name,
                static_cast<unsigned long long>((kMagnitudes + step - 1) / step),
                static_cast<long long>(wrong));
    CHECK(wrong == 0);
  }
  // 6 * 448 and 6 * 256: what four-over-six divides by.
  for (const float d : {2688.0f, 1536.0f}) {
    const std::int64_t wrong =
        sweep(0, kAll, step, [&](std::uint32_t bits) { return is_wrong_quotient(d, bits); });
    std::printf("v / %g: %llu inputs, %lld differ\n", static_cast<double>(d),
                static_cast<unsigned long long>((kAll + step - 1) / step),
                static_cast<long long>(wrong));
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_SUITE_BEGIN("covering");

TEST_CASE("grid values and quotients by constants: every 97th input, and all beside ties") {
  check_all(97);
  std::int64_t near = 0;
  for (const auto& spec : {kE2M1, kE2M3, kE3M2, kE4M3, kE5M2, kE1M2}) {
    for (std::uint32_t code = 0; code < spec.max_finite_code(); ++code) {
      const float low = decode<L>(spec, code), high = decode<L>(spec, code + 1);
      const auto tie = bit_cast<std::uint32_t>(low + (high - low) * 0.5f);
      for (std::uint32_t bits = tie - 64; bits <= tie + 64; ++bits) {
        CHECK_FALSE(is_wrong_on_grid(spec, bits));
        ++near;
      }
    }
  }
  std::printf("beside ties: %lld inputs\n", static_cast<long long>(near));
}

TEST_CASE("binary16 words") {
  for (std::uint32_t word = 0; word < 65536; ++word) {
    const float want = decode<L>(kFP16, word), got = widen_binary16<L>(word);
    const bool both_nan = want != want && got != got;
    REQUIRE((both_nan || bit_cast<std::uint32_t>(want) == bit_cast<std::uint32_t>(got)));
  }
}

TEST_SUITE_END();
TEST_SUITE_BEGIN("full");
TEST_CASE("grid values and quotients by constants: all 2^32 inputs") {
  check_all(1);
}
TEST_SUITE_END();
