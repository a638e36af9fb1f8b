// oracle_int4_fp8_test.cc: the exact oracle against vectors/more/int4.json and fp8.json of
// ../shared (conventions: vectors/README.md section 7): stored scales, codes, decoded values, and
// the table amax -> scale of TransformerEngine.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>

#include "sim/backend.h"
#include "sim/oracle/dyadic.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

using namespace fp4scope;
using namespace fp4scope::test;
using nlohmann::json;

namespace {

constexpr std::uint32_t kNegativeZero = 0x80000000u;

// The stored scale as binary32, from its bytes in the layout of BlockFormat::scale_bytes.
float stored_scale(const Recipe& recipe, const std::uint8_t* bytes) {
  const ScaleLevel& level = recipe.format.levels[0];
  const auto word = [bytes](int n) {
    std::uint32_t w = 0;
    for (int i = 0; i < n; ++i) w |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
    return w;
  };
  switch (level.kind) {
    case ScaleKind::kBinary32:
      REQUIRE(recipe.format.scale_bytes == 4);
      return bit_cast<float>(word(4));
    case ScaleKind::kBfloat16:
      REQUIRE(recipe.format.scale_bytes == 2);
      return bit_cast<float>(word(2) << 16);
    case ScaleKind::kE8m0: {
      REQUIRE(recipe.format.scale_bytes == 1);
      const std::uint32_t byte = bytes[0];
      return bit_cast<float>(byte == 0 ? 0x00400000u : byte << 23);
    }
    case ScaleKind::kMinifloat: {  // E4M3 by definition
      REQUIRE(recipe.format.scale_bytes == 1);
      REQUIRE((level.spec.exponent_bits == 4 && level.spec.mantissa_bits == 3));
      const int field = bytes[0] >> 3 & 15, fraction = bytes[0] & 7;
      const double value = field == 0 ? fraction / 512.0
                                      : (8 + fraction) * static_cast<double>(1u << field) / 1024.0;
      return static_cast<float>(value);
    }
    default:
      FAIL("a scale type without a rule in this test");
      return 0;
  }
}

}  // namespace

TEST_CASE("INT4: scales, integers and values of int4.json") {
  if (!have_shared("vectors/more/int4.json")) return;
  const json file = load_json(shared_dir() / "vectors/more/int4.json");
  const std::vector<float> w = bf16_floats(file["w"]);
  const std::int64_t rows = file["shape"][0], cols = file["shape"][1];
  std::size_t cases = 0;
  for (const json& c : file["cases"]) {
    const std::string text = c["recipe"];
    const Recipe recipe = parse_recipe(text);
    const Quantized got = quantized(oracle_backend(), recipe, w, rows, cols);
    const std::vector<std::uint32_t> scale = hex_words(c["scale"], 8), deq = hex_words(c["deq"], 8);
    const std::vector<int> q = c["q"];
    REQUIRE(q.size() == w.size());
    REQUIRE(deq.size() == w.size());
    REQUIRE(scale.size() * 32 == w.size());
    Diff scales("oracle: " + text + " scale"), codes("oracle: " + text + " q"),
        values("oracle: " + text + " deq");
    for (std::size_t i = 0; i < scale.size(); ++i) {
      const std::size_t bytes = static_cast<std::size_t>(recipe.format.scale_bytes);
      const float s = stored_scale(recipe, got.tile.scales.data() + i * bytes);
      scales.compare_float(bit_cast<std::uint32_t>(s), scale[i], std::to_string(i));
    }
    std::int64_t zero_signs = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      const int code = got.tile.codes[i];
      CHECK(code < 16);
      codes.compare(static_cast<std::uint32_t>(code < 8 ? code : code - 16),
                    static_cast<std::uint32_t>(q[i]), std::to_string(i));
      // An integer code has no -0; the sources' own values have (their own class, README.md).
      const bool lost_sign = q[i] == 0 && deq[i] == kNegativeZero;
      zero_signs += lost_sign ? 1 : 0;
      values.compare_float(bit_cast<std::uint32_t>(got.values[i]), lost_sign ? 0u : deq[i],
                           std::to_string(i));
    }
    scales.check();
    codes.check();
    values.check();
    std::printf("%-60s %lld zeros without their sign\n", "", static_cast<long long>(zero_signs));
    ++cases;
  }
  CHECK(cases == 8);
}

