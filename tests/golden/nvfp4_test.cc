// nvfp4_test.cc: NVFP4 on every CPU backend of this machine against the recorded vectors of
// data/golden/nvfp4 and more: all 771 whole tensors, the near ties of the adaptive choice, outer
// scales, MLX and SGLang.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "formats/codecs/nvfp4_contracts.h"
#include "sim/oracle/dyadic.h"
#include "sim/quantized_tensor.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::available_backends;
using test::bf16_floats;
using test::Diff;
using test::hex_bits;
using test::hex_float;
using test::hex_floats;
using test::hex_words;
using test::load_golden;
using test::measured_scales;
using test::quantized;

std::string label(const Backend& b, const std::string& what) {
  return std::string(b.name()) + " " + what;
}

struct Input {
  std::vector<float> x;
  std::int64_t rows = 0, cols = 0;
  SourceType source = SourceType::kF32;
  Tile tile() const { return {x.data(), nullptr, rows, cols, cols, source}; }
};
std::map<std::string, Input> load_inputs() {
  std::map<std::string, Input> inputs;
  const auto json = load_golden("nvfp4/inputs.json")["inputs"];
  for (const auto& [name, t] : json.items()) {
    Input& in = inputs[name];
    in.rows = t["rows"];
    in.cols = t["cols"];
    const bool is_bf16 = t.contains("bf16");
    in.x = is_bf16 ? bf16_floats(t["bf16"]) : hex_floats(t["f32"]);
    in.source = is_bf16 ? SourceType::kBf16 : SourceType::kF32;
    REQUIRE(static_cast<std::int64_t>(in.x.size()) == in.rows * in.cols);
  }
  return inputs;
}

// What one backend is compared in.
struct Diffs {
  Diff codes, scales, amax, g, choices, errors4, errors6, values;
  explicit Diffs(const Backend& b)
      : codes(label(b, "nvfp4/cases.json packed")),
        scales(label(b, "nvfp4/cases.json sf")),
        amax(label(b, "nvfp4/cases.json amax")),
        g(label(b, "nvfp4/cases.json g")),
        choices(label(b, "nvfp4/cases.json pick4")),
        errors4(label(b, "nvfp4/cases.json err4")),
        errors6(label(b, "nvfp4/cases.json err6")),
        values(label(b, "nvfp4/cases.json dequant")) {}
  void check() const {
    for (const Diff* d : {&codes, &scales, &amax, &g, &choices, &errors4, &errors6, &values})
      d->check();
  }
};

// One value for the tensor or one per row.
void compare_outer(Diff& diff, const std::vector<OuterScale32>& got, float OuterScale32::*field,
                   const std::vector<std::uint32_t>& want, const std::string& where) {
  REQUIRE_MESSAGE(got.size() == want.size(), where);
  for (std::size_t i = 0; i < want.size(); ++i) {
    diff.compare(bit_cast<std::uint32_t>(got[i].*field), want[i], where + " " + std::to_string(i));
  }
}

