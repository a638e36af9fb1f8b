// cross_test.cc: every backend of this build against the exact oracle on hard blocks of every
// contract and option, and against "reference" on awkward block counts and ragged tails.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "formats/lane.h"
#include "sim/error.h"
#include "tests/cross/compare.h"
#include "tests/cross/hard_blocks.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

const char* const kMxFormats[] = {"mxfp4", "mxfp6e2m3", "mxfp6e3m2", "mxfp8e4m3", "mxfp8e5m2"};

// Every contract of every format, and the NVFP4 settings that change the arithmetic.
std::vector<std::string> contract_recipes() {
  std::vector<std::string> list;
  for (const char* format : kMxFormats) {
    for (const ContractInfo& c : contracts_of(Family::kMx)) {
      list.push_back(std::string(format) + ":contract=" + std::string(c.name));
    }
  }
  for (const ContractInfo& c : contracts_of(Family::kNvfp4)) {
    const std::string contract = "nvfp4:contract=" + std::string(c.name);
    list.push_back(contract);
    list.push_back(contract + ",scale=row");
    list.push_back(contract + ",scale=none");
    list.push_back(contract + ",scale=given,g=0x45280000");  // 2688
    list.push_back(contract + ",block=2d");
  }
  for (const ContractInfo& c : contracts_of(Family::kHif4)) {
    list.push_back("hif4:contract=" + std::string(c.name));
  }
  return list;
}

// Single settings on top of a contract.
std::vector<std::string> option_recipes() {
  std::vector<std::string> list;
  for (const char* format : kMxFormats) {
    const std::string f = format;
    for (const char* keys :
         {"torchao-floor,ties=away", "torchao-floor,ties=zero", "torchao-ceil,ties=trunc",
          "torchao-floor,zero-sign=drop-input", "torchao-floor,zero-sign=drop",
          "torchao-even,zero-sign=set", "torchao-rceil,top=254", "torchao-rceil,nan=drop",
          "torchao-floor,nan=drop,inf=254,ties=away", "torchao-even,top=254,inf=254",
          "torchao-rceil,scale-arith=field", "torchao-rceil,scale-arith=div",
          "torchao-rceil,nan=drop,inf=254,top=254,zero-sign=drop"}) {
      list.push_back(f + ":contract=" + keys);
    }
  }
  const std::string te = "nvfp4:contract=te";
  for (const char* keys :
       {",e4m3max=256", ",scale=row,e4m3max=256", ",neg-zero=drop", ",scale=none,neg-zero=drop",
        ",scale=none,block=2d", ",block=2d,e4m3max=256", ",amax=0x40380000",
        ",scale=given,g=0x4469bd38,amax=0x40380000", ",scale=given,g=0x00000001",
        ",scale=given,g=0x7f7fffff", ",scale=given,g=0x3f800001,block=2d",
        ",scale=given,g=0x45280000,amax=0x3f800000,e4m3max=256"}) {
    list.push_back(te + keys);
  }
  for (const char* keys : {"gcc,neg-zero=keep",
                           "gcc,width=3",
                           "gcc,width=5",
                           "amct,width=5",
                           "a6,width=3",
                           "gcc,e6m2=away",
                           "gcc,cast=bf16",
                           "gcc,search=level1",
                           "gcc,search=level1-3.5",
                           "a6,search=level1",
                           "gcc,thr=fp32,elem=fp32",
                           "gcc,thr=bf16",
                           "gcc,elem=bf16",
                           "gcc,thr=fp32",
                           "gcc,ties=even",
                           "a6,ties=up",
                           "amct,ties=even,overflow=nan,zero=ff",
                           "a6,overflow=nan,zero=ff",
                           "gcc,overflow=nan",
                           "gcc,zero=ff",
                           "gcc,nonfinite=group-nan",
                           "amct,nonfinite=saturate",
                           "amct,cast=bf16",
                           "amct,neg-zero=keep",
                           "gcc,overflow=nan,zero=ff,neg-zero=keep",
                           "a6,nonfinite=group-nan,neg-zero=keep"}) {
    list.push_back(std::string("hif4:contract=") + keys);
  }
  return list;
}

