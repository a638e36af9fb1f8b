// golden_pairs_test.cc: the golden of every catalog recipe fails under every other recipe, except
// for the pairs below, each with its reason. The check knows nothing of how a golden is made: it
// quantizes x again through the one-call form of sim and compares bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <set>

#include "analysis/compare/catalog.h"
#include "analysis/compare/separate.h"
#include "analysis/golden.h"
#include "sim/error.h"
#include "sim/quantized_tensor.h"
#include "tests/support/backends.h"
#include "tests/support/floats.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

constexpr const char* kOcp = "spec/mx.md 3: the open points of the OCP text fixed as in torchao";
constexpr const char* kTeFast = "spec/nvfp4.md 2: the adaptive kernel ignores the fast-math switch";
constexpr const char* kSglang = "spec/more.md 3: flashinfer with another g, and here g is 1";
constexpr const char* kTriton = "spec/more.md 0: y/s of Triton is the product with rcp~(s)";
constexpr const char* kF46 =
    "spec/nvfp4.md 5.2: the candidates, clamps and sums of 3.3, and with g = 1 the same errors";

// Recipes that give the same bits for every input, and why. Canonical texts.
struct EqualPair {
  const char *a, *b, *reason;
};
constexpr EqualPair kEqual[] = {
    {"mxfp4:contract=ocp-floor-rne", "mxfp4:contract=torchao-floor", kOcp},
    {"mxfp6e2m3:contract=ocp-floor-rne", "mxfp6e2m3:contract=torchao-floor", kOcp},
    {"mxfp6e3m2:contract=ocp-floor-rne", "mxfp6e3m2:contract=torchao-floor", kOcp},
    {"mxfp8e4m3:contract=ocp-floor-rne", "mxfp8e4m3:contract=torchao-floor", kOcp},
    {"mxfp8e5m2:contract=ocp-floor-rne", "mxfp8e5m2:contract=torchao-floor", kOcp},
    {"fp8:contract=triton-group", "fp8:contract=triton-group-div", kTriton},
    {"nvfp4:contract=flashinfer,scale=none", "nvfp4:contract=sglang-online,scale=none", kSglang},
    {"nvfp4:contract=flashinfer,scale=none,select=mse",
     "nvfp4:contract=sglang-online,scale=none,select=mse", kSglang},
    {"nvfp4:contract=flashinfer,scale=none,select=mae",
     "nvfp4:contract=sglang-online,scale=none,select=mae", kSglang},
    {"nvfp4:scale=none,select=mae", "nvfp4:contract=fouroversix-cuda,scale=none,select=mae", kF46},
    {"nvfp4:contract=te-fast,scale=none,select=mae",
     "nvfp4:contract=fouroversix-cuda,scale=none,select=mae", kF46},
    {"nvfp4:select=mse", "nvfp4:contract=te-fast,select=mse", kTeFast},
    {"nvfp4:select=mse,metric=fast", "nvfp4:contract=te-fast,select=mse,metric=fast", kTeFast},
    {"nvfp4:select=mse,score=decode", "nvfp4:contract=te-fast,select=mse,score=decode", kTeFast},
    {"nvfp4:select=mse,sum=halves", "nvfp4:contract=te-fast,select=mse,sum=halves", kTeFast},
    {"nvfp4:select=mse,sum=tree", "nvfp4:contract=te-fast,select=mse,sum=tree", kTeFast},
    {"nvfp4:select=mse,sum=fma", "nvfp4:contract=te-fast,select=mse,sum=fma", kTeFast},
    {"nvfp4:scale=row,select=mse", "nvfp4:contract=te-fast,scale=row,select=mse", kTeFast},
    {"nvfp4:scale=none,select=mse", "nvfp4:contract=te-fast,scale=none,select=mse", kTeFast},
    {"nvfp4:select=mse,e4m3max=448", "nvfp4:contract=te-fast,select=mse,e4m3max=448", kTeFast},
    {"nvfp4:block=2d,select=mse", "nvfp4:contract=te-fast,block=2d,select=mse", kTeFast},
    {"nvfp4:select=mae", "nvfp4:contract=te-fast,select=mae", kTeFast},
    {"nvfp4:select=mae,metric=fast", "nvfp4:contract=te-fast,select=mae,metric=fast", kTeFast},
    {"nvfp4:select=mae,score=decode", "nvfp4:contract=te-fast,select=mae,score=decode", kTeFast},
    {"nvfp4:select=mae,sum=halves", "nvfp4:contract=te-fast,select=mae,sum=halves", kTeFast},
    {"nvfp4:select=mae,sum=tree", "nvfp4:contract=te-fast,select=mae,sum=tree", kTeFast},
    {"nvfp4:scale=row,select=mae", "nvfp4:contract=te-fast,scale=row,select=mae", kTeFast},
    {"nvfp4:scale=none,select=mae", "nvfp4:contract=te-fast,scale=none,select=mae", kTeFast},
    {"nvfp4:select=mae,e4m3max=448", "nvfp4:contract=te-fast,select=mae,e4m3max=448", kTeFast},
    {"nvfp4:block=2d,select=mae", "nvfp4:contract=te-fast,block=2d,select=mae", kTeFast},
};

