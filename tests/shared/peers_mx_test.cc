// peers_mx_test.cc: MX outputs of the real projects (../shared/vectors/peers/peers.safetensors:
// torchao 0.19.0, microxcaling 7bc4195, fouroversix 1.0.5) reproduced with 0 differing bits on
// every backend, and the deviations that ../shared/vectors/README.md section 6 lists reproduced as
// listed.
#include <cmath>

#include "sim/layouts/scale_layout.h"
#include "tests/shared/peers.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"

namespace fp4scope {
namespace {

using test::available_backends;
using test::Diff;
using test::name_of;
using test::Peers;
using test::quantized;

TEST_CASE("torchao to_mx: scales and packed codes in four modes and three element types") {
  if (!test::have_shared(test::kPeers)) return;
  const Peers peers;
  const std::vector<float> x = peers.floats("x_bf16");
  const std::pair<const char*, const char*> elements[] = {
      {"e2m1", "mxfp4"}, {"e4m3", "mxfp8e4m3"}, {"e5m2", "mxfp8e5m2"}};
  const std::pair<const char*, const char*> modes[] = {
      {"FLOOR", "floor"}, {"CEIL", "ceil"}, {"EVEN", "even"}, {"RCEIL", "rceil"}};
  for (const Backend* backend : available_backends()) {
    int keys = 0;
    for (const auto& [element, format] : elements) {
      for (const auto& [mode, rule] : modes) {
        const std::string key = std::string("ao_mx_") + element + "_" + mode;
        Diff diff(name_of(*backend) + " " + key);
        const Recipe recipe =
            parse_recipe(std::string(format) + ":contract=torchao-" + std::string(rule));
        const QuantizedTile q = quantized(*backend, recipe, x, 68, 256).tile;
        const auto scale = peers.bytes(key + "_scale"), codes = peers.bytes(key + "_q");
        for (std::size_t i = 0; i < scale.size(); ++i) {
          diff.compare(q.scales[i], scale[i], "scale " + std::to_string(i));
        }
        for (std::size_t i = 0; i < x.size(); ++i) {
          const std::uint32_t want =
              recipe.packs_nibbles() ? codes[i / 2] >> (i % 2 * 4) & 15u : codes[i];
          diff.compare(q.codes[i], want, "code " + std::to_string(i));
        }
        CHECK(diff.compared() == 68 * 8 + 68 * 256);
        diff.check();
        ++keys;
      }
    }
    CHECK(keys == 12);
  }
}

struct MicroxKey {
  const char* element;
  const char* format;
};
constexpr MicroxKey kMicrox[] = {{"fp4_e2m1", "mxfp4"},     {"fp6_e2m3", "mxfp6e2m3"},
                                 {"fp6_e3m2", "mxfp6e3m2"}, {"fp8_e4m3", "mxfp8e4m3"},
                                 {"fp8_e5m2", "mxfp8e5m2"}, {"int8", "mxint8"},
                                 {"int4", "mxint4"}};
constexpr std::pair<const char*, const char*> kMicroxRoundings[] = {
    {"nearest", "away"}, {"even", "even"}, {"floor", "trunc"}};

TEST_CASE("microxcaling: fake-quantized values of the torch path, sign of zero included") {
  if (!test::have_shared(test::kPeers)) return;
  const Peers peers;
  const std::vector<float> x = peers.floats("x_bf16");
  for (const Backend* backend : available_backends()) {
    int keys = 0;
    for (const MicroxKey& row : kMicrox) {
      for (const auto& [rounding, ties] : kMicroxRoundings) {
        const std::string key = std::string("mxc_") + row.element + "_" + rounding;
        const std::vector<float> want = peers.floats(key);
        Diff diff(name_of(*backend) + " " + key);
        const Recipe recipe =
            parse_recipe(std::string(row.format) + ":contract=microx-torch,ties=" + ties);
        const std::vector<float> got = quantized(*backend, recipe, x, 68, 256).values;
        for (std::size_t i = 0; i < x.size(); ++i) {
          diff.compare_float(bit_cast<std::uint32_t>(got[i]), bit_cast<std::uint32_t>(want[i]),
                             "value " + std::to_string(i));
        }
        CHECK(diff.compared() == 68 * 256);
        diff.check();
        ++keys;
      }
    }
    CHECK(keys == 21);
  }
}

// README section 6: contract=microx-cuda gives equal values with 0 to 3,203 differences in the sign
// of zero per key; negative underflow is +0 there.
TEST_CASE("microxcaling: the CUDA path differs from the torch path in the sign of zero only") {
  if (!test::have_shared(test::kPeers)) return;
  const Peers peers;
  const std::vector<float> x = peers.floats("x_bf16");
  for (const Backend* backend : available_backends()) {
    int least = 1 << 30, most = 0;
    for (const MicroxKey& row : kMicrox) {
      for (const auto& [rounding, ties] : kMicroxRoundings) {
        const std::string key = std::string("mxc_") + row.element + "_" + rounding;
        const std::vector<float> torch = peers.floats(key);
        const Recipe recipe =
            parse_recipe(std::string(row.format) + ":contract=microx-cuda,ties=" + ties);
        const std::vector<float> cuda = quantized(*backend, recipe, x, 68, 256).values;
        int signs = 0, values = 0, unexpected_signs = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
          if (bit_cast<std::uint32_t>(cuda[i]) == bit_cast<std::uint32_t>(torch[i])) continue;
          if (cuda[i] != torch[i]) {
            ++values;
          } else {
            ++signs;
            unexpected_signs += std::signbit(cuda[i]) || !std::signbit(torch[i]) || x[i] >= 0;
          }
        }
        INFO(key);
        CHECK(values == 0);
        CHECK(unexpected_signs == 0);
        least = std::min(least, signs);
        most = std::max(most, signs);
      }
    }
    std::printf("%s mxc_*: %d to %d differences in the sign of zero\n", name_of(*backend).c_str(),
                least, most);
    CHECK(least == 0);
    CHECK(most == 3203);
  }
}

// README section 6: the input zero-padded to [128, 256]; codes [128, 128] packed, scale bytes of
// [128, 8] in 128x4 order.
TEST_CASE("fouroversix MXFP4: packed codes and swizzled scales, 1-D and 2-D") {
  if (!test::have_shared(test::kPeers)) return;
  const Peers peers;
  std::vector<float> x = peers.floats("x_bf16");
  x.resize(128 * 256, 0.0f);
  for (const Backend* backend : available_backends()) {
    for (const char* select : {"6", "4"}) {
      for (const char* shape : {"1d", "2d"}) {
        const std::string key = std::string("f46_mxfp4_static_") + select + "_" + shape;
        Diff diff(name_of(*backend) + " " + key);
        const std::string block = std::string(shape) == "2d" ? ",block=2d" : "";
        const Recipe recipe =
            parse_recipe(std::string("mxfp4:contract=fos-static") + select + block);
        CHECK(recipe.native.scales == ScaleLayout::k128x4);
        const QuantizedTile q = quantized(*backend, recipe, x, 128, 256).tile;
        const auto codes = peers.bytes(key + "_values"), scales = peers.bytes(key + "_scales");
        REQUIRE(codes.size() == 128 * 128);
        REQUIRE(scales.size() == 128 * 8);
        for (std::size_t i = 0; i < x.size(); ++i) {
          diff.compare(q.codes[i], codes[i / 2] >> (i % 2 * 4) & 15u, "code " + std::to_string(i));
        }
        for (std::int64_t r = 0; r < 128; ++r) {
          for (std::int64_t c = 0; c < 8; ++c) {
            const auto at = scale_offset(scale_order(recipe.native.scales), 128, 8, r, c);
            diff.compare(q.scales[static_cast<std::size_t>(r * 8 + c)],
                         scales[static_cast<std::size_t>(at)],
                         "scale " + std::to_string(r) + "," + std::to_string(c));
          }
        }
        CHECK(diff.compared() == 128 * 256 + 128 * 8);
        diff.check();
      }
    }
  }
}

}  // namespace
}  // namespace fp4scope
