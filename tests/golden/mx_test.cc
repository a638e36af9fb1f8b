// mx_test.cc: the MX codec against every recorded block of data/golden/mx and the MX rows of
// more/mlx_sglang.json, on every CPU backend: scale bytes, codes, packed bytes, decoded values; the
// logarithm rules against log2_pitfall.json; the worked examples of spec/mx.md section 5.
#include <algorithm>
#include <map>
#include <string>

#include "formats/codecs/mx_log2.h"
#include "sim/error.h"
#include "sim/layouts/nibbles.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::available_backends;
using test::Diff;
using test::hex_floats;
using test::hex_words;
using test::load_golden;
using test::quantized;

constexpr std::size_t kCopies = 17;  // full panels of lanes and the scalar tail

// Codes of a recorded block: hex digits, or integers in two's complement.
std::vector<std::uint32_t> recorded_codes(const nlohmann::json& out, std::size_t digits) {
  if (out.contains("c")) return hex_words(out["c"], digits);
  std::vector<std::uint32_t> codes;
  if (out.contains("q")) {
    for (const int q : out["q"]) codes.push_back(static_cast<std::uint32_t>(q) & 255u);
  }
  return codes;
}

struct Counts {
  std::int64_t blocks = 0, recipes = 0, scales = 0, codes = 0, packed = 0, values = 0,
               undefined = 0;
  bool operator==(const Counts&) const = default;
};

// One recorded block under one recipe. A null scale is undefined in the source: the block is
// counted and not compared.
void check_block(const Backend& backend, const Recipe& recipe, const nlohmann::json& block,
                 const nlohmann::json& out, Diff& diff, Counts& counts) {
  if (out["s"].is_null()) {
    ++counts.undefined;
    return;
  }
  const std::vector<float> one = hex_floats(block["in"]);
  std::vector<float> x;
  for (std::size_t i = 0; i < kCopies; ++i) x.insert(x.end(), one.begin(), one.end());
  const auto cols = static_cast<std::int64_t>(x.size());
  const test::Quantized r = quantized(backend, recipe, x, 1, cols);
  const std::string name = std::string(block["name"]) + " ";
  for (std::size_t b = 0; b < kCopies; ++b) diff.compare(r.tile.scales[b], out["s"], name + "s");
  ++counts.scales;
  const std::vector<std::uint32_t> codes = recorded_codes(out, recipe.packs_nibbles() ? 1 : 2);
  for (std::size_t i = 0; i < x.size() && !codes.empty(); ++i) {
    diff.compare(r.tile.codes[i], codes[i % 32], name + "code " + std::to_string(i));
  }
  counts.codes += static_cast<std::int64_t>(codes.size());
  if (out.contains("p")) {
    // Recorded where the source's order is not low nibble first.
    CHECK(recipe.native.nibbles == Nibbles::kSplit16);
    std::vector<std::uint8_t> packed(x.size() / 2);
    pack_nibbles(recipe.native.nibbles, 1, cols, r.tile.codes, packed);
    const auto want = hex_words(out["p"], 2);
    for (std::size_t i = 0; i < packed.size(); ++i) {
      diff.compare(packed[i], want[i % 16], name + "packed " + std::to_string(i));
    }
    counts.packed += static_cast<std::int64_t>(want.size());
  }
  if (out.contains("d") || out["s"] == 255) {
    // Without recorded values a NaN scale still gives NaN (spec/scalars.md section 5).
    const auto want =
        out.contains("d") ? hex_words(out["d"], 8) : std::vector<std::uint32_t>(32, kQuietNanBits);
    for (std::size_t i = 0; i < x.size(); ++i) {
      diff.compare_float(bit_cast<std::uint32_t>(r.values[i]), want[i % 32],
                         name + "value " + std::to_string(i));
    }
    counts.values += static_cast<std::int64_t>(want.size());
  }
}

