// transforms_test.cc: properties of the random Hadamard transform and of the random bytes that need
// no recorded vector: orthogonality, exact sums beyond 64 bits, rounding, special values, tiles
// against the whole tensor, the places of the kernel's stream, refusals.
#include "sim/transforms.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "formats/hadamard.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr int kSizes[] = {16, 32, 64, 128};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> integers(int n, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = static_cast<float>(static_cast<int>(engine() % 2001) - 1000);
  return x;
}
std::vector<float> transformed(int n, std::uint64_t signs, RhtSum sum,
                               const std::vector<float>& x) {
  std::vector<float> y(x.size());
  hadamard(n, hadamard_signs(signs), sum, x.data(), y.data());
  return y;
}

TEST_CASE("without signs the transform of sizes 16 and 64 is its own inverse on integers") {
  for (const int n : {16, 64}) {
    for (const RhtSum sum : {RhtSum::kMmaF32, RhtSum::kSeq}) {
      const std::vector<float> x = integers(n, 1);
      const std::vector<float> y = transformed(n, 1, sum, x);
      CHECK(y != x);
      CHECK(transformed(n, 1, sum, y) == x);
    }
  }
}

TEST_CASE("rows are orthogonal and of length n before the factor") {
  for (const int n : kSizes) {
    for (const std::uint64_t signs : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{2 + 77}}) {
      std::vector<std::vector<double>> rows;
      for (int i = 0; i < n; ++i) {
        std::vector<float> unit(static_cast<std::size_t>(n));
        unit[static_cast<std::size_t>(i)] = 1;
        std::vector<double> row;
        for (const float v : transformed(n, signs, RhtSum::kMmaF32, unit)) {
          CHECK(std::fabs(v) == hadamard_factor(n));
          row.push_back(v < 0 ? -1 : 1);
        }
        rows.push_back(row);
      }
      bool orthogonal = true;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        for (std::size_t j = 0; j < rows.size(); ++j) {
          double dot = 0;
          for (std::size_t k = 0; k < rows.size(); ++k) dot += rows[i][k] * rows[j][k];
          orthogonal = orthogonal && dot == (i == j ? n : 0);
        }
      }
      CHECK(orthogonal);
    }
  }
}

TEST_CASE("the factors are the binary32 numbers nearest to 1/sqrt(n)") {
  for (const int n : kSizes) {
    const float c = hadamard_factor(n);
    // c^2 n is nearer to 1 than with a neighbour; binary64 has twice the digits of c.
    const auto miss = [n](float v) {
      return std::fabs(static_cast<double>(v) * static_cast<double>(v) * n - 1);
    };
    CHECK(miss(c) < miss(std::nextafter(c, 0.0f)));
    CHECK(miss(c) < miss(std::nextafter(c, 1.0f)));
  }
}

TEST_CASE("sums are exact where binary32 and 64-bit integers are not") {
  for (const int n : kSizes) {
    CAPTURE(n);
    // 2^100 cancels and 2^-100 stays: 200 bits apart.
    std::vector<float> x(static_cast<std::size_t>(n));
    x[0] = 0x1p100f, x[1] = -0x1p100f, x[2] = 0x1p-100f;
    const std::vector<float> y = transformed(n, 1, RhtSum::kMmaF32, x);
    CHECK(y[0] == 0x1p-100f * hadamard_factor(n));
    CHECK(y[2] == -0x1p-100f * hadamard_factor(n));
    // In element order as well, since they cancel first.
    CHECK(transformed(n, 1, RhtSum::kSeq, x)[0] == y[0]);
    std::swap(x[1], x[2]);
    CHECK(transformed(n, 1, RhtSum::kMmaF32, x)[0] == y[0]);
    CHECK(transformed(n, 1, RhtSum::kSeq, x)[0] == 0.0f);
  }
}

