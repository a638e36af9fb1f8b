// hard_blocks.cc: see the header.
#include "tests/cross/hard_blocks.h"

#include <cmath>

#include "formats/lane.h"

namespace fp4scope::test {
namespace {

float power(int e) {
  return std::ldexp(1.0f, e);
}

// A value some ulps away, never across zero or into NaN.
float nudged(float v, int ulps) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(v);
  const std::uint32_t magnitude = bits & kMagnitudeMask;
  const std::int64_t moved = static_cast<std::int64_t>(magnitude) + ulps;
  if (moved < 0 || moved > kFloatMaxBits) return v;
  return bit_cast<float>((bits & kSignBit) | static_cast<std::uint32_t>(moved));
}

float with_random_sign(BlockSource& s, float v) {
  return s.coin() ? v : -v;
}

// Significand of up to `bits` fraction bits in [1, 2).
float significand(BlockSource& s, int fraction_bits) {
  const std::uint32_t fraction = s.below(1u << fraction_bits);
  return 1.0f + std::ldexp(static_cast<float>(fraction), -fraction_bits);
}

// Exponents of ordinary data most of the time, the whole range now and then.
int exponent(BlockSource& s) {
  if (s.below(4) == 0) return static_cast<int>(s.below(276)) - 149;
  return static_cast<int>(s.below(24)) - 12;
}

// A midpoint or a value of the element, in elements' own units: k halves of its last place.
float grid_point(BlockSource& s, const Recipe& recipe) {
  const MinifloatSpec& e = recipe.format.element;
  const int low = e.min_exponent() - e.mantissa_bits - 1;  // half the smallest subnormal
  if (s.below(3) == 0) {
    return std::ldexp(static_cast<float>(s.below(2u << (e.mantissa_bits + 1))), low);
  }
  const int exponent_span = e.max_exponent() - e.min_exponent() + 1;
  const int at =
      e.min_exponent() + static_cast<int>(s.below(static_cast<std::uint32_t>(exponent_span)));
  return std::ldexp(significand(s, e.mantissa_bits + 1), at);
}

void tie_aligned(BlockSource& s, const Recipe& recipe, float encode_scale, std::span<float> block) {
  const MinifloatSpec& e = recipe.format.element;
  const float element_max =
      std::ldexp(static_cast<float>((1u << e.mantissa_bits) +
                                    (e.max_finite_code() & ((1u << e.mantissa_bits) - 1u))),
                 e.max_exponent() - e.mantissa_bits);
  float scale = 1;  // decode scale of the block
  switch (recipe.family) {
    case Family::kMx:
      // At 2^-127 the quotient of rceil becomes subnormal, the one place where its machine forms
      // differ from the exact rule.
      scale = power(s.below(6) == 0 ? static_cast<int>(s.below(3)) - 128 : exponent(s));
      break;
    case Family::kNvfp4:  // an E4M3 value over g
      scale = std::ldexp(significand(s, 3), static_cast<int>(s.below(15)) - 6) / encode_scale;
      break;
    case Family::kHif4: {  // 7 is the largest normalised magnitude
      // An E6M2 value, or the inverse of its BF16 reciprocal: what is multiplied is the latter, so
      // only there do products come close to a threshold in binary32.
      static constexpr float kReciprocals[] = {1.0f, 0x1.9ap-1f, 0x1.56p-1f, 0x1.24p-1f};
      const std::uint32_t fraction = s.below(4);
      const float value = 1.0f + 0.25f * static_cast<float>(fraction);
      scale = std::ldexp(s.coin() ? value : 1.0f / kReciprocals[fraction],
                         static_cast<int>(s.below(64)) - 48);
      break;
    }
    case Family::kInt4:
    case Family::kFp8:
      scale = std::ldexp(significand(s, s.coin() ? 7 : 23), exponent(s) / 2);
      break;
    case Family::kPass:
      break;
  }
  for (float& v : block) {
    float point = grid_point(s, recipe);
    if (recipe.family == Family::kHif4) point *= power(static_cast<int>(s.below(3)));
    v = nudged(with_random_sign(s, point * scale), static_cast<int>(s.below(5)) - 2);
  }
  if (recipe.family == Family::kHif4) {
    // Maxima of 4 and 8 elements on the thresholds 2 and 4 of the level bits.
    for (std::size_t i = 0; i < block.size(); i += 4) {
      if (s.coin())
        block[i] = nudged(scale * (s.coin() ? 4.0f : 2.0f), static_cast<int>(s.below(3)) - 1);
    }
    block[s.below(static_cast<std::uint32_t>(block.size()))] =
        scale * (6.5f + 0.25f * static_cast<float>(s.below(6)));
  } else {
    block[s.below(static_cast<std::uint32_t>(block.size()))] =
        nudged(with_random_sign(s, element_max * scale), static_cast<int>(s.below(3)) - 1);
  }
}

std::uint32_t edge_field(BlockSource& s) {
  static constexpr std::uint32_t kFields[] = {
      0,   1,   2,   3,   22,  23,  24,  63,  79,  80,  95,  100, 118, 119, 120, 121, 122, 123,
      124, 125, 126, 127, 128, 129, 130, 131, 132, 142, 143, 160, 192, 250, 251, 252, 253, 254};
  return kFields[s.below(std::size(kFields))];
}

std::uint32_t patterned_fraction(BlockSource& s) {
  const std::uint32_t one = 1u << s.below(23);
  switch (s.below(5)) {
    case 0:
      return one;
    case 1:
      return 0x7fffffu ^ one;
    case 2:
      return 0;
    case 3:
      return 0x7fffffu;
    default:
      return s.bits() & (0x7fffffu << s.below(23)) & 0x7fffffu;
  }
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllEqual:
      return "all equal";
    case Kind::kOneHot:
      return "one hot";
    case Kind::kTieHeavyBf16:
      return "tie-heavy BF16";
    case Kind::kTieAligned:
      return "tie-aligned";
    case Kind::kPatternedExponents:
      return "patterned exponents";
    case Kind::kNan:
      return "NaN";
    case Kind::kInfinity:
      return "infinity";
    case Kind::kNegativeZero:
      return "negative zero";
    case Kind::kSubnormal:
      return "subnormal";
    case Kind::kMaximal:
      return "maximal";
    case Kind::kScaleThreshold:
      return "scale threshold";
    case Kind::kSimilar:
      return "similar exponents";
    case Kind::kAnyBits:
      return "any bits";
  }
  return "";
}

