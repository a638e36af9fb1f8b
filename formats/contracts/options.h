// options.h: every choice that can change a bit of a code or scale, as plain data. A contract is a
// named value of these structs (mx.h, nvfp4.h, hif4.h beside this file); a recipe starts from a
// contract and overrides single fields. No arithmetic here: the exact oracle includes this header.
// Key names and meaning: spec/mx.md 2.2, spec/nvfp4.md 1, spec/hif4.md 6.
#pragma once
#include <string_view>

#include "formats/spec.h"

namespace fp4scope {

// Rounding of an element. `kStochastic` needs a random byte and is not a recipe value of `ties`.
enum class Rounding : std::uint8_t {
  kEven,       // RNE
  kAway,       // RNA: nearest, ties away from zero
  kZero,       // RHZ: nearest, ties toward zero
  kTrunc,      // RTZ
  kStochastic  // SR: the random byte is added to the discarded fraction
};

// Confidence of a contract's rules (spec/scalars.md section 0).
enum class Evidence : std::uint8_t { kVerified, kRead, kInferred };

enum class Ragged : std::uint8_t {
  kPad,   // the last partial block is padded with +0 and never counted
  kError  // a row length that is no multiple of the block is refused
};

// --- MX (spec/mx.md) ---
enum class MxScaleRule : std::uint8_t { kFloor, kCeil, kEven, kRceil };
enum class MxScaleArith : std::uint8_t {
  kField,  // exponent field and fraction of amax, exact (the only one for floor, ceil, even)
  kMul,    // rceil: fl(amax * fl(1/FMAX)), then round up to a power of two
  kDiv     // rceil: fl(amax / FMAX)
};
enum class MxTop : std::uint8_t { kNan, k254 };         // a scale above 2^127 becomes
enum class MxNan : std::uint8_t { kPropagate, kDrop };  // NaN in a block: byte 255, or ignored
enum class MxInf : std::uint8_t { kNan, k254 };         // infinite amax: byte 255 or 254
enum class ZeroSign : std::uint8_t {
  kKeep,       // the sign bit is copied
  kDropInput,  // an input -0 gives +0, negative underflow keeps its sign
  kDrop,       // both give +0
  kSet         // every zero result gets the sign bit
};
struct MxOptions {
  MxScaleRule scale_rule = MxScaleRule::kFloor;
  MxScaleArith scale_arith = MxScaleArith::kField;
  MxTop top = MxTop::kNan;
  MxNan nan = MxNan::kPropagate;
  MxInf inf = MxInf::kNan;
  Rounding ties = Rounding::kEven;
  ZeroSign zero_sign = ZeroSign::kKeep;
  Ragged ragged = Ragged::kPad;
  constexpr bool operator==(const MxOptions&) const = default;
};

// --- NVFP4 (spec/nvfp4.md) ---
enum class OuterScale : std::uint8_t {
  kTensor,  // g from the tensor amax
  kRow,     // g from the amax of each row
  kNone,    // g = 1
  kGiven    // g is part of the recipe
};
enum class BlockShape : std::uint8_t { k1d, k2d };  // 1x16, or 16x16 with the byte on 16 rows
enum class Select : std::uint8_t { kStatic6 };      // static map-to-6
enum class NegZero : std::uint8_t { kKeep, kDrop };
struct Nvfp4Options {
  OuterScale scale = OuterScale::kTensor;
  BlockShape block = BlockShape::k1d;
  Select select = Select::kStatic6;
  std::uint32_t e4m3max = 448;  // M of the outer scale: 448 or 256
  NegZero neg_zero = NegZero::kKeep;
  Ragged ragged = Ragged::kPad;
  std::uint32_t g_bits = 0;  // scale=given: binary32 bits of the encode scale
  bool has_amax = false;     // `amax` was given and replaces the measured tensor amax
  std::uint32_t amax_bits = 0;
  constexpr bool operator==(const Nvfp4Options&) const = default;
};

// --- HiF4 (spec/hif4.md) ---
enum class Hif4Product : std::uint8_t {
  kExact,  // no rounding of the product
  kFp32,   // one binary32 rounding
  kBf16    // binary32, then BF16 (one rounding for BF16 input, whose products are exact)
};
enum class Hif4Overflow : std::uint8_t { kClamp, kNan };  // scale above the range: 0xFE, or 0xFF
enum class Hif4Zero : std::uint8_t { k00, kFf };  // scale factor 0 or below 2^-48: 0x00 or 0xFF
enum class Hif4Nonfinite : std::uint8_t {
  kGroupNan,  // byte 0xFF; level bits and codes computed with the bad elements as 0
  kSaturate,  // NaN ignored and written as code 0, Inf treated as FLT_MAX with its sign
  kError      // refused
};
enum class Hif4Cast : std::uint8_t { kNone, kBf16 };
enum class Hif4Search : std::uint8_t {
  kGreedy,     // Algorithm 1
  kLevel1,     // E = E6M2(amax / 1.75), all level bits 0
  kLevel1_3p5  // E = E6M2(amax / 3.5), all level bits 0
};
struct Hif4Options {
  Hif4Product thr = Hif4Product::kExact;   // products of the level-2 and level-3 thresholds
  Hif4Product elem = Hif4Product::kExact;  // products of the elements
  Rounding ties = Rounding::kAway;         // element; kAway is printed `up`
  Rounding e6m2 = Rounding::kEven;         // kEven or kAway
  Hif4Overflow overflow = Hif4Overflow::kClamp;
  Hif4Zero zero = Hif4Zero::k00;
  Hif4Nonfinite nonfinite = Hif4Nonfinite::kSaturate;
  NegZero neg_zero = NegZero::kDrop;
  Hif4Cast cast = Hif4Cast::kNone;
  Hif4Search search = Hif4Search::kGreedy;
  std::uint32_t width = 4;  // element bits: 3, 4 or 5
  Ragged ragged = Ragged::kPad;
  constexpr bool operator==(const Hif4Options&) const = default;
};

// One row of a contract list.
template <class Options>
struct Contract {
  std::string_view name;
  Options options;
  Ragged source_ragged;     // what the source itself does with a ragged row; only a note
  std::string_view source;  // project, commit, file
  Evidence evidence;
  std::string_view vectors;  // files under data/golden or shared/vectors that pin it
};

}  // namespace fp4scope