// FNV-1a of the recipe: each recipe meets blocks of its own, the same in every run.
std::uint64_t seed_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// A tile of hard blocks and the scales it is quantized with.
struct HardTile {
  std::vector<float> f32;
  std::vector<double> f64;
  Tile tile;
  std::vector<OuterScale32> outer;
};

// `kind` of all blocks; a row (or band) has 8 blocks. NVFP4 outer scales come from an amax that is
// the tile's own or an unrelated one, since a block meets any tensor.
HardTile hard_tile(BlockSource& source, const Recipe& recipe, Kind kind, std::int64_t rows,
                   bool binary64) {
  constexpr std::int64_t kBlocksPerRow = 8;
  const std::int64_t size = recipe.format.block;
  const std::int64_t cols = kBlocksPerRow * size;
  HardTile hard;
  hard.f32.resize(static_cast<std::size_t>(rows * cols));
  const Backend& oracle = oracle_backend();
  std::vector<float> g(static_cast<std::size_t>(rows), 1.0f);
  if (recipe.family == Family::kNvfp4) {
    const bool by_row = recipe.nvfp4.scale == OuterScale::kRow;
    for (std::int64_t row = 0; row < (by_row ? rows : 1); ++row) {
      const int e = source.below(8) == 0 ? static_cast<int>(source.below(277)) - 149
                                         : static_cast<int>(source.below(20)) - 10;
      const float amax =
          source.below(16) == 0
              ? 0.0f
              : std::ldexp(1.0f + std::ldexp(static_cast<float>(source.below(128)), -7), e);
      hard.outer.push_back(oracle.outer_scale(recipe, bit_cast<std::uint32_t>(amax)));
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      g[static_cast<std::size_t>(row)] =
          hard.outer[by_row ? static_cast<std::size_t>(row) : 0].encode_scale;
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t b = 0; b < kBlocksPerRow; ++b) {
      fill_block(source, kind, recipe, g[static_cast<std::size_t>(row)],
                 std::span(hard.f32).subspan(static_cast<std::size_t>(row * cols + b * size),
                                             static_cast<std::size_t>(size)));
    }
  }
  if (binary64) {
    hard.f64 = widen(source, hard.f32);
    for (std::size_t i = 0; i < hard.f64.size(); ++i) hard.f32[i] = static_cast<float>(hard.f64[i]);
  }
  hard.tile = {hard.f32.data(), binary64 ? hard.f64.data() : nullptr, rows, cols, cols};
  if (recipe.family != Family::kNvfp4) {
    hard.outer = {OuterScale32{}};
  } else if (source.coin()) {
    hard.outer = measured_scales(oracle, recipe, hard.tile);
  }
  return hard;
}

// At least `blocks` hard blocks of all kinds through the oracle and every backend.
Differences against_oracle(const std::string& text, std::int64_t blocks, bool binary64) {
  const Recipe recipe = parse_recipe(text);
  BlockSource source(seed_of(text) + (binary64 ? 1 : 0));
  const std::int64_t rows = recipe.is_2d() ? 16 : 2;
  Differences total;
  std::int64_t done = 0;
  const std::vector<const Backend*> backends = backends_for(recipe);
  REQUIRE(!backends.empty());
  for (int k = 0; done < blocks; k = (k + 1) % kKinds) {
    const HardTile hard = hard_tile(source, recipe, static_cast<Kind>(k), rows, binary64);
    const Outcome want = run_backend(oracle_backend(), recipe, hard.tile, hard.outer);
    for (const Backend* backend : backends) {
      const Outcome got = run_backend(*backend, recipe, hard.tile, hard.outer);
      total += compare(*backend, recipe, hard.tile, want, got);
    }
    done += rows * 8;
  }
  return total;
}

