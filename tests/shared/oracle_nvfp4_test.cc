// oracle_nvfp4_test.cc: NVFP4, if4 and nvint4 in the exact oracle against the recorded vectors of
// ../shared/vectors (conventions: vectors/README.md there). The oracle was written from
// spec/nvfp4.md and spec/more.md alone, so these runs check two independent readings against each
// other. (oracle_nvfp4_peers_test.cc: real projects.)
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"
#include "tests/shared/oracle_runs.h"

using namespace fp4scope;
using namespace fp4scope::test;
using nlohmann::json;

namespace {

struct Tensor {
  std::vector<float> x;
  std::int64_t rows = 0, cols = 0;
  SourceType source = SourceType::kF32;
  Tile tile() const {
    Tile t{x.data(), nullptr, rows, cols, cols};
    t.source = source;
    return t;
  }
};

// Everything that one field name stands for, over all cases.
struct FieldDiffs {
  std::map<std::string, Diff> diffs;
  Diff& operator[](const std::string& field) {
    return diffs.try_emplace(field, "oracle: nvfp4/cases.json " + field).first->second;
  }
};

class Cases {
 public:
  Cases() : file_(load_shared("nvfp4/cases.json")) {
    const json inputs = load_shared("nvfp4/inputs.json")["inputs"];
    for (const auto& [name, in] : inputs.items()) {
      Tensor t;
      t.rows = in["rows"];
      t.cols = in["cols"];
      const bool is_bf16 = in.contains("bf16");
      t.x = is_bf16 ? bf16_floats(in["bf16"]) : hex_floats(in["f32"]);
      if (is_bf16) t.source = SourceType::kBf16;
      inputs_[name] = std::move(t);
    }
  }
  const json& all() const { return file_["cases"]; }
  const Tensor& input(const json& c) const { return inputs_.at(c["input"]); }
  std::string text(const json& c, const char* key) const {
    return file_["blobs"][c[key].get<std::size_t>()];
  }
  std::vector<std::uint32_t> blob(const json& c, const char* key, std::size_t digits) const {
    return hex_words(text(c, key), digits);
  }

 private:
  json file_;
  std::map<std::string, Tensor> inputs_;
};

void compare_case(const Cases& cases, const json& c, FieldDiffs& diffs) {
  static const std::set<std::string> known = {
      "recipe", "input", "evidence", "note", "packed",  "sf",           "amax",
      "g",      "pick4", "err4",     "err6", "dequant", "dequant_dtype"};
  for (const auto& item : c.items()) CHECK_MESSAGE(known.count(item.key()) == 1, item.key());
  const std::string text = c["recipe"], input = c["input"], where = text + " " + input;
  const Recipe recipe = parse_recipe(text);
  const Tensor& tensor = cases.input(c);
  const Tile tile = tensor.tile();

  const std::vector<OuterScale32> outer = measured_scales(oracle_backend(), recipe, tile);
  std::vector<std::uint32_t> amax, g;
  for (const OuterScale32& o : outer) {
    amax.push_back(bit_cast<std::uint32_t>(o.amax));
    g.push_back(bit_cast<std::uint32_t>(o.g));
  }
  if (c.contains("amax")) {
    compare_words(diffs["amax"], amax, cases.blob(c, "amax", 8), where + " amax");
  }
  if (c.contains("g")) compare_words(diffs["g"], g, cases.blob(c, "g", 8), where + " g");

  const Quantized got = oracle_run(recipe, tile, outer, c.contains("dequant"));
  compare_words(diffs["sf"], words(got.tile.scales), cases.blob(c, "sf", 2), where + " sf");
  compare_words(diffs["packed"], packed_words(got.tile.codes), cases.blob(c, "packed", 2),
                where + " byte");
  if (c.contains("pick4")) {
    CHECK_MESSAGE(recipe.chooses(), where);
    std::vector<std::uint32_t> want;
    for (const char digit : cases.text(c, "pick4")) want.push_back(digit == '1' ? 1 : 0);
    compare_words(diffs["pick4"], words(got.tile.choices), want, where + " pick4");
  }
  if (c.contains("err4")) {
    compare_floats(diffs["err4"], bits_of(got.tile.errors, 0, 2), cases.blob(c, "err4", 8),
                   where + " err4");
    compare_floats(diffs["err6"], bits_of(got.tile.errors, 1, 2), cases.blob(c, "err6", 8),
                   where + " err6");
  }
  if (c.contains("dequant")) {
    const bool bf16 = c["dequant_dtype"] == "bf16";
    std::vector<std::uint32_t> want = cases.blob(c, "dequant", bf16 ? 4 : 8), values;
    for (const float v : got.values) {
      values.push_back(bf16 ? oracle::bf16_code(v, 0x7fc0u) << 16 : bit_cast<std::uint32_t>(v));
    }
    if (bf16) {
      for (std::uint32_t& w : want) w <<= 16;
    }
    compare_floats(diffs["dequant"], values, want, where + " value");
  }
}

}  // namespace

