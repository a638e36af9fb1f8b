// oracle_nvfp4_elements.cc: elements of the NVFP4 contracts: codes, what becomes of NaN and -0, the
// error of one element, decoded values (spec/nvfp4.md 2, 3.3, 3.4, 5, 6; spec/scalars.md 2).
#include <fmt/format.h>

#include "formats/hd.h"
#include "formats/scalars.h"
#include "sim/error.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_nvfp4.h"

namespace fp4scope::oracle::nvfp4 {
namespace {

const float kOne = from_bits32(0x3f800000u);
const float kZero = from_bits32(0);
const float kIntExpansion = from_bits32(0x3f955555u);     // 1.16666666f, about 7/6
const float kIntExpansionRcp = from_bits32(0x3f5b6db7u);  // 0.8571428571f, about 6/7

// rint of a magnitude: nearest integer, ties to even.
Integer rint(const Dyadic& a) {
  const Dyadic one = Dyadic::pow2(0);
  Integer n = floor_quotient(a, one);
  const auto side = (a - Dyadic(n, 0)).scaled(1) <=> one;
  if (side > 0 || (side == 0 && bit_test(n, 0))) ++n;
  return n;
}

// v of section 5.1 on a magnitude, and its nibble: the exponent counted from 0.5 above the leading
// fraction bit, so that values above 6 spill into the sign.
Dyadic unsaturated_e2m1(const Dyadic& y) {
  const Dyadic two = Dyadic::pow2(1);
  const Dyadic four = Dyadic::pow2(2);
  if (y < two) return Dyadic(rint(y.scaled(1)), -1);
  if (y < four) return Dyadic(rint(y), 0);
  return Dyadic(rint(y.scaled(-1)), 1);
}
std::uint32_t unsaturated_nibble(const Dyadic& v) {
  if (v.is_zero()) return 0;
  if (v == Dyadic::pow2(-1)) return 1;
  const int leading = v.floor_log2();
  const bool half = v >= Dyadic(3, leading - 1);
  return (static_cast<std::uint32_t>(leading + 1) << 1 | (half ? 1u : 0u)) & 0xfu;
}

}  // namespace

void Nvfp4Rules::refuse_nan(std::int64_t row) const {
  throw RefusedInput(
      row, fmt::format("contract {} does not say which code a NaN gets", recipe.contract));
}

// more.md 4.1: the first nearest entry of 0..6, -0..-6: ties toward zero, no -0.
Nvfp4Rules::Element Nvfp4Rules::encode_mlx_cpu(float x, float y, std::int64_t row) const {
  const float rounded = round_to_type(input_type, y);
  if (exact(rounded).is_nan()) refuse_nan(row);
  // The first entry of the table [0..6, -0..-6] at the least distance, in the type of the array.
  std::uint32_t code = 0;
  float least = 0;
  for (std::uint32_t i = 0; i < element.code_count(); ++i) {
    const float d = magnitude_of(round_to_type(input_type, sub32(rounded, value32(element, i))));
    if (i == 0 || bits32(d) < bits32(least)) {
      code = i;
      least = d;
    }
  }
  if (options.neg_zero == NegZero::kKeep && bits32(x) == 0x80000000u) code = element.sign_mask();
  return {code, value32(element, code)};
}

Nvfp4Rules::Element Nvfp4Rules::encode_fouroversix(float y, Grid grid, std::int64_t row) const {
  Number n = exact(y);
  if (n.is_nan()) {
    throw RefusedInput(
        row, fmt::format("contract {} does not say which code a NaN gets", recipe.contract));
  }
  if (grid == Grid::kInt4 || element.is_twos_complement()) {
    const MinifloatSpec integer =
        grid == Grid::kInt4 ? integer_spec(4, 0, SignCode::kTwosComplement) : element;
    const float scaled = grid == Grid::kInt4 ? mul32(y, kIntExpansion) : y;
    const std::uint32_t code = cast_saturating(integer, exact(scaled), Rounding::kEven);
    return {code, value32(integer, code)};
  }
  if (n.is_zero() && options.neg_zero == NegZero::kDrop) n.negative = false;  // sign(-0) = 0
  if (element != kE2M1) {
    const std::uint32_t code = cast_saturating(element, n, Rounding::kEven);
    return {code, value32(element, code)};
  }
  // The source adds masked terms, 0 * Inf among them.
  if (n.is_infinite()) refuse_nan(row);
  const Dyadic v = unsaturated_e2m1(n.magnitude);
  const std::uint32_t sign = n.negative ? 8u : 0u;
  return {unsaturated_nibble(v) | sign, round32({Number::Kind::kFinite, n.negative, v})};
}

Nvfp4Rules::Element Nvfp4Rules::encode(float x, const Divisor& divisor, Grid grid,
                                       std::uint32_t random_byte, std::int64_t row) const {
  const bool drops = options.neg_zero == NegZero::kDrop;
  const bool from_python = options.order == Nvfp4Order::kFouroversix ||
                           options.order == Nvfp4Order::kModelopt ||
                           options.order == Nvfp4Order::kModeloptStatic ||
                           options.order == Nvfp4Order::kCompressedTensors;
  // Of the contracts that drop the sign of zero, those three look at the quotient y, an override
  // of the others at the input.
  // Under flush-to-zero the comparison sees a subnormal as a zero.
  const float seen = options.ftz ? flush_subnormal(x) : x;
  if (drops && !from_python && (bits32(seen) & 0x7fffffffu) == 0) x = kZero;
  float y = divisor.divides ? machine.div(x, divisor.factor) : machine.mul(x, divisor.factor);
  if (divisor.gives_zero) y = kZero;
  if (options.order == Nvfp4Order::kMlxCpu) return encode_mlx_cpu(x, y, row);
  if (options.order == Nvfp4Order::kFouroversix) return encode_fouroversix(y, grid, row);
  if (drops && from_python && (bits32(y) & 0x7fffffffu) == 0) y = kZero;

  const Number n = exact(y);
  std::uint32_t code = 0;
  if (n.is_nan()) {
    if (options.order == Nvfp4Order::kCompressedTensors) {
      throw RefusedInput(
          row, fmt::format("contract {} does not say which code a NaN gets", recipe.contract));
    }
    code = element.max_finite_code();
    // oneDNN keeps the sign of a NaN (more.md 4.2).
    if (options.order == Nvfp4Order::kOnednn && bits32(x) >> 31 != 0) code |= element.sign_mask();
  } else if (random_byte < kNearest) {
    code = stochastic(element, magnitude_of(y), random_byte);
    if (n.negative && element.is_twos_complement()) {
      code = (element.code_count() - code) % element.code_count();
    } else if (n.negative) {
      code |= element.sign_mask();
    }
  } else if (grid == Grid::kInt4) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("contract {} has no INT4 candidate", recipe.contract));
  } else {
    code = cast_saturating(element, n, Rounding::kEven);
  }
  return {code, value32(element, code)};
}

