// exact_format.cc: see the header; each rule cites its paragraph of spec/scalars.md.
#include "sim/oracle/exact_format.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "formats/hd.h"
#include "formats/scalars.h"

namespace fp4scope::oracle {
namespace {

// Values of the magnitude codes 0..max_finite_code, ascending. One table per format and thread.
const std::vector<Dyadic>& magnitudes(MinifloatSpec spec) {
  thread_local std::deque<std::pair<MinifloatSpec, std::vector<Dyadic>>> cache;
  for (const auto& [known, table] : cache) {
    if (known == spec) return table;
  }
  std::vector<Dyadic> table;
  for (std::uint32_t code = 0; code <= spec.max_finite_code(); ++code) {
    table.push_back(value(spec, code).magnitude);
  }
  cache.emplace_back(spec, std::move(table));
  return cache.back().second;
}

// Whether q, strictly between `low` and its upper neighbour `high`, goes up.
bool rounds_up(const Dyadic& q, const Dyadic& low, const Dyadic& high, bool low_is_even,
               Rounding rounding) {
  const auto side = (q - low) <=> (high - q);  // nearer to low: less
  switch (rounding) {
    case Rounding::kEven:
      return side > 0 || (side == 0 && !low_is_even);
    case Rounding::kAway:
      return side >= 0;
    case Rounding::kZero:
      return side > 0;
    case Rounding::kTrunc:
    case Rounding::kStochastic:
      return false;  // stochastic(): truncates what it has already added
  }
  return false;
}

// Quantum of the format at a > 0 (or at zero): the last place of its binade, of the lowest binade
// below that.
Dyadic step_at(MinifloatSpec spec, const Dyadic& a) {
  const int exponent =
      a.is_zero() ? spec.min_exponent() : std::max(a.floor_log2(), spec.min_exponent());
  return Dyadic::pow2(exponent - spec.mantissa_bits);
}

}  // namespace

Number value(MinifloatSpec spec, std::uint32_t code) {
  Number v;
  v.negative = (code & spec.sign_mask()) != 0;
  if (spec.is_twos_complement()) {
    // The grid step is that of the subnormal binade; the integer is read as two's complement.
    const Integer n = v.negative ? Integer(spec.code_count() - code) : Integer(code);
    v.magnitude = Dyadic(n, 1 - spec.bias - spec.mantissa_bits);
    return v;
  }
  const std::uint32_t magnitude = code & spec.magnitude_mask();
  const std::uint32_t field = magnitude >> spec.mantissa_bits;
  const std::uint32_t fraction = magnitude & ((1u << spec.mantissa_bits) - 1u);
  const std::uint32_t top_field = (1u << spec.exponent_bits) - 1u;
  switch (spec.special) {
    case Special::kNone:
      break;
    case Special::kNanAllOnes:
      if (magnitude == spec.magnitude_mask()) v.kind = Number::Kind::kNan;
      break;
    case Special::kIeee:
      if (field == top_field) {
        v.kind = fraction == 0 ? Number::Kind::kInfinite : Number::Kind::kNan;
      }
      break;
    case Special::kFnuz:
      if (code == spec.sign_mask()) v.kind = Number::Kind::kNan;
      break;
  }
  if (!v.is_finite()) return v;
  const bool subnormal = spec.has_subnormals && field == 0;
  const std::uint32_t significand = subnormal ? fraction : (1u << spec.mantissa_bits) + fraction;
  const int exponent = (subnormal ? 1 : static_cast<int>(field)) - spec.bias;
  v.magnitude = Dyadic(Integer(significand), exponent - spec.mantissa_bits);
  return v;
}

std::uint32_t nearest(MinifloatSpec spec, const Dyadic& q, Rounding rounding) {
  const std::vector<Dyadic>& table = magnitudes(spec);
  // The first code above q; its predecessor is the lower neighbour.
  const auto above = std::upper_bound(table.begin(), table.end(), q);
  if (above == table.begin()) return 0;  // below the smallest value
  const auto code = static_cast<std::uint32_t>(above - table.begin()) - 1u;
  if (above == table.end() || *(above - 1) == q) return code;  // saturated, or exact
  const bool low_is_even = (code & 1u) == 0;
  return code + (rounds_up(q, *(above - 1), *above, low_is_even, rounding) ? 1u : 0u);
}

std::uint32_t cast_saturating(MinifloatSpec spec, const Number& v, Rounding rounding) {
  if (v.negative && !spec.is_signed) return 0;
  if (spec.is_twos_complement()) {
    std::uint32_t n = v.is_finite() ? nearest(spec, v.magnitude, rounding) : spec.max_finite_code();
    if (v.negative && spec.sign_code == SignCode::kTwosComplementFull) {
      // One more code below: reached from the midpoint on, which is a tie to the even -2^(bits-1).
      const Dyadic step = Dyadic::pow2(1 - spec.bias - spec.mantissa_bits);
      const Dyadic lowest = step * Dyadic(Integer(spec.max_finite_code() + 1u), 0);
      const Dyadic largest = lowest - step;
      if (!v.is_finite() || v.magnitude >= lowest ||
          (v.magnitude > largest && rounds_up(v.magnitude, largest, lowest, false, rounding))) {
        n = spec.max_finite_code() + 1u;
      }
    }
    return v.negative && n != 0 ? spec.code_count() - n : n;
  }
  const std::uint32_t magnitude =
      v.is_finite() ? nearest(spec, v.magnitude, rounding) : spec.max_finite_code();
  if (spec.special == Special::kFnuz && magnitude == 0) return 0;
  return magnitude | (v.negative ? spec.sign_mask() : 0u);
}

std::uint32_t cast_special(MinifloatSpec spec, const Number& v, Rounding rounding,
                           std::uint32_t nan_code) {
  if (v.is_nan()) return nan_code;
  if (spec.special == Special::kNone || (v.negative && !spec.is_signed)) {
    return cast_saturating(spec, v, rounding);
  }
  const std::uint32_t top = spec.max_finite_code();
  bool overflow = v.is_infinite();
  if (v.is_finite()) {
    // The value that would follow the largest finite one. Where the top code is odd the missing
    // neighbour is the even one and takes the tie.
    const Dyadic largest = magnitudes(spec).back();
    const Dyadic next = largest + step_at(spec, largest);
    const bool beyond = v.magnitude >= next;
    overflow = rounding != Rounding::kTrunc &&
               (beyond || (v.magnitude > largest &&
                           rounds_up(v.magnitude, largest, next, (top & 1u) == 0, rounding)));
  }
  if (!overflow) return cast_saturating(spec, v, rounding);
  if (spec.special == Special::kFnuz) return spec.sign_mask();
  return (top + 1u) | (v.negative ? spec.sign_mask() : 0u);  // infinity, or the all-ones NaN
}

std::uint32_t stochastic(MinifloatSpec spec, float a, std::uint32_t random_byte) {
  const Number v = exact(a);
  if (!v.is_finite()) return spec.max_finite_code();
  Number sum;  // u * step(a) + a, exactly
  sum.magnitude = Dyadic(Integer(random_byte), -8) * step_at(spec, v.magnitude) + v.magnitude;
  const Number t = exact(round32(sum));
  if (!t.is_finite()) return spec.max_finite_code();
  const Dyadic step = step_at(spec, t.magnitude);
  const Dyadic floored = step * Dyadic(floor_quotient(t.magnitude, step), 0);
  return nearest(spec, floored, Rounding::kTrunc);
}

Number value_e8m0(std::uint32_t byte) {
  Number v;
  if (byte == 255) {
    v.kind = Number::Kind::kNan;
  } else {
    v.magnitude = Dyadic::pow2(static_cast<int>(byte) - 127);
  }
  return v;
}

std::uint32_t smallest_e8m0(const Dyadic& q, const Dyadic& unit) {
  std::uint32_t low = 0;  // candidates low..high, where 255 stands for none
  std::uint32_t high = 255;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (unit.scaled(static_cast<int>(middle) - 127) >= q) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

std::uint32_t cast_e8m0(E8m0Cast rule, const Number& v) {
  if (v.is_nan()) return 255;
  const bool infinite = v.is_infinite();
  const Dyadic& a = v.magnitude;
  const Dyadic normal = Dyadic::pow2(-126);
  // The exponent field of binary32 and whether its fraction is nonzero.
  const bool subnormal = !infinite && a < normal;
  const int field = infinite ? 255 : subnormal ? 0 : a.floor_log2() + 127;
  const bool fraction = !infinite && (subnormal ? !a.is_zero() : !a.is_power_of_two());
  switch (rule) {
    case E8m0Cast::kDown:
      return static_cast<std::uint32_t>(field);
    case E8m0Cast::kUpPtxSatfinite:
    case E8m0Cast::kUpPtxNosat: {
      const std::uint32_t byte = infinite ? 255 : smallest_e8m0(a, Dyadic::pow2(0));
      return rule == E8m0Cast::kUpPtxSatfinite ? std::min(byte, 254u) : byte;
    }
    case E8m0Cast::kUpOnnx:
      if (infinite) return 255;
      return static_cast<std::uint32_t>(std::min(field + (fraction ? 1 : 0), 254));
    case E8m0Cast::kNearestTorch:
    case E8m0Cast::kNearestOnnxSaturate:
    case E8m0Cast::kNearestMlDtypes: {
      if (rule == E8m0Cast::kNearestMlDtypes && (v.negative || v.is_zero())) return 255;
      if (infinite) return 255;
      // Below 2^-126 everything above 2^-127 goes to byte 1; elsewhere 1.5 of a binade goes up.
      if (subnormal) return a > Dyadic::pow2(-127) ? 1 : 0;
      const bool up = a >= Dyadic(3, a.floor_log2() - 1);
      const int byte = field + (up ? 1 : 0);
      return static_cast<std::uint32_t>(rule == E8m0Cast::kNearestOnnxSaturate ? std::min(byte, 254)
                                                                               : byte);
    }
  }
  return 255;
}

float reciprocal_e6m2(std::uint32_t code) {
  const Number v = value(kE6M2, code);
  if (v.is_nan()) return bit_cast<float>(0x7fc00000u);
  return bit_cast<float>(round_quotient(kBfloat16, Dyadic::pow2(0), v.magnitude) << 16);
}

}  // namespace fp4scope::oracle
