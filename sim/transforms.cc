// transforms.cc: see transforms.h.
#include "sim/transforms.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/hadamard.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

[[noreturn]] void refuse(const Recipe& recipe, const std::string& what) {
  throw Error(ErrorKind::kData, fmt::format("recipe {}: {}", to_string(recipe), what));
}

float round_to_source(SourceType source, float v) {
  switch (source) {
    case SourceType::kBf16:
      return round_to_bf16<Lane<1>>(v);
    case SourceType::kF16:
      return round_to_f16<Lane<1>>(v);
    case SourceType::kF32:
    case SourceType::kF64:
      return v;
  }
  return v;
}

struct PhiloxKey {
  std::uint32_t words[2];
  explicit PhiloxKey(std::uint64_t seed)
      : words{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)} {}
};

std::uint8_t byte_of(const std::uint32_t (&words)[4], std::int64_t i) {
  return static_cast<std::uint8_t>(words[i / 4] >> (i % 4 * 8));
}

void index_bytes(const Recipe& recipe, const Tile& tile, std::int64_t row, std::int64_t col,
                 std::int64_t count, std::uint8_t* bytes) {
  const std::int64_t cols = tile.tensor_cols != 0 ? tile.tensor_cols : tile.cols;
  const PhiloxKey key(recipe.sr.seed);
  const auto first =
      static_cast<std::uint64_t>((tile.first_row + row) * cols + tile.first_col + col);
  std::uint32_t words[4] = {};
  for (std::int64_t k = 0; k < count; ++k) {
    const std::uint64_t i = first + static_cast<std::uint64_t>(k);
    if (k == 0 || i % 16 == 0) {
      const std::uint32_t counter[4] = {static_cast<std::uint32_t>(i / 16),
                                        static_cast<std::uint32_t>(i / 16 >> 32),
                                        static_cast<std::uint32_t>(tile.tensor_id),
                                        static_cast<std::uint32_t>(tile.tensor_id >> 32)};
      philox4x32_10<Lane<1>>(counter, key.words, words);
    }
    bytes[k] = byte_of(words, static_cast<std::int64_t>(i % 16));
  }
}

void te_bytes(const Recipe& recipe, const Tile& tile, std::int64_t row, std::int64_t col,
              std::int64_t count, std::uint8_t* bytes) {
  const std::int64_t cols = tile.tensor_cols != 0 ? tile.tensor_cols : tile.cols;
  const std::int64_t chunks_across = (cols + 127) / 128;
  const PhiloxKey key(recipe.sr.seed);
  const std::int64_t r = tile.first_row + row;
  std::uint32_t words[4] = {};
  std::int64_t drawn_for = -1;
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t c = tile.first_col + col + k;
    const std::int64_t y = r % 128, x = c % 128;
    const std::int64_t chunk = r / 128 * chunks_across + c / 128;
    const std::int64_t stage = 2 * (y / 64) + x / 64;
    const std::int64_t iteration = y % 64 / 32;
    const std::int64_t thread = y % 32 * 4 + x % 64 / 16;
    const std::int64_t half = x % 16 / 8;
    const std::int64_t wave = half ^ (thread % 32 / 16);
    const std::int64_t word = 16 * stage + 4 * iteration + 2 * wave + x % 8 / 4;
    if (drawn_for != c / 8) {  // the two words of a half are in one call
      const std::uint64_t subsequence = static_cast<std::uint64_t>(thread + 128 * chunk);
      const std::uint32_t counter[4] = {static_cast<std::uint32_t>(word / 4), 0,
                                        static_cast<std::uint32_t>(subsequence),
                                        static_cast<std::uint32_t>(subsequence >> 32)};
      philox4x32_10<Lane<1>>(counter, key.words, words);
      drawn_for = c / 8;
    }
    bytes[k] = byte_of(words, word % 4 * 4 + x % 4);
  }
}

}  // namespace

void apply_rht(const Recipe& recipe, const Tile& tile, float* values) {
  const int n = static_cast<int>(recipe.rht.size);
  if (n == 0) return;
  if (tile.cols % n != 0 || tile.first_col % n != 0)
    refuse(recipe, fmt::format("expected rows of a multiple of {} elements, found {}", n,
                               tile.cols % n != 0 ? tile.cols : tile.first_col));
  const HadamardSigns signs = hadamard_signs(recipe.rht.signs);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    float* x = values + r * tile.stride;
    for (std::int64_t c = 0; c < tile.cols; c += n) {
      float y[kMaxHadamard];
      hadamard(n, signs, recipe.rht.sum, x + c, y);
      for (int i = 0; i < n; ++i) x[c + i] = round_to_source(tile.source, y[i]);
    }
  }
}

void random_bytes(const Recipe& recipe, const Tile& tile, std::int64_t row, std::int64_t col,
                  std::int64_t count, std::uint8_t* bytes) {
  if (recipe.sr.stream == SrStream::kIndex) {
    index_bytes(recipe, tile, row, col, count, bytes);
    return;
  }
  const std::int64_t cols = tile.tensor_cols != 0 ? tile.tensor_cols : tile.cols;
  require_random_shape(recipe, 0, cols, tile.source);
  te_bytes(recipe, tile, row, col, count, bytes);
}

void require_random_shape(const Recipe& recipe, std::int64_t rows, std::int64_t cols,
                          SourceType source) {
  if (!recipe.sr.enabled || recipe.sr.stream != SrStream::kTe) return;
  if (source != SourceType::kBf16)
    refuse(recipe, "the kernel of sr-stream=te takes BF16 tensors only");
  if (rows % 32 != 0 || cols % 32 != 0)
    refuse(recipe,
           fmt::format("the kernel of sr-stream=te takes rows and columns in multiples of 32, "
                       "found {} x {}",
                       rows, cols));
}

}  // namespace fp4scope
