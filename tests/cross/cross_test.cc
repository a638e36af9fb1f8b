// cross_test.cc: every backend of this build against the exact oracle on hard blocks of every
// contract and option, the outer scales, and a sabotaged backend that must be reported.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "sim/error.h"
#include "tests/cross/compare.h"
#include "tests/cross/hard_tile.h"
#include "tests/cross/recipes.h"
#include "tests/support/backends.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

struct Run {
  // Distinct blocks, whatever the number of backends: those that were compared, and those in which
  // the recipe refuses an element, which every backend was seen to do.
  std::array<std::int64_t, kKinds> compared{}, refused{};
  Differences found;
  std::int64_t blocks() const { return std::accumulate(compared.begin(), compared.end(), 0ll); }
  std::int64_t refusals() const { return std::accumulate(refused.begin(), refused.end(), 0ll); }
};

bool refuses(const Backend& backend, const Recipe& recipe, const HardTile& hard, std::int64_t row) {
  try {
    (void)quantized(backend, recipe, hard.tile, hard.outer);
  } catch (const RefusedInput& e) {
    // Of a 2-D block the first band counts, whose rows are looked at in no stated order.
    const std::int64_t band = recipe.format.block_rows;
    if (e.row() / band == row / band) return true;
    std::printf("DIFFERS %s on %s: refuses row %lld, not %lld\n", recipe.text.c_str(),
                name_of(backend).c_str(), static_cast<long long>(e.row()),
                static_cast<long long>(row));
    return false;
  }
  std::printf("DIFFERS %s on %s: does not refuse row %lld\n", recipe.text.c_str(),
              name_of(backend).c_str(), static_cast<long long>(row));
  return false;
}

// One tile through the oracle and the backends; false where the recipe refuses it, as everyone then
// does, at one row.
bool compare_tile(const Recipe& recipe, const HardTile& hard,
                  const std::vector<const Backend*>& backends, Print print, Differences& found) {
  Quantized want;
  try {
    want = quantized(oracle_backend(), recipe, hard.tile, hard.outer);
  } catch (const RefusedInput& refusal) {
    for (const Backend* backend : backends) {
      found.refusals += !refuses(*backend, recipe, hard, refusal.row());
    }
    return false;
  }
  for (const Backend* backend : backends) {
    const std::optional<Quantized> got = try_quantized(*backend, recipe, hard.tile, hard.outer);
    if (got.has_value()) {
      found += compare(*backend, recipe, hard.tile, want, *got, print);
    } else {
      std::printf("DIFFERS %s on %s: refuses\n", recipe.text.c_str(), name_of(*backend).c_str());
      ++found.refusals;
    }
  }
  return true;
}

// Whole rounds over the kinds of hard blocks, until there are at least `blocks`, through the oracle
// and the backends. A tile in which an element is refused is taken apart, so that its other blocks
// are compared.
Run against_oracle(const std::string& text, std::int64_t blocks, bool binary64,
                   const std::vector<const Backend*>& backends, Print print = Print::kFirst) {
  const Recipe recipe = parse_recipe(text);
  BlockSource source(seed_of(text) + (binary64 ? 1 : 0));
  const std::int64_t height = recipe.format.block_rows;
  const std::int64_t rows = recipe.is_2d() ? height : 2;
  const std::int64_t across = blocks_per_row(recipe);
  Run run;
  while (run.blocks() + run.refusals() < blocks) {
    for (std::size_t k = 0; k < kKinds; ++k) {
      const HardTile hard = hard_tile(source, recipe, static_cast<Kind>(k), rows, binary64);
      if (compare_tile(recipe, hard, backends, print, run.found)) {
        run.compared[k] += rows * across;
        continue;
      }
      for (std::int64_t row = 0; row < rows; row += height) {
        for (std::int64_t b = 0; b < across; ++b) {
          const bool accepted =
              compare_tile(recipe, one_block(recipe, hard, row, b), backends, print, run.found);
          (accepted ? run.compared : run.refused)[k] += height;
        }
      }
    }
  }
  return run;
}