// What a recipe makes of the input of a case, by the functions that users call.
struct Again {
  bool is_refused = false, has_codes = true;
  QuantizedTensor tensor;
  std::vector<float> values;
};
Again again(const GoldenCase& c, const Recipe& recipe, const Backend& backend) {
  Again out;
  TensorView x;
  x.f32 = c.x.data();
  x.rows = c.rows;
  x.cols = x.stride = c.cols;
  x.source = c.source;
  const auto is_nan = [](float v) { return v != v; };
  out.has_codes = !(recipe.keeps_nan_elements() && std::any_of(c.x.begin(), c.x.end(), is_nan)) &&
                  !(recipe.ragged() == Ragged::kFlat && c.cols % recipe.format.block != 0);
  try {
    if (!out.has_codes || recipe.keeps_nan_elements()) {
      out.values = fake_quantize(x, recipe, backend);
      // The one-call form of these recipes has no codes; without a NaN the backend has.
      if (out.has_codes) {
        QuantizedTile tile;
        backend.quantize(recipe, x, {}, tile);
        out.tensor.recipe = recipe;
        out.tensor.rows = c.rows;
        out.tensor.blocks_per_row = tile.blocks_per_row;
        out.tensor.code_bytes_per_row = packed_code_bytes(recipe, c.cols);
        out.tensor.codes.resize(static_cast<std::size_t>(c.rows * out.tensor.code_bytes_per_row));
        for (std::int64_t r = 0; r < c.rows; ++r) {
          pack_codes(recipe, tile.codes.data() + r * tile.padded_cols, c.cols,
                     out.tensor.codes.data() + r * out.tensor.code_bytes_per_row);
        }
        out.tensor.scales = {{recipe.format.levels[0], 1, tile.scales}};
      }
      return out;
    }
    out.tensor = quantize(x, recipe, backend);
    out.values = dequantize(out.tensor, backend);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kData) throw;
    out.is_refused = true;
  }
  return out;
}

// Planes of scale levels as one [rows, blocks, bytes].
std::vector<std::uint8_t> interleaved(const QuantizedTensor& tensor) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t b = 0; b < tensor.rows * tensor.blocks_per_row; ++b) {
    for (const ScalePlane& plane : tensor.scales) {
      const auto from = plane.bytes.begin() + b * plane.bytes_per_block;
      bytes.insert(bytes.end(), from, from + plane.bytes_per_block);
    }
  }
  return bytes;
}

bool same_floats(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float u, float v) { return same_float(u, v); });
}

// Whether the case holds under a recipe. Strict: choice bits and the stored amax too.
bool holds(const GoldenCase& c, const Recipe& recipe, const Backend& backend, bool strict) {
  const Again got = again(c, recipe, backend);
  if (got.is_refused || !c.refusal.empty()) return got.is_refused == !c.refusal.empty();
  if (got.has_codes && c.has_codes) {
    if (got.tensor.codes != c.codes || interleaved(got.tensor) != c.scales) return false;
    if (recipe.has_outer() || !c.outer_scale.empty()) {
      for (std::int64_t r = 0; r < c.rows; ++r) {
        const float g = recipe.has_outer() ? outer_of_row(recipe, got.tensor.outer, r).g : 1.0f;
        const std::size_t at = c.outer_scale.size() > 1 ? static_cast<std::size_t>(r) : 0;
        if (!same_float(g, c.outer_scale.empty() ? 1.0f : c.outer_scale[at])) return false;
        if (strict && !c.amax.empty() &&
            !same_float(outer_of_row(recipe, got.tensor.outer, r).amax, c.amax[at]))
          return false;
      }
    }
    if (strict && got.tensor.choices != c.choice) return false;
  }
  return same_floats(got.values, c.values);
}
bool holds(const Golden& golden, const Recipe& recipe, const Backend& backend,
           bool strict = false) {
  return std::all_of(golden.cases.begin(), golden.cases.end(),
                     [&](const GoldenCase& c) { return holds(c, recipe, backend, strict); });
}

const Backend& backend_of(const Recipe& recipe) {
  return *backends_for(recipe).front();
}

GoldenOptions quick() {
  GoldenOptions options;
  options.search_blocks = 0;
  options.with_oracle = false;
  return options;
}

