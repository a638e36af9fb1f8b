// hif4_test.cc: HiF4 against the recorded vectors of data/golden/hif4 and the worked examples of
// spec/hif4.md section 7, on every CPU backend of this machine; what no vector covers (search=mse,
// 64x64 squares in full panels) against the exact oracle. Compared: scale bytes, level bits, codes,
// decoded values, dot products.
#include <map>
#include <random>
#include <string>

#include "sim/backend.h"
#include "sim/error.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::available_backends;
using test::bf16_floats;
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

// A row of groups.json or options.json against the result for block `b` of a tile.
void compare_group(const nlohmann::json& want, const Result& r, std::size_t b,
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

// One group 17 times: full panels of lanes and the scalar tail.
std::vector<float> repeat(const std::vector<float>& one) {
  std::vector<float> x;
  for (int i = 0; i < 17; ++i) x.insert(x.end(), one.begin(), one.end());
  return x;
}

struct Diffs {
  Diff meta, codes, values;
  Diffs(const Backend& b, const std::string& what)
      : meta(label(b, what + " scales and level bits")),
        codes(label(b, what + " codes")),
        values(label(b, what + " values")) {}
  void check() const {
    meta.check();
    codes.check();
    values.check();
  }
};

TEST_CASE("HiF4 groups equal the recorded groups under gcc, amct and a6") {
  const auto json = load_golden("hif4/groups.json");
  for (const Backend* backend : available_backends()) {
    Diffs diffs(*backend, "hif4/groups.json");
    std::size_t rows = 0;
    for (const auto& group : json["groups"]) {
      const std::vector<float> x = repeat(bf16_floats(group["x_bf16"]));
      for (const auto& [text, want] : group["out"].items()) {
        const Result r = quantized(*backend, parse_recipe(text), x, 1, 17 * 64);
        for (std::size_t b = 0; b < 17; ++b) {
          compare_group(want, r, b, text + " " + std::string(group["name"]), diffs.meta,
                        diffs.codes, diffs.values);
        }
        ++rows;
      }
    }
    CHECK(rows == 34 * 3);
    diffs.check();
  }
}

// The rows of one recipe also pin the contract that is another name for it (spec/hif4.md 2.1).
const std::map<std::string, std::string> kOtherName = {
    {"hif4:contract=amct,ties=even,overflow=nan,zero=ff", "hif4:contract=dynamic-mx-quant"}};

TEST_CASE("HiF4 options equal options.json") {
  const auto json = load_golden("hif4/options.json");
  for (const Backend* backend : available_backends()) {
    Diffs diffs(*backend, "hif4/options.json");
    std::size_t rows = 0, other_names = 0;
    for (const auto& group : json["cases"]) {
      std::vector<std::string> texts{group["recipe"]};
      if (const auto other = kOtherName.find(texts[0]); other != kOtherName.end()) {
        texts.push_back(other->second);
        ++other_names;
      }
      for (const std::string& text : texts) {
        const Result r =
            quantized(*backend, parse_recipe(text), repeat(hex_floats(group["x_f32"])), 1, 17 * 64);
        for (std::size_t b = 0; b < 17; ++b) {
          compare_group(group, r, b, text + " " + std::string(group["name"]), diffs.meta,
                        diffs.codes, diffs.values);
        }
      }
      ++rows;
    }
    CHECK(rows == 19);
    CHECK(other_names == 2);
    diffs.check();
  }
}

// spec/hif4.md section 3: the integer of two groups from codes and level bits, in units of
// E_A * E_B / 16.
std::int64_t dot_integer(const Result& a, const Result& b) {
  const auto signed_code = [](const Result& r, std::size_t i) {
    const int code = r.tile.codes[i];
    const int shift =
        (r.tile.scales[1] >> (i / 8) & 1) + (r.tile.scales[2 + i / 32] >> (i / 4 % 8) & 1);
    return static_cast<std::int64_t>(code & 8 ? -(code & 7) : code & 7) * (1 << shift);
  };
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < 64; ++i) sum += signed_code(a, i) * signed_code(b, i);
  return sum;
}
double e6m2_value(int byte) {
  double v = 1.0 + (byte & 3) / 4.0;
  for (int e = (byte >> 2) - 48; e != 0; e += e < 0 ? 1 : -1) v *= e < 0 ? 0.5 : 2.0;
  return v;
}

// The group of the case `max`: all level bits set, all codes 7, scale 0xfe.
Result largest_group(const Backend& backend) {
  const Recipe recipe = parse_recipe("hif4");
  Result r;
  resize(r.tile, recipe, 1, 64);
  r.tile.codes.assign(64, 7);
  r.tile.scales = {0xfe, 0xff, 0xff, 0xff};
  r.values.resize(64);
  backend.dequantize(recipe, r.tile, {}, r.values.data(), 64);
  return r;
}