Counts check_file(const std::string& file, const Backend& backend) {
  const auto json = load_golden(file);
  std::map<std::string, Diff> diffs;
  Counts counts;
  for (const auto& block : json["blocks"]) {
    ++counts.blocks;
    for (const auto& [text, out] : block["out"].items()) {
      const auto diff = diffs.try_emplace(text, test::name_of(backend) + " " + text).first;
      check_block(backend, parse_recipe(text), block, out, diff->second, counts);
    }
  }
  counts.recipes = static_cast<std::int64_t>(diffs.size());
  for (const auto& [text, diff] : diffs) diff.check();
  std::printf(
      "%s %s: %lld blocks, %lld recipes; compared in each of %zu copies: %lld scales, %lld codes, "
      "%lld packed bytes, %lld values; %lld blocks undefined in their source\n",
      test::name_of(backend).c_str(), file.c_str(), static_cast<long long>(counts.blocks),
      static_cast<long long>(counts.recipes), kCopies, static_cast<long long>(counts.scales),
      static_cast<long long>(counts.codes), static_cast<long long>(counts.packed),
      static_cast<long long>(counts.values), static_cast<long long>(counts.undefined));
  return counts;
}

TEST_CASE("every recorded MX block under every recorded recipe") {
  for (const Backend* backend : available_backends()) {
    CHECK(check_file("mx/mxfp4_blocks.json", *backend) ==
          Counts{56, 21, 1164, 21888, 608, 36224 + 30 * 32, 12});
    CHECK(check_file("mx/mxfp8_mxfp6_blocks.json", *backend) ==
          Counts{72, 44, 792, 10176, 0, 24000 + 40 * 32, 0});
    CHECK(check_file("mx/mxint8_blocks.json", *backend) == Counts{12, 3, 36, 1152, 0, 1152, 0});
  }
}

// ocp-floor-rne is torchao-floor with every open point fixed alike (spec/mx.md section 3).
TEST_CASE("ocp-floor-rne equals the recorded blocks of torchao-floor") {
  for (const Backend* backend : available_backends()) {
    for (const char* file : {"mx/mxfp4_blocks.json", "mx/mxfp8_mxfp6_blocks.json"}) {
      const auto json = load_golden(file);
      Diff diff(test::name_of(*backend) + " " + file + " ocp-floor-rne");
      Counts counts;
      for (const auto& block : json["blocks"]) {
        const std::string format = block.contains("fmt") ? std::string(block["fmt"]) : "mxfp4";
        const Recipe recipe = parse_recipe(format + ":contract=ocp-floor-rne");
        check_block(*backend, recipe, block, block["out"][format + ":contract=torchao-floor"], diff,
                    counts);
      }
      diff.check();
    }
  }
}

TEST_CASE("MLX: recorded scales and codes of metal and cuda") {
  const auto json = load_golden("more/mlx_sglang.json");
  const std::vector<float> y = hex_floats(json["y"]);
  for (const Backend* backend : available_backends()) {
    int recipes = 0;
    for (const auto& row : json["mlx"]) {
      const std::string text = row["recipe"];
      if (!text.starts_with("mx")) continue;
      ++recipes;
      Diff diff(test::name_of(*backend) + " " + text);
      const QuantizedTile tile = quantized(*backend, parse_recipe(text), y, 10, 32).tile;
      const auto scales = hex_words(row["scale"], 2), codes = hex_words(row["q"], 2);
      for (std::size_t i = 0; i < scales.size(); ++i) {
        diff.compare(tile.scales[i], scales[i], "scale " + std::to_string(i));
      }
      for (std::size_t i = 0; i < codes.size(); ++i) {
        diff.compare(tile.codes[i], codes[i], "code " + std::to_string(i));
      }
      CHECK(diff.compared() == 330);
      diff.check();
    }
    CHECK(recipes == 4);
  }
}