TEST_CASE("one rounding to nearest even: ties and sticky bits far below") {
  std::vector<float> x(16);
  const auto first = [&] { return transformed(16, 1, RhtSum::kMmaF32, x)[0] * 4; };
  x[0] = 0x1p24f, x[1] = 1;  // a tie, the even neighbour is below
  CHECK(first() == 0x1p24f);
  x[2] = 0x1p-149f;  // no longer a tie
  CHECK(first() == 0x1p24f + 2);
  x[2] = -0x1p-149f;
  CHECK(first() == 0x1p24f);
  x[0] = 0x1p24f + 2, x[2] = 0;  // a tie, the even neighbour is above
  CHECK(first() == 0x1p24f + 4);
  x[2] = -0x1p-149f;
  CHECK(first() == 0x1p24f + 2);
  for (float& v : x) v = -v;
  CHECK(first() == -(0x1p24f + 2));
}

TEST_CASE("the ends of binary32") {
  std::vector<float> x(16, kFloatMax);
  // n = 16: the exact sum 16 FLT_MAX, then a quarter of it: beyond the range.
  CHECK(transformed(16, 1, RhtSum::kMmaF32, x)[0] == kInfinity);
  CHECK(transformed(16, 1, RhtSum::kMmaF32, x)[1] == 0.0f);
  std::fill(x.begin() + 4, x.end(), 0.0f);
  CHECK(transformed(16, 1, RhtSum::kMmaF32, x)[0] == kFloatMax);  // 4 FLT_MAX / 4
  CHECK(transformed(16, 1, RhtSum::kSeq, x)[0] == kInfinity);
  std::fill(x.begin(), x.end(), 0.0f);
  x[0] = 0x3p-149f;  // 0.75 units of 2^-149, rounded up
  CHECK(transformed(16, 1, RhtSum::kMmaF32, x)[0] == 0x1p-149f);
  x[0] = 0x1p-148f;  // half a unit, to even
  CHECK(transformed(16, 1, RhtSum::kMmaF32, x)[0] == 0.0f);
  CHECK_FALSE(std::signbit(transformed(16, 1, RhtSum::kMmaF32, std::vector<float>(16, -0.0f))[0]));
}

TEST_CASE("NaN and infinities") {
  for (const RhtSum sum : {RhtSum::kMmaF32, RhtSum::kSeq}) {
    std::vector<float> x(16, 1.0f);
    x[3] = -kInfinity;
    std::vector<float> y = transformed(16, 1, sum, x);
    CHECK(y[0] == -kInfinity);
    CHECK(y[1] == kInfinity);  // H[3][1] = -1
    x[5] = kInfinity;
    y = transformed(16, 1, sum, x);
    CHECK(y[0] != y[0]);
    CHECK(y[2] == kInfinity);  // H[3][2] = -1, H[5][2] = 1
    x[5] = std::numeric_limits<float>::quiet_NaN();
    for (const float v : transformed(16, 1, sum, x)) CHECK(v != v);
  }
  std::vector<float> x(16, kFloatMax);
  x[15] = -kInfinity;  // a finite part that would overflow to +Inf on its own
  CHECK(transformed(16, 1, RhtSum::kMmaF32, x)[0] == -kInfinity);
}

Tile tile_of(const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
  return {x.data(), nullptr, rows, cols, cols};
}

TEST_CASE("the result is rounded to the type of the source") {
  std::vector<float> x(16);
  x[0] = 0x1.01p10f, x[1] = 0x1.01p0f;
  const Recipe recipe = parse_recipe("mxfp4:rht=16,rht-signs=none");
  const auto first = [&](SourceType source) {
    std::vector<float> y = x;
    Tile tile = tile_of(x, 1, 16);
    tile.source = source;
    apply_rht(recipe, tile, y.data());
    return y[0];
  };
  // The sum divided by 4 is 2^8 (1 + 2^-8 + 2^-10 + 2^-18).
  CHECK(first(SourceType::kF32) == 0x1.01404p8f);
  CHECK(first(SourceType::kF64) == 0x1.01404p8f);
  CHECK(first(SourceType::kBf16) == 0x1.02p8f);
  CHECK(first(SourceType::kF16) == 0x1.014p8f);
}

