// int4_fp8_rules_test.cc: rules of INT4 and FP8 that the recorded vectors do not reach: NaN and
// infinity, two-dimensional blocks, given scales, the nearest power of two, refusals. Expected
// values are those of spec/more.md sections 1, 2 and 6 and of the notes in formats/contracts/fp8.h.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "analysis/generate.h"
#include "formats/codecs/fp8.h"
#include "sim/backend.h"
#include "sim/error.h"
#include "sim/oracle/exact_format.h"
#include "sim/recipe.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::uint32_t word(const std::uint8_t* bytes) {
  return bytes[0] | static_cast<std::uint32_t>(bytes[1]) << 8 |
         static_cast<std::uint32_t>(bytes[2]) << 16 | static_cast<std::uint32_t>(bytes[3]) << 24;
}

}  // namespace

TEST_CASE("FP8: a NaN in a block") {
  // The block {448, NaN, 0...}. Where the maximum ignores NaN the scale is that of 448, which all
  // of these round to 1, and 448 has the code 0x7E; NaN is 0x7F, or 0x7E after a CUDA clamp.
  struct Row {
    std::string contract;
    std::uint32_t scale;
    int first, second;
  };
  for (const Row& row :
       {Row{"te", 0x3f800000, 0x7e, 0x7f}, Row{"tilekernels", 0x3f800000, 0x7e, 0x7f},
        Row{"triton-group", 0x3f800000, 0x7e, 0x7e},
        Row{"triton-group-div", 0x3f800000, 0x7e, 0x7e}, Row{"vllm-group", 0x3f800000, 0x7e, 0x7e},
        Row{"sgl-group", 0x3f800000, 0x7e, 0x7f}, Row{"fbgemm-triton", 0x3f800000, 0x7e, 0x7e},
        Row{"deepgemm", kQuietNanBits, 0x7f, 0x7f},
        Row{"torchao-affine", kQuietNanBits, 0x7f, 0x7f},
        Row{"hf-block", kQuietNanBits, 0x7f, 0x7f}}) {
    const Recipe recipe = parse_recipe("fp8:gran=1x128,contract=" + row.contract);
    std::vector<float> x(128, 0.0f);
    x[0] = 448.0f;
    x[1] = kNan;
    for (const Backend* backend : backends_for(recipe)) {
      const Quantized q = quantized(*backend, recipe, x, 1, 128);
      CHECK_MESSAGE(word(q.tile.scales.data()) == row.scale, row.contract);
      CHECK_MESSAGE(q.tile.codes[0] == row.first, row.contract);
      CHECK_MESSAGE(q.tile.codes[1] == row.second, row.contract);
    }
  }
}

TEST_CASE("FP8: an infinity in a block with a power-of-two byte") {
  struct Row {
    std::string contract;
    int byte, finite, infinite;
  };
  for (const Row& row : {
           Row{"te", 127, 0x38, 0x7e},            // scale 1, saturating cast
           Row{"deepgemm", 254, 0x00, 0x7f},      // 2^127; Inf stays, the torch cast gives NaN
           Row{"verl-dsv4", 254, 0x00, 0x7f},     // clamped to 2^127
           Row{"triton-group", 255, 0x00, 0x7e},  // inverse 0, 0 * Inf = NaN, clamped
           Row{"vllm-group", 255, 0x00, 0x7e},    //
           Row{"sgl-group", 255, 0x00, 0x7f},     // NaN of the saturating cast
       }) {
    const Recipe recipe = parse_recipe("fp8:gran=1x128,scale-fmt=ue8m0,contract=" + row.contract);
    std::vector<float> x(128, 0.0f);
    x[0] = 1.0f;
    x[1] = kInf;
    for (const Backend* backend : backends_for(recipe)) {
      const Quantized q = quantized(*backend, recipe, x, 1, 128);
      CHECK_MESSAGE(q.tile.scales[0] == row.byte, row.contract);
      CHECK_MESSAGE(q.tile.codes[0] == row.finite, row.contract);
      CHECK_MESSAGE(q.tile.codes[1] == row.infinite, row.contract);
    }
  }
}

