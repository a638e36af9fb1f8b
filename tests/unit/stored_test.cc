// stored_test.cc: stored codes and scales read back in logical order, padding included
// (analysis/compare/stored.h). Where a byte belongs comes from tests/support/stored_files.h, which
// states the formulas of ../shared/spec/layouts.md once more.
#include "analysis/compare/stored.h"

#include <algorithm>
#include <set>

#include "tests/support/stored_files.h"
#include "tests/unit/stored_support.h"

namespace fp4scope {
namespace {

using test::at;
using test::Bytes;
using test::has;
using test::MemorySource;
using test::refusal;
using test::some_bytes;

constexpr std::int64_t kRows[] = {1, 31, 32, 33, 127, 128, 129, 257};

// Spans that split [rows, cols] at the given row step and at every `chunk` columns.
std::vector<TileSpan> split(std::int64_t rows, std::int64_t cols, std::int64_t row_step,
                            std::int64_t col_step) {
  std::vector<TileSpan> spans;
  for (std::int64_t r = 0; r < rows; r += row_step) {
    for (std::int64_t c = 0; c < cols; c += col_step) {
      spans.push_back({r, std::min(row_step, rows - r), c, std::min(col_step, cols - c)});
    }
  }
  return spans;
}

struct CodeCase {
  const char* recipe;
  int codes;
  std::vector<const char*> orders;
};
const std::vector<CodeCase>& code_cases() {
  static const std::vector<CodeCase> kCases = {
      {"mxfp4", 16, {"low-first", "high-first", "split8", "split16", "bytes"}},
      {"nvfp4", 16, {"low-first", "high-first", "split8", "split16", "bytes"}},
      {"hif4", 16, {"low-first", "high-first", "split8", "split16", "bytes"}},
      {"int4", 16, {"low-first", "high-first", "split8", "split16", "bytes", "ct"}},
      {"mxfp8e4m3", 256, {"bytes"}},
      {"mxfp6e3m2", 64, {"bytes"}}};
  return kCases;
}

TEST_CASE("codes of every packing and shape, whole and by tiles") {
  std::int64_t compared = 0, differing = 0;
  for (const CodeCase& c : code_cases()) {
    const Recipe recipe = parse_recipe(c.recipe);
    const std::int64_t block = recipe.format.block;
    for (const char* order : c.orders) {
      const CodePacking packing = parse_packing(order, recipe);
      CHECK(name_of(packing) == order);
      for (const std::int64_t rows : kRows) {
        for (const std::int64_t cols : {1, 2, 15, 16, 17, 31, 33, 63, 64, 127, 128, 129, 257}) {
          const Bytes codes = some_bytes(rows * cols, c.codes, false, 7u);
          const MemorySource source(test::packed_codes(order, rows, cols, codes, cols));
          CHECK(packed_bytes(packing, recipe, cols) == test::row_bytes_of(order, cols));
          const StoredShape shape =
              shape_of_codes(source.tensors()[0], recipe, packing, rows, cols);
          CHECK(shape == StoredShape{rows, cols});
          const StoredCodes stored(source.all(), recipe, packing, shape);
          for (const auto& [row_step, col_step] :
               {std::pair{rows, cols}, std::pair{std::int64_t{5}, std::int64_t{128}}}) {
            for (const TileSpan& span : split(rows, cols, row_step, col_step)) {
              const std::int64_t padded = test::ceil_div(span.cols, block) * block;
              Bytes read(at(span.rows * padded), 0xAA);
              stored.read(span, padded, read.data());
              for (std::int64_t r = 0; r < span.rows; ++r) {
                for (std::int64_t k = 0; k < padded; ++k) {
                  const int want =
                      k < span.cols ? codes[at((span.row + r) * cols + span.col + k)] : 0;
                  ++compared;
                  differing += read[at(r * padded + k)] != want;
                }
              }
            }
          }
          CHECK(stored.padding().count == 0);
        }
      }
    }
  }
  std::printf("stored codes: %lld compared, %lld differ\n", static_cast<long long>(compared),
              static_cast<long long>(differing));
  CHECK(compared > 1000000);
  CHECK(differing == 0);
}

TEST_CASE("BF16 codes are two bytes, little endian") {
  const Recipe recipe = parse_recipe("bf16");
  const Bytes data = {0x80, 0x3F, 0x00, 0xC0, 0x01, 0x02};
  const MemorySource source(data);
  const StoredShape shape = shape_of_codes(source.tensors()[0], recipe, CodePacking::kBytes, 1, 3);
  const StoredCodes stored(source.all(), recipe, CodePacking::kBytes, shape);
  Bytes read(128, 0xAA);
  stored.read({0, 1, 0, 3}, 64, read.data());
  CHECK(Bytes(read.begin(), read.begin() + 6) == data);
  CHECK(std::all_of(read.begin() + 6, read.end(), [](auto b) { return b == 0; }));
}

TEST_CASE("every nibble behind a row is padding and no other one") {
  std::int64_t faults = 0;
  for (const char* order : {"low-first", "high-first", "split8", "split16", "ct"}) {
    const Recipe recipe = parse_recipe("int4");
    const CodePacking packing = parse_packing(order, recipe);
    for (const std::int64_t cols : {1, 7, 16, 17, 31, 32, 33, 65}) {
      constexpr std::int64_t kCount = 3;
      // Codes whose stored nibble is not 0, so that padding could be confused with them.
      const Bytes codes = some_bytes(kCount * cols, 8, true, 3u);
      MemorySource source(test::packed_codes(order, kCount, cols, codes, cols));
      const std::int64_t width = test::row_bytes_of(order, cols);
      const StoredCodes stored(source.all(), recipe, packing, {kCount, cols});
      REQUIRE(stored.padding().count == 0);
      CHECK(stored.padding().first_byte == -1);
      std::int64_t nibbles = 0, first = -1;
      for (std::int64_t r = 0; r < kCount; ++r) {
        const std::int64_t unit = test::unit_of_order(order);
        for (std::int64_t i = cols; i < test::ceil_div(cols, unit) * unit; ++i) {
          const test::CodePlace place = test::code_place(order, i);
          std::uint8_t& byte = source.bytes()[at(r * width + place.byte)];
          const std::uint8_t before = byte;
          byte = static_cast<std::uint8_t>(byte | 1 << place.shift);
          const PaddingFault one = stored.padding();
          CHECK(one.count == 1);
          CHECK(one.first_byte == r * width + place.byte);
          byte = before;
          ++nibbles;
          first = first < 0 ? r * width + place.byte : std::min(first, r * width + place.byte);
        }
      }
      CHECK(nibbles == 2 * kCount * width - kCount * cols);
      // All of them at once.
      for (std::int64_t r = 0; r < kCount; ++r) {
        const std::int64_t unit = test::unit_of_order(order);
        for (std::int64_t i = cols; i < test::ceil_div(cols, unit) * unit; ++i) {
          const test::CodePlace place = test::code_place(order, i);
          source.bytes()[at(r * width + place.byte)] |=
              static_cast<std::uint8_t>(0xF << place.shift);
        }
      }
      CHECK(stored.padding().count == nibbles);
      CHECK(stored.padding().first_byte == first);
      // What is in the padding changes no code.
      const std::int64_t block = recipe.format.block;
      const std::int64_t padded = test::ceil_div(cols, block) * block;
      Bytes read(at(kCount * padded), 0xAA);
      stored.read({0, kCount, 0, cols}, padded, read.data());
      for (std::int64_t r = 0; r < kCount; ++r) {
        for (std::int64_t c = 0; c < padded; ++c) {
          CHECK(read[at(r * padded + c)] == (c < cols ? codes[at(r * cols + c)] : 0));
        }
      }
      faults += nibbles;
    }
  }
  std::printf("padding nibbles set one by one: %lld\n", static_cast<long long>(faults));
  CHECK(faults > 500);
}

// verify counts it as a difference and names the element (verify_flips_test.cc).
TEST_CASE("a byte that is no code is read as it is") {
  for (const auto& [name, first_bad] : {std::pair{"mxfp4", 16}, std::pair{"mxfp6e2m3", 64}}) {
    const Recipe recipe = parse_recipe(name);
    Bytes codes(3 * 32, 1);
    codes[2 * 32 + 5] = static_cast<std::uint8_t>(first_bad);
    const MemorySource source(codes);
    const StoredCodes stored(source.all(), recipe, CodePacking::kBytes, {3, 32});
    Bytes read(3 * 32);
    stored.read({0, 3, 0, 32}, 32, read.data());
    CHECK(read == codes);
  }
}

struct ScaleCase {
  const char* recipe;
  std::int64_t bytes;
  std::vector<const char*> orders;
};
const std::vector<ScaleCase>& scale_cases() {
  const static std::vector<ScaleCase> kCases = {
      {"mxfp4", 1, {"linear", "128x4", "8x4", "te-padded", "deepgemm", "trtllm-page"}},
      {"nvfp4", 1, {"linear", "128x4", "8x4", "te-padded", "deepgemm", "trtllm-page"}},
      {"int4", 2, {"linear", "m-major"}},
      {"fp8", 4, {"linear", "m-major"}},
      {"hif4", 4, {"linear", "msb", "a6"}}};
  return kCases;
}

TEST_CASE("scales of every storage and shape, whole and by tiles") {
  std::int64_t compared = 0, differing = 0, cases = 0;
  for (const ScaleCase& c : scale_cases()) {
    const Recipe recipe = parse_recipe(c.recipe);
    REQUIRE(recipe.format.scale_bytes == c.bytes);
    const std::int64_t block = recipe.format.block;
    for (const char* order : c.orders) {
      const ScaleStorage storage = parse_storage(order, recipe);
      CHECK(name_of(storage) == order);
      for (const std::int64_t rows : {1, 16, 31, 32, 33, 127, 128, 129, 257}) {
        for (const std::int64_t blocks : {1, 3, 4, 5, 8, 90}) {
          const auto entries = test::scale_entries_of(order, rows, blocks);
          const auto size = scale_bytes(storage, recipe, rows, blocks);
          REQUIRE(size.has_value() == entries.has_value());
          if (!entries) continue;
          ++cases;
          CHECK(*size == *entries * c.bytes);
          const Bytes scales = some_bytes(rows * blocks * c.bytes, 255, true, 11u);
          // A ragged last block has a scale too; padding is poisoned and never read.
          const std::int64_t cols = blocks * block - (blocks > 1 ? 3 : 0);
          const MemorySource source(
              test::stored_scales(order, rows, blocks, c.bytes, scales, 0xFF));
          const StoredScales stored(source.all(), recipe, storage, {rows, cols});
          const std::int64_t col_step = std::max<std::int64_t>(128, block);
          for (const auto& [row_step, step] :
               {std::pair{rows, cols}, std::pair{std::int64_t{7}, col_step}}) {
            for (const TileSpan& span : split(rows, cols, row_step, step)) {
              const std::int64_t count = test::ceil_div(span.cols, block), first = span.col / block;
              Bytes read(at(span.rows * count * c.bytes), 0);
              stored.read(span, read.data());
              for (std::int64_t r = 0; r < span.rows; ++r) {
                for (std::int64_t k = 0; k < count * c.bytes; ++k) {
                  ++compared;
                  differing += read[at(r * count * c.bytes + k)] !=
                               scales[at(((span.row + r) * blocks + first) * c.bytes + k)];
                }
              }
            }
          }
        }
      }
    }
  }
  std::printf("stored scales: %lld cases, %lld bytes compared, %lld differ\n",
              static_cast<long long>(cases), static_cast<long long>(compared),
              static_cast<long long>(differing));
  CHECK(cases > 500);
  CHECK(differing == 0);
}

TEST_CASE("one entry per 2-D block is read on each of its rows") {
  const Recipe recipe = parse_recipe("nvfp4:block=2d");
  REQUIRE(recipe.format.block_rows == 16);
  for (const std::int64_t rows : {1, 16, 17, 40}) {
    constexpr std::int64_t kBlocks = 3;
    const Bytes scales = some_bytes(test::ceil_div(rows, 16) * kBlocks, 127, true, 5u);
    const MemorySource source(scales);
    CHECK(scale_bytes(ScaleStorage::kBlocks, recipe, rows, kBlocks) == std::ssize(scales));
    const StoredScales stored(source.all(), recipe, parse_storage("blocks", recipe), {rows, 48});
    Bytes read(at(rows * kBlocks));
    stored.read({0, rows, 0, 48}, read.data());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < kBlocks; ++c) {
        CHECK(read[at(r * kBlocks + c)] == scales[at(r / 16 * kBlocks + c)]);
      }
    }
  }
}

