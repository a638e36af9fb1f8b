// spec.h: formats as data. No arithmetic lives here, so the exact oracle may include this header.
// A scalar format is a MinifloatSpec; a block format is an element spec plus a list of scale
// levels, outermost first. Everything else (limits, bits per element) is derived.
#pragma once
#include <array>
#include <string_view>

#include "formats/hd.h"

namespace fp4scope {

// What the codes at the edge of the range mean.
enum class Special : std::uint8_t {
  kNone,        // every code is a finite number
  kNanAllOnes,  // the all-ones magnitude is NaN, no infinity ("fn" formats)
  kIeee,        // the top exponent field holds infinity and NaN
  kFnuz         // one NaN at the code of -0 ("fnuz" formats), no infinity, no -0
};

// How a signed code carries its sign.
enum class SignCode : std::uint8_t {
  kMagnitude,           // sign bit above the magnitude; -0 exists
  kTwosComplement,      // symmetric integer grid: the most negative code is never written
  kTwosComplementFull,  // all codes, the most negative one is -2^(bits-1) units
};

// An n-bit integer of unit u is the format with one exponent bit and n-2 fraction bits: its two
// binades (subnormal and normal) form one uniform grid. Only the code of the sign differs.
struct MinifloatSpec {
  int exponent_bits;
  int mantissa_bits;  // stored fraction bits, hidden bit not counted
  int bias;
  bool is_signed;
  bool has_subnormals;  // false: exponent field 0 is an ordinary binade and there is no zero
  Special special;
  SignCode sign_code = SignCode::kMagnitude;

  FP4SCOPE_HD constexpr int magnitude_bits() const { return exponent_bits + mantissa_bits; }
  FP4SCOPE_HD constexpr int storage_bits() const { return magnitude_bits() + (is_signed ? 1 : 0); }
  FP4SCOPE_HD constexpr std::uint32_t magnitude_mask() const {
    return (1u << magnitude_bits()) - 1u;
  }
  FP4SCOPE_HD constexpr std::uint32_t code_count() const { return 1u << storage_bits(); }
  FP4SCOPE_HD constexpr std::uint32_t sign_mask() const {
    return is_signed ? 1u << magnitude_bits() : 0u;
  }
  // Largest finite magnitude code.
  FP4SCOPE_HD constexpr std::uint32_t max_finite_code() const {
    if (special == Special::kNanAllOnes) return magnitude_mask() - 1u;
    if (special == Special::kIeee) return (((1u << exponent_bits) - 1u) << mantissa_bits) - 1u;
    return magnitude_mask();
  }
  // Exponent of the smallest normal number.
  FP4SCOPE_HD constexpr int min_exponent() const { return (has_subnormals ? 1 : 0) - bias; }
  // Exponent of the largest power of two ("emax" of an MX element type).
  FP4SCOPE_HD constexpr int max_exponent() const {
    return static_cast<int>(max_finite_code() >> mantissa_bits) - bias;
  }
  FP4SCOPE_HD constexpr bool is_twos_complement() const {
    return sign_code != SignCode::kMagnitude;
  }
  // Whether a code stands for zero, of either sign.
  FP4SCOPE_HD constexpr bool is_zero_code(std::uint32_t code) const {
    return is_twos_complement() ? code == 0 : has_subnormals && (code & magnitude_mask()) == 0;
  }
  constexpr bool operator==(const MinifloatSpec&) const = default;
};

// An integer of `bits` bits whose step is 2^unit_exponent.
FP4SCOPE_HD constexpr MinifloatSpec integer_spec(int bits, int unit_exponent, SignCode sign_code) {
  return {1, bits - 2, 1 - unit_exponent - (bits - 2), true, true, Special::kNone, sign_code};
}

enum class ScaleKind : std::uint8_t {
  kMinifloat,      // an unsigned minifloat, `spec` says which
  kE8m0,           // a power of two, byte b means 2^(b-127), 255 is NaN
  kBinary32,       // group 0: the outer scale, one per tensor or row; otherwise a block scale
  kBfloat16,       // a block scale
  kBinary16,       // a block scale
  kMicroExponent,  // one bit, factor 1 or 2
};

struct ScaleLevel {
  ScaleKind kind = ScaleKind::kMinifloat;
  MinifloatSpec spec{};  // meaningful for kMinifloat
  int group = 0;         // elements along K that share one scale; 0 = per tensor or per row
  FP4SCOPE_HD constexpr int storage_bits() const {
    switch (kind) {
      case ScaleKind::kMinifloat:
        return (spec.storage_bits() + 7) / 8 * 8;  // whole bytes
      case ScaleKind::kE8m0:
        return 8;
      case ScaleKind::kBinary32:
        return 32;
      case ScaleKind::kBfloat16:
      case ScaleKind::kBinary16:
        return 16;
      case ScaleKind::kMicroExponent:
        return 1;
    }
    return 0;
  }
};

inline constexpr int kMaxScaleLevels = 4;  // an outer scale and three below it

struct Lut;  // formats/lut.h

struct BlockFormat {
  std::string_view name;
  MinifloatSpec element;
  // Elements along K under the outermost stored block scale: the unit of the codecs. A format
  // without block scales has 64, the unit of sums and maps.
  int block;
  // Outermost first; entries at num_levels and above are unused.
  std::array<ScaleLevel, kMaxScaleLevels> levels;
  int num_levels;
  // Bytes of scale planes per block in fp4scope's own layout: binary32, BF16 and FP16 scales little
  // endian, one-bit levels packed LSB first. 0: only an outer scale, or none.
  int scale_bytes;
  int block_rows = 1;        // rows that share the scales (2-D blocks); the bytes are on each row
  const Lut* lut = nullptr;  // elements from a table of values; `element` then gives the width

  // Stored bits per value; the outer scale (one per tensor or row) is not counted.
  constexpr double bits_per_element() const {
    double bits = element.storage_bits();
    for (int i = 0; i < num_levels; ++i) {
      if (levels[static_cast<std::size_t>(i)].group == 0) continue;
      bits += static_cast<double>(levels[static_cast<std::size_t>(i)].storage_bits()) /
              levels[static_cast<std::size_t>(i)].group;
    }
    return bits;
  }
};

}  // namespace fp4scope
