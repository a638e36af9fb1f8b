// fp8_scale.h: scales of FP8: the maximum of a tensor, row or block to the stored decode scale and
// to the number that elements are multiplied with or divided by. One function per contract,
// spec/more.md 2.1; sources: formats/contracts/fp8.h. amax -> {scale, factor}, any lane width.
#pragma once
#include "formats/minifloat.h"
#include "formats/reciprocal.h"

namespace fp4scope {

template <class L>
struct Fp8Scale {
  typename L::F scale;   // x = code * scale
  typename L::F factor;  // what fp8_step() multiplies with or divides by
};

// What the scale rules need beside the maximum.
struct Fp8Rules {
  Fp8Options options;
  float max;                // largest element
  const std::uint8_t* rcp;  // table of rcp~, null: correctly rounded
};

// What an element is scaled by.
enum class Fp8Step : std::uint8_t {
  kMultiply,        // fl(x * factor)
  kDivide,          // fl(x / factor)
  kMultiplyRounded  // dt(x * factor): rounded to the input's type before the cast
};
FP4SCOPE_HD constexpr Fp8Step fp8_step(const Fp8Options& o) {
  switch (o.order) {
    case Fp8Order::kTritonGroupDiv:
    case Fp8Order::kVllmGroup:
    case Fp8Order::kVllmToken:
    case Fp8Order::kFbgemmCuda:
      return o.div == Div::kTriton ? Fp8Step::kMultiply : Fp8Step::kDivide;
    case Fp8Order::kTorchaoAffine:
    case Fp8Order::kHfBlock:
    case Fp8Order::kVerlDsv4:
    case Fp8Order::kVllmKv:
      return Fp8Step::kDivide;
    case Fp8Order::kVllmTorchTensor:
      return Fp8Step::kMultiplyRounded;
    default:
      return Fp8Step::kMultiply;
  }
}

inline constexpr float kFp8ScaleFloor = 512.0f;  // vLLM and FBGEMM: no scale below 1/(max*512)

// a/b as the contract's kernels compute it.
template <class L>
FP4SCOPE_HD constexpr typename L::F fp8_quotient(const Fp8Rules& r, typename L::F a,
                                                 typename L::F b) {
  if (r.options.div == Div::kTriton) return a * rcp_approx<L>(b, r.rcp);
  return a / b;
}
// amax/448 of torch.
template <class L>
FP4SCOPE_HD constexpr typename L::F fp8_torch_scale(const Fp8Rules& r, typename L::F amax) {
  return scalar_divide<L>(r.options.scalar_div, amax, r.max);
}
// Maximum with a floor; NaN stays, as in torch. Maxima that ignore NaN have none here.
template <class L>
FP4SCOPE_HD constexpr typename L::F fp8_floor(typename L::F amax, float floor) {
  return max_of(amax, typename L::F{} + floor);
}
// The power of two at or above a positive s; zero, Inf and NaN stay. 2^-127 is the only subnormal
// power that matters (the bottom of E8M0).
template <class L>
FP4SCOPE_HD constexpr typename L::F fp8_power_above(typename L::F s) {
  using U = typename L::U;
  const U bits = bit_cast<U>(s);
  const U up = (bits + 0x007fffffu) & 0xff800000u;
  const U kept = select(bits == 0x00400000u, bits, up);
  return bit_cast<typename L::F>(select(bits > kInfBits, bits, kept));
}
// The power of two nearest to a positive s in the logarithm (threshold sqrt(2)); zero, Inf and NaN
// stay. Small s are scaled to normal numbers first; a subnormal power of two comes back exactly.
template <class L>
FP4SCOPE_HD constexpr typename L::F fp8_power_near(typename L::F s) {
  using U = typename L::U;
  using F = typename L::F;
  constexpr std::uint32_t kSqrt2Fraction = 0x003504f3u;  // floor of sqrt(2), which is irrational
  const auto is_small = s < 0x1p-100f;
  const F scaled = select(is_small, s * 0x1p+24f, s);
  const U bits = bit_cast<U>(scaled);
  const U up = select((bits & 0x007fffffu) > kSqrt2Fraction, U{} + 0x00800000u, U{});
  const F power = bit_cast<F>((bits & 0xff800000u) + up);
  const F result = select(is_small, power * 0x1p-24f, power);
  return select(bits == U{} || bits >= kInfBits, s, result);
}
// The power of two at or below a normal S.
template <class L>
FP4SCOPE_HD constexpr typename L::F fp8_power_below(typename L::F s) {
  return bit_cast<typename L::F>(bit_cast<typename L::U>(s) & 0xff800000u);
}

// TransformerEngine: S = fl(max/amax), recipe_common.cuh. `overflow` replaces an infinite S: FMAX
// with current scaling, the largest value of the input's type with blocks.
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_te_scale(typename L::F amax, float max, float eps,
                                               float overflow, bool pow2) {
  using U = typename L::U;
  using F = typename L::F;
  amax = fp8_floor<L>(amax, eps);
  F s = max / amax;
  s = select(bit_cast<U>(s) == kInfBits, F{} + overflow, s);
  const auto is_unusable = bit_cast<U>(amax) >= kInfBits;
  s = select(is_unusable, F{} + 1.0f, s);
  s = select(amax == F{}, F{} + 1.0f, s);
  if (pow2) s = fp8_power_below<L>(s);
  return {1.0f / s, s};
}
FP4SCOPE_HD constexpr float fp8_te_overflow(const Fp8Options& o) {
  if (o.gran.is_tensor() || o.dtype == DType16::kF32) return kFloatMax;
  return o.dtype == DType16::kF16 ? 65504.0f : bit_cast<float>(0x7f7f0000u);
}

// DeepGEMM deep_gemm/utils/math.py. The power of two at or above |s|, from 2^-126 to 2^127.
template <class L>
FP4SCOPE_HD constexpr typename L::F fp8_power_bounded(typename L::F s) {
  using U = typename L::U;
  const U bits = bit_cast<U>(s) & kMagnitudeMask;
  const U up = select((bits & 0x007fffffu) != U{}, U{} + 1u, U{});
  const U field = max_of(min_of((bits >> 23) + up, U{} + 254u), U{} + 1u);
  return bit_cast<typename L::F>(field << 23);
}
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_deepgemm_scale(const Fp8Rules& r, typename L::F amax) {
  using F = typename L::F;
  F s = fp8_torch_scale<L>(r, fp8_floor<L>(amax, 1e-4f));
  if (r.options.scale_fmt != ScaleFmt::kF32) s = fp8_power_bounded<L>(s);
  return {s, 1.0f / s};
}

// TileKernels tile_kernels/quant/common.py: the inverse is a quotient of its own.
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_tilekernels_scale(const Fp8Rules& r, typename L::F amax) {
  using F = typename L::F;
  amax = fp8_floor<L>(amax, 1e-4f);
  F s = amax / r.max;
  if (r.options.scale_fmt == ScaleFmt::kF32) return {s, r.max / amax};
  s = fp8_power_above<L>(s);
  return {s, 1.0f / s};
}

// SGLang fp8_kernel.py: triton-group multiplies with 1/s, triton-group-div divides by s. vLLM
// per_token_group_quant.cu has a second floor, on a power-of-two scale.
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_group_scale(const Fp8Rules& r, typename L::F amax) {
  using F = typename L::F;
  F s = fp8_quotient<L>(r, fp8_floor<L>(amax, 1e-10f), F{} + r.max);
  if (r.options.scale_fmt != ScaleFmt::kF32) {
    if (r.options.order == Fp8Order::kVllmGroup) s = fp8_floor<L>(s, 1e-10f);
    s = fp8_power_above<L>(s);
  }
  return {s, fp8_quotient<L>(r, F{} + 1.0f, s)};
}

// sgl-kernel per_token_group_quant_8bit.cu.
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_sgl_group_scale(const Fp8Rules& r, typename L::F amax) {
  using F = typename L::F;
  amax = fp8_floor<L>(amax, 1e-10f);
  F s = amax * (1.0f / r.max);
  if (r.options.scale_fmt == ScaleFmt::kF32) return {s, fp8_quotient<L>(r, F{} + r.max, amax)};
  s = fp8_power_above<L>(s);
  return {s, fp8_quotient<L>(r, F{} + 1.0f, s)};
}

// sgl-kernel per_token_quant_fp8.cu and vLLM common.cu: the same scale, another inverse of 0.
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_inverse_scale(const Fp8Rules& r, typename L::F amax) {
  using F = typename L::F;
  const F s = fp8_quotient<L>(r, amax, F{} + r.max);
  const F inverse = fp8_quotient<L>(r, F{} + 1.0f, s);
  if (r.options.order == Fp8Order::kVllmTensor) return {s, inverse};
  return {s, select(s == F{}, F{}, inverse)};
}

// vLLM common.cu per token, FBGEMM quantize.cu per row (with an upper bound).
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_floored_scale(const Fp8Rules& r, typename L::F amax) {
  using F = typename L::F;
  const F bounded = min_of(amax, F{} + bit_cast<float>(r.options.bound_bits));
  const F s =
      fp8_floor<L>(fp8_quotient<L>(r, bounded, F{} + r.max), 1.0f / (r.max * kFp8ScaleFloor));
  return {s, fp8_quotient<L>(r, F{} + 1.0f, s)};
}

// FBGEMM fp8_gemm.py.
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_fbgemm_triton_scale(const Fp8Rules& r, typename L::F amax) {
  using F = typename L::F;
  amax = min_of(fp8_floor<L>(amax, 1e-12f), F{} + bit_cast<float>(r.options.bound_bits));
  const F s = fp8_quotient<L>(r, F{} + r.max, amax);
  F inverse = fp8_quotient<L>(r, F{} + 1.0f, s);
  // rcp~ of an amax above 2^126 is zero; the recorded inverse of that is 2^127, not infinite.
  if (r.options.div == Div::kTriton) inverse = select(s == F{}, F{} + 0x1p127f, inverse);
  return {inverse, s};
}

// torchao float8_utils.py: amax_to_scale works in binary64. One tensor or row at a time.
FP4SCOPE_HD constexpr Fp8Scale<Lane<1>> fp8_torchao_scale(const Fp8Rules& r, float amax) {
  const double wide = static_cast<double>(amax);
  const double floored = wide < 1e-12 ? 1e-12 : wide;
  float s = static_cast<float>(static_cast<double>(r.max) / floored);
  if (r.options.scale_fmt != ScaleFmt::kF32) s = fp8_power_below<Lane<1>>(s);
  return {1.0f / s, s};
}

// Contracts of torch that divide by the scale: torchao-affine, hf-block, verl-dsv4.
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_torch_divisor(const Fp8Rules& r, typename L::F amax) {
  using F = typename L::F;
  const Fp8Options& o = r.options;
  F s{};
  if (o.order == Fp8Order::kTorchaoAffine) {
    s = round_to_dtype<L>(o.dtype, fp8_torch_scale<L>(r, amax));
    if (o.scale_fmt != ScaleFmt::kF32) s = fp8_power_near<L>(s);
  } else if (o.order == Fp8Order::kHfBlock) {
    amax = round_to_dtype<L>(o.dtype, amax);
    if (o.gran.cols == 0) amax = fp8_floor<L>(amax, 1e-12f);
    s = fp8_torch_scale<L>(r, amax);
  } else {
    s = fp8_torch_scale<L>(r, amax);
    s = select(amax == F{}, F{} + 1.0f, s);
    s = fp8_floor<L>(s, bit_cast<float>(0x00400000u));  // 2^-127
    s = select(s > 0x1p127f, F{} + 0x1p127f, s);
    s = fp8_power_above<L>(s);
  }
  return {s, s};
}

// vLLM input_to_float8: arithmetic in the type of the input.
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_vllm_torch_scale(const Fp8Rules& r, typename L::F amax) {
  using F = typename L::F;
  const DType16 dtype = r.options.dtype;
  const F floored =
      fp8_floor<L>(round_to_dtype<L>(dtype, amax), round_to_dtype<Lane<1>>(dtype, 1e-12f));
  const F inverse = round_to_dtype<L>(dtype, 1.0f / floored);
  const F s = round_to_dtype<L>(dtype, inverse * r.max);
  return {1.0f / s, s};
}

// Whether a NaN makes the maximum of its block NaN.
FP4SCOPE_HD constexpr bool fp8_propagates_nan(Fp8Order order) {
  return order == Fp8Order::kDeepgemm || order == Fp8Order::kTorchaoAffine ||
         order == Fp8Order::kHfBlock || order == Fp8Order::kVerlDsv4;
}

// The scale with the factor of contracts that multiply.
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_scale_and_inverse(const Fp8Rules& r, typename L::F amax) {
  using F = typename L::F;
  const Fp8Options& o = r.options;
  switch (o.order) {
    case Fp8Order::kTe:
      return fp8_te_scale<L>(amax, r.max, bit_cast<float>(o.eps_bits), fp8_te_overflow(o),
                             o.scale_fmt != ScaleFmt::kF32);
    case Fp8Order::kTeDelayed: {
      const F history = o.has_amax ? F{} + bit_cast<float>(o.amax_bits) : amax;
      const float max = r.max * pow2(-static_cast<int>(o.margin));
      return fp8_te_scale<L>(history, max, 0.0f, kFloatMax, false);
    }
    case Fp8Order::kDeepgemm:
      return fp8_deepgemm_scale<L>(r, amax);
    case Fp8Order::kTilekernels:
      return fp8_tilekernels_scale<L>(r, amax);
    case Fp8Order::kTritonGroup:
    case Fp8Order::kTritonGroupDiv:
    case Fp8Order::kVllmGroup:
      return fp8_group_scale<L>(r, amax);
    case Fp8Order::kSglGroup:
      return fp8_sgl_group_scale<L>(r, amax);
    case Fp8Order::kSglToken:
    case Fp8Order::kVllmTensor:
      return fp8_inverse_scale<L>(r, amax);
    case Fp8Order::kVllmToken:
    case Fp8Order::kFbgemmCuda:
      return fp8_floored_scale<L>(r, amax);
    case Fp8Order::kFbgemmTriton:
      return fp8_fbgemm_triton_scale<L>(r, amax);
    case Fp8Order::kTorchaoDyn:
      if constexpr (L::kWidth == 1) return fp8_torchao_scale(r, amax);
      break;
    case Fp8Order::kTorchaoAffine:
    case Fp8Order::kHfBlock:
    case Fp8Order::kVerlDsv4:
      return fp8_torch_divisor<L>(r, amax);
    case Fp8Order::kVllmTorchTensor:
      return fp8_vllm_torch_scale<L>(r, amax);
    case Fp8Order::kVllmKv:
      break;
  }
  const F given = F{} + bit_cast<float>(o.g_bits);
  return {given, given};
}

// amax: NaN where it propagates, otherwise of the elements that are numbers.
template <class L>
FP4SCOPE_HD constexpr Fp8Scale<L> fp8_scale(const Fp8Rules& r, typename L::F amax) {
  Fp8Scale<L> s = fp8_scale_and_inverse<L>(r, amax);
  if (fp8_step(r.options) == Fp8Step::kDivide) s.factor = s.scale;
  return s;
}

}  // namespace fp4scope
