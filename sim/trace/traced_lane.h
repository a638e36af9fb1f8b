// traced_lane.h: the lane that explains. TraceLane is Lane<1> with a float that writes every
// operation into the current recording; primitives that work on bit patterns are specialised to
// call their Lane<1> form and write one named step. A codec template over TraceLane therefore does
// exactly what it does over Lane<1>, and says so. Private to sim/trace; include it before any codec
// is used with TraceLane.
#pragma once
#include <type_traits>
#include <vector>

#include "formats/codecs/fp8.h"
#include "formats/codecs/hif4.h"
#include "formats/codecs/int4.h"
#include "formats/codecs/mx.h"
#include "formats/codecs/nvfp4.h"
#include "sim/trace/trace.h"

namespace fp4scope {

// Where steps go while it lives, one per thread at a time; recordings nest. Without one nothing is
// written.
class Recording {
 public:
  enum class Selects : std::uint8_t { kShown, kHidden };
  // kHidden: choices between two numbers are no steps (level bits, whose factors are 1 or 1/2).
  explicit Recording(std::vector<TraceStep>& steps, Selects selects = Selects::kShown);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  std::vector<TraceStep>* outer_steps_;
  Selects outer_selects_;
};

namespace traced {

float operation(char op, float a, float b);
// A number that becomes another one, where it does.
float rounding(const char* what, float from, float to);
// The same, written down in every case.
float named(const char* what, float from, float to);
std::uint32_t encoded(MinifloatSpec spec, Rounding rounding, bool saturates, float from,
                      std::uint32_t code, std::uint32_t random_byte);
float decoded(const char* what, std::uint32_t code, int storage_bits, float value);
float chosen(bool first, float a, float b);  // of select()
float bounded(const char* what, float v, float bound, float result);
void rule(const char* what, const std::string& expression, float value);
void statement(const char* what, const std::string& expression);  // without a number

}  // namespace traced

// 4 bytes and trivially copyable, so that bit_cast works. Converts from and to float freely: every
// operator has exact overloads, so no operation is lost to a conversion.
struct TracedFloat {
  float v;
  TracedFloat() = default;
  constexpr TracedFloat(float f) : v(f) {}  // NOLINT: as a float
  constexpr operator float() const { return v; }
};
static_assert(sizeof(TracedFloat) == 4 && std::is_trivially_copyable_v<TracedFloat>);

struct TraceLane {
  static constexpr int kWidth = 1;
  using F = TracedFloat;
  using U = std::uint32_t;
};

#define FP4SCOPE_TRACED_OPERATOR(op, name)                       \
  inline TracedFloat operator op(TracedFloat a, TracedFloat b) { \
    return traced::operation(name, a.v, b.v);                    \
  }                                                              \
  inline TracedFloat operator op(float a, TracedFloat b) {       \
    return traced::operation(name, a, b.v);                      \
  }
FP4SCOPE_TRACED_OPERATOR(+, '+')
FP4SCOPE_TRACED_OPERATOR(-, '-')
FP4SCOPE_TRACED_OPERATOR(*, '*')
FP4SCOPE_TRACED_OPERATOR(/, '/')
#undef FP4SCOPE_TRACED_OPERATOR
// F{} + c is how codecs write a constant in every lane: no step.
inline TracedFloat operator+(TracedFloat a, float b) {
  if (bit_cast<std::uint32_t>(a.v) == 0) return 0.0f + b;
  return traced::operation('+', a.v, b);
}
inline TracedFloat operator-(TracedFloat a, float b) {
  return traced::operation('-', a.v, b);
}
inline TracedFloat operator*(TracedFloat a, float b) {
  return traced::operation('*', a.v, b);
}
inline TracedFloat operator/(TracedFloat a, float b) {
  return traced::operation('/', a.v, b);
}

#define FP4SCOPE_TRACED_COMPARISON(op)                       \
  constexpr bool operator op(TracedFloat a, TracedFloat b) { \
    return a.v op b.v;                                       \
  }                                                          \
  constexpr bool operator op(TracedFloat a, float b) {       \
    return a.v op b;                                         \
  }                                                          \
  constexpr bool operator op(float a, TracedFloat b) {       \
    return a op b.v;                                         \
  }
FP4SCOPE_TRACED_COMPARISON(==)
FP4SCOPE_TRACED_COMPARISON(!=)
FP4SCOPE_TRACED_COMPARISON(<)
FP4SCOPE_TRACED_COMPARISON(<=)
FP4SCOPE_TRACED_COMPARISON(>)
FP4SCOPE_TRACED_COMPARISON(>=)
#undef FP4SCOPE_TRACED_COMPARISON

// --- overloads that the codecs find by their argument: what has no lane of its own ---

inline TracedFloat select(bool mask, TracedFloat a, TracedFloat b) {
  return traced::chosen(mask, a.v, b.v);
}
inline TracedFloat fmin_bound(TracedFloat a, TracedFloat bound) {
  return traced::bounded("at most", a.v, bound.v, fmin_bound(a.v, bound.v));
}
inline TracedFloat max_of(TracedFloat a, TracedFloat b) {
  return traced::bounded("at least", a.v, b.v, max_of(a.v, b.v));
}
inline TracedFloat min_of(TracedFloat a, TracedFloat b) {
  return traced::bounded("at most", a.v, b.v, min_of(a.v, b.v));
}
std::uint32_t lut_encode(const Lut& lut, TracedFloat v);
TracedFloat add_square_once(TracedFloat e, TracedFloat d);
std::uint32_t nvfp4_first_nearest(DType16 dtype, TracedFloat y);
Fp8Scale<TraceLane> fp8_torchao_scale(const Fp8Rules& r, TracedFloat amax);

// --- primitives that work on bits: one named step each ---

template <>
std::uint32_t encode<TraceLane>(MinifloatSpec spec, Rounding rounding, TracedFloat v,
                                std::uint32_t random_byte);
template <>
std::uint32_t cast<TraceLane>(MinifloatSpec spec, CastPolicy policy, TracedFloat v,
                              std::uint32_t random_byte);
template <>
TracedFloat decode<TraceLane>(MinifloatSpec spec, std::uint32_t code);
template <>
TracedFloat round_to_bf16<TraceLane>(TracedFloat v);
template <>
TracedFloat round_to_f16<TraceLane>(TracedFloat v);
template <>
TracedFloat multiply_round_to_odd<TraceLane>(TracedFloat a, TracedFloat b);
template <>
TracedFloat flush_subnormal<TraceLane>(TracedFloat v);
template <>
TracedFloat rcp_approx<TraceLane>(TracedFloat v, const std::uint8_t* table);
template <>
std::uint32_t e8m0_encode<TraceLane>(E8m0Rule rule, TracedFloat v);
template <>
TracedFloat e8m0_decode<TraceLane>(std::uint32_t byte);
template <>
TracedFloat e8m0_inverse<TraceLane>(std::uint32_t byte);
template <>
TracedFloat e6m2_reciprocal<TraceLane>(std::uint32_t code);
template <>
Log2Parts<TraceLane> log2_parts<TraceLane>(std::uint32_t magnitude);
template <>
std::uint32_t log2_rounded<TraceLane>(Log2Rounding rounding, Log2Parts<TraceLane> x);
template <>
TracedFloat mx_microx_torch<TraceLane>(const MxPlan& p, TracedFloat y);
template <>
Nvfp4Element<TraceLane> nvfp4_unsaturated<TraceLane>(TracedFloat y);
template <>
TracedFloat nvfp4_mslk_power<TraceLane>(TracedFloat s);
template <>
TracedFloat fp8_power_above<TraceLane>(TracedFloat s);
template <>
TracedFloat fp8_power_bounded<TraceLane>(TracedFloat s);
template <>
TracedFloat fp8_power_near<TraceLane>(TracedFloat s);
template <>
TracedFloat fp8_power_below<TraceLane>(TracedFloat s);

}  // namespace fp4scope
