// bug_cases_layout_test.cc: the cases of ../shared/cases/bugs.md that concern layouts, packing and
// masks (C01, C06, C07, C09, C14, C20, C22, C23, C24, C31, C32); numbers and answers are those of
// that file. Arithmetic is in bug_cases_test.cc, readers in bug_cases_files_test.cc.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "formats/e8m0.h"
#include "formats/minifloat.h"
#include "sim/error.h"
#include "sim/layouts/checkpoints.h"
#include "sim/layouts/e8m0_scales.h"
#include "sim/layouts/nibbles.h"
#include "sim/layouts/scale_layout.h"
#include "sim/layouts/sparse_meta.h"

namespace fp4scope {
namespace {

using L1 = Lane<1>;
using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

constexpr CastPolicy kIeeeCast{Rounding::kEven, Overflow::kSpecial, {0x7E00, NanRule::Sign::kCopy}};

template <class F>
ErrorKind kind_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.kind();
  }
  FAIL("nothing was refused");
  return {};
}

TEST_CASE("C01 binary32 scales are converted one by one, checked or by a named rule") {
  const Floats powers = {0x1p-127f, 1.0f, 2.0f, 4.0f}, mixed = {1.5f, 1.0f, 2.0f, 4.0f};
  Bytes bytes(4);
  e8m0_from_binary32(powers, std::nullopt, bytes);
  CHECK(bytes == Bytes{0x00, 0x7F, 0x80, 0x81});
  CHECK(kind_of([&] { e8m0_from_binary32(mixed, std::nullopt, bytes); }) == ErrorKind::kData);
  const std::pair<E8m0Rule, std::uint8_t> rules[] = {{E8m0Rule::kDown, 0x7F},
                                                     {E8m0Rule::kUp, 0x80},
                                                     {E8m0Rule::kNearestTorch, 0x80},
                                                     {E8m0Rule::kNearestOnnx, 0x80},
                                                     {E8m0Rule::kNearestMlDtypes, 0x80}};
  for (const auto& [rule, first] : rules) {
    e8m0_from_binary32(mixed, rule, bytes);
    CHECK(bytes == Bytes{first, 0x7F, 0x80, 0x81});
    e8m0_from_binary32(powers, rule, bytes);
    CHECK(bytes == Bytes{0x00, 0x7F, 0x80, 0x81});
  }
  // All 255 values pass unchanged; neighbours of a power of two and values without a byte do not.
  for (unsigned byte = 0; byte < 255; ++byte) {
    const Floats one = {std::ldexp(1.0f, static_cast<int>(byte) - 127)};
    Bytes out(1, 0xAA);
    e8m0_from_binary32(one, std::nullopt, out);
    CHECK(unsigned{out[0]} == byte);
    const auto bits = bit_cast<std::uint32_t>(one[0]);
    for (const std::uint32_t bad : {bits + 1u, bits - 1u, bits | 0x80000000u}) {
      const Floats other = {bit_cast<float>(bad)};
      CHECK(kind_of([&] { e8m0_from_binary32(other, std::nullopt, out); }) == ErrorKind::kData);
    }
  }
  for (const std::uint32_t bad : {0u, 0x80000000u, 0x00200000u, kInfBits, kQuietNanBits}) {
    const Floats other = {1.0f, bit_cast<float>(bad)};
    Bytes out(2);
    CHECK(kind_of([&] { e8m0_from_binary32(other, std::nullopt, out); }) == ErrorKind::kData);
  }
}

TEST_CASE("C06 E8M0 scales in FP16: subnormals stay, overflow is Inf, narrowing comes last") {
  const auto fp16 = [](float v) { return cast<L1>(kFP16, kIeeeCast, v); };
  const std::pair<std::uint32_t, std::uint32_t> cases[] = {
      {102, 0x0000}, {103, 0x0001}, {112, 0x0200}, {113, 0x0400}, {142, 0x7800}, {143, 0x7C00}};
  for (const auto& [byte, want] : cases) {
    const float scale = e8m0_decode<L1>(byte);
    CHECK(scale == std::ldexp(1.0f, static_cast<int>(byte) - 127));
    CHECK(fp16(scale) == want);
  }
  const float six = decode<L1>(kE2M1, 7);
  CHECK(fp16(six * e8m0_decode<L1>(102)) == 0x0003);
  CHECK(fp16(six * decode<L1>(kFP16, fp16(e8m0_decode<L1>(102)))) == 0x0000);
}

