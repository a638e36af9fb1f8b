// nvfp4_element.h: one element of NVFP4, if4 or nvint4 to its code, per stack: the columns "NaN
// element" and "-0" of spec/nvfp4.md section 2, and sections 5.1, 5.3 and 6; spec/more.md 4.
#pragma once
#include "formats/codecs/nvfp4_contracts.h"

namespace fp4scope {

// Masks that are used more than once are integers, all ones or zero: GCC 12 takes 512-bit
// comparison results that are used twice apart into scalars.
template <class U>
FP4SCOPE_HD constexpr U blend(U mask, U a, U b) {
  return (a & mask) | (b & ~mask);
}
// 1 for NaN, by the magnitude of its bits.
template <class U>
FP4SCOPE_HD constexpr U nan_flag(U bits) {
  return (kInfBits - (bits & kMagnitudeMask)) >> 31;
}

template <class L>
struct Nvfp4Element {
  typename L::U code;
  typename L::F value;  // of the code, or what the source takes for it when errors are compared
};

// fouroversix: the magnitude rounded by torch without saturation, then the code from the fields of
// its BF16 pattern; 8 becomes nibble 0x8, 16 becomes 0xA. Where y is 0 the sign is lost.
template <class L>
FP4SCOPE_HD constexpr Nvfp4Element<L> nvfp4_unsaturated(typename L::F y) {
  using U = typename L::U;
  using F = typename L::F;
  const U bits = bit_cast<U>(y);
  const U magnitude_bits = bits & kMagnitudeMask;
  const F magnitude = bit_cast<F>(magnitude_bits);
  const U small = encode<L>(kE2M1, Rounding::kEven, magnitude);
  // 2*rint(a/2): one addition rounds to integers; from 2^24 on a/2 is one already.
  const F halved = magnitude * 0.5f;
  const F twice = 2.0f * select(halved < 0x1p23f, (halved + 0x1p23f) - 0x1p23f, halved);
  // e << 1 | m of the BF16 number, e counted from 0.5.
  const U large = (bit_cast<U>(round_to_bf16<L>(twice)) >> 22) - 252u;
  const U is_small = 0u - ((magnitude_bits - bit_cast<std::uint32_t>(4.0f)) >> 31);
  const U sign = select(y == F{}, U{}, bits >> 31);
  const U value = blend(is_small, bit_cast<U>(decode<L>(kE2M1, small)), bit_cast<U>(twice));
  return {(blend(is_small, small, large) | sign << 3) & 15u, bit_cast<F>(value | sign << 31)};
}

// mlx-cpu, scalar only: the first nearest entry of [0..6, -0..-6], every difference rounded to the
// input type. An infinity (nothing but zero is left of the scale) is as far from all of them and
// takes the first; a NaN is refused by the caller.
FP4SCOPE_HD constexpr std::uint32_t nvfp4_first_nearest(DType16 dtype, float y) {
  const auto distance = [&](std::uint32_t code) {
    const float d = round_to_dtype<Lane<1>>(dtype, y - decode<Lane<1>>(kE2M1, code));
    return d < 0.0f ? 0.0f - d : d;
  };
  std::uint32_t best = 0;
  float least = distance(0);
  for (std::uint32_t code = 1; code < 16; ++code) {
    if (distance(code) < least) {
      best = code;
      least = distance(code);
    }
  }
  return best;
}

// One element. `integer`: the INT4 candidate of if4. `random`: a byte of stochastic rounding,
// scalar only. `refused` gathers the lanes whose element the source defines no code for.
template <class L>
FP4SCOPE_HD constexpr Nvfp4Element<L> nvfp4_element(const Nvfp4Rules& r, typename L::F x,
                                                    typename L::F inverse, bool integer,
                                                    [[maybe_unused]] const std::uint8_t* random,
                                                    typename L::U& refused) {
  using U = typename L::U;
  using F = typename L::F;
  const Nvfp4Options& o = r.options;
  const FlushOps<L> op{o.ftz};
  const bool drop = o.neg_zero == NegZero::kDrop;
  F y = nvfp4_divides(o.order) ? x / inverse : op.mul(x, inverse);
  // There a zero scale gives zeros whatever x is, an infinity included.
  if (o.order == Nvfp4Order::kFouroversix) y = select(inverse == F{}, F{}, y);
  if constexpr (L::kWidth == 1) {
    if (r.lut != nullptr) {
      const std::uint32_t code = lut_encode(*r.lut, y);
      return {code, r.lut->value[code]};
    }
  }
  Nvfp4Element<L> e{};
  switch (o.order) {
    case Nvfp4Order::kFouroversix:
      refused = refused | nan_flag(bit_cast<U>(y));
      if (integer || r.element.is_twos_complement()) {
        const F scaled = integer ? y * 1.16666666f : y;
        const MinifloatSpec int4 = integer_spec(4, 0, SignCode::kTwosComplement);
        const MinifloatSpec spec = integer ? int4 : r.element;
        e.code = encode<L>(spec, Rounding::kEven, scaled);
        e.value = decode<L>(spec, e.code);
        return e;
      }
      e = nvfp4_unsaturated<L>(y);
      if (!drop) {
        // The sign of y, which is +0 under a zero scale.
        const U sign = select(inverse == F{}, U{}, bit_cast<U>(y) >> 31);
        e.code = select(y == F{}, sign << 3, e.code);
      }
      return e;
    case Nvfp4Order::kMlxCpu:
      if constexpr (L::kWidth == 1) {
        refused = refused | nan_flag(bit_cast<U>(y));
        e.code = nvfp4_first_nearest(r.dtype, round_to_dtype<L>(r.dtype, y));
        if (!drop) e.code = select(x == F{}, (bit_cast<U>(x) >> 31) << 3, e.code);
      }
      break;
    case Nvfp4Order::kModelopt:
    case Nvfp4Order::kModeloptStatic:
    case Nvfp4Order::kCompressedTensors:
      if (o.order == Nvfp4Order::kCompressedTensors) refused = select(y == y, refused, U{} + 1u);
      // The sign is that of y < 0.
      e.code = encode<L>(r.element, Rounding::kEven, y);
      if (drop) e.code = select(y == F{}, U{}, e.code);
      e.code = select(y == y, e.code, U{} + r.element.max_finite_code());
      break;
    default: {
      e.code = encode<L>(r.element, Rounding::kEven, y);
      if constexpr (L::kWidth == 1) {
        if (random != nullptr)
          e.code = encode<L>(r.element, Rounding::kStochastic, y, std::uint32_t{*random});
      }
      if (drop) e.code = select(op.operand(x) == F{}, U{}, e.code);
      // NaN (an input NaN, or Inf under the inverse of an infinite scale) gives the largest code.
      U nan = U{} + r.element.max_finite_code();
      if (o.order == Nvfp4Order::kOnednn)
        nan = nan | (bit_cast<U>(x) >> 31) << r.element.magnitude_bits();
      e.code = select(y == y, e.code, nan);
      break;
    }
  }
  e.value = decode<L>(r.element, e.code);
  return e;
}

}  // namespace fp4scope