TEST_CASE("floor(log2f(x)) without a logarithm: 368 recorded maxima") {
  const auto rows = load_golden("mx/log2_pitfall.json")["rows"];
  Diff exact("exponent field"), logarithm("floor of the binary32 logarithm"), torch("microx-torch"),
      cuda("microx-cuda");
  int deviating = 0;
  const Backend& reference = *available_backends().back();
  // INT8 takes no emax off, and its byte is 127 + the exponent.
  const Recipe by_log2 = parse_recipe("mxint8:contract=microx-torch"),
               by_field = parse_recipe("mxint8:contract=microx-cuda");
  for (const auto& row : rows) {
    const std::uint32_t bits = test::hex_bits(row[0]);
    const int field = row[1], log2 = row[2];
    deviating += field != log2;
    const Log2Parts<Lane<1>> parts = log2_parts<Lane<1>>(bits);
    exact.compare(parts.exponent, static_cast<std::uint32_t>(field + 1024), row[0]);
    logarithm.compare(log2_rounded<Lane<1>>(Log2Rounding::kFloor, parts),
                      static_cast<std::uint32_t>(log2 + 1024), row[0]);
    std::vector<float> x(32, 0.0f);
    x[5] = bit_cast<float>(bits);
    const auto byte = [](int exponent) {
      return static_cast<std::uint32_t>(std::max(exponent + 127, 0));
    };
    torch.compare(quantized(reference, by_log2, x, 1, 32).tile.scales[0], byte(log2), row[0]);
    cuda.compare(quantized(reference, by_field, x, 1, 32).tile.scales[0], byte(field), row[0]);
  }
  CHECK(rows.size() == 368);
  CHECK(deviating == 223);  // spec/mx.md 2.1
  for (const Diff* diff : {&exact, &logarithm, &torch, &cuda}) diff->check();
}

// --- spec/mx.md section 5 ---

struct Example {
  const char* recipe;
  std::vector<float> x;
  std::uint32_t scale;
  std::vector<std::uint32_t> codes;
};
const float kUlpBelow2p34 = bit_cast<float>(0x507fffffu);
const std::vector<float> kFirst = {7.0f, 0.3f, -0.3f, 5.5f};
const std::vector<float> kSigns = {6.0f, -0.0f, 0.0f, -0.0f};
const Example kExamples[] = {
    {"mxfp4:contract=torchao-floor", kFirst, 127, {7, 1, 9, 7}},
    {"mxfp4:contract=torchao-even", kFirst, 128, {6, 0, 8, 5}},
    {"mxfp4:contract=torchao-ceil", kFirst, 128, {6, 0, 8, 5}},
    {"mxfp4:contract=torchao-rceil", kFirst, 128, {6, 0, 8, 5}},
    {"mxfp4:contract=torchao-floor", {6.5f}, 127, {7}},
    {"mxfp4:contract=torchao-even", {6.5f}, 127, {7}},
    {"mxfp4:contract=torchao-ceil", {6.5f}, 128, {5}},
    {"mxfp4:contract=torchao-rceil", {6.5f}, 128, {5}},
    {"mxfp4:contract=torchao-rceil", {6.01171875f, 0.5f, -0.5f, 1.5f}, 128, {5, 0, 8, 2}},
    {"mxfp8e4m3:contract=torchao-rceil",
     {448.875f, 0x1p-9f, -3 * 0x1p-9f},
     128,
     {0x76, 0x00, 0x82}},
    {"mxfp4:contract=torchao-floor", {kUlpBelow2p34, 0x1p31f}, 158, {7, 2}},
    {"mxfp4:contract=microx-torch", {kUlpBelow2p34, 0x1p31f}, 159, {6, 1}},
    {"mxfp8e4m3:contract=torchao-floor", {500.0f, 470.0f, 1.0f}, 127, {0x7e, 0x7e, 0x38}},
    {"mxfp4:contract=torchao-floor", kSigns, 127, {7, 8, 0, 8}},
    {"mxfp4:contract=fos-static6", kSigns, 127, {7, 0, 0, 0}},
    {"mxfp4:contract=modelopt-qtensor", kSigns, 127, {7, 8, 8, 8}},
    // Section 2.1, rint-log2: 5.6 -> 127, 5.7 -> 128. Section 3, universal: 1e-40 becomes 6*2^-127.
    {"mxfp4:contract=ggml-cuda-act", {5.6f}, 127, {7}},
    {"mxfp4:contract=ggml-cuda-act", {5.7f}, 128, {5}},
    {"mxfp4:contract=universal", {1e-40f}, 0, {7}},
    {"mxfp8e5m2:contract=universal", {1e-40f}, 0, {0x7c}},
    {"mxint8:contract=universal", {1.9f}, 120, {127}},
    {"mxfp8e5m2:contract=universal,zero-sign=keep", {1.8f}, 112, {0x7c}},
    // Section 4, compressed-tensors: the byte of MXFP8 with the fraction width of E2M1.
    {"mxfp8e4m3:contract=ct-even", {7.5f}, 122, {}},
    {"mxfp8e4m3:contract=torchao-even", {7.5f}, 121, {}},
    // spec/scalars.md 2: double rounding of compressed-tensors Triton, dropped bits of older
    // Triton.
    {"mxfp4:contract=ct-even,dtype=f32", {6.0f, 0.25f + 0x1p-12f}, 127, {7, 1}},
    {"mxfp4:contract=ct-even,dtype=f32,narrow=bf16", {6.0f, 0.25f + 0x1p-12f}, 127, {7, 0}},
    {"mxfp4:contract=triton-up", {6.0f, 0.25f + 0x1p-25f}, 127, {7, 1}},
    // spec/more.md 2.5, DeepGEMM's own FP4 caster: ties toward zero, no sign on a zero code; the
    // floor 1e-4 gives a zero block 2^-15 (1e-4/6 is between 2^-16 and 2^-15). 2.1, TileKernels:
    // the floor 6 * 2^-126 gives it 2^-126.
    {"mxfp4:contract=deepgemm-fp4",
     {6.0f, 0.75f, 3.5f, -0.25f, -0.75f, 5.0f, -0.0f, 2.5f},
     127,
     {7, 1, 5, 0, 9, 6, 0, 4}},
    {"mxfp4:contract=deepgemm-fp4", {6.5f}, 128, {5}},
    {"mxfp4:contract=deepgemm-fp4", {}, 112, {0}},
    {"mxfp4:contract=deepgemm-fp4", {0x1p-16f}, 112, {1}},
    {"mxfp4:contract=tilekernels-fp4", {}, 1, {0}},
    {"mxfp4:contract=tilekernels-fp4", {6.0f, 0.75f, 3.5f, -0.25f}, 127, {7, 2, 6, 8}},
    {"mxfp4:contract=triton-up,triton-sticky=0", {6.0f, 0.25f + 0x1p-25f}, 127, {7, 0}},
};

