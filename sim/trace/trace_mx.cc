// trace_mx.cc: MX formats and user-defined formats with power-of-two block scales, step by step.
#include <fmt/format.h>

#include "sim/rcp_table.h"
#include "sim/trace/trace_families.h"

namespace fp4scope {
namespace {

using L = TraceLane;
using S = Lane<1>;

MxPlan plan_of(const Recipe& recipe) {
  const bool needs_rcp = recipe.mx.scale_arith == MxScaleArith::kRcp;
  return mx_plan(recipe.mx, recipe.format.element,
                 needs_rcp ? rcp_bytes(recipe, recipe.mx.rcp) : nullptr);
}

// The rule of the byte in words; k = floor(log2 amax), e = emax, FMAX the largest element.
std::string rule_text(const MxPlan& p) {
  const MxOptions& o = p.options;
  const std::string quotient = o.scale_arith == MxScaleArith::kDiv
                                   ? fmt::format("fl(amax / {})", float_text(p.divisor))
                               : o.scale_arith == MxScaleArith::kMul
                                   ? fmt::format("fl(amax * fl(1/{}))", float_text(p.divisor))
                               : o.scale_arith == MxScaleArith::kRcp
                                   ? fmt::format("fl(amax * rcp~({}))", float_text(p.divisor))
                                   : fmt::format("amax / {}", float_text(p.divisor));
  switch (o.scale_rule) {
    case MxScaleRule::kFloor:
      return fmt::format("byte = 127 + floor(log2 amax) - {}", p.emax);
    case MxScaleRule::kCeil:
      return fmt::format("byte = 127 + ceil(log2 amax) - {}", p.emax);
    case MxScaleRule::kEven:
      return fmt::format("byte = 127 + exponent of amax rounded half up at {} fraction bit{} - {}",
                         p.even_bits, p.even_bits == 1 ? "" : "s", p.emax);
    case MxScaleRule::kRceil:
      return fmt::format("the smallest 2^(byte-127) >= {}", quotient);
    case MxScaleRule::kCeilLog2:
      return fmt::format("byte = 127 + ceil of the binary32 log2 of {}", quotient);
    case MxScaleRule::kFieldUp:
      return fmt::format("exponent field of {}, + 1 where it has a fraction", quotient);
    case MxScaleRule::kTritonUp:
      return fmt::format("exponent field of {} after 0x7fffff was added to its bits", quotient);
    case MxScaleRule::kTritonDown:
      return fmt::format("exponent field of amax / 2^{}", p.emax);
    case MxScaleRule::kRintLog2:
      return fmt::format("byte = 127 + rint of the binary32 log2 of amax - {}", p.emax);
    case MxScaleRule::kDown6:
      return fmt::format("exponent field of {}", quotient);
    case MxScaleRule::kRoundLog2:
      return fmt::format("byte = 127 + the binary32 log2 of {}, half away", quotient);
    case MxScaleRule::kMlxCpu:
      return fmt::format("byte = 127 + rint of the BF16 log2 of BF16({})", quotient);
  }
  return "";
}

// A maximum as exponent and fraction, what rules on the exponent field look at.
TraceStep parts_step(const MxAmax<S>& amax) {
  if (amax.magnitude == 0) return stated("amax as 2^k * (1 + f)", "zero");
  if (amax.exponent == kMxExponentOffset) return stated("amax", "a subnormal number of binary32");
  const int k = static_cast<int>(amax.exponent) - static_cast<int>(kMxExponentOffset) - 127;
  const float fraction = static_cast<float>(amax.fraction) * 0x1p-23f;
  return stated("amax as 2^k * (1 + f)", fmt::format("k = {}, f = {}", k, float_text(fraction)));
}

const char* mode_text(std::uint32_t mode) {
  switch (static_cast<MxMode>(mode)) {
    case MxMode::kErased:
      return "every code is zero with its sign";
    case MxMode::kNanBlock:
      return "every code is +0";
    case MxMode::kScaled:
      break;
  }
  return "";
}

struct Context {
  const TraceJob& job;
  MxPlan plan;
  bool is_binary64;
};

MxScale<L> trace_scale(const Context& c, const MxAmax<S>& amax) {
  TracePhase& phase = add_phase(c.job.out, "block scale (E8M0 byte)", rule_text(c.plan));
  const MxAmax<L> of_lane{amax.exponent, amax.fraction, amax.magnitude, amax.is_nan, amax.is_inf};
  phase.steps.push_back(parts_step(amax));
  if (amax.is_nan != 0) phase.steps.push_back(stated("NaN in the block", "the key nan rules"));
  if (amax.is_inf != 0) phase.steps.push_back(stated("infinite maximum", "the key inf rules"));
  if (amax.magnitude == 0 && amax.is_nan == 0) {
    phase.steps.push_back(stated("zero block", "the key zero-block rules"));
  }
  const MxScale<L> s =
      recorded(phase.steps, [&] { return mx_scale<L>(c.plan, c.is_binary64, of_lane); });
  const float scale = e8m0_decode<S>(s.byte);
  phase.steps.push_back(stated(
      "scale",
      fmt::format("byte {} = {} = {}", s.byte, code_text(s.byte, 8),
                  s.byte == 255 ? "NaN" : fmt::format("2^{}", static_cast<int>(s.byte) - 127)),
      scale));
  if (s.mode != static_cast<std::uint32_t>(MxMode::kScaled)) {
    phase.steps.push_back(stated("special case", mode_text(s.mode)));
  } else {
    phase.steps.push_back(stated("factor of the elements", float_text(s.inverse), s.inverse));
  }
  c.job.out.scale_bytes = {static_cast<std::uint8_t>(s.byte)};
  return s;
}

MxAmax<S> block_amax(const Context& c, std::uint32_t& bits) {
  const int n = c.job.block();
  if (c.is_binary64) {
    std::vector<double> x;
    float largest = 0;
    for (std::int64_t r = 0; r < c.job.tile.rows; ++r) {
      const double* row = c.job.tile.f64 + r * c.job.tile.stride;
      x.insert(x.end(), row, row + c.job.tile.cols);
      const std::vector<float> rounded = c.job.x(r);
      largest = max_of(largest, bit_cast<float>(amax_bits(rounded.data(), n)));
    }
    bits = bit_cast<std::uint32_t>(largest);
    return mx_amax(x.data(), static_cast<int>(x.size()));
  }
  MxAmax<S> amax = mx_amax_of_bits<S>(0u, 0u);
  for (std::int64_t r = 0; r < c.job.tile.rows; ++r) {
    std::vector<float> x = c.job.x(r);
    for (float& v : x) v = mx_narrow<S>(c.plan.options, v);
    amax = mx_merge<S>(amax, mx_amax<S>(x.data(), n));
  }
  bits = amax.magnitude;
  return amax;
}

// y, what the element cast starts from, as the codec has it for the two kinds of input.
struct Operand {
  TracedFloat y;
  std::uint32_t x_bits;
  bool is_zero;
};
Operand binary32_operand(const Context& c, float v, const MxScale<L>& s) {
  const TracedFloat x = mx_narrow<L>(c.plan.options, TracedFloat{v});
  const TracedFloat operand = c.plan.options.ftz ? flush_subnormal<L>(x) : x;
  const std::uint32_t bits = bit_cast<std::uint32_t>(x.v);
  return {operand * s.inverse, bits, (bits & kMagnitudeMask) == 0};
}
Operand binary64_operand(double v, const MxScale<L>& s, bool stochastic) {
  const bool is_zeroed = s.inverse == 0.0f;
  const double scaled = is_zeroed ? v * 0.0 : mx_scaled(v, s.byte < 255u ? s.byte : 127u);
  const float y = stochastic ? static_cast<float>(scaled) : round_to_odd(scaled);
  const bool is_exact = static_cast<double>(y) == scaled;
  traced::rule(is_exact || stochastic ? "binary64 product" : "binary64 product, rounded to odd",
               fmt::format("{} * 2^{} = {}", v, 127 - static_cast<int>(s.byte), float_text(y)), y);
  const auto sign = static_cast<std::uint32_t>(bit_cast<std::uint64_t>(v) >> 32) & kSignBit;
  return {y, sign, v == 0.0};
}

void trace_elements(const Context& c, const MxScale<L>& s) {
  const TraceJob& job = c.job;
  const std::vector<float> x = job.x(job.row);
  const std::vector<std::uint8_t> random = job.random();
  for (int i = 0; i < job.block(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    std::uint32_t refusal = 0, code = 0;
    const bool is_valid = i < job.tile.cols;
    const auto encode_one = [&] {
      const Operand o =
          c.is_binary64
              ? binary64_operand(is_valid ? job.tile.f64[job.row * job.tile.stride + i] : 0.0, s,
                                 !random.empty())
              : binary32_operand(c, x[at], s);
      code = mx_any_element<L>(c.plan, s, o.y, o.x_bits, o.is_zero ? 1u : 0u,
                               random.empty() ? 0u : std::uint32_t{random[at]}, !random.empty(),
                               refusal);
      if (s.mode != static_cast<std::uint32_t>(MxMode::kScaled)) {
        traced::statement("special case", mode_text(s.mode));
      }
      return code;
    };
    const auto decode_one = [&] { return mx_decode<L>(c.plan.element, code, s.byte); };
    add_element(job, i, encode_one, decode_one);
  }
}

}  // namespace

void trace_mx(const TraceJob& job) {
  const bool is_binary64 = job.tile.f64 != nullptr && job.recipe.casts_f64_directly();
  const Context c{job, plan_of(job.recipe), is_binary64};
  if (mx_narrows(c.plan.options) && !is_binary64) {
    job.out.notes.emplace_back(
        "Every element is first rounded to the type in which the contract's source works.");
  }
  std::uint32_t bits = 0;
  const MxAmax<S> amax = block_amax(c, bits);
  job.out.amax = bit_cast<float>(bits);
  TracePhase& phase = add_phase(job.out, "block maximum amax");
  phase.steps.push_back(amax_step(job, bits));
  trace_elements(c, trace_scale(c, amax));
}

}  // namespace fp4scope
