// encoders.h: the production casts as encoders of sweep.h, and a wrong one for the test of the
// harness itself.
#pragma once
#include "formats/e8m0.h"
#include "formats/minifloat.h"
#include "formats/rounding.h"

namespace fp4scope::test {

// The saturating element encoder with a run-time format.
struct ElementEncoder {
  MinifloatSpec spec;
  Rounding rounding;
  template <class L>
  FP4SCOPE_HD typename L::U run(typename L::F v, typename L::U random_byte) const {
    // One loop per rounding: a constant lets the compiler drop the other branches.
    switch (rounding) {
      case Rounding::kEven:
        return encode<L>(spec, Rounding::kEven, v);
      case Rounding::kAway:
        return encode<L>(spec, Rounding::kAway, v);
      case Rounding::kZero:
        return encode<L>(spec, Rounding::kZero, v);
      case Rounding::kTrunc:
        return encode<L>(spec, Rounding::kTrunc, v);
      case Rounding::kStochastic:
        break;
    }
    return encode<L>(spec, Rounding::kStochastic, v, random_byte);
  }
};

// A whole cast with its overflow and NaN rules.
struct CastEncoder {
  MinifloatSpec spec;
  CastPolicy policy;
  template <class L>
  FP4SCOPE_HD typename L::U run(typename L::F v, typename L::U random_byte) const {
    return cast<L>(spec, policy, v, random_byte);
  }
};

struct E8m0Encoder {
  E8m0Rule rule;
  template <class L>
  FP4SCOPE_HD typename L::U run(typename L::F v, typename L::U) const {
    return e8m0_encode<L>(rule, v);
  }
};

// Narrowing to BF16 as the codecs do it, in place of a code the upper half of the result.
struct Bf16Encoder {
  template <class L>
  FP4SCOPE_HD typename L::U run(typename L::F v, typename L::U) const {
    return bit_cast<typename L::U>(round_to_bf16<L>(v)) >> 16;
  }
};
// The same by the cast of any format: RNE, overflow to infinity, 0x7FFF for every NaN.
inline constexpr CastEncoder kBf16Cast{
    kBF16, {Rounding::kEven, Overflow::kSpecial, {0x7fff, NanRule::Sign::kDrop}}};

// Wrong on purpose: rounds to BF16 (nearest even) before it encodes.
struct DoubleRoundingEncoder {
  MinifloatSpec spec;
  template <class L>
  FP4SCOPE_HD typename L::U run(typename L::F v, typename L::U) const {
    using U = typename L::U;
    using F = typename L::F;
    const U bits = bit_cast<U>(v);
    const U bf16 = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    return encode<L>(spec, Rounding::kEven, bit_cast<F>(bf16));
  }
};

}  // namespace fp4scope::test