TEST_CASE("C07 E4M3 scales, subnormals included, times every code are exact in BF16") {
  const std::pair<std::uint32_t, float> cases[] = {
      {0x01, 0.01171875f}, {0x07, 0.08203125f}, {0x08, 0.09375f}, {0x38, 6.0f}, {0x7E, 2688.0f}};
  for (const auto& [byte, want] : cases) CHECK(decode<L1>(kE4M3, byte) * 6.0f == want);
  const double elements[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::int64_t compared = 0, differing = 0;
  for (int byte = 0; byte < 127; ++byte) {
    const double scale = byte < 8 ? std::ldexp(byte, -9) : std::ldexp(8 + byte % 8, byte / 8 - 10);
    for (std::uint32_t code = 0; code < 16; ++code) {
      const double want = (code < 8 ? 1 : -1) * elements[code % 8] * scale;
      const float got = decode<L1>(kE2M1, code) * decode<L1>(kE4M3, static_cast<unsigned>(byte));
      const auto bits = bit_cast<std::uint32_t>(got);
      // A BF16 number has 16 zero bits below it.
      ++compared;
      differing +=
          double{got} != want || (bits & 0xffffu) != 0 ||
          cast<L1>(kBF16, {Rounding::kEven, Overflow::kSpecial, {0x7FC0, NanRule::Sign::kCopy}},
                   got) != bits >> 16;
    }
  }
  std::printf("C07 products of scale bytes and codes: %lld compared, %lld differ\n",
              static_cast<long long>(compared), static_cast<long long>(differing));
  CHECK(compared == 127 * 16);
  CHECK(differing == 0);
}

TEST_CASE("C09 the checker flags 0x7F and 0xFF in a plane of E4M3 scales") {
  const Bytes good = {0x00, 0x7E, 0x7E}, bad = {0x00, 0x7E, 0x7F};
  CHECK(find_nan_scales(ScaleByte::kE4m3, good).count == 0);
  CHECK(find_nan_scales(ScaleByte::kE4m3, bad).first == 2);
}

TEST_CASE("C14 a global scale field of 0 is an error") {
  CHECK(kind_of([] { checked_outer_scale("w.weight_scale_2", 0.0f); }) == ErrorKind::kData);
  CHECK(kind_of([] { checked_outer_scale("w.weight_global_scale", 0.0f); }) == ErrorKind::kData);
}

TEST_CASE("C20 a group with two -0 is already 2:4") {
  const Floats x = {-0.0f, 1.0f, -0.0f, 2.0f};
  Bytes mask(4);
  keep_largest(SparsePattern::k2of4, MaskTie::kLow, Ragged::kPad, 1, 4, x, mask);
  CHECK(mask == Bytes{0, 1, 0, 1});
  const Bytes codes = {8, 2, 8, 4};
  occupied_mask(SparsePattern::k2of4, 7, 1, 4, codes, mask);
  CHECK(mask == Bytes{0, 1, 0, 1});
}

TEST_CASE("C22 swizzled scales of every row count") {
  std::int64_t compared = 0, differing = 0;
  const auto at = [](const auto& bytes, std::int64_t i) {
    return bytes[static_cast<std::size_t>(i)];
  };
  for (const std::int64_t rows : {1, 31, 32, 33, 127, 128, 129, 257}) {
    for (const std::int64_t cols : {1, 3, 4, 5, 90}) {
      const std::int64_t tiles = (cols + 3) / 4, size = 512 * ((rows + 127) / 128) * tiles;
      REQUIRE(scale_buffer_entries(ScaleOrder::k128x4, rows, cols) == size);
      Bytes scales, want(static_cast<std::size_t>(size)), stored(want.size(), 0xFF);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < cols; ++c) {
          scales.push_back(static_cast<std::uint8_t>((7 * r + c) % 251 + 1));
          const std::int64_t off =
              ((r / 128) * tiles + c / 4) * 512 + (r % 32) * 16 + ((r % 128) / 32) * 4 + c % 4;
          want[static_cast<std::size_t>(off)] = scales.back();
        }
      }
      store_scales<std::uint8_t>(ScaleOrder::k128x4, rows, cols, scales, stored);
      for (std::int64_t i = 0; i < size; ++i) differing += at(stored, i) != at(want, i);
      compared += size;
      Bytes back(scales.size());
      load_scales<std::uint8_t>(ScaleOrder::k128x4, rows, cols, stored, back);
      CHECK(back == scales);
    }
  }
  std::printf("C22 bytes of swizzled buffers: %lld compared, %lld differ\n",
              static_cast<long long>(compared), static_cast<long long>(differing));
  CHECK(differing == 0);
  CHECK(scale_offset(ScaleOrder::k128x4, 257, 5, 129, 4) == 1552);
}

TEST_CASE("C23 padding bytes of a scale buffer are no data") {
  // K = 1504 in MXFP4: 47 scale columns, stored as 48.
  constexpr std::int64_t kRows = 2, kCols = 47;
  Bytes scales;
  for (int i = 0; i < kRows * kCols; ++i) scales.push_back(static_cast<std::uint8_t>(100 + i % 50));
  for (const ScaleOrder order :
       {ScaleOrder::k128x4, ScaleOrder::k8x4, ScaleOrder::kTePadded, ScaleOrder::kDeepGemm}) {
    Bytes stored(static_cast<std::size_t>(scale_buffer_entries(order, kRows, kCols)));
    Bytes poisoned(stored.size(), 0xFF), back(scales.size());
    store_scales<std::uint8_t>(order, kRows, kCols, scales, stored);
    REQUIRE(stored.size() > scales.size());
    std::int64_t data = 0;
    for (std::size_t i = 0; i < stored.size(); ++i) {
      if (stored[i] != 0) poisoned[i] = stored[i], ++data;
    }
    REQUIRE(data == kRows * kCols);
    load_scales<std::uint8_t>(order, kRows, kCols, poisoned, back);
    CHECK(back == scales);
    CHECK(find_nan_scales(ScaleByte::kE8m0, back).count == 0);
  }
}

