// oracle_int4.cc: INT4 group quantization (spec/more.md sections 1.1 and 1.2, line by line).
// w: element; amax: largest magnitude of a group; s: scale; q: integer; dt(): the dtype of the
// weight. Group size, width of the integers and type of the stored scale come from the format.
#include <array>
#include <string>

#include "formats/hd.h"
#include "sim/error.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"
#include "sim/oracle/oracle_groups.h"

namespace fp4scope::oracle {
namespace {

using namespace groups;

const float kOne = bit_cast<float>(kOneBits);

// rint to an integer, then clamp; stochastic rounding (spec/scalars.md 2.3, step 1) where there is
// a random byte. A value that is not finite saturates.
int rint_clamped(float v, int least, int most, const std::uint32_t* random = nullptr) {
  Number x = exact(v);
  const bool negative = x.negative;
  if (x.is_infinite() || x.magnitude > Dyadic(Integer(1u << 20), 0)) return negative ? least : most;
  const Dyadic one = Dyadic::pow2(0);
  if (random != nullptr) {
    x.negative = false;
    x.magnitude = x.magnitude + Dyadic(Integer(*random), -8);
    x = exact(round32(x));
  }
  const Integer floor = floor_quotient(x.magnitude, one);
  int n = floor.convert_to<int>();
  const auto side = (x.magnitude - Dyadic(floor, 0)).scaled(1) <=> one;
  if (random == nullptr && (side > 0 || (side == 0 && n % 2 != 0))) ++n;
  if (negative) n = -n;
  return n < least ? least : n > most ? most : n;
}

// What an order does to one group.
struct Rules {
  const Int4Options& options;
  int most;  // 7
  // Widths other than 4 keep the meaning of the options: scale-div 7.5 is the middle of the range,
  // qmin -8 its full lower end.
  int least() const { return options.qmin == -8 ? -most - 1 : -most; }
  Integer divisor_x2() const {
    return Integer(static_cast<int>(options.scale_div_x2) - 14 + 2 * most);
  }