TEST_CASE("dot products of encoded groups equal dot.json, as integers and as values") {
  const auto groups = load_golden("hif4/groups.json");
  const auto json = load_golden("hif4/dot.json");
  std::map<std::string, std::vector<float>> inputs;
  for (const auto& group : groups["groups"]) inputs[group["name"]] = bf16_floats(group["x_bf16"]);
  for (const Backend* backend : available_backends()) {
    Diff integers(label(*backend, "hif4/dot.json integers")),
        values(label(*backend, "hif4/dot.json values")),
        decoded(label(*backend, "hif4/dot.json values from decoded elements"));
    for (const auto& c : json["cases"]) {
      const std::string contract = c["contract"], a_name = c["a"], b_name = c["b"];
      const auto encoded = [&](const std::string& name) {
        if (contract == "any") return largest_group(*backend);
        return quantized(*backend, parse_recipe("hif4:contract=" + contract), inputs.at(name), 1,
                         64);
      };
      CHECK((contract != "any" || (a_name == "max" && b_name == "max")));
      const Result a = encoded(a_name), b = encoded(b_name);
      const std::string where = contract + " " + a_name + " " + b_name;
      const std::int64_t integer = dot_integer(a, b);
      integers.compare(static_cast<std::uint32_t>(integer),
                       static_cast<std::uint32_t>(c["integer"].get<std::int64_t>()), where);
      // Exact in binary64: at most 17 bits of the integer and 6 of the scales.
      const double value = static_cast<double>(integer) * e6m2_value(a.tile.scales[0]) *
                           e6m2_value(b.tile.scales[0]) / 16;
      CHECK(c["value_exact_in_f32"] == (static_cast<double>(static_cast<float>(value)) == value));
      values.compare(bit_cast<std::uint32_t>(static_cast<float>(value)), hex_bits(c["value_f32"]),
                     where);
      double sum = 0;  // decoded products are multiples of one unit, so this is exact as well
      for (std::size_t i = 0; i < 64; ++i) {
        sum += static_cast<double>(a.values[i]) * static_cast<double>(b.values[i]);
      }
      decoded.compare(bit_cast<std::uint32_t>(static_cast<float>(sum)), hex_bits(c["value_f32"]),
                      where);
    }
    integers.check();
    values.check();
    decoded.check();
  }
}

// Codes of a row as hex digits, element 0 first.
std::string digits_of(const Result& r, std::size_t first, std::size_t count) {
  std::string text;
  for (std::size_t i = first; i < first + count; ++i) text += "0123456789abcdef"[r.tile.codes[i]];
  return text;
}

TEST_CASE("worked examples of spec/hif4.md section 7") {
  for (const Backend* backend : available_backends()) {
    for (const char* contract : {"gcc", "amct", "a6"}) {
      CAPTURE(contract);
      const Recipe recipe = parse_recipe(std::string("hif4:contract=") + contract);
      std::vector<float> x(64);
      for (int i = 0; i < 64; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i - 32) / 8;
      const Result ramp = quantized(*backend, recipe, x, 1, 64);
      CHECK(ramp.tile.scales == std::vector<std::uint8_t>{0xbd, 0xc3, 0x3f, 0xec});
      CHECK(digits_of(ramp, 0, 64) ==
            "eeeeedddddcccccbeeeddccceedcbaa901223456344455666777444555556666");
    }
    std::vector<float> thresholds(64);
    thresholds[0] = 12.25f, thresholds[8] = 7, thresholds[9] = 3.5f, thresholds[12] = 1;
    thresholds[16] = 3.5f, thresholds[20] = 3.484375f, thresholds[24] = 6.96875f;
    const Result gcc = quantized(*backend, parse_recipe("hif4"), thresholds, 1, 64);
    CHECK(gcc.tile.scales == std::vector<std::uint8_t>{0xc3, 0x01, 0x45, 0x00});
    const Result a6 = quantized(*backend, parse_recipe("hif4:contract=a6"), thresholds, 1, 64);
    CHECK(a6.tile.scales == std::vector<std::uint8_t>{0xc3, 0x03, 0x55, 0x00});
    std::vector<float> ties(64);
    ties[0] = 7;
    for (int i = 0; i < 8; ++i)
      ties[static_cast<std::size_t>(8 + i)] = 0.125f + 0.25f * static_cast<float>(i);
    CHECK(digits_of(quantized(*backend, parse_recipe("hif4"), ties, 1, 64), 8, 8) == "12345677");
    CHECK(digits_of(quantized(*backend, parse_recipe("hif4:ties=even"), ties, 1, 64), 8, 8) ==
          "02244667");
  }
}

