// oracle_nvfp4_examples_test.cc: what the text of spec/nvfp4.md (worked examples of section 8, zero
// rules of sections 2 and 4.1) and of spec/more.md 4 and 6 says bit by bit, through the oracle; the
// contracts without recorded vectors; refusals; stochastic rounding; user-defined geometry.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "sim/error.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"
#include "tests/shared/oracle_runs.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

using Codes = std::vector<int>;

std::vector<float> padded(std::vector<float> x, std::size_t n = 16) {
  x.resize(n);
  return x;
}
// Scale byte and first codes of one block.
void check_block(const std::string& text, const std::vector<float>& x, std::uint32_t byte,
                 const Codes& codes) {
  const Quantized got = oracle_run(text, padded(x));
  CHECK_MESSAGE(got.tile.scales[0] == byte, text);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    CHECK_MESSAGE(static_cast<int>(got.tile.codes[i]) == codes[i], text << " code " << i);
  }
}
void check_values(const std::string& text, const std::vector<float>& x,
                  const std::vector<float>& values) {
  const Quantized got = oracle_run(text, padded(x));
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK_MESSAGE(bit_cast<std::uint32_t>(got.values[i]) == bit_cast<std::uint32_t>(values[i]),
                  text << " value " << i);
  }
}
bool is_refused(const std::string& text, const std::vector<float>& x) {
  try {
    oracle_run(text, padded(x));
  } catch (const RefusedInput&) {
    return true;
  }
  return false;
}

const float kNan = bit_cast<float>(kQuietNanBits);

}  // namespace

TEST_CASE("worked examples of spec/nvfp4.md section 8") {
  SUBCASE("orders that split a tie of the block scale") {
    check_block("nvfp4:contract=te,amax=0x41ce0000", {1.20703125f}, 0x5b, {});
    for (const char* contract : {"flashinfer-fast", "trtllm", "vllm", "fouroversix"}) {
      check_block(std::string("nvfp4:contract=") + contract + ",amax=0x41ce0000", {1.20703125f},
                  0x5a, {});
    }
  }
  SUBCASE("orders that split a tie of an element") {
    const std::vector<float> x = {0.847f, 0.2470703125f};
    check_block("nvfp4:contract=te,amax=0x418a0000", x, 0x5b, {7, 4});
    check_block("nvfp4:contract=mslk,amax=0x418a0000", x, 0x5b, {7, 3});
  }
  SUBCASE("elements are divided by the rounded scale") {
    const std::string text = "nvfp4:contract=te,scale=none";
    check_block(text, {6.42f, 0.27f, -1.4f, 0.85f}, 0x39, {7, 0, 10, 2});
    check_values(text, {6.42f, 0.27f, -1.4f, 0.85f}, {6.75f, 0.0f, -1.125f, 1.125f});
    check_block(text, {5000, 2500, -1250}, 0x7e, {7, 7, 13});
    check_values(text, {5000, 2500, -1250}, {2688, 2688, -1344});
  }
  SUBCASE("dead zones") {
    check_values("nvfp4:contract=te,scale=none", {24.0f, 1.0f, std::nextafter(1.0f, 2.0f), 0.99f},
                 {24, 0, 2, 0});
    check_block("nvfp4:contract=te,amax=0x48e00000", {1.0f}, 0x00, {});
    check_block("nvfp4:contract=te,amax=0x48e00000", {std::nextafter(1.0f, 2.0f)}, 0x01, {});
  }
  SUBCASE("a map-to-4 scale that saturates") {
    std::vector<float> x(16, 0.75f);
    x[0] = 1;
    const Quantized m448 = oracle_run("nvfp4:contract=te,select=mae,e4m3max=448", x);
    CHECK(m448.tile.scales[0] == 0x7e);
    CHECK(m448.tile.choices[0] == 0);
    CHECK(m448.tile.codes[0] == 7);
    CHECK(m448.tile.codes[1] == 6);
    const Quantized m256 = oracle_run("nvfp4:contract=te,select=mae,e4m3max=256", x);
    CHECK(m256.tile.scales[0] == 0x7c);
    CHECK(m256.tile.choices[0] == 1);
    CHECK(m256.tile.codes[0] == 6);
    CHECK(m256.tile.codes[1] == 5);
  }
  SUBCASE("the choice by mae and by mse") {
    const auto run = [](const char* select, const std::vector<float>& x) {
      const Recipe r = parse_recipe(std::string("nvfp4:contract=te,scale=none,select=") + select);
      const std::vector<float> block = padded(x);
      const Tile tile{block.data(), nullptr, 1, 16, 16};
      return oracle_run(r, tile, measured_scales(oracle_backend(), r, tile), false).tile;
    };
    const QuantizedTile tie = run("mae", {24});
    CHECK(tie.choices[0] == 0);
    CHECK(tie.errors == std::vector<float>{0, 0});
    const QuantizedTile mae = run("mae", {24, 20, 8, 8, 8});
    CHECK(mae.scales[0] == 0x48);
    CHECK(mae.errors == std::vector<float>{5, 4});
    const QuantizedTile mse = run("mse", {24, 20, 8, 8, 8});
    CHECK(mse.scales[0] == 0x4c);
    CHECK(mse.errors == std::vector<float>{7, 16});
  }
}

