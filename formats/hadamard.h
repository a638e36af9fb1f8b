// hadamard.h: random Hadamard transform of n = 16, 32, 64 or 128 neighbours (spec/nvfp4.md section
// 3.5): y = x . diag(s) . H / sqrt(n), H in Sylvester order, H[i][j] = (-1)^popcount(i & j).
// sum=mma-f32: S = the exact sum of +-x. n = 16: y = S/4, one rounding to binary32. Other n:
//   y = fl(fl(S) * c), c = fl(1/sqrt(n)).
// sum=seq: S = 0, then S = fl(S +- x_i) in element order; y = fl(S * c), c = 1/4 for n = 16.
// A zero sum is +0. A NaN, or infinities of both signs, give NaN; otherwise Inf stays Inf.
// Scalar: one group at a time. The caller rounds y to the input type.
#pragma once
#include "formats/philox.h"
#include "formats/rounding.h"

namespace fp4scope {

inline constexpr int kMaxHadamard = 128;

// fl(1/sqrt(n)); exact for 16 and 64.
FP4SCOPE_HD constexpr float hadamard_factor(int n) {
  return n == 16 ? 0.25f : n == 32 ? 0x1.6a09e6p-3f : n == 64 ? 0.125f : 0x1.6a09e6p-4f;
}

// Signs as bits, bit i%32 of word i/32: 1 = -1. `signs` as in RhtOptions: 0 the published vector of
// size 16, 1 all +1, N + 2 the first Philox call with key N and counter 0.
struct HadamardSigns {
  std::uint32_t words[4];
  FP4SCOPE_HD constexpr std::uint32_t of(int i) const { return words[i / 32] >> (i % 32) & 1u; }
};
FP4SCOPE_HD constexpr HadamardSigns hadamard_signs(std::uint64_t signs) {
  HadamardSigns s{};
  // 1 1 1 -1 1 -1 -1 -1 -1 -1 -1 1 -1 1 -1 -1, element 0 in bit 0.
  if (signs == 0) s.words[0] = 0xd7e8u;
  if (signs < 2) return s;
  const std::uint64_t seed = signs - 2;
  const std::uint32_t key[2] = {static_cast<std::uint32_t>(seed),
                                static_cast<std::uint32_t>(seed >> 32)};
  const std::uint32_t counter[4] = {0, 0, 0, 0};
  philox4x32_10<Lane<1>>(counter, key, s.words);
  return s;
}

// m * 2^exponent rounded once to binary32, to nearest even; exponent >= -151. Zero is +0.
FP4SCOPE_HD constexpr float round_integer_to_binary32(bool is_negative, std::uint64_t m,
                                                      int exponent) {
  if (m == 0) return 0.0f;
  const std::uint32_t sign = is_negative ? kSignBit : 0u;
  const int top = 63 - __builtin_clzll(m);
  const int e = top + exponent;
  if (e > 127) return bit_cast<float>(sign | kInfBits);
  const int quantum = e < -126 ? -149 : e - 23;
  const int drop = quantum - exponent;  // at most 40, or at most 2 below 2^-126
  std::uint64_t kept = m;
  if (drop <= 0) {
    kept = m << -drop;
  } else {
    kept = m >> drop;
    const std::uint64_t rest = m & ((1ull << drop) - 1), half = 1ull << (drop - 1);
    if (rest > half || (rest == half && (kept & 1u) != 0)) ++kept;
  }
  // `kept` carries the hidden bit of a normal number, hence 126; a carry goes on into the exponent.
  const std::uint32_t field = e < -126 ? 0u : static_cast<std::uint32_t>(e + 126) << 23;
  return bit_cast<float>(sign | (field + static_cast<std::uint32_t>(kept)));
}

// Integer significand and the exponent of its unit: |x| = significand * 2^unit.
struct BinaryParts {
  std::uint64_t significand;
  int unit;
};
FP4SCOPE_HD constexpr BinaryParts binary_parts(float x) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(x);
  const int field = static_cast<int>(bits >> 23 & 0xffu);
  const std::uint32_t fraction = bits & 0x007fffffu;
  if (field == 0) return {fraction, -149};
  return {fraction | 0x00800000u, field - 150};
}

// Exact sums of +-x for any exponents: a two's complement integer of 320 bits in units of 2^-149.
// |sum| < 128 * 2^128 = 2^284 units of 2^-149 ... 2^135, so bit 319 is the sign.
struct LongSum {
  std::uint64_t words[5];

  FP4SCOPE_HD constexpr void add(float x, bool is_negated) {
    const BinaryParts parts = binary_parts(x);
    const bool minus = (bit_cast<std::uint32_t>(x) >> 31 != 0) != is_negated;
    const int shift = parts.unit + 149, word = shift / 64, bit = shift % 64;
    std::uint64_t addend[5] = {};
    addend[word] = parts.significand << bit;
    if (bit > 40) addend[word + 1] = parts.significand >> (64 - bit);
    // a - b = a + ~b + 1
    std::uint64_t carry = minus ? 1 : 0;
    for (int w = 0; w < 5; ++w) {
      const std::uint64_t v = minus ? ~addend[w] : addend[w];
      const std::uint64_t s = words[w] + v;
      const std::uint64_t t = s + carry;
      carry = static_cast<std::uint64_t>(s < v) | static_cast<std::uint64_t>(t < s);
      words[w] = t;
    }
  }