float Nvfp4Rules::difference(const OuterScale32& outer, float sf, float v, float x,
                             Grid grid) const {
  const Machine& c = machine;
  const float product = c.mul(v, sf);
  if (options.metric == Metric::kFast) return c.sub(product, c.mul(x, outer.g));
  if (options.score == Score::kDecode) return c.sub(c.mul(product, decode_scale(outer)), x);
  float w = c.mul(product, outer.amax);
  if (is_if4) {  // 5.3: the divisor is a Python number there
    if (grid == Grid::kInt4) w = mul32(w, kIntExpansionRcp);
    w = over_number(w, top_m);
  } else {
    w = c.div(w, top_m);
  }
  return c.sub(w, x);
}

// formats/contracts/nvfp4.h lists the dequantizers that the sources do not define.
float Nvfp4Rules::decoded(const OuterScale32& outer, std::uint32_t byte, bool choice,
                          std::uint32_t code) const {
  const float sf = scale_value(byte);
  const bool is_int = is_if4 && choice;
  float q = is_int ? value32(integer_spec(4, 0, SignCode::kTwosComplement), code)
                   : value32(element, code);
  if (is_int) q = round_to_type(DType16::kF16, mul32(q, kIntExpansionRcp));  // 5.3
  // Exact for E2M1; an INT4 element over 7/6 has more bits than the FP16 product keeps.
  const float product = is_int ? round_to_type(DType16::kF16, mul32(q, sf)) : mul32(q, sf);
  if (options.scale == OuterScale::kNone) return product;
  const bool given_amax = options.scale == OuterScale::kGiven && options.has_amax;
  const bool by_amax = options.scale != OuterScale::kGiven || options.has_amax;
  const auto by_te = [&] { return mul32(q, mul32(mul32(sf, outer.amax), div32(kOne, top_m))); };
  switch (options.order) {
    case Nvfp4Order::kModelopt:
    case Nvfp4Order::kModeloptStatic:
    case Nvfp4Order::kTorchao:
      return mul32(q, mul32(sf, outer.g));
    case Nvfp4Order::kCompressedTensors:
      return mul32(q, div32(sf, outer.g));
    case Nvfp4Order::kFlashinferKv:
      return mul32(product, outer.g);
    case Nvfp4Order::kOnednn:
      return product;
    case Nvfp4Order::kMlxMetal:
    case Nvfp4Order::kMlxCuda:
    case Nvfp4Order::kMlxCpu:
      return div32(mul32(product, outer.amax), top_m);
    case Nvfp4Order::kFouroversix:
    case Nvfp4Order::kFouroversixCuda:
      if (by_amax) return over_number(mul32(product, outer.amax), top_m);
      return mul32(product, div32(kOne, outer.g));
    case Nvfp4Order::kTe:
    case Nvfp4Order::kTeFast:
      if (by_amax) return by_te();
      break;
    case Nvfp4Order::kFlashinfer:
    case Nvfp4Order::kFlashinferFast:
    case Nvfp4Order::kTrtllm:
    case Nvfp4Order::kVllm:
    case Nvfp4Order::kMslk:
    case Nvfp4Order::kMslkE8m0:
      if (given_amax) return by_te();
      if (options.scale == OuterScale::kRow && options.order == Nvfp4Order::kFlashinferFast) {
        return mul32(q, mul32(sf, mul32(outer.amax, div32(kOne, top_m))));  // pts of 4.2
      }
      break;
  }
  // The encode scale 0 of an adaptive zero row comes with pts = 0 (4.2).
  const float gd = exact(outer.g).is_zero() ? kZero : div32(kOne, outer.g);
  return mul32(q, mul32(sf, gd));
}

}  // namespace fp4scope::oracle::nvfp4