TEST_CASE("zero blocks, zero scales, -0 and NaN by contract") {
  SUBCASE("a zero block beside another stores") {
    const std::pair<const char*, int> stores[] = {
        {"te", 0x00},       {"te-fast", 0x00},         {"flashinfer", 0x00},
        {"vllm", 0x00},     {"trtllm", 0x00},          {"fouroversix", 0x00},
        {"modelopt", 0x38}, {"torchao", 0x08},         {"compressed-tensors", 0x20},
        {"mslk", 0x01},     {"mlx-metal", 0x00},       {"mlx-cuda", 0x00},
        {"onednn", 0x20},   {"fouroversix-cuda", 0x00}};
    for (const auto& [contract, byte] : stores) {
      const std::string text = std::string("nvfp4:contract=") + contract;
      std::vector<float> x(32, 0.0f);
      x[16] = 3;
      const Quantized got = oracle_run(text, x);
      CHECK_MESSAGE(static_cast<int>(got.tile.scales[0]) == byte, text);
    }
  }
  SUBCASE("section 4.1: a scale that underflows under a tiny g") {
    const std::string g = ",scale=given,g=0x35800000";  // 2^-20
    const std::vector<float> x = {1, 0, -1, -0.0f};
    check_block("nvfp4:contract=flashinfer-fast" + g, x, 0, {7, 7, 15, 7});
    check_block("nvfp4:contract=trtllm" + g, x, 0, {7, 7, 15, 7});
    check_block("nvfp4:contract=vllm" + g, x, 0, {0, 0, 8, 8});
    check_block("nvfp4:contract=flashinfer" + g, x, 0, {7, 0, 15, 8});
    check_block("nvfp4:contract=te" + g, x, 0, {7, 0, 15, 8});
    check_block("nvfp4:contract=mlx-cuda", {0, -0.0f}, 0, {7, 7});
    check_block("nvfp4:contract=mlx-metal", {0, -0.0f}, 0, {0, 8});
  }
  SUBCASE("a subnormal block is a zero block under flush-to-zero") {
    const float tiny = bit_cast<float>(0x007fffffu);
    const std::string g = ",scale=given,g=0x7f7fffff";
    check_block("nvfp4:contract=flashinfer" + g, {tiny, -tiny}, 0, {0, 8});
    const Quantized kept = oracle_run("nvfp4:contract=flashinfer,ftz=off" + g, padded({tiny}));
    CHECK(kept.tile.scales[0] != 0);
  }
  SUBCASE("the zero row of flashinfer-fast has g = Inf and a NaN scale") {
    const Quantized got = oracle_run("nvfp4:contract=flashinfer-fast,scale=row", padded({}));
    CHECK(got.tile.scales[0] == 0x7f);
    CHECK(got.tile.codes[0] == 0);
  }
  SUBCASE("the sign of an input -0, and of a negative underflow") {
    const std::pair<const char*, int> signs[] = {{"te", 8},
                                                 {"te-fast", 8},
                                                 {"flashinfer", 8},
                                                 {"flashinfer-fast", 8},
                                                 {"vllm", 8},
                                                 {"trtllm", 8},
                                                 {"fouroversix", 0},
                                                 {"fouroversix-cuda", 8},
                                                 {"modelopt", 0},
                                                 {"torchao", 8},
                                                 {"compressed-tensors", 0},
                                                 {"mslk", 8},
                                                 {"onednn", 8},
                                                 {"mlx-metal", 8},
                                                 {"mlx-cuda", 8}};
    for (const auto& [contract, code] : signs) {
      const std::string text = std::string("nvfp4:contract=") + contract;
      const Quantized got = oracle_run(text, padded({6, -0.0f, -0.0078125f, 0}));
      CHECK_MESSAGE(static_cast<int>(got.tile.codes[1]) == code, text);
      CHECK_MESSAGE(got.tile.codes[2] == 8, text);
      CHECK_MESSAGE(got.tile.codes[3] == 0, text);
      const Quantized other =
          oracle_run(text + (code == 8 ? ",neg-zero=drop" : ",neg-zero=keep"), padded({6, -0.0f}));
      CHECK_MESSAGE(static_cast<int>(other.tile.codes[1]) == 8 - code, text);
    }
    check_block("nvfp4:contract=mlx-cpu", {6, -0.0f, -0.0078125f, 0.25f}, 0x38, {7, 0, 0, 0});
  }
  SUBCASE("NaN elements") {
    for (const char* contract : {"te", "te-fast", "flashinfer", "flashinfer-fast", "vllm", "trtllm",
                                 "fouroversix-cuda", "modelopt", "torchao"}) {
      const std::string text = std::string("nvfp4:contract=") + contract;
      const Quantized got = oracle_run(text, padded({6, kNan, -kNan}));
      CHECK_MESSAGE(got.tile.codes[1] == 7, text);
      CHECK_MESSAGE(got.tile.codes[2] == 7, text);
      CHECK_MESSAGE(got.tile.codes[0] == 7, text);
    }
    check_block("nvfp4:contract=onednn", {6, kNan, bit_cast<float>(0xffc00000u)}, 0x38, {7, 7, 15});
    for (const char* contract : {"fouroversix", "compressed-tensors", "mlx-cpu"}) {
      CHECK_MESSAGE(is_refused(std::string("nvfp4:contract=") + contract, {6, kNan}), contract);
      CHECK_MESSAGE(!is_refused(std::string("nvfp4:contract=") + contract, {6, 1}), contract);
    }
    CHECK(is_refused("nvfp4:contract=fouroversix-cuda", {}));
  }
}

