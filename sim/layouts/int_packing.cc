// int_packing.cc: see int_packing.h.
#include "sim/layouts/int_packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/error.h"
#include "sim/layouts/sizes.h"

namespace fp4scope {
namespace {

void require_bits(int bits) {
  if (bits < 1 || bits > 8) {
    throw Error(ErrorKind::kUsage, fmt::format("integer codes have 1 to 8 bits, not {}", bits));
  }
}

void require_codes(int bits, std::span<const std::uint8_t> codes) {
  const auto wide = std::ranges::find_if(codes, [&](std::uint8_t code) { return code >> bits; });
  if (wide == codes.end()) return;
  throw Error(ErrorKind::kData, fmt::format("code {} of element {} does not fit {} bits", *wide,
                                            wide - codes.begin(), bits));
}

// Sizes of codes [rows, cols] in lines of `length` entries, `lines` of them.
void require_dense(int bits, std::int64_t lines, std::int64_t length, std::size_t codes,
                   std::size_t words) {
  require_bits(bits);
  require_shape(lines, length, "codes");
  require_entries(codes, checked_product(lines, length, "codes"), "codes");
  require_entries(words, checked_product(lines, dense_words(bits, length), "packed words"),
                  "packed words");
}

// Bits of entry i of a line: in word `word` from `shift` on, the rest in the next word.
struct BitPlace {
  std::int64_t word;
  int shift;
};
BitPlace bit_place(int bits, std::int64_t i) {
  return {i * bits / 32, static_cast<int>(i * bits % 32)};
}

// One line of `length` codes and its words, both with a stride.
void pack_line(int bits, std::int64_t length, const std::uint8_t* codes, std::int64_t code_stride,
               std::uint32_t* words, std::int64_t word_stride) {
  for (std::int64_t i = 0; i < length; ++i) {
    const BitPlace place = bit_place(bits, i);
    const std::uint64_t value = std::uint64_t{codes[i * code_stride]} << place.shift;
    words[place.word * word_stride] |= static_cast<std::uint32_t>(value);
    if (place.shift + bits > 32) {
      words[(place.word + 1) * word_stride] |= static_cast<std::uint32_t>(value >> 32);
    }
  }
}
void unpack_line(int bits, std::int64_t length, const std::uint32_t* words,
                 std::int64_t word_stride, std::uint8_t* codes, std::int64_t code_stride) {
  for (std::int64_t i = 0; i < length; ++i) {
    const BitPlace place = bit_place(bits, i);
    std::uint64_t value = words[place.word * word_stride];
    if (place.shift + bits > 32) {
      value |= std::uint64_t{words[(place.word + 1) * word_stride]} << 32;
    }
    codes[i * code_stride] = static_cast<std::uint8_t>(value >> place.shift & ((1u << bits) - 1u));
  }
}

void require_awq(std::int64_t rows, std::int64_t cols, std::size_t codes, std::size_t words) {
  require_shape(rows, cols, "codes");
  require_multiple(cols, 8, "columns of AWQ words");
  const std::int64_t entries = checked_product(rows, cols, "codes");
  require_entries(codes, entries, "codes");
  require_entries(words, entries / 8, "packed words");
}

// `in`, with the offset of v1 added modulo 16.
std::vector<std::uint8_t> shifted_zeros(std::span<const std::uint8_t> in, unsigned add) {
  std::vector<std::uint8_t> out(in.size());
  std::ranges::transform(
      in, out.begin(), [&](std::uint8_t z) { return static_cast<std::uint8_t>((z + add) & 0xfu); });
  return out;
}

void require_zeros(std::int64_t groups, std::int64_t cols, std::size_t zeros) {
  require_shape(groups, cols, "zero points");
  require_multiple(cols, 8, "columns of GPTQ zero points");
  require_entries(zeros, checked_product(groups, cols, "zero points"), "zero points");
}

}  // namespace

std::uint8_t offset_code(int q, int bits) {
  require_bits(bits);
  const int half = 1 << (bits - 1);
  if (q < -half || q >= half) {
    throw Error(ErrorKind::kData, fmt::format("integer {} does not fit {} bits", q, bits));
  }
  return static_cast<std::uint8_t>(q + half);
}
int signed_code(std::uint8_t code, int bits) {
  require_bits(bits);
  require_codes(bits, {&code, 1});
  return code - (1 << (bits - 1));
}

std::int64_t dense_words(int bits, std::int64_t cols) {
  return divide_up(cols * bits, 32);
}

void pack_dense(int bits, std::int64_t rows, std::int64_t cols, std::span<const std::uint8_t> codes,
                std::span<std::uint32_t> words) {
  require_dense(bits, rows, cols, codes.size(), words.size());
  require_codes(bits, codes);
  std::ranges::fill(words, 0u);
  for (std::int64_t row = 0; row < rows; ++row) {
    pack_line(bits, cols, codes.data() + row * cols, 1,
              words.data() + row * dense_words(bits, cols), 1);
  }
}
void unpack_dense(int bits, std::int64_t rows, std::int64_t cols,
                  std::span<const std::uint32_t> words, std::span<std::uint8_t> codes) {
  require_dense(bits, rows, cols, codes.size(), words.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    unpack_line(bits, cols, words.data() + row * dense_words(bits, cols), 1,
                codes.data() + row * cols, 1);
  }
}

void pack_dense_rows(int bits, std::int64_t rows, std::int64_t cols,
                     std::span<const std::uint8_t> codes, std::span<std::uint32_t> words) {
  require_dense(bits, cols, rows, codes.size(), words.size());
  require_codes(bits, codes);
  std::ranges::fill(words, 0u);
  for (std::int64_t col = 0; col < cols; ++col) {
    pack_line(bits, rows, codes.data() + col, cols, words.data() + col, cols);
  }
}
void unpack_dense_rows(int bits, std::int64_t rows, std::int64_t cols,
                       std::span<const std::uint32_t> words, std::span<std::uint8_t> codes) {
  require_dense(bits, cols, rows, codes.size(), words.size());
  for (std::int64_t col = 0; col < cols; ++col) {
    unpack_line(bits, rows, words.data() + col, cols, codes.data() + col, cols);
  }
}

void pack_awq(std::int64_t rows, std::int64_t cols, std::span<const std::uint8_t> codes,
              std::span<std::uint32_t> words) {
  require_awq(rows, cols, codes.size(), words.size());
  require_codes(4, codes);
  std::ranges::fill(words, 0u);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    words[i / 8] |= std::uint32_t{codes[i]} << awq_shift(static_cast<std::int64_t>(i % 8));
  }
}
void unpack_awq(std::int64_t rows, std::int64_t cols, std::span<const std::uint32_t> words,
                std::span<std::uint8_t> codes) {
  require_awq(rows, cols, codes.size(), words.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::uint8_t>(
        words[i / 8] >> awq_shift(static_cast<std::int64_t>(i % 8)) & 0xfu);
  }
}

