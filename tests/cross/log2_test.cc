// log2_test.cc: scale rules that round a logarithm, against the exact oracle around every step of
// every binade: the block maxima whose fraction is next to 0, to sqrt(2) - 1 and to 1, where the
// binary32 logarithm rounds to or across the step. For the rule on BF16 all BF16 maxima.
#include <doctest/doctest.h>

#include "tests/cross/compare.h"
#include "tests/support/backends.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

constexpr std::uint32_t kReach = 0x60;  // the farthest threshold is 0x58 from its step

std::vector<std::uint32_t> fractions(bool is_bf16) {
  std::vector<std::uint32_t> list;
  if (is_bf16) {
    for (std::uint32_t f = 0; f < 128; ++f) list.push_back(f << 16);
    return list;
  }
  for (std::uint32_t i = 0; i < kReach; ++i) {
    list.push_back(i);
    list.push_back(0x7fffffu - i);
    list.push_back(0x3504f3u - i);
    list.push_back(0x3504f4u + i);
  }
  return list;
}

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("logarithm rules around every step of every binade") {
  Differences total;
  for (const char* text :
       {"mxfp4:contract=microx-torch", "mxfp4:contract=torchao-floor,scale-rule=ceil-log2",
        "mxfp4:contract=ggml-cuda-act", "mxfp4:contract=mlx-metal", "mxfp4:contract=mlx-cpu"}) {
    const Recipe recipe = parse_recipe(text);
    const bool is_bf16 = recipe.mx.dtype == DType16::kBf16;
    const std::vector<std::uint32_t> list = fractions(is_bf16);
    const auto rows = std::ssize(list);
    const std::int64_t size = recipe.format.block;
    const OuterScale32 none;
    for (std::uint32_t field = 0; field < 255; ++field) {
      std::vector<float> x(static_cast<std::size_t>(rows * size));
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::uint32_t bits = field << 23 | list[static_cast<std::size_t>(r)];
        x[static_cast<std::size_t>(r * size + r % size)] = bit_cast<float>(bits);
      }
      const Tile tile{x.data(), nullptr, rows, size, size};
      const Quantized want = quantized(oracle_backend(), recipe, tile, {&none, 1});
      for (const Backend* backend : backends_for(recipe)) {
        total +=
            compare(*backend, recipe, tile, want, quantized(*backend, recipe, tile, {&none, 1}));
      }
    }
  }
  std::printf("logarithm rules: %lld blocks, %lld scales, %lld codes, %lld values differ\n",
              static_cast<long long>(total.blocks), static_cast<long long>(total.scales),
              static_cast<long long>(total.codes), static_cast<long long>(total.values));
  CHECK(total.blocks > 0);
  CHECK(total.total() == 0);
}

TEST_SUITE_END();
