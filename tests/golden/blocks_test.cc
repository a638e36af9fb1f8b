// blocks_test.cc: block codecs against the recorded vectors of data/golden/{mx,nvfp4,hif4}, on
// every CPU backend of this machine. Compared: scale bytes, element codes, decoded values, outer
// scales.
#include <string>

#include "formats/minifloat.h"
#include "sim/quantized_tensor.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::available_backends;
using test::Diff;
using test::hex_bits;
using test::hex_floats;
using test::hex_words;
using test::load_golden;
using test::quantized;

using Result = test::Quantized;

std::string label(const Backend& b, const std::string& what) {
  return std::string(b.name()) + " " + what;
}

// ocp-floor-rne is torchao-floor with every open point fixed alike (spec/mx.md section 3), so it
// must reproduce the same recorded rows.
void check_mx_file(const std::string& file, const std::vector<std::string>& contracts) {
  const auto json = load_golden(file);
  for (const Backend* backend : available_backends()) {
    for (const std::string& contract : contracts) {
      const std::string recorded = contract == "ocp-floor-rne" ? "torchao-floor" : contract;
      Diff scales(label(*backend, file + " " + contract + " scales")),
          codes(label(*backend, file + " " + contract + " codes")),
          values(label(*backend, file + " " + contract + " values"));
      for (const auto& block : json["blocks"]) {
        const std::string format = block.contains("fmt") ? std::string(block["fmt"]) : "mxfp4";
        const auto out = block["out"].find(format + ":contract=" + recorded);
        REQUIRE(out != block["out"].end());
        // One block repeated 17 times: full panels of lanes and the scalar tail.
        const std::vector<float> one = hex_floats(block["in"]);
        std::vector<float> x;
        for (int i = 0; i < 17; ++i) x.insert(x.end(), one.begin(), one.end());
        const Result r =
            quantized(*backend, parse_recipe(format + ":contract=" + contract), x, 1, 17 * 32);
        const std::string name = format + " " + std::string(block["name"]);
        for (std::size_t b = 0; b < 17; ++b) scales.compare(r.tile.scales[b], (*out)["s"], name);
        if (out->contains("c")) {
          const auto want = hex_words((*out)["c"], format == "mxfp4" ? 1 : 2);
          for (std::size_t i = 0; i < x.size(); ++i) {
            codes.compare(r.tile.codes[i], want[i % 32], name + " " + std::to_string(i));
          }
        } else {
          CHECK((*out)["s"] == 255);  // absent codes: the block is NaN
        }
        if (out->contains("d")) {
          const auto want = hex_words((*out)["d"], 8);
          for (std::size_t i = 0; i < x.size(); ++i) {
            values.compare_float(bit_cast<std::uint32_t>(r.values[i]), want[i % 32],
                                 name + " " + std::to_string(i));
          }
        }
      }
      scales.check();
      codes.check();
      values.check();
    }
  }
}

TEST_CASE("MXFP4 blocks equal the recorded torchao blocks in every scale rule") {
  check_mx_file("mx/mxfp4_blocks.json", {"ocp-floor-rne", "torchao-floor", "torchao-ceil",
                                         "torchao-even", "torchao-rceil"});
}

TEST_CASE("MXFP6 and MXFP8 blocks equal the recorded torchao blocks") {
  check_mx_file("mx/mxfp8_mxfp6_blocks.json",
                {"torchao-floor", "torchao-ceil", "torchao-even", "torchao-rceil"});
}

