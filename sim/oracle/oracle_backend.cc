// oracle_backend.cc: the exact backend, "oracle": slow, independent of every codec, and used only
// when asked for by name. Dispatch to the families, and the machine operations that several of them
// use; padding of ragged tails is +0 (spec/layouts.md section 3).
#include <array>

#include "sim/backend.h"
#include "sim/error.h"
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope {
namespace oracle {

float element_at(const Tile& tile, std::int64_t row, std::int64_t col) {
  const bool inside = row < tile.rows && col < tile.cols;
  return inside ? tile.f32[row * tile.stride + col] : 0.0f;
}

Number number_at(const Tile& tile, std::int64_t row, std::int64_t col) {
  if (row >= tile.rows || col >= tile.cols) return {};
  const std::int64_t at = row * tile.stride + col;
  return tile.f64 != nullptr ? exact(tile.f64[at]) : exact(tile.f32[at]);
}

namespace {

// a + b of the exact values; the sign of an exact zero is that of IEEE addition to nearest.
Number sum(const Number& a, const Number& b) {
  Number r;
  if (a.is_nan() || b.is_nan() ||
      (a.is_infinite() && b.is_infinite() && a.negative != b.negative)) {
    r.kind = Number::Kind::kNan;
    return r;
  }
  if (a.is_infinite()) return a;
  if (b.is_infinite()) return b;
  const Dyadic zero;
  const Dyadic x = a.negative ? zero - a.magnitude : a.magnitude;
  const Dyadic y = b.negative ? zero - b.magnitude : b.magnitude;
  const Dyadic s = x + y;
  r.negative = s.sign() < 0 || (s.is_zero() && a.negative && b.negative);
  r.magnitude = s.sign() < 0 ? zero - s : s;
  return r;
}
Number negated(Number v) {
  v.negative = !v.negative;
  return v;
}
Number product(const Number& a, const Number& b) {
  Number r;
  r.negative = a.negative != b.negative;
  const bool any_infinite = a.is_infinite() || b.is_infinite();
  if (a.is_nan() || b.is_nan() || (any_infinite && (a.is_zero() || b.is_zero()))) {
    r.kind = Number::Kind::kNan;
  } else if (any_infinite) {
    r.kind = Number::Kind::kInfinite;
  } else {
    r.magnitude = a.magnitude * b.magnitude;
  }
  return r;
}

OracleFamily family_of(const Recipe& recipe) {
  switch (recipe.family) {
    case Family::kMx:
      return mx_oracle();
    case Family::kNvfp4:
      return nvfp4_oracle();
    case Family::kHif4:
      return hif4_oracle();
    case Family::kInt4:
      return int4_oracle();
    case Family::kFp8:
      return fp8_oracle();
    case Family::kPass:
      return pass_oracle();
  }
  return pass_oracle();
}

}  // namespace

float add32(float a, float b) {
  return round32(sum(exact(a), exact(b)));
}
float sub32(float a, float b) {
  return round32(sum(exact(a), negated(exact(b))));
}
float fma32(float a, float b, float c) {
  return round32(sum(product(exact(a), exact(b)), exact(c)));
}

float flush_subnormal(float v) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(v);
  return (bits & 0x7f800000u) == 0 ? bit_cast<float>(bits & 0x80000000u) : v;
}

float rcp_approx(float v, const std::uint8_t* table) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(v);
  const std::uint32_t sign = bits & 0x80000000u;
  const std::uint32_t field = bits >> 23 & 0xffu, fraction = bits & 0x7fffffu;
  if (field == 0xff) return fraction != 0 ? v : bit_cast<float>(sign);
  if (field == 0) return bit_cast<float>(sign | 0x7f800000u);
  const float one = bit_cast<float>(0x3f800000u);
  std::int64_t r = bit_cast<std::uint32_t>(div32(one, bit_cast<float>(0x3f800000u | fraction)));
  if (table != nullptr) {
    const int two_bits = table[fraction / 4] >> (2 * (fraction & 3u)) & 3;
    r += two_bits == 3 ? -1 : two_bits;
  }
  r -= (static_cast<std::int64_t>(field) - 127) * (std::int64_t{1} << 23);
  if (r < 0x00800000) return bit_cast<float>(sign);
  return bit_cast<float>(sign | static_cast<std::uint32_t>(r));
}

