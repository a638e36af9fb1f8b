// int4_fp8_test.cc: INT4 group quantization and FP8 against the recorded vectors more/int4.json and
// more/fp8.json (spec/more.md sections 1 and 2): every case, on every CPU backend;
// TransformerEngine's amax table; the lossless FP4 to FP8 cast of DeepSeek-V4.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "formats/codecs/fp8.h"
#include "sim/backend.h"
#include "sim/oracle/exact_format.h"
#include "sim/recipe.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

using namespace fp4scope;
using namespace fp4scope::test;
using nlohmann::json;

namespace {

// Stored block scales as binary32 patterns, decoded here and not by the library.
std::vector<std::uint32_t> stored_scales(const Recipe& recipe, const Quantized& q) {
  if (recipe.format.scale_bytes == 0) {
    std::vector<std::uint32_t> scales;
    for (const OuterScale32& outer : q.outer) scales.push_back(bit_cast<std::uint32_t>(outer.g));
    return scales;
  }
  std::vector<std::uint32_t> scales;
  const auto bytes = static_cast<std::size_t>(recipe.format.scale_bytes);
  for (std::size_t i = 0; i < q.tile.scales.size(); i += bytes) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < bytes; ++k) {
      bits |= static_cast<std::uint32_t>(q.tile.scales[i + k]) << (8 * k);
    }
    switch (recipe.format.levels[0].kind) {
      case ScaleKind::kBfloat16:
        bits <<= 16;
        break;
      case ScaleKind::kE8m0:  // bytes 1 to 254
        REQUIRE((bits >= 1 && bits <= 254));
        bits <<= 23;
        break;
      case ScaleKind::kMinifloat: {  // E4M3 without sign
        const std::uint32_t field = bits >> 3, fraction = bits & 7u;
        const float value = field == 0 ? static_cast<float>(fraction) * 0x1p-9f
                                       : static_cast<float>(8u + fraction) *
                                             bit_cast<float>((127u + field - 10u) << 23);
        bits = bit_cast<std::uint32_t>(value);
        break;
      }
      default:
        break;
    }
    scales.push_back(bits);
  }
  return scales;
}

// By the definition of the formats.
float value_of(MinifloatSpec spec, std::uint32_t code) {
  return oracle::round32(oracle::value(spec, code));
}
float value_of_e8m0(std::uint32_t byte) {
  return oracle::round32(oracle::value_e8m0(byte));
}

int signed_nibble(std::uint8_t code) {
  return code < 8 ? code : code - 16;
}

Fp8Options options_of(const std::string& recipe) {
  return parse_recipe(recipe).fp8;
}

}  // namespace

TEST_CASE("INT4: scales, codes and values of every recorded case") {
  const json file = load_golden("more/int4.json");
  const std::vector<float> w = bf16_floats(file.at("w"));
  const std::int64_t rows = file.at("shape")[0], cols = file.at("shape")[1];
  REQUIRE(std::ssize(w) == rows * cols);
  REQUIRE(file.at("cases").size() == 8);
  for (const Backend* backend : available_backends()) {
    Diff scale("int4 scale " + name_of(*backend)), code("int4 q " + name_of(*backend)),
        value("int4 deq " + name_of(*backend));
    for (const json& c : file.at("cases")) {
      const std::string text = c.at("recipe");
      const Recipe recipe = parse_recipe(text);
      const Quantized q = quantized(*backend, recipe, w, rows, cols);
      const std::vector<std::uint32_t> want_scale = hex_words(c.at("scale"), 8);
      const std::vector<std::uint32_t> want_value = hex_words(c.at("deq"), 8);
      const std::vector<int> want_code = c.at("q");
      const std::vector<std::uint32_t> scales = stored_scales(recipe, q);
      REQUIRE(scales.size() == want_scale.size());
      REQUIRE(q.tile.codes.size() == want_code.size());
      REQUIRE(q.values.size() == want_value.size());
      for (std::size_t i = 0; i < scales.size(); ++i) {
        scale.compare(scales[i], want_scale[i], text + " group " + std::to_string(i));
      }
      for (std::size_t i = 0; i < want_code.size(); ++i) {
        const std::string where = text + " element " + std::to_string(i);
        code.compare(static_cast<std::uint32_t>(signed_nibble(q.tile.codes[i])),
                     static_cast<std::uint32_t>(want_code[i]), where);
        // The sources keep the sign of a zero in their float codes; an integer code has none.
        if (want_code[i] == 0) REQUIRE((want_value[i] & kMagnitudeMask) == 0);
        value.compare_float(bit_cast<std::uint32_t>(q.values[i]),
                            want_code[i] == 0 ? 0u : want_value[i], where);
      }
    }
    scale.check();
    code.check();
    value.check();
    CHECK(scale.compared() == 8 * 20);
    CHECK(code.compared() == 8 * 640);
    CHECK(value.compared() == 8 * 640);
  }
}

