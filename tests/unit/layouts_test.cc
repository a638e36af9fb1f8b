// layouts_test.cc: dense layouts of sim/layouts: round trips on awkward shapes with poisoned
// padding, buffers built a second time from the words of spec/layouts.md and spec/more.md, and
// refusals. Recorded bytes are in tests/golden/layouts_test.cc, sparse layouts in
// layouts_sparse_test.cc.
#include <cmath>
#include <limits>
#include <set>

#include "formats/minifloat.h"
#include "sim/layouts/ggml_blocks.h"
#include "sim/layouts/hif4_carrier.h"
#include "sim/layouts/int_packing.h"
#include "sim/layouts/nibbles.h"
#include "sim/layouts/scale_layout.h"
#include "tests/unit/layouts_support.h"

namespace fp4scope {
namespace {

using test::Bytes;
using test::kind_of;
using test::random_bytes;
using test::size_of;
using test::Words;

constexpr Nibbles kOrders[] = {Nibbles::kLowFirst, Nibbles::kHighFirst, Nibbles::kSplit8,
                               Nibbles::kSplit16};

TEST_CASE("nibbles: every element has a place of its own, absent ones are 0 and never read") {
  std::mt19937 random(1);
  for (const Nibbles order : kOrders) {
    for (const std::int64_t cols : {0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 100}) {
      constexpr std::int64_t kRows = 3;
      const std::int64_t row_bytes = packed_row_bytes(order, cols);
      CHECK(row_bytes ==
            (cols + nibble_unit(order) - 1) / nibble_unit(order) * (nibble_unit(order) / 2));
      std::set<std::int64_t> used;
      for (std::int64_t i = 0; i < cols; ++i) {
        const NibblePlace place = nibble_place(order, i);
        CHECK((place.byte >= 0 && place.byte < row_bytes));
        used.insert(place.byte * 2 + place.shift / 4);
      }
      CHECK(used.size() == size_of(cols));

      const Bytes codes = random_bytes(kRows * cols, 16, random);
      Bytes packed(size_of(kRows * row_bytes), 0xff), back(codes.size());
      pack_nibbles(order, kRows, cols, codes, packed);
      unpack_nibbles(order, kRows, cols, packed, back);
      CHECK(back == codes);
      for (std::int64_t n = 0; n < 2 * kRows * row_bytes; ++n) {
        if (used.count(n % (2 * row_bytes)) != 0) continue;
        std::uint8_t& byte = packed[size_of(n / 2)];
        CHECK((byte >> (n % 2 * 4) & 0xf) == 0);
        byte = static_cast<std::uint8_t>(byte | 0xf << (n % 2 * 4));
      }
      unpack_nibbles(order, kRows, cols, packed, back);
      CHECK(back == codes);
    }
  }
}

TEST_CASE("nibbles: wide codes and wrong sizes are refused") {
  Bytes codes(6), packed(4);
  codes[4] = 0x10;
  CHECK(kind_of([&] { pack_nibbles(Nibbles::kLowFirst, 2, 3, codes, packed); }) ==
        ErrorKind::kData);
  codes[4] = 0xf;
  pack_nibbles(Nibbles::kLowFirst, 2, 3, codes, packed);
  // The packed width where the logical one is meant, and the other way round.
  CHECK(kind_of([&] { unpack_nibbles(Nibbles::kLowFirst, 2, 2, packed, codes); }) ==
        ErrorKind::kData);
  CHECK(kind_of([&] { unpack_nibbles(Nibbles::kLowFirst, 2, 6, packed, codes); }) ==
        ErrorKind::kData);
  CHECK(kind_of([&] { unpack_nibbles(Nibbles::kLowFirst, -1, 3, packed, codes); }) ==
        ErrorKind::kData);
}

constexpr ScaleOrder kScaleOrders[] = {
    ScaleOrder::kLinear,   ScaleOrder::k128x4,  ScaleOrder::k8x4,       ScaleOrder::kTePadded,
    ScaleOrder::kDeepGemm, ScaleOrder::kMMajor, ScaleOrder::kTrtllmPage};

TEST_CASE("scales: round trips, zero padding, poisoned padding") {
  std::mt19937 random(2);
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes = {{0, 5}, {4, 0}, {4, 8}, {64, 12}};
  for (const std::int64_t rows : {1, 31, 32, 33, 127, 128, 129, 257}) {
    for (const std::int64_t cols : {1, 3, 4, 5, 90}) shapes.emplace_back(rows, cols);
  }
  for (int i = 0; i < 20; ++i) shapes.emplace_back(1 + random() % 400, 1 + random() % 40);
  int pages = 0;
  for (const auto& [rows, cols] : shapes) {
    for (const ScaleOrder order : kScaleOrders) {
      if (order == ScaleOrder::kTrtllmPage && (rows % 4 != 0 || cols % 4 != 0)) {
        CHECK(kind_of([&, r = rows, c = cols] { scale_buffer_entries(order, r, c); }) ==
              ErrorKind::kData);
        continue;
      }
      pages += order == ScaleOrder::kTrtllmPage;
      const Bytes scales = random_bytes(rows * cols, 256, random);
      Bytes stored(size_of(scale_buffer_entries(order, rows, cols)), 0xff), back(scales.size());
      store_scales<std::uint8_t>(order, rows, cols, scales, stored);
      std::vector<bool> used(stored.size());
      bool is_own = true;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < cols; ++c) {
          const std::size_t at = size_of(scale_offset(order, rows, cols, r, c));
          REQUIRE(at < used.size());
          is_own = is_own && !used[at];
          used[at] = true;
        }
      }
      CHECK(is_own);
      bool is_zero = true;
      for (std::size_t i = 0; i < stored.size(); ++i) {
        if (used[i]) continue;
        is_zero = is_zero && stored[i] == 0;
        stored[i] = 0xff;
      }
      CHECK(is_zero);
      load_scales<std::uint8_t>(order, rows, cols, stored, back);
      CHECK(back == scales);
    }
  }
  CHECK(pages >= 3);
}

