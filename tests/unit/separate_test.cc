// separate_test.cc: the catalog, the probes and the search for an input that tells two recipes
// apart. A found input is tried again through the one-call form of sim.
#include "analysis/compare/separate.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "analysis/compare/catalog.h"
#include "analysis/compare/probes.h"
#include "sim/error.h"
#include "sim/quantized_tensor.h"
#include "tests/support/backends.h"

using namespace fp4scope;

namespace {

QuantizedTensor quantized(const SmallTensor& tensor, const char* recipe) {
  TensorView x;
  x.f32 = tensor.x.data();
  x.rows = tensor.rows;
  x.cols = x.stride = tensor.cols;
  x.source = tensor.source;
  const Recipe parsed = parse_recipe(recipe);
  return quantize(x, parsed, *test::backends_for(parsed).front());
}
bool same_bytes(const QuantizedTensor& a, const QuantizedTensor& b) {
  if (a.codes != b.codes || a.scales.size() != b.scales.size()) return false;
  for (std::size_t i = 0; i < a.scales.size(); ++i)
    if (a.scales[i].bytes != b.scales[i].bytes) return false;
  return true;
}
bool same_outer(const QuantizedTensor& a, const QuantizedTensor& b) {
  return a.outer.size() == b.outer.size() &&
         std::equal(a.outer.begin(), a.outer.end(), b.outer.begin(),
                    [](const OuterScale32& u, const OuterScale32& v) { return u.g == v.g; });
}

}  // namespace

TEST_CASE("the catalog has every contract of every format once") {
  std::set<std::string> texts;
  std::set<std::pair<std::string, std::string>> contracts;
  for (const Recipe& recipe : contract_catalog()) {
    CHECK_MESSAGE(texts.insert(to_full_string(recipe)).second, to_full_string(recipe));
    contracts.emplace(recipe.format.name, recipe.contract);
  }
  std::size_t expected = 0;
  for (const FormatRow& row : all_formats()) {
    for (const ContractInfo& info : contracts_of(row.family, row.format.name)) {
      ++expected;
      CHECK_MESSAGE(contracts.count({std::string(row.format.name), std::string(info.name)}) == 1,
                    row.format.name << " " << info.name);
    }
  }
  CHECK(contracts.size() == expected);
  for (const char* text : {"nvfp4:contract=flashinfer-fast,scale=row", "nvfp4:select=mse,sum=tree",
                           "nvfp4:contract=fouroversix,select=static4", "nvfp4:block=2d",
                           "nvfp4:contract=trtllm,ftz=on", "nvfp4:g-rule=rcp-mul"}) {
    CHECK_MESSAGE(texts.count(to_full_string(parse_recipe(text))) == 1, text);
  }
}

TEST_CASE("recipes are crossed with one choice from each list where that is legal") {
  const std::vector<KeyChoices> lists = {{"", "scale=row"}, {"select=mae", "select=absmax"}};
  std::set<std::string> texts;
  for (const Recipe& recipe : recipes_of(Family::kNvfp4, "nvfp4", lists))
    texts.insert(to_string(recipe));
  CHECK(texts.count("nvfp4:select=mae") == 1);
  CHECK(texts.count("nvfp4:scale=row,select=mae") == 1);
  CHECK(texts.count("nvfp4:contract=fouroversix,select=absmax") == 1);
  CHECK(texts.count("nvfp4:contract=fouroversix,scale=row,select=mae") == 0);  // has no scale=row
  CHECK(texts.count("nvfp4") == 0);  // a choice of the second list is always taken
}

TEST_CASE("probes have names of their own and values of their type") {
  for (const char* text : {"mxfp4", "nvfp4:select=mse", "nvfp4:contract=mlx-cpu", "hif4",
                           "fp8:contract=hf-block", "int4", "bf16"}) {
    for (const SourceType source : {SourceType::kF32, SourceType::kBf16, SourceType::kF16}) {
      CAPTURE(text);
      const Recipe recipe = parse_recipe(text);
      const Backend& backend = *test::backends_for(recipe).front();
      std::set<std::string> names;
      for (const Probe& probe : probes_of(recipe, source)) {
        CHECK_MESSAGE(names.insert(probe.name).second, probe.name);
        CHECK(!probe.what.empty());
        CHECK(probe.source == source);
        CHECK(std::ssize(probe.x) == probe.rows * probe.cols);
        for (const float v : probe.x) {
          if (!std::isfinite(v) || source == SourceType::kF32) continue;
          const float unit =
              source == SourceType::kBf16
                  ? std::ldexp(1.0f, std::max(std::ilogb(v == 0 ? 1.0f : v) - 7, -133))
                  : std::ldexp(1.0f, std::max(std::ilogb(v == 0 ? 1.0f : v) - 10, -24));
          REQUIRE(std::fmod(v, unit) == 0);
          if (source == SourceType::kF16) REQUIRE(std::fabs(v) <= 65504);
        }
        const bool refused = outcome_of(backend, recipe, probe).is_refused();
        CHECK_MESSAGE(refused == probe.name.ends_with("-refused"), probe.name);
      }
      for (const char* name : {"zero-tensor", "rows", "random"})
        CHECK_MESSAGE(names.count(name) + names.count(std::string(name) + "-refused") == 1, name);
    }
  }
}