TEST_CASE("FP8: scales and codes of every recorded case") {
  const json file = load_golden("more/fp8.json");
  const std::vector<float> x = bf16_floats(file.at("x"));
  const std::int64_t rows = file.at("shape")[0], cols = file.at("shape")[1];
  REQUIRE(std::ssize(x) == rows * cols);
  REQUIRE(file.at("cases").size() == 20);
  for (const Backend* backend : available_backends()) {
    Diff scale("fp8 scale " + name_of(*backend)), code("fp8 q " + name_of(*backend));
    Diff value("fp8 code * scale " + name_of(*backend));
    for (const json& c : file.at("cases")) {
      const std::string text = c.at("recipe");
      const Recipe recipe = parse_recipe(text);
      const Quantized q = quantized(*backend, recipe, x, rows, cols);
      const std::vector<std::uint32_t> want_scale = hex_words(c.at("scale"), 8);
      const std::vector<std::uint32_t> want_code = hex_words(c.at("q"), 2);
      const std::vector<std::uint32_t> scales = stored_scales(recipe, q);
      REQUIRE(scales.size() == static_cast<std::size_t>(rows));
      REQUIRE(want_code.size() == x.size());
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto row = static_cast<std::size_t>(r);
        scale.compare(scales[row], want_scale[row], text + " row " + std::to_string(r));
        for (std::int64_t i = 0; i < cols; ++i) {
          const std::string where = text + " " + std::to_string(r) + "," + std::to_string(i);
          const std::uint32_t want = want_code[static_cast<std::size_t>(r * cols + i)];
          code.compare(q.tile.codes[static_cast<std::size_t>(r * q.tile.padded_cols + i)], want,
                       where);
          const float decoded = value_of(kE4M3, want) * bit_cast<float>(want_scale[row]);
          value.compare_float(
              bit_cast<std::uint32_t>(q.values[static_cast<std::size_t>(r * cols + i)]),
              bit_cast<std::uint32_t>(decoded), where);
        }
      }
    }
    scale.check();
    code.check();
    value.check();
    CHECK(scale.compared() == 20 * 31);
    CHECK(code.compared() == 20 * 992);
  }
}

TEST_CASE("FP8: TransformerEngine's scale and inverse of every recorded amax under six settings") {
  struct Setting {
    std::string recipe;
    bool has_tensor_recipe;  // current scaling; the others are block scaling
  };
  const std::map<std::string, Setting> settings{
      {"e4m3", {"fp8:gran=tensor", true}},
      {"e4m3_pow2", {"fp8:gran=tensor,scale-fmt=pow2", true}},
      {"e4m3_pow2_eps1e-4", {"fp8:gran=tensor,scale-fmt=pow2,eps=0x38d1b717", true}},
      {"e5m2", {"fp8:gran=tensor,elem=e5m2", true}},
      {"e4m3_bf16_block", {"fp8:gran=1x128,dtype=bf16", false}},
      {"e4m3_f16_block_pow2", {"fp8:gran=1x128,dtype=f16,scale-fmt=pow2", false}},
  };
  const json file = load_golden("more/fp8.json");
  const std::vector<float> amax = hex_floats(file.at("te_amax"));
  REQUIRE(amax.size() == 37);
  REQUIRE(file.at("te").size() == settings.size());
  Diff encode_scale("te scale"), inverse("te inverse"), stored("te stored by backends");
  for (const auto& [name, columns] : file.at("te").items()) {
    REQUIRE(settings.contains(name));
    const Setting& setting = settings.at(name);
    const Recipe recipe = parse_recipe(setting.recipe);
    const Fp8Options o = recipe.fp8;
    const std::vector<std::uint32_t> want_scale = hex_words(columns.at("scale"), 8);
    const std::vector<std::uint32_t> want_inverse = hex_words(columns.at("inv"), 8);
    REQUIRE(want_scale.size() == amax.size());
    REQUIRE(want_inverse.size() == amax.size());
    for (std::size_t i = 0; i < amax.size(); ++i) {
      const std::string where = name + " amax " + std::to_string(i);
      const Fp8Scale<Lane<1>> s =
          fp8_scale<Lane<1>>({o, o.e5m2 ? 57344.0f : 448.0f, nullptr}, amax[i]);
      encode_scale.compare(bit_cast<std::uint32_t>(s.factor), want_scale[i], where);
      inverse.compare(bit_cast<std::uint32_t>(s.scale), want_inverse[i], where);
      for (const Backend* backend : available_backends()) {
        std::uint32_t got = 0;
        if (setting.has_tensor_recipe) {
          const auto bits = bit_cast<std::uint32_t>(amax[i]);
          got = bit_cast<std::uint32_t>(backend->outer_scale(recipe, bits).g);
        } else {  // the amax as a block of its own; a block ignores NaN, which leaves amax 0
          got = stored_scales(recipe, quantized(*backend, recipe, {amax[i]}, 1, 1)).at(0);
        }
        stored.compare(got, want_inverse[i], where + " " + name_of(*backend));
      }
    }
  }
  encode_scale.check();
  inverse.check();
  stored.check();
  CHECK(encode_scale.compared() == 6 * 37);
}