TEST_CASE("a stride is kept and rows of incomplete groups are refused") {
  const Recipe recipe = parse_recipe("hif4:rht=32");
  std::vector<float> x(2 * 40, 1.0f);
  Tile tile{x.data(), nullptr, 2, 32, 40};
  apply_rht(recipe, tile, x.data());
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t c = 32; c < 40; ++c) CHECK(x[40 * r + c] == 1.0f);
  }
  tile.cols = 40;
  CHECK_THROWS_WITH_AS(apply_rht(recipe, tile, x.data()),
                       "recipe hif4:rht=32: expected rows of a multiple of 32 elements, found 40",
                       Error);
  tile.cols = 32;
  tile.first_col = 16;
  CHECK_THROWS_AS(apply_rht(recipe, tile, x.data()), Error);
}

TEST_CASE("signs drawn with different seeds differ, and are the first Philox words") {
  const std::uint32_t counter[4] = {}, key[2] = {7, 0};
  std::uint32_t words[4];
  philox4x32_10<Lane<1>>(counter, key, words);
  const HadamardSigns seven = hadamard_signs(7 + 2), eight = hadamard_signs(8 + 2);
  int differing = 0;
  for (int i = 0; i < 128; ++i) {
    CHECK(seven.of(i) == (words[i / 32] >> (i % 32) & 1u));
    differing += seven.of(i) != eight.of(i);
  }
  CHECK(differing > 32);
}

// Bytes of a whole tensor in row-major order, read tile by tile.
std::vector<std::uint8_t> bytes_in_tiles(const Recipe& recipe, std::int64_t rows, std::int64_t cols,
                                         std::int64_t tile_rows, std::int64_t tile_cols) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(rows * cols));
  for (std::int64_t r = 0; r < rows; r += tile_rows) {
    for (std::int64_t c = 0; c < cols; c += tile_cols) {
      Tile tile;
      tile.rows = std::min(tile_rows, rows - r);
      tile.cols = std::min(tile_cols, cols - c);
      tile.source = SourceType::kBf16;
      tile.first_row = r;
      tile.first_col = c;
      tile.tensor_cols = tile_cols >= cols && r == 0 ? 0 : cols;
      tile.tensor_id = 99;
      for (std::int64_t i = 0; i < tile.rows; ++i) {
        random_bytes(recipe, tile, i, 0, tile.cols, bytes.data() + (r + i) * cols + c);
      }
    }
  }
  return bytes;
}

TEST_CASE("tiles and the whole tensor take the same random bytes") {
  for (const char* text : {"mxfp4:round=sr,seed=3", "nvfp4:round=sr,sr-stream=te,seed=3"}) {
    CAPTURE(text);
    const Recipe recipe = parse_recipe(text);
    const std::vector<std::uint8_t> whole = bytes_in_tiles(recipe, 192, 416, 192, 416);
    CHECK(bytes_in_tiles(recipe, 192, 416, 7, 416) == whole);
    CHECK(bytes_in_tiles(recipe, 192, 416, 64, 128) == whole);
    CHECK(bytes_in_tiles(recipe, 192, 416, 1, 13) == whole);
    // Another seed, and for the index stream another tensor, gives others.
    Recipe other = recipe;
    other.sr.seed = 4;
    CHECK(bytes_in_tiles(other, 192, 416, 192, 416) != whole);
  }
}

