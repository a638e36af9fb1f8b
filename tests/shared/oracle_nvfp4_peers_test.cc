// oracle_nvfp4_peers_test.cc: NVFP4, if4 and nvint4 of real projects (../shared/vectors/peers:
// fouroversix 1.0.5 on an H200, torchao 0.19.0) reproduced by the exact oracle with 0 differing
// bits, and the worked examples of spec/nvfp4.md section 8 and spec/more.md section 4.
#include <doctest/doctest.h>

#include <string>

#include "sim/error.h"
#include "tests/shared/oracle_runs.h"
#include "tests/shared/peers.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

constexpr std::int64_t kRows = 68, kPaddedRows = 128, kCols = 256;

// spec/layouts.md section 2, for 128 rows.
std::size_t swizzled(std::size_t r, std::size_t c) {
  return c / 4 * 512 + r % 32 * 16 + r / 32 * 4 + c % 4;
}

// One key of fouroversix: rows zero-padded to 128 before quantization.
void compare_fouroversix(const Peers& peers, const std::string& text, const std::string& key,
                         bool linear_scales) {
  Diff diff("oracle: " + key);
  const Recipe recipe = parse_recipe(text);
  std::vector<float> x = peers.floats("x_bf16");
  x.resize(kPaddedRows * kCols);
  const Tile tile{x.data(), nullptr, kPaddedRows, kCols, kCols};
  const auto outer = measured_scales(oracle_backend(), recipe, tile);
  diff.compare(bit_cast<std::uint32_t>(outer[0].amax),
               bit_cast<std::uint32_t>(peers.floats(key + "_amax")[0]), "amax");
  Quantized got = oracle_run(recipe, tile, outer, true);
  compare_words(diff, packed_words(got.tile.codes), words(peers.bytes(key + "_values")), "byte");
  const std::vector<std::uint8_t> scales = peers.bytes(key + "_scales");
  REQUIRE(scales.size() == got.tile.scales.size());
  for (std::size_t r = 0; r < kPaddedRows; ++r) {
    for (std::size_t c = 0; c < 16; ++c) {
      const std::size_t i = r * 16 + c;
      diff.compare(got.tile.scales[i], scales[linear_scales ? i : swizzled(r, c)], at("scale", i));
    }
  }
  got.values.resize(kRows * kCols);
  compare_floats(diff, bits_of(got.values), bits_of(peers.floats(key + "_deq")), "value");
  diff.check();
}

const std::pair<const char*, const char*> kShapes[] = {{"1d", "_1d"}, {"2d", "_2d"}};

}  // namespace

TEST_CASE("fouroversix: nvfp4 under five selections, 1-D and 2-D") {
  if (!have_shared(kPeers)) return;
  const Peers peers;
  const std::pair<const char*, const char*> selects[] = {{"static6", "static_6"},
                                                         {"static4", "static_4"},
                                                         {"mse", "mse"},
                                                         {"mae", "mae"},
                                                         {"absmax", "abs_max"}};
  for (const auto& [block, suffix] : kShapes) {
    for (const auto& [select, name] : selects) {
      compare_fouroversix(peers,
                          std::string("nvfp4:contract=fouroversix,select=") + select +
                              ",block=" + block + ",scalar-div=rcp",
                          std::string("f46_nvfp4_") + name + suffix, false);
    }
  }
}

TEST_CASE("fouroversix: if4 and nvint4, 1-D and 2-D") {
  if (!have_shared(kPeers)) return;
  const Peers peers;
  const std::pair<const char*, const char*> selects[] = {
      {"mse", "mse"}, {"mae", "mae"}, {"absmax", "abs_max"}};
  for (const auto& [block, suffix] : kShapes) {
    for (const auto& [select, name] : selects) {
      compare_fouroversix(
          peers, std::string("if4:select=") + select + ",block=" + block + ",scalar-div=rcp",
          std::string("f46_if4_") + name + suffix, true);
    }
    compare_fouroversix(peers, std::string("nvint4:block=") + block + ",scalar-div=rcp",
                        std::string("f46_nvint4_static_6") + suffix, true);
  }
}

TEST_CASE("torchao: nvfp4 with and without a tensor scale") {
  if (!have_shared(kPeers)) return;
  const Peers peers;
  const std::vector<float> x = peers.floats("x_bf16");
  const std::pair<const char*, const char*> kinds[] = {
      {"none", "nvfp4:contract=torchao,scale=none"},
      {"pt", "nvfp4:contract=torchao,scale=tensor,scalar-div=exact"}};
  for (const auto& [kind, text] : kinds) {
    const std::string key = std::string("ao_nvfp4_") + kind;
    Diff diff("oracle: " + key);
    const Recipe recipe = parse_recipe(text);
    const Tile tile{x.data(), nullptr, kRows, kCols, kCols};
    const auto outer = measured_scales(oracle_backend(), recipe, tile);
    if (std::string(kind) == "pt") {
      diff.compare(bit_cast<std::uint32_t>(outer[0].g),
                   bit_cast<std::uint32_t>(peers.floats("ao_nvfp4_pt")[0]), "scale");
    }
    const Quantized got = oracle_run(recipe, tile, outer, false);
    compare_words(diff, words(got.tile.scales), words(peers.bytes(key + "_scale")), "scale");
    compare_words(diff, packed_words(got.tile.codes), words(peers.bytes(key + "_q")), "byte");
    diff.check();
  }
}