  // The sum times 2^scale, rounded once. The bits below the highest 64 become a sticky last bit,
  // far below the rounding position.
  FP4SCOPE_HD constexpr float rounded(int scale) const {
    std::uint64_t m[5] = {};
    const bool is_negative = words[4] >> 63 != 0;
    std::uint64_t carry = is_negative ? 1 : 0;
    int top = 0;
    for (int w = 0; w < 5; ++w) {
      m[w] = (is_negative ? ~words[w] : words[w]) + carry;
      carry = carry != 0 && m[w] == 0 ? 1 : 0;
      if (m[w] != 0) top = w;
    }
    std::uint64_t high = m[top];
    int exponent = 64 * top - 149 + scale;
    if (top > 0) {
      const int free = __builtin_clzll(high);
      bool sticky = free > 0 ? (m[top - 1] << free) != 0 : m[top - 1] != 0;
      if (free > 0) high = high << free | m[top - 1] >> (64 - free);
      for (int w = 0; w < top - 1; ++w) sticky = sticky || m[w] != 0;
      high |= sticky ? 1u : 0u;
      exponent -= free;
    }
    return round_integer_to_binary32(is_negative, high, exponent);
  }
};

FP4SCOPE_HD constexpr bool hadamard_is_negated(HadamardSigns signs, int i, int j) {
  return ((static_cast<std::uint32_t>(__builtin_popcount(static_cast<unsigned>(i & j))) & 1u) ^
          signs.of(i)) != 0;
}

// Exact sums of a finite group. With all elements multiples of 2^unit and below 2^(unit + 55) the
// n sums fit into 64-bit integers, and n log2(n) integer additions give them all.
FP4SCOPE_HD constexpr void hadamard_exact(int n, HadamardSigns signs, const float* x, float* y) {
  int unit = 200, top = -200;
  for (int i = 0; i < n; ++i) {
    const BinaryParts p = binary_parts(x[i]);
    if (p.significand == 0) continue;
    const int zeros = 63 - __builtin_clzll(p.significand & (0 - p.significand));
    if (p.unit + zeros < unit) unit = p.unit + zeros;
    const int e = p.unit + 64 - __builtin_clzll(p.significand);
    if (e > top) top = e;
  }
  const int scale = n == 16 ? -2 : 0;
  if (top - unit <= 55) {
    std::int64_t v[kMaxHadamard] = {};
    for (int i = 0; i < n; ++i) {
      const BinaryParts p = binary_parts(x[i]);
      if (p.significand == 0) continue;
      const int shift = p.unit - unit;
      const auto magnitude = static_cast<std::int64_t>(
          shift >= 0 ? p.significand << shift : p.significand >> -shift);  // zeros only
      const bool minus = (bit_cast<std::uint32_t>(x[i]) >> 31 ^ signs.of(i)) != 0;
      v[i] = minus ? -magnitude : magnitude;
    }
    for (int h = 1; h < n; h *= 2) {
      for (int i = 0; i < n; ++i) {
        if ((i & h) != 0) continue;
        const std::int64_t a = v[i], b = v[i + h];
        v[i] = a + b;
        v[i + h] = a - b;
      }
    }
    for (int j = 0; j < n; ++j) {
      const auto magnitude = static_cast<std::uint64_t>(v[j] < 0 ? -v[j] : v[j]);
      y[j] = round_integer_to_binary32(v[j] < 0, magnitude, unit + scale);
    }
  } else {
    for (int j = 0; j < n; ++j) {
      LongSum sum{};
      for (int i = 0; i < n; ++i) sum.add(x[i], hadamard_is_negated(signs, i, j));
      y[j] = sum.rounded(scale);
    }
  }
  if (n == 16) return;
  for (int j = 0; j < n; ++j) y[j] = y[j] * hadamard_factor(n);
}

// One group; y is binary32 and may not overlap x.
FP4SCOPE_HD constexpr void hadamard(int n, HadamardSigns signs, RhtSum sum, const float* x,
                                    float* y) {
  bool is_finite = true;
  for (int i = 0; i < n; ++i) {
    is_finite = is_finite && (bit_cast<std::uint32_t>(x[i]) & kMagnitudeMask) < kInfBits;
  }
  if (is_finite && sum == RhtSum::kMmaF32) {
    hadamard_exact(n, signs, x, y);
    return;
  }
  // Non-finite input: infinities and NaN come out of the additions themselves.
  for (int j = 0; j < n; ++j) {
    float s = 0.0f;
    for (int i = 0; i < n; ++i) {
      float v = x[i];
      // The finite part of an infinite sum does not matter, and must not overflow on its own.
      if (!is_finite && sum == RhtSum::kMmaF32 &&
          (bit_cast<std::uint32_t>(v) & kMagnitudeMask) < kInfBits) {
        v = 0.0f;
      }
      s = hadamard_is_negated(signs, i, j) ? s - v : s + v;
    }
    y[j] = s * hadamard_factor(n);
  }
}

}  // namespace fp4scope
