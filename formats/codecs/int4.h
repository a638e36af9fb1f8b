// int4.h: INT4 group quantization, value = q * scale, no zero point. Rules: spec/more.md 1.1, 1.2;
// sources: formats/contracts/int4.h. amax of a group -> scale; x -> code. Lanes may be groups or
// elements of one group. NaN and infinity are refused by the caller.
#pragma once
#include "formats/minifloat.h"
#include "formats/scalars.h"

namespace fp4scope {

template <class L>
struct Int4Scale {
  typename L::F stored;   // value of what is stored
  typename L::F divisor;  // of the elements; miles-export needs both
};

// What the scale rules need beside the maximum.
struct Int4Rules {
  Int4Options options;
  ScaleKind kind;   // what is stored; the value is rounded to it
  float scale_div;  // of amax
};
// Divisor of amax: 7.5 or 7 for four bits, (2^n - 1)/2 or (2^n - 2)/2 for n; `max` for elements
// that are no integers.
FP4SCOPE_HD constexpr float int4_scale_div(const Int4Options& o, MinifloatSpec spec, float max) {
  if (!spec.is_twos_complement()) return max;
  const auto twice = static_cast<float>(spec.code_count() - 16u + o.scale_div_x2);
  return twice * 0.5f;
}

// A scale rounded to what is stored.
template <class L>
FP4SCOPE_HD constexpr typename L::F int4_stored(ScaleKind kind, typename L::F s) {
  if (kind == ScaleKind::kBfloat16) return round_to_bf16<L>(s);
  if (kind == ScaleKind::kBinary16) return round_to_f16<L>(s);
  return s;
}
// The E4M3 scale of rtp-llm: torch's cast, NaN above the range.
template <class L>
FP4SCOPE_HD constexpr typename L::F int4_e4m3(typename L::F s) {
  return decode<L>(
      kE4M3,
      cast<L>(kE4M3, {Rounding::kEven, Overflow::kSpecial, {0x7f, NanRule::Sign::kDrop}}, s));
}
// Machine epsilon, the scale of a zero group of ct-rtn.
FP4SCOPE_HD constexpr float int4_epsilon(DType16 dtype) {
  return dtype == DType16::kF32 ? 0x1p-23f : dtype == DType16::kF16 ? 0x1p-10f : 0x1p-7f;
}

template <class L>
FP4SCOPE_HD constexpr Int4Scale<L> int4_scale(const Int4Rules& r, typename L::F amax) {
  using F = typename L::F;
  const Int4Options& o = r.options;
  const F divided = scalar_divide<L>(o.scalar_div, amax, r.scale_div);
  switch (o.order) {
    case Int4Order::kCtRtn: {
      F s = int4_stored<L>(r.kind, round_to_dtype<L>(o.dtype, divided));
      s = select(s == F{}, F{} + int4_epsilon(o.dtype), s);
      return {s, s};
    }
    case Int4Order::kSkyrl: {
      const F s = int4_stored<L>(r.kind, round_to_dtype<L>(o.dtype, divided));
      return {s, select(s == F{}, F{} + 1.0f, s)};
    }
    case Int4Order::kMilesTrain:
    case Int4Order::kMilesExport: {
      const F s = select(divided < 1e-5f, F{} + 1e-5f, divided);
      return {int4_stored<L>(r.kind, s), s};
    }
    case Int4Order::kRtpLlm: {
      const float least = round_to_dtype<Lane<1>>(o.dtype, 1e-12f);
      F s = round_to_dtype<L>(o.dtype, divided);
      s = select(s < least, F{} + least, s);
      s = select(s > 56.0f, F{} + 56.0f, s);
      return {int4_e4m3<L>(s), s};
    }
    case Int4Order::kRtpLlmCt:
      break;
  }
  const F s = round_to_dtype<L>(o.dtype, divided);
  return {int4_e4m3<L>(s), select(s == F{}, F{} + 1.0f, s)};
}

// How an element is scaled: dt(w / divisor), or the two steps of miles-export.
enum class Int4Step : std::uint8_t { kDivide, kExport };
FP4SCOPE_HD constexpr Int4Step int4_step(Int4Order order) {
  return order == Int4Order::kMilesExport ? Int4Step::kExport : Int4Step::kDivide;
}
// The type that the quotient is rounded to.
FP4SCOPE_HD constexpr DType16 int4_quotient_type(const Int4Options& o) {
  return o.order == Int4Order::kMilesTrain ? DType16::kF32 : o.dtype;
}
// What an element is rounded from.
template <class L>
FP4SCOPE_HD constexpr typename L::F int4_scaled(Int4Step step, DType16 type, MinifloatSpec spec,
                                                typename L::F w, typename L::F divisor,
                                                typename L::F stored) {
  const typename L::F quotient = w / divisor;
  if (step == Int4Step::kDivide) return round_to_dtype<L>(type, quotient);
  // The trainer dequantizes its own grid to BF16; the exporter divides that by the stored scale.
  const auto q1 = decode<L>(spec, encode<L>(spec, Rounding::kEven, quotient));
  return round_to_bf16<L>(round_to_bf16<L>(q1 * stored) / stored);
}

// The value of a code: one product, rounded to the type of the weight.
template <class L>
FP4SCOPE_HD constexpr typename L::F int4_decode(DType16 dtype, MinifloatSpec spec,
                                                typename L::U code, typename L::F stored) {
  return round_to_dtype<L>(dtype, decode<L>(spec, code) * stored);
}

}  // namespace fp4scope