void pack_gptq_zeros(GptqZeros version, std::int64_t groups, std::int64_t cols,
                     std::span<const std::uint8_t> zeros, std::span<std::uint32_t> words) {
  require_zeros(groups, cols, zeros.size());
  require_codes(4, zeros);
  pack_dense(4, groups, cols, shifted_zeros(zeros, version == GptqZeros::kV1 ? 15u : 0u), words);
}
void unpack_gptq_zeros(GptqZeros version, std::int64_t groups, std::int64_t cols,
                       std::span<const std::uint32_t> words, std::span<std::uint8_t> zeros) {
  require_zeros(groups, cols, zeros.size());
  unpack_dense(4, groups, cols, words, zeros);
  std::ranges::copy(shifted_zeros(zeros, version == GptqZeros::kV1 ? 1u : 0u), zeros.begin());
}

void ct_words_to_twos(std::span<const std::uint32_t> words, std::span<std::uint8_t> bytes) {
  require_entries(bytes.size(),
                  checked_product(static_cast<std::int64_t>(words.size()), 4, "words"),
                  "bytes of two's complement codes");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>((words[i / 4] >> (8 * (i % 4)) & 0xffu) ^ 0x88u);
  }
}
void twos_to_ct_words(std::span<const std::uint8_t> bytes, std::span<std::uint32_t> words) {
  require_entries(bytes.size(),
                  checked_product(static_cast<std::int64_t>(words.size()), 4, "words"),
                  "bytes of two's complement codes");
  std::ranges::fill(words, 0u);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    words[i / 4] |= std::uint32_t{bytes[i] ^ 0x88u} << (8 * (i % 4));
  }
}

}  // namespace fp4scope
