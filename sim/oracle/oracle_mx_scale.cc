// oracle_mx_scale.cc: scale rules of the MX contracts (spec/mx.md 2.1, spec/more.md 4.1), from the
// largest magnitude of a block to the exponent of its scale; and the binary32 logarithm.
#include <algorithm>

#include "formats/hd.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"
#include "sim/oracle/oracle_mx.h"
#include "sim/rcp_table.h"

namespace fp4scope::oracle {
namespace {

float positive32(const Dyadic& v) {
  return round32({Number::Kind::kFinite, false, v});
}
// The lowest `bits` significant bits are all that is kept, rounded down or up.
Dyadic shortened(const Dyadic& v, unsigned bits, bool up) {
  const unsigned length = static_cast<unsigned>(msb(v.significand())) + 1;
  if (length <= bits) return v;
  Integer kept = v.significand() >> (length - bits);
  if (up) ++kept;
  return {kept, v.exponent() + static_cast<int>(length - bits)};
}

// First `digits` binary digits of log2(x) for 1 <= x < 2, as an integer; false when the interval
// of `precision` bits is too wide to tell one of them.
bool log2_digits(const Dyadic& x, unsigned digits, unsigned precision, Integer& result) {
  const Dyadic two = Dyadic::pow2(1);
  Dyadic low = x, high = x;
  result = 0;
  for (unsigned i = 0; i < digits; ++i) {
    low = shortened(low * low, precision, false);
    high = shortened(high * high, precision, true);
    const bool low_up = low >= two, high_up = high >= two;
    if (low_up != high_up) return false;
    result = result * 2 + (low_up ? 1 : 0);
    if (low_up) {
      low = low.scaled(-1);
      high = high.scaled(-1);
    }
  }
  return true;
}

Number signed_number(const Dyadic& v) {
  Number n;
  n.negative = v.sign() < 0;
  n.magnitude = n.negative ? Dyadic() - v : v;
  return n;
}

Integer floor_of(const Dyadic& v) {
  const Dyadic one = Dyadic::pow2(0);
  if (v.sign() >= 0) return floor_quotient(v, one);
  const Dyadic magnitude = Dyadic() - v;
  const Integer n = floor_quotient(magnitude, one);
  return Dyadic(n, 0) == magnitude ? Integer(-n) : Integer(-n - 1);
}
int floor_int(const Dyadic& v) {
  return floor_of(v).convert_to<int>();
}
int ceil_int(const Dyadic& v) {
  return -floor_int(Dyadic() - v);
}
Dyadic signed_value(float v) {
  const Number n = exact(v);
  return n.negative ? Dyadic() - n.magnitude : n.magnitude;
}
// Nearest integer, half to even.
int rint_int(const Dyadic& v) {
  const int n = floor_int(v);
  const auto side = (v - Dyadic(Integer(n), 0)) <=> Dyadic::pow2(-1);
  return n + (side > 0 || (side == 0 && n % 2 != 0) ? 1 : 0);
}
// Nearest integer, half away from zero.
int round_int(const Dyadic& v) {
  const Dyadic half = Dyadic::pow2(-1);
  return v.sign() >= 0 ? floor_int(v + half) : ceil_int(v - half);
}

// Smallest e with 2^e * unit >= v; v, unit > 0.
int ceil_exponent(const Dyadic& v, const Dyadic& unit) {
  int e = v.floor_log2() - unit.floor_log2() - 1;
  while (unit.scaled(e) < v) ++e;
  return e;
}
// Largest e with 2^e * unit <= v.
int floor_exponent(const Dyadic& v, const Dyadic& unit) {
  int e = v.floor_log2() - unit.floor_log2() + 1;
  while (unit.scaled(e) > v) --e;
  return e;
}

// The fields of a binary number, of which all below `min_exponent` are subnormal. Exponent field,
// less its bias, and whether there is a fraction. A subnormal has the field below the first normal.
struct Fields {
  int exponent;
  bool fraction;
};
Fields fields_of(const Dyadic& v, int min_exponent) {
  if (v < Dyadic::pow2(min_exponent)) return {min_exponent - 1, !v.is_zero()};
  return {v.floor_log2(), !v.is_power_of_two()};
}
// As the integer exponent field of a binary32 number would say; binary64 has no such end.
Fields amax_fields(const Dyadic& v, bool binary64) {
  return fields_of(v, binary64 ? v.floor_log2() : -126);
}

constexpr MxExponent kOverflow{0, true};

// `even`: 2^(fraction bits - 1 - mb) is added to the bits of amax and the exponent field taken.
MxExponent even_exponent(const Recipe& recipe, const Dyadic& amax, bool binary64) {
  const MxOptions& options = recipe.mx;
  const int mb = options.even_width == EvenWidth::kE2m1 ? 1 : recipe.format.element.mantissa_bits;
  const BinaryFormat type = options.dtype == DType16::kF16    ? kBinary16
                            : options.dtype == DType16::kBf16 ? kBfloat16
                                                              : kBinary32;
  const bool subnormal = !binary64 && amax < Dyadic::pow2(type.min_exponent);
  const int binade = subnormal ? type.min_exponent : amax.floor_log2();
  const Dyadic sum = amax + Dyadic::pow2(binade - mb - 1);
  if (binary64) return {sum.floor_log2() - mx_emax(recipe), false};
  const int field = fields_of(sum, type.min_exponent).exponent;
  if (field > type.max_exponent) return kOverflow;
  // The bits without fraction are zero for field 0, so that the scale is the smallest one.
  if (field < type.min_exponent) return {-127, false};
  return {field - mx_emax(recipe), false};
}

MxExponent rceil_exponent(const Recipe& recipe, const Dyadic& amax, bool binary64) {
  const MxOptions& options = recipe.mx;
  const Dyadic fmax = mx_element_max(recipe);
  if (binary64 || options.scale_arith == MxScaleArith::kField) {
    return {ceil_exponent(amax, fmax), false};
  }
  const float a = positive32(amax);  // exact: the source is binary32
  const float m = positive32(fmax);
  float quotient = 0;
  switch (options.scale_arith) {
    case MxScaleArith::kMul:
      quotient = mul32(a, div32(bit_cast<float>(0x3f800000u), m));
      break;
    case MxScaleArith::kRcp:
      quotient = mul32(a, rcp_approx(m, rcp_bytes(recipe, options.rcp)));
      break;
    default:
      quotient = div32(a, m);
      break;
  }
  if (options.ftz) quotient = flush_subnormal(quotient);
  const Number q = exact(quotient);
  if (!q.is_finite()) return kOverflow;
  if (q.is_zero()) return {-127, false};
  return {std::max(ceil_exponent(q.magnitude, Dyadic::pow2(0)), -127), false};
}

// amax / divisor in binary32, or the product with the rounded reciprocal (scale-arith=mul).
Number quotient32(const MxOptions& options, const Dyadic& amax, const Dyadic& divisor) {
  const float a = positive32(amax), d = positive32(divisor);
  return exact(options.scale_arith == MxScaleArith::kMul
                   ? mul32(a, div32(bit_cast<float>(0x3f800000u), d))
                   : div32(a, d));
}

// Rules on the bits of a quotient: exponent field of fl(amax / divisor), plus 1 with a fraction.
MxExponent field_up(const MxOptions& options, const Dyadic& amax, const Dyadic& divisor,
                    bool binary64) {
  if (binary64) return {std::max(ceil_exponent(amax, divisor), -126), false};
  const Number q = quotient32(options, amax, divisor);
  if (!q.is_finite()) return kOverflow;
  const Fields fields = fields_of(q.magnitude, -126);
  return {fields.exponent + (fields.fraction ? 1 : 0), false};
}

int clamp127(int e) {
  return std::clamp(e, -127, 127);
}

// MLX metal: round half away of log2(fl(amax / FMAX)), clamped.
MxExponent round_log2(const Recipe& recipe, const Dyadic& amax, bool binary64) {
  const Dyadic fmax = mx_element_max(recipe);
  if (binary64) {  // up from sqrt(2): q^2 >= 2^(2e + 1)
    const int e = floor_exponent(amax, fmax);
    return {clamp127(e + (amax * amax >= (fmax * fmax).scaled(2 * e + 1) ? 1 : 0)), false};
  }
  const Number q = exact(div32(positive32(amax), positive32(fmax)));
  if (!q.is_finite()) return kOverflow;
  if (q.is_zero()) return {-127, false};
  return {clamp127(round_int(signed_value(log2_32(q.magnitude)))), false};
}

// MLX CPU: rint(dt(log2(dt(amax / FMAX)))).
MxExponent mlx_cpu(const Recipe& recipe, const Dyadic& amax) {
  const DType16 type = recipe.mx.dtype;
  const Number s = exact(round_to_type(
      type, div32(positive32(amax), round_to_type(type, positive32(mx_element_max(recipe))))));
  if (!s.is_finite()) return kOverflow;
  if (s.is_zero()) return {-127, false};
  return {rint_int(signed_value(round_to_type(type, log2_32(s.magnitude)))), false};
}

}  // namespace

float log2_32(const Dyadic& x) {
  const int binade = x.floor_log2();
  if (x.is_power_of_two()) return round32(signed_number(Dyadic(Integer(binade), 0)));
  for (unsigned digits = 64;; digits *= 2) {
    Integer fraction;
    if (!log2_digits(x.scaled(-binade), digits, 4 * digits, fraction)) continue;
    const Dyadic low = Dyadic(Integer(binade), 0) + Dyadic(fraction, -static_cast<int>(digits));
    const Dyadic high = low + Dyadic::pow2(-static_cast<int>(digits));
    const float a = round32(signed_number(low)), b = round32(signed_number(high));
    if (bit_cast<std::uint32_t>(a) == bit_cast<std::uint32_t>(b)) return a;
  }
}

int floor_log2_32(const Dyadic& x) {
  const int binade = x.floor_log2();
  // Half the distance of two binary32 numbers below a power of two's exponent is at most 2^-17 for
  // |log2| <= 256, and 2^-t > 1 - t; so below 1 - 2^-16 of the next power nothing rounds up to it.
  if (x < Dyadic(Integer(65535), binade + 1 - 16)) return binade;
  return floor_int(signed_value(log2_32(x)));
}

bool mx_has_integers(const Recipe& recipe) {
  const MinifloatSpec element = recipe.format.element;
  // mxint8 and mxint4 under int8-grid=sign-magnitude are integers with another sign.
  return element.is_twos_complement() || (recipe.shape.empty() && element.exponent_bits == 1);
}

int mx_emax(const Recipe& recipe) {
  // universal takes the exponent of 128, 7 for its integers of unit 1.
  const MinifloatSpec element = recipe.format.element;
  const bool is_universal = recipe.mx.quirk == MxQuirk::kUniversal;
  return element.max_exponent() + (is_universal && element.is_twos_complement() ? 1 : 0);
}

Dyadic mx_element_max(const Recipe& recipe) {
  return value(recipe.format.element, recipe.format.element.max_finite_code()).magnitude;
}

MxExponent mx_exponent(const Recipe& recipe, const Dyadic& amax, bool binary64) {
  const MxOptions& options = recipe.mx;
  const int emax = mx_emax(recipe);
  const bool by_log2 = options.scale_arith == MxScaleArith::kLog2;
  const Fields fields = amax_fields(amax, binary64);
  switch (options.scale_rule) {
    case MxScaleRule::kFloor: {
      const int e = by_log2 ? floor_log2_32(amax) : fields.exponent;
      return {(options.quirk == MxQuirk::kUniversal ? std::max(e, -127) : e) - emax, false};
    }
    case MxScaleRule::kTritonDown:
      return {fields.exponent - emax, false};
    case MxScaleRule::kCeil:
      return {fields.exponent + (fields.fraction ? 1 : 0) - emax, false};
    case MxScaleRule::kEven:
      return even_exponent(recipe, amax, binary64);
    case MxScaleRule::kRceil:
      return rceil_exponent(recipe, amax, binary64);
    case MxScaleRule::kCeilLog2: {
      const Dyadic fmax = mx_element_max(recipe);
      if (binary64) return {std::max(ceil_exponent(amax, fmax), -127), false};
      const Number q = exact(div32(positive32(amax), positive32(fmax)));
      if (!q.is_finite()) return kOverflow;
      if (q.is_zero()) return {-127, false};
      return {std::max(ceil_int(signed_value(log2_32(q.magnitude))), -127), false};
    }
    case MxScaleRule::kFieldUp:
      return field_up(options, amax, Dyadic(Integer(options.divisor), 0), binary64);
    case MxScaleRule::kTritonUp:
      return field_up(options, amax, mx_element_max(recipe), binary64);
    case MxScaleRule::kRintLog2:
      return {std::max(rint_int(signed_value(log2_32(amax))) - emax, -127), false};
    case MxScaleRule::kDown6: {
      const Dyadic six(Integer(6), 0);
      if (binary64) return {floor_exponent(amax, six), false};
      const Number q = quotient32(options, amax, six);
      return {fields_of(q.magnitude, -126).exponent, false};
    }
    case MxScaleRule::kRoundLog2:
      return round_log2(recipe, amax, binary64);
    case MxScaleRule::kMlxCpu:
      return mlx_cpu(recipe, amax);
  }
  return kOverflow;
}

}  // namespace fp4scope::oracle
