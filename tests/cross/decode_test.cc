// decode_test.cc: all bytes of one-byte scales times all codes of every format that has them,
// through every backend and the exact oracle; HiF4 with patterns of its level bits. The sign bit of
// an NVFP4 scale byte means nothing: UE4M3 has seven bits (spec/scalars.md section 1); that of if4
// picks the grid.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "tests/support/backends.h"
#include "tests/support/floats.h"
#include "tests/support/quantized.h"
#include "tests/support/required_keys.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

std::vector<float> decoded(const Backend& backend, const Recipe& recipe, const QuantizedTile& tile,
                           std::span<const OuterScale32> outer) {
  std::vector<float> values(static_cast<std::size_t>(tile.rows * tile.cols));
  backend.dequantize(recipe, tile, outer, values.data(), tile.cols);
  return values;
}

// Every backend against the oracle on one tile; returns the oracle's values.
std::vector<float> check_decode(const Recipe& recipe, const QuantizedTile& tile,
                                std::span<const OuterScale32> outer, const std::string& what) {
  const std::vector<float> want = decoded(oracle_backend(), recipe, tile, outer);
  std::int64_t differing = 0;
  for (const Backend* backend : backends_for(recipe)) {
    const std::vector<float> got = decoded(*backend, recipe, tile, outer);
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (same_float(got[i], want[i])) continue;
      if (++differing > 5) continue;
      const std::size_t cols = static_cast<std::size_t>(tile.cols);
      std::printf("DIFFERS %s on %s, row %zu, element %zu, code 0x%x: want %08x, got %08x\n",
                  what.c_str(), name_of(*backend).c_str(), i / cols, i % cols, tile.codes[i],
                  bit_cast<std::uint32_t>(want[i]), bit_cast<std::uint32_t>(got[i]));
    }
  }
  std::printf("%-44s %8zu values x %zu backends, %lld differ\n", what.c_str(), want.size(),
              backends_for(recipe).size(), static_cast<long long>(differing));
  CHECK_MESSAGE(differing == 0, what);
  return want;
}

// Row b has the scale byte b in every block; codes count up along the row.
QuantizedTile byte_rows(const Recipe& recipe, std::int64_t cols) {
  QuantizedTile tile;
  resize(tile, recipe, 256, cols);
  for (std::size_t i = 0; i < tile.codes.size(); ++i) {
    const std::size_t column = i % static_cast<std::size_t>(tile.padded_cols);
    tile.codes[i] = static_cast<std::uint8_t>(column % recipe.format.element.code_count());
  }
  const std::size_t bytes_per_row = tile.scales.size() / 256;
  for (std::size_t i = 0; i < tile.scales.size(); ++i) {
    tile.scales[i] = static_cast<std::uint8_t>(i / bytes_per_row);
  }
  for (std::size_t i = 0; i < tile.choices.size(); ++i) tile.choices[i] = tile.scales[i] >> 7;
  return tile;
}
// A row long enough for every code.
QuantizedTile byte_rows(const Recipe& recipe) {
  const std::int64_t codes = recipe.format.element.code_count(), block = recipe.format.block;
  return byte_rows(recipe, (codes + block - 1) / block * block);
}
void check_blocks(const std::string& text) {
  const Recipe recipe = parse_recipe(text);
  REQUIRE(recipe.format.scale_bytes == 1);
  const OuterScale32 none;
  check_decode(recipe, byte_rows(recipe), {&none, 1}, text);
}

// Zero, the smallest and largest subnormal, the smallest normal, ordinary values with long
// fractions, the largest, infinity.
constexpr std::uint32_t kAmaxima[] = {0u,          1u,          0x007fffffu, 0x00800000u,
                                      0x3f800000u, 0x40490fdbu, 0x477fe123u, kFloatMaxBits,
                                      kInfBits};

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("all E8M0 bytes times all codes of every MX element") {
  int formats = 0;
  for (const FormatRow& row : all_formats()) {
    if (row.family != Family::kMx) continue;
    ++formats;
    check_blocks(std::string(row.format.name));
  }
  CHECK(formats == 7);
  // Contracts with other integer grids than the format's own.
  for (const char* format : {"mxint8", "mxint4"}) {
    for (const ContractInfo& c : contracts_of(Family::kMx, format)) {
      check_blocks(std::string(format) + ":contract=" + std::string(c.name));
    }
  }
}

TEST_CASE("all E8M0 bytes times all codes of FP8, all E4M3 bytes times all codes of INT4") {
  for (const char* text : {"fp8:scale-fmt=ue8m0", "fp8:scale-fmt=ue8m0,elem=e5m2",
                           "int4:contract=rtp-llm", "int4:contract=rtp-llm-ct"}) {
    check_blocks(text);
  }
}