TEST_CASE("nonfinite=element has the codes of saturate and code 0 for NaN") {
  // spec/hif4.md section 5; the NaN itself is put back by who has the input.
  std::vector<float> x(64, 1.0f);
  x[0] = bit_cast<float>(kQuietNanBits | kSignBit);
  x[9] = bit_cast<float>(kQuietNanBits);
  x[20] = bit_cast<float>(kInfBits | kSignBit);
  const Recipe element = parse_recipe("hif4:nonfinite=element");
  CHECK(element.keeps_nan_elements());
  CHECK_FALSE(parse_recipe("hif4:nonfinite=saturate").keeps_nan_elements());
  for (const Backend* backend : available_backends()) {
    const Result r = quantized(*backend, element, x, 1, 64);
    CHECK(r.tile.codes[0] == 0);
    CHECK(r.tile.codes[9] == 0);
    CHECK(r.values[20] == -344064.0f);
    CHECK(r.tile.scales[0] == 0xfe);
  }
}

// Normal, tied and extreme values with a few zeros, NaN and Inf.
std::vector<float> hard_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> x(count);
  for (float& v : x) {
    const std::uint32_t r = engine();
    const std::uint32_t fraction = engine() & (r % 3 == 0 ? 0x700000u : 0x7f0000u);
    std::uint32_t bits = (r & kSignBit) | (116 + r % 12) << 23 | fraction;
    if (r / 64 % 97 == 0) bits &= kSignBit;
    if (r / 64 % 1999 == 1) bits = kInfBits | (r & kSignBit);
    if (r / 64 % 1999 == 2) bits = kQuietNanBits;
    v = bit_cast<float>(bits);
  }
  return x;
}

void compare_with_oracle(const std::string& text, const Tile& tile, Diff& scales, Diff& codes) {
  const Recipe recipe = parse_recipe(text);
  const Result want = quantized(oracle_backend(), recipe, tile);
  for (const Backend* backend : available_backends()) {
    const Result got = quantized(*backend, recipe, tile);
    REQUIRE(got.tile.scales.size() == want.tile.scales.size());
    REQUIRE(got.tile.codes.size() == want.tile.codes.size());
    for (std::size_t i = 0; i < want.tile.scales.size(); ++i) {
      scales.compare(got.tile.scales[i], want.tile.scales[i], label(*backend, text));
    }
    for (std::size_t i = 0; i < want.tile.codes.size(); ++i) {
      codes.compare(got.tile.codes[i], want.tile.codes[i], label(*backend, text));
    }
  }
}

TEST_CASE("64x64 squares in full panels and at both ends of a tensor equal the exact oracle") {
  // 16 squares and a partial one across; 64 rows and a band of 7.
  const std::int64_t rows = 71, cols = 16 * 64 + 13;
  const std::vector<float> x = hard_values(static_cast<std::size_t>(rows * cols), 1);
  const Tile tile{x.data(), nullptr, rows, cols, cols};
  Diff scales("hif4 geometry=64x64 scales"), codes("hif4 geometry=64x64 codes");
  for (const char* keys : {"geometry=64x64", "contract=amct,geometry=64x64",
                           "contract=a6,geometry=64x64,search=level1-3.5", "geometry=64x64,width=5",
                           "geometry=64x64,round=sr,seed=3"}) {
    compare_with_oracle(std::string("hif4:") + keys, tile, scales, codes);
  }
  scales.check();
  codes.check();
}

TEST_CASE("one row of squares is 1x64") {
  // Maxima over 4x4, 8x8 and 64x64 with rows of +0 below are those over 4, 8 and 64.
  const std::vector<float> x = hard_values(18 * 64, 2);
  for (const Backend* backend : available_backends()) {
    for (const char* contract : {"gcc", "amct", "a6"}) {
      const std::string text = std::string("hif4:contract=") + contract;
      const Result one = quantized(*backend, parse_recipe(text), x, 1, 18 * 64);
      const Result square =
          quantized(*backend, parse_recipe(text + ",geometry=64x64"), x, 1, 18 * 64);
      CHECK(one.tile.scales == square.tile.scales);
      CHECK(one.tile.codes == square.tile.codes);
    }
  }
}