TEST_CASE("the oracle gives all recorded whole-tensor results") {
  if (!have_shared("vectors")) return;
  const Cases cases;
  FieldDiffs diffs;
  std::map<std::string, int> per_contract;
  for (const json& c : cases.all()) {
    compare_case(cases, c, diffs);
    ++per_contract[parse_recipe(std::string(c["recipe"])).contract];
  }
  for (const auto& [field, diff] : diffs.diffs) diff.check();
  CHECK(diffs.diffs.size() == 8);
  const std::map<std::string, int> expected = {
      {"te", 246},      {"te-fast", 6},  {"flashinfer", 162},       {"flashinfer-fast", 170},
      {"trtllm", 16},   {"vllm", 16},    {"fouroversix", 70},       {"fouroversix-cuda", 40},
      {"modelopt", 10}, {"torchao", 15}, {"compressed-tensors", 20}};
  CHECK(per_contract == expected);
  int total = 0;
  for (const auto& [contract, n] : per_contract) total += n;
  CHECK(total == 771);
}

TEST_CASE("the oracle gives the recorded outer scales of te") {
  if (!have_shared("vectors")) return;
  Diff diff("oracle: nvfp4/global_scale.json");
  const json file = load_shared("nvfp4/global_scale.json");
  const float one = bit_cast<float>(0x3f800000u), six = bit_cast<float>(0x40c00000u);
  for (const json& row : file["cases"]) {
    const std::string amax = row["amax"], g448 = row["g_448"], g256 = row["g_256"];
    const auto g_of = [&](const char* text) {
      return oracle_backend().outer_scale(parse_recipe(text), hex_bits(amax)).g;
    };
    const float g = g_of("nvfp4:contract=te");
    diff.compare(bit_cast<std::uint32_t>(g), hex_bits(g448), "g_448 " + amax);
    diff.compare(bit_cast<std::uint32_t>(g_of("nvfp4:contract=te,e4m3max=256")), hex_bits(g256),
                 "g_256 " + amax);
    const std::string inverse = row["inv_g_448"], sixth = row["g_sixth_448"];
    diff.compare(bit_cast<std::uint32_t>(oracle::div32(one, g)), hex_bits(inverse), "1/g " + amax);
    diff.compare(bit_cast<std::uint32_t>(oracle::mul32(g, oracle::div32(one, six))),
                 hex_bits(sixth), "g/6 " + amax);
  }
  diff.check();
}

namespace {

// Section 3.3 in the binary32 arithmetic of the machine that runs the test: the differences d of
// the candidate with scale byte value sf. E2M1 by the breakpoints of spec/scalars.md section 2.
float e2m1_value(float y) {
  const float a = std::fabs(y);
  const float q = a <= 0.25f   ? 0.0f
                  : a < 0.75f  ? 0.5f
                  : a <= 1.25f ? 1.0f
                  : a < 1.75f  ? 1.5f
                  : a <= 2.5f  ? 2.0f
                  : a < 3.5f   ? 3.0f
                  : a <= 5.0f  ? 4.0f
                               : 6.0f;
  return std::copysign(q, y);
}
std::vector<float> native_differences(const std::vector<float>& x, float sf, float amax, float m,
                                      bool fast) {
  const float g = (m * 6.0f) / amax, gd = 1.0f / g, product = sf * gd, inv = 1.0f / product;
  std::vector<float> d;
  for (const float v : x) {
    const float y = v * inv, qs = e2m1_value(y) * sf;
    const float scaled = qs * amax, w = scaled / (6.0f * m), xg = v * g;
    d.push_back(fast ? qs - xg : w - v);
  }
  return d;
}
float native_sum(std::vector<float> d, bool squared, const std::string& order) {
  float sum = 0;
  if (order == "fma") {
    for (const float t : d) sum = std::fma(t, t, sum);
    return sum;
  }
  for (float& t : d) t = squared ? t * t : std::fabs(t);
  if (order == "tree") {
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) d[i] = d[i] + d[i + half];
    }
    return d[0];
  }
  float halves[2] = {0, 0};
  for (std::size_t i = 0; i < 16; ++i) {
    sum = sum + d[i];
    halves[i / 8] = halves[i / 8] + d[i];
  }
  return order == "halves" ? halves[0] + halves[1] : sum;
}

}  // namespace