TEST_CASE("recipes of different bits are told apart by a few blocks") {
  struct Case {
    const char *a, *b;
  };
  for (const Case& c :
       {Case{"nvfp4", "nvfp4:contract=flashinfer-fast"}, Case{"nvfp4", "nvfp4:contract=trtllm"},
        Case{"nvfp4:select=mae", "nvfp4:select=mae,sum=tree"},
        Case{"nvfp4:select=mse", "nvfp4:select=mse,sum=fma"},
        Case{"nvfp4:select=mae", "nvfp4:select=mae,score=decode"},
        Case{"nvfp4", "nvfp4:contract=te-fast"}, Case{"nvfp4", "nvfp4:block=2d"},
        Case{"nvfp4", "nvfp4:contract=fouroversix"}, Case{"mxfp4", "mxfp4:contract=torchao-even"},
        Case{"mxfp4:contract=microx-torch", "mxfp4:contract=microx-cuda"},
        Case{"hif4", "hif4:contract=amct"}, Case{"hif4", "hif4:contract=a6"},
        Case{"int4", "int4:contract=skyrl"}, Case{"fp8", "fp8:contract=sgl-group"}}) {
    CAPTURE(c.a);
    CAPTURE(c.b);
    const auto found = separate(parse_recipe(c.a), parse_recipe(c.b));
    REQUIRE(found.has_value());
    CHECK(!found->what.empty());
    const Recipe recipe = parse_recipe(c.a);
    CHECK(found->rows <= 16);
    CHECK(found->cols <= 4 * recipe.format.block);
    CHECK(found->block * recipe.format.block < found->cols);
    // Values may be what differs (ct-rtn and skyrl decode alike, sums do not).
    const QuantizedTensor qa = quantized(*found, c.a), qb = quantized(*found, c.b);
    const auto va = dequantize(qa, *test::backends_for(qa.recipe).front());
    const auto vb = dequantize(qb, *test::backends_for(qb.recipe).front());
    bool values_differ = false;
    for (std::size_t i = 0; i < va.size(); ++i)
      values_differ |= bit_cast<std::uint32_t>(va[i]) != bit_cast<std::uint32_t>(vb[i]);
    CHECK((!same_bytes(qa, qb) || !same_outer(qa, qb) || values_differ));
  }
}

TEST_CASE("rules of g are told apart by the outer scale") {
  for (const char* rule : {"rcp-mul", "inv-div", "inv-mul"}) {
    const std::string other = std::string("nvfp4:g-rule=") + rule;
    const auto found = separate(parse_recipe("nvfp4"), parse_recipe(other));
    REQUIRE(found.has_value());
    CHECK(found->what == "outer scale");
    CHECK(!same_outer(quantized(*found, "nvfp4"), quantized(*found, other.c_str())));
  }
}

TEST_CASE("equal recipes, refusals and shapes") {
  SeparateOptions small;
  small.blocks = 20000;
  CHECK(!separate(parse_recipe("mxfp4"), parse_recipe("mxfp4:contract=torchao-rceil"), small));
  // spec/nvfp4.md 2: the adaptive kernel ignores the switch.
  CHECK(!separate(parse_recipe("nvfp4:select=mse"),
                  parse_recipe("nvfp4:contract=te-fast,select=mse"), small));
  // gfloat says nothing about NaN, and nothing else differs.
  const auto refused = separate(parse_recipe("mxfp4:contract=ocp-floor-rne"),
                                parse_recipe("mxfp4:contract=gfloat"), small);
  REQUIRE(refused.has_value());
  CHECK(refused->what == "input that mxfp4:contract=gfloat refuses");
  CHECK_THROWS_AS((void)quantized(*refused, "mxfp4:contract=gfloat"), RefusedInput);
  CHECK_NOTHROW((void)quantized(*refused, "mxfp4:contract=ocp-floor-rne"));
  const auto shape = separate(parse_recipe("nvfp4"), parse_recipe("mxfp4"), small);
  REQUIRE(shape.has_value());
  CHECK(shape->what == "blocks of 16 and 32");
}

TEST_CASE("the search gives the same input in every run") {
  const auto find = [] {
    return separate(parse_recipe("nvfp4:select=mae"), parse_recipe("nvfp4:select=mae,sum=halves"));
  };
  const auto first = find(), second = find();
  REQUIRE(first.has_value());
  REQUIRE(second.has_value());
  CHECK(first->x == second->x);
  CHECK(first->what == second->what);
}