TEST_CASE("scales: TransformerEngine and DeepGEMM buffers built as matrices") {
  std::mt19937 random(3);
  for (const auto& [rows, cols] : {std::pair{5, 6}, std::pair{130, 3}, std::pair{8, 4}}) {
    const Bytes scales = random_bytes(rows * cols, 256, random);
    const auto at = [&, c = cols](int row, int col) { return scales[size_of(row * c + col)]; };
    const int wide = (cols + 3) / 4 * 4, tall = (rows + 127) / 128 * 128, m = (rows + 3) / 4 * 4;
    // [roundup(M,128), roundup(cols,4)], linear.
    Bytes te;
    for (int r = 0; r < tall; ++r) {
      for (int c = 0; c < wide; ++c) te.push_back(r < rows && c < cols ? at(r, c) : 0);
    }
    Bytes got(te.size());
    store_scales<std::uint8_t>(ScaleOrder::kTePadded, rows, cols, scales, got);
    CHECK(got == te);
    // int32 [M, ceil(G/4)], first group in bits 7:0, column-major with M up to 4.
    Bytes deepgemm;
    for (int word_col = 0; word_col < wide / 4; ++word_col) {
      for (int r = 0; r < m; ++r) {
        std::uint32_t word = 0;
        for (int j = 0; j < 4; ++j) {
          const int c = word_col * 4 + j;
          if (r < rows && c < cols) word |= std::uint32_t{at(r, c)} << (8 * j);
        }
        for (int j = 0; j < 4; ++j) deepgemm.push_back(static_cast<std::uint8_t>(word >> (8 * j)));
      }
    }
    got.assign(deepgemm.size(), 0xff);
    store_scales<std::uint8_t>(ScaleOrder::kDeepGemm, rows, cols, scales, got);
    CHECK(got == deepgemm);
    // binary32, column-major with M up to 4.
    const std::vector<float> f(scales.begin(), scales.end());
    std::vector<float> want, stored(size_of(m * cols), -1.0f);
    for (int c = 0; c < cols; ++c) {
      for (int r = 0; r < m; ++r) want.push_back(r < rows ? static_cast<float>(at(r, c)) : 0.0f);
    }
    store_scales<float>(ScaleOrder::kMMajor, rows, cols, f, stored);
    CHECK(stored == want);
  }
  // 128-row weight scales, once per row.
  const Bytes blocks = {1, 2, 3, 4};
  Bytes rows(2 * 130);
  repeat_scale_rows(128, 130, 2, blocks, rows);
  CHECK((rows[0] == 1 && rows[1] == 2 && rows[2 * 127] == 1 && rows[2 * 128] == 3));
  CHECK(rows[2 * 129 + 1] == 4);
}

TEST_CASE("scales: offsets beyond 32 bits, and sizes that do not fit 64") {
  // 2^32 rows of 5 columns: tile row 2^25, two tiles per tile row.
  CHECK(scale_offset(ScaleOrder::k128x4, (std::int64_t{1} << 32) + 2, 5,
                     (std::int64_t{1} << 32) + 1, 4) == ((std::int64_t{1} << 26) + 1) * 512 + 16);
  CHECK(scale_buffer_entries(ScaleOrder::k128x4, std::int64_t{1} << 32, 5) == std::int64_t{1}
                                                                                  << 35);
  CHECK(kind_of([] {
          scale_buffer_entries(ScaleOrder::k128x4, std::int64_t{1} << 40, std::int64_t{1} << 30);
        }) == ErrorKind::kData);
  CHECK(kind_of([] { scale_buffer_entries(ScaleOrder::k128x4, INT64_MAX, 1); }) ==
        ErrorKind::kData);
  CHECK(kind_of([] {
          Bytes linear(20), stored(511);
          store_scales<std::uint8_t>(ScaleOrder::k128x4, 5, 4, linear, stored);
        }) == ErrorKind::kData);
}