void compare_case(const nlohmann::json& c, const nlohmann::json& blobs, const Input& in,
                  const Backend& backend, Diffs& d) {
  const auto blob = [&](const char* key) -> std::string {
    return blobs[c[key].get<std::size_t>()];
  };
  const std::string text = c["recipe"];
  const std::string where = text + " " + std::string(c["input"]);
  const Recipe recipe = parse_recipe(text);
  const Tile tile = in.tile();
  const std::vector<OuterScale32> outer = measured_scales(backend, recipe, tile);
  QuantizedTile got;
  got.wants_errors = true;
  backend.quantize(recipe, tile, outer, got);

  const auto packed = hex_words(blob("packed"), 2), sf = hex_words(blob("sf"), 2);
  REQUIRE(packed.size() == in.x.size() / 2);
  REQUIRE(sf.size() == in.x.size() / 16);
  for (std::size_t i = 0; i < in.x.size(); ++i) {
    d.codes.compare(got.codes[i], packed[i / 2] >> (i % 2 * 4) & 15u,
                    where + " element " + std::to_string(i));
  }
  for (std::size_t i = 0; i < sf.size(); ++i) {
    d.scales.compare(got.scales[i], sf[i], where + " block " + std::to_string(i));
  }
  if (c.contains("amax"))
    compare_outer(d.amax, outer, &OuterScale32::amax, hex_words(blob("amax"), 8), where);
  if (c.contains("g")) compare_outer(d.g, outer, &OuterScale32::g, hex_words(blob("g"), 8), where);
  // Adaptive fouroversix cases are recorded without their choices; codes and scales show them.
  CHECK((!c.contains("pick4") || recipe.chooses()));
  if (c.contains("pick4")) {
    REQUIRE(got.choices.size() == sf.size());
    const std::string picks = blob("pick4");
    REQUIRE(picks.size() == sf.size());
    for (std::size_t i = 0; i < picks.size(); ++i) {
      d.choices.compare(got.choices[i], picks[i] == '1' ? 1u : 0u,
                        where + " choice " + std::to_string(i));
    }
  }
  for (const bool four : {true, false}) {
    const char* key = four ? "err4" : "err6";
    if (!c.contains(key)) continue;
    const auto want = hex_words(blob(key), 8);
    REQUIRE(want.size() == sf.size());
    REQUIRE(got.errors.size() == 2 * sf.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      (four ? d.errors4 : d.errors6)
          .compare_float(bit_cast<std::uint32_t>(got.errors[2 * i + (four ? 0 : 1)]), want[i],
                         where + " error " + std::to_string(i));
    }
  }
  // The same in one call, which measures the amax itself and packs.
  const QuantizedTensor whole = quantize(tile, recipe, backend);
  REQUIRE(whole.codes.size() == packed.size());
  for (std::size_t i = 0; i < packed.size(); ++i) {
    d.codes.compare(whole.codes[i], packed[i], where + " packed byte " + std::to_string(i));
  }
  if (!c.contains("dequant")) return;
  const bool is_bf16 = c["dequant_dtype"] == "bf16";
  REQUIRE((is_bf16 || c["dequant_dtype"] == "f32"));
  const auto want = hex_words(blob("dequant"), is_bf16 ? 4 : 8);
  const std::vector<float> decoded = dequantize(whole, backend);
  REQUIRE(want.size() == decoded.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const float v = is_bf16 ? oracle::round_bf16(decoded[i]) : decoded[i];
    d.values.compare_float(bit_cast<std::uint32_t>(v), is_bf16 ? want[i] << 16 : want[i],
                           where + " value " + std::to_string(i));
  }
}

TEST_CASE("NVFP4: all 771 recorded tensors of eleven contracts, bit for bit") {
  const auto json = load_golden("nvfp4/cases.json");
  const std::map<std::string, Input> inputs = load_inputs();
  const std::set<std::string> known{
      "recipe", "input", "evidence", "packed",        "sf",  "amax", "g", "pick4",
      "err4",   "err6",  "dequant",  "dequant_dtype", "note"};
  std::map<std::string, int> contracts;
  std::map<std::string, int> fields;
  for (const auto& c : json["cases"]) {
    for (const auto& [key, value] : c.items()) {
      CHECK_MESSAGE(known.count(key) == 1, "no comparison for the field ", key);
      ++fields[key];
    }
    ++contracts[parse_recipe(std::string(c["recipe"])).contract];
  }
  // The file as it was recorded.
  CHECK(contracts == std::map<std::string, int>{{"te", 246},
                                                {"te-fast", 6},
                                                {"flashinfer", 162},
                                                {"flashinfer-fast", 170},
                                                {"trtllm", 16},
                                                {"vllm", 16},
                                                {"fouroversix", 70},
                                                {"fouroversix-cuda", 40},
                                                {"modelopt", 10},
                                                {"compressed-tensors", 20},
                                                {"torchao", 15}});
  CHECK(fields["packed"] == 771);
  CHECK(fields["sf"] == 771);
  CHECK(fields["amax"] == 569);
  CHECK(fields["g"] == 766);
  CHECK(fields["pick4"] == 528);
  CHECK(fields["err4"] == 48);
  CHECK(fields["err6"] == 48);
  CHECK(fields["dequant"] == 12);
  for (const Backend* backend : available_backends()) {
    Diffs d(*backend);
    int cases = 0;
    for (const auto& c : json["cases"]) {
      compare_case(c, json["blobs"], inputs.at(c["input"]), *backend, d);
      ++cases;
    }
    CHECK(cases == 771);
    d.check();
  }
}

