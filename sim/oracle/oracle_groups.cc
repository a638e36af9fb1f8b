// oracle_groups.cc: see oracle_groups.h. Scale bytes: little endian (sim/backend.h), E8M0 and
// minifloats from their definition (spec/scalars.md sections 3 and 5).
#include "sim/oracle/oracle_groups.h"

#include <algorithm>

#include "formats/hd.h"
#include "sim/oracle/exact_format.h"

namespace fp4scope::oracle::groups {
namespace {

std::uint32_t bits_of(float v) {
  return bit_cast<std::uint32_t>(v);
}

}  // namespace

float rounded32(const Dyadic& numerator, const Dyadic& denominator) {
  return bit_cast<float>(round_quotient(kBinary32, numerator, denominator));
}
float from_integer(std::uint32_t n) {
  return rounded32(Dyadic(Integer(n), 0), Dyadic::pow2(0));
}
float magnitude_of(float v) {
  return bit_cast<float>(bits_of(v) & 0x7fffffffu);
}
bool is_nan(float v) {
  return exact(v).is_nan();
}
bool is_zero(float v) {
  return exact(v).is_zero();
}

bool less_than(float a, float b) {
  const Number x = exact(a), y = exact(b);
  if (x.is_nan() || y.is_nan() || (x.is_zero() && y.is_zero())) return false;
  if (x.negative != y.negative) return x.negative;
  const bool smaller = x.is_infinite() ? false : y.is_infinite() ? true : x.magnitude < y.magnitude;
  const bool larger = y.is_infinite() ? false : x.is_infinite() ? true : x.magnitude > y.magnitude;
  return x.negative ? larger : smaller;
}

float max_dropping_nan(float a, float b) {
  if (is_nan(a)) return b;
  return less_than(a, b) ? b : a;
}

void for_each_group(const Recipe& recipe, const Tile& tile, const QuantizedTile& out,
                    const std::function<void(const Group&)>& visit) {
  const std::int64_t band = recipe.format.block_rows, size = recipe.format.block;
  for (std::int64_t top = 0; top < tile.rows; top += band) {
    for (std::int64_t b = 0; b < out.blocks_per_row; ++b) {
      Group group{top, b, std::min(band, tile.rows - top), {}, {}};
      for (std::int64_t row = top; row < top + band; ++row) {
        for (std::int64_t i = 0; i < size; ++i) {
          group.x.push_back(element_at(tile, row, b * size + i));
          if (!recipe.sr.enabled) continue;
          const bool inside = row < tile.rows && b * size + i < tile.cols;
          group.random.push_back(inside ? random_byte(recipe, tile, row, b * size + i) : 0);
        }
      }
      visit(group);
    }
  }
}

void put_group(const Recipe& recipe, const Group& group, std::span<const std::uint8_t> scale,
               std::span<const std::uint8_t> codes, QuantizedTile& out) {
  const std::int64_t size = recipe.format.block, bytes = recipe.format.scale_bytes;
  for (std::int64_t r = 0; r < group.rows; ++r) {
    const std::int64_t row = group.top + r;
    std::copy_n(scale.begin(), bytes,
                out.scales.begin() + (row * out.blocks_per_row + group.block) * bytes);
    std::copy_n(codes.begin() + r * size, size,
                out.codes.begin() + row * out.padded_cols + group.block * size);
  }
}

void store_scale(const ScaleLevel& level, float value, std::uint8_t* bytes) {
  std::uint32_t word = 0;
  int count = 1;
  switch (level.kind) {
    case ScaleKind::kBinary32:
      word = bits_of(value);
      count = 4;
      break;
    case ScaleKind::kBfloat16:
      word = bf16_code(value, 0x7fc0u);
      count = 2;
      break;
    case ScaleKind::kBinary16:
      word = fp16_code(value, 0x7e00u);
      count = 2;
      break;
    case ScaleKind::kE8m0:
      word = cast_e8m0(E8m0Cast::kDown, exact(value));
      break;
    case ScaleKind::kMinifloat:
      word = cast_special(level.spec, exact(value), Rounding::kEven, level.spec.magnitude_mask());
      break;
    case ScaleKind::kMicroExponent:
      break;  // no group scale is one bit
  }
  for (int i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(word >> (8 * i));
}

float load_scale(const ScaleLevel& level, const std::uint8_t* bytes) {
  const auto word = [bytes](int count) {
    std::uint32_t w = 0;
    for (int i = 0; i < count; ++i) w |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
    return w;
  };
  switch (level.kind) {
    case ScaleKind::kBinary32:
      return bit_cast<float>(word(4));
    case ScaleKind::kBfloat16:
      return bit_cast<float>(word(2) << 16);
    case ScaleKind::kBinary16:
      return round32(value({5, 10, 15, true, true, Special::kIeee}, word(2)));
    case ScaleKind::kE8m0:
      return round32(value_e8m0(bytes[0]));
    case ScaleKind::kMinifloat:
      return round32(value(level.spec, bytes[0]));
    case ScaleKind::kMicroExponent:
      break;
  }
  return bit_cast<float>(kOneBits);
}

}  // namespace fp4scope::oracle::groups
