// oracle_vectors_test.cc: the exact oracle against the recorded vectors of ../shared/vectors
// (conventions: vectors/README.md there). The oracle was written from the specification alone, so
// these runs check two independent readings against each other.
#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>

#include "formats/scalars.h"
#include "sim/backend.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

using namespace fp4scope;
using namespace fp4scope::test;
using nlohmann::json;
using oracle::exact;
using oracle::Number;

namespace {

json load_shared(const std::string& name) {
  return load_json(shared_dir() / "vectors" / name);
}

std::string at(const std::string& what, std::size_t i) {
  return what + " " + std::to_string(i);
}

}  // namespace

TEST_CASE("the oracle's scalar casts give the recorded codes") {
  if (!have_shared("vectors")) return;
  SUBCASE("element casts under four roundings") {
    const json file = load_shared("scalars/elem_cast.json");
    const std::map<std::string, Rounding> columns = {{"rne", Rounding::kEven},
                                                     {"rna", Rounding::kAway},
                                                     {"rhz", Rounding::kZero},
                                                     {"rtz", Rounding::kTrunc}};
    Diff diff("oracle: scalars/elem_cast.json");
    for (const json& format : file["formats"]) {
      const std::string name = format["fmt"];
      for (const json& row : format["rows"]) {
        const std::string in = row["in"];
        const Number x = exact(hex_float(in));
        if (x.is_nan()) continue;  // its code is a policy of the caller
        for (const auto& [column, rounding] : columns) {
          diff.compare(oracle::cast_saturating(spec_named(name), x, rounding), row[column],
                       name + " " + column + " " + in);
        }
      }
    }
    diff.check();
  }
  SUBCASE("the default E2M1 cast") {
    Diff diff("oracle: scalars/e2m1_satfinite.json");
    const json file = load_shared("scalars/e2m1_satfinite.json");
    for (const json& row : file["rows"]) {
      const std::string in = row[0];
      const Number x = exact(hex_float(in));
      const std::uint32_t got =
          x.is_nan() ? 7u : oracle::cast_saturating(kE2M1, x, Rounding::kEven);
      diff.compare(got, row[1], in);
    }
    diff.check();
  }
  SUBCASE("E4M3 saturating, non-saturating and decoded") {
    const json file = load_shared("scalars/e4m3_cast.json");
    Diff diff("oracle: scalars/e4m3_cast.json");
    for (const json& row : file["rows"]) {
      const std::string in = row[0];
      const Number x = exact(hex_float(in));
      const std::uint32_t saturating =
          x.is_nan() ? 0x7fu : oracle::cast_saturating(kE4M3, x, Rounding::kEven);
      diff.compare(saturating, row[1], in + " saturating");
      const std::uint32_t nan_code = x.negative ? 0xffu : 0x7fu;
      diff.compare(oracle::cast_special(kE4M3, x, Rounding::kEven, nan_code), row[2],
                   in + " special");
    }
    for (std::uint32_t code = 0; code < 256; ++code) {
      const std::string want = file["decode"][code];
      diff.compare_float(bit_cast<std::uint32_t>(round32(oracle::value(kE4M3, code))),
                         want == "nan" ? kQuietNanBits : hex_bits(want), at("code", code));
    }
    diff.check();
  }
  SUBCASE("UE4M3 scales") {
    Diff diff("oracle: scalars/ue4m3_scale.json");
    const json file = load_shared("scalars/ue4m3_scale.json");
    for (const json& row : file["rows"]) {
      const std::string in = row["in"];
      const Number x = exact(hex_float(in));
      if (x.is_nan()) continue;
      diff.compare(oracle::cast_saturating(kUE4M3, x, Rounding::kEven), row["rne_sat"], in);
    }
    diff.check();
  }
  SUBCASE("E8M0 by seven rules, and its corner values") {
    using oracle::E8m0Cast;
    const std::map<std::string, E8m0Cast> rules = {
        {"down", E8m0Cast::kDown},
        {"up_ptx_satfinite", E8m0Cast::kUpPtxSatfinite},
        {"up_ptx_nosat", E8m0Cast::kUpPtxNosat},
        {"up_onnx", E8m0Cast::kUpOnnx},
        {"nearest_torch", E8m0Cast::kNearestTorch},
        {"nearest_onnx_saturate", E8m0Cast::kNearestOnnxSaturate},
        {"nearest_ml_dtypes", E8m0Cast::kNearestMlDtypes}};
    Diff diff("oracle: scalars/e8m0_cast.json");
    const json file = load_shared("scalars/e8m0_cast.json");
    for (const json& row : file["rows"]) {
      const std::string in = row["in"];
      for (const auto& [column, rule] : rules) {
        diff.compare(oracle::cast_e8m0(rule, exact(hex_float(in))), row[column], column + " " + in);
      }
    }
    const json decode = load_shared("scalars/e8m0_decode.json");
    for (const auto& [byte, text] : decode["correct"].items()) {
      const std::uint32_t got = bit_cast<std::uint32_t>(
          round32(oracle::value_e8m0(static_cast<std::uint32_t>(std::stoul(byte)))));
      const std::string want = text;
      diff.compare_float(got, want == "NaN" ? kQuietNanBits : hex_bits(want), "byte " + byte);
    }
    diff.check();
  }
  SUBCASE("E6M2: decode, reciprocal, encode") {
    const json file = load_shared("scalars/e6m2.json");
    Diff diff("oracle: scalars/e6m2.json");
    for (std::uint32_t code = 0; code < 256; ++code) {
      const std::string value = file["decode"][code];
      diff.compare_float(bit_cast<std::uint32_t>(round32(oracle::value(kE6M2, code))),
                         value == "nan" ? kQuietNanBits : hex_bits(value), at("decode", code));
      const std::string rcp = file["rcp_bf16"][code];
      diff.compare_float(bit_cast<std::uint32_t>(oracle::reciprocal_e6m2(code)),
                         rcp == "nan" ? kQuietNanBits : hex_bits(rcp) << 16,
                         at("reciprocal", code));
    }
    for (const json& row : file["encode"]) {
      const std::string in = row[0];
      const Number x = exact(bit_cast<float>(hex_bits(in) << 16));
      if (!row[1].is_null()) {
        diff.compare(oracle::cast_saturating(kE6M2, x, Rounding::kEven), row[1], in + " even");
      }
      if (!row[2].is_null()) {
        diff.compare(oracle::cast_saturating(kE6M2, x, Rounding::kAway), row[2], in + " away");
      }
    }
    diff.check();
  }
  SUBCASE("BF16 and FP16 narrowing, by two different roundings") {
    Diff diff("oracle: scalars/bf16_fp16_cast.json");
    const json file = load_shared("scalars/bf16_fp16_cast.json");
    for (const json& row : file["rows"]) {
      const std::string in = row[0], bf16 = row[1], fp16 = row[2];
      const float v = hex_float(in);
      const Number x = exact(v);
      if (x.is_nan()) continue;
      diff.compare(oracle::bf16_code(v, 0x7fffu), hex_bits(bf16), in + " bf16");
      diff.compare(oracle::fp16_code(v, 0x7fffu), hex_bits(fp16), in + " fp16");
      // The same through the tables of values.
      diff.compare(oracle::cast_special(kBF16, x, Rounding::kEven, 0), hex_bits(bf16),
                   in + " bf16 by table");
      diff.compare(oracle::cast_special(kFP16, x, Rounding::kEven, 0), hex_bits(fp16),
                   in + " fp16 by table");
    }
    diff.check();
  }
  SUBCASE("stochastic rounding to E2M1") {
    Diff diff("oracle: scalars/philox_sr.json soft_sr");
    const json file = load_shared("scalars/philox_sr.json");
    for (const json& row : file["soft_sr"]) {
      const std::string in = row[0];
      const std::uint32_t byte = row[1];
      const float v = hex_float(in);
      const Number x = exact(v);
      const std::uint32_t magnitude = oracle::stochastic(kE2M1, v, byte);
      const std::uint32_t got = x.is_nan() ? 7u : magnitude | (x.negative ? 8u : 0u);
      diff.compare(got, row[2], in + " byte " + std::to_string(byte));
    }
    diff.check();
  }
  SUBCASE("decode of E2M1 and E4M3 to FP16") {
    const json file = load_shared("scalars/f16_decode.json");
    Diff diff("oracle: scalars/f16_decode.json");
    for (std::uint32_t code = 0; code < 16; ++code) {
      const std::string want = file["e2m1_to_f16"][code];
      diff.compare(oracle::fp16_code(round32(oracle::value(kE2M1, code)), 0x7fffu), hex_bits(want),
                   at("e2m1", code));
    }
    for (std::uint32_t code = 0; code < 256; ++code) {
      const std::string want = file["e4m3_to_f16"][code];
      diff.compare(oracle::fp16_code(round32(oracle::value(kE4M3, code)), 0x7fffu), hex_bits(want),
                   at("e4m3", code));
    }
    diff.check();
  }
}

