// mx_options.h: MXFP4, MXFP6, MXFP8, MXINT8 (keys: spec/mx.md section 2.2).
#pragma once
#include "formats/contracts/common_options.h"

namespace fp4scope {

enum class MxScaleRule : std::uint8_t {
  kFloor,
  kCeil,
  kEven,
  kRceil,
  kCeilLog2,    // ModelOpt
  kFieldUp,     // fouroversix: exponent field of fl(amax/6) or fl(amax/4), +1 with a fraction
  kTritonUp,    // (bits(fl(amax/FMAX)) + 0x7FFFFF) & 0x7F800000
  kTritonDown,  // exponent field of amax/2^emax
  kRintLog2,    // ggml CUDA activations
  kDown6,       // Quark: floor rule on amax/6
  kRoundLog2,   // MLX metal: 127 + clamp(round half away(log2(fl(amax/FMAX))), -127, 127)
  kTruncRatio   // oneDNN: trunc(amax) / trunc(FMAX)
};
enum class MxScaleArith : std::uint8_t {
  kField,  // exponent field and fraction of amax, exact
  kMul,    // fl(amax * fl(1/FMAX))
  kDiv,    // fl(amax / FMAX)
  kRcp,    // fl(amax * rcp~(FMAX))
  kLog2    // floor(log2f(amax)), one too high just below some powers of two (spec/mx.md 2.1)
};
enum class EvenWidth : std::uint8_t { kElem, kE2m1 };  // fraction bits that `even` rounds at
enum class MxTop : std::uint8_t { kNan, k254 };        // a scale above 2^127 becomes
enum class MxNan : std::uint8_t {
  kPropagate,  // a NaN makes the byte 255
  kDrop,       // ignored in the maximum, the element is cast by the scalar rule
  kByte0,      // byte 0
  kErase,      // byte 0 and every code zero with sign
  kPass,       // fake-quantization only: ignored in the maximum, the element stays NaN
  kRefuse      // the source says nothing: such a tensor is refused
};
enum class MxInf : std::uint8_t { kNan, k254, kClamp, kErase, kRefuse };
enum class ZeroSign : std::uint8_t {
  kKeep,       // the sign bit is copied
  kDropInput,  // an input -0 gives +0, negative underflow keeps its sign
  kDrop,       // both give +0
  kSet         // every zero result gets the sign bit
};
enum class MxByte0 : std::uint8_t {
  kExact,  // 2^-127
  kFlush   // a block with byte 0 has only zero codes
};
enum class Int8Grid : std::uint8_t {
  kSymmetric,  // +-127/64
  kFull,       // -128/64 too
  kInteger127  // integers +-127 with ceil(log2(amax/127))
};
// Published behaviour that no key describes; set by the contract of that project alone.
enum class MxQuirk : std::uint8_t {
  kNone,
  kMicroxTorch,   // element rounding by floor(q + 0.5) in binary32, private exponent by log2
  kGgmlWrap,      // the byte wraps for tiny amax; candidates that overflow binary32 never win
  kUniversal,     // elements use the exponent before it was clamped to the byte
  kFosWrap,       // NaN: 255 + 1 wraps to 0, the block is silently zero
  kTriton,        // byte 255: codes zero
  kFlashinfer,    // byte 254 has inverse 0; NaN element 7
  kCtTriton,      // reserved for narrow=bf16 of the Triton kernel
  kMlxCuda,       // inverse fl(1/sf) without a zero test: 0/0 gives NaN codes
  kMlxCpu,        // BF16 array arithmetic, first nearest table entry
  kOnednn,        // y = clamp(fl(d * fl(1/s)))
  kModeloptCuda,  // amax 0, NaN, Inf: scale 1
  kQuark          // zero block: base 2^-126
};
struct MxOptions {
  MxScaleRule scale_rule = MxScaleRule::kFloor;
  MxScaleArith scale_arith = MxScaleArith::kField;
  std::uint32_t divisor = 0;  // field-up: 6 or 4; 0: the rule's own
  EvenWidth even_width = EvenWidth::kElem;
  MxTop top = MxTop::kNan;
  MxNan nan = MxNan::kPropagate;
  MxInf inf = MxInf::kNan;
  std::uint32_t zero_block = 0;  // byte of an all-zero block; kRefuseZeroBlock: refused
  MxByte0 byte0 = MxByte0::kExact;
  Rounding ties = Rounding::kEven;
  ZeroSign zero_sign = ZeroSign::kKeep;
  bool flush = false;        // microx: a block whose maximum is subnormal is zero
  bool ftz = false;          // binary32 subnormal operands and results are zero (flashinfer-cuda)
  bool narrow_bf16 = false;  // x is rounded to BF16 first
  Int8Grid int8_grid = Int8Grid::kSymmetric;
  DType16 dtype = DType16::kF32;  // ct-even: `even` works on the bits of this type
  Rcp rcp = Rcp::kH200;
  bool triton_sticky = true;  // false: older Triton drops fraction bits below 2^-22 of an element
  MxQuirk quirk = MxQuirk::kNone;
  std::uint32_t block = 32;  // elements along K
  bool is_2d = false;        // block x block elements share the byte (fouroversix 2-D variant)
  Ragged ragged = Ragged::kPad;
  constexpr bool operator==(const MxOptions&) const = default;
};
inline constexpr std::uint32_t kRefuseZeroBlock = 256;

}  // namespace fp4scope