TEST_CASE("C24 packed and logical widths of F4 rows") {
  CHECK(packed_row_bytes(Nibbles::kLowFirst, 32) == 16);
  Bytes codes(64), packed(32);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % 16);
  pack_nibbles(Nibbles::kLowFirst, 2, 32, codes, packed);
  CHECK((packed[15] == 0xFE && packed[16] == 0x10));
  CHECK(kind_of([&] { unpack_nibbles(Nibbles::kLowFirst, 2, 16, packed, codes); }) ==
        ErrorKind::kData);
  // [2,3] in three bytes: no row is byte aligned. [3,2] is three rows of a byte.
  const Bytes three = {0x21, 0x43, 0x65};
  Bytes six(6);
  CHECK(kind_of([&] { unpack_nibbles(Nibbles::kLowFirst, 2, 3, three, six); }) == ErrorKind::kData);
  unpack_nibbles(Nibbles::kLowFirst, 3, 2, three, six);
  CHECK(six == Bytes{1, 2, 3, 4, 5, 6});
}

// Sum of squares of what a mask drops.
double dropped_energy(const Floats& x, const Bytes& mask) {
  double energy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) energy += mask[i] != 0 ? 0.0 : double{x[i]} * x[i];
  return energy;
}

TEST_CASE("C31 two of four survive, ties go to the lowest index, groups run along K") {
  struct Case {
    Floats x;
    Bytes mask;
    double dropped;
  };
  const Case cases[] = {{{1, -1, 1, 1}, {1, 1, 0, 0}, 2},
                        {{0, 0, 3, 0}, {1, 0, 1, 0}, 0},
                        {{2, -5, 5, 2}, {0, 1, 1, 0}, 8}};
  for (const Case& c : cases) {
    Bytes mask(4);
    CHECK(keep_largest(SparsePattern::k2of4, MaskTie::kLow, Ragged::kPad, 1, 4, c.x, mask) == 0);
    CHECK(mask == c.mask);
    CHECK(dropped_energy(c.x, mask) == c.dropped);
  }
  Bytes mask(4);
  keep_largest(SparsePattern::k2of4, MaskTie::kHigh, Ragged::kPad, 1, 4, cases[0].x, mask);
  CHECK(mask == Bytes{0, 0, 1, 1});
  // Rows of 6: the second group has two members, both kept; the caller is told.
  const Floats six = {4, 3, 2, 1, 0.5f, 0.25f, 1, 2, 3, 4, 9, 8};
  Bytes six_mask(12);
  CHECK(keep_largest(SparsePattern::k2of4, MaskTie::kLow, Ragged::kPad, 2, 6, six, six_mask) == 2);
  CHECK(six_mask == Bytes{1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1});
  CHECK(kind_of([&] {
          keep_largest(SparsePattern::k2of4, MaskTie::kLow, Ragged::kError, 2, 6, six, six_mask);
        }) == ErrorKind::kData);
  // Of three remaining elements the two largest stay; padding never wins against a zero.
  const Floats seven = {1, 2, 3, 4, 0, -1, 0};
  Bytes seven_mask(7);
  keep_largest(SparsePattern::k2of4, MaskTie::kLow, Ragged::kPad, 1, 7, seven, seven_mask);
  CHECK(seven_mask == Bytes{0, 0, 1, 1, 1, 1, 0});
  const Floats nan = {1, std::nanf(""), 3, 4};
  CHECK(kind_of([&] {
          keep_largest(SparsePattern::k2of4, MaskTie::kLow, Ragged::kPad, 1, 4, nan, mask);
        }) == ErrorKind::kData);
}

TEST_CASE("C32 2:4 and 4:8 pairs keep different residuals") {
  const Floats x = {9, 0, 0, 8, 7, 0, 0, 6};
  Bytes mask(8);
  keep_largest(SparsePattern::k2of4, MaskTie::kLow, Ragged::kPad, 1, 8, x, mask);
  CHECK(mask == Bytes{1, 0, 0, 1, 1, 0, 0, 1});
  CHECK(dropped_energy(x, mask) == 0);
  keep_largest(SparsePattern::k4of8Pairs, MaskTie::kLow, Ragged::kPad, 1, 8, x, mask);
  CHECK(mask == Bytes{1, 1, 1, 1, 0, 0, 0, 0});
  CHECK(dropped_energy(x, mask) == 85);
  // Which of the two the hardware takes depends on the instruction kind, not on the element.
  CHECK(sparse_pattern_of_kind("mxf4nvf4") == SparsePattern::k4of8Pairs);
  CHECK(sparse_pattern_of_kind("mxf8f6f4") == SparsePattern::k2of4);
}

}  // namespace
}  // namespace fp4scope