TEST_CASE("NVFP4 contract te with static6 equals the recorded tensors, bit for bit") {
  const auto cases = load_golden("nvfp4/cases.json");
  const auto inputs = load_golden("nvfp4/inputs.json")["inputs"];
  const auto blob = [&](const nlohmann::json& c, const char* key) -> std::string {
    return cases["blobs"][c[key].get<std::size_t>()];
  };
  for (const Backend* backend : available_backends()) {
    Diff codes(label(*backend, "nvfp4/cases.json te static6 packed")),
        scales(label(*backend, "nvfp4/cases.json te static6 scales")),
        outer(label(*backend, "nvfp4/cases.json te static6 amax and g")),
        values(label(*backend, "nvfp4/cases.json te static6 dequant"));
    int used = 0;
    for (const auto& c : cases["cases"]) {
      const std::string text = c["recipe"];
      if (text.find("contract=te,") == std::string::npos ||
          text.find("select=static6") == std::string::npos) {
        continue;
      }
      ++used;
      const auto& input = inputs[std::string(c["input"])];
      const std::int64_t rows = input["rows"], cols = input["cols"];
      std::vector<float> x;
      if (input.contains("bf16")) {
        for (const std::uint32_t w : hex_words(input["bf16"], 4)) {
          x.push_back(bit_cast<float>(w << 16));
        }
      } else {
        x = hex_floats(input["f32"]);
      }
      const Recipe recipe = parse_recipe(text);
      const Result r = quantized(*backend, recipe, x, rows, cols);
      const std::string where = text + " " + std::string(c["input"]);
      const auto packed = hex_words(blob(c, "packed"), 2);
      const auto sf = hex_words(blob(c, "sf"), 2);
      REQUIRE(packed.size() == x.size() / 2);
      REQUIRE(sf.size() == x.size() / 16);
      for (std::size_t i = 0; i < x.size(); ++i) {
        codes.compare(r.tile.codes[i], packed[i / 2] >> (i % 2 * 4) & 15u,
                      where + " element " + std::to_string(i));
      }
      for (std::size_t i = 0; i < sf.size(); ++i) {
        scales.compare(r.tile.scales[i], sf[i], where + " block " + std::to_string(i));
      }
      // The same in one call, which measures the amax itself and packs.
      const QuantizedTensor whole =
          quantize(TensorView{x.data(), nullptr, rows, cols, cols}, recipe, *backend);
      REQUIRE(whole.codes.size() == packed.size());
      for (std::size_t i = 0; i < packed.size(); ++i) {
        codes.compare(whole.codes[i], packed[i], where + " packed byte " + std::to_string(i));
      }
      REQUIRE(whole.scales.size() == 1);
      REQUIRE(whole.scales[0].bytes.size() == sf.size());
      for (std::size_t i = 0; i < sf.size(); ++i) {
        scales.compare(whole.scales[0].bytes[i], sf[i], where + " plane " + std::to_string(i));
      }
      const auto amax = hex_words(blob(c, "amax"), 8), g = hex_words(blob(c, "g"), 8);
      for (const std::vector<OuterScale32>& got : {r.outer, whole.outer}) {
        REQUIRE(got.size() == amax.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          outer.compare(bit_cast<std::uint32_t>(got[i].amax), amax[i], where + " amax");
          outer.compare(bit_cast<std::uint32_t>(got[i].g), g[i], where + " g");
        }
      }
      const std::vector<float> decoded = dequantize(whole, *backend);
      if (c.contains("dequant")) {
        REQUIRE(c["dequant_dtype"] == "bf16");
        const auto want = hex_words(blob(c, "dequant"), 4);
        for (std::size_t i = 0; i < x.size(); ++i) {
          for (const float exact : {r.values[i], decoded[i]}) {
            const float v = round_to_bf16<Lane<1>>(exact);
            values.compare_float(bit_cast<std::uint32_t>(v), want[i] << 16,
                                 where + " value " + std::to_string(i));
          }
        }
      }
    }
    CHECK(used == 30);  // te with select=static6: 27 of 9 inputs x 3 scopes, 3 single level
    codes.check();
    scales.check();
    outer.check();
    values.check();
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

// A HiF4 row of groups.json or options.json against the result for block `b` of a tile.
void compare_hif4(const nlohmann::json& want, const Result& r, std::size_t b,
                  const std::string& where, Diff& meta, Diff& codes, Diff& values) {
  const std::uint8_t* s = r.tile.scales.data() + 4 * b;
  meta.compare(s[0], hex_bits(want["e6m2"]), where + " e6m2");
  const std::string e8 = want["e8"], e16 = want["e16"];
  for (std::size_t j = 0; j < 8; ++j) {
    meta.compare(s[1] >> j & 1u, e8[j] - '0', where + " e8[" + std::to_string(j) + "]");
  }
  for (std::size_t k = 0; k < 16; ++k) {
    const std::uint32_t level3 = s[2] | static_cast<std::uint32_t>(s[3]) << 8;
    meta.compare(level3 >> k & 1u, e16[k] - '0', where + " e16[" + std::to_string(k) + "]");
  }
  if (want.contains("word")) {
    meta.compare(s[0] | s[1] << 8 | s[2] << 16 | static_cast<std::uint32_t>(s[3]) << 24,
                 hex_bits(want["word"]), where + " word");
  }
  const bool nibbles = want.contains("nibbles");
  const auto want_codes = nibbles ? hex_words(want["nibbles"], 1) : hex_words(want["codes"], 2);
  const auto want_values = hex_words(want["dq"], 8);
  for (std::size_t i = 0; i < 64; ++i) {
    codes.compare(r.tile.codes[64 * b + i], want_codes[i], where + " code " + std::to_string(i));
    values.compare_float(bit_cast<std::uint32_t>(r.values[64 * b + i]), want_values[i],
                         where + " value " + std::to_string(i));
  }
}

std::vector<float> repeat(const std::vector<float>& one, int n) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i) x.insert(x.end(), one.begin(), one.end());
  return x;
}

