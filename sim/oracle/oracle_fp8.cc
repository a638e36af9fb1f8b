// oracle_fp8.cc: FP8 with one scale per tensor, row or block (spec/more.md sections 0, 2.1, 2.4 and
// 6, line by line). amax: largest magnitude under a scale; s: decode scale; S: encode scale; top:
// largest finite element (448 of E4M3, 57344 of E5M2); R448 of the document is fl(1/top).
#include <array>

#include "formats/hd.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"
#include "sim/oracle/oracle_groups.h"
#include "sim/rcp_table.h"

namespace fp4scope::oracle {
namespace {

using namespace groups;

const float kOne = bit_cast<float>(kOneBits);
const float kZero = bit_cast<float>(0u);
const float kFmax = bit_cast<float>(0x7f7fffffu);

// 10^-k as binary32.
float decimal(int k) {
  Integer ten_to_k = 1;
  for (int i = 0; i < k; ++i) ten_to_k *= 10;
  return rounded32(Dyadic(1, 0), Dyadic(ten_to_k, 0));
}
float at_least(float v, float floor) {
  return less_than(v, floor) ? floor : v;  // a NaN stays
}
float power_of_two(int exponent) {
  return rounded32(Dyadic::pow2(exponent), Dyadic::pow2(0));
}
bool is_finite(float v) {
  return exact(v).is_finite();
}

// Exponent field plus one where there is a fraction: "exponent bump" of the document.
int bumped_field(float s) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(s) & 0x7fffffffu;
  return static_cast<int>(bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0);
}
// Round S down to a power of two: fraction cleared.
float fraction_cleared(float s) {
  return bit_cast<float>(bit_cast<std::uint32_t>(s) & 0xff800000u);
}
// exp2(ceil(log2(s))), exact, from 2^-127 on.
float ceil_power(float s) {
  if (!is_finite(s)) return s;
  return round32(value_e8m0(smallest_e8m0(exact(s).magnitude, Dyadic::pow2(0))));
}
// exp2(round(log2(s))), exact: up where s^2 > 2^(2e + 1); no binary number has s^2 equal to it.
float nearest_power(float s) {
  const Number x = exact(s);
  if (x.is_zero() || !x.is_finite()) return s;  // exp2(-Inf), exp2(Inf)
  const int e = x.magnitude.floor_log2();
  const bool up = x.magnitude * x.magnitude > Dyadic::pow2(2 * e + 1);
  return power_of_two(e + (up ? 1 : 0));
}

// a / b rounded to binary64, then to binary32; a, b > 0.
float quotient_by_64(const Dyadic& a, const Dyadic& b) {
  int leading = a.floor_log2() - b.floor_log2();
  if (a < b.scaled(leading)) --leading;
  const Dyadic unit = b.scaled(leading - 52);
  Integer n = floor_quotient(a, unit);
  const Dyadic rest = a - unit * Dyadic(n, 0);
  const auto side = rest.scaled(1) <=> unit;
  if (side > 0 || (side == 0 && bit_test(n, 0))) ++n;
  return rounded32(Dyadic(n, leading - 52), Dyadic::pow2(0));
}

enum class Use {
  kProduct,  // fl(x * factor)
  kQuotient  // fl(x / factor)
};
// What becomes of a NaN: section 2.4 and the head of formats/contracts/fp8.h.
enum class Cast {
  kSaturating,  // E4M3(): NaN 0x7F
  kTorch,       // E4M3t()
  kClampTorch,  // clamp of torch to +-top, a NaN stays, then the cast
  kClampFmin    // clamp of CUDA and Triton, fmax(-top, fmin(y, top)): a NaN becomes top
};
struct Scale {
  float stored;  // decode scale
  float factor;
  Use use;
  Cast cast;
};

struct Rules {
  const Fp8Options& options;
  MinifloatSpec element;
  float top;
  const std::uint8_t* rcp;
  bool is_outer;  // one scale per tensor or row

