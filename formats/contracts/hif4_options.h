// hif4_options.h: HiF4 and HiFX (keys: spec/hif4.md section 6).
#pragma once
#include "formats/contracts/common_options.h"

namespace fp4scope {

enum class Hif4Product : std::uint8_t {
  kExact,  // no rounding of the product
  kFp32,   // one binary32 rounding
  kBf16    // binary32, then BF16 (one rounding for BF16 input, whose products are exact)
};
enum class Hif4Overflow : std::uint8_t { kClamp, kNan };  // scale above the range: 0xFE, or 0xFF
enum class Hif4Zero : std::uint8_t { k00, kFf };  // scale factor 0 or below 2^-48: 0x00 or 0xFF
enum class Hif4Nonfinite : std::uint8_t {
  kGroupNan,  // byte 0xFF; level bits and codes computed with the bad elements as 0
  kElement,   // fake-quantization only: NaN elements are ignored by the maximum and stay NaN; Inf
              // clamps
  kSaturate,  // NaN ignored and written as code 0, Inf treated as FLT_MAX with its sign
  kError      // refused
};
enum class Hif4Cast : std::uint8_t { kNone, kBf16 };
enum class Hif4Search : std::uint8_t {
  kGreedy,      // Algorithm 1
  kLevel1,      // E = E6M2(amax / 1.75), all level bits 0
  kLevel1_3p5,  // E = E6M2(amax / 3.5), all level bits 0
  kMse          // not standard: E and level bits of least squared error, see codecs/hif4.h
};
enum class Hif4Geometry : std::uint8_t { k1x64, k64x64 };
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
  Hif4Geometry geometry = Hif4Geometry::k1x64;
  std::uint32_t width = 4;  // element bits: 3, 4 or 5
  Ragged ragged = Ragged::kPad;
  constexpr bool operator==(const Hif4Options&) const = default;
};

}  // namespace fp4scope