TEST_CASE("HiF4 groups equal the recorded groups under gcc, amct and a6") {
  const auto json = load_golden("hif4/groups.json");
  for (const Backend* backend : available_backends()) {
    Diff meta(label(*backend, "hif4/groups.json scales and level bits")),
        codes(label(*backend, "hif4/groups.json codes")),
        values(label(*backend, "hif4/groups.json values"));
    for (const auto& group : json["groups"]) {
      std::vector<float> one;
      for (const std::uint32_t w : hex_words(group["x_bf16"], 4)) {
        one.push_back(bit_cast<float>(w << 16));
      }
      const std::vector<float> x = repeat(one, 17);
      for (const auto& [text, want] : group["out"].items()) {
        const Recipe recipe = parse_recipe(text);
        const Result r = quantized(*backend, recipe, x, 1, 17 * 64);
        for (std::size_t b = 0; b < 17; ++b) {
          compare_hif4(want, r, b, text + " " + std::string(group["name"]), meta, codes, values);
        }
      }
    }
    meta.check();
    codes.check();
    values.check();
  }
}

TEST_CASE("HiF4 options equal options.json") {
  const auto json = load_golden("hif4/options.json");
  for (const Backend* backend : available_backends()) {
    Diff meta(label(*backend, "hif4/options.json scales and level bits")),
        codes(label(*backend, "hif4/options.json codes")),
        values(label(*backend, "hif4/options.json values"));
    std::size_t rows = 0;
    for (const auto& [key, list] : json.items()) {
      if (!list.is_array()) continue;
      for (const auto& group : list) {
        const Recipe recipe = parse_recipe(std::string(group["recipe"]));
        const Result r =
            quantized(*backend, recipe, repeat(hex_floats(group["x_f32"]), 17), 1, 17 * 64);
        for (std::size_t b = 0; b < 17; ++b) {
          compare_hif4(group, r, b, std::string(group["recipe"]) + " " + std::string(group["name"]),
                       meta, codes, values);
        }
        ++rows;
      }
    }
    CHECK(rows == 19);
    meta.check();
    codes.check();
    values.check();
  }
}

}  // namespace
}  // namespace fp4scope
