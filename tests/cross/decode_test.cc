// decode_test.cc: all scale bytes times all codes of every format through every backend and the
// exact oracle. The sign bit of an NVFP4 scale byte means nothing: UE4M3 has seven bits
// (spec/scalars.md section 1).
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "tests/support/backends.h"
#include "tests/support/quantized.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

bool same_value(float x, float y) {
  const auto a = bit_cast<std::uint32_t>(x), b = bit_cast<std::uint32_t>(y);
  return a == b || ((a & kMagnitudeMask) > kInfBits && (b & kMagnitudeMask) > kInfBits);
}

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
      if (same_value(got[i], want[i])) continue;
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
  return tile;
}

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("all E8M0 bytes times all codes of every MX element") {
  for (const char* text : {"mxfp4", "mxfp6e2m3", "mxfp6e3m2", "mxfp8e4m3", "mxfp8e5m2"}) {
    const Recipe recipe = parse_recipe(text);
    const std::int64_t codes = recipe.format.element.code_count();
    const OuterScale32 none;
    check_decode(recipe, byte_rows(recipe, std::max<std::int64_t>(codes, 32)), {&none, 1}, text);
  }
}

TEST_CASE(
    "all 256 scale bytes times all E2M1 codes under NVFP4 outer scales; the sign bit is idle") {
  for (const char* text :
       {"nvfp4:scale=tensor", "nvfp4:scale=tensor,e4m3max=256", "nvfp4:scale=none",
        "nvfp4:scale=given,g=0x4469bd38", "nvfp4:scale=given,g=0x00000001",
        "nvfp4:scale=given,g=0x7f7fffff", "nvfp4:scale=given,g=0x4469bd38,amax=0x40380000"}) {
    const Recipe recipe = parse_recipe(text);
    // Zero, the smallest and largest subnormal, the smallest normal, ordinary values with long
    // fractions, the largest, infinity.
    for (const std::uint32_t amax : {0u, 1u, 0x007fffffu, 0x00800000u, 0x3f800000u, 0x40490fdbu,
                                     0x477fe123u, kFloatMaxBits, kInfBits}) {
      const OuterScale32 outer = oracle_backend().outer_scale(recipe, amax);
      char title[96];
      std::snprintf(title, sizeof title, recipe.needs_amax() ? "%s, amax %08x" : "%s", text, amax);
      const QuantizedTile tile = byte_rows(recipe, 16);
      const std::vector<float> values = check_decode(recipe, tile, {&outer, 1}, title);
      int signs = 0;
      for (std::size_t i = 0; i < 128 * 16; ++i) signs += !same_value(values[i], values[i + 2048]);
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
