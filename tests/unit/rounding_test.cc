// rounding_test.cc: rounding to odd against its definition in integer arithmetic: the exact value
// when representable, otherwise the truncated significand with its lowest bit set.
#include "formats/rounding.h"

#include <doctest/doctest.h>

namespace fp4scope {
namespace {

std::uint64_t next(std::uint64_t& state) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return state >> 16;
}

// Exact product of two positive normal floats, rounded to odd; inside the normal range.
std::uint32_t product_by_definition(std::uint32_t a, std::uint32_t b) {
  const std::uint64_t p = ((a & 0x7fffffull) | 0x800000ull) * ((b & 0x7fffffull) | 0x800000ull);
  int exponent = static_cast<int>(a >> 23) + static_cast<int>(b >> 23) - 127;
  int shift = 23;
  if (p >> 47) {
    ++shift;
    ++exponent;
  }
  const std::uint64_t kept = p >> shift;
  const bool sticky = (p & ((1ull << shift) - 1)) != 0;
  return static_cast<std::uint32_t>(exponent) << 23 |
         static_cast<std::uint32_t>((kept & 0x7fffffull) | (sticky ? 1 : 0));
}

TEST_CASE("multiply_round_to_odd is the exact product with a sticky last bit") {
  std::uint64_t state = 7;
  int differing = 0;
  for (int i = 0; i < 2000000; ++i) {
    const std::uint64_t r = next(state), s = next(state);
    // a: any 24-bit significand; b: at most 12 significant bits, as in HiF4's BF16 reciprocals.
    const auto a = static_cast<std::uint32_t>(100 + r % 60) << 23 |
                   (static_cast<std::uint32_t>(s) & (i % 4 == 0 ? 0x7f0000u : 0x7fffffu));
    const auto b = static_cast<std::uint32_t>(110 + r % 30) << 23 |
                   (static_cast<std::uint32_t>(s >> 24) & 0x7ff000u);
    const float got = multiply_round_to_odd<Lane<1>>(bit_cast<float>(a), bit_cast<float>(b));
    differing += bit_cast<std::uint32_t>(got) != product_by_definition(a, b);
  }
  CHECK(differing == 0);
}

TEST_CASE("lanes of multiply_round_to_odd equal the scalar") {
  std::uint64_t state = 11;
  int differing = 0;
  for (int i = 0; i < 20000; ++i) {
    Lane<16>::U a{}, b{};
    for (int l = 0; l < 16; ++l) {
      a[l] = static_cast<std::uint32_t>(next(state)) % 0x30000000u + 0x28000000u;
      b[l] = (static_cast<std::uint32_t>(next(state)) & 0x07fff000u) + 0x3c000000u;
    }
    const auto got = bit_cast<Lane<16>::U>(
        multiply_round_to_odd<Lane<16>>(bit_cast<Lane<16>::F>(a), bit_cast<Lane<16>::F>(b)));
    for (int l = 0; l < 16; ++l) {
      const float want = multiply_round_to_odd<Lane<1>>(bit_cast<float>(std::uint32_t{a[l]}),
                                                        bit_cast<float>(std::uint32_t{b[l]}));
      differing += got[l] != bit_cast<std::uint32_t>(want);
    }
  }
  CHECK(differing == 0);
}

struct OddCase {
  const char* name;
  double in;
  std::uint32_t want;
};
constexpr OddCase kOddCases[] = {
    {"one is exact", 1.0, 0x3f800000},
    {"a tail sets the last bit", 1.0 + 0x1p-40, 0x3f800001},
    {"an odd neighbour stays", 1.0 + 0x1p-23 + 0x1p-30, 0x3f800001},
    {"just below a power of two truncates", 2.0 - 0x1p-52, 0x3fffffff},
    {"negative", -(1.0 + 0x1p-40), 0xbf800001},
    {"zero keeps its sign", -0.0, 0x80000000},
    {"largest binary32 is exact", 0x1.fffffep127, 0x7f7fffff},
    {"above the range saturates at the odd FLT_MAX", 0x1p128, 0x7f7fffff},
    {"infinity stays", __builtin_inf(), 0x7f800000},
    {"smallest subnormal is exact", 0x1p-149, 0x00000001},
    {"half of it becomes sticky", 0x1p-150, 0x00000001},
    {"far below becomes sticky", 0x1p-1074, 0x00000001},
    {"subnormal with a tail", 0x1p-148 + 0x1p-170, 0x00000003},
    {"largest subnormal with a tail", 0x1p-126 - 0x1p-170, 0x007fffff},
    {"smallest normal", 0x1p-126, 0x00800000},
};
TEST_CASE("binary64 rounds to odd in one step, subnormals and overflow included") {
  for (const OddCase& c : kOddCases) {
    CHECK_MESSAGE(bit_cast<std::uint32_t>(round_to_odd(c.in)) == c.want, c.name);
  }
  static_assert(round_to_odd(1.5) == 1.5f);
}

}  // namespace
}  // namespace fp4scope