TEST_CASE("FP8: a 128x128 block has one scale, written on each of its rows") {
  constexpr std::int64_t kRows = 200, kCols = 300;  // ragged both ways
  std::vector<float> x(kRows * kCols);
  generate(Distribution::kNormal, 7, 0, 1.0f, x);
  const Recipe recipe = parse_recipe("fp8:contract=hf-block,dtype=f32");
  const Tile tile{x.data(), nullptr, kRows, kCols, kCols};
  Diff scales("fp8 128x128 scales"), values("fp8 128x128 decoded");
  for (const Backend* backend : backends_for(recipe)) {
    const Quantized q = quantized(*backend, recipe, tile);
    REQUIRE(q.tile.blocks_per_row == 3);
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t b = 0; b < 3; ++b) {
        float amax = 0;
        for (std::int64_t i = r / 128 * 128; i < std::min(kRows, r / 128 * 128 + 128); ++i) {
          for (std::int64_t k = b * 128; k < std::min(kCols, b * 128 + 128); ++k) {
            amax = std::max(amax, std::abs(x[static_cast<std::size_t>(i * kCols + k)]));
          }
        }
        const float want = amax / 448.0f;
        const std::uint8_t* bytes = q.tile.scales.data() + (r * 3 + b) * 4;
        const std::string where = std::to_string(r) + "," + std::to_string(b);
        scales.compare(word(bytes), bit_cast<std::uint32_t>(want), where);
        // The maximum decodes to itself up to one rounding: 448 * fl(amax/448).
        for (std::int64_t k = b * 128; k < std::min(kCols, b * 128 + 128); ++k) {
          const auto at = static_cast<std::size_t>(r * kCols + k);
          const std::uint8_t code = q.tile.codes[static_cast<std::size_t>(r * 384 + k)];
          const float decoded = oracle::round32(oracle::value(kE4M3, code)) * want;
          values.compare(bit_cast<std::uint32_t>(q.values[at]), bit_cast<std::uint32_t>(decoded),
                         where);
          // Half a step of E4M3 (three fraction bits) is at most 1/16 of the value, or 2^-10 units.
          CHECK(std::abs(q.values[at] - x[at]) <=
                std::max(std::abs(x[at]) * 0.0626f, want * 0x1p-9f));
        }
      }
    }
  }
  scales.check();
  values.check();
}

TEST_CASE("FP8: the KV cache divides by the given scale") {
  const Recipe recipe = parse_recipe("fp8:contract=vllm-kv,g=0x3f000000");  // 1/2
  CHECK(!recipe.needs_amax());
  CHECK(parse_recipe("fp8:contract=vllm-kv").fp8.g_bits == 0x3f800000u);  // 1 when absent
  for (const Backend* backend : backends_for(recipe)) {
    const Quantized q = quantized(*backend, recipe, {1.0f, -224.0f, 500.0f, kNan}, 1, 4);
    CHECK(q.outer.at(0).g == 0.5f);
    CHECK(q.tile.codes[0] == 0x40);  // 2
    CHECK(q.tile.codes[1] == 0xfe);  // -448
    CHECK(q.tile.codes[2] == 0x7e);  // saturated
    CHECK(q.tile.codes[3] == 0x7f);
    CHECK(q.values[0] == 1.0f);
    CHECK(q.values[1] == -224.0f);
  }
}

TEST_CASE("FP8: vllm-tensor on an all-zero tensor, spec/more.md 2.4") {
  const Recipe recipe = parse_recipe("fp8:contract=vllm-tensor");
  for (const Backend* backend : backends_for(recipe)) {
    const Quantized q = quantized(*backend, recipe, std::vector<float>(8, 0.0f), 1, 8);
    CHECK(q.outer.at(0).g == 0.0f);
    CHECK(q.tile.codes[0] == 0x7e);
  }
}