TEST_CASE("contracts of spec/more.md without recorded vectors") {
  SUBCASE("onednn: no scale below 0.125") {
    check_block("nvfp4:contract=onednn", {0.74f}, 0x20, {7});
    check_block("nvfp4:contract=onednn", {0.03125f, 0.03126f, -0.03f}, 0x20, {0, 1, 8});
    check_block("nvfp4:contract=onednn", {24, 5000}, 0x7e, {0, 7});
    check_values("nvfp4:contract=onednn", {0.75f, 0.1f}, {0.75f, 0.125f});
  }
  SUBCASE("mslk: te's adaptive base with the floor 2^-9") {
    check_block("nvfp4:contract=mslk,scale=none", {0.001f}, 0x01, {1});
    check_block("nvfp4:contract=mslk,amax=0x41ce0000", {1.20703125f}, 0x5a, {7});
  }
  SUBCASE("flashinfer-kv: a decode scale") {
    // a = 1/4: bmax 3 gives 4 * 3/6 = 2, elements are multiplied by 1/(2 * 0.25).
    const std::string text = "nvfp4:contract=flashinfer-kv,scale=given,g=0x3e800000";
    check_block(text, {3, 0.5f, -1}, 0x40, {7, 2, 12});
    check_values(text, {3, 0.5f, -1}, {3, 0.5f, -1});
  }
  SUBCASE("mlx-cpu: ties toward zero") {
    check_block("nvfp4:contract=mlx-cpu", {6, 0.75f, 5, 3.5f, -2.5f}, 0x38, {7, 1, 6, 5, 12});
  }
}

