// dyadic.cc: exact comparison, sum, product; rounding to IEEE formats (IEEE 754-2019 sections 4.3,
// 6.1 and 6.3 for nearest even, infinities and signs).
#include "sim/oracle/dyadic.h"

#include <algorithm>

#include "formats/hd.h"

namespace fp4scope::oracle {
namespace {

// Significand of a number whose exponent is lowered to `exponent`.
Integer aligned(const Dyadic& a, int exponent) {
  return a.significand() << static_cast<unsigned>(a.exponent() - exponent);
}

Number from_fields(bool negative, std::uint64_t field, std::uint64_t fraction, int fraction_bits,
                   std::uint64_t top_field, int bias) {
  Number n;
  n.negative = negative;
  if (field == top_field) {
    n.kind = fraction == 0 ? Number::Kind::kInfinite : Number::Kind::kNan;
    return n;
  }
  const bool subnormal = field == 0;
  const std::uint64_t hidden = subnormal ? 0 : std::uint64_t{1} << fraction_bits;
  const int exponent = (subnormal ? 1 : static_cast<int>(field)) - bias - fraction_bits;
  n.magnitude = Dyadic(Integer(hidden + fraction), exponent);
  return n;
}

float from_bits(bool negative, std::uint32_t magnitude_bits) {
  return bit_cast<float>(magnitude_bits | (negative ? 0x80000000u : 0u));
}

constexpr std::uint32_t kNanBits = 0x7fc00000u;
constexpr std::uint32_t kInfinityBits = 0x7f800000u;

}  // namespace

Dyadic operator*(const Dyadic& a, const Dyadic& b) {
  return {a.significand_ * b.significand_, a.exponent_ + b.exponent_};
}

Dyadic operator+(const Dyadic& a, const Dyadic& b) {
  const int e = std::min(a.exponent_, b.exponent_);
  return {aligned(a, e) + aligned(b, e), e};
}

Dyadic operator-(const Dyadic& a, const Dyadic& b) {
  const int e = std::min(a.exponent_, b.exponent_);
  return {aligned(a, e) - aligned(b, e), e};
}

std::strong_ordering operator<=>(const Dyadic& a, const Dyadic& b) {
  if (a.sign() != b.sign()) return a.sign() <=> b.sign();
  if (a.sign() > 0) {  // the leading bits usually decide
    const int la = a.floor_log2();
    const int lb = b.floor_log2();
    if (la != lb) return la <=> lb;
  }
  const int e = std::min(a.exponent_, b.exponent_);
  return aligned(a, e).compare(aligned(b, e)) <=> 0;
}

Integer floor_quotient(const Dyadic& a, const Dyadic& b) {
  const int e = std::min(a.exponent(), b.exponent());
  return aligned(a, e) / aligned(b, e);
}

Number exact(float v) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(v);
  return from_fields(bits >> 31 != 0, bits >> 23 & 0xffu, bits & 0x7fffffu, 23, 0xff, 127);
}

Number exact(double v) {
  const std::uint64_t bits = bit_cast<std::uint64_t>(v);
  return from_fields(bits >> 63 != 0, bits >> 52 & 0x7ffu, bits & 0xfffffffffffffu, 52, 0x7ff,
                     1023);
}

std::uint32_t round_quotient(BinaryFormat format, const Dyadic& num, const Dyadic& den) {
  if (num.is_zero()) return 0;
  // Exponent of the leading bit: one of two candidates, decided by num >= den * 2^leading.
  int leading = num.floor_log2() - den.floor_log2();
  if (num < den.scaled(leading)) --leading;
  const int lowest = format.min_exponent - format.fraction_bits;  // exponent of the last place
  const int place = std::max(leading - format.fraction_bits, lowest);
  // num / den = (n + rest) * 2^place with 0 <= rest < 1.
  const Dyadic unit = den.scaled(place);
  Integer n = floor_quotient(num, unit);
  const Dyadic rest = num - unit * Dyadic(n, 0);  // times den * 2^place
  const auto side = rest.scaled(1) <=> unit;
  if (side > 0 || (side == 0 && bit_test(n, 0))) ++n;
  // n counts places, so a carry into the next binade needs no special case.
  const std::uint64_t bits = (static_cast<std::uint64_t>(place - lowest) << format.fraction_bits) +
                             n.convert_to<std::uint64_t>();
  const std::uint64_t infinity =
      static_cast<std::uint64_t>(format.max_exponent - format.min_exponent + 2)
      << format.fraction_bits;
  return static_cast<std::uint32_t>(std::min(bits, infinity));
}

float round32(const Number& v) {
  if (v.is_nan()) return bit_cast<float>(kNanBits);
  if (v.is_infinite()) return from_bits(v.negative, kInfinityBits);
  return from_bits(v.negative, round_quotient(kBinary32, v.magnitude, Dyadic::pow2(0)));
}

float mul32(float a, float b) {
  const Number x = exact(a);
  const Number y = exact(b);
  Number r;
  r.negative = x.negative != y.negative;
  const bool any_infinite = x.is_infinite() || y.is_infinite();
  if (x.is_nan() || y.is_nan() || (any_infinite && (x.is_zero() || y.is_zero()))) {
    r.kind = Number::Kind::kNan;
  } else if (any_infinite) {
    r.kind = Number::Kind::kInfinite;
  } else {
    r.magnitude = x.magnitude * y.magnitude;
  }
  return round32(r);
}

float div32(float a, float b) {
  const Number x = exact(a);
  const Number y = exact(b);
  const bool negative = x.negative != y.negative;
  if (x.is_nan() || y.is_nan() || (x.is_infinite() && y.is_infinite()) ||
      (x.is_zero() && y.is_zero())) {
    return bit_cast<float>(kNanBits);
  }
  if (x.is_infinite() || y.is_zero()) return from_bits(negative, kInfinityBits);
  if (x.is_zero() || y.is_infinite()) return from_bits(negative, 0);
  return from_bits(negative, round_quotient(kBinary32, x.magnitude, y.magnitude));
}

namespace {

std::uint32_t narrow(BinaryFormat format, float v, std::uint32_t nan_code) {
  const Number x = exact(v);
  if (x.is_nan()) return nan_code;
  const std::uint32_t infinity =
      static_cast<std::uint32_t>(format.max_exponent - format.min_exponent + 2)
      << format.fraction_bits;
  const std::uint32_t magnitude =
      x.is_infinite() ? infinity : round_quotient(format, x.magnitude, Dyadic::pow2(0));
  return magnitude | (x.negative ? 0x8000u : 0u);
}

}  // namespace

std::uint32_t bf16_code(float v, std::uint32_t nan_code) {
  return narrow(kBfloat16, v, nan_code);
}
std::uint32_t fp16_code(float v, std::uint32_t nan_code) {
  return narrow(kBinary16, v, nan_code);
}

float round_bf16(float v) {
  return bit_cast<float>(bf16_code(v, 0x7fc0u) << 16);
}

}  // namespace fp4scope::oracle