TEST_CASE("FP8: scales and codes of fp8.json") {
  if (!have_shared("vectors/more/fp8.json")) return;
  const json file = load_json(shared_dir() / "vectors/more/fp8.json");
  const std::vector<float> x = bf16_floats(file["x"]);
  const std::int64_t rows = file["shape"][0], cols = file["shape"][1];
  std::size_t cases = 0;
  for (const json& c : file["cases"]) {
    const std::string text = c["recipe"];
    const Recipe recipe = parse_recipe(text);
    const std::vector<std::uint32_t> scale = hex_words(c["scale"], 8), q = hex_words(c["q"], 2);
    REQUIRE(scale.size() == static_cast<std::size_t>(rows));
    REQUIRE(q.size() == x.size());
    // One scale per row of 32 elements: a group of at least 32, or the whole row.
    REQUIRE((!recipe.has_outer() || recipe.scales_rows()));
    const Quantized got = quantized(oracle_backend(), recipe, x, rows, cols);
    REQUIRE((recipe.has_outer() || got.tile.blocks_per_row == 1));
    Diff scales("oracle: " + text + " scale"), codes("oracle: " + text + " q");
    for (std::size_t r = 0; r < scale.size(); ++r) {
      const std::size_t bytes = static_cast<std::size_t>(recipe.format.scale_bytes);
      const float s = recipe.has_outer() ? got.outer[r].g
                                         : stored_scale(recipe, got.tile.scales.data() + r * bytes);
      scales.compare_float(bit_cast<std::uint32_t>(s), scale[r], std::to_string(r));
      for (std::int64_t i = 0; i < cols; ++i) {
        const std::size_t at = r * static_cast<std::size_t>(cols) + static_cast<std::size_t>(i);
        codes.compare(got.tile.codes[r * static_cast<std::size_t>(got.tile.padded_cols) +
                                     static_cast<std::size_t>(i)],
                      q[at], std::to_string(at));
      }
    }
    scales.check();
    codes.check();
    ++cases;
  }
  CHECK(cases == 20);
}

TEST_CASE("FP8: the table amax -> scale of TransformerEngine") {
  if (!have_shared("vectors/more/fp8.json")) return;
  const json file = load_json(shared_dir() / "vectors/more/fp8.json");
  const std::vector<std::uint32_t> amax = hex_words(file["te_amax"], 8);
  struct Setting {
    const char* recipe;
    bool is_block;  // amax as the one element of a block, otherwise as that of the tensor
  };
  const std::map<std::string, Setting> settings = {
      {"e4m3", {"fp8:contract=te,gran=tensor", false}},
      {"e4m3_pow2", {"fp8:contract=te,gran=tensor,scale-fmt=pow2", false}},
      {"e4m3_pow2_eps1e-4", {"fp8:contract=te,gran=tensor,scale-fmt=pow2,eps=0x38d1b717", false}},
      {"e5m2", {"fp8:contract=te,gran=tensor,elem=e5m2", false}},
      {"e4m3_bf16_block", {"fp8:contract=te,dtype=bf16", true}},
      {"e4m3_f16_block_pow2", {"fp8:contract=te,dtype=f16,scale-fmt=pow2", true}},
  };
  std::size_t tables = 0;
  for (const auto& [name, table] : file["te"].items()) {
    REQUIRE(settings.contains(name));
    const Setting& setting = settings.at(name);
    const Recipe recipe = parse_recipe(setting.recipe);
    const std::vector<std::uint32_t> inverse = hex_words(table["inv"], 8);
    const std::vector<std::uint32_t> scale = hex_words(table["scale"], 8);
    REQUIRE(inverse.size() == amax.size());
    REQUIRE(scale.size() == amax.size());
    Diff diff("oracle: fp8.json te " + name + " (decode scale)");
    for (std::size_t i = 0; i < amax.size(); ++i) {
      const float a = bit_cast<float>(amax[i]);
      float got = 0;
      if (setting.is_block) {
        const Quantized q = quantized(oracle_backend(), recipe, {a}, 1, 1);
        got = stored_scale(recipe, q.tile.scales.data());
      } else {
        got = oracle_backend().outer_scale(recipe, bit_cast<std::uint32_t>(a)).g;
      }
      diff.compare_float(bit_cast<std::uint32_t>(got), inverse[i], std::to_string(i));
      // The encode scale has no place in the oracle's results: it is stored as fl(1/scale).
      const float stored = oracle::div32(bit_cast<float>(0x3f800000u), bit_cast<float>(scale[i]));
      diff.compare_float(bit_cast<std::uint32_t>(got), bit_cast<std::uint32_t>(stored),
                         std::to_string(i) + " 1/scale");
    }
    diff.check();
    ++tables;
  }
  CHECK(tables == 6);
}
