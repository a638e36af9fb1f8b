// ggml_blocks.cc: see ggml_blocks.h.
#include "sim/layouts/ggml_blocks.h"

#include "formats/minifloat.h"
#include "sim/layouts/nibbles.h"
#include "sim/layouts/sizes.h"

namespace fp4scope {
namespace {

// A block and the shape of what it holds.
template <class Block>
struct Geometry;
template <>
struct Geometry<GgmlMxfp4Block> {
  static constexpr std::int64_t kElements = 32, kScales = 1;
  static constexpr Nibbles kOrder = Nibbles::kSplit16;
  template <class B>
  static auto* scales(B& block) {
    return &block.e;
  }
};
template <>
struct Geometry<GgmlNvfp4Block> {
  static constexpr std::int64_t kElements = 64, kScales = 4;
  static constexpr Nibbles kOrder = Nibbles::kSplit8;
  template <class B>
  static auto* scales(B& block) {
    return block.d;
  }
};

template <class Block>
void require_blocks(std::int64_t rows, std::int64_t cols, std::size_t codes, std::size_t scales,
                    std::size_t blocks) {
  using G = Geometry<Block>;
  require_shape(rows, cols, "codes");
  require_multiple(cols, G::kElements, "elements of a row of ggml blocks");
  const std::int64_t elements = checked_product(rows, cols, "codes");
  require_entries(codes, elements, "codes");
  require_entries(scales, elements / G::kElements * G::kScales, "scale bytes");
  require_entries(blocks, elements / G::kElements, "ggml blocks");
}

template <class Block>
void pack(std::int64_t rows, std::int64_t cols, std::span<const std::uint8_t> codes,
          std::span<const std::uint8_t> scales, std::span<Block> blocks) {
  using G = Geometry<Block>;
  require_blocks<Block>(rows, cols, codes.size(), scales.size(), blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (std::size_t s = 0; s < G::kScales; ++s) {
      G::scales(blocks[i])[s] = scales[i * G::kScales + s];
    }
    pack_nibbles(G::kOrder, 1, G::kElements, codes.subspan(i * G::kElements, G::kElements),
                 blocks[i].qs);
  }
}

template <class Block>
void unpack(std::int64_t rows, std::int64_t cols, std::span<const Block> blocks,
            std::span<std::uint8_t> codes, std::span<std::uint8_t> scales) {
  using G = Geometry<Block>;
  require_blocks<Block>(rows, cols, codes.size(), scales.size(), blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (std::size_t s = 0; s < G::kScales; ++s) {
      scales[i * G::kScales + s] = G::scales(blocks[i])[s];
    }
    unpack_nibbles(G::kOrder, 1, G::kElements, blocks[i].qs,
                   codes.subspan(i * G::kElements, G::kElements));
  }
}

template <class Block>
void decode_blocks(std::span<const Block> blocks, float (*half_scale)(std::uint8_t),
                   std::span<float> values) {
  using G = Geometry<Block>;
  require_entries(values.size(), static_cast<std::int64_t>(blocks.size()) * G::kElements,
                  "decoded values");
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (std::int64_t j = 0; j < G::kElements; ++j) {
      const NibblePlace place = nibble_place(G::kOrder, j);
      const int code = blocks[i].qs[place.byte] >> place.shift & 0xf;
      const float scale = half_scale(G::scales(blocks[i])[j / (G::kElements / G::kScales)]);
      values[i * G::kElements + static_cast<std::size_t>(j)] =
          static_cast<float>(kGgmlDoubledE2m1[static_cast<std::size_t>(code)]) * scale;
    }
  }
}

}  // namespace

float ggml_half_e8m0(std::uint8_t byte) {
  const std::uint32_t b = byte;
  return bit_cast<float>(b < 2 ? 0x00200000u << b : (b - 1u) << 23);
}

float ggml_half_ue4m3(std::uint8_t byte) {
  if (byte == 0x7f) return 0.0f;
  if (byte == 0xff) return 240.0f;  // 2^8 * 1.875 / 2: the NaN code read as a number
  return decode<Lane<1>>(kUE4M3, byte & 0x7fu) * 0.5f;
}

void pack_ggml_mxfp4(std::int64_t rows, std::int64_t cols, std::span<const std::uint8_t> codes,
                     std::span<const std::uint8_t> scales, std::span<GgmlMxfp4Block> blocks) {
  pack(rows, cols, codes, scales, blocks);
}
void unpack_ggml_mxfp4(std::int64_t rows, std::int64_t cols, std::span<const GgmlMxfp4Block> blocks,
                       std::span<std::uint8_t> codes, std::span<std::uint8_t> scales) {
  unpack(rows, cols, blocks, codes, scales);
}
void pack_ggml_nvfp4(std::int64_t rows, std::int64_t cols, std::span<const std::uint8_t> codes,
                     std::span<const std::uint8_t> scales, std::span<GgmlNvfp4Block> blocks) {
  pack(rows, cols, codes, scales, blocks);
}
void unpack_ggml_nvfp4(std::int64_t rows, std::int64_t cols, std::span<const GgmlNvfp4Block> blocks,
                       std::span<std::uint8_t> codes, std::span<std::uint8_t> scales) {
  unpack(rows, cols, blocks, codes, scales);
}
void decode_ggml_mxfp4(std::span<const GgmlMxfp4Block> blocks, std::span<float> values) {
  decode_blocks(blocks, ggml_half_e8m0, values);
}
void decode_ggml_nvfp4(std::span<const GgmlNvfp4Block> blocks, std::span<float> values) {
  decode_blocks(blocks, ggml_half_ue4m3, values);
}

}  // namespace fp4scope