using NamePair = std::pair<std::string, std::string>;
NamePair ordered(const std::string& a, const std::string& b) {
  return a < b ? NamePair{a, b} : NamePair{b, a};
}

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("a golden fails under every recipe that is not known to be equal") {
  const std::vector<Recipe>& catalog = contract_catalog();
  const std::size_t n = catalog.size();
  std::vector<std::string> names;
  std::vector<const Backend*> backends;
  for (const Recipe& recipe : catalog) {
    names.push_back(to_string(recipe));
    backends.push_back(&backend_of(recipe));
  }
  std::set<NamePair> pinned, found;
  for (const EqualPair& pair : kEqual) pinned.insert(ordered(pair.a, pair.b));
  REQUIRE(pinned.size() == std::size(kEqual));

  std::map<NamePair, int> directions;
  std::int64_t cases = 0, checked = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Golden golden = make_golden(catalog[i], quick());
    cases += std::ssize(golden.cases);
    CHECK_MESSAGE(holds(golden, catalog[i], *backends[i], true), names[i] << " fails its own");
    for (std::size_t j = 0; j < n; ++j) {
      if (i == j) continue;
      ++checked;
      if (!holds(golden, catalog[j], *backends[j])) continue;
      const NamePair pair = ordered(names[i], names[j]);
      found.insert(pair);
      ++directions[pair];
      CHECK_MESSAGE(pinned.contains(pair),
                    "the golden of " << names[i] << " holds under " << names[j]);
    }
  }
  for (const NamePair& pair : pinned) {
    CHECK_MESSAGE(found.contains(pair), pair.first << " and " << pair.second << " are not equal");
    CHECK_MESSAGE(directions[pair] == 2,
                  pair.first << " and " << pair.second << " are equal in one direction only");
  }
  std::printf("%zu recipes, %lld cases, %lld ordered pairs checked, %zu pairs equal\n", n,
              static_cast<long long>(cases), static_cast<long long>(checked), found.size());
  CHECK(n > 350);
  CHECK(checked == static_cast<std::int64_t>(n * (n - 1)));
}

TEST_CASE("a flipped bit of a golden is noticed") {
  for (const char* text :
       {"mxfp4", "mxfp8e4m3:contract=te-rceil", "nvfp4", "nvfp4:select=mse",
        "nvfp4:scale=row,select=mae", "nvfp4:block=2d", "hif4", "hif4:contract=amct", "int4",
        "fp8:contract=vllm-group", "fp8:contract=vllm-token", "bf16", "if4"}) {
    const Recipe recipe = parse_recipe(text);
    const Backend& backend = backend_of(recipe);
    Golden golden = make_golden(recipe, quick());
    std::uint64_t state = 88172645463325252u;
    const auto next = [&](std::uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % below;
    };
    int flips = 0;
    for (GoldenCase& c : golden.cases) {
      REQUIRE(holds(c, recipe, backend, true));
      for (std::vector<std::uint8_t>* plane : {&c.codes, &c.scales, &c.choice}) {
        if (plane->empty()) continue;
        std::uint8_t& byte = (*plane)[next(plane->size())];
        const auto bit = static_cast<std::uint8_t>(1u << next(8));
        byte ^= bit;
        CHECK_MESSAGE(!holds(c, recipe, backend, true), text << " " << c.name);
        byte ^= bit;
        ++flips;
      }
      for (std::vector<float>* plane : {&c.amax, &c.outer_scale, &c.values}) {
        if (plane->empty()) continue;
        float& v = (*plane)[next(plane->size())];
        if (v != v) continue;  // the payload of a NaN means nothing
        const float kept = v;
        v = bit_cast<float>(bit_cast<std::uint32_t>(v) ^ (1u << next(32)));
        CHECK_MESSAGE(!holds(c, recipe, backend, true), text << " " << c.name);
        v = kept;
        ++flips;
      }
    }
    std::printf("%-32s %d flipped bits noticed\n", text, flips);
    CHECK(flips >= 30);
  }
}

TEST_SUITE_END();
TEST_SUITE_BEGIN("full");

TEST_CASE("a larger search finds no difference between the equal recipes") {
  for (const EqualPair& pair : kEqual) {
    for (const SourceType source : {SourceType::kF32, SourceType::kBf16, SourceType::kF16}) {
      SeparateOptions options;
      options.blocks = std::int64_t{1} << 21;
      options.source = source;
      const auto found = separate(parse_recipe(pair.a), parse_recipe(pair.b), options);
      CHECK_MESSAGE(!found.has_value(),
                    pair.a << " and " << pair.b << " differ in " << (found ? found->what : ""));
    }
    std::printf("%s = %s: %s\n", pair.a, pair.b, pair.reason);
  }
}

// The goldens of half types need the random search for the orders of error sums.
TEST_CASE("recipes that differ in a sum are told apart on half types") {
  for (const SourceType source : {SourceType::kBf16, SourceType::kF16}) {
    for (const char* contract : {"te", "flashinfer", "flashinfer-fast", "fouroversix"}) {
      for (const char* select : {"mse", "mae"}) {
        const std::string base =
            std::string("nvfp4:contract=") + contract + ",select=" + select + ",sum=";
        const std::string sums[] = {"seq", "halves", "tree"};
        for (int i = 0; i < 3; ++i) {
          SeparateOptions options;
          options.blocks = std::int64_t{1} << 21;
          options.source = source;
          const std::string a = base + sums[i], b = base + sums[(i + 1) % 3];
          CHECK_MESSAGE(separate(parse_recipe(a), parse_recipe(b), options).has_value(),
                        a << " and " << b);
        }
      }
    }
  }
}

TEST_SUITE_END();
