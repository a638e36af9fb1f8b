// shapes_test.cc: every backend of this build against "reference" on awkward block counts, ragged
// tails and strides; small shapes also against the exact oracle.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "sim/error.h"
#include "tests/cross/compare.h"
#include "tests/cross/hard_blocks.h"
#include "tests/cross/recipes.h"
#include "tests/support/backends.h"

using namespace fp4scope;
using namespace fp4scope::test;

TEST_SUITE_BEGIN("cross");

TEST_CASE("every backend equals reference on awkward block counts, ragged tails and strides") {
  REQUIRE(cpu_backends().back()->name() == "reference");
  const Backend& reference = *cpu_backends().back();
  std::vector<std::string> recipes = contract_recipes();
  // Options hardly change how rows are cut: every eighth stands for them.
  const std::vector<std::string> options = option_recipes();
  for (std::size_t i = 0; i < options.size(); i += 8) recipes.push_back(options[i]);
  Differences total;
  for (const std::string& text : recipes) {
    const Recipe recipe = parse_recipe(text);
    const std::int64_t size = recipe.format.block;
    BlockSource source(17);
    for (const std::int64_t count : {0, 1, 2, 7, 8, 9, 15, 16, 17, 33, 4099}) {
      // One long row, one block per row, and rows that end inside a block.
      const std::int64_t shapes[][2] = {{1, count * size},
                                        {count, size},
                                        {count % 64, size * 3 + 1},
                                        {3, std::max<std::int64_t>(count * size - 1, 0)},
                                        {2, count},
                                        {count % 40, 2 * size - size / 2}};
      for (const auto& [rows, cols] : shapes) {
        if (count == 4099 && cols * rows > (std::int64_t{1} << 18) && rows > 1) continue;
        const std::int64_t stride = cols + 5;
        std::vector<float> x(static_cast<std::size_t>(rows * stride + 1));
        for (std::size_t i = 0; i + static_cast<std::size_t>(size) <= x.size();
             i += static_cast<std::size_t>(size)) {
          fill_block(source, static_cast<Kind>(source.below(kKinds)), recipe, 1.0f,
                     std::span(x).subspan(i, static_cast<std::size_t>(size)));
        }
        std::vector<double> wide;
        const bool binary64 = recipe.casts_f64_directly() && source.below(3) == 0;
        if (binary64) wide = widen(source, x);
        if (binary64)
          std::transform(wide.begin(), wide.end(), x.begin(),
                         [](double d) { return static_cast<float>(d); });
        const Tile tile{x.data(), binary64 ? wide.data() : nullptr, rows, cols, stride};
        const std::vector<OuterScale32> outer = measured_scales(reference, recipe, tile);
        const std::optional<Quantized> accepted = try_quantized(reference, recipe, tile, outer);
        if (!accepted) {  // a contract that says nothing about such input: everyone refuses it
          std::vector<const Backend*> others = backends_for(recipe);
          if (rows * cols <= 4096) others.push_back(&oracle_backend());
          for (const Backend* backend : others) {
            if (!try_quantized(*backend, recipe, tile, outer)) continue;
            std::printf("DIFFERS %s on %s: does not refuse %lld x %lld\n", text.c_str(),
                        name_of(*backend).c_str(), static_cast<long long>(rows),
                        static_cast<long long>(cols));
            ++total.refusals;
          }
          continue;
        }
        const Quantized& want = *accepted;
        // Small shapes go through the oracle too, which pads by itself.
        if (rows * cols <= 4096) {
          const Quantized exact = quantized(oracle_backend(), recipe, tile, outer);
          total += compare(reference, recipe, tile, exact, want);
        }
        for (const Backend* backend : backends_for(recipe)) {
          if (backend == &reference) continue;
          total += compare(*backend, recipe, tile, want, quantized(*backend, recipe, tile, outer));
        }
      }
    }
  }
  std::printf("block counts and tails: %lld blocks, %lld scales, %lld codes, %lld values differ\n",
              static_cast<long long>(total.blocks), static_cast<long long>(total.scales),
              static_cast<long long>(total.codes), static_cast<long long>(total.values));
  CHECK(total.blocks > 0);
  CHECK(total.total() == 0);
}

TEST_SUITE_END();