TEST_CASE("near ties of four over six: choices and errors of both metrics and of every sum order") {
  if (!have_shared("vectors")) return;
  const json file = load_shared("nvfp4/near_ties_4over6.json");
  Diff recorded("oracle: nvfp4/near_ties_4over6.json");
  Diff orders("oracle: near ties, sums against native binary32");
  std::map<std::string, int> separated;  // errors that differ from those of sum=seq
  int blocks = 0;
  for (const json& c : file["cases"]) {
    ++blocks;
    const std::string amax = c["amax"], select = c["select"], bf16 = c["x_bf16"];
    const std::string sf4 = c["sf4"], sf6 = c["sf6"];
    const int m = c["e4m3max"];
    const std::vector<float> x = bf16_floats(bf16);
    for (const std::string metric : {"exact", "fast"}) {
      const std::string base = "nvfp4:contract=te,amax=0x" + amax + ",select=" + select +
                               ",e4m3max=" + std::to_string(m) + ",metric=" + metric;
      const std::string where = base + " " + bf16;
      const Quantized got = oracle_run(base, x);
      const std::string err4 = c[metric + "_err4"], err6 = c[metric + "_err6"];
      const bool pick4 = c[metric + "_pick4"];
      compare_words(recorded, bits_of(got.tile.errors), {hex_bits(err4), hex_bits(err6)}, where);
      recorded.compare(got.tile.choices[0], pick4 ? 1 : 0, where + " choice");
      recorded.compare(got.tile.scales[0], hex_bits(pick4 ? sf4 : sf6), where + " scale");
      for (const std::string order : {"seq", "halves", "tree", "fma"}) {
        if (order == "fma" && select != "mse") continue;
        const Quantized sum = oracle_run(base + ",sum=" + order, x);
        for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
          const float sf = oracle::round32(oracle::value(kUE4M3, hex_bits(k == 0 ? sf4 : sf6)));
          const float want = native_sum(
              native_differences(x, sf, hex_float(amax), static_cast<float>(m), metric == "fast"),
              select == "mse", order);
          orders.compare(bit_cast<std::uint32_t>(sum.tile.errors[k]), bit_cast<std::uint32_t>(want),
                         where + " " + order);
          if (sum.tile.errors[k] != got.tile.errors[k]) ++separated[order];
        }
      }
    }
  }
  recorded.check();
  orders.check();
  CHECK(blocks == 121);
  for (const char* order : {"halves", "tree", "fma"}) CHECK_MESSAGE(separated[order] > 0, order);
}

TEST_CASE("the oracle gives the recorded MLX blocks and SGLang scales") {
  if (!have_shared("vectors")) return;
  const json file = load_shared("more/mlx_sglang.json");
  SUBCASE("mlx-metal and mlx-cuda") {
    Diff diff("oracle: more/mlx_sglang.json mlx");
    const std::vector<float> y = hex_floats(file["y"]);
    int recipes = 0;
    for (const json& c : file["mlx"]) {
      const std::string text = c["recipe"];
      if (text.find("nvfp4:") != 0) continue;
      ++recipes;
      const Quantized got = oracle_run(text, y, 10);
      compare_words(diff, words(got.tile.scales), hex_words(c["scale"], 2), text + " scale");
      compare_words(diff, words(got.tile.codes), hex_words(c["q"], 2), text + " code");
    }
    CHECK(recipes == 4);
    diff.check();
  }
  SUBCASE("sglang-online") {
    Diff diff("oracle: more/mlx_sglang.json sglang");
    const json& sglang = file["sglang"];
    const auto stored = [](std::uint32_t amax, bool rcp) {
      const float one = bit_cast<float>(0x3f800000u), top = bit_cast<float>(0x45280000u);  // 2688
      const float a = bit_cast<float>(amax);
      if (amax == 0) return one;
      return rcp ? oracle::mul32(a, oracle::div32(one, top)) : oracle::div32(a, top);
    };
    const std::vector<std::uint32_t> amax = hex_words(sglang["amax"], 8);
    for (const json& row : sglang["rows"]) {
      const bool rcp = row["scalar_div"] == "rcp";
      const std::string text =
          std::string("nvfp4:contract=sglang-online,g-rule=") + (rcp ? "inv-mul" : "inv-div");
      const Recipe recipe = parse_recipe(text);
      std::vector<std::uint32_t> g;
      for (const std::uint32_t a : amax) {
        g.push_back(bit_cast<std::uint32_t>(oracle_backend().outer_scale(recipe, a).g));
      }
      compare_words(diff, g, hex_words(row["g"], 8), text);
      // weight_scale_2, the number that checkpoints store: amax / 2688, or times fl(1/2688); 1 for
      // a zero tensor (spec/more.md section 3).
      std::vector<std::uint32_t> scale2;
      for (const std::uint32_t a : amax) scale2.push_back(bit_cast<std::uint32_t>(stored(a, rcp)));
      compare_words(diff, scale2, hex_words(row["scale2"], 8), text + " scale2");
    }
    const json& example = sglang["example"];
    const Recipe recipe = parse_recipe("nvfp4:contract=sglang-online");
    const std::vector<float> w = bf16_floats(example["w"]);
    const Tile tile{w.data(), nullptr, 2, 32, 32};
    const auto outer = measured_scales(oracle_backend(), recipe, tile);
    const std::string g = example["g"];
    diff.compare(bit_cast<std::uint32_t>(outer[0].g), hex_bits(g), "example g");
    diff.compare(bit_cast<std::uint32_t>(stored(bit_cast<std::uint32_t>(outer[0].amax), true)),
                 hex_bits(example["scale2"]), "example scale2");
    const Quantized got = oracle_run(recipe, tile, outer, false);
    compare_words(diff, words(got.tile.scales), hex_words(example["sf"], 2), "example scale");
    compare_words(diff, words(got.tile.codes), hex_words(example["codes"], 1), "example code");
    diff.check();
  }
}
