// traced_lane.cc: see traced_lane.h.
#include "sim/trace/traced_lane.h"

#include <fmt/format.h>

#include "sim/trace/traced_steps.h"

namespace fp4scope {
namespace {

using S = Lane<1>;

thread_local std::vector<TraceStep>* t_steps = nullptr;
thread_local Recording::Selects t_selects = Recording::Selects::kShown;

std::uint32_t bits_of(float v) {
  return bit_cast<std::uint32_t>(v);
}
TraceStep* add(StepKind kind, const char* what, std::string expression, float value) {
  if (t_steps == nullptr) return nullptr;
  TraceStep step;
  step.kind = kind;
  step.what = what;
  step.expression = std::move(expression);
  step.value = value;
  step.bits = bits_of(value);
  t_steps->push_back(std::move(step));
  return &t_steps->back();
}
void add_cast(const std::string& what, float from, std::uint32_t code, int storage_bits,
              float value, bool is_tie, const std::string& remark) {
  if (t_steps == nullptr) return;
  TraceStep* step = add(StepKind::kCast, what.c_str(),
                        fmt::format("{} -> {} = {}{}", float_text(from),
                                    code_text(code, storage_bits), float_text(value), remark),
                        value);
  step->a = from;
  step->code = code;
  step->is_tie = is_tie;
}

}  // namespace

Recording::Recording(std::vector<TraceStep>& steps, Selects selects)
    : outer_steps_(t_steps), outer_selects_(t_selects) {
  t_steps = &steps;
  t_selects = selects;
}
Recording::~Recording() {
  t_steps = outer_steps_;
  t_selects = outer_selects_;
}

namespace traced {

float operation(char op, float a, float b) {
  const float result = op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : a / b;
  if (t_steps == nullptr) return result;
  TraceStep* step = add(
      StepKind::kOperation, "",
      fmt::format("{} {} {} = {}", float_text(a), op, float_text(b), float_text(result)), result);
  step->op = op;
  step->a = a;
  step->b = b;
  return result;
}
float named(const char* what, float from, float to) {
  if (t_steps == nullptr) return to;
  TraceStep* step =
      add(StepKind::kRounding, what, fmt::format("{} -> {}", float_text(from), float_text(to)), to);
  step->a = from;
  return to;
}
float rounding(const char* what, float from, float to) {
  return bits_of(from) == bits_of(to) ? to : named(what, from, to);
}
std::uint32_t encoded(MinifloatSpec spec, Rounding rounding, bool saturates, float from,
                      std::uint32_t code, std::uint32_t random_byte) {
  if (t_steps == nullptr) return code;
  const bool is_random = rounding == Rounding::kStochastic;
  const bool is_tie = !is_random && is_tie_of(spec, from);
  const float value = decode<S>(spec, code);
  const bool is_saturated = saturates && is_saturated_by(spec, rounding, from);
  std::string remark;
  if (is_random) remark = fmt::format(", random byte {}", random_byte);
  if (is_tie) remark = ", a tie";
  if (is_saturated) remark = ", saturated";
  add_cast(spec_text(spec) + " " + rounding_name(rounding), from, code, spec.storage_bits(), value,
           is_tie, remark);
  t_steps->back().is_saturated = is_saturated;
  return code;
}
float decoded(const char* what, std::uint32_t code, int storage_bits, float value) {
  if (t_steps == nullptr) return value;
  TraceStep* step =
      add(StepKind::kDecode, what,
          fmt::format("{} = {}", code_text(code, storage_bits), float_text(value)), value);
  step->code = code;
  return value;
}
// Only where it takes away what has just been computed.
float chosen(bool first, float a, float b) {
  const float taken = first ? a : b, left = first ? b : a;
  if (t_steps == nullptr || t_steps->empty() || t_selects == Recording::Selects::kHidden ||
      bits_of(taken) == bits_of(left) || t_steps->back().bits != bits_of(left)) {
    return taken;
  }
  rule("special case", fmt::format("{} instead of {}", float_text(taken), float_text(left)), taken);
  return taken;
}
float bounded(const char* what, float v, float bound, float result) {
  if (bits_of(v) != bits_of(result)) {
    rule(what, fmt::format("{} instead of {}", float_text(bound), float_text(v)), result);
  }
  return result;
}
void rule(const char* what, const std::string& expression, float value) {
  add(StepKind::kRule, what, expression, value);
}
void statement(const char* what, const std::string& expression) {
  if (TraceStep* step = add(StepKind::kRule, what, expression, 0.0f)) step->is_number = false;
}

}  // namespace traced

// --- what has no lane of its own ---

std::uint32_t lut_encode(const Lut& lut, TracedFloat v) {
  const std::uint32_t code = lut_encode(lut, v.v);
  const bool is_tie = is_tie_of(lut, v.v);
  add_cast("nearest entry", v.v, code, lut.count > 16 ? 8 : 4, lut.value[code], is_tie,
           is_tie ? ", a tie" : "");
  if (t_steps != nullptr) t_steps->back().is_saturated = lut_excess(lut, v.v) > 1.0;
  return code;
}
TracedFloat add_square_once(TracedFloat e, TracedFloat d) {
  const float sum = add_square_once(e.v, d.v);
  traced::rule("fused",
               fmt::format("{} * {} + {} = {}", float_text(d.v), float_text(d.v), float_text(e.v),
                           float_text(sum)),
               sum);
  return sum;
}
std::uint32_t nvfp4_first_nearest(DType16 dtype, TracedFloat y) {
  const std::uint32_t code = nvfp4_first_nearest(dtype, y.v);
  const bool is_tie = is_tie_of(kE2M1, y.v);
  add_cast("first nearest E2M1", y.v, code, 4, decode<S>(kE2M1, code), is_tie,
           is_tie ? ", a tie" : "");
  return code;
}
Fp8Scale<TraceLane> fp8_torchao_scale(const Fp8Rules& r, TracedFloat amax) {
  const Fp8Scale<S> s = fp8_torchao_scale(r, amax.v);
  traced::rule("binary64",
               fmt::format("{} / max({}, 1e-12) -> {}", float_text(r.max), float_text(amax.v),
                           float_text(s.factor)),
               s.factor);
  return {1.0f / TracedFloat{s.factor}, s.factor};
}

// --- primitives ---

template <>
std::uint32_t encode<TraceLane>(MinifloatSpec spec, Rounding rounding, TracedFloat v,
                                std::uint32_t random_byte) {
  return traced::encoded(spec, rounding, true, v.v, encode<S>(spec, rounding, v.v, random_byte),
                         random_byte);
}
template <>
std::uint32_t cast<TraceLane>(MinifloatSpec spec, CastPolicy policy, TracedFloat v,
                              std::uint32_t random_byte) {
  return traced::encoded(spec, policy.rounding, policy.overflow == Overflow::kSaturate, v.v,
                         cast<S>(spec, policy, v.v, random_byte), random_byte);
}
template <>
TracedFloat decode<TraceLane>(MinifloatSpec spec, std::uint32_t code) {
  if (t_steps == nullptr) return decode<S>(spec, code);
  return traced::decoded(spec_text(spec).c_str(), code, spec.storage_bits(), decode<S>(spec, code));
}
template <>
TracedFloat round_to_bf16<TraceLane>(TracedFloat v) {
  return traced::rounding("rounded to BF16", v.v, round_to_bf16<S>(v.v));
}
template <>
TracedFloat round_to_f16<TraceLane>(TracedFloat v) {
  return traced::rounding("rounded to FP16", v.v, round_to_f16<S>(v.v));
}
template <>
TracedFloat multiply_round_to_odd<TraceLane>(TracedFloat a, TracedFloat b) {
  const float product = multiply_round_to_odd<S>(a.v, b.v);
  const bool is_exact = static_cast<double>(a.v) * static_cast<double>(b.v) == product;
  traced::rule(is_exact ? "exact product" : "product, rounded to odd",
               fmt::format("{} * {} = {}", float_text(a.v), float_text(b.v), float_text(product)),
               product);
  return product;
}
template <>
TracedFloat flush_subnormal<TraceLane>(TracedFloat v) {
  return traced::rounding("subnormal flushed", v.v, flush_subnormal<S>(v.v));
}
template <>
TracedFloat rcp_approx<TraceLane>(TracedFloat v, const std::uint8_t* table) {
  return traced::named(table != nullptr ? "rcp~ from the table" : "rcp~, correctly rounded", v.v,
                       rcp_approx<S>(v.v, table));
}
template <>
std::uint32_t e8m0_encode<TraceLane>(E8m0Rule rule, TracedFloat v) {
  const std::uint32_t byte = e8m0_encode<S>(rule, v.v);
  add_cast(rule == E8m0Rule::kUpNoSat ? "E8M0, upward" : "E8M0", v.v, byte, 8, e8m0_decode<S>(byte),
           false, "");
  return byte;
}
template <>
TracedFloat e8m0_decode<TraceLane>(std::uint32_t byte) {
  return traced::decoded("E8M0", byte, 8, e8m0_decode<S>(byte));
}
template <>
TracedFloat e8m0_inverse<TraceLane>(std::uint32_t byte) {
  const float inverse = e8m0_inverse<S>(byte);
  traced::rule("inverse", fmt::format("2^(127 - {}) = {}", byte, float_text(inverse)), inverse);
  return inverse;
}
template <>
TracedFloat e6m2_reciprocal<TraceLane>(std::uint32_t code) {
  const float r = e6m2_reciprocal<S>(code);
  traced::rule("R, reciprocal in BF16",
               fmt::format("1 / {} -> {}", float_text(decode<S>(kE6M2, code)), float_text(r)), r);
  return r;
}
template <>
Log2Parts<TraceLane> log2_parts<TraceLane>(std::uint32_t magnitude) {
  const Log2Parts<S> parts = log2_parts<S>(magnitude);
  return {parts.exponent, parts.fraction};
}
template <>
std::uint32_t log2_rounded<TraceLane>(Log2Rounding rounding, Log2Parts<TraceLane> x) {
  static constexpr const char* kNames[] = {
      "floor of the binary32 log2", "ceiling of the binary32 log2",
      "binary32 log2 to the nearest, half to even", "binary32 log2 to the nearest, half away",
      "BF16 log2 to the nearest, half to even"};
  const std::uint32_t rounded = log2_rounded<S>(rounding, {x.exponent, x.fraction});
  const int k = static_cast<int>(rounded) - static_cast<int>(kLog2Offset);
  traced::rule(kNames[static_cast<int>(rounding)],
               x.exponent == 0
                   ? "of zero: below every scale"
                   : fmt::format("2^{} * (1 + {}/2^23) -> {}",
                                 static_cast<int>(x.exponent) - static_cast<int>(kLog2Offset),
                                 x.fraction, k),
               static_cast<float>(k));
  return rounded;
}
template <>
TracedFloat mx_microx_torch<TraceLane>(const MxPlan& p, TracedFloat y) {
  return traced::named("rounded by microxcaling's torch path", y.v, mx_microx_torch<S>(p, y.v));
}
template <>
Nvfp4Element<TraceLane> nvfp4_unsaturated<TraceLane>(TracedFloat y) {
  const Nvfp4Element<S> e = nvfp4_unsaturated<S>(y.v);
  const bool is_tie = is_tie_of(kE2M1, y.v);
  add_cast("E2M1 RNE without saturation", y.v, e.code, 4, e.value, is_tie, is_tie ? ", a tie" : "");
  return {e.code, e.value};
}
template <>
TracedFloat nvfp4_mslk_power<TraceLane>(TracedFloat s) {
  return traced::named("power of two", s.v, nvfp4_mslk_power<S>(s.v));
}
template <>
TracedFloat fp8_power_above<TraceLane>(TracedFloat s) {
  return traced::rounding("power of two at or above", s.v, fp8_power_above<S>(s.v));
}
template <>
TracedFloat fp8_power_bounded<TraceLane>(TracedFloat s) {
  return traced::rounding("power of two at or above", s.v, fp8_power_bounded<S>(s.v));
}
template <>
TracedFloat fp8_power_near<TraceLane>(TracedFloat s) {
  return traced::rounding("nearest power of two", s.v, fp8_power_near<S>(s.v));
}
template <>
TracedFloat fp8_power_below<TraceLane>(TracedFloat s) {
  return traced::rounding("power of two at or below", s.v, fp8_power_below<S>(s.v));
}

}  // namespace fp4scope