void check(const std::vector<std::string>& recipes, std::int64_t blocks) {
  for (const std::string& text : recipes) {
    const Recipe recipe = parse_recipe(text);
    const std::vector<const Backend*> backends = backends_for(recipe);
    REQUIRE(!backends.empty());
    for (const bool binary64 : {false, true}) {
      if (binary64 && !recipe.casts_f64_directly()) continue;
      const Run run = against_oracle(text, blocks, binary64, backends);
      const Differences& d = run.found;
      std::printf(
          "%-66s %s %7lld blocks x %d, %lld scales, %lld codes, %lld values, %lld choices "
          "differ; %lld refused\n",
          text.c_str(), binary64 ? "f64" : "f32", static_cast<long long>(run.blocks()),
          static_cast<int>(backends.size()), static_cast<long long>(d.scales),
          static_cast<long long>(d.codes), static_cast<long long>(d.values),
          static_cast<long long>(d.choices), static_cast<long long>(run.refusals()));
      std::fflush(stdout);
      // A contract that refuses signs of zero leaves few hard blocks; it is here with a sign too.
      CHECK_MESSAGE(run.blocks() >= (run.refusals() == 0 ? blocks : blocks / 64), text);
      for (std::size_t k = 0; k < kKinds; ++k) {
        const char* kind = name_of(static_cast<Kind>(k));
        CHECK_MESSAGE(run.compared[k] + run.refused[k] >= blocks_per_row(recipe),
                      text << " never met a block: " << kind);
      }
      CHECK_MESSAGE(d.blocks == run.blocks() * std::ssize(backends), text);
      CHECK_MESSAGE(d.total() == 0, text);
    }
  }
}

// Wrong on purpose: the reference, but the lowest bit of one code of every full panel of 16 blocks
// is flipped, as a fault in one lane of a vector kernel would.
class OneWrongLane final : public Backend {
 public:
  std::string_view name() const override { return "one wrong lane"; }
  Support available() const override { return {}; }
  Support supports(const Recipe&) const override { return {}; }
  OuterScale32 outer_scale(const Recipe& recipe, std::uint32_t amax_bits) const override {
    return right().outer_scale(recipe, amax_bits);
  }
  void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                QuantizedTile& out) const override {
    right().quantize(recipe, tile, outer, out);
    for (std::int64_t row = 0; row < out.rows; ++row) {
      for (std::int64_t panel = 0; panel + 16 <= out.blocks_per_row; panel += 16) {
        const std::int64_t column = (panel + 11) * recipe.format.block + 3;
        out.codes[static_cast<std::size_t>(row * out.padded_cols + column)] ^= 1u;
        ++flipped;
      }
    }
  }
  void dequantize(const Recipe& recipe, const QuantizedTile& tile,
                  std::span<const OuterScale32> outer, float* values,
                  std::int64_t stride) const override {
    right().dequantize(recipe, tile, outer, values, stride);
  }
  mutable std::int64_t flipped = 0;

 private:
  static const Backend& right() { return *cpu_backends().back(); }
};

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("every backend equals the exact oracle on hard blocks of every contract") {
  check(contract_recipes(), 1040);
}

TEST_CASE("every backend equals the exact oracle under every option") {
  check(option_recipes(), 416);
}

TEST_CASE("a code that is wrong in full panels of 16 blocks only is reported") {
  for (const char* text : {"mxfp4", "mxfp8e4m3", "nvfp4", "nvfp4:scale=row", "nvfp4:block=2d",
                           "hif4", "hif4:width=5"}) {
    const OneWrongLane wrong;
    const Run run = against_oracle(text, 1, false, {&wrong}, Print::kNothing);
    CAPTURE(text);
    CHECK(wrong.flipped > 0);
    CHECK(run.found.codes == wrong.flipped);
    CHECK(run.found.scales == 0);
    CHECK(run.found.values > 0);
  }
}