TEST_CASE("FP8: the product of vllm-torch-tensor is rounded to BF16 before the cast") {
  // S = bf16(bf16(1/amax) * 448), code = E4M3(bf16(x * S)), one operation after the other.
  const Recipe recipe = parse_recipe("fp8:contract=vllm-torch-tensor");
  const auto bf16 = [](float v) { return oracle::round_bf16(v); };
  std::vector<float> x(4096);
  generate(Distribution::kNormal, 9, 0, 100.0f, x);
  for (float& v : x) v = bf16(v);
  const float amax = bit_cast<float>(largest_magnitude(x.data(), std::ssize(x)));
  const float s = bf16(bf16(1.0f / amax) * 448.0f);
  Diff codes("fp8 vllm-torch-tensor codes");
  int matters = 0;
  for (const Backend* backend : backends_for(recipe)) {
    const Quantized q = quantized(*backend, recipe, x, 1, std::ssize(x));
    CHECK(q.outer.at(0).g == 1.0f / s);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto code_of = [](float y) {
        return oracle::cast_saturating(kE4M3, oracle::exact(y), Rounding::kEven);
      };
      codes.compare(q.tile.codes[i], code_of(bf16(x[i] * s)), std::to_string(i));
      matters += code_of(bf16(x[i] * s)) != code_of(x[i] * s);
    }
  }
  codes.check();
  CHECK(matters > 0);
}

TEST_CASE("FP8: nearest and higher powers of two") {
  const auto near = [](std::uint32_t bits) {
    return fp8_power_near<Lane<1>>(bit_cast<float>(bits));
  };
  CHECK(near(0x3fb504f3) == 1.0f);  // just below sqrt(2)
  CHECK(near(0x3fb504f4) == 2.0f);
  CHECK(near(0x3f800000) == 1.0f);
  CHECK(near(0x00000001) == 0x1p-149f);
  CHECK(near(0x00000003) == 0x1p-147f);  // log2(3) = 1.58
  CHECK(near(0x00000005) == 0x1p-147f);  // log2(5) = 2.32
  CHECK(near(0x7f7fffff) == kInf);
  CHECK(near(0) == 0.0f);
  const auto above = [](std::uint32_t bits) {
    return fp8_power_above<Lane<1>>(bit_cast<float>(bits));
  };
  CHECK(above(0x3f800000) == 1.0f);
  CHECK(above(0x3f800001) == 2.0f);
  CHECK(above(0x00400000) == 0x1p-127f);
  CHECK(above(0x00400001) == 0x1p-126f);
  CHECK(above(0x7f800000) == kInf);
}

TEST_CASE("INT4: NaN and infinity are refused with their row") {
  for (const char* contract :
       {"ct-rtn", "skyrl", "miles-train", "miles-export", "rtp-llm", "rtp-llm-ct"}) {
    const Recipe recipe = parse_recipe(std::string("int4:contract=") + contract);
    for (const Backend* backend : backends_for(recipe)) {
      for (const float bad : {kNan, kInf, -kInf}) {
        std::vector<float> x(3 * 64, 1.0f);
        x[64 + 40] = bad;
        CHECK_THROWS_AS(quantized(*backend, recipe, x, 3, 64), RefusedInput);
        try {
          quantized(*backend, recipe, x, 3, 64);
        } catch (const RefusedInput& refused) {
          CHECK(refused.row() == 1);
        }
      }
    }
  }
}