  float dt(float v) const { return round_to_type(options.dtype, v); }
  // amax / divisor of torch (spec/scalars.md section 8).
  float over_divisor(float amax) const {
    const float divisor = rounded32(Dyadic(divisor_x2(), -1), Dyadic::pow2(0));
    if (options.scalar_div == ScalarDiv::kRcp) return mul32(amax, div32(kOne, divisor));
    return div32(amax, divisor);
  }
  // max(v, 1e-5) of miles.
  float floored(float v) const {
    const float floor = rounded32(Dyadic(1, 0), Dyadic(100000, 0));
    return less_than(v, floor) ? floor : v;
  }
  // The machine epsilon of the dtype, scale of an all-zero group of ct-rtn.
  float epsilon() const {
    const int exponent = options.dtype == DType16::kBf16  ? -7
                         : options.dtype == DType16::kF16 ? -10
                                                          : -23;
    return rounded32(Dyadic::pow2(exponent), Dyadic::pow2(0));
  }
};

struct Scales {
  float stored;   // before it gets the type of the stored scale
  float divisor;  // of the codes
};

Scales scales_of(const Rules& rules, float amax) {
  switch (rules.options.order) {
    case Int4Order::kCtRtn: {
      const float s = rules.dt(rules.over_divisor(amax));
      const float nonzero = is_zero(s) ? rules.epsilon() : s;
      return {nonzero, nonzero};
    }
    case Int4Order::kRtpLlmCt:  // the E4M3 rounding of the stored scale comes later
    case Int4Order::kSkyrl: {
      const float s = round_bf16(rules.dt(rules.over_divisor(amax)));  // stored as BF16
      return {s, is_zero(s) ? kOne : s};
    }
    case Int4Order::kMilesTrain: {
      const float s = rules.floored(rules.over_divisor(amax));
      return {s, s};
    }
    case Int4Order::kMilesExport: {
      const float seventh = div32(kOne, from_integer(static_cast<std::uint32_t>(rules.most)));
      const float s32 = rules.floored(mul32(amax, seventh));
      return {round_bf16(s32), s32};
    }
    case Int4Order::kRtpLlm: {
      // clamp to [1e-12, 56] in the dtype; the E4M3 rounding of the stored scale comes later.
      const float least = rounded32(Dyadic(1, 0), Dyadic(Integer(1000000000000ll), 0));
      const float most = from_integer(56);
      float s = rules.dt(rules.over_divisor(amax));
      s = less_than(s, least) ? least : less_than(most, s) ? most : s;
      s = rules.dt(s);
      return {s, s};
    }
  }
  return {kOne, kOne};
}

int integer_of(const Rules& rules, const Scales& s, float w, const std::uint32_t* random) {
  const int least = rules.least(), most = rules.most;
  switch (rules.options.order) {
    case Int4Order::kCtRtn:  // rint(clamp(dt(w/s))): the bounds are integers
    case Int4Order::kRtpLlmCt:
    case Int4Order::kSkyrl:  // clamp(rint(dt(w/s)))
    case Int4Order::kRtpLlm:
      return rint_clamped(rules.dt(div32(w, s.divisor)), least, most, random);
    case Int4Order::kMilesTrain:
      return rint_clamped(div32(w, s.divisor), least, most, random);
    case Int4Order::kMilesExport: {
      // |q1| <= 7 by construction; the second step only restores q1.
      const int q1 = rint_clamped(div32(w, s.divisor), -most, most, random);
      Number n;
      n.negative = q1 < 0;
      n.magnitude = Dyadic(Integer(q1 < 0 ? -q1 : q1), 0);
      const float w2 = round_bf16(mul32(round32(n), s.stored));
      return rint_clamped(round_bf16(div32(w2, s.stored)), -most, most);
    }
  }
  return 0;
}

OuterScale32 outer(const Recipe&, std::uint32_t amax_bits) {
  return {bit_cast<float>(amax_bits), kOne};
}

Rules rules_of(const Recipe& recipe) {
  return {recipe.int4, static_cast<int>(recipe.format.element.max_finite_code())};
}

void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32>,
              QuantizedTile& out) {
  resize(out, recipe, tile.rows, tile.cols);
  const Rules rules = rules_of(recipe);
  const std::uint32_t code_mask = recipe.format.element.code_count() - 1u;
  std::vector<std::uint8_t> codes;
  for_each_group(recipe, tile, out, [&](const Group& group) {
    float amax = bit_cast<float>(0u);
    for (std::size_t i = 0; i < group.x.size(); ++i) {
      if (!exact(group.x[i]).is_finite()) {
        throw RefusedInput(group.top + static_cast<std::int64_t>(i) / recipe.format.block,
                           "NaN or Inf, for which INT4 contracts have no rule");
      }
      amax = max_dropping_nan(amax, magnitude_of(group.x[i]));
    }
    const Scales s = scales_of(rules, amax);
    codes.clear();
    for (std::size_t i = 0; i < group.x.size(); ++i) {
      const std::uint32_t* random = recipe.sr.enabled ? &group.random[i] : nullptr;
      const int q = integer_of(rules, s, group.x[i], random);
      codes.push_back(static_cast<std::uint8_t>(static_cast<std::uint32_t>(q) & code_mask));
    }
    std::array<std::uint8_t, 4> scale{};
    store_scale(recipe.format.levels[0], s.stored, scale.data());
    put_group(recipe, group, scale, codes, out);
  });
}

// deq = dt(fl(q * s)) with the stored scale.
float decode(const Recipe& recipe, const OuterScale32&, const std::uint8_t* scale, bool, int,
             std::uint32_t code) {
  const float s = load_scale(recipe.format.levels[0], scale);
  const float q = round32(value(recipe.format.element, code));
  const float product = mul32(q, s);
  return recipe.int4.order == Int4Order::kMilesExport ? round_bf16(product)
                                                      : rules_of(recipe).dt(product);
}

}  // namespace

OracleFamily int4_oracle() {
  return {[](const Recipe& recipe) {
            const BlockFormat& format = recipe.format;
            const bool is_integer = format.lut == nullptr && format.element.is_twos_complement();
            return is_integer
                       ? Support{}
                       : Support{false, "the exact oracle has group scales of integers only"};
          },
          outer, quantize, decode};
}

}  // namespace fp4scope::oracle
