// oracle_mx.cc: MX blocks (spec/mx.md sections 2, 2.1, 2.2), 32 elements and one E8M0 byte.
// x: elements; amax: largest magnitude; y = x * 2^(127 - byte); code = cast(y), saturating.
#include <algorithm>

#include "formats/hd.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle {
namespace {

constexpr std::uint32_t kNanByte = 255;

// The largest finite element, "FMAX" of spec/mx.md.
Dyadic element_max(MinifloatSpec element) {
  return value(element, element.max_finite_code()).magnitude;
}

float positive32(const Dyadic& v) {
  return round32({Number::Kind::kFinite, false, v});
}

std::uint32_t top_byte(const MxOptions& options) {
  return options.top == MxTop::kNan ? kNanByte : 254;
}

// rceil: the smallest scale that avoids saturation. The machine forms differ from the exact rule
// only where their quotient is subnormal.
std::uint32_t rceil_byte(const MxOptions& options, MinifloatSpec element, const Dyadic& amax,
                         bool binary64) {
  const Dyadic fmax = element_max(element);
  std::uint32_t byte = 0;
  if (binary64 || options.scale_arith == MxScaleArith::kField) {
    byte = smallest_e8m0(amax, fmax);
  } else {
    const float a = positive32(amax);  // exact: the source is binary32
    const float m = positive32(fmax);
    const float quotient = options.scale_arith == MxScaleArith::kMul
                               ? mul32(a, div32(bit_cast<float>(0x3f800000u), m))
                               : div32(a, m);
    byte = cast_e8m0(E8m0Cast::kUpPtxNosat, exact(quotient));
  }
  return byte == kNanByte ? top_byte(options) : byte;
}

// Scale byte of a finite amax > 0.
std::uint32_t scale_byte(const MxOptions& options, MinifloatSpec element, const Dyadic& amax,
                         bool binary64) {
  if (options.scale_rule == MxScaleRule::kRceil) {
    return rceil_byte(options, element, amax, binary64);
  }
  // Exponent of the scale before the element's own largest exponent is taken off.
  int exponent = amax.floor_log2();
  switch (options.scale_rule) {
    case MxScaleRule::kFloor:
      break;
    case MxScaleRule::kCeil:
      if (!amax.is_power_of_two()) ++exponent;
      break;
    case MxScaleRule::kEven: {
      // The significand, in [1, 2), is rounded half up to the element's fraction bits; it reaches 2
      // from 2 - 2^-(fraction bits + 1) on.
      const int mb = element.mantissa_bits;
      const Dyadic bound(Integer((1 << (mb + 2)) - 1), exponent - mb - 1);
      if (amax >= bound) ++exponent;
      // In binary32 this rounding overflows to infinity near the top of the range.
      if (!binary64 && exponent > 127) return top_byte(options);
      break;
    }
    case MxScaleRule::kRceil:
    default:
      break;
  }
  const int byte = exponent + 127 - element.max_exponent();
  if (byte > 254) return top_byte(options);
  return static_cast<std::uint32_t>(std::max(byte, 0));
}

// spec/scalars.md section 2 to 4 and spec/mx.md 2.2, nan=drop: the element's own code of a NaN.
std::uint32_t nan_code(MinifloatSpec element) {
  switch (element.special) {
    case Special::kNone:
      return element.max_finite_code();  // 7 for E2M1, 0x1f for E2M3, E3M2
    default:
      return element.magnitude_mask();  // 0x7f for E4M3 and E5M2
  }
}

std::uint32_t encode_element(const MxOptions& options, MinifloatSpec element, std::uint32_t byte,
                             const Number& x, bool binary64) {
  if (x.is_nan()) return nan_code(element);
  Number y = x;
  if (y.is_finite()) {
    y.magnitude = y.magnitude.scaled(127 - static_cast<int>(byte));
    if (!binary64) y = exact(round32(y));
  }
  const std::uint32_t magnitude =
      y.is_finite() ? nearest(element, y.magnitude, options.ties) : element.max_finite_code();
  bool sign = x.negative;
  if (magnitude == 0) {
    switch (options.zero_sign) {
      case ZeroSign::kKeep:
        break;
      case ZeroSign::kDropInput:
        sign = sign && !x.is_zero();
        break;
      case ZeroSign::kDrop:
        sign = false;
        break;
      case ZeroSign::kSet:
        sign = true;
        break;
    }
  }
  return magnitude | (sign ? element.sign_mask() : 0u);
}

struct MxBlock {
  std::uint32_t byte = 0;
  std::vector<std::uint32_t> codes;
};

// `binary64`: the values come from binary64 and are cast directly (spec/scalars.md section 7).
MxBlock encode_mx(const MxOptions& options, MinifloatSpec element, std::span<const Number> x,
                  bool binary64) {
  bool any_nan = false;
  bool any_infinite = false;
  Dyadic amax;
  for (const Number& v : x) {
    any_nan |= v.is_nan();
    any_infinite |= v.is_infinite();
    if (v.is_finite()) amax = std::max(amax, v.magnitude);
  }
  MxBlock block;
  if (any_nan && options.nan == MxNan::kPropagate) {
    block.byte = kNanByte;
  } else if (any_infinite) {
    block.byte = options.inf == MxInf::kNan ? kNanByte : 254;
  } else if (!amax.is_zero()) {
    block.byte = scale_byte(options, element, amax, binary64);
  }  // else the all-zero block: byte 0
  for (const Number& v : x) {
    block.codes.push_back(
        block.byte == kNanByte ? 0u : encode_element(options, element, block.byte, v, binary64));
  }
  return block;
}

void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32>,
              QuantizedTile& out) {
  resize(out, recipe, tile.rows, tile.cols);
  const int size = recipe.format.block;
  std::vector<Number> x(static_cast<std::size_t>(size));
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    for (std::int64_t b = 0; b < out.blocks_per_row; ++b) {
      for (int i = 0; i < size; ++i) {
        x[static_cast<std::size_t>(i)] = number_at(tile, row, b * size + i);
      }
      const MxBlock block =
          encode_mx(recipe.mx, recipe.format.element, x, /*binary64=*/tile.f64 != nullptr);
      out.scales[static_cast<std::size_t>(row * out.blocks_per_row + b)] =
          static_cast<std::uint8_t>(block.byte);
      for (int i = 0; i < size; ++i) {
        out.codes[static_cast<std::size_t>(row * out.padded_cols + b * size + i)] =
            static_cast<std::uint8_t>(block.codes[static_cast<std::size_t>(i)]);
      }
    }
  }
}

float decode(const Recipe& recipe, const OuterScale32&, const std::uint8_t* bytes, bool, int,
             std::uint32_t code) {
  const Number scale = value_e8m0(bytes[0]);
  Number v = value(recipe.format.element, code);
  if (scale.is_nan()) {
    v.kind = Number::Kind::kNan;
  } else if (v.is_finite()) {
    v.magnitude = v.magnitude * scale.magnitude;
  }
  return round32(v);
}

OuterScale32 outer(const Recipe&, std::uint32_t amax_bits) {
  return {bit_cast<float>(amax_bits), 1.0f};
}

}  // namespace

OracleFamily mx_oracle() {
  return {[](const Recipe&) { return Support{}; }, outer, quantize, decode};
}

}  // namespace fp4scope::oracle