void check(const std::vector<std::string>& recipes, std::int64_t blocks) {
  for (const std::string& text : recipes) {
    const bool mx = parse_recipe(text).family == Family::kMx;
    for (const bool binary64 : {false, true}) {
      if (binary64 && !mx) continue;
      const Differences d = against_oracle(text, blocks, binary64);
      std::printf("%-66s %s %8lld blocks, %lld scales, %lld codes, %lld values differ\n",
                  text.c_str(), binary64 ? "f64" : "f32", static_cast<long long>(d.blocks),
                  static_cast<long long>(d.scales), static_cast<long long>(d.codes),
                  static_cast<long long>(d.values));
      std::fflush(stdout);
      CHECK_MESSAGE(d.blocks >= blocks, text);
      CHECK_MESSAGE(d.total() == 0, text);
    }
  }
}

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("every backend equals the exact oracle on hard blocks of every contract") {
  check(contract_recipes(), 1040);
}

TEST_CASE("every backend equals the exact oracle under every option") {
  check(option_recipes(), 416);
}

TEST_CASE("the hard blocks tell every option from its neighbour") {
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
      const Outcome x = run_backend(oracle_backend(), first, hard.tile, hard.outer);
      const Outcome y = run_backend(oracle_backend(), second, hard.tile, outer);
      total += compare(oracle_backend(), second, hard.tile, x, y, Print::kNothing);
    }
    CHECK_MESSAGE(total.total() > 0, first.text << " and " << second.text);
  }
}

TEST_CASE("every backend derives the outer scale as the exact oracle does") {
  std::int64_t compared = 0, differing = 0;
  for (const char* text :
       {"nvfp4:contract=te", "nvfp4:contract=te,e4m3max=256", "nvfp4:contract=te,scale=row",
        "nvfp4:contract=te,scale=none", "nvfp4:contract=te,scale=given,g=0x4469bd38",
        "nvfp4:contract=te,amax=0x40380000"}) {
    const Recipe recipe = parse_recipe(text);
    BlockSource source(3);
    for (int i = 0; i < 20000; ++i) {
      std::uint32_t amax = i < 600 ? static_cast<std::uint32_t>(i / 2) << 23 : source.bits();
      if (i < 600 && i % 2 == 1) amax += 1;
      amax = std::min(amax & kMagnitudeMask, kInfBits);
      const OuterScale32 want = oracle_backend().outer_scale(recipe, amax);
      for (const Backend* backend : backends_for(recipe)) {
        const OuterScale32 got = backend->outer_scale(recipe, amax);
        ++compared;
        const bool same =
            bit_cast<std::uint32_t>(got.amax) == bit_cast<std::uint32_t>(want.amax) &&
            bit_cast<std::uint32_t>(got.encode_scale) == bit_cast<std::uint32_t>(want.encode_scale);
        if (same) continue;
        if (++differing <= 5) {
          std::printf("DIFFERS %s on %s, amax %08x: want g %08x, got %08x\n", text,
                      std::string(backend->name()).c_str(), amax,
                      bit_cast<std::uint32_t>(want.encode_scale),
                      bit_cast<std::uint32_t>(got.encode_scale));
        }
      }
    }
  }
  CHECK(compared > 0);
  CHECK(differing == 0);
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

TEST_CASE("every backend equals reference on awkward block counts, ragged tails and strides") {
  REQUIRE(cpu_backends().back()->name() == "reference");
  const Backend& reference = *cpu_backends().back();
  std::vector<std::string> recipes = contract_recipes();
  for (const char* text : {"mxfp4:contract=torchao-rceil,nan=drop", "hif4:contract=gcc,width=5",
                           "nvfp4:contract=te,block=2d,scale=none"}) {
    recipes.push_back(text);
  }
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
        const Outcome want = run_backend(reference, recipe, tile, outer);
        // Small shapes go through the oracle too, which pads by itself.
        if (rows * cols <= 4096) {
          const Outcome exact = run_backend(oracle_backend(), recipe, tile, outer);
          total += compare(reference, recipe, tile, exact, want);
        }
        for (const Backend* backend : backends_for(recipe)) {
          if (backend == &reference) continue;
          total +=
              compare(*backend, recipe, tile, want, run_backend(*backend, recipe, tile, outer));
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

TEST_SUITE_BEGIN("full");

TEST_CASE("every backend equals the exact oracle on 10^5 hard blocks of every contract") {
  check(contract_recipes(), 100000);
}

TEST_SUITE_END();
