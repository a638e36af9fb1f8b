// layouts_sparse_test.cc: structured sparsity of sim/layouts (spec/more.md section 5): round trips
// of random masks through values, nibbles and every metadata layout, layouts built a second time
// from the words of the specification, and refusals. Recorded tables: tests/golden/layouts_test.cc.
#include <set>

#include "sim/layouts/meta_layout.h"
#include "sim/layouts/sparse_meta.h"
#include "tests/unit/layouts_support.h"

namespace fp4scope {
namespace {

using test::Bytes;
using test::kind_of;
using test::random_bytes;
using test::size_of;
using test::Words;

// A mask with `kept` of the units of every group; units that reach over the row end count too.
Bytes random_mask(SparsePattern pattern, unsigned kept, std::int64_t rows, std::int64_t cols,
                  std::mt19937& random) {
  const std::int64_t group = sparse_group(pattern);
  const std::int64_t unit = pattern == SparsePattern::k4of8Pairs ? 2 : 1;
  Bytes mask(size_of(rows * cols));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t first = 0; first < cols; first += group) {
      std::set<std::int64_t> chosen;
      while (chosen.size() < kept) chosen.insert(random() % (group / unit));
      for (std::int64_t i = first; i < std::min(first + group, cols); ++i) {
        mask[size_of(row * cols + i)] = chosen.count((i - first) / unit) != 0;
      }
    }
  }
  return mask;
}

TEST_CASE("values and nibbles give the masked codes back") {
  std::mt19937 random(1);
  for (const SparsePattern pattern :
       {SparsePattern::k2of4, SparsePattern::k4of8Pairs, SparsePattern::k1of2}) {
    for (const SparseFill fill : {SparseFill::kTorch, SparseFill::kCutlass}) {
      for (const unsigned kept : {0u, 1u, 2u}) {
        if (pattern == SparsePattern::k1of2 && kept == 2) continue;
        for (const std::int64_t cols : {1, 2, 3, 4, 5, 7, 8, 9, 30, 64}) {
          constexpr std::int64_t kRows = 5;
          const Bytes codes = random_bytes(kRows * cols, 16, random);
          const Bytes mask = random_mask(pattern, kept, kRows, cols, random);
          const std::int64_t chunks = sparse_chunks(pattern, cols);
          Bytes values(size_of(kRows * chunks * sparse_group(pattern) / 2), 0xff);
          Bytes nibbles(size_of(kRows * chunks), 0xff), back(codes.size(), 0xff), want = codes;
          for (std::size_t i = 0; i < want.size(); ++i) want[i] = mask[i] != 0 ? want[i] : 0;
          CHECK(compress_sparse(pattern, fill, kRows, cols, codes, mask, values, nibbles) == 0);
          expand_sparse(pattern, {.empty = fill == SparseFill::kCutlass}, kRows, cols, values,
                        nibbles, back);
          CHECK(back == want);
        }
      }
    }
  }
}

TEST_CASE("kept values are in ascending order, two codes of a pair stay together") {
  const Bytes codes = {1, 2, 3, 4, 5, 6, 7, 8};
  Bytes values(4), nibbles(2);
  const Bytes two = {0, 1, 0, 1, 1, 0, 1, 0};
  compress_sparse(SparsePattern::k2of4, SparseFill::kTorch, 1, 8, codes, two, values, nibbles);
  CHECK((values == Bytes{2, 4, 5, 7} && nibbles == Bytes{0b1101, 0b1000}));
  const Bytes pairs = {0, 0, 1, 1, 0, 0, 1, 1};
  Bytes nibble(1);
  compress_sparse(SparsePattern::k4of8Pairs, SparseFill::kTorch, 1, 8, codes, pairs, values,
                  nibble);
  CHECK((values == Bytes{3, 4, 7, 8} && nibble == Bytes{0b1101}));
  // 1:2: 0100 keeps element 0, 1110 element 1.
  const Bytes one = {1, 0, 0, 1};
  Bytes one_values(2);
  compress_sparse(SparsePattern::k1of2, SparseFill::kTorch, 1, 4, std::span(codes).first(4), one,
                  one_values, nibbles);
  CHECK((one_values == Bytes{1, 4} && nibbles == Bytes{0b0100, 0b1110}));
}