TEST_CASE("the hard blocks tell these options from their neighbours") {
  // Were two settings equal on all hard blocks, the tests above could not see one taken for the
  // other. Both sides are the oracle.
  const char* const pairs[][2] = {
      {"mxfp4:contract=torchao-floor", "mxfp4:contract=torchao-ceil"},
      {"mxfp4:contract=torchao-floor", "mxfp4:contract=torchao-even"},
      {"mxfp4:contract=torchao-ceil", "mxfp4:contract=torchao-rceil"},
      {"mxfp4:contract=torchao-rceil", "mxfp4:contract=torchao-rceil,scale-arith=field"},
      {"mxfp8e4m3:contract=torchao-rceil", "mxfp8e4m3:contract=torchao-rceil,scale-arith=field"},
      {"mxfp4:contract=torchao-floor", "mxfp4:contract=torchao-floor,ties=away"},
      {"mxfp4:contract=torchao-floor", "mxfp4:contract=torchao-floor,ties=zero"},
      {"mxfp4:contract=torchao-floor,ties=zero", "mxfp4:contract=torchao-floor,ties=trunc"},
      {"mxfp8e5m2:contract=torchao-floor", "mxfp8e5m2:contract=torchao-floor,ties=away"},
      {"mxfp4:contract=torchao-floor", "mxfp4:contract=torchao-floor,nan=drop"},
      {"mxfp4:contract=torchao-floor", "mxfp4:contract=torchao-floor,inf=254"},
      {"mxfp4:contract=torchao-even", "mxfp4:contract=torchao-even,top=254"},
      {"mxfp4:contract=torchao-floor", "mxfp4:contract=torchao-floor,zero-sign=drop-input"},
      {"mxfp4:contract=torchao-floor,zero-sign=drop-input",
       "mxfp4:contract=torchao-floor,zero-sign=drop"},
      {"mxfp4:contract=torchao-floor", "mxfp4:contract=torchao-floor,zero-sign=set"},
      {"nvfp4:contract=te", "nvfp4:contract=te,e4m3max=256"},
      {"nvfp4:contract=te,scale=none", "nvfp4:contract=te,scale=none,neg-zero=drop"},
      {"nvfp4:contract=te,scale=given,g=0x4469bd38", "nvfp4:contract=te,scale=given,g=0x4469bd39"},
      {"nvfp4:contract=te,scale=given,g=0x4469bd38,amax=0x40380000",
       "nvfp4:contract=te,scale=given,g=0x4469bd38"},
      {"nvfp4:contract=te,scale=none", "nvfp4:contract=te,scale=none,block=2d"},
      {"hif4:contract=gcc", "hif4:contract=amct"},
      {"hif4:contract=amct", "hif4:contract=a6"},
      {"hif4:contract=gcc", "hif4:contract=gcc,thr=fp32"},
      {"hif4:contract=gcc,thr=fp32", "hif4:contract=gcc,thr=bf16"},
      {"hif4:contract=gcc", "hif4:contract=gcc,elem=fp32"},
      {"hif4:contract=gcc,elem=fp32", "hif4:contract=gcc,elem=bf16"},
      {"hif4:contract=gcc", "hif4:contract=gcc,ties=even"},
      {"hif4:contract=gcc", "hif4:contract=gcc,e6m2=away"},
      {"hif4:contract=gcc", "hif4:contract=gcc,cast=bf16"},
      {"hif4:contract=gcc", "hif4:contract=gcc,overflow=nan"},
      {"hif4:contract=gcc", "hif4:contract=gcc,zero=ff"},
      {"hif4:contract=gcc", "hif4:contract=gcc,neg-zero=keep"},
      {"hif4:contract=gcc", "hif4:contract=gcc,nonfinite=group-nan"},
      {"hif4:contract=gcc", "hif4:contract=gcc,search=level1"},
      {"hif4:contract=gcc,search=level1", "hif4:contract=gcc,search=level1-3.5"},
  };
  for (const auto& [a, b] : pairs) {
    const Recipe first = parse_recipe(a);
    const Recipe second = parse_recipe(b);
    BlockSource source(5);
    Differences total;
    for (int k = 0; total.blocks < 4160; k = (k + 1) % kKinds) {
      const HardTile hard = hard_tile(source, first, static_cast<Kind>(k), 16, false);
      // Part of the settings enter through the outer scale only, so each side has its own.
      std::vector<OuterScale32> outer;
      for (const OuterScale32& o : hard.outer) {
        outer.push_back(oracle_backend().outer_scale(second, bit_cast<std::uint32_t>(o.amax)));
      }
      const Quantized x = quantized(oracle_backend(), first, hard.tile, hard.outer);
      const Quantized y = quantized(oracle_backend(), second, hard.tile, outer);
      total += compare(oracle_backend(), second, hard.tile, x, y, Print::kNothing);
    }
    CHECK_MESSAGE(total.total() > 0, first.text << " and " << second.text);
  }
}

TEST_CASE("nonfinite=error refuses NaN and infinity on every backend and the oracle") {
  const Recipe recipe = parse_recipe("hif4:contract=gcc,nonfinite=error");
  std::vector<const Backend*> backends = backends_for(recipe);
  backends.push_back(&oracle_backend());
  const OuterScale32 none;
  for (const std::uint32_t special : {kQuietNanBits, kInfBits, kInfBits | kSignBit}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{63}, std::size_t{700}}) {
      std::vector<float> x(1024, 1.0f);
      for (const Backend* backend : backends) {
        QuantizedTile out;
        CHECK_NOTHROW(backend->quantize(recipe, {x.data(), nullptr, 2, 512, 512}, {&none, 1}, out));
      }
      x[at] = bit_cast<float>(special);
      for (const Backend* backend : backends) {
        QuantizedTile out;
        try {
          backend->quantize(recipe, {x.data(), nullptr, 2, 512, 512}, {&none, 1}, out);
          FAIL_CHECK(std::string(backend->name()) << " accepted " << special);
        } catch (const Error& e) {
          CHECK(e.kind() == ErrorKind::kData);
        }
      }
    }
  }
}

TEST_SUITE_END();

TEST_SUITE_BEGIN("full");

TEST_CASE("every backend equals the exact oracle on 10^5 hard blocks of every contract") {
  check(contract_recipes(), 100000);
}

TEST_SUITE_END();
