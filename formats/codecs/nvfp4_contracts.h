// nvfp4_contracts.h: what differs between the stacks that quantize to NVFP4, in small functions:
// outer scale, block scale before its cast, the cast, inverse (the element is in nvfp4_element.h).
// One column of the table in spec/nvfp4.md section 2 each; spec/more.md 3, 4 and 6 for the rest.
// Symbols: g = outer scale (encode scale, or decode scale for modelopt, torchao and flashinfer-kv),
// bmax = block maximum, sf = block scale, q = element, FMAX = largest element, M = ceiling of the
// block scale.
#pragma once
#include "formats/lut.h"
#include "formats/minifloat.h"
#include "formats/reciprocal.h"
#include "formats/rounding.h"

namespace fp4scope {

// All that is uniform over a tensor. A literal folds; user-defined formats pass run-time values.
struct Nvfp4Rules {
  Nvfp4Options options{};
  MinifloatSpec element = kE2M1;
  MinifloatSpec scale = kUE4M3;
  float element_max = 6.0f;             // FMAX
  const Lut* lut = nullptr;             // elements from a table, scalar lanes only
  const std::uint8_t* table = nullptr;  // of rcp~; null: correctly rounded
  DType16 dtype = DType16::kF32;        // of the input, for mlx-cpu
  FP4SCOPE_HD constexpr float scale_max() const {
    return decode<Lane<1>>(scale, scale.max_finite_code());
  }
  // 448, or the key e4m3max; another scale type aims at its own largest number.
  FP4SCOPE_HD constexpr float ceiling() const {
    const MinifloatSpec e4m3 = kUE4M3;  // device code has no address of a host constant
    return scale == e4m3 ? static_cast<float>(options.e4m3max) : scale_max();
  }
  // What the block maximum is mapped to.
  FP4SCOPE_HD constexpr float target() const {
    return options.select == Select::kStatic4 ? 4.0f : element_max;
  }
  FP4SCOPE_HD constexpr float top() const { return target() * ceiling(); }  // 6M
};

// A tensor or row amax and the outer scale of OuterScale32.
struct Nvfp4Outer {
  float amax;
  float g;
};

// g*(bmax/6) with rcp~ instead of divisions.
FP4SCOPE_HD constexpr bool nvfp4_is_fast(Nvfp4Order order) {
  return order == Nvfp4Order::kFlashinferFast || order == Nvfp4Order::kTrtllm ||
         order == Nvfp4Order::kVllm;
}
FP4SCOPE_HD constexpr bool nvfp4_is_te(Nvfp4Order order) {
  return order == Nvfp4Order::kTe || order == Nvfp4Order::kTeFast;
}
// The element is divided by the scale, not multiplied with an inverse.
FP4SCOPE_HD constexpr bool nvfp4_divides(Nvfp4Order order) {
  return order == Nvfp4Order::kModelopt || order == Nvfp4Order::kModeloptStatic ||
         order == Nvfp4Order::kCompressedTensors || order == Nvfp4Order::kMlxCpu;
}

template <class L>
FP4SCOPE_HD constexpr typename L::F splat(float v) {
  if constexpr (L::kWidth == 1) {
    return v;
  } else {
    return typename L::F{} + v;
  }
}
// torch.clamp: NaN stays.
template <class T>
FP4SCOPE_HD constexpr T clamped(T v, T least, T most) {
  return min_of(max_of(v, least), most);
}

// --- outer scale ---

// Section 3.1: 1 where amax is zero or the result is (amax = Inf). div is TransformerEngine's
// kernel and ends at FLT_MAX; the others are expressions of Python callers, which give Inf.
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_encode_scale(GRule rule, typename L::F amax, float top) {
  using F = typename L::F;
  if (amax == 0.0f) return 1.0f;
  F g{};
  switch (rule) {
    case GRule::kDivUnguarded:
      // The partial-cast and row_cast_col kernels (3.2) look at the sign of amax only: NaN gives 1
      // and Inf the scale 0.
      return amax > 0.0f ? fmin_bound(top / amax, F{kFloatMax}) : F{1.0f};
    case GRule::kDiv:
      g = fmin_bound(top / amax, F{kFloatMax});
      break;
    case GRule::kRcpMul:
      g = (1.0f / amax) * top;
      break;
    case GRule::kInvDiv:
      g = 1.0f / (amax / top);
      break;
    case GRule::kInvMul:
      g = 1.0f / (amax * (1.0f / top));
      break;
  }
  return g == 0.0f ? F{1.0f} : g;
}

// scale=row of flashinfer and flashinfer-fast, section 4.2.
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_flashinfer_row(const Nvfp4Rules& r, typename L::F amax) {
  using F = typename L::F;
  const FlushOps<L> op{r.options.ftz};
  const F g_inverse = 1.0f / F{r.top()};
  if (r.options.order == Nvfp4Order::kFlashinferFast)
    return rcp_approx<L>(op.mul(amax, g_inverse), r.table);
  if (op.operand(amax) == 0.0f) return r.options.is_adaptive() ? 0.0f : kFloatMax;
  const F encode = fmin_bound(op.div(1.0f / g_inverse, amax), F{kFloatMax});
  return encode == 0.0f ? F{1.0f} : encode;
}

// The outer scale of a tensor or row from the bits of its maximum. L is one lane wide, here and in
// nvfp4_row().
template <class L = Lane<1>>
FP4SCOPE_HD constexpr Nvfp4Outer nvfp4_outer(const Nvfp4Rules& r, std::uint32_t amax_bits) {
  using F = typename L::F;
  const Nvfp4Options& o = r.options;
  std::uint32_t bits = o.has_amax ? o.amax_bits : amax_bits;
  // nan_to_num of spec/more.md 3: the largest finite number of BF16, the type of the weights.
  if (o.finite_amax && bits == kInfBits) bits = 0x7f7f0000u;
  const F amax = bit_cast<F>(bits);
  if (o.scale == OuterScale::kNone) return {amax, 1.0f};
  if (o.scale == OuterScale::kGiven) return {amax, bit_cast<float>(o.g_bits)};
  switch (o.order) {
    case Nvfp4Order::kFouroversix:
    case Nvfp4Order::kFouroversixCuda:
    case Nvfp4Order::kMlxMetal:
    case Nvfp4Order::kMlxCuda:
    case Nvfp4Order::kMlxCpu:
      return {amax, r.top() / amax};
    case Nvfp4Order::kModelopt:
    case Nvfp4Order::kModeloptStatic:
    case Nvfp4Order::kTorchao:
      return {amax, scalar_divide<L>(o.scalar_div, amax, r.top())};
    case Nvfp4Order::kCompressedTensors: {
      // The maxima are held in that type too.
      const F held = round_to_dtype<L>(o.amax_dtype, amax);
      const F inverse = round_to_dtype<L>(o.amax_dtype, 1.0f / held);
      return {amax, round_to_dtype<L>(o.amax_dtype, inverse * r.top())};
    }
    case Nvfp4Order::kFlashinfer:
    case Nvfp4Order::kFlashinferFast:
      if (o.scale == OuterScale::kRow) return {amax, nvfp4_flashinfer_row<L>(r, amax)};
      break;
    default:
      break;
  }
  // The rule is that of a tensor; rows have TransformerEngine's own.
  const GRule rule = o.scale == OuterScale::kRow ? GRule::kDiv : o.g_rule;
  return {amax, nvfp4_encode_scale<L>(rule, amax, r.top())};
}

// What the blocks of a row share, derived from its outer scale.
struct Nvfp4Row {
  float amax, g;
  float g_inverse;  // fl(1/g), or rcp~(g)
  // Times bmax: fl(g * 1/6), or rcp~(6). A divisor: modelopt's fl(6*g), modelopt-static's
  // fl(amax/6).
  float k;
};
template <class L = Lane<1>>
FP4SCOPE_HD constexpr Nvfp4Row nvfp4_row(const Nvfp4Rules& r, Nvfp4Outer outer) {
  using F = typename L::F;
  const FlushOps<L> op{r.options.ftz};
  Nvfp4Row row{outer.amax, outer.g, 0.0f, 0.0f};
  if (nvfp4_is_fast(r.options.order) || r.options.order == Nvfp4Order::kFlashinferKv) {
    row.g_inverse = rcp_approx<L>(outer.g, r.table);
    row.k = rcp_approx<L>(r.element_max, r.table);
  } else if (r.options.order == Nvfp4Order::kModelopt) {
    row.k = r.element_max * F{outer.g};
  } else if (r.options.order == Nvfp4Order::kModeloptStatic) {
    row.k = scalar_divide<L>(r.options.scalar_div, outer.amax, r.element_max);
  } else {
    row.g_inverse = op.div(1.0f, outer.g);
    row.k = op.mul(outer.g, 1.0f / F{r.element_max});
  }
  return row;
}

// --- block scale ---

// MSLK _fp32_to_e8m0, even at one fraction bit: a fraction of exactly 3/4 stays, a larger one goes
// up. Zero (whose power exp2 flushes) and what has no finite power become 1.
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_mslk_power(typename L::F s) {
  using U = typename L::U;
  const U field = ((bit_cast<U>(s) & kMagnitudeMask) + 0x001fffffu) >> 23;
  const U one = U{} + 127u;
  const U kept = select(field == U{}, one, field);
  return bit_cast<typename L::F>(select(kept > 254u, one, kept) << 23);
}

// Before the cast. `four`: the map-to-4 candidate, one and a half times the other.
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_scale_value(const Nvfp4Rules& r, const Nvfp4Row& row,
                                                      typename L::F bmax, bool four) {
  using F = typename L::F;
  const Nvfp4Options& o = r.options;
  const FlushOps<L> op{o.ftz};
  const F six = splat<L>(r.target());
  const F most = splat<L>(r.scale_max());
  switch (o.order) {
    case Nvfp4Order::kTe:
    case Nvfp4Order::kTeFast:
    case Nvfp4Order::kFlashinfer: {
      const bool is_te = nvfp4_is_te(o.order);
      if (!o.is_adaptive()) {
        // 1/6 is multiplied into g first: another order moves E4M3 ties (section 8).
        const F s = op.mul(bmax, splat<L>(row.k));
        if (is_te) return fmin_bound(s, splat<L>(kFloatMax));
        return select(op.operand(bmax) == F{}, F{}, s);
      }
      F s = op.mul(op.div(bmax, six), splat<L>(row.g));
      if (four) s = op.mul(s, splat<L>(1.5f));
      return is_te ? fmin_bound(s, most) : s;
    }
    case Nvfp4Order::kFlashinferFast:
    case Nvfp4Order::kTrtllm:
    case Nvfp4Order::kVllm: {
      const F s = op.mul(splat<L>(row.g), op.mul(bmax, splat<L>(row.k)));
      return four ? op.mul(s, splat<L>(1.5f)) : s;
    }
    case Nvfp4Order::kFlashinferKv:
      return op.mul(splat<L>(row.g_inverse), op.mul(bmax, splat<L>(row.k)));
    case Nvfp4Order::kFouroversix:
    case Nvfp4Order::kFouroversixCuda: {
      if (o.scale == OuterScale::kTensor && row.amax == 0.0f) return F{};
      F s = bmax / six * row.g;
      if (four && !o.int4_candidate) s = s * 1.5f;
      if (o.order == Nvfp4Order::kFouroversix) return s;
      // fminf(fmaxf(s, 0), 448): a NaN becomes 0.
      return fmin_bound(select(s > F{}, s, F{}), most);
    }
    case Nvfp4Order::kModelopt: {
      const F s = bmax / row.k;
      return clamped(select(s == F{}, splat<L>(1.0f), s), splat<L>(0x1p-9f), most);
    }
    case Nvfp4Order::kModeloptStatic: {
      const F p = scalar_divide<L>(o.scalar_div, bmax, r.target());
      const F s = select(p == F{}, splat<L>(1.0f), p) * r.ceiling() / row.k;
      return clamped(s, splat<L>(0x1p-9f), most);
    }
    case Nvfp4Order::kCompressedTensors: {
      const F held = round_to_dtype<L>(o.amax_dtype, bmax);
      const F sixth = scalar_divide<L>(o.scalar_div, held, r.target());
      return clamped(row.g * round_to_dtype<L>(o.amax_dtype, sixth), 0.0f - most, most);
    }
    case Nvfp4Order::kTorchao: {
      F s = scalar_divide<L>(o.scalar_div, bmax, r.target());
      if (o.scale != OuterScale::kNone) s = s / row.g;
      return clamped(s, splat<L>(0x1p-6f), most);
    }
    case Nvfp4Order::kMlxMetal:
    case Nvfp4Order::kMlxCuda:
      return bmax / six * row.g;
    case Nvfp4Order::kMlxCpu:
      return round_to_dtype<L>(r.dtype, bmax / six);
    case Nvfp4Order::kOnednn:
      // The least scale is the machine epsilon of E4M3.
      return max_of(fmin_bound(bmax / six, most), splat<L>(0x1p-3f));
    case Nvfp4Order::kMslkE8m0:
      return nvfp4_mslk_power<L>(bmax / 4.0f * row.g);
    case Nvfp4Order::kMslk: {
      // Triton's clamp: a NaN becomes the lower bound.
      const F s = bmax / six * row.g;
      return fmin_bound(select(s > splat<L>(0x1p-9f), s, splat<L>(0x1p-9f)), most);
    }
  }
  return F{};
}

// The scale code: saturating with NaN 0x7F; te has no NaN left and mlx-metal saturates it; torch
// does not saturate above 464.
template <class L>
FP4SCOPE_HD constexpr typename L::U nvfp4_scale_code(const Nvfp4Rules& r, typename L::F s) {
  using U = typename L::U;
  const NanRule nan{r.scale.magnitude_mask(), NanRule::Sign::kDrop};
  switch (r.options.order) {
    case Nvfp4Order::kTe:
    case Nvfp4Order::kTeFast:
      return encode<L>(r.scale, Rounding::kEven, s);
    case Nvfp4Order::kMlxMetal: {
      const NanRule top{r.scale.max_finite_code(), NanRule::Sign::kDrop};
      return cast<L>(r.scale, {Rounding::kEven, Overflow::kSaturate, top}, s);
    }
    case Nvfp4Order::kFouroversix:
    case Nvfp4Order::kModelopt:
    case Nvfp4Order::kModeloptStatic:
    case Nvfp4Order::kTorchao:
      return cast<L>(r.scale, {Rounding::kEven, Overflow::kSpecial, nan}, s);
    case Nvfp4Order::kCompressedTensors: {
      const U code = cast<L>(r.scale, {Rounding::kEven, Overflow::kSpecial, nan}, s);
      return select(code == U{}, U{} + 0x20u, code);  // 0.125
    }
    default:
      return cast<L>(r.scale, {Rounding::kEven, Overflow::kSaturate, nan}, s);
  }
}

// --- inverse ---

// What x is multiplied with (or divided by, nvfp4_divides). `sf`: the value of the scale code; `s`:
// the scale before its cast.
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_inverse_of(const Nvfp4Rules& r, const Nvfp4Row& row,
                                                     typename L::F sf, typename L::F bmax,
                                                     typename L::F s) {
  using F = typename L::F;
  const Nvfp4Options& o = r.options;
  const FlushOps<L> op{o.ftz};
  const F most = splat<L>(kFloatMax);
  const auto is_zero_block = op.operand(bmax) == F{};
  switch (o.order) {
    case Nvfp4Order::kTe:
    case Nvfp4Order::kFouroversixCuda:
      break;
    case Nvfp4Order::kTeFast:
      if (o.is_adaptive()) break;
      return round_to_bf16<L>(fmin_bound(row.g / sf, splat<L>(0x1.fep127f)));
    case Nvfp4Order::kFlashinfer: {
      const F inverse = op.div(splat<L>(1.0f), op.mul(sf, splat<L>(row.g_inverse)));
      return select(is_zero_block, F{}, fmin_bound(inverse, most));
    }
    case Nvfp4Order::kFlashinferFast:
    case Nvfp4Order::kTrtllm:
    case Nvfp4Order::kVllm: {
      const F inverse = rcp_approx<L>(op.mul(sf, splat<L>(row.g_inverse)), r.table);
      if (o.order == Nvfp4Order::kFlashinferFast) return select(is_zero_block, F{}, inverse);
      return select((o.order == Nvfp4Order::kTrtllm ? s : sf) == F{}, F{}, inverse);
    }
    case Nvfp4Order::kFlashinferKv:
      return select(is_zero_block, F{}, rcp_approx<L>(op.mul(sf, splat<L>(row.g)), r.table));
    case Nvfp4Order::kFouroversix:
      return select(sf == F{}, F{}, 1.0f / (row.g_inverse * sf));
    case Nvfp4Order::kModelopt:
    case Nvfp4Order::kModeloptStatic:
      return sf * row.g;
    case Nvfp4Order::kCompressedTensors:
      return sf / row.g;
    case Nvfp4Order::kTorchao:
      return o.scale == OuterScale::kNone ? 1.0f / sf : row.g_inverse / sf;
    case Nvfp4Order::kMlxMetal:
      return select(sf == F{}, F{}, row.g / sf);
    case Nvfp4Order::kMlxCuda:
    case Nvfp4Order::kMslk:
    case Nvfp4Order::kMslkE8m0:
      return row.g / sf;
    case Nvfp4Order::kMlxCpu:
      return sf;
    case Nvfp4Order::kOnednn:
      return 1.0f / sf;
  }
  // A zero block or an underflowed scale gives 1/0, clamped to the largest finite float.
  return fmin_bound(1.0f / (sf * row.g_inverse), most);
}
template <class L>
FP4SCOPE_HD constexpr typename L::F nvfp4_inverse(const Nvfp4Rules& r, const Nvfp4Row& row,
                                                  typename L::U scale_code, typename L::F bmax,
                                                  typename L::F s) {
  return nvfp4_inverse_of<L>(r, row, decode<L>(r.scale, scale_code), bmax, s);
}

}  // namespace fp4scope