TEST_CASE("HiF4 carriers: cells in order, round trips, refusals") {
  std::mt19937 random(4);
  const std::int64_t lines = 48, groups = 5;
  const Bytes scales = random_bytes(lines * groups * 4, 256, random);
  // Cells [line/16][group] of (E, e8) and then (e16 low, e16 high) of 16 lines.
  Bytes cells;
  for (std::int64_t block = 0; block < lines / 16; ++block) {
    for (std::int64_t group = 0; group < groups; ++group) {
      for (const std::int64_t half : {0, 2}) {
        for (std::int64_t line = 16 * block; line < 16 * block + 16; ++line) {
          const std::size_t at = size_of((line * groups + group) * 4 + half);
          cells.insert(cells.end(), {scales[at], scales[at + 1]});
        }
      }
    }
  }
  Bytes stored(scales.size()), back(scales.size());
  store_hif4_scales(Carrier::kA6, LevelBits::kLsb, lines, groups, scales, stored);
  CHECK(stored == cells);
  for (const Carrier carrier : {Carrier::kU32, Carrier::kBytes, Carrier::kF32, Carrier::kA6}) {
    for (const LevelBits bits : {LevelBits::kLsb, LevelBits::kMsb}) {
      if (bits == LevelBits::kMsb && carrier != Carrier::kBytes) {
        CHECK(kind_of([&] { store_hif4_scales(carrier, bits, lines, groups, scales, stored); }) ==
              ErrorKind::kUsage);
        continue;
      }
      store_hif4_scales(carrier, bits, lines, groups, scales, stored);
      load_hif4_scales(carrier, bits, lines, groups, stored, back);
      CHECK(back == scales);
    }
  }
  CHECK(kind_of([&] {
          Bytes few(20 * 4);
          store_hif4_scales(Carrier::kA6, LevelBits::kLsb, 20, 1, few, few);
        }) == ErrorKind::kData);
  std::vector<std::uint16_t> level1(size_of(lines * groups));
  store_hif4_level1(lines, groups, scales, level1);
  CHECK((level1[0] == scales[0] && level1[7] == scales[28]));
}

TEST_CASE("ggml blocks: bytes, round trips and what its decoders return") {
  std::mt19937 random(5);
  const Bytes codes = random_bytes(2 * 128, 16, random);
  const Bytes e8m0 = random_bytes(2 * 4, 256, random), e4m3 = random_bytes(2 * 8, 256, random);
  Bytes codes_back(codes.size()), e8m0_back(e8m0.size()), e4m3_back(e4m3.size());
  std::vector<GgmlMxfp4Block> mx(8);
  pack_ggml_mxfp4(2, 128, codes, e8m0, mx);
  CHECK((mx[5].e == e8m0[5] && mx[5].qs[3] == (codes[163] | codes[179] << 4)));
  unpack_ggml_mxfp4(2, 128, mx, codes_back, e8m0_back);
  CHECK((codes_back == codes && e8m0_back == e8m0));
  std::vector<GgmlNvfp4Block> nv(4);
  pack_ggml_nvfp4(2, 128, codes, e4m3, nv);
  CHECK((nv[1].d[2] == e4m3[6] && nv[1].qs[17] == (codes[97] | codes[105] << 4)));
  unpack_ggml_nvfp4(2, 128, nv, codes_back, e4m3_back);
  CHECK((codes_back == codes && e4m3_back == e4m3));
  CHECK(kind_of([&] {
          const std::span<const std::uint8_t> row = std::span(codes).first(48);
          pack_ggml_mxfp4(1, 48, row, std::span(e8m0).first(2), std::span(mx).first(2));
        }) == ErrorKind::kData);

  // The format's value for every scale byte and code, except that code 8 is +0 and the NaN bytes
  // are numbers: E8M0 255 is 2^128, UE4M3 0x7F is 0.
  std::int64_t compared = 0, differing = 0;
  const auto compare = [&](float got, float want) {
    ++compared;
    if (bit_cast<std::uint32_t>(got) != bit_cast<std::uint32_t>(want)) ++differing;
  };
  for (unsigned byte = 0; byte < 256; ++byte) {
    const float e = byte == 255 ? std::numeric_limits<float>::infinity()
                                : std::ldexp(1.0f, static_cast<int>(byte) - 127);
    // ggml d99724f ggml-impl.h: bit 7 is not looked at, except that 0xff is not the NaN 0x7f.
    const int exponent = static_cast<int>(byte >> 3 & 15u), fraction = static_cast<int>(byte & 7u);
    const float u = byte == 127     ? 0.0f
                    : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                    : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
    GgmlMxfp4Block b{static_cast<std::uint8_t>(byte), {}};
    GgmlNvfp4Block n{{0, 0, static_cast<std::uint8_t>(byte), 0}, {}};
    for (unsigned code = 0; code < 16; ++code) {
      b.qs[5] = static_cast<std::uint8_t>(code << 4);
      n.qs[21] = static_cast<std::uint8_t>(code << 4);
      std::vector<float> mx_values(32), nv_values(64);
      decode_ggml_mxfp4({&b, 1}, mx_values);
      decode_ggml_nvfp4({&n, 1}, nv_values);
      const float element = decode<Lane<1>>(kE2M1, code == 8 ? 0u : code);
      if (byte == 255) {
        compare(mx_values[21], 2.0f * element * 0x1p127f);
      } else {
        compare(mx_values[21], element * e);
      }
      compare(nv_values[45], element * u);
    }
  }
  CHECK(compared == 2 * 256 * 16);
  CHECK(differing == 0);
  CHECK(ggml_half_e8m0(255) == 0x1p127f);
}