TEST_CASE("near ties of the adaptive choice: both metrics, their errors and choices") {
  const auto json = load_golden("nvfp4/near_ties_4over6.json");
  REQUIRE(json["cases"].size() == 121);
  for (const Backend* backend : available_backends()) {
    Diff scales(label(*backend, "near_ties_4over6 scales")),
        choices(label(*backend, "near_ties_4over6 choices")),
        errors(label(*backend, "near_ties_4over6 errors"));
    for (const auto& c : json["cases"]) {
      // One block repeated 17 times: full panels of lanes and the scalar tail.
      const std::vector<float> one = bf16_floats(c["x_bf16"]);
      std::vector<float> x;
      for (int i = 0; i < 17; ++i) x.insert(x.end(), one.begin(), one.end());
      const Tile tile{x.data(), nullptr, 1, 17 * 16, 17 * 16};
      for (const std::string metric : {"exact", "fast"}) {
        const std::string text = "nvfp4:amax=0x" + std::string(c["amax"]) +
                                 ",select=" + std::string(c["select"]) + ",metric=" + metric +
                                 ",e4m3max=" + std::to_string(c["e4m3max"].get<int>());
        const Recipe recipe = parse_recipe(text);
        QuantizedTile got;
        got.wants_errors = true;
        const std::vector<OuterScale32> outer = measured_scales(*backend, recipe, tile);
        backend->quantize(recipe, tile, outer, got);
        const bool four = c[metric + "_pick4"];
        for (std::size_t b = 0; b < 17; ++b) {
          choices.compare(got.choices[b], four ? 1u : 0u, text);
          scales.compare(got.scales[b], hex_bits(c[four ? "sf4" : "sf6"]), text);
          errors.compare_float(bit_cast<std::uint32_t>(got.errors[2 * b]),
                               hex_bits(c[metric + "_err4"]), text);
          errors.compare_float(bit_cast<std::uint32_t>(got.errors[2 * b + 1]),
                               hex_bits(c[metric + "_err6"]), text);
        }
      }
    }
    CHECK(choices.compared() == 121 * 2 * 17);
    scales.check();
    choices.check();
    errors.check();
  }
}

TEST_CASE("the NVFP4 outer scale follows global_scale.json for M = 448 and 256") {
  const auto json = load_golden("nvfp4/global_scale.json");
  for (const Backend* backend : available_backends()) {
    Diff diff(label(*backend, "nvfp4/global_scale.json"));
    for (const auto& c : json["cases"]) {
      for (const char* m : {"448", "256"}) {
        const Recipe recipe = parse_recipe(std::string("nvfp4:e4m3max=") + m);
        const OuterScale32 outer = backend->outer_scale(recipe, hex_bits(c["amax"]));
        diff.compare(bit_cast<std::uint32_t>(outer.g), hex_bits(c[std::string("g_") + m]),
                     std::string(c["amax"]) + " " + m);
      }
    }
    diff.check();
  }
}