TEST_CASE("worked examples of the specification") {
  for (const Backend* backend : available_backends()) {
    Diff diff(test::name_of(*backend) + " worked examples");
    for (const Example& e : kExamples) {
      std::vector<float> x = e.x;
      x.resize(32, 0.0f);
      const QuantizedTile tile = quantized(*backend, parse_recipe(e.recipe), x, 1, 32).tile;
      diff.compare(tile.scales[0], e.scale, std::string(e.recipe) + " scale");
      for (std::size_t i = 0; i < e.codes.size(); ++i) {
        diff.compare(tile.codes[i], e.codes[i], std::string(e.recipe) + " code");
      }
    }
    diff.check();
  }
}

TEST_CASE("input about which a source says nothing is refused unless a key decides it") {
  const float nan = bit_cast<float>(0x7fc00000u), inf = bit_cast<float>(0x7f800000u);
  struct Case {
    const char* recipe;
    float value;
    const char* key;
  };
  const Case cases[] = {
      {"mxfp4:contract=gfloat", nan, "nan=propagate"},
      {"mxfp4:contract=gfloat", inf, "inf=nan"},
      {"mxfp4:contract=pychop", 0.0f, "zero-block=0"},
      {"mxfp4:contract=pychop", 1e-39f, "byte0=exact"},
      {"mxfp4:contract=universal", -0.0f, "zero-sign=keep"},
      {"mxfp4:contract=ggml-cpu", inf, "inf=254"},
      {"mxfp4:contract=quark-even", inf, "inf=254"},
      {"mxfp4:contract=mlx-metal", nan, "nan=propagate"},
  };
  for (const Backend* backend : available_backends()) {
    for (const Case& c : cases) {
      CAPTURE(c.recipe);
      // One odd block among ordinary ones.
      std::vector<float> x(32 * 17, 1.0f);
      std::fill(x.begin(), x.begin() + 32, 0.0f);
      x[7] = c.value;
      CHECK_THROWS_AS(quantized(*backend, parse_recipe(c.recipe), x, 1, 32 * 17), RefusedInput);
      const std::string with_key = std::string(c.recipe) + "," + c.key;
      CHECK_NOTHROW(quantized(*backend, parse_recipe(with_key), x, 1, 32 * 17));
    }
  }
}

}  // namespace
}  // namespace fp4scope
