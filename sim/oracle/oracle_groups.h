// oracle_groups.h: what INT4 and FP8 share in the oracle: groups of a tile (block x block_rows
// elements under one scale), scales of several types as bytes, clamps of the sources. Private to
// sim/oracle.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle::groups {

inline constexpr std::uint32_t kOneBits = 0x3f800000u;

// The float of an exact value, rounded once: for constants written as decimals in the sources.
float rounded32(const Dyadic& numerator, const Dyadic& denominator);
float from_integer(std::uint32_t n);
float magnitude_of(float v);
// Whether a < b as numbers; false with a NaN.
bool less_than(float a, float b);
bool is_nan(float v);
bool is_zero(float v);
// The larger of two; with one NaN the other.
float max_dropping_nan(float a, float b);

// A group is visited once: its place, its elements (row by row, +0 in the padding) and how many of
// its rows exist.
struct Group {
  std::int64_t top, block;            // first row, index of the block in the row
  std::int64_t rows;                  // rows inside the tile
  std::vector<float> x;               // block_rows x block
  std::vector<std::uint32_t> random;  // a byte for each with round=sr, otherwise empty
};
void for_each_group(const Recipe& recipe, const Tile& tile, const QuantizedTile& out,
                    const std::function<void(const Group&)>& visit);
// Writes the scale bytes and the codes of a group on each of its rows.
void put_group(const Recipe& recipe, const Group& group, std::span<const std::uint8_t> scale,
               std::span<const std::uint8_t> codes, QuantizedTile& out);

// Bytes of a scale in the layout of BlockFormat::scale_bytes; the value has the level's type.
void store_scale(const ScaleLevel& level, float value, std::uint8_t* bytes);
float load_scale(const ScaleLevel& level, const std::uint8_t* bytes);

}  // namespace fp4scope::oracle::groups