TEST_CASE("integers: dense bits of 1 to 8, along both sides, with poisoned ends") {
  std::mt19937 random(6);
  for (int bits = 1; bits <= 8; ++bits) {
    for (const std::int64_t cols : {0, 1, 3, 7, 8, 9, 32, 33, 100}) {
      constexpr std::int64_t kRows = 3;
      const Bytes codes = random_bytes(kRows * cols, 1u << bits, random);
      const std::int64_t row_words = (cols * bits + 31) / 32;
      CHECK(dense_words(bits, cols) == row_words);
      Words words(size_of(kRows * row_words), 0xffffffffu);
      pack_dense(bits, kRows, cols, codes, words);
      bool is_right = true;
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t bit = 0; bit < row_words * 32; ++bit) {
          std::uint32_t& word = words[size_of(row * row_words + bit / 32)];
          const std::int64_t i = bit / bits;
          const unsigned want = i < cols ? codes[size_of(row * cols + i)] >> (bit % bits) & 1u : 0u;
          is_right = is_right && (word >> (bit % 32) & 1u) == want;
          if (i >= cols) word |= 1u << (bit % 32);
        }
      }
      CHECK(is_right);
      Bytes back(codes.size());
      unpack_dense(bits, kRows, cols, words, back);
      CHECK(back == codes);

      // The transposed matrix packed along its rows is the transposed matrix of words.
      Bytes turned(codes.size()), turned_back(codes.size());
      for (std::size_t i = 0; i < codes.size(); ++i) {
        turned[i % size_of(cols) * kRows + i / size_of(cols)] = codes[i];
      }
      Words turned_words(words.size());
      pack_dense(bits, kRows, cols, codes, words);
      pack_dense_rows(bits, cols, kRows, turned, turned_words);
      for (std::size_t i = 0; i < words.size(); ++i) {
        CHECK(turned_words[i % size_of(row_words) * kRows + i / size_of(row_words)] == words[i]);
      }
      unpack_dense_rows(bits, cols, kRows, turned_words, turned_back);
      CHECK(turned_back == turned);
    }
  }
}

TEST_CASE("integers: offsets, wrapped zero points, refusals") {
  for (int bits = 1; bits <= 8; ++bits) {
    const int half = 1 << (bits - 1);
    for (int q = -half; q < half; ++q) CHECK(signed_code(offset_code(q, bits), bits) == q);
    CHECK(offset_code(-half, bits) == 0);
    CHECK(kind_of([&] { offset_code(half, bits); }) == ErrorKind::kData);
    CHECK(kind_of([&] { offset_code(-half - 1, bits); }) == ErrorKind::kData);
  }
  CHECK(kind_of([] { offset_code(0, 0); }) == ErrorKind::kUsage);
  CHECK(kind_of([] { offset_code(0, 9); }) == ErrorKind::kUsage);
  // Symmetric INT4 has z = 8 everywhere: 0x77777777 in v1.
  const Bytes eights(8, 8);
  Words words(1);
  pack_gptq_zeros(GptqZeros::kV1, 1, 8, eights, words);
  CHECK(words[0] == 0x77777777u);
  Bytes wide(8, 1), codes(12);
  wide[3] = 16;
  CHECK(kind_of([&] { pack_dense(4, 1, 8, wide, words); }) == ErrorKind::kData);
  CHECK(kind_of([&] { pack_awq(1, 8, wide, words); }) == ErrorKind::kData);
  CHECK(kind_of([&] { pack_awq(1, 12, codes, words); }) == ErrorKind::kData);
}

}  // namespace
}  // namespace fp4scope