TEST_CASE(
    "all 256 scale bytes times all E2M1 codes under NVFP4 outer scales; the sign bit is idle") {
  for (const char* text :
       {"nvfp4:scale=tensor", "nvfp4:scale=tensor,e4m3max=256", "nvfp4:scale=none",
        "nvfp4:scale=given,g=0x4469bd38", "nvfp4:scale=given,g=0x00000001",
        "nvfp4:scale=given,g=0x7f7fffff", "nvfp4:scale=given,g=0x4469bd38,amax=0x40380000"}) {
    const Recipe recipe = parse_recipe(text);
    for (const std::uint32_t amax : kAmaxima) {
      const OuterScale32 outer = oracle_backend().outer_scale(recipe, amax);
      char title[96];
      std::snprintf(title, sizeof title, recipe.needs_amax() ? "%s, amax %08x" : "%s", text, amax);
      const QuantizedTile tile = byte_rows(recipe, 16);
      const std::vector<float> values = check_decode(recipe, tile, {&outer, 1}, title);
      int signs = 0;
      for (std::size_t i = 0; i < 128 * 16; ++i) signs += !same_float(values[i], values[i + 2048]);
      CHECK_MESSAGE(signs == 0, title);
      if (!recipe.needs_amax()) break;  // the same for every amax
    }
  }
  // Each row has a scale of its own.
  const Recipe rows = parse_recipe("nvfp4:scale=row");
  std::vector<OuterScale32> outer;
  for (std::uint32_t row = 0; row < 256; ++row) {
    outer.push_back(oracle_backend().outer_scale(rows, 0x3f800000u + row * 0x2781u));
  }
  check_decode(rows, byte_rows(rows, 16), outer, "nvfp4:scale=row");
}

TEST_CASE("all scale bytes times all codes of NVFP4, nvint4 and if4 under every contract") {
  int recipes = 0;
  for (const FormatRow& row : all_formats()) {
    if (row.family != Family::kNvfp4) continue;
    const bool is_if4 = row.format.name == "if4";
    for (const ContractInfo& c : contracts_of(Family::kNvfp4, row.format.name)) {
      const std::string text =
          required_keys(std::string(row.format.name) + ":contract=" + std::string(c.name));
      const Recipe recipe = parse_recipe(text);
      const QuantizedTile tile = byte_rows(recipe);
      REQUIRE(recipe.format.scale_bytes == 1);
      REQUIRE((!is_if4 || !tile.choices.empty()));
      ++recipes;
      for (const std::uint32_t amax : kAmaxima) {
        const OuterScale32 outer = oracle_backend().outer_scale(recipe, amax);
        char title[96];
        std::snprintf(title, sizeof title, "%s, amax %08x", text.c_str(), amax);
        const std::vector<OuterScale32> outers(recipe.scales_rows() ? 256 : 1, outer);
        const std::vector<float> values = check_decode(recipe, tile, outers, title);
        std::size_t other_grid = 0;
        for (std::size_t i = 0; i < values.size() / 2; ++i) {
          other_grid += !same_float(values[i], values[i + values.size() / 2]);
        }
        if (!is_if4) {
          CHECK_MESSAGE(other_grid == 0, title);  // the sign bit is idle
        } else if (amax == 0x3f800000u) {
          CHECK_MESSAGE(other_grid > 0, title);
        }
        if (!recipe.needs_amax()) break;
      }
    }
  }
  CHECK(recipes == 22);
}

TEST_CASE("all E6M2 bytes times level patterns times all codes of HiF4 in widths 3, 4 and 5") {
  // Level bits as 24 bits, level 2 low. The four uniform ones meet every code (64 elements hold at
  // least two rounds); each single bit shows to which elements it belongs.
  std::vector<std::uint32_t> patterns = {0x000000, 0x0000ff, 0xffff00, 0xffffff,
                                         0x5555aa, 0xaaaa55, 0x3333f0, 0xc35a96};
  for (int bit = 0; bit < 24; ++bit) {
    patterns.push_back(1u << bit);
    patterns.push_back(0xffffffu ^ 1u << bit);
  }
  for (const char* text : {"hif4:width=3", "hif4", "hif4:width=5"}) {
    const Recipe recipe = parse_recipe(text);
    QuantizedTile tile = byte_rows(recipe, std::ssize(patterns) * 64);
    for (std::size_t i = 0; i < tile.scales.size(); i += 4) {
      const std::uint32_t levels = patterns[i / 4 % patterns.size()];
      for (std::size_t k = 0; k < 3; ++k) {
        tile.scales[i + 1 + k] = static_cast<std::uint8_t>(levels >> (8 * k));
      }
    }
    const OuterScale32 none;
    check_decode(recipe, tile, {&none, 1}, text);
  }
}

TEST_SUITE_END();