namespace {

// The tile of one recorded block through the oracle, and back.
struct Result {
  QuantizedTile tile;
  std::vector<std::uint32_t> values;
};
Result run(const Recipe& recipe, const std::vector<float>& x, std::int64_t rows,
           std::span<const OuterScale32> outer) {
  const std::int64_t cols = std::ssize(x) / rows;
  Quantized q = quantized(oracle_backend(), recipe, {x.data(), nullptr, rows, cols, cols}, outer);
  Result result{std::move(q.tile), {}};
  for (const float v : q.values) result.values.push_back(bit_cast<std::uint32_t>(v));
  return result;
}

void compare_all(Diff& diff, const std::vector<std::uint32_t>& got,
                 const std::vector<std::uint32_t>& want, const std::string& where) {
  REQUIRE_MESSAGE(got.size() == want.size(), where);
  for (std::size_t i = 0; i < got.size(); ++i) diff.compare(got[i], want[i], at(where, i));
}

std::vector<std::uint32_t> words(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace

TEST_CASE("the oracle's MX blocks give the recorded bytes, codes and values") {
  if (!have_shared("vectors")) return;
  const OuterScale32 none;
  for (const char* name : {"mx/mxfp4_blocks.json", "mx/mxfp8_mxfp6_blocks.json"}) {
    std::set<std::string> recipes;
    Diff diff(std::string("oracle: ") + name);
    const json file = load_shared(name);
    for (const json& block : file["blocks"]) {
      const std::string text = block["in"], block_name = block["name"];
      const std::vector<float> x = hex_floats(text);
      for (const auto& [recipe_text, want] : block["out"].items()) {
        if (recipe_text.find("contract=torchao-") == std::string::npos) continue;
        std::vector<std::string> aliases = {recipe_text};
        const std::size_t floor = recipe_text.find("torchao-floor");
        if (floor != std::string::npos) {
          aliases.push_back(recipe_text.substr(0, floor) + "ocp-floor-rne");
        }
        for (const std::string& alias : aliases) {
          recipes.insert(alias);
          const Recipe recipe = parse_recipe(alias);
          const Result got = run(recipe, x, 1, {&none, 1});
          const std::string where = alias + " " + block_name;
          diff.compare(got.tile.scales[0], want["s"], where + " scale");
          if (want.contains("c")) {
            const std::size_t digits = recipe.format.element.storage_bits() == 4 ? 1 : 2;
            compare_all(diff, words(got.tile.codes), hex_words(want["c"], digits), where + " code");
          }
          // A block whose scale is NaN has neither codes nor values in the file: all NaN.
          const std::vector<std::uint32_t> values =
              want.contains("d") ? hex_words(want["d"], 8)
                                 : std::vector<std::uint32_t>(x.size(), kQuietNanBits);
          CHECK((want.contains("d") || want["s"] == 255));
          for (std::size_t i = 0; i < values.size(); ++i) {
            diff.compare_float(got.values[i], values[i], at(where + " value", i));
          }
        }
      }
    }
    diff.check();
    CHECK(recipes.size() == (std::string(name).find("mxfp4") != std::string::npos ? 5u : 20u));
  }
}

TEST_CASE("the oracle's NVFP4 te gives the recorded outer scales") {
  if (!have_shared("vectors")) return;
  Diff diff("oracle: nvfp4/global_scale.json");
  const auto check = [&](const std::string& text, const std::string& amax, std::uint32_t want) {
    const Recipe recipe = parse_recipe(text);
    const float g = oracle_backend().outer_scale(recipe, hex_bits(amax)).g;
    diff.compare(bit_cast<std::uint32_t>(g), want, text + " amax " + amax);
    return g;
  };
  const json file = load_shared("nvfp4/global_scale.json");
  for (const json& row : file["cases"]) {
    const std::string amax = row["amax"], g448 = row["g_448"], g256 = row["g_256"];
    const float g = check("nvfp4:contract=te", amax, hex_bits(g448));
    check("nvfp4:contract=te,e4m3max=256", amax, hex_bits(g256));
    const float one = bit_cast<float>(0x3f800000u);
    const float six = bit_cast<float>(0x40c00000u);
    const std::string inverse = row["inv_g_448"], sixth = row["g_sixth_448"];
    diff.compare(bit_cast<std::uint32_t>(oracle::div32(one, g)), hex_bits(inverse), "1/g " + amax);
    diff.compare(bit_cast<std::uint32_t>(oracle::mul32(g, oracle::div32(one, six))),
                 hex_bits(sixth), "g/6 " + amax);
  }
  diff.check();
}

TEST_CASE("the oracle's NVFP4 te gives the recorded tensors") {
  if (!have_shared("vectors")) return;
  const json file = load_shared("nvfp4/cases.json");
  const json inputs = load_shared("nvfp4/inputs.json")["inputs"];
  Diff diff("oracle: nvfp4/cases.json, te, static6");
  int cases = 0;
  for (const json& c : file["cases"]) {
    const std::string text = c["recipe"];
    if (text.find("contract=te,") == std::string::npos) continue;
    if (text.find("select=static6") == std::string::npos) continue;
    if (text.find("round=sr") != std::string::npos || text.find("rht=") != std::string::npos) {
      continue;
    }
    ++cases;
    const Recipe recipe = parse_recipe(text);
    const std::string input = c["input"];
    const json& tensor = inputs[input];
    const std::int64_t rows = tensor["rows"];
    std::vector<float> x;
    if (tensor.contains("f32")) {
      x = hex_floats(tensor["f32"]);
    } else {
      for (const std::uint32_t w : hex_words(tensor["bf16"], 4))
        x.push_back(bit_cast<float>(w << 16));
    }
    const auto blob = [&](const char* key, std::size_t digits) {
      return hex_words(file["blobs"][c[key].get<std::size_t>()], digits);
    };
    const std::string where = text + " " + input;
    std::vector<OuterScale32> outer;
    for (const std::uint32_t amax : blob("amax", 8)) {
      outer.push_back(oracle_backend().outer_scale(recipe, amax));
    }
    const std::vector<std::uint32_t> g = blob("g", 8);
    REQUIRE(g.size() == outer.size());
    for (std::size_t i = 0; i < g.size(); ++i) {
      diff.compare(bit_cast<std::uint32_t>(outer[i].g), g[i], at(where + " g", i));
    }
    const Result got = run(recipe, x, rows, outer);
    compare_all(diff, words(got.tile.scales), blob("sf", 2), where + " scale");
    std::vector<std::uint32_t> packed;
    for (std::size_t i = 0; i < got.tile.codes.size(); i += 2) {
      packed.push_back(got.tile.codes[i] | static_cast<std::uint32_t>(got.tile.codes[i + 1]) << 4);
    }
    compare_all(diff, packed, blob("packed", 2), where + " byte");
    if (c.contains("dequant")) {
      const bool bf16 = c["dequant_dtype"] == "bf16";
      const std::vector<std::uint32_t> want = blob("dequant", bf16 ? 4 : 8);
      REQUIRE(want.size() == got.values.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        const float v = bit_cast<float>(got.values[i]);
        const std::uint32_t bits = bf16 ? oracle::bf16_code(v, 0x7fc0u) << 16 : got.values[i];
        diff.compare_float(bits, bf16 ? want[i] << 16 : want[i], at(where + " value", i));
      }
    }
  }
  CHECK(cases >= 27);
  diff.check();
}

namespace {

std::uint32_t bits_lsb_first(const std::string& text) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) bits |= (text[i] == '1' ? 1u : 0u) << i;
  return bits;
}

void compare_group(Diff& diff, const std::string& text, const std::string& name,
                   const std::vector<float>& x, const json& want) {
  const Recipe recipe = parse_recipe(text);
  const OuterScale32 none;
  const Result got = run(recipe, x, 1, {&none, 1});
  const std::string where = text + " " + name;
  const std::string e6m2 = want["e6m2"], e8 = want["e8"], e16 = want["e16"];
  diff.compare(got.tile.scales[0], hex_bits(e6m2), where + " e6m2");
  diff.compare(got.tile.scales[1], bits_lsb_first(e8), where + " e8");
  diff.compare(got.tile.scales[2] | static_cast<std::uint32_t>(got.tile.scales[3]) << 8,
               bits_lsb_first(e16), where + " e16");
  const bool wide = want.contains("codes");
  compare_all(diff, words(got.tile.codes),
              hex_words(wide ? want["codes"] : want["nibbles"], wide ? 2 : 1), where + " code");
  const std::vector<std::uint32_t> values = hex_words(want["dq"], 8);
  for (std::size_t i = 0; i < values.size(); ++i) {
    diff.compare_float(got.values[i], values[i], at(where + " value", i));
  }
}

}  // namespace

TEST_CASE("the oracle's HiF4 groups give the recorded scales, codes and values") {
  if (!have_shared("vectors")) return;
  SUBCASE("groups under the three contracts") {
    Diff diff("oracle: hif4/groups.json");
    const json file = load_shared("hif4/groups.json");
    for (const json& group : file["groups"]) {
      std::vector<float> x;
      for (const std::uint32_t w : hex_words(group["x_bf16"], 4)) {
        x.push_back(bit_cast<float>(w << 16));
      }
      for (const auto& [text, want] : group["out"].items()) {
        compare_group(diff, text, group["name"], x, want);
      }
    }
    diff.check();
  }
  SUBCASE("groups that separate the options") {
    Diff diff("oracle: hif4/options.json");
    const json file = load_shared("hif4/options.json");
    for (const json& c : file["cases"]) {
      compare_group(diff, c["recipe"], c["name"], hex_floats(c["x_f32"]), c);
    }
    diff.check();
  }
}
