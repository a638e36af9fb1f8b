// peers_nvfp4_test.cc: NVFP4, if4 and nvint4 outputs of the real projects (torchao 0.19.0 on a CPU,
// fouroversix 1.0.5 on an H200; ../shared/vectors/README.md section 6) reproduced by every CPU
// backend with 0 differing bits in codes, scales, tensor maximum and decoded values.
#include <string>

#include "sim/backend.h"
#include "tests/shared/peers.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::available_backends;
using test::Diff;
using test::kPeers;
using test::Peers;

constexpr std::int64_t kRows = 68, kCols = 256, kBlocks = kCols / 16;
constexpr std::int64_t kPaddedRows = 128;  // fouroversix pads before it quantizes

void compare_codes(Diff& diff, const QuantizedTile& got, const std::vector<std::uint8_t>& packed) {
  REQUIRE(got.codes.size() == 2 * packed.size());
  for (std::size_t i = 0; i < got.codes.size(); ++i) {
    diff.compare(got.codes[i], packed[i / 2] >> (i % 2 * 4) & 15u, "code " + std::to_string(i));
  }
}

// spec/layouts.md section 2 with cols = 16, a multiple of 4.
std::size_t offset_128x4(std::size_t r, std::size_t c) {
  return ((r / 128) * (kBlocks / 4) + c / 4) * 512 + (r % 32) * 16 + ((r % 128) / 32) * 4 + c % 4;
}

void compare_fouroversix(const Backend& backend, const Peers& peers, const std::string& text,
                         const std::string& key, bool is_swizzled) {
  Diff diff(std::string(backend.name()) + " " + key);
  std::vector<float> x = peers.floats("x_bf16");
  REQUIRE(x.size() == kRows * kCols);
  x.resize(kPaddedRows * kCols);
  // The dequantizer ran on the GPU, where torch multiplies with the reciprocal of a number.
  const auto got =
      test::quantized(backend, parse_recipe(text + ",scalar-div=rcp"), x, kPaddedRows, kCols);
  compare_codes(diff, got.tile, peers.bytes(key + "_values"));
  const std::vector<std::uint8_t> scales = peers.bytes(key + "_scales");
  REQUIRE(scales.size() == kPaddedRows * kBlocks);
  for (std::size_t r = 0; r < kPaddedRows; ++r) {
    for (std::size_t c = 0; c < kBlocks; ++c) {
      const std::size_t linear = r * kBlocks + c;
      diff.compare(got.tile.scales[linear], scales[is_swizzled ? offset_128x4(r, c) : linear],
                   "scale " + std::to_string(linear));
    }
  }
  diff.compare(bit_cast<std::uint32_t>(got.outer.at(0).amax),
               bit_cast<std::uint32_t>(peers.floats(key + "_amax").at(0)), "amax");
  const std::vector<float> values = peers.floats(key + "_deq");
  REQUIRE(values.size() == kRows * kCols);
  for (std::size_t i = 0; i < values.size(); ++i) {
    diff.compare_float(bit_cast<std::uint32_t>(got.values[i]), bit_cast<std::uint32_t>(values[i]),
                       "value " + std::to_string(i));
  }
  CHECK(diff.compared() == kPaddedRows * kCols + kPaddedRows * kBlocks + 1 + kRows * kCols);
  diff.check();
}

TEST_CASE("fouroversix nvfp4: five selections, 1-D and 2-D, codes, swizzled scales and values") {
  if (!test::have_shared(kPeers)) return;
  const Peers peers;
  const std::pair<const char*, const char*> selects[] = {{"static_6", "static6"},
                                                         {"static_4", "static4"},
                                                         {"mse", "mse"},
                                                         {"mae", "mae"},
                                                         {"abs_max", "absmax"}};
  for (const Backend* backend : available_backends()) {
    for (const auto& [name, select] : selects) {
      for (const std::string block : {"1d", "2d"}) {
        compare_fouroversix(
            *backend, peers,
            std::string("nvfp4:contract=fouroversix,select=") + select + ",block=" + block,
            std::string("f46_nvfp4_") + name + "_" + block, true);
      }
    }
  }
}

TEST_CASE("fouroversix if4 and nvint4: codes, linear scales and values, 1-D and 2-D") {
  if (!test::have_shared(kPeers)) return;
  const Peers peers;
  const std::pair<const char*, const char*> selects[] = {
      {"mse", "mse"}, {"mae", "mae"}, {"abs_max", "absmax"}};
  for (const Backend* backend : available_backends()) {
    for (const std::string block : {"1d", "2d"}) {
      for (const auto& [name, select] : selects) {
        compare_fouroversix(*backend, peers,
                            std::string("if4:select=") + select + ",block=" + block,
                            std::string("f46_if4_") + name + "_" + block, false);
      }
      compare_fouroversix(*backend, peers, "nvint4:block=" + block, "f46_nvint4_static_6_" + block,
                          false);
    }
  }
}

TEST_CASE("torchao nvfp4_quantize: with and without a tensor scale") {
  if (!test::have_shared(kPeers)) return;
  const Peers peers;
  const std::vector<float> x = peers.floats("x_bf16");
  for (const Backend* backend : available_backends()) {
    for (const bool has_scale : {false, true}) {
      const std::string key = has_scale ? "ao_nvfp4_pt" : "ao_nvfp4_none";
      const std::string text = std::string("nvfp4:contract=torchao,scale=") +
                               (has_scale ? "tensor,scalar-div=exact" : "none");
      Diff diff(std::string(backend->name()) + " " + key);
      const auto got = test::quantized(*backend, parse_recipe(text), x, kRows, kCols);
      compare_codes(diff, got.tile, peers.bytes(key + "_q"));
      const std::vector<std::uint8_t> scales = peers.bytes(key + "_scale");
      REQUIRE(scales.size() == got.tile.scales.size());
      for (std::size_t i = 0; i < scales.size(); ++i) {
        diff.compare(got.tile.scales[i], scales[i], "scale " + std::to_string(i));
      }
      if (has_scale) {
        diff.compare(bit_cast<std::uint32_t>(got.outer.at(0).g),
                     bit_cast<std::uint32_t>(peers.floats(key).at(0)), "tensor scale");
      }
      diff.check();
    }
  }
}

}  // namespace
}  // namespace fp4scope
