// int_packing.h: words of integer checkpoints (spec/more.md 1.3). Codes are one byte each and
// unsigned: q + 2^(bits-1) for symmetric formats, q + z for asymmetric ones.
#pragma once
#include <cstdint>
#include <span>

namespace fp4scope {

// Signed q of `bits` bits (-2^(bits-1) to 2^(bits-1) - 1) to the stored unsigned code and back.
// Error(kData) for a q outside.
std::uint8_t offset_code(int q, int bits);
int signed_code(std::uint8_t code, int bits);

// Dense: element i of a row starts at bit i*bits of the row and crosses word borders; a row is
// ceil(cols*bits/32) words and its last bits are 0 (never read). With 4 bits this is the `ct` order
// (compressed-tensors pack-quantized): element j of a word in bits 4j+3:4j, code q + 8.
std::int64_t dense_words(int bits, std::int64_t cols);
void pack_dense(int bits, std::int64_t rows, std::int64_t cols, std::span<const std::uint8_t> codes,
                std::span<std::uint32_t> words);
void unpack_dense(int bits, std::int64_t rows, std::int64_t cols,
                  std::span<const std::uint32_t> words, std::span<std::uint8_t> codes);

// Dense along the rows: word m of column c holds the codes of its rows from bit 32m on,
// [ceil(rows*bits/32), cols]. The `weight_zero_point` of compressed-tensors and, with 4 bits, the
// GPTQ qweight [K/8, N].
void pack_dense_rows(int bits, std::int64_t rows, std::int64_t cols,
                     std::span<const std::uint8_t> codes, std::span<std::uint32_t> words);
void unpack_dense_rows(int bits, std::int64_t rows, std::int64_t cols,
                       std::span<const std::uint32_t> words, std::span<std::uint8_t> codes);

// AWQ: 8 columns per word, column j of the word at bits 4*[0,4,1,5,2,6,3,7][j]; [rows, cols/8]. For
// qweight the rows are K and the columns N, for qzeros the rows are the groups.
constexpr int awq_shift(std::int64_t column) {
  return 4 * static_cast<int>(column % 8 / 2 + column % 2 * 4);
}
void pack_awq(std::int64_t rows, std::int64_t cols, std::span<const std::uint8_t> codes,
              std::span<std::uint32_t> words);
void unpack_awq(std::int64_t rows, std::int64_t cols, std::span<const std::uint32_t> words,
                std::span<std::uint8_t> codes);

// GPTQ qzeros [groups, N/8], low nibble first: z - 1 modulo 16 (v1) or z (v2).
enum class GptqZeros : std::uint8_t { kV1, kV2 };
void pack_gptq_zeros(GptqZeros version, std::int64_t groups, std::int64_t cols,
                     std::span<const std::uint8_t> zeros, std::span<std::uint32_t> words);
void unpack_gptq_zeros(GptqZeros version, std::int64_t groups, std::int64_t cols,
                       std::span<const std::uint32_t> words, std::span<std::uint8_t> zeros);

// `twos` (CUTLASS W4A8): byte j holds elements 2j (low) and 2j+1 (high) as q & 15; the bytes of ct
// words, little endian, XOR 0x88. cols is a multiple of 8, the width of a word.
void ct_words_to_twos(std::span<const std::uint32_t> words, std::span<std::uint8_t> bytes);
void twos_to_ct_words(std::span<const std::uint8_t> bytes, std::span<std::uint32_t> words);

}  // namespace fp4scope