TEST_CASE("masks that a pattern does not have are refused or counted") {
  const Bytes codes = {1, 2, 3, 4, 5, 6, 7, 8};
  Bytes values(4), nibbles(2), nibble(1);
  // torch drops 0111 -> 1001, 1011 -> 1000, 1101 -> 0100, 1110 and 1111 -> 1000 and loses the rest.
  const Bytes many = {0, 1, 1, 1, 1, 1, 1, 1};
  CHECK(compress_sparse(SparsePattern::k2of4, SparseFill::kTorch, 1, 8, codes, many, values,
                        nibbles) == 3);
  CHECK((values == Bytes{2, 3, 5, 7} && nibbles == Bytes{0b1001, 0b1000}));
  CHECK(kind_of([&] {
          compress_sparse(SparsePattern::k2of4, SparseFill::kCutlass, 1, 8, codes, many, values,
                          nibbles);
        }) == ErrorKind::kData);
  CHECK(kind_of([&] {
          compress_sparse(SparsePattern::k4of8Pairs, SparseFill::kTorch, 1, 8, codes, many, values,
                          nibble);
        }) == ErrorKind::kData);
  const Bytes both = {1, 1};
  CHECK(kind_of([&] {
          compress_sparse(SparsePattern::k1of2, SparseFill::kTorch, 1, 2, both, both,
                          std::span(values).first(1), nibble);
        }) == ErrorKind::kData);
}

TEST_CASE("what a reader takes beyond the six nibbles") {
  const Bytes values = {5, 6};
  Bytes codes(4);
  const auto read = [&](MetaRead how, std::uint8_t nibble, const Bytes& stored) {
    const Bytes nibbles = {nibble};
    expand_sparse(SparsePattern::k2of4, how, 1, 4, stored, nibbles, codes);
    return codes;
  };
  CHECK(kind_of([&] { read({}, 0b0110, values); }) == ErrorKind::kData);
  // Indices 2, 1 in falling order: the first stored value belongs to element 2.
  CHECK(read({.falling = true}, 0b0110, values) == Bytes{0, 6, 5, 0});
  CHECK(kind_of([&] { read({.falling = true}, 0, {0, 0}); }) == ErrorKind::kData);
  CHECK(read({.empty = true}, 0, {0, 0}) == Bytes{0, 0, 0, 0});
  CHECK(kind_of([&] { read({.empty = true}, 0, values); }) == ErrorKind::kData);
  CHECK(kind_of([&] { read({.falling = true, .empty = true}, 0b0101, values); }) ==
        ErrorKind::kData);
  const Bytes split = {0b1001}, one = {5};
  CHECK(kind_of([&] {
          expand_sparse(SparsePattern::k1of2, {}, 1, 2, one, split, std::span(codes).first(2));
        }) == ErrorKind::kData);
}

constexpr MetaLayout kMetaLayouts[] = {MetaLayout::kLinear,
                                       MetaLayout::kTorch16,
                                       MetaLayout::kTorch8,
                                       MetaLayout::kCsltSm90b16,
                                       MetaLayout::kCsltSm90b8,
                                       MetaLayout::kCutlassSm100F4,
                                       MetaLayout::kCutlassSm100F8f6f4,
                                       MetaLayout::kCutlassSm100F16};

TEST_CASE("metadata: a place for every nibble, zero padding, poisoned padding") {
  std::mt19937 random(2);
  int refused = 0, stored_shapes = 0;
  for (const auto& [rows, chunks] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {3, 5}, {0, 16}, {64, 16}, {128, 48}, {192, 32}, {64, 8}, {200, 75}}) {
    for (const MetaLayout layout : kMetaLayouts) {
      std::int64_t bytes = 0;
      try {
        bytes = meta_bytes(layout, rows, chunks);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::kData);
        ++refused;
        continue;
      }
      ++stored_shapes;
      const Bytes nibbles = random_bytes(rows * chunks, 16, random);
      Bytes stored(size_of(bytes), 0xff), back(nibbles.size());
      store_meta(layout, rows, chunks, nibbles, stored);
      std::set<std::int64_t> used;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t u = 0; u < chunks; ++u) {
          used.insert(meta_nibble(layout, rows, chunks, r, u));
        }
      }
      CHECK(used.size() == nibbles.size());
      CHECK((used.empty() || (*used.begin() >= 0 && *used.rbegin() < 2 * bytes)));
      bool is_zero = true;
      for (std::int64_t n = 0; n < 2 * bytes; ++n) {
        if (used.count(n) != 0) continue;
        std::uint8_t& byte = stored[size_of(n / 2)];
        is_zero = is_zero && (byte >> (n % 2 * 4) & 0xf) == 0;
        byte = static_cast<std::uint8_t>(byte | 0xf << (n % 2 * 4));
      }
      CHECK(is_zero);
      load_meta(layout, rows, chunks, stored, back);
      CHECK(back == nibbles);
    }
  }
  CHECK(refused > 8);
  CHECK(stored_shapes > 30);
  CHECK(kind_of([] {
          const Bytes wide = {16};
          Bytes stored(1);
          store_meta(MetaLayout::kLinear, 1, 1, wide, stored);
        }) == ErrorKind::kData);
}