TEST_CASE("outer scales: rules of g") {
  // spec/nvfp4.md 3.1 in native binary32, for BF16 maxima 1..2.
  int differing = 0;
  for (std::uint32_t bits = 0x3f800000u; bits < 0x40000000u; bits += 0x10000u) {
    const float amax = bit_cast<float>(bits), r = 1.0f / amax, product = r * 2688.0f;
    const float sixth = 1.0f / 2688.0f, scaled = amax * sixth, inverse = 1.0f / scaled;
    const float quotient = amax / 2688.0f, direct = 2688.0f / amax;
    const std::pair<const char*, float> rules[] = {
        {"div", direct}, {"rcp-mul", product}, {"inv-mul", inverse}, {"inv-div", 1.0f / quotient}};
    for (const auto& [rule, want] : rules) {
      const Recipe recipe = parse_recipe(std::string("nvfp4:contract=flashinfer,g-rule=") + rule);
      const float got = oracle_backend().outer_scale(recipe, bits).g;
      CHECK_MESSAGE(bit_cast<std::uint32_t>(got) == bit_cast<std::uint32_t>(want),
                    rule << " " << bits);
      if (got != direct) ++differing;
    }
  }
  CHECK(differing > 0);
}

TEST_CASE("stochastic rounding of te: the quotient, the random byte of the element, its sign") {
  const Recipe recipe = parse_recipe("nvfp4:contract=te,scale=none,round=sr,seed=7");
  std::vector<float> x(64);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<int>(i * 37 % 97) - 48) / 8;
  }
  x[0] = 6, x[16] = -6, x[32] = 6, x[48] = -6;  // scale 1 in every block
  const Tile tile{x.data(), nullptr, 2, 32, 32};
  const Quantized got =
      oracle_run(recipe, tile, measured_scales(oracle_backend(), recipe, tile), false);
  int rounded_otherwise = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t byte = oracle::random_byte(recipe, tile, static_cast<std::int64_t>(i / 32),
                                                   static_cast<std::int64_t>(i % 32));
    const std::uint32_t sign = std::signbit(x[i]) ? 8u : 0u;
    CHECK(got.tile.scales[i / 16] == 0x38);
    CHECK(got.tile.codes[i] == (oracle::stochastic(kE2M1, std::fabs(x[i]), byte) | sign));
    const auto nearest = oracle::cast_saturating(kE2M1, oracle::exact(x[i]), Rounding::kEven);
    if (got.tile.codes[i] != nearest) ++rounded_otherwise;
  }
  CHECK(rounded_otherwise > 0);
}

TEST_CASE("user-defined geometry: element, block and scale type come from the format") {
  SUBCASE("the shape of nvfp4 gives the bits of nvfp4") {
    std::vector<float> x(64);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 2001u) - 1000) / 64;
    }
    for (const std::string keys :
         {"contract=te", "contract=flashinfer-fast,scale=row", "contract=torchao",
          "contract=te,select=mae", "contract=fouroversix,select=mse"}) {
      const Quantized named = oracle_run("nvfp4:" + keys, x, 2);
      const bool by_row = keys.find("scale=row") != std::string::npos;
      const Quantized custom = oracle_run(
          std::string("custom:e2m1/16:e4m3/") + (by_row ? "row" : "tensor") + ":f32," + keys, x, 2);
      CHECK_MESSAGE(named.tile.codes == custom.tile.codes, keys);
      CHECK_MESSAGE(named.tile.scales == custom.tile.scales, keys);
      CHECK_MESSAGE(bits_of(named.values) == bits_of(custom.values), keys);
    }
  }
  SUBCASE("other types") {
    // FMAX 28 and blocks of 8: scale 1 for the first block, 2 for the second.
    const Quantized e3m2 = oracle_run("custom:e3m2/8:e4m3,contract=te,scale=none",
                                      {28, 1, -14, 0, 0, 0, 0, 0, 56, 2, -28, 0, 0, 0, 0, 0});
    CHECK(e3m2.tile.scales == std::vector<std::uint8_t>{0x38, 0x40});
    CHECK(std::vector<std::uint8_t>(e3m2.tile.codes.begin(), e3m2.tile.codes.begin() + 4) ==
          std::vector<std::uint8_t>{0x1f, 0x0c, 0x3b, 0x00});
    CHECK(e3m2.tile.codes[8] == 0x1f);
    // UE5M3 reaches 114688 = 1.75 * 2^16, and g aims there.
    const Recipe ue5m3 = parse_recipe("custom:e2m1/16:ue5m3/tensor:f32,contract=te");
    CHECK(oracle_backend().outer_scale(ue5m3, 0x3f800000u).g == 6.0f * 114688.0f);
  }
}
