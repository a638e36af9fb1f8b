// hif4_carrier.h: the 32 bits of metadata of a HiF4 group in the carriers of other projects
// (spec/layouts.md section 5, spec/hif4.md section 4). fp4scope's own form is [lines, groups, 4]:
// E, e8, e16 low, e16 high with index 0 of a level in bit 0 (carrier=bytes, bits=lsb).
#pragma once
#include <span>

#include "formats/contracts/common_options.h"

namespace fp4scope {

// u32    little-endian word: E in bits 7:0, e8[j] in bit 8+j, e16[k] in bit 16+k; [lines, groups]
//        (PTO CUBE_M32)
// f32    the same word as the bit pattern of a float32 tensor; it is copied, never converted
// bytes  E, e8, e16 low, e16 high; bits=msb: the bits of bytes 1..3 reversed (AMCT)
// a6     cells of 64 bytes, [lines/16][groups]: of 16 lines and one group bytes 0..31 hold (E, e8)
//        per line, bytes 32..63 (e16 low, e16 high). A line is a row of the A side (HIF4_A_ZZ) or a
//        column of the B side (HIF4_B_NN): both number cells [line/16][K/64].
// Offset of byte b of a group in the buffer:
//   u32, f32, bytes   (line*groups + group)*4 + b
//   a6                ((line/16)*groups + group)*64 + b/2*32 + line%16*2 + b%2
constexpr std::int64_t hif4_scale_offset(Carrier carrier, std::int64_t groups, std::int64_t line,
                                         std::int64_t group, std::int64_t b) {
  return carrier == Carrier::kA6
             ? (line / 16 * groups + group) * 64 + b / 2 * 32 + line % 16 * 2 + b % 2
             : (line * groups + group) * 4 + b;
}
constexpr std::uint8_t reversed_bits(std::uint8_t byte) {
  unsigned out = 0;
  for (int i = 0; i < 8; ++i) out |= (byte >> i & 1u) << (7 - i);
  return static_cast<std::uint8_t>(out);
}

// scales and stored: 4 * lines * groups bytes. Error(kUsage) for bits=msb with another carrier than
// bytes, which no source has; Error(kData) for carrier=a6 and lines that do not fill cells of 16.
void store_hif4_scales(Carrier carrier, LevelBits bits, std::int64_t lines, std::int64_t groups,
                       std::span<const std::uint8_t> scales, std::span<std::uint8_t> stored);
void load_hif4_scales(Carrier carrier, LevelBits bits, std::int64_t lines, std::int64_t groups,
                      std::span<const std::uint8_t> stored, std::span<std::uint8_t> scales);

// The E bytes that the A6 TQUANT workspace keeps beside the cells: zero-extended to two bytes,
// [lines, groups].
void store_hif4_level1(std::int64_t lines, std::int64_t groups,
                       std::span<const std::uint8_t> scales, std::span<std::uint16_t> level1);

}  // namespace fp4scope