TEST_CASE("INT4: rtp-llm stores the BF16 scale of a checkpoint as E4M3 and keeps the codes") {
  std::vector<float> w(64 * 64);
  generate(Distribution::kNormal, 5, 0, 0.02f, w);
  for (float& v : w) v = oracle::round_bf16(v);
  const Recipe checkpoint = parse_recipe("int4:contract=skyrl,scale-div=7,qmin=-7");
  const Recipe loaded = parse_recipe("int4:contract=rtp-llm-ct");
  for (const Backend* backend : backends_for(loaded)) {
    const Quantized a = quantized(*backend, checkpoint, w, 64, 64);
    const Quantized b = quantized(*backend, loaded, w, 64, 64);
    CHECK(a.tile.codes == b.tile.codes);
    REQUIRE(b.tile.scales.size() * 2 == a.tile.scales.size());
    Diff diff("rtp-llm-ct scales " + name_of(*backend));
    for (std::size_t i = 0; i < b.tile.scales.size(); ++i) {
      const std::uint32_t bf16 =
          a.tile.scales[2 * i] | static_cast<std::uint32_t>(a.tile.scales[2 * i + 1]) << 8;
      const float scale = bit_cast<float>(bf16 << 16);
      diff.compare(b.tile.scales[i],
                   oracle::cast_saturating(kE4M3, oracle::exact(scale), Rounding::kEven),
                   std::to_string(i));
    }
    diff.check();
  }
}

TEST_CASE("INT4 and FP8: all backends give the same bits, stochastic rounding included") {
  std::vector<float> x(48 * 200);
  generate(Distribution::kStudent3, 11, 0, 1.0f, x);
  for (const char* text :
       {"int4:round=sr", "int4:contract=skyrl,round=sr", "fp8:round=sr",
        "fp8:contract=vllm-group,round=sr", "custom:int3/64:f16", "custom:e3m4/48:f32",
        "custom:e5m2/tensor:f32", "custom:lut:nf4/64:f32", "custom:lut:nf4/64:bf16"}) {
    const Recipe recipe = parse_recipe(text);
    const Quantized want = quantized(*available_backends().back(), recipe, x, 48, 200);
    for (const Backend* backend : available_backends()) {
      const Quantized got = quantized(*backend, recipe, x, 48, 200);
      CHECK_MESSAGE(got.tile.codes == want.tile.codes, text);
      CHECK_MESSAGE(got.tile.scales == want.tile.scales, text);
      CHECK_MESSAGE(got.values == want.values, text);
    }
  }
  // The random byte moves some codes, each to a neighbour.
  const Quantized rne = quantized(*available_backends().front(), parse_recipe("int4"), x, 48, 200);
  const Quantized sr =
      quantized(*available_backends().front(), parse_recipe("int4:round=sr"), x, 48, 200);
  CHECK(rne.tile.scales == sr.tile.scales);
  int moved = 0;
  for (std::size_t i = 0; i < rne.tile.codes.size(); ++i) {
    const int step = (rne.tile.codes[i] ^ 8) - (sr.tile.codes[i] ^ 8);
    CHECK(std::abs(step) <= 1);
    moved += step != 0;
  }
  CHECK(moved > 0);
}

TEST_CASE("INT4 and FP8: recipes without an answer are refused") {
  for (const char* text : {"fp8:contract=deepgemm,elem=e5m2",
                           "fp8:gran=tensor,scale-fmt=ue8m0",
                           "fp8:contract=torchao-dyn,gran=1x128",
                           "fp8:contract=vllm-tensor,gran=row",
                           "fp8:contract=sgl-token,gran=1x128",
                           "fp8:contract=vllm-group,gran=row",
                           "fp8:contract=verl-dsv4,scale-fmt=f32",
                           "fp8:contract=torchao-affine,scale-fmt=ue8m0",
                           "fp8:contract=hf-block,scale-fmt=pow2",
                           "fp8:contract=te,div=triton",
                           "fp8:gran=7",
                           "fp8:contract=vllm-group,rcp=rn",
                           "int4:group=12",
                           "int4:qmin=-7",
                           "int4:scale-div=7",
                           "int4:contract=skyrl,dtype=f16",
                           "int4:contract=miles-export,scalar-div=exact",
                           "int4:contract=miles-export,round=sr",
                           "int4:contract=rtp-llm,dtype=f16",
                           "custom:e4m3/128:e8m0,contract=hf-block"}) {
    CHECK_THROWS_AS(parse_recipe(text), Error);
  }
}
