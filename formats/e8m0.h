// e8m0.h: power-of-two scales. Byte b means 2^(b-127), 255 is NaN; there is no zero, sign or Inf.
// Byte 0 is the binary32 subnormal 2^-127, which is why E8M0 is no MinifloatSpec. Seven published
// casts differ at the ends and below 2^-126: spec/scalars.md section 5.
#pragma once
#include "formats/lane.h"

namespace fp4scope {

enum class E8m0Rule : std::uint8_t {
  kUp,              // cvt.rp.satfinite.ue8m0x2.f32: smallest b with 2^(b-127) >= |x|, at most 254
  kUpNoSat,         // the same without satfinite: overflow and Inf give 255
  kDown,            // cvt.rz: the exponent field
  kUpOnnx,          // any nonzero fraction bumps, also below 2^-127; finite values
                    // saturate at 254
  kNearestTorch,    // torch float8_e8m0fnu: 1.5 and above of a binade goes up, sign ignored
  kNearestOnnx,     // the same rounding, saturating at 254
  kNearestMlDtypes  // ml_dtypes: zero, negative values and overflow give 255
};

template <class L>
FP4SCOPE_HD constexpr typename L::U e8m0_encode(E8m0Rule rule, typename L::F v) {
  using U = typename L::U;
  const U bits = bit_cast<U>(v);
  const U mag = bits & kMagnitudeMask;
  const U field = mag >> 23;
  const U fraction = mag & 0x007fffffu;
  const U one = U{} + 1u;
  U byte = field;
  switch (rule) {
    case E8m0Rule::kDown:
      break;
    case E8m0Rule::kUp:
    case E8m0Rule::kUpNoSat: {
      // Below 2^-126 the step is at 2^-127 = fraction 0x400000 of field 0.
      const auto bump =
          select(field == U{}, fraction, select(fraction == U{}, U{}, U{} + kInfBits));
      byte = field + select(bump > 0x00400000u, one, U{});
      break;
    }
    case E8m0Rule::kUpOnnx:
      byte = field + select(fraction != U{}, one, U{});
      break;
    case E8m0Rule::kNearestTorch:
    case E8m0Rule::kNearestOnnx:
    case E8m0Rule::kNearestMlDtypes: {
      // Field 0 rounds up above 2^-127 already, which is not nearest but published.
      const U half_up = fraction >> 22;
      const U tiny = select(fraction > 0x00400000u, one, U{});
      byte = field + select(field == U{}, tiny, half_up);
      break;
    }
  }
  const bool saturates =
      rule == E8m0Rule::kUp || rule == E8m0Rule::kUpOnnx || rule == E8m0Rule::kNearestOnnx;
  byte = min_of(byte, U{} + (saturates ? 254u : 255u));
  if (rule == E8m0Rule::kNearestMlDtypes) {
    byte = select(bits == U{}, U{} + 255u, byte);
    byte = select((bits >> 31) != U{}, U{} + 255u, byte);
  }
  // ONNX saturates finite values only.
  if (rule == E8m0Rule::kUpOnnx || rule == E8m0Rule::kNearestOnnx) {
    byte = select(mag == kInfBits, U{} + 255u, byte);
  }
  return select(mag > kInfBits, U{} + 255u, byte);
}

// byte -> exact binary32; 255 gives the quiet NaN.
template <class L>
FP4SCOPE_HD constexpr typename L::F e8m0_decode(typename L::U byte) {
  using U = typename L::U;
  using F = typename L::F;
  U bits = byte << 23;
  bits = select(byte == U{}, U{} + 0x00400000u, bits);
  return bit_cast<F>(select(byte == 255u, U{} + kQuietNanBits, bits));
}

// 2^(127-byte), the exact inverse of a finite scale; byte 254 gives the subnormal 2^-127.
template <class L>
FP4SCOPE_HD constexpr typename L::F e8m0_inverse(typename L::U byte) {
  return e8m0_decode<L>(254u - byte);
}

}  // namespace fp4scope
