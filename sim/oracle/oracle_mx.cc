// oracle_mx.cc: MX blocks (spec/mx.md sections 2 to 4, spec/more.md 4.1 and 4.2): one E8M0 byte for
// a block of `block` elements in `block_rows` rows. x: elements; amax: largest magnitude;
// y = x * 2^(127 - byte); code = cast(y), saturating. Numbers from binary64 stay exact up to the
// cast unless an option is defined on binary32 (spec/mx.md section 2).
#include "sim/oracle/oracle_mx.h"

#include <algorithm>
#include <string>

#include "formats/hd.h"
#include "sim/error.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle {
namespace {

// What the scale step decided about a block.
struct Scale {
  std::uint32_t byte = 0;
  int exponent = -127;        // elements are divided by 2^exponent
  bool zero_inverse = false;  // they are multiplied by 0 instead
  enum class Codes : std::uint8_t { kCast, kNanBlock, kErased, kPlusZero } codes = Codes::kCast;
};

Scale fixed_scale(std::uint32_t byte, Scale::Codes codes = Scale::Codes::kCast) {
  return {byte, static_cast<int>(byte) - 127, false,
          byte == kMxNanByte ? Scale::Codes::kNanBlock : codes};
}

struct Input {
  Number x;
  std::int64_t row = 0;  // of the tile
  std::uint32_t random = 0;
};

[[noreturn]] void refuse(std::int64_t row, const std::string& what) {
  throw RefusedInput(row, what);
}

Number flushed(const Number& v, bool ftz) {
  return ftz ? exact(flush_subnormal(round32(v))) : v;
}

// Byte of 2^exponent, and what the range policies say about it.
Scale byte_scale(const Recipe& recipe, MxExponent e, std::int64_t row) {
  const MxOptions& options = recipe.mx;
  const std::uint32_t top = options.top == MxTop::kNan ? kMxNanByte : 254;
  if (e.overflow || e.exponent > 127) return fixed_scale(top);
  const int byte = e.exponent + 127;
  // triton-down leaves a block below emax + 1 to byte 0, so that its first byte that carries data
  // is 1, as is that of every rule with byte0=flush.
  if (byte < 0) {
    switch (options.byte0) {
      case MxByte0::kExact:
      case MxByte0::kFlush:
        break;
      case MxByte0::kWrap:  // uint8 of a negative number; nothing of the block is left
        return fixed_scale(static_cast<std::uint32_t>(byte & 255), Scale::Codes::kPlusZero);
      case MxByte0::kRefuse:
        refuse(row, "a block scale below 2^-127, about which the contract's source says nothing");
    }
  }
  Scale scale = fixed_scale(static_cast<std::uint32_t>(std::max(byte, 0)));
  // universal divides by the scale that it would have liked to store (spec/mx.md 3).
  if (options.quirk == MxQuirk::kUniversal) scale.exponent = e.exponent;
  return scale;
}

Scale zero_block(const Recipe& recipe, std::int64_t row) {
  const MxOptions& options = recipe.mx;
  if (options.zero_block == kRefuseZeroBlock) {
    refuse(row, "an all-zero block, about which the contract's source says nothing");
  }
  if (options.zero_block == kZeroBlockEmax) {
    return fixed_scale(static_cast<std::uint32_t>(127 - mx_emax(recipe)));
  }
  return fixed_scale(options.zero_block);
}

// Steps 2 and 3 of spec/mx.md section 2.
Scale block_scale(const Recipe& recipe, const std::vector<Input>& block, bool binary64) {
  const MxOptions& options = recipe.mx;
  Dyadic amax;
  bool from_binary64 = binary64;
  const Input* nan = nullptr;
  const Input* infinity = nullptr;
  for (const Input& in : block) {
    if (in.x.is_nan() && nan == nullptr) nan = &in;
    if (in.x.is_infinite() && infinity == nullptr) infinity = &in;
    const Number x = flushed(in.x, options.ftz);
    if (x.is_finite()) amax = std::max(amax, x.magnitude);
  }
  if (nan != nullptr) {
    switch (options.nan) {
      case MxNan::kPropagate:
        return fixed_scale(kMxNanByte);
      case MxNan::kByte0:
        return fixed_scale(0);
      case MxNan::k254:
        return fixed_scale(254);
      case MxNan::kErase:
        return fixed_scale(0, Scale::Codes::kErased);
      case MxNan::kRefuse:
        refuse(nan->row, "NaN, about which the contract's source says nothing");
      case MxNan::kDrop:
      case MxNan::kPass:
        break;
    }
  }
  if (infinity != nullptr) {
    switch (options.inf) {
      case MxInf::kNan:
        return fixed_scale(kMxNanByte);
      case MxInf::k254:
        return fixed_scale(254);
      case MxInf::kClamp:
        amax = exact(bit_cast<float>(0x7f7fffffu)).magnitude;
        from_binary64 = false;  // it acts as a binary32 number
        break;
      case MxInf::kErase:
        return fixed_scale(0, Scale::Codes::kErased);
      case MxInf::kByte0: {
        Scale scale = fixed_scale(0);
        // universal: an infinite maximum acts as floor(log2) = -127.
        if (options.quirk == MxQuirk::kUniversal) scale.exponent = -127 - mx_emax(recipe);
        return scale;
      }
      case MxInf::kRefuse:
        refuse(infinity->row, "an infinity, about which the contract's source says nothing");
    }
  }
  if (options.amax_floor != 0) {
    amax = std::max(amax, exact(bit_cast<float>(options.amax_floor)).magnitude);
  }
  if (amax.is_zero()) return zero_block(recipe, block.front().row);
  // microx, flush=1: floor(log2 amax) of a subnormal. The torch path computes it in binary32, so
  // that the largest subnormals count as 2^-126 there.
  const bool by_log2 = options.scale_arith == MxScaleArith::kLog2;
  if (options.flush && (by_log2 ? floor_log2_32(amax) : amax.floor_log2()) < -126) {
    return fixed_scale(0, Scale::Codes::kPlusZero);
  }
  return byte_scale(recipe, mx_exponent(recipe, amax, from_binary64), block.front().row);
}

std::uint32_t nan_code(const Recipe& recipe, const Number& x) {
  const MinifloatSpec element = recipe.format.element;
  if (recipe.mx.nan == MxNan::kPass || recipe.mx.nan_code == MxNanCode::kZero) return 0;
  const std::uint32_t code =
      element.special == Special::kNone ? element.max_finite_code() : element.magnitude_mask();
  switch (recipe.mx.nan_code) {
    case MxNanCode::kOwn:
      if (element.special == Special::kNone) return 0;
      return element.special == Special::kIeee ? code - 1u : code;
    case MxNanCode::kSigned:
      return code | (x.negative && !element.is_twos_complement() ? element.sign_mask() : 0u);
    case MxNanCode::kHostCuda:
      return element.special == Special::kIeee ? code - 1u : code;
    case MxNanCode::kPositive:
    case MxNanCode::kZero:
      break;
  }
  return code;
}

// microxcaling's torch path (spec/mx.md section 4): each step one binary32 operation, except that
// scaling by a power of two is exact. Returns the magnitude of the element.
Dyadic microx_torch_magnitude(const Recipe& recipe, const Dyadic& y) {
  const MinifloatSpec element = recipe.format.element;
  // An integer format has one exponent only, that of its unit's binade.
  int exponent = element.min_exponent();
  if (!mx_has_integers(recipe) && !y.is_zero()) exponent = std::max(floor_log2_32(y), exponent);
  const float q =
      round32({Number::Kind::kFinite, false, y.scaled(element.mantissa_bits - exponent)});
  const Number places = exact(q);
  if (!places.is_finite()) return mx_element_max(recipe);
  const float half = bit_cast<float>(0x3f000000u);
  const Dyadic one = Dyadic::pow2(0);
  Integer n;
  if (recipe.mx.ties == Rounding::kTrunc) {
    n = floor_quotient(places.magnitude, one);
  } else {
    n = floor_quotient(exact(add32(q, half)).magnitude, one);
    // "even" takes one off again at 0.5, 2.5, 4.5 ...
    const Integer below = floor_quotient(places.magnitude, one);
    const bool tie = places.magnitude - Dyadic(below, 0) == Dyadic::pow2(-1);
    if (recipe.mx.ties == Rounding::kEven && tie && !bit_test(below, 0)) --n;
  }
  return std::min(Dyadic(n, exponent - element.mantissa_bits), mx_element_max(recipe));
}

// spec/scalars.md 2.3 with the sign of y; a full two's complement grid has one more code below.
std::uint32_t stochastic_code(MinifloatSpec element, const Number& y, std::uint32_t random) {
  const float magnitude = round32({y.kind, false, y.magnitude});
  if (y.negative && element.sign_code == SignCode::kTwosComplementFull) {
    const Dyadic step = Dyadic::pow2(element.min_exponent() - element.mantissa_bits);
    const Integer most = element.max_finite_code() + 1u;
    const float added =
        round32({Number::Kind::kFinite, false, step.scaled(-8) * Dyadic(random, 0)});
    const Number t = exact(add32(magnitude, added));
    const Integer n = t.is_finite() ? std::min(floor_quotient(t.magnitude, step), most) : most;
    return n.is_zero() ? 0u : element.code_count() - n.convert_to<std::uint32_t>();
  }
  Number chosen = value(element, stochastic(element, magnitude, random));
  chosen.negative = y.negative;
  return cast_saturating(element, chosen, Rounding::kEven);
}

// A finite or infinite y to its code; the sign of a zero result is settled afterwards.
std::uint32_t cast_element(const Recipe& recipe, const Number& y, std::uint32_t byte,
                           std::uint32_t random) {
  const MxOptions& options = recipe.mx;
  const MinifloatSpec element = recipe.format.element;
  if (recipe.sr.enabled) return stochastic_code(element, y, random);
  if (options.quirk == MxQuirk::kMicroxTorch) {
    const Number rounded{
        Number::Kind::kFinite, y.negative,
        y.is_finite() ? microx_torch_magnitude(recipe, y.magnitude) : mx_element_max(recipe)};
    return cast_saturating(element, rounded, Rounding::kEven);
  }
  if (options.quirk == MxQuirk::kUniversal && element.special == Special::kIeee) {
    // Infinity instead of the largest element, from there on and not from the rounding midpoint on.
    Number beyond = y;
    if (y.is_finite() && y.magnitude > mx_element_max(recipe))
      beyond.kind = Number::Kind::kInfinite;
    return cast_special(element, beyond, options.ties, nan_code(recipe, y));
  }
  if (options.quirk == MxQuirk::kGgml) {
    // A candidate whose value overflows binary32 has an infinite error and never wins.
    std::uint32_t most = element.max_finite_code();
    const Dyadic limit = exact(bit_cast<float>(0x7f7fffffu)).magnitude;
    const int exponent = static_cast<int>(byte) - 127;
    while (most > 0 && value(element, most).magnitude.scaled(exponent) > limit) --most;
    Number capped = y;
    const Dyadic largest = value(element, most).magnitude;
    if (!capped.is_finite() || capped.magnitude > largest) {
      capped = Number{Number::Kind::kFinite, y.negative, largest};
    }
    return cast_saturating(element, capped, options.ties);
  }
  return cast_saturating(element, y, options.ties);
}

// Steps 4 to 6: y, its code, and the sign of a zero result.
std::uint32_t element_code(const Recipe& recipe, const Scale& scale, const Input& in,
                           bool binary64) {
  const MxOptions& options = recipe.mx;
  const MinifloatSpec element = recipe.format.element;
  switch (scale.codes) {
    case Scale::Codes::kNanBlock:
    case Scale::Codes::kPlusZero:
      return 0;
    case Scale::Codes::kErased:
      return element.is_twos_complement() ? 0u : element.sign_mask();
    case Scale::Codes::kCast:
      break;
  }
  Number y = flushed(in.x, options.ftz);
  if (y.is_nan()) return nan_code(recipe, y);
  // universal: fl(1 / 2^e) is infinite from e = -128 down.
  const bool infinite_inverse = options.quirk == MxQuirk::kUniversal && scale.exponent < -127;
  if (scale.zero_inverse || infinite_inverse) {
    if (scale.zero_inverse ? y.is_infinite() : y.is_zero()) {
      y.kind = Number::Kind::kNan;
      return nan_code(recipe, y);
    }
    y.magnitude = Dyadic();
    if (infinite_inverse) y.kind = Number::Kind::kInfinite;
  } else if (y.is_finite()) {
    y.magnitude = y.magnitude.scaled(-scale.exponent);
    if (!binary64) y = exact(round32(y));
    y = flushed(y, options.ftz);
  }
  if (!options.triton_sticky && y.is_finite()) {
    // The kernel aligns elements below 1 with the fraction of 1; bits below that are dropped.
    const Dyadic unit = Dyadic::pow2(-23);
    y.magnitude = unit * Dyadic(floor_quotient(y.magnitude, unit), 0);
  }
  const std::uint32_t code = cast_element(recipe, y, scale.byte, in.random);
  if (element.is_twos_complement() || !element.is_zero_code(code)) return code;
  const bool input_zero = in.x.is_zero();
  bool sign = in.x.negative;
  switch (options.zero_sign) {
    case ZeroSign::kKeep:
      break;
    case ZeroSign::kDropInput:
      sign = sign && !input_zero;
      break;
    case ZeroSign::kDrop:
      sign = false;
      break;
    case ZeroSign::kSet:
      sign = sign || input_zero;
      break;
    case ZeroSign::kRefuse:
      if (sign) {
        refuse(in.row,
               "a negative element that becomes zero, about whose sign the contract's source says "
               "nothing");
      }
      break;
  }
  return sign ? element.sign_mask() : 0u;
}

// Steps 1 to 6 of a block.
void encode_block(const Recipe& recipe, const std::vector<Input>& block, bool binary64,
                  std::uint32_t& byte, std::vector<std::uint32_t>& codes) {
  const MxOptions& options = recipe.mx;
  Scale scale = block_scale(recipe, block, binary64);
  if (scale.codes == Scale::Codes::kCast) {
    scale.zero_inverse = (scale.byte == 0 && options.byte0 == MxByte0::kFlush) ||
                         (scale.byte == 254 && options.quirk == MxQuirk::kZeroInverse254);
    if (scale.byte == 0 && options.quirk == MxQuirk::kFos) scale.codes = Scale::Codes::kPlusZero;
  }
  byte = scale.byte;
  codes.clear();
  for (const Input& in : block) codes.push_back(element_code(recipe, scale, in, binary64));
}

// Step 1: the element as the block sees it.
Number input_at(const Recipe& recipe, const Tile& tile, std::int64_t row, std::int64_t col,
                bool binary64) {
  if (binary64) return number_at(tile, row, col);
  float x = element_at(tile, row, col);
  if (recipe.mx.narrow_bf16) x = round_bf16(x);
  return exact(round_to_type(recipe.mx.dtype, x));
}

void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32>,
              QuantizedTile& out) {
  resize(out, recipe, tile.rows, tile.cols);
  const bool binary64 = tile.f64 != nullptr && !recipe.mx.rounds_binary64_first();
  const int width = recipe.format.block, height = recipe.format.block_rows;
  std::vector<Input> block(static_cast<std::size_t>(width * height));
  std::vector<std::uint32_t> codes;
  for (std::int64_t top = 0; top < tile.rows; top += height) {
    for (std::int64_t b = 0; b < out.blocks_per_row; ++b) {
      for (int i = 0; i < width * height; ++i) {
        const std::int64_t row = top + i / width, col = b * width + i % width;
        Input& in = block[static_cast<std::size_t>(i)];
        in.x = input_at(recipe, tile, row, col, binary64);
        in.row = std::min(row, tile.rows - 1);
        const bool random = recipe.sr.enabled && row < tile.rows && col < tile.cols;
        in.random = random ? random_byte(recipe, tile, row, col) : 0;
      }
      std::uint32_t byte = 0;
      encode_block(recipe, block, binary64, byte, codes);
      for (int r = 0; r < height && top + r < tile.rows; ++r) {
        out.scales[static_cast<std::size_t>((top + r) * out.blocks_per_row + b)] =
            static_cast<std::uint8_t>(byte);
        for (int i = 0; i < width; ++i) {
          out.codes[static_cast<std::size_t>((top + r) * out.padded_cols + b * width + i)] =
              static_cast<std::uint8_t>(codes[static_cast<std::size_t>(r * width + i)]);
        }
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

Support support(const Recipe& recipe) {
  if (recipe.format.lut != nullptr) {
    return {false, "the exact oracle has no elements from a table here"};
  }
  return {};
}

}  // namespace

OracleFamily mx_oracle() {
  return {support, outer, quantize, decode};
}

}  // namespace fp4scope::oracle