TEST_CASE("1/g and g/6 of a row are those of global_scale.json") {
  Nvfp4Rules rules;
  rules.options = parse_recipe("nvfp4").nvfp4;
  rules.element = kE2M1;
  rules.element_max = 6.0f;
  Diff inverse("nvfp4/global_scale.json inv_g_448"), sixth("nvfp4/global_scale.json g_sixth_448");
  const auto json = load_golden("nvfp4/global_scale.json");
  for (const auto& c : json["cases"]) {
    const std::string amax = c["amax"];
    const Nvfp4Row row = nvfp4_row(rules, {hex_float(amax), hex_float(c["g_448"])});
    inverse.compare(bit_cast<std::uint32_t>(row.g_inverse), hex_bits(c["inv_g_448"]), amax);
    sixth.compare(bit_cast<std::uint32_t>(row.k), hex_bits(c["g_sixth_448"]), amax);
  }
  inverse.check();
  sixth.check();
}

TEST_CASE("MLX scales and codes, SGLang outer scales and its example") {
  const auto json = load_golden("more/mlx_sglang.json");
  const std::vector<float> y = hex_floats(json["y"]);
  REQUIRE(y.size() == 320);
  for (const Backend* backend : available_backends()) {
    Diff scales(label(*backend, "mlx_sglang.json mlx scales")),
        codes(label(*backend, "mlx_sglang.json mlx codes")),
        outer(label(*backend, "mlx_sglang.json sglang g")),
        example(label(*backend, "mlx_sglang.json sglang example"));
    int recipes = 0, undefined = 0;
    for (const auto& c : json["mlx"]) {
      const std::string text = c["recipe"];
      if (!text.starts_with("nvfp4:")) continue;
      ++recipes;
      const auto got = quantized(*backend, parse_recipe(text), y, 10, 32);
      const auto want_scales = hex_words(c["scale"], 2), want_codes = hex_words(c["q"], 2);
      for (std::size_t i = 0; i < 20; ++i) scales.compare(got.tile.scales[i], want_scales[i], text);
      for (std::size_t i = 0; i < 320; ++i) {
        // Codes of 0/0 in zero blocks of mlx-cuda are the model's value and are not compared.
        if (text.find("mlx-cuda") != std::string::npos && want_scales[i / 16] == 0 && y[i] == 0) {
          ++undefined;
          continue;
        }
        codes.compare(got.tile.codes[i], want_codes[i], text + " " + std::to_string(i));
      }
    }
    CHECK(recipes == 4);
    CHECK(undefined > 0);
    const auto& sglang = json["sglang"];
    const auto amax = hex_words(sglang["amax"], 8);
    int rows = 0;
    for (const auto& row : sglang["rows"]) {
      const char* rule = row["scalar_div"] == "rcp" ? "inv-mul" : "inv-div";
      const Recipe recipe =
          parse_recipe(std::string("nvfp4:contract=sglang-online,g-rule=") + rule);
      const auto g = hex_words(row["g"], 8);
      REQUIRE(g.size() == amax.size());
      for (std::size_t i = 0; i < g.size(); ++i) {
        outer.compare(bit_cast<std::uint32_t>(backend->outer_scale(recipe, amax[i]).g), g[i],
                      std::string(rule) + " " + std::to_string(i));
      }
      ++rows;
    }
    CHECK(rows == 2);
    const auto& w = sglang["example"];
    const std::vector<float> x = bf16_floats(w["w"]);
    const auto got = quantized(*backend, parse_recipe("nvfp4:contract=sglang"), x, 2, 32);
    const auto want_sf = hex_words(w["sf"], 2), want_codes = hex_words(w["codes"], 1);
    REQUIRE(want_sf.size() == 4);
    REQUIRE(want_codes.size() == 64);
    example.compare(bit_cast<std::uint32_t>(got.outer.at(0).g), hex_bits(w["g"]), "g");
    for (std::size_t i = 0; i < 4; ++i) example.compare(got.tile.scales[i], want_sf[i], "scale");
    for (std::size_t i = 0; i < 64; ++i) example.compare(got.tile.codes[i], want_codes[i], "code");
    for (const Diff* d : {&scales, &codes, &outer, &example}) d->check();
  }
}

}  // namespace
}  // namespace fp4scope
