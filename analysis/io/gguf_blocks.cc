// gguf_blocks.cc: see gguf_blocks.h.
#include "analysis/io/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "analysis/io/widen.h"
#include "sim/layouts/ggml_blocks.h"
#include "sim/layouts/nibbles.h"

namespace fp4scope {
namespace {

// Fields of more than one byte have the byte order of the file.
template <bool Big>
float f16_at(const unsigned char* at) {
  const unsigned low = at[Big ? 1 : 0], high = at[Big ? 0 : 1];
  return widen_f16(static_cast<std::uint16_t>(high << 8 | low));
}
template <bool Big>
std::uint32_t u32_at(const unsigned char* at) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | at[Big ? i : 3 - i];
  return value;
}

template <std::size_t N>
void put(const std::array<float, N>& values, unsigned char* out) {
  std::memcpy(out, values.data(), sizeof(values));
}

// The low nibbles are elements 0 to 15, the high ones 16 to 31.
int nibble(const unsigned char* packed, int i) {
  return i < 16 ? packed[i] & 0xF : packed[i - 16] >> 4;
}

// d, 16 nibble bytes: (q - 8) * d.
template <bool Big>
void decode_q4_0(const unsigned char* block, unsigned char* out) {
  const float d = f16_at<Big>(block);
  std::array<float, 32> values;
  for (int i = 0; i < 32; ++i) values[i] = static_cast<float>(nibble(block + 2, i) - 8) * d;
  put(values, out);
}

// d, m, 16 nibble bytes: q * d + m.
template <bool Big>
void decode_q4_1(const unsigned char* block, unsigned char* out) {
  const float d = f16_at<Big>(block), m = f16_at<Big>(block + 2);
  std::array<float, 32> values;
  for (int i = 0; i < 32; ++i) {
    const float product = static_cast<float>(nibble(block + 4, i)) * d;
    values[i] = product + m;
  }
  put(values, out);
}

// Bit i of the 32-bit word is bit 4 of element i.
int five_bits(const unsigned char* packed, std::uint32_t high, int i) {
  return nibble(packed, i) | static_cast<int>(high >> i & 1u) << 4;
}

// d, 32 high bits, 16 nibble bytes: (q - 16) * d.
template <bool Big>
void decode_q5_0(const unsigned char* block, unsigned char* out) {
  const float d = f16_at<Big>(block);
  const std::uint32_t high = u32_at<Big>(block + 2);
  std::array<float, 32> values;
  for (int i = 0; i < 32; ++i) {
    values[i] = static_cast<float>(five_bits(block + 6, high, i) - 16) * d;
  }
  put(values, out);
}

// d, m, 32 high bits, 16 nibble bytes: q * d + m.
template <bool Big>
void decode_q5_1(const unsigned char* block, unsigned char* out) {
  const float d = f16_at<Big>(block), m = f16_at<Big>(block + 2);
  const std::uint32_t high = u32_at<Big>(block + 4);
  std::array<float, 32> values;
  for (int i = 0; i < 32; ++i) {
    const float product = static_cast<float>(five_bits(block + 8, high, i)) * d;
    values[i] = product + m;
  }
  put(values, out);
}

float int8_at(const unsigned char* at) {
  return static_cast<float>(static_cast<std::int8_t>(*at));
}

// d, 32 int8: q * d.
template <bool Big>
void decode_q8_0(const unsigned char* block, unsigned char* out) {
  const float d = f16_at<Big>(block);
  std::array<float, 32> values;
  for (int i = 0; i < 32; ++i) values[i] = int8_at(block + 2 + i) * d;
  put(values, out);
}

// 128 bytes of low nibbles, 64 of two high bits each, 16 int8 scales of 16 elements, d:
// (d * scale) * (q - 32). Each half of 128 elements has four runs of 32: runs 0 and 1 are the low
// nibbles of its 64 bytes, 2 and 3 the high ones; run r has bits 2r of its 32 high bytes.
template <bool Big>
void decode_q6_k(const unsigned char* block, unsigned char* out) {
  const float d = f16_at<Big>(block + 208);
  std::array<float, 256> values;
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, run = i % 128 / 32, l = i % 32;
    const int low = block[half * 64 + run % 2 * 32 + l] >> (run < 2 ? 0 : 4) & 0xF;
    const int high = block[128 + half * 32 + l] >> (2 * run) & 3;
    const float scale = d * int8_at(block + 192 + i / 16);
    values[i] = scale * static_cast<float>((low | high << 4) - 32);
  }
  put(values, out);
}