TEST_CASE("search=mse equals the exact oracle and is never worse than Algorithm 1") {
  const std::vector<float> x = hard_values(19 * 64, 3);
  const Tile tile{x.data(), nullptr, 1, 19 * 64, 19 * 64};
  Diff scales("hif4 search=mse scales"), codes("hif4 search=mse codes");
  for (const char* keys :
       {"search=mse", "contract=a6,search=mse", "contract=amct,search=mse,width=3",
        "search=mse,ties=trunc,overflow=nan,zero=ff"}) {
    compare_with_oracle(std::string("hif4:") + keys, tile, scales, codes);
  }
  scales.check();
  codes.check();
  // Integers, so that the binary32 sums of the rule are exact and the comparison is too.
  std::mt19937 engine(4);
  std::vector<float> integers(64 * 200);
  for (float& v : integers) {
    v = static_cast<float>(static_cast<int>(engine() % 129) - 64) *
        (engine() % 3 == 0 ? 1 : 0.125f);
  }
  int better = 0;
  for (const Backend* backend : available_backends()) {
    const Result greedy = quantized(*backend, parse_recipe("hif4"), integers, 200, 64);
    const Result best = quantized(*backend, parse_recipe("hif4:search=mse"), integers, 200, 64);
    for (std::size_t g = 0; g < 200; ++g) {
      double error[2] = {};
      for (std::size_t i = 64 * g; i < 64 * g + 64; ++i) {
        const double d0 = greedy.values[i] - integers[i], d1 = best.values[i] - integers[i];
        error[0] += d0 * d0;
        error[1] += d1 * d1;
      }
      CHECK(error[1] <= error[0]);
      better += error[1] < error[0];
    }
  }
  CHECK(better > 0);
}

TEST_CASE("search=mse keeps the lower scale code and bit 0 in a tie, and meets the largest scale") {
  // By the definition at the top of formats/codecs/hif4.h.
  struct Case {
    float value;
    std::vector<std::uint8_t> scales;
    std::uint8_t code;
  };
  const Case cases[] = {
      {0.0f, {0x00, 0x00, 0x00, 0x00}, 0},        // no candidate has an error
      {344064.0f, {0xfe, 0xff, 0xff, 0xff}, 7},   // exact with one candidate only: 49152 * 4 * 7/4
      {kFloatMax, {0xfc, 0x00, 0x00, 0x00}, 7}};  // every error overflows
  for (const Backend* backend : available_backends()) {
    for (const Case& c : cases) {
      CAPTURE(c.value);
      const std::vector<float> x(17 * 64, c.value);
      const Result r = quantized(*backend, parse_recipe("hif4:search=mse"), x, 1, 17 * 64);
      for (std::size_t b = 0; b < 17; ++b) {
        CHECK(std::vector<std::uint8_t>(
                  r.tile.scales.begin() + 4 * static_cast<std::ptrdiff_t>(b),
                  r.tile.scales.begin() + 4 * static_cast<std::ptrdiff_t>(b) + 4) == c.scales);
      }
      CHECK(r.tile.codes == std::vector<std::uint8_t>(17 * 64, c.code));
    }
  }
}

TEST_CASE("keys of HiF4: synonyms, notes and contradictions") {
  const Recipe sr = parse_recipe("hif4:contract=a6,ties=sr,seed=5");
  CHECK(to_string(sr) == "hif4:contract=a6,round=sr,seed=5");
  CHECK(sr.hif4.ties == Rounding::kEven);
  CHECK(sr.element_ties() == Rounding::kStochastic);
  CHECK(parse_recipe("hif4:geometry=64x64").format.block_rows == 64);
  CHECK(parse_recipe("hif4").format.block_rows == 1);
  CHECK(parse_recipe("hif4:search=mse").note.find("no standard") != std::string_view::npos);
  CHECK(parse_recipe("hif4:geometry=64x64").note.find("inferred") != std::string_view::npos);
  CHECK(parse_recipe("hif4").native.bits == LevelBits::kLsb);
  CHECK(parse_recipe("hif4:contract=amct").native.bits == LevelBits::kMsb);
  CHECK(parse_recipe("hif4:contract=a6").native.carrier == Carrier::kA6);
  CHECK(parse_recipe("hif4:nibbles=high-first").native.nibbles == Nibbles::kHighFirst);
  for (const char* text :
       {"hif4:ties=sr,round=rne", "hif4:search=mse,round=sr", "hif4:search=mse,geometry=64x64",
        "hif4:seed=1", "custom:e1m2/4:micro/8:micro/64:e6m2,search=mse",
        "custom:e1m2/4:micro/8:micro/64:e6m2,width=5",
        "custom:e1m2/4:micro/8:micro/64:e6m2,geometry=64x64"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_recipe(text), Error);
  }
}

TEST_CASE("contracts of the CANN goldens are their documented settings") {
  // spec/hif4.md 2.1.
  const auto options = [](const char* text) { return parse_recipe(text).hif4; };
  CHECK(options("hif4:contract=dynamic-mx-quant") ==
        options("hif4:contract=amct,ties=even,overflow=nan,zero=ff"));
  CHECK(options("hif4:contract=moe-routing") == options("hif4:contract=a6,overflow=nan,zero=ff"));
  const std::vector<float> zeros(64);
  for (const Backend* backend : available_backends()) {
    const Result r = quantized(*backend, parse_recipe("hif4:contract=moe-routing"), zeros, 1, 64);
    CHECK(r.tile.scales == std::vector<std::uint8_t>{0xff, 0, 0, 0});
  }
}

}  // namespace
}  // namespace fp4scope
