// oracle_nvfp4_contracts.cc: outer scale, block scale and inverse of the NVFP4 contracts, one
// switch per column of the table in spec/nvfp4.md section 2. Constants 6, 448 and 1/6 are those of
// the element and the scale type; 2^-9, 2^-6 and 2^-3 are the smallest subnormal, the smallest
// normal and the epsilon of the latter.
#include "formats/hd.h"
#include "formats/scalars.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_nvfp4.h"
#include "sim/rcp_table.h"

namespace fp4scope::oracle::nvfp4 {
namespace {

const float kOne = from_bits32(0x3f800000u);
const float kOneAndHalf = from_bits32(0x3fc00000u);
const float kFour = from_bits32(0x40800000u);
const float kFmax = from_bits32(0x7f7fffffu);
const float kBf16Max = from_bits32(0x7f7f0000u);
const float kZero = from_bits32(0);

float power_of_two(int exponent) {
  return round32({Number::Kind::kFinite, false, Dyadic::pow2(exponent)});
}
float smallest_subnormal(MinifloatSpec spec) {
  return power_of_two(spec.min_exponent() - spec.mantissa_bits);
}
float smallest_normal(MinifloatSpec spec) {
  return power_of_two(spec.min_exponent());
}
float epsilon(MinifloatSpec spec) {
  return power_of_two(-spec.mantissa_bits);
}
float largest(MinifloatSpec spec) {
  return value32(spec, spec.max_finite_code());
}

// more.md 4.3, use_e8m0_scale: the largest power of two not above s, the next one where s is above
// 1.75 times it; 1 for zero, Inf, NaN and where the power has no binary32 form. A subnormal counts
// as a fraction over 2^-126 without the leading one.
float mslk_power(float s) {
  const Number v = exact(s);
  if (!v.is_finite() || v.is_zero()) return from_bits32(0x3f800000u);
  const Dyadic least_normal = Dyadic::pow2(-126);
  if (v.magnitude < least_normal) {
    const bool up = v.magnitude > Dyadic(Integer(3), -128);
    return up ? power_of_two(-126) : from_bits32(0x3f800000u);
  }
  const int binade = v.magnitude.floor_log2();
  const int exponent = binade + (v.magnitude > Dyadic(Integer(7), binade - 2) ? 1 : 0);
  return exponent > 127 ? from_bits32(0x3f800000u) : power_of_two(exponent);
}

MinifloatSpec block_scale_of(const BlockFormat& format) {
  for (int i = 0; i < format.num_levels; ++i) {
    const ScaleLevel& level = format.levels[static_cast<std::size_t>(i)];
    if (level.group != 0) return level.spec;
  }
  return kUE4M3;
}

}  // namespace

float from_integer(std::uint32_t n) {
  return round32({Number::Kind::kFinite, false, Dyadic(Integer(n), 0)});
}
float value32(MinifloatSpec spec, std::uint32_t code) {
  return round32(value(spec, code));
}
float magnitude_of(float v) {
  return from_bits32(bits32(v) & 0x7fffffffu);
}
bool is_nan32(float v) {
  return exact(v).is_nan();
}

namespace {

// -1, 0, +1 as a < b, a == b, a > b; neither is NaN.
int compare(float a, float b) {
  const auto key = [](float v) {
    const auto magnitude = static_cast<std::int64_t>(bits32(v) & 0x7fffffffu);
    return (bits32(v) >> 31) != 0 ? -magnitude : magnitude;
  };
  return key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0;
}

}  // namespace

float min_number(float v, float limit) {
  return is_nan32(v) || compare(v, limit) > 0 ? limit : v;
}
float max_number(float v, float limit) {
  return is_nan32(v) || compare(v, limit) < 0 ? limit : v;
}
float clamp_torch(float v, float low, float high) {
  if (is_nan32(v)) return v;
  return compare(v, low) < 0 ? low : compare(v, high) > 0 ? high : v;
}
bool Machine::less(float a, float b) const {
  return !is_nan32(a) && !is_nan32(b) && compare(flushed(a), flushed(b)) < 0;
}

Nvfp4Rules::Nvfp4Rules(const Recipe& r, SourceType source)
    : recipe(r),
      options(r.nvfp4),
      element(r.format.element),
      scale(block_scale_of(r.format)),
      is_if4(r.nvfp4.int4_candidate),
      input_type(source == SourceType::kBf16  ? DType16::kBf16
                 : source == SourceType::kF16 ? DType16::kF16
                                              : DType16::kF32) {
  machine.ftz = options.ftz;
  if (has_approximate_reciprocals()) machine.rcp_table = rcp_bytes(r, options.rcp);
  top = largest(element);
  mapped = options.select == Select::kStatic4 ? kFour : top;
  // A user-defined scale type brings its own ceiling where E4M3 has 448.
  const float ceiling = scale == kUE4M3 ? from_integer(options.e4m3max) : largest(scale);
  // In Python and C++ alike 6 * M is a constant; it is exact.
  top_m = mul32(mapped, ceiling);
}

bool Nvfp4Rules::has_approximate_reciprocals() const {
  switch (options.order) {
    case Nvfp4Order::kFlashinferFast:
    case Nvfp4Order::kTrtllm:
    case Nvfp4Order::kVllm:
    case Nvfp4Order::kFlashinferKv:
      return true;
    default:
      return false;
  }
}
float Nvfp4Rules::over_number(float a, float number) const {
  return options.scalar_div == ScalarDiv::kExact ? div32(a, number) : mul32(a, div32(kOne, number));
}

// Section 3.1 and the g-rule table.
float Nvfp4Rules::encode_scale_of_tensor(float amax) const {
  if (exact(amax).is_zero()) return kOne;
  float g = kOne;
  switch (options.g_rule) {
    case GRule::kDivUnguarded:  // 3.2: amax > 0 ? min(2688/amax, FMAX) : 1
      return is_nan32(amax) ? kOne : min_number(div32(top_m, amax), kFmax);
    case GRule::kDiv:
      g = min_number(div32(top_m, amax), kFmax);
      break;
    case GRule::kRcpMul:
      g = mul32(div32(kOne, amax), top_m);
      break;
    case GRule::kInvDiv:
      g = div32(kOne, div32(amax, top_m));
      break;
    case GRule::kInvMul:
      g = div32(kOne, mul32(amax, div32(kOne, top_m)));
      break;
  }
  return exact(g).is_zero() ? kOne : g;
}

// Section 4.2.
float Nvfp4Rules::flashinfer_row_scale(float amax) const {
  const float g_inv = div32(kOne, top_m);
  if (options.order == Nvfp4Order::kFlashinferFast) {
    return machine.rcp(machine.mul(amax, g_inv));
  }
  if (machine.is_zero(amax)) return options.is_adaptive() ? kZero : kFmax;
  const float g = min_number(machine.div(machine.div(kOne, g_inv), amax), kFmax);
  return machine.is_zero(g) ? kOne : g;
}

OuterScale32 Nvfp4Rules::outer(std::uint32_t amax_bits) const {
  OuterScale32 outer;
  outer.amax = from_bits32(options.has_amax ? options.amax_bits : amax_bits);
  // nan_to_num of more.md 3, for weights in BF16.
  if (options.finite_amax && exact(outer.amax).is_infinite()) outer.amax = kBf16Max;
  outer.g = kOne;
  if (options.scale == OuterScale::kNone) return outer;
  if (options.scale == OuterScale::kGiven) {
    outer.g = from_bits32(options.g_bits);
    return outer;
  }
  const float amax = outer.amax;
  switch (options.order) {
    case Nvfp4Order::kFlashinfer:
    case Nvfp4Order::kFlashinferFast:
      outer.g = options.scale == OuterScale::kRow ? flashinfer_row_scale(amax)
                                                  : encode_scale_of_tensor(amax);
      break;
    case Nvfp4Order::kTe:
    case Nvfp4Order::kTeFast:
    case Nvfp4Order::kTrtllm:
    case Nvfp4Order::kVllm:
    case Nvfp4Order::kMslk:
    case Nvfp4Order::kMslkE8m0:
    case Nvfp4Order::kOnednn:
      outer.g = encode_scale_of_tensor(amax);
      break;
    case Nvfp4Order::kFouroversix:
    case Nvfp4Order::kFouroversixCuda:
    case Nvfp4Order::kMlxMetal:
    case Nvfp4Order::kMlxCuda:
    case Nvfp4Order::kMlxCpu:
      outer.g = div32(top_m, amax);
      break;
    case Nvfp4Order::kModelopt:
    case Nvfp4Order::kModeloptStatic:
    case Nvfp4Order::kTorchao:
    case Nvfp4Order::kFlashinferKv:
      outer.g = over_number(amax, top_m);
      break;
    case Nvfp4Order::kCompressedTensors: {
      const auto dt = [&](float v) { return round_to_type(options.amax_dtype, v); };
      outer.g = dt(mul32(dt(div32(kOne, dt(amax))), top_m));
      break;
    }
  }
  return outer;
}

float Nvfp4Rules::decode_scale(const OuterScale32& outer) const {
  return has_approximate_reciprocals() ? machine.rcp(outer.g) : machine.div(kOne, outer.g);
}

float Nvfp4Rules::unrounded_scale(const OuterScale32& outer, float bmax, Grid grid) const {
  const Machine& c = machine;
  const float g = outer.g;
  const float cap = largest(scale);
  const auto for_four = [&](float base) {
    return grid == Grid::kFour ? c.mul(base, kOneAndHalf) : base;
  };
  switch (options.order) {
    case Nvfp4Order::kTe:
    case Nvfp4Order::kTeFast:
      if (options.is_adaptive()) {  // 3.3
        return min_number(for_four(c.mul(c.div(bmax, top), g)), cap);
      }
      return min_number(c.mul(bmax, c.mul(g, c.div(kOne, top))), kFmax);
    case Nvfp4Order::kFlashinfer:
      if (options.is_adaptive()) return for_four(c.mul(c.div(bmax, top), g));
      if (c.is_zero(bmax)) return kZero;
      return c.mul(bmax, c.mul(g, c.div(kOne, top)));
    case Nvfp4Order::kFlashinferFast:
    case Nvfp4Order::kTrtllm:
    case Nvfp4Order::kVllm:
      return for_four(c.mul(g, c.mul(bmax, c.rcp(top))));
    case Nvfp4Order::kFlashinferKv:
      return c.mul(c.rcp(g), c.mul(bmax, c.rcp(top)));
    case Nvfp4Order::kFouroversix:
    case Nvfp4Order::kFouroversixCuda: {  // 5.1, 5.2
      if (options.scale == OuterScale::kTensor && exact(outer.amax).is_zero()) return kZero;
      const float s = for_four(mul32(div32(bmax, mapped), g));
      if (options.order == Nvfp4Order::kFouroversix) return s;
      return min_number(max_number(s, kZero), cap);
    }
    case Nvfp4Order::kModelopt: {  // 6
      const float s = div32(bmax, mul32(top, g));
      return clamp_torch(exact(s).is_zero() ? kOne : s, smallest_subnormal(scale), cap);
    }
    case Nvfp4Order::kModeloptStatic: {  // 6, fl(fl(p*M)/fl(gamax/6))
      float p = over_number(bmax, top);
      if (exact(p).is_zero()) p = kOne;
      const float m = from_integer(options.e4m3max);
      const float s = div32(mul32(p, m), over_number(outer.amax, top));
      return clamp_torch(s, smallest_subnormal(scale), cap);
    }
    case Nvfp4Order::kCompressedTensors: {
      const auto dt = [&](float v) { return round_to_type(options.amax_dtype, v); };
      const float s = mul32(g, dt(over_number(dt(bmax), top)));
      return clamp_torch(s, from_bits32(bits32(cap) | 0x80000000u), cap);
    }
    case Nvfp4Order::kTorchao: {
      float s = over_number(bmax, top);
      if (options.scale != OuterScale::kNone) s = div32(s, g);
      return clamp_torch(s, smallest_normal(scale), cap);
    }
    case Nvfp4Order::kMlxMetal:
    case Nvfp4Order::kMlxCuda: {  // more.md 4.1
      const float s = div32(bmax, top);
      return options.scale == OuterScale::kNone ? s : mul32(s, g);
    }
    case Nvfp4Order::kMlxCpu:
      return round_to_type(input_type, div32(bmax, top));
    case Nvfp4Order::kOnednn:  // more.md 4.2
      return max_number(min_number(div32(bmax, top), cap), epsilon(scale));
    case Nvfp4Order::kMslkE8m0:
      return mslk_power(mul32(div32(bmax, kFour), g));
    case Nvfp4Order::kMslk: {  // more.md 4.3
      const float s = mul32(div32(bmax, top), g);
      return min_number(max_number(s, smallest_subnormal(scale)), cap);
    }
  }
  return kZero;
}

std::uint32_t Nvfp4Rules::scale_byte(float s) const {
  const Number v = exact(s);
  const std::uint32_t nan = scale.magnitude_mask();
  switch (options.order) {
    case Nvfp4Order::kFouroversix:
    case Nvfp4Order::kModelopt:
    case Nvfp4Order::kModeloptStatic:
    case Nvfp4Order::kTorchao:
      return cast_special(scale, v, Rounding::kEven, nan);
    case Nvfp4Order::kCompressedTensors: {
      const std::uint32_t byte = cast_special(scale, v, Rounding::kEven, nan);
      if (!value(scale, byte).is_zero()) return byte;
      return cast_saturating(scale, exact(epsilon(scale)), Rounding::kEven);
    }
    case Nvfp4Order::kMlxMetal:
      return cast_saturating(scale, v, Rounding::kEven);  // NaN too
    default:
      return v.is_nan() ? nan : cast_saturating(scale, v, Rounding::kEven);
  }
}

float Nvfp4Rules::scale_value(std::uint32_t byte) const {
  return value32(scale, byte & scale.magnitude_mask());
}

Nvfp4Rules::Divisor Nvfp4Rules::divisor(const OuterScale32& outer, float bmax, float s,
                                        float sf) const {
  const Machine& c = machine;
  const float g = outer.g;
  const auto times = [](float factor) { return Divisor{factor, false, false}; };
  const auto by = [](float divisor) { return Divisor{divisor, true, false}; };
  const bool sf_is_zero = exact(sf).is_zero();
  switch (options.order) {
    case Nvfp4Order::kTeFast:
      if (!options.is_adaptive()) {
        return times(round_bf16(min_number(c.div(g, sf), kBf16Max)));
      }
      [[fallthrough]];
    case Nvfp4Order::kTe:
      return times(min_number(c.div(kOne, c.mul(sf, decode_scale(outer))), kFmax));
    case Nvfp4Order::kFlashinfer:
      if (c.is_zero(bmax)) return times(kZero);
      return times(min_number(c.div(kOne, c.mul(sf, decode_scale(outer))), kFmax));
    case Nvfp4Order::kFlashinferFast:
    case Nvfp4Order::kTrtllm:
    case Nvfp4Order::kVllm: {
      const float tested = options.order == Nvfp4Order::kFlashinferFast ? bmax
                           : options.order == Nvfp4Order::kTrtllm       ? s
                                                                        : sf;
      if (c.is_zero(tested)) return times(kZero);
      return times(c.rcp(c.mul(sf, decode_scale(outer))));
    }
    case Nvfp4Order::kFlashinferKv:
      if (c.is_zero(bmax)) return times(kZero);
      return times(c.rcp(c.mul(sf, g)));
    case Nvfp4Order::kFouroversix:
      if (sf_is_zero) return {kZero, false, true};
      return times(div32(kOne, mul32(div32(kOne, g), sf)));
    case Nvfp4Order::kFouroversixCuda:
      return times(min_number(div32(kOne, mul32(div32(kOne, g), sf)), kFmax));
    case Nvfp4Order::kModelopt:
    case Nvfp4Order::kModeloptStatic:
      return by(mul32(sf, g));
    case Nvfp4Order::kCompressedTensors:
      return by(div32(sf, g));
    case Nvfp4Order::kTorchao:
      if (options.scale == OuterScale::kNone) return times(div32(kOne, sf));
      return times(div32(div32(kOne, g), sf));
    case Nvfp4Order::kMlxMetal:
      return times(sf_is_zero ? kZero : div32(g, sf));
    case Nvfp4Order::kMlxCuda:
    case Nvfp4Order::kMslk:
    case Nvfp4Order::kMslkE8m0:
      return times(div32(g, sf));
    case Nvfp4Order::kMlxCpu:
      return by(sf);
    case Nvfp4Order::kOnednn:
      return times(div32(kOne, sf));
  }
  return times(kZero);
}

}  // namespace fp4scope::oracle::nvfp4
