// nibbles.h: rows of one-byte 4-bit codes to packed bytes and back, in the four published orders
// (spec/layouts.md section 1). A row is [cols] codes; a partial last unit of an order is stored
// whole, its absent elements as code 0, and what is stored there is never read.
#pragma once
#include <span>

#include "formats/contracts/common_options.h"

namespace fp4scope {

// Where the nibble of an element is inside its row.
struct NibblePlace {
  std::int64_t byte;
  int shift;  // 0: bits 3:0, 4: bits 7:4
};

// low-first   byte i/2,               low for even i
// high-first  byte i/2,               high for even i
// split8      byte i/16*8 + i%8,      low for i%16 < 8    (16 elements in 8 bytes)
// split16     byte i/32*16 + i%16,    low for i%32 < 16   (32 elements in 16 bytes)
constexpr NibblePlace nibble_place(Nibbles order, std::int64_t i) {
  switch (order) {
    case Nibbles::kLowFirst:
      return {i / 2, i % 2 == 0 ? 0 : 4};
    case Nibbles::kHighFirst:
      return {i / 2, i % 2 == 0 ? 4 : 0};
    case Nibbles::kSplit8:
      return {i / 16 * 8 + i % 8, i % 16 < 8 ? 0 : 4};
    case Nibbles::kSplit16:
      return {i / 32 * 16 + i % 16, i % 32 < 16 ? 0 : 4};
  }
  return {0, 0};
}

// Elements that are stored together: 2, 16 or 32.
constexpr std::int64_t nibble_unit(Nibbles order) {
  return order == Nibbles::kSplit8 ? 16 : order == Nibbles::kSplit16 ? 32 : 2;
}

// Bytes of a row of `cols` codes: half of its whole units.
std::int64_t packed_row_bytes(Nibbles order, std::int64_t cols);

// codes [rows, cols], each 0..15 (Error(kData) otherwise); packed [rows, packed_row_bytes].
void pack_nibbles(Nibbles order, std::int64_t rows, std::int64_t cols,
                  std::span<const std::uint8_t> codes, std::span<std::uint8_t> packed);
void unpack_nibbles(Nibbles order, std::int64_t rows, std::int64_t cols,
                    std::span<const std::uint8_t> packed, std::span<std::uint8_t> codes);

}  // namespace fp4scope