// The kernel forwards, thread by thread as it draws words (sim/transforms.h): a chunk of 128x128,
// four stages of 64x64, row-wise words before those of the transposed copy.
std::vector<std::uint8_t> bytes_as_the_kernel_draws(std::uint64_t seed, int rows, int cols) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(rows * cols));
  const int across = (cols + 127) / 128, down = (rows + 127) / 128;
  for (int chunk_row = 0; chunk_row < down; ++chunk_row) {
    for (int chunk_col = 0; chunk_col < across; ++chunk_col) {
      for (int thread = 0; thread < 128; ++thread) {
        const auto subsequence =
            static_cast<std::uint32_t>(thread + chunk_col * 128 + chunk_row * across * 128);
        std::uint32_t words[4], call = 0;
        int used = 4;
        const auto next_word = [&] {
          if (used == 4) {
            const std::uint32_t counter[4] = {call++, 0, subsequence, 0};
            const std::uint32_t key[2] = {static_cast<std::uint32_t>(seed),
                                          static_cast<std::uint32_t>(seed >> 32)};
            philox4x32_10<Lane<1>>(counter, key, words);
            used = 0;
          }
          return words[used++];
        };
        for (int stage = 0; stage < 4; ++stage) {
          for (int iteration = 0; iteration < 2; ++iteration) {
            const int row = chunk_row * 128 + stage / 2 * 64 + iteration * 32 + thread / 4;
            for (int wave = 0; wave < 2; ++wave) {
              const int half = (wave + thread % 32 / 16) % 2;
              for (int four = 0; four < 2; ++four) {
                const std::uint32_t word = next_word();
                const int col =
                    chunk_col * 128 + stage % 2 * 64 + thread % 4 * 16 + half * 8 + four * 4;
                if (row >= rows || col >= cols) continue;
                for (int i = 0; i < 4; ++i) {
                  bytes[static_cast<std::size_t>(row * cols + col + i)] =
                      static_cast<std::uint8_t>(word >> (8 * i));
                }
              }
            }
          }
          for (int column_wise = 0; column_wise < 8; ++column_wise) next_word();
        }
      }
    }
  }
  return bytes;
}

TEST_CASE("the kernel's stream gives each element the byte that its thread draws") {
  const Recipe recipe = parse_recipe("nvfp4:round=sr,sr-stream=te,seed=81985529216486895");
  for (const auto& [rows, cols] : {std::pair{128, 128}, {192, 416}, {32, 32}, {288, 160}}) {
    CHECK(bytes_in_tiles(recipe, rows, cols, rows, cols) ==
          bytes_as_the_kernel_draws(81985529216486895u, rows, cols));
  }
}

TEST_CASE("shapes and types that the kernel does not take are refused") {
  const Recipe te = parse_recipe("nvfp4:round=sr,sr-stream=te");
  std::uint8_t byte = 0;
  Tile tile;
  tile.rows = 32;
  tile.cols = 64;
  CHECK_THROWS_AS(random_bytes(te, tile, 0, 0, 1, &byte), Error);  // binary32
  tile.source = SourceType::kBf16;
  CHECK_NOTHROW(random_bytes(te, tile, 0, 0, 1, &byte));
  tile.cols = 48;
  CHECK_THROWS_AS(random_bytes(te, tile, 0, 0, 1, &byte), Error);
  CHECK_NOTHROW(require_random_shape(te, 32, 64, SourceType::kBf16));
  CHECK_THROWS_AS(require_random_shape(te, 33, 64, SourceType::kBf16), Error);
  CHECK_THROWS_AS(require_random_shape(te, 32, 63, SourceType::kBf16), Error);
  CHECK_NOTHROW(require_random_shape(parse_recipe("nvfp4:round=sr"), 33, 63, SourceType::kF32));
  for (const char* text :
       {"mxfp4:round=sr,sr-stream=te", "bf16:round=sr", "nvfp4:block=2d,round=sr,sr-stream=te",
        "nvfp4:rht=32,rht-signs=fixed", "nvfp4:rht-signs=none", "mxfp4:sr-stream=index"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_recipe(text), Error);
  }
}

}  // namespace
}  // namespace fp4scope