template <class Block>
Block block_at(const unsigned char* at) {
  Block block;
  std::memcpy(&block, at, sizeof(block));
  return block;
}

void decode_mxfp4(const unsigned char* at, unsigned char* out) {
  const auto block = block_at<GgmlMxfp4Block>(at);
  std::array<float, 32> values;
  decode_ggml_mxfp4({&block, 1}, values);
  put(values, out);
}

void decode_nvfp4(const unsigned char* at, unsigned char* out) {
  const auto block = block_at<GgmlNvfp4Block>(at);
  std::array<float, 64> values;
  decode_ggml_nvfp4({&block, 1}, values);
  put(values, out);
}

template <std::size_t N>
void put_low_first(const std::array<std::uint8_t, N>& codes, unsigned char* out) {
  pack_nibbles(Nibbles::kLowFirst, 1, N, codes, {out, N / 2});
}

void mxfp4_codes(const unsigned char* at, unsigned char* out) {
  const auto block = block_at<GgmlMxfp4Block>(at);
  std::array<std::uint8_t, 32> codes;
  std::uint8_t scale = 0;
  unpack_ggml_mxfp4(1, 32, {&block, 1}, codes, {&scale, 1});
  put_low_first(codes, out);
}

void nvfp4_codes(const unsigned char* at, unsigned char* out) {
  const auto block = block_at<GgmlNvfp4Block>(at);
  std::array<std::uint8_t, 64> codes;
  std::array<std::uint8_t, 4> scales;
  unpack_ggml_nvfp4(1, 64, {&block, 1}, codes, scales);
  put_low_first(codes, out);
}

// Both kinds of blocks begin with their scales.
void mxfp4_scale(const unsigned char* at, unsigned char* out) {
  *out = *at;
}
void nvfp4_scales(const unsigned char* at, unsigned char* out) {
  std::copy_n(at, 4, out);
}

using Decode = void (*)(const unsigned char*, unsigned char*);

constexpr GgufCodecs decoder(int elements, int bytes, Decode little, Decode big) {
  return {{elements, bytes, 4, little}, {elements, bytes, 4, big}, {}, {}};
}

}  // namespace

constinit const GgufCodecs kGgufQ4_0 = decoder(32, 18, decode_q4_0<false>, decode_q4_0<true>);
constinit const GgufCodecs kGgufQ4_1 = decoder(32, 20, decode_q4_1<false>, decode_q4_1<true>);
constinit const GgufCodecs kGgufQ5_0 = decoder(32, 22, decode_q5_0<false>, decode_q5_0<true>);
constinit const GgufCodecs kGgufQ5_1 = decoder(32, 24, decode_q5_1<false>, decode_q5_1<true>);
constinit const GgufCodecs kGgufQ8_0 = decoder(32, 34, decode_q8_0<false>, decode_q8_0<true>);
constinit const GgufCodecs kGgufQ6K = decoder(256, 210, decode_q6_k<false>, decode_q6_k<true>);
constinit const GgufCodecs kGgufMxfp4 = {{32, 17, 4, decode_mxfp4},
                                         {32, 17, 4, decode_mxfp4},
                                         {16, 17, 1, mxfp4_codes},
                                         {1, 17, 1, mxfp4_scale}};
constinit const GgufCodecs kGgufNvfp4 = {{64, 36, 4, decode_nvfp4},
                                         {64, 36, 4, decode_nvfp4},
                                         {32, 36, 1, nvfp4_codes},
                                         {4, 36, 1, nvfp4_scales}};

}  // namespace fp4scope