TEST_CASE("every padding entry of a storage is found with its offset, no scale is one") {
  std::int64_t single = 0;
  for (const ScaleCase& c : scale_cases()) {
    const Recipe recipe = parse_recipe(c.recipe);
    for (const char* order : c.orders) {
      const ScaleStorage storage = parse_storage(order, recipe);
      for (const std::int64_t rows : {1, 3, 33, 129}) {
        for (const std::int64_t blocks : {1, 3, 4, 5}) {
          if (!test::scale_entries_of(order, rows, blocks)) continue;
          const std::int64_t cols = blocks * recipe.format.block;
          const Bytes scales = some_bytes(rows * blocks * c.bytes, 255, true, 13u);
          MemorySource source(test::stored_scales(order, rows, blocks, c.bytes, scales));
          const StoredScales stored(source.all(), recipe, storage, {rows, cols});
          CHECK(stored.padding().count == 0);
          std::set<std::int64_t> used;
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t k = 0; k < blocks; ++k) {
              used.insert(test::scale_place(order, rows, blocks, r, k, c.bytes, 0) / c.bytes);
            }
          }
          std::vector<std::int64_t> padding;
          for (std::int64_t e = 0; e < std::ssize(source.bytes()) / c.bytes; ++e) {
            if (std::string_view(order) != "a6" && !used.contains(e)) padding.push_back(e);
          }
          for (std::size_t i = 0; i < padding.size(); i += std::max<std::size_t>(1, i / 16)) {
            for (const std::int64_t b : {std::int64_t{0}, c.bytes - 1}) {
              std::uint8_t& byte = source.bytes()[at(padding[i] * c.bytes + b)];
              REQUIRE(byte == 0);
              byte = 0x80;
              const PaddingFault fault = stored.padding();
              CHECK(fault.count == 1);
              CHECK_MESSAGE(fault.first_byte == padding[i] * c.bytes, order);
              byte = 0;
              ++single;
            }
          }
          if (padding.empty()) continue;
          for (const std::int64_t e : padding) source.bytes()[at(e * c.bytes)] = 0xFF;
          CHECK(stored.padding().count == std::ssize(padding));
          CHECK(stored.padding().first_byte == padding.front() * c.bytes);
        }
      }
    }
  }
  std::printf("padding entries of scales set one by one: %lld\n", static_cast<long long>(single));
  CHECK(single > 1000);
}

}  // namespace
}  // namespace fp4scope