TEST_CASE("FP8: delayed scaling takes the amax of the history and a margin") {
  // spec/more.md 2.1: S = fl(fl(448/2^margin)/amax), stored fl(1/S). The table has margin 0.
  const json file = load_golden("more/fp8.json");
  const std::vector<std::uint32_t> amax = hex_words(file.at("te_amax"), 8);
  const std::vector<std::uint32_t> inverse = hex_words(file.at("te").at("e4m3").at("inv"), 8);
  Diff diff("te-delayed");
  for (const Backend* backend : available_backends()) {
    for (std::size_t i = 0; i < amax.size(); ++i) {
      char key[32];
      std::snprintf(key, sizeof key, "0x%08x", amax[i]);
      const Recipe recipe = parse_recipe(std::string("fp8:contract=te-delayed,amax=") + key);
      diff.compare(bit_cast<std::uint32_t>(backend->outer_scale(recipe, 0x3f800000).g), inverse[i],
                   key);
    }
    // 448/2^2 over 7 is 16.
    const Recipe margin = parse_recipe("fp8:contract=te-delayed,amax=0x40e00000,margin=2");
    diff.compare(bit_cast<std::uint32_t>(backend->outer_scale(margin, 0).g), 0x3d800000, "margin");
  }
  diff.check();
}

TEST_CASE("FP8: the DeepSeek-V4 cast of FP4 to FP8 is lossless up to the sign of zero") {
  const json c = load_golden("more/fp8.json").at("dsv4");
  const std::vector<std::uint32_t> fp4 = hex_words(c.at("fp4"), 1);
  const std::vector<std::uint32_t> want = hex_words(c.at("e4m3"), 2);
  const std::vector<std::uint32_t> bytes = c.at("sbytes");
  const std::uint32_t out = dsv4_out_byte(121);  // largest of the whole block, see `about`
  CHECK(out == c.at("out_byte").get<std::uint32_t>());
  REQUIRE(fp4.size() == 256);
  REQUIRE(want.size() == fp4.size());
  REQUIRE(bytes.size() == 8);
  Diff code("dsv4 codes"), value("dsv4 values");
  for (std::size_t i = 0; i < fp4.size(); ++i) {
    const std::uint32_t byte = bytes[i / 32];
    const std::uint32_t got = dsv4_element<Lane<1>>(fp4[i], byte, out);
    code.compare(got, want[i], "element " + std::to_string(i));
    const float before = value_of(kE2M1, fp4[i] == 8 ? 0u : fp4[i]) * value_of_e8m0(byte);
    const float after = value_of(kE4M3, got) * value_of_e8m0(out);
    value.compare(bit_cast<std::uint32_t>(after), bit_cast<std::uint32_t>(before),
                  "element " + std::to_string(i));
  }
  code.check();
  value.check();
}

TEST_CASE("FP8: power-of-two bytes of zero groups differ between the sources") {
  // spec/more.md 2.2: deepgemm 105, triton-group and sgl-group 85, vllm-group 94, verl-dsv4 127.
  const std::map<std::string, std::uint8_t> expected{
      {"deepgemm", 105},  {"tilekernels", 105}, {"triton-group", 85}, {"triton-group-div", 85},
      {"vllm-group", 94}, {"sgl-group", 85},    {"verl-dsv4", 127},   {"te", 127}};
  for (const auto& [contract, byte] : expected) {
    const Recipe recipe = parse_recipe("fp8:contract=" + contract + ",scale-fmt=ue8m0");
    for (const Backend* backend : available_backends()) {
      const Quantized q = quantized(*backend, recipe, std::vector<float>(128, 0.0f), 1, 128);
      CHECK_MESSAGE(q.tile.scales.at(0) == byte, contract);
    }
  }
}

TEST_CASE("FP8: the zero-group scales of spec/more.md 2.1") {
  const std::map<std::string, float> expected{
      {"deepgemm", 2.2321e-7f},   {"triton-group", 2.2321e-13f}, {"vllm-group", 2.2321e-13f},
      {"vllm-token", 4.3597e-6f}, {"fbgemm-cuda", 4.3597e-6f},   {"torchao-dyn", 1.0f / 4.48e14f}};
  for (const auto& [contract, want] : expected) {
    const Recipe recipe = parse_recipe("fp8:contract=" + contract);
    for (const Backend* backend : available_backends()) {
      const Quantized q = quantized(*backend, recipe, std::vector<float>(128, 0.0f), 1, 128);
      const float got = bit_cast<float>(stored_scales(recipe, q).at(0));
      CHECK_MESSAGE(got == doctest::Approx(want).epsilon(1e-4), contract);
    }
  }
  CHECK(options_of("fp8:contract=torchao-dyn").gran.is_row());
}
