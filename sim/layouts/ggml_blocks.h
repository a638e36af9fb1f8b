// ggml_blocks.h: the blocks of ggml d99724f (spec/layouts.md section 4, spec/mx.md 4,
// spec/scalars.md 4 and 5): MXFP4 is a scale byte and 16 bytes in split16 order, NVFP4 a
// super-block of 64 elements with four UE4M3 bytes and 32 bytes in split8 order, without a tensor
// scale. Decoders multiply a table of doubled E2M1 values with half the scale; code 8 decodes to
// +0.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace fp4scope {

struct GgmlMxfp4Block {
  std::uint8_t e;
  std::uint8_t qs[16];
};
struct GgmlNvfp4Block {
  std::uint8_t d[4];
  std::uint8_t qs[32];
};
static_assert(sizeof(GgmlMxfp4Block) == 17 && alignof(GgmlMxfp4Block) == 1);
static_assert(sizeof(GgmlNvfp4Block) == 36 && alignof(GgmlNvfp4Block) == 1);

// Twice the E2M1 values.
inline constexpr std::array<std::int8_t, 16> kGgmlDoubledE2m1 = {0, 1,  2,  3,  4,  6,  8,  12,
                                                                 0, -1, -2, -3, -4, -6, -8, -12};
// 2^(byte-128); byte 255 is no NaN there but 2^127.
float ggml_half_e8m0(std::uint8_t byte);
// Half of the UE4M3 value. Bit 7 is ignored, except that 0x7F gives 0 and 0xFF gives 240 (ggml's
// CPU code and the gguf package; CUDA code of ggml reads 0xFF as 0).
float ggml_half_ue4m3(std::uint8_t byte);

// One-byte codes [rows, cols] and scale bytes [rows, cols/32] or [rows, cols/16] to blocks
// [rows, cols/32] or [rows, cols/64] and back. Error(kData) where a row does not fill its blocks.
void pack_ggml_mxfp4(std::int64_t rows, std::int64_t cols, std::span<const std::uint8_t> codes,
                     std::span<const std::uint8_t> scales, std::span<GgmlMxfp4Block> blocks);
void unpack_ggml_mxfp4(std::int64_t rows, std::int64_t cols, std::span<const GgmlMxfp4Block> blocks,
                       std::span<std::uint8_t> codes, std::span<std::uint8_t> scales);
void pack_ggml_nvfp4(std::int64_t rows, std::int64_t cols, std::span<const std::uint8_t> codes,
                     std::span<const std::uint8_t> scales, std::span<GgmlNvfp4Block> blocks);
void unpack_ggml_nvfp4(std::int64_t rows, std::int64_t cols, std::span<const GgmlNvfp4Block> blocks,
                       std::span<std::uint8_t> codes, std::span<std::uint8_t> scales);

// What ggml's dequantizer returns, one binary32 product per element.
void decode_ggml_mxfp4(std::span<const GgmlMxfp4Block> blocks, std::span<float> values);
void decode_ggml_nvfp4(std::span<const GgmlNvfp4Block> blocks, std::span<float> values);

}  // namespace fp4scope
