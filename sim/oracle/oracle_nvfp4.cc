// oracle_nvfp4.cc: NVFP4, contract te, static map-to-6 (spec/nvfp4.md sections 3.1, 3.2, 3.4).
// g: encode scale of the tensor or row; gd = fl(1/g); bmax: largest magnitude of a block;
// sf: E4M3 block scale; M: ceiling of E4M3 (448 or 256); q: E2M1 element.
#include "formats/hd.h"
#include "formats/scalars.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle {
namespace {

float from_integer(std::uint32_t n) {
  return round32({Number::Kind::kFinite, false, Dyadic(Integer(n), 0)});
}
const float kOne = bit_cast<float>(0x3f800000u);
const float kFmax = bit_cast<float>(0x7f7fffffu);

// fminf(v, FMAX): a NaN gives FMAX.
float min_fmax(float v) {
  const Number x = exact(v);
  if (x.is_nan()) return kFmax;
  if (x.is_infinite()) return x.negative ? v : kFmax;
  return v;
}

float magnitude_of(float v) {
  return bit_cast<float>(bit_cast<std::uint32_t>(v) & 0x7fffffffu);
}

OuterScale32 outer_te(const Recipe& recipe, std::uint32_t amax_bits) {
  const Nvfp4Options& options = recipe.nvfp4;
  OuterScale32 outer;
  outer.amax = bit_cast<float>(options.has_amax ? options.amax_bits : amax_bits);
  outer.g = kOne;
  if (options.scale == OuterScale::kGiven) {
    outer.g = bit_cast<float>(options.g_bits);
  } else if (options.scale != OuterScale::kNone) {
    const float g = min_fmax(div32(from_integer(6 * options.e4m3max), outer.amax));
    const bool degenerate = exact(outer.amax).is_zero() || exact(g).is_zero();
    if (!degenerate) outer.g = g;
  }
  return outer;
}

std::uint32_t scale_byte_te(float encode_scale, std::span<const float> block) {
  float bmax = bit_cast<float>(0u);
  for (const float v : block) {
    // Magnitude bit patterns order like the values; NaN is ignored.
    const float a = magnitude_of(v);
    if (!exact(v).is_nan() && bit_cast<std::uint32_t>(a) > bit_cast<std::uint32_t>(bmax)) bmax = a;
  }
  const float sixth = div32(kOne, from_integer(6));
  const float k = mul32(encode_scale, sixth);
  const float s = min_fmax(mul32(bmax, k));
  return cast_saturating(kUE4M3, exact(s), Rounding::kEven);
}

std::uint32_t encode_te(const Nvfp4Options& options, float encode_scale, std::uint32_t byte,
                        float x) {
  const Number input = exact(x);
  if (options.neg_zero == NegZero::kDrop && input.is_zero()) return 0;
  const float gd = div32(kOne, encode_scale);
  const float sf = round32(value(kUE4M3, byte));
  const float inv = min_fmax(div32(kOne, mul32(sf, gd)));
  const Number product = exact(mul32(x, inv));
  if (product.is_nan()) return 7;
  return cast_saturating(kE2M1, product, Rounding::kEven);
}

void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
              QuantizedTile& out) {
  resize(out, recipe, tile.rows, tile.cols);
  constexpr int kSize = 16;
  const int band = recipe.is_2d() ? 16 : 1;  // rows that share a scale byte
  std::vector<float> block;
  for (std::int64_t top = 0; top < tile.rows; top += band) {
    const float g = outer_of_row(recipe, outer, top).g;
    for (std::int64_t b = 0; b < out.blocks_per_row; ++b) {
      block.clear();
      for (std::int64_t row = top; row < top + band; ++row) {
        for (int i = 0; i < kSize; ++i) block.push_back(element_at(tile, row, b * kSize + i));
      }
      const std::uint32_t byte = scale_byte_te(g, block);
      for (std::int64_t row = top; row < std::min(top + band, tile.rows); ++row) {
        out.scales[static_cast<std::size_t>(row * out.blocks_per_row + b)] =
            static_cast<std::uint8_t>(byte);
        for (int i = 0; i < kSize; ++i) {
          const float x = element_at(tile, row, b * kSize + i);
          out.codes[static_cast<std::size_t>(row * out.padded_cols + b * kSize + i)] =
              static_cast<std::uint8_t>(encode_te(recipe.nvfp4, g, byte, x));
        }
      }
    }
  }
}

float decode(const Recipe& recipe, const OuterScale32& outer, const std::uint8_t* scale, bool, int,
             std::uint32_t code) {
  const Nvfp4Options& options = recipe.nvfp4;
  const std::uint32_t byte = scale[0];
  const float q = round32(value(kE2M1, code));
  const float sf = round32(value(kUE4M3, byte));
  const bool by_amax = options.scale == OuterScale::kTensor || options.scale == OuterScale::kRow ||
                       (options.scale == OuterScale::kGiven && options.has_amax);
  if (by_amax) {
    const float sixth_of_m = div32(kOne, from_integer(6 * options.e4m3max));
    const float f = mul32(mul32(sf, outer.amax), sixth_of_m);
    return mul32(q, f);
  }
  if (options.scale == OuterScale::kNone) return mul32(q, sf);
  return mul32(q, mul32(sf, div32(kOne, outer.g)));
}

}  // namespace

OracleFamily nvfp4_oracle() {
  return {[](const Recipe&) { return Support{}; }, outer_te, quantize, decode};
}

}  // namespace fp4scope::oracle
