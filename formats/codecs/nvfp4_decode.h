// nvfp4_decode.h: decoded values of NVFP4, if4 and nvint4. Where a source has a dequantizer its
// order is kept; elsewhere the list at the top of formats/contracts/nvfp4.h fixes one.
// scale code, element code -> value.
#pragma once
#include "formats/codecs/nvfp4_contracts.h"

namespace fp4scope {

// Whether the tensor or row maximum takes part: spec/nvfp4.md 3.4, and with scale=given and the
// key amax.
FP4SCOPE_HD constexpr bool nvfp4_decodes_by_amax(const Nvfp4Options& o) {
  if (o.scale == OuterScale::kGiven) return o.has_amax;
  if (o.scale == OuterScale::kNone) return false;
  switch (o.order) {
    case Nvfp4Order::kFlashinfer:
    case Nvfp4Order::kFlashinferFast:
    case Nvfp4Order::kTrtllm:
    case Nvfp4Order::kVllm:
    case Nvfp4Order::kMslk:
    case Nvfp4Order::kMslkE8m0:
      return false;
    default:
      return true;
  }
}

// Published as product of a code and one factor per block.
FP4SCOPE_HD constexpr bool nvfp4_has_factor(Nvfp4Order order) {
  switch (order) {
    case Nvfp4Order::kFouroversix:
    case Nvfp4Order::kFouroversixCuda:
    case Nvfp4Order::kMlxMetal:
    case Nvfp4Order::kMlxCuda:
    case Nvfp4Order::kMlxCpu:
    case Nvfp4Order::kOnednn:
    case Nvfp4Order::kFlashinferKv:
      return false;
    default:
      return true;
  }
}

// The factor is (scale * first) * second where it is no quotient.
struct Nvfp4Multipliers {
  float first, second;
};
FP4SCOPE_HD constexpr Nvfp4Multipliers nvfp4_multipliers(const Nvfp4Rules& r, Nvfp4Outer outer) {
  const Nvfp4Options& o = r.options;
  if (o.order == Nvfp4Order::kModelopt || o.order == Nvfp4Order::kModeloptStatic ||
      o.order == Nvfp4Order::kTorchao) {
    return {outer.g, 1.0f};
  }
  if (nvfp4_decodes_by_amax(o)) return {outer.amax, 1.0f / r.top()};
  // The scale that the fast kernel stores per row, section 4.2.
  if (o.order == Nvfp4Order::kFlashinferFast && o.scale == OuterScale::kRow) {
    return {outer.amax * (1.0f / r.top()), 1.0f};
  }
  // An adaptive zero row has g = 0 and the stored scale 0 (spec/nvfp4.md 4.2).
  return {outer.g == 0.0f ? 0.0f : 1.0f / outer.g, 1.0f};
}
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_decode_factor(const Nvfp4Rules& r, Nvfp4Outer outer,
                                                        typename L::U scale) {
  const typename L::F sf = decode<L>(r.scale, scale);
  if (r.options.order == Nvfp4Order::kCompressedTensors) return sf / outer.g;
  const Nvfp4Multipliers m = nvfp4_multipliers(r, outer);
  const typename L::F factor = sf * m.first;
  return m.second == 1.0f ? factor : factor * m.second;
}

template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_decode_element(const Nvfp4Rules& r, typename L::U code) {
  if constexpr (L::kWidth == 1) {
    if (r.lut != nullptr) return r.lut->value[code];
  }
  return decode<L>(r.element, code);
}

// The other sources: one operation after the other. Code times scale is FP16 in fouroversix; it is
// exact there except for the 6/7 of if4, which has rounded values.
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_decode_chain(const Nvfp4Rules& r, Nvfp4Outer outer,
                                                       typename L::U scale, typename L::U code) {
  using U = typename L::U;
  using F = typename L::F;
  const Nvfp4Options& o = r.options;
  const F sf = decode<L>(r.scale, scale);
  F v = nvfp4_decode_element<L>(r, code) * sf;
  if (o.int4_candidate) {
    const F integer = decode<L>(integer_spec(4, 0, SignCode::kTwosComplement), code);
    const F seventh = round_to_f16<L>(integer * 0.8571428571428571f);
    v = select((scale & 0x80u) != U{}, round_to_f16<L>(seventh * sf), v);
  }
  if (o.order == Nvfp4Order::kOnednn) return v;
  if (o.order == Nvfp4Order::kFlashinferKv) return v * outer.g;
  const bool is_mlx = o.order == Nvfp4Order::kMlxMetal || o.order == Nvfp4Order::kMlxCuda ||
                      o.order == Nvfp4Order::kMlxCpu;
  if (!nvfp4_decodes_by_amax(o)) return is_mlx ? v : v * (1.0f / outer.g);
  return scalar_divide<L>(is_mlx ? ScalarDiv::kExact : o.scalar_div, v * outer.amax, r.top());
}

// The same of default rules: 16 x E2M1 under E4M3.
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_decode_factor(Nvfp4Options options, Nvfp4Outer outer,
                                                        typename L::U scale) {
  Nvfp4Rules rules;
  rules.options = options;
  return nvfp4_decode_factor<L>(rules, outer, scale);
}
FP4SCOPE_HD constexpr Nvfp4Outer nvfp4_outer(Nvfp4Options options, std::uint32_t amax_bits) {
  Nvfp4Rules rules;
  rules.options = options;
  return nvfp4_outer(rules, amax_bits);
}

}  // namespace fp4scope