  bool pow2() const { return options.scale_fmt != ScaleFmt::kF32; }
  float dt(float v) const { return round_to_type(options.dtype, v); }
  // tensor / python_number (spec/more.md section 0)
  float over_top(float amax) const {
    if (options.scalar_div == ScalarDiv::kRcp) return mul32(amax, div32(kOne, top));
    return div32(amax, top);
  }
  // a / b in a kernel: IEEE, or the quotient of Triton
  float quotient(float a, float b) const {
    return options.div == Div::kIeee ? div32(a, b) : mul32(a, rcp_approx(b, rcp));
  }
  float bounded(float amax) const {  // by the optional upper bound of fbgemm
    const float bound = bit_cast<float>(options.bound_bits);
    return less_than(bound, amax) ? bound : amax;
  }
  float largest_of_dtype() const {
    switch (options.dtype) {
      case DType16::kBf16:
        return bit_cast<float>(0x7f7f0000u);
      case DType16::kF16:
        return from_integer(65504);
      case DType16::kF32:
        break;
    }
    return kFmax;
  }
  // A power of two from its exponent field; field 255 is an infinite scale with inverse 0.
  static Scale with_exact_inverse(int field) {
    const float inverse = field == 255 ? kZero : power_of_two(127 - field);
    return {power_of_two(field - 127), inverse, Use::kProduct, Cast::kSaturating};
  }
  Scale scale(float amax) const;
  std::uint32_t code(const Scale& s, float x, const std::uint32_t* random) const;
};

Rules rules_of(const Recipe& recipe) {
  const MinifloatSpec element = recipe.format.element;
  const bool uses_rcp = recipe.fp8.div == Div::kTriton;
  return {recipe.fp8, element, round32(value(element, element.max_finite_code())),
          uses_rcp ? rcp_bytes(recipe, recipe.fp8.rcp) : nullptr, recipe.has_outer()};
}

Scale Rules::scale(float amax) const {
  switch (options.order) {
    case Fp8Order::kTe:
    case Fp8Order::kTeDelayed: {
      const bool delayed = options.order == Fp8Order::kTeDelayed;
      const float a = delayed ? amax : at_least(amax, bit_cast<float>(options.eps_bits));
      float S = kOne;  // amax NaN, Inf or 0; te-delayed: the scale before, initially 1
      if (is_finite(a) && !is_zero(a)) {
        const float mapped_to =
            delayed ? mul32(top, power_of_two(-static_cast<int>(options.margin))) : top;
        S = div32(mapped_to, a);
        if (!is_finite(S)) S = options.gran.is_tensor() ? kFmax : largest_of_dtype();
      }
      if (pow2()) S = fraction_cleared(S);
      return {div32(kOne, S), S, Use::kProduct, Cast::kSaturating};
    }
    case Fp8Order::kDeepgemm: {
      float s = over_top(at_least(amax, decimal(4)));
      if (pow2()) {
        const int field = bumped_field(s);
        s = power_of_two((field < 1 ? 1 : field > 254 ? 254 : field) - 127);
      }
      return {s, div32(kOne, s), Use::kProduct, Cast::kTorch};
    }
    case Fp8Order::kTilekernels: {
      // FP4 elements have the floor 6 * 2^-126.
      const bool fp4 = element.storage_bits() == 4;
      const float floored =
          at_least(amax, fp4 ? mul32(from_integer(6), power_of_two(-126)) : decimal(4));
      const float s = div32(floored, top);
      if (pow2()) {
        const auto field = static_cast<int>((bit_cast<std::uint32_t>(s) - 1u) >> 23) + 1;
        return with_exact_inverse(field);
      }
      return {s, div32(top, floored), Use::kProduct, Cast::kSaturating};
    }
    case Fp8Order::kTritonGroup:
    case Fp8Order::kTritonGroupDiv: {
      float s = quotient(at_least(amax, decimal(10)), top);
      if (pow2()) s = ceil_power(s);
      if (options.order == Fp8Order::kTritonGroupDiv) {
        return {s, s, Use::kQuotient, Cast::kClampFmin};
      }
      return {s, quotient(kOne, s), Use::kProduct, Cast::kClampFmin};
    }
    case Fp8Order::kVllmGroup: {
      float s = quotient(at_least(amax, decimal(10)), top);
      if (pow2()) s = power_of_two(bumped_field(at_least(s, decimal(10))) - 127);
      return {s, s, Use::kQuotient, Cast::kClampFmin};
    }
    case Fp8Order::kSglGroup: {
      const float floored = at_least(amax, decimal(10));
      const float s = mul32(floored, div32(kOne, top));
      if (pow2()) return with_exact_inverse(bumped_field(s));
      return {s, quotient(top, floored), Use::kProduct, Cast::kSaturating};
    }
    case Fp8Order::kSglToken: {
      const float s = quotient(amax, top);
      if (is_zero(s)) return {s, kZero, Use::kProduct, Cast::kClampFmin};  // codes 0
      return {s, quotient(kOne, s), Use::kProduct, Cast::kClampFmin};
    }
    case Fp8Order::kVllmToken:
    case Fp8Order::kFbgemmCuda: {
      // 1 / 229376 = 1 / (448 * 512)
      const float least = div32(kOne, mul32(top, from_integer(512)));
      const bool vllm = options.order == Fp8Order::kVllmToken;
      const float s = at_least(quotient(vllm ? amax : bounded(amax), top), least);
      return {s, s, Use::kQuotient, vllm ? Cast::kClampFmin : Cast::kSaturating};
    }
    case Fp8Order::kVllmTensor: {
      const float s = quotient(amax, top);
      return {s, quotient(kOne, s), Use::kProduct, Cast::kClampFmin};
    }
    case Fp8Order::kFbgemmTriton: {
      const float S = quotient(top, bounded(at_least(amax, decimal(12))));
      // Above 2^126 the reciprocal of amax is flushed and S is 0. The recorded scale of such a row
      // (fp8.json) is 2^127, the closed form of spec/scalars.md section 9 at 0, not Inf.
      const bool flushed = options.div == Div::kTriton && is_zero(S);
      return {flushed ? power_of_two(127) : quotient(kOne, S), S, Use::kProduct, Cast::kClampFmin};
    }
    case Fp8Order::kTorchaoDyn: {
      // binary64: top / max(amax, 1e-12), then binary32
      float S = kZero;  // top / Inf
      if (is_finite(amax)) {
        const Dyadic least = exact(1e-12).magnitude, a = exact(amax).magnitude;
        S = quotient_by_64(exact(top).magnitude, a < least ? least : a);
      }
      if (pow2()) S = fraction_cleared(S);  // exp2(floor(log2 S))
      return {div32(kOne, S), S, Use::kProduct, Cast::kClampTorch};
    }
    case Fp8Order::kTorchaoAffine: {
      float s = dt(over_top(amax));
      if (pow2()) s = nearest_power(s);
      return {s, s, Use::kQuotient, Cast::kClampTorch};
    }
    case Fp8Order::kHfBlock: {
      const float s = over_top(is_outer ? at_least(dt(amax), decimal(12)) : dt(amax));
      return {s, s, Use::kQuotient, Cast::kClampTorch};
    }
    case Fp8Order::kVerlDsv4: {
      // s clamped to [2^-127, 2^127], then exp2(ceil(log2 s))
      float s = is_zero(amax) ? kOne : over_top(amax);
      const float least = power_of_two(-127), most = power_of_two(127);
      s = less_than(s, least) ? least : less_than(most, s) ? most : s;
      s = ceil_power(s);
      return {s, s, Use::kQuotient, Cast::kTorch};
    }
    case Fp8Order::kVllmTorchTensor: {
      const float floored = dt(at_least(amax, decimal(12)));
      const float S = dt(mul32(dt(div32(kOne, floored)), top));
      return {div32(kOne, S), S, Use::kProduct, Cast::kClampTorch};
    }
    case Fp8Order::kVllmKv: {
      const float g = bit_cast<float>(options.g_bits);
      return {g, g, Use::kQuotient, Cast::kSaturating};
    }
  }
  return {kOne, kOne, Use::kProduct, Cast::kSaturating};
}

// `random`: the byte of stochastic rounding, or null. What is finite saturates then.
std::uint32_t Rules::code(const Scale& s, float x, const std::uint32_t* random) const {
  float y = s.use == Use::kProduct ? mul32(x, s.factor) : quotient(x, s.factor);
  if (options.order == Fp8Order::kVllmTorchTensor) y = dt(y);
  const std::uint32_t nan_code = element.magnitude_mask();
  const Number n = exact(y);
  if (n.is_nan()) return s.cast == Cast::kClampFmin ? element.max_finite_code() : nan_code;
  const bool overflows = s.cast == Cast::kTorch && n.is_infinite();
  if (random != nullptr && !overflows) {
    return stochastic(element, magnitude_of(y), *random) | (n.negative ? element.sign_mask() : 0u);
  }
  if (s.cast == Cast::kTorch) return cast_special(element, n, Rounding::kEven, nan_code);
  return cast_saturating(element, n, Rounding::kEven);
}

// A torch maximum; the amax of a tensor or row comes with its NaN (OuterScale32).
bool propagates_nan(const Rules& rules) {
  switch (rules.options.order) {
    case Fp8Order::kDeepgemm:
    case Fp8Order::kTorchaoAffine:
    case Fp8Order::kHfBlock:
    case Fp8Order::kVerlDsv4:
      return true;
    default:
      return false;
  }
}

Support support(const Recipe& recipe) {
  if (recipe.format.lut != nullptr) {
    return {false, "the exact oracle has no elements from a table here"};
  }
  const Fp8Order order = recipe.fp8.order;
  switch (order) {
    case Fp8Order::kSglToken:
    case Fp8Order::kVllmToken:
    case Fp8Order::kVllmTensor:
    case Fp8Order::kFbgemmTriton:
    case Fp8Order::kFbgemmCuda:
    case Fp8Order::kHfBlock:
    case Fp8Order::kVllmTorchTensor:
    case Fp8Order::kVllmKv:
    case Fp8Order::kTeDelayed:
      if (recipe.fp8.scale_fmt != ScaleFmt::kF32)
        return {false, "the contract has no rule for power-of-two scales"};
      return {};
    case Fp8Order::kVerlDsv4:
      if (recipe.fp8.scale_fmt == ScaleFmt::kF32)
        return {false, "the contract has power-of-two scales only"};
      return {};
    default:
      return {};
  }
}

OuterScale32 outer(const Recipe& recipe, std::uint32_t amax_bits) {
  const float amax = bit_cast<float>(recipe.fp8.has_amax ? recipe.fp8.amax_bits : amax_bits);
  if (!recipe.has_outer()) return {amax, kOne};
  return {amax, rules_of(recipe).scale(amax).stored};
}

void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer_scales,
              QuantizedTile& out) {
  resize(out, recipe, tile.rows, tile.cols);
  const Rules rules = rules_of(recipe);
  const bool propagates = propagates_nan(rules);
  std::vector<std::uint8_t> codes;
  for_each_group(recipe, tile, out, [&](const Group& group) {
    float amax = kZero;
    for (const float x : group.x) {
      const bool nan = propagates && (is_nan(x) || is_nan(amax));
      amax = nan ? bit_cast<float>(0x7fc00000u) : max_dropping_nan(amax, magnitude_of(x));
    }
    if (rules.is_outer) amax = outer_of_row(recipe, outer_scales, group.top).amax;
    const Scale s = rules.scale(amax);
    codes.clear();
    for (std::size_t i = 0; i < group.x.size(); ++i) {
      const std::uint32_t* random = recipe.sr.enabled ? &group.random[i] : nullptr;
      codes.push_back(static_cast<std::uint8_t>(rules.code(s, group.x[i], random)));
    }
    std::array<std::uint8_t, 4> scale{};
    if (!rules.is_outer) store_scale(recipe.format.levels[0], s.stored, scale.data());
    put_group(recipe, group, scale, codes, out);
  });
}

// x = fl(code * scale). The KV cache decodes through FP16, which holds every FP8 value.
float decode(const Recipe& recipe, const OuterScale32& outer_scale, const std::uint8_t* scale, bool,
             int, std::uint32_t code) {
  const float s = recipe.has_outer() ? outer_scale.g : load_scale(recipe.format.levels[0], scale);
  return mul32(round32(value(recipe.format.element, code)), s);
}

}  // namespace

OracleFamily fp8_oracle() {
  return {support, outer, quantize, decode};
}

}  // namespace fp4scope::oracle