float round_to_type(DType16 type, float v) {
  switch (type) {
    case DType16::kF32:
      return v;
    case DType16::kBf16:
      return round_bf16(v);
    case DType16::kF16: {
      // FP16 widens exactly; its codes are valued from the definition of a binary number.
      const std::uint32_t code = fp16_code(v, 0x7e00u);
      const std::uint32_t field = code >> 10 & 0x1fu, fraction = code & 0x3ffu;
      Number n;
      n.negative = (code & 0x8000u) != 0;
      if (field == 0x1f) {
        n.kind = fraction != 0 ? Number::Kind::kNan : Number::Kind::kInfinite;
      } else {
        n.magnitude = field == 0 ? Dyadic(Integer(fraction), -24)
                                 : Dyadic(Integer(fraction + 1024), static_cast<int>(field) - 25);
      }
      return round32(n);
    }
  }
  return v;
}

namespace {

Support pass_support(const Recipe&) {
  return {};
}
OuterScale32 pass_outer(const Recipe&, std::uint32_t amax_bits) {
  return {bit_cast<float>(amax_bits), 1.0f};
}
void pass_quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32>,
                   QuantizedTile& out) {
  resize(out, recipe, tile.rows, tile.cols);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    for (std::int64_t c = 0; c < out.padded_cols; ++c) {
      const std::uint32_t code = bf16_code(element_at(tile, r, c), 0x7fffu);
      const auto at = static_cast<std::size_t>(2 * (r * out.padded_cols + c));
      out.codes[at] = static_cast<std::uint8_t>(code);
      out.codes[at + 1] = static_cast<std::uint8_t>(code >> 8);
    }
  }
}
float pass_decode(const Recipe&, const OuterScale32&, const std::uint8_t*, bool, int,
                  std::uint32_t code) {
  return bit_cast<float>(code << 16);
}

}  // namespace

OracleFamily pass_oracle() {
  return {pass_support, pass_outer, pass_quantize, pass_decode};
}

}  // namespace oracle

namespace {

class OracleBackend final : public Backend {
 public:
  std::string_view name() const override { return "oracle"; }
  Support available() const override { return {}; }
  Support supports(const Recipe& recipe) const override {
    return oracle::family_of(recipe).support(recipe);
  }

  OuterScale32 outer_scale(const Recipe& recipe, std::uint32_t amax_bits) const override {
    return oracle::family_of(recipe).outer(recipe, amax_bits);
  }

  void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                QuantizedTile& out) const override {
    require_outer(recipe, tile.rows, outer.size());
    oracle::family_of(recipe).quantize(recipe, tile, outer, out);
  }

  void dequantize(const Recipe& recipe, const QuantizedTile& tile,
                  std::span<const OuterScale32> outer, float* values,
                  std::int64_t stride) const override {
    require_outer(recipe, tile.rows, outer.size());
    const oracle::OracleFamily family = oracle::family_of(recipe);
    const int size = recipe.format.block;
    const auto width = static_cast<std::size_t>(recipe.code_bytes());
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      const OuterScale32 outer_scale = outer_of_row(recipe, outer, row);
      for (std::int64_t col = 0; col < tile.cols; ++col) {
        const auto block = static_cast<std::size_t>(row * tile.blocks_per_row + col / size);
        const auto at = static_cast<std::size_t>(row * tile.padded_cols + col) * width;
        std::uint32_t code = tile.codes[at];
        if (width == 2) code |= static_cast<std::uint32_t>(tile.codes[at + 1]) << 8;
        const bool choice = !tile.choices.empty() && tile.choices[block] != 0;
        values[row * stride + col] = family.decode(
            recipe, outer_scale,
            tile.scales.data() + block * static_cast<std::size_t>(recipe.format.scale_bytes),
            choice, static_cast<int>(col % size), code);
      }
    }
  }
};

}  // namespace

const Backend& oracle_backend() {
  static const OracleBackend backend;
  return backend;
}

}  // namespace fp4scope
