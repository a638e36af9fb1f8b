// outer_scale_test.cc: the outer scale of every recipe that measures a maximum, and blocks under
// the outer scales of extreme tensors (zero, subnormal, huge, infinite), backends against the exact
// oracle.
#include <doctest/doctest.h>

#include <algorithm>

#include "sim/error.h"
#include "tests/cross/compare.h"
#include "tests/cross/hard_blocks.h"
#include "tests/cross/recipes.h"
#include "tests/support/backends.h"
#include "tests/support/floats.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

std::vector<std::string> measuring_recipes() {
  std::vector<std::string> list = contract_recipes();
  for (const std::string& text : option_recipes()) list.push_back(text);
  std::erase_if(list, [](const std::string& text) {
    const Recipe recipe = parse_recipe(text);
    return !recipe.has_outer() || !recipe.needs_amax();
  });
  return list;
}

// Elements whose magnitudes are at most `amax`, which the first block has. Zero blocks, blocks of
// -0, of the smallest subnormal, of one element and of any bits.
std::vector<float> blocks_below(BlockSource& source, std::uint32_t amax, std::int64_t rows,
                                std::int64_t blocks, std::int64_t size) {
  std::vector<float> x(static_cast<std::size_t>(rows * blocks * size));
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    const std::int64_t kind = i / size % blocks % 6;
    std::uint32_t magnitude = 0;
    if (kind == 0) magnitude = i % size == 0 ? amax : source.bits() & kMagnitudeMask;
    if (kind == 1) magnitude = 0;
    if (kind == 3) magnitude = 1;
    if (kind == 4) magnitude = i % size == 5 ? source.bits() & kMagnitudeMask : 0;
    if (kind == 5) magnitude = source.bits() & kMagnitudeMask;
    const std::uint32_t sign = kind == 2 || (kind > 2 && source.coin()) ? kSignBit : 0;
    x[static_cast<std::size_t>(i)] = bit_cast<float>(std::min(magnitude, amax) | sign);
  }
  return x;
}

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("every backend derives the outer scale as the exact oracle does") {
  std::int64_t compared = 0, differing = 0;
  for (const std::string& text : measuring_recipes()) {
    const Recipe recipe = parse_recipe(text);
    BlockSource source(3);
    for (int i = 0; i < 1200; ++i) {
      std::uint32_t amax = i < 600 ? static_cast<std::uint32_t>(i / 2) << 23 : source.bits();
      if (i < 600 && i % 2 == 1) amax += 1;
      amax = std::min(amax & kMagnitudeMask, kInfBits);
      const OuterScale32 want = oracle_backend().outer_scale(recipe, amax);
      for (const Backend* backend : backends_for(recipe)) {
        const OuterScale32 got = backend->outer_scale(recipe, amax);
        ++compared;
        if (same_float(got.amax, want.amax) && same_float(got.g, want.g)) continue;
        if (++differing <= 5) {
          std::printf("DIFFERS %s on %s, amax %08x: want g %08x, got %08x\n", text.c_str(),
                      name_of(*backend).c_str(), amax, bit_cast<std::uint32_t>(want.g),
                      bit_cast<std::uint32_t>(got.g));
        }
      }
    }
  }
  std::printf("outer scales: %lld compared, %lld differ\n", static_cast<long long>(compared),
              static_cast<long long>(differing));
  CHECK(compared > 0);
  CHECK(differing == 0);
}

TEST_CASE("every backend equals the exact oracle in tensors of an extreme maximum") {
  Differences total;
  for (const std::string& text : measuring_recipes()) {
    const Recipe recipe = parse_recipe(text);
    const std::int64_t rows = recipe.is_2d() ? recipe.format.block_rows : 1;
    const std::int64_t blocks = rows >= 64 ? 6 : 18, size = recipe.format.block;
    BlockSource source(29);
    for (const std::uint32_t amax :
         {0x00000000u, 0x00000001u, 0x00000540u, 0x00002a00u, 0x0007fff3u, 0x007fffffu, 0x00800000u,
          0x01c00000u, 0x06800000u, 0x38d1b717u, 0x7d000001u, 0x7e2aaaabu, 0x7f000000u, 0x7f7fffffu,
          0x7f800000u}) {
      const std::vector<float> x = blocks_below(source, amax, rows, blocks, size);
      const std::int64_t cols = blocks * size;
      const Tile tile{x.data(), nullptr, rows, cols, cols};
      const std::vector<OuterScale32> outer(
          recipe.scales_rows() ? static_cast<std::size_t>(rows) : 1,
          oracle_backend().outer_scale(recipe, amax));
      const std::optional<Quantized> want = try_quantized(oracle_backend(), recipe, tile, outer);
      for (const Backend* backend : backends_for(recipe)) {
        const std::optional<Quantized> got = try_quantized(*backend, recipe, tile, outer);
        if (want.has_value() != got.has_value()) {
          std::printf("DIFFERS %s on %s, amax %08x: %s\n", text.c_str(), name_of(*backend).c_str(),
                      amax, want.has_value() ? "refused" : "not refused");
          ++total.refusals;
        } else if (want.has_value()) {
          total += compare(*backend, recipe, tile, *want, *got);
        }
      }
    }
  }
  std::printf(
      "extreme tensors: %lld blocks, %lld scales, %lld codes, %lld values, %lld choices, "
      "%lld refusals differ\n",
      static_cast<long long>(total.blocks), static_cast<long long>(total.scales),
      static_cast<long long>(total.codes), static_cast<long long>(total.values),
      static_cast<long long>(total.choices), static_cast<long long>(total.refusals));
  CHECK(total.blocks > 0);
  CHECK(total.total() == 0);
}

TEST_SUITE_END();
