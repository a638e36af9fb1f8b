// mx_options.h: MXFP4, MXFP6, MXFP8, MXINT8 (keys: spec/mx.md section 2.2).
#pragma once
#include "formats/contracts/common_options.h"

namespace fp4scope {

enum class MxScaleRule : std::uint8_t {
  kFloor,
  kCeil,
  kEven,
  kRceil,
  kCeilLog2,    // ModelOpt: max(ceil(log2(fl(amax/FMAX))), -127) + 127
  kFieldUp,     // fouroversix: exponent field of fl(amax/divisor), +1 with a fraction
  kTritonUp,    // (bits(fl(amax/FMAX)) + 0x7FFFFF) & 0x7F800000
  kTritonDown,  // exponent field of amax/2^emax, 0 below emax + 1
  kRintLog2,    // ggml CUDA activations: rint(log2f(amax)) - emax + 127, half to even, at least 0
  kDown6,       // Quark: exponent field of fl(amax/6)
  kRoundLog2,   // MLX metal: 127 + clamp(round half away(log2(fl(amax/FMAX))), -127, 127)
  kMlxCpu       // MLX CPU: 127 + rint(dt(log2(dt(amax/FMAX)))) in the array's type
};
enum class MxScaleArith : std::uint8_t {
  kField,  // exponent field and fraction of amax, exact
  kMul,    // fl(amax * fl(1/FMAX))
  kDiv,    // fl(amax / FMAX)
  kRcp,    // fl(amax * rcp~(FMAX))
  kLog2    // RN32(log2(amax)); its floor is one too high just below some powers of two (mx.md 2.1)
};
enum class EvenWidth : std::uint8_t { kElem, kE2m1 };  // fraction bits that `even` rounds at
enum class MxTop : std::uint8_t { kNan, k254 };        // a scale above 2^127 becomes
enum class MxNan : std::uint8_t {
  kPropagate,  // a NaN makes the byte 255
  kDrop,       // ignored in the maximum, the element is cast by the scalar rule (MxNanCode)
  kByte0,      // byte 0; the elements are cast with that scale
  k254,        // byte 254; the elements are cast with that scale
  kErase,      // byte 0 and every code zero with sign
  kPass,       // fake quantization only: ignored in the maximum, the element stays NaN
  kRefuse      // the source says nothing: such a tensor is refused
};
enum class MxInf : std::uint8_t {
  kNan,    // byte 255
  k254,    // byte 254
  kClamp,  // the byte of the largest finite binary32 number
  kErase,  // byte 0 and every code zero with sign
  kByte0,  // byte 0; the elements are cast with that scale
  kRefuse
};
enum class ZeroSign : std::uint8_t {
  kKeep,       // the sign bit is copied
  kDropInput,  // an input -0 gives +0, negative underflow keeps its sign
  kDrop,       // both give +0
  kSet,        // an input zero of either sign gives -0, underflow keeps its sign
  kRefuse      // the source says nothing: a tensor with a negative zero result is refused
};
enum class MxByte0 : std::uint8_t {
  kExact,  // 2^-127; smaller scales become it
  kFlush,  // a block with byte 0 has the inverse scale 0 and only zero codes (and NaN codes)
  kWrap,   // ggml: the byte is taken modulo 256; the codes of a wrapped block are zero
  kRefuse  // a scale below 2^-127 of a block that is not all zero is refused
};
enum class Int8Grid : std::uint8_t {
  kSymmetric,      // +-127/64
  kFull,           // -128/64 too
  kInteger127,     // integers +-127, unit 1
  kInteger128,     // integers -128 .. 127, unit 1
  kSignMagnitude,  // +-127/64 with sign and magnitude: -0 exists
};
// Code of a NaN element that does not make its block NaN.
enum class MxNanCode : std::uint8_t {
  kPositive,  // the hardware's: largest code of formats without NaN, otherwise 0x7F, no sign
  kSigned,    // the same with the sign of the NaN
  kZero,      // 0
  kHostCuda,  // as kPositive, but 0x7E for E5M2 (CUDA host code)
  kOwn        // 0 for formats without NaN, 0x7F for E4M3, 0x7E for E5M2, no sign
};
// Element arithmetic that no key describes; set by the contract of that project alone.
enum class MxQuirk : std::uint8_t {
  kNone,
  kMicroxTorch,  // floor(q + 0.5) in binary32, private exponent by RN32(log2) (mx.md 4)
  kGgml,         // candidates that overflow binary32 never win: byte 253 has codes up to 5
  // Elements use r = fl(1 / 2^e), e = max(floor log2, -127) - emax before it was clamped to the
  // byte: r is Inf from e = -128 down, so that 0 * Inf is a NaN element. E5M2 elements above 57344
  // become Inf (0x7C) instead of saturating. Integer elements have emax 7. An infinite amax acts
  // as floor log2 = -127.
  kUniversal,
  kFos,            // byte 0: every code is +0, NaN too
  kZeroInverse254  // flashinfer: byte 254 has the inverse scale 0
};
struct MxOptions {
  MxScaleRule scale_rule = MxScaleRule::kFloor;
  MxScaleArith scale_arith = MxScaleArith::kField;
  std::uint32_t divisor = 0;  // field-up: 6 or 4
  // Binary32 bits of the least block maximum, set by its contract alone; 0: none.
  std::uint32_t amax_floor = 0;
  EvenWidth even_width = EvenWidth::kElem;
  MxTop top = MxTop::kNan;
  MxNan nan = MxNan::kPropagate;
  MxNanCode nan_code = MxNanCode::kPositive;
  MxInf inf = MxInf::kNan;
  // Byte of an all-zero block, or one of the two values below.
  std::uint32_t zero_block = 0;
  MxByte0 byte0 = MxByte0::kExact;
  Rounding ties = Rounding::kEven;
  ZeroSign zero_sign = ZeroSign::kKeep;
  bool flush = false;        // microx: a block whose maximum is below 2^-126 is zero
  bool ftz = false;          // binary32 subnormal operands and results are zero (flashinfer-cuda)
  bool narrow_bf16 = false;  // x is rounded to BF16 first
  Int8Grid int8_grid = Int8Grid::kSymmetric;
  // Type of the source's arrays: x is rounded to it first, and `even` works on its bits.
  DType16 dtype = DType16::kF32;
  Rcp rcp = Rcp::kH200;
  // false: bits of a scaled element below 2^-22 of its smallest step (2^-23 for E2M1) are dropped.
  bool triton_sticky = true;
  MxQuirk quirk = MxQuirk::kNone;
  std::uint32_t block = 32;  // elements along K
  bool is_2d = false;        // block x block elements share the byte (fouroversix 2-D variant)
  Ragged ragged = Ragged::kPad;
  constexpr bool operator==(const MxOptions&) const = default;

  // Settings that are defined on binary32: binary64 input is rounded to binary32 before anything
  // else (spec/mx.md section 2, last but one paragraph). All others cast it directly.
  FP4SCOPE_HD constexpr bool rounds_binary64_first() const {
    return scale_rule == MxScaleRule::kRoundLog2 || !triton_sticky || narrow_bf16 ||
           dtype != DType16::kF32 || scale_arith == MxScaleArith::kLog2 ||
           scale_arith == MxScaleArith::kRcp || quirk == MxQuirk::kMicroxTorch ||
           quirk == MxQuirk::kUniversal || quirk == MxQuirk::kGgml || ftz || amax_floor != 0;
  }
};
inline constexpr std::uint32_t kRefuseZeroBlock = 256;
inline constexpr std::uint32_t kZeroBlockEmax = 257;  // universal: byte 127 - emax

}  // namespace fp4scope
