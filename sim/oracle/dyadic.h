// dyadic.h: exact numbers of the oracle. A Dyadic is an integer of any size times a power of two;
// every binary floating-point number, sum and product is one. A quotient is not and is rounded at
// once by comparing cross products (round_quotient). A Number adds infinity, NaN and the sign of
// zero. In the oracle a float is storage only: no arithmetic is ever done in it.
#pragma once
#include <boost/multiprecision/cpp_int.hpp>
#include <compare>
#include <cstdint>

namespace fp4scope::oracle {

using Integer = boost::multiprecision::number<boost::multiprecision::cpp_int_backend<>,
                                              boost::multiprecision::et_off>;

class Dyadic {
 public:
  Dyadic() = default;  // zero
  Dyadic(Integer significand, int exponent)
      : significand_(std::move(significand)), exponent_(exponent) {}
  static Dyadic pow2(int exponent) { return {1, exponent}; }

  const Integer& significand() const { return significand_; }
  int exponent() const { return exponent_; }
  bool is_zero() const { return significand_.is_zero(); }
  int sign() const { return significand_.sign(); }
  // Exponent of the leading bit of a positive number: 2^floor_log2 <= x < 2^(floor_log2 + 1).
  int floor_log2() const { return static_cast<int>(msb(significand_)) + exponent_; }
  bool is_power_of_two() const { return sign() > 0 && msb(significand_) == lsb(significand_); }
  Dyadic scaled(int power) const { return {significand_, exponent_ + power}; }

  friend Dyadic operator*(const Dyadic& a, const Dyadic& b);
  friend Dyadic operator+(const Dyadic& a, const Dyadic& b);
  friend Dyadic operator-(const Dyadic& a, const Dyadic& b);
  friend std::strong_ordering operator<=>(const Dyadic& a, const Dyadic& b);
  friend bool operator==(const Dyadic& a, const Dyadic& b) { return (a <=> b) == 0; }

 private:
  Integer significand_ = 0;
  int exponent_ = 0;
};

// floor(a / b) for a >= 0, b > 0.
Integer floor_quotient(const Dyadic& a, const Dyadic& b);

// A value as a machine holds it. `magnitude` is meaningful for kFinite only and never negative.
struct Number {
  enum class Kind { kFinite, kInfinite, kNan };
  Kind kind = Kind::kFinite;
  bool negative = false;
  Dyadic magnitude;

  bool is_finite() const { return kind == Kind::kFinite; }
  bool is_infinite() const { return kind == Kind::kInfinite; }
  bool is_nan() const { return kind == Kind::kNan; }
  bool is_zero() const { return is_finite() && magnitude.is_zero(); }
};
Number exact(float v);
Number exact(double v);

// An IEEE 754 binary interchange format, for the roundings between machine operations.
struct BinaryFormat {
  int fraction_bits;
  int min_exponent;  // of normal numbers
  int max_exponent;
};
inline constexpr BinaryFormat kBinary32{23, -126, 127};
inline constexpr BinaryFormat kBfloat16{7, -126, 127};
inline constexpr BinaryFormat kBinary16{10, -14, 15};

// Bits, without sign, of num / den rounded to nearest even; num >= 0, den > 0. Subnormals are
// rounded, not flushed; overflow gives the bits of infinity.
std::uint32_t round_quotient(BinaryFormat format, const Dyadic& num, const Dyadic& den);

// Machine operations on binary32: the exact result, then one rounding. Any NaN is 0x7fc00000.
float round32(const Number& exact_value);
float mul32(float a, float b);
float div32(float a, float b);
// Rounds to BF16 and widens again.
float round_bf16(float v);
// 16-bit codes of a binary32 value; any NaN becomes `nan_code`.
std::uint32_t bf16_code(float v, std::uint32_t nan_code);
std::uint32_t fp16_code(float v, std::uint32_t nan_code);

}  // namespace fp4scope::oracle