void fill_block(BlockSource& s, Kind kind, const Recipe& recipe, float encode_scale,
                std::span<float> block) {
  const auto n = static_cast<std::uint32_t>(block.size());
  const auto similar = [&](int fraction_bits) {
    const int top = exponent(s);
    for (float& v : block) {
      const int e = top - static_cast<int>(s.below(10));
      v = with_random_sign(s, std::ldexp(significand(s, fraction_bits), e));
    }
  };
  switch (kind) {
    case Kind::kAllEqual: {
      const float v = std::ldexp(significand(s, s.coin() ? 23 : 7), exponent(s));
      for (float& x : block) x = v;
      if (s.coin()) {
        for (float& x : block) x = with_random_sign(s, x);
      }
      break;
    }
    case Kind::kOneHot: {
      const float rest = s.coin() ? 0.0f : std::ldexp(significand(s, 7), -60);
      for (float& x : block) x = with_random_sign(s, rest);
      block[s.below(n)] = with_random_sign(s, std::ldexp(significand(s, 23), exponent(s)));
      break;
    }
    case Kind::kTieHeavyBf16: {
      static constexpr float kPoints[] = {0.25f, 0.75f, 1.25f,  1.75f, 2.5f,   3.5f, 5.0f,
                                          6.0f,  7.0f,  0.125f, 0.0f,  0.375f, 6.5f, 1.875f};
      const float unit = power(exponent(s)) * (s.coin() ? 1.0f : significand(s, 5));
      for (float& x : block) {
        x = with_random_sign(s, kPoints[s.below(std::size(kPoints))] * unit);
        x = bit_cast<float>(bit_cast<std::uint32_t>(x) & 0xffff0000u);
      }
      break;
    }
    case Kind::kTieAligned:
      tie_aligned(s, recipe, encode_scale, block);
      break;
    case Kind::kPatternedExponents:
      for (float& x : block) {
        x = with_random_sign(s, bit_cast<float>(edge_field(s) << 23 | patterned_fraction(s)));
      }
      break;
    case Kind::kNan:
    case Kind::kInfinity: {
      similar(7);
      const std::uint32_t many = s.below(4) == 0 ? n : 1 + s.below(3);
      for (std::uint32_t i = 0; i < many; ++i) {
        const std::uint32_t nan = kInfBits | (1 + s.below(0x7fffff));
        const bool is_nan = kind == Kind::kNan || (many > 1 && s.below(4) == 0);
        const float special = bit_cast<float>((is_nan ? nan : kInfBits) | (s.bits() & kSignBit));
        block[many == n ? i : s.below(n)] = special;
      }
      break;
    }
    case Kind::kNegativeZero:
      for (float& x : block) x = s.coin() ? -0.0f : 0.0f;
      if (s.coin()) {
        block[s.below(n)] = with_random_sign(s, std::ldexp(significand(s, 7), exponent(s)));
        block[s.below(n)] = -std::ldexp(1.0f, -140);
      }
      break;
    case Kind::kSubnormal:
      for (float& x : block) {
        x = with_random_sign(s, bit_cast<float>(s.bits() & (0xffffffu >> s.below(24))));
      }
      break;
    case Kind::kMaximal:
      for (float& x : block) {
        const std::uint32_t field = 254u - s.below(4);
        x = with_random_sign(s, bit_cast<float>(field << 23 | patterned_fraction(s)));
      }
      break;
    case Kind::kScaleThreshold: {
      // An amax at a power of two times a significand at which some scale rule changes.
      static constexpr float kPoints[] = {1.0f,   1.5f,     1.25f,  1.75f,  1.9375f,
                                          1.875f, 1.96875f, 1.625f, 1.125f, 1.3125f};
      similar(23);
      float amax = 0;
      for (const float x : block) amax = std::max(amax, std::fabs(x));
      const float limit = bit_cast<float>(bit_cast<std::uint32_t>(amax) & kInfBits);
      for (float& x : block) x *= 0.5f;
      const int e = limit > 0 ? std::ilogb(limit) : -126;
      const float top = std::ldexp(kPoints[s.below(std::size(kPoints))], e);
      block[s.below(n)] = with_random_sign(s, nudged(top, static_cast<int>(s.below(3)) - 1));
      break;
    }
    case Kind::kSimilar:
      similar(s.coin() ? 23 : 7);
      break;
    case Kind::kAnyBits:
      for (float& x : block) {
        const std::uint32_t bits = s.bits();
        x = bit_cast<float>((bits & kMagnitudeMask) < kInfBits ? bits : bits & 0x807fffffu);
      }
      break;
  }
}

std::vector<double> widen(BlockSource& s, const std::vector<float>& values) {
  std::vector<double> wide;
  wide.reserve(values.size());
  for (const float v : values) {
    double d = v;
    // A tie of binary32 stays a tie only without these bits.
    switch (s.below(4)) {
      case 0:
        break;
      case 1:
        d *= 1.0 + std::ldexp(1.0, -40);
        break;
      case 2:
        d *= 1.0 - std::ldexp(1.0, -50);
        break;
      default:
        d *= 1.0 + std::ldexp(static_cast<double>(s.below(1u << 28)), -52);
        break;
    }
    const std::uint32_t far = s.below(400);
    if (far == 0) d = std::ldexp(d, 200);   // above the range of binary32
    if (far == 1) d = std::ldexp(d, -800);  // below it, also binary64 subnormals
    wide.push_back(d);
  }
  return wide;
}

}  // namespace fp4scope::test