// torch with int8 data as matrices: int32 words of 8 nibbles, rows moved, corners of 2x2 blocks
// exchanged, column pairs stored one after the other.
TEST_CASE("metadata: torch int8 words moved as a matrix") {
  std::mt19937 random(3);
  constexpr std::size_t kRows = 48, kWords = 6;
  const Bytes nibbles = random_bytes(kRows * kWords * 8, 16, random);
  std::vector<Words> moved(kRows, Words(kWords));
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t c = 0; c < kWords; ++c) {
      std::uint32_t word = 0;
      for (std::size_t j = 0; j < 8; ++j) {
        word |= std::uint32_t{nibbles[(r * kWords + c) * 8 + j]} << (4 * j);
      }
      moved[r / 16 * 16 + (r % 8) * 2 + (r % 16) / 8][c] = word;
    }
  }
  Bytes want(kRows * kWords * 4);
  for (std::size_t r = 0; r < kRows; r += 2) {
    for (std::size_t c = 0; c < kWords; c += 2) {
      std::swap(moved[r][c + 1], moved[r + 1][c]);
      for (const std::size_t dr : {0, 1}) {
        for (const std::size_t dc : {0, 1}) {
          const std::size_t at = c * kRows + 2 * (r + dr) + dc;
          for (std::size_t j = 0; j < 4; ++j) {
            want[4 * at + j] = static_cast<std::uint8_t>(moved[r + dr][c + dc] >> (8 * j));
          }
        }
      }
    }
  }
  Bytes stored(want.size());
  store_meta(MetaLayout::kTorch8, kRows, kWords * 8, nibbles, stored);
  CHECK(stored == want);
}

TEST_CASE("metadata: strides of the cutlass-sm100-f16 atom") {
  // Row bits 8:128, 2:16, 8:2048; k 16:1, 2:1024, 4:32.
  std::vector<std::int64_t> row_offset, k_offset;
  for (int high = 0; high < 8; ++high) {
    for (int mid = 0; mid < 2; ++mid) {
      for (int low = 0; low < 8; ++low) {
        row_offset.push_back(low * 128 + mid * 16 + high * 2048);
      }
    }
  }
  for (int high = 0; high < 4; ++high) {
    for (int mid = 0; mid < 2; ++mid) {
      for (int low = 0; low < 16; ++low) k_offset.push_back(low + mid * 1024 + high * 32);
    }
  }
  std::int64_t differing = 0;
  std::set<std::int64_t> places;
  for (std::int64_t r = 0; r < 128; ++r) {
    for (std::int64_t k = 0; k < 128; ++k) {
      const std::int64_t got = cutlass_offset(MetaLayout::kCutlassSm100F16, 128, r, k);
      differing += got != row_offset[size_of(r)] + k_offset[size_of(k)];
      places.insert(got);
    }
  }
  CHECK(differing == 0);
  CHECK((places.size() == 128 * 128 && *places.rbegin() == 128 * 128 - 1));
}

TEST_CASE("only mxf4 and mxf4nvf4 have 4:8 pairs") {
  for (const char* kind : {"f16", "i8", "f8f6f4", "mxf8f6f4"}) {
    CHECK(sparse_pattern_of_kind(kind) == SparsePattern::k2of4);
  }
  CHECK(sparse_pattern_of_kind("tf32") == SparsePattern::k1of2);
  CHECK(sparse_pattern_of_kind("mxf4") == SparsePattern::k4of8Pairs);
  CHECK(sparse_pattern_of_kind("mxf4nvf4") == SparsePattern::k4of8Pairs);
  CHECK(kind_of([] { sparse_pattern_of_kind("mxfp4"); }) == ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace fp4scope
