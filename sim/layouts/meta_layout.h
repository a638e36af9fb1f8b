// meta_layout.h: where the metadata nibble of row r and chunk u lies (spec/more.md 5.3); U = chunks
// per row. Nibble n of a buffer is in byte n/2, the low half for even n; words are little endian.
// Padding holds 0 and is never read. torch with the cuSPARSELt back end keeps values and metadata
// in one opaque buffer whose layout depends on the device: exchange files use `linear`.
#pragma once
#include <span>

#include "sim/layouts/sizes.h"

namespace fp4scope {

enum class MetaLayout : std::uint8_t {
  kLinear,
  kTorch16,             // SparseSemiStructuredTensor, CUTLASS back end, 16-bit data: int16 words
  kTorch8,              // the same for int8 data: int32 words
  kCsltSm90b16,         // cuSPARSELt 0.8.0 on sm_90, 16-bit data
  kCsltSm90b8,          // the same, int8 and e4m3
  kCutlassSm100F4,      // chunks of 8 elements (pairs)
  kCutlassSm100F8f6f4,  // also i8
  kCutlassSm100F16
};

// Elements of a chunk in the cutlass-sm100 layouts, whose offsets count elements.
constexpr std::int64_t cutlass_chunk(MetaLayout layout) {
  return layout == MetaLayout::kCutlassSm100F4 ? 8 : 4;
}

// Offset of element k of row r, in elements, of the cutlass-sm100 layouts; Mp = rows up to 128:
//   f4           (k/256)*(Mp*256) + (r/128)*32768 + (r%128)*256 + k%256
//   f8f6f4, i8   (k/128)*(Mp*128) + (r/128)*16384 + (r%128)*128 + k%128
//   f16          (k/128)*(Mp*128) + (r/128)*16384 + (r%8)*128 + (r%16)/8*16 + (r%128)/16*2048
//                + k%16 + (k%32)/16*1024 + (k%128)/32*32
constexpr std::int64_t cutlass_offset(MetaLayout layout, std::int64_t rows, std::int64_t r,
                                      std::int64_t k) {
  const std::int64_t padded = round_up(rows, 128);
  switch (layout) {
    case MetaLayout::kCutlassSm100F4:
      return k / 256 * (padded * 256) + r / 128 * 32768 + r % 128 * 256 + k % 256;
    case MetaLayout::kCutlassSm100F8f6f4:
      return k / 128 * (padded * 128) + r / 128 * 16384 + r % 128 * 128 + k % 128;
    case MetaLayout::kCutlassSm100F16:
      return k / 128 * (padded * 128) + r / 128 * 16384 + r % 8 * 128 + r % 16 / 8 * 16 +
             r % 128 / 16 * 2048 + k % 16 + k % 32 / 16 * 1024 + k % 128 / 32 * 32;
    default:
      return 0;
  }
}

// linear        r*2*ceil(U/2) + u
// torch         word (r, c) of w nibbles (16-bit data: w = 4, g = 32, i = 4; int8: w = 8, g = 16,
//               i = 2), c = u/w: r' = r/g*g + (r%8)*i + (r%g)/8; inside 2x2 blocks (even r', odd c)
//               and (odd r', even c) change places; (c/2*2*rows + 2*r' + c%2)*w + u%w
// cslt-sm90/16  r/64*64U + u/8*512 + (r%64)/16*128 + (r%8)*16 + (u%4)*4 + (u%8)/4*2 + (r%16)/8
// cslt-sm90/8   r/64*64U + u/16*1024 + (r%64)/16*256 + (r%8)*32 + (u%8)/2*8 + (u%16)/8*4
//               + (r%16)/8*2 + u%2
// cutlass-*     cutlass_offset(first element of the chunk) / elements of a chunk
constexpr std::int64_t meta_nibble(MetaLayout layout, std::int64_t rows, std::int64_t chunks,
                                   std::int64_t r, std::int64_t u) {
  switch (layout) {
    case MetaLayout::kLinear:
      return r * round_up(chunks, 2) + u;
    case MetaLayout::kTorch16:
    case MetaLayout::kTorch8: {
      const bool is_16 = layout == MetaLayout::kTorch16;
      const std::int64_t w = is_16 ? 4 : 8, g = is_16 ? 32 : 16, i = is_16 ? 4 : 2;
      std::int64_t row = r / g * g + r % 8 * i + r % g / 8, c = u / w;
      const std::int64_t swap = row % 2 == c % 2 ? 0 : c % 2 - row % 2;
      row += swap;
      c -= swap;
      return (c / 2 * 2 * rows + 2 * row + c % 2) * w + u % w;
    }
    case MetaLayout::kCsltSm90b16:
      return r / 64 * 64 * chunks + u / 8 * 512 + r % 64 / 16 * 128 + r % 8 * 16 + u % 4 * 4 +
             u % 8 / 4 * 2 + r % 16 / 8;
    case MetaLayout::kCsltSm90b8:
      return r / 64 * 64 * chunks + u / 16 * 1024 + r % 64 / 16 * 256 + r % 8 * 32 + u % 8 / 2 * 8 +
             u % 16 / 8 * 4 + r % 16 / 8 * 2 + u % 2;
    case MetaLayout::kCutlassSm100F4:
    case MetaLayout::kCutlassSm100F8f6f4:
    case MetaLayout::kCutlassSm100F16:
      return cutlass_offset(layout, rows, r, u * cutlass_chunk(layout)) / cutlass_chunk(layout);
  }
  return 0;
}

// Bytes of the buffer. Error(kData) for a shape that the layout does not have: torch needs rows in
// 32 and chunks in 8 (int8: 16 and 16), cslt-sm90 rows in 64 and chunks in 8 (8-bit: 16);
// cutlass-sm100 pads rows to 128 and chunks to 32.
std::int64_t meta_bytes(MetaLayout layout, std::int64_t rows, std::int64_t chunks);

// Nibbles [rows, chunks], one byte each (Error(kData) above 15), to the layout and back.
void store_meta(MetaLayout layout, std::int64_t rows, std::int64_t chunks,
                std::span<const std::uint8_t> nibbles, std::span<std::uint8_t> stored);
void load_meta(MetaLayout layout, std::int64_t rows, std::int64_t chunks,
               std::span<const std::uint8_t> stored, std::span<std::uint8_t> nibbles);

}  // namespace fp4scope
