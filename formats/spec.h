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

struct MinifloatSpec {
  int exponent_bits;
  int mantissa_bits;  // stored fraction bits, hidden bit not counted
  int bias;
  bool is_signed;
  bool has_subnormals;  // false: exponent field 0 is an ordinary binade and there is no zero
  Special special;

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
  constexpr bool operator==(const MinifloatSpec&) const = default;
};

enum class ScaleKind : std::uint8_t {
  kMinifloat,      // an unsigned minifloat, `spec` says which
  kE8m0,           // a power of two, byte b means 2^(b-127), 255 is NaN
  kBinary32,       // the outer scale: one per tensor or per row, the recipe says
  kMicroExponent,  // one bit, factor 1 or 2
};

struct ScaleLevel {
  ScaleKind kind = ScaleKind::kMinifloat;
  MinifloatSpec spec{};  // meaningful for kMinifloat
  int group = 0;         // elements that share one scale; 0 = per tensor or per row
  FP4SCOPE_HD constexpr int storage_bits() const {
    switch (kind) {
      case ScaleKind::kMinifloat:
        return (spec.storage_bits() + 7) / 8 * 8;  // whole bytes
      case ScaleKind::kE8m0:
        return 8;
      case ScaleKind::kBinary32:
        return 32;
      case ScaleKind::kMicroExponent:
        return 1;
    }
    return 0;
  }
};

struct BlockFormat {
  std::string_view name;
  MinifloatSpec element;
  int block;                         // elements that share the innermost stored minifloat scale
  std::array<ScaleLevel, 3> levels;  // outermost first; entries at num_levels and above are unused
  int num_levels;
  int scale_bytes;  // bytes of scale planes per block in fp4scope's own layout

  // Stored bits per value; the outer scale (one per tensor or row) is not counted.
  constexpr double bits_per_element() const {
    double bits = element.storage_bits();
    for (int i = 0; i < num_levels; ++i) {
      if (levels[i].group == 0) continue;
      bits += static_cast<double>(levels[i].storage_bits()) / levels[i].group;
    }
    return bits;
  }
};

}  // namespace fp4scope
