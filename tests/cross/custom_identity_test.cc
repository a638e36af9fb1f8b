// custom_identity_test.cc: every named format, written as custom: with each of its contracts, gives
// the bits of the named format on hard blocks: the run-time descriptor and the literal one run
// through the same text. On every backend and in the oracle.
#include <doctest/doctest.h>

#include <cstdio>
#include <map>

#include "sim/error.h"
#include "tests/cross/compare.h"
#include "tests/cross/hard_tile.h"
#include "tests/cross/recipes.h"
#include "tests/support/backends.h"
#include "tests/support/required_keys.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

// Shapes of the formats whose contracts share one. INT4 and FP8 store what the contract says.
const std::map<std::string, std::string> kShapes = {
    {"mxfp4", "e2m1/32:e8m0"},     {"mxfp6e2m3", "e2m3/32:e8m0"},
    {"mxfp6e3m2", "e3m2/32:e8m0"}, {"mxfp8e4m3", "e4m3/32:e8m0"},
    {"mxfp8e5m2", "e5m2/32:e8m0"}, {"hif4", "e1m2/4:micro/8:micro/64:e6m2"},
};
// Elements of these have a unit (MXINT) or a marked scale (if4) that no shape expresses.
const char* const kNoShape[] = {"mxint8", "mxint4", "if4", "nvint4", "bf16"};

std::string scale_type(const ScaleLevel& level) {
  switch (level.kind) {
    case ScaleKind::kBinary32:
      return "f32";
    case ScaleKind::kBfloat16:
      return "bf16";
    case ScaleKind::kBinary16:
      return "f16";
    case ScaleKind::kE8m0:
      return "e8m0";
    default:
      return "e4m3";
  }
}

// The shape of a named recipe; empty when it has none.
std::string shape_of(const Recipe& recipe) {
  const std::string name(recipe.format.name);
  for (const char* none : kNoShape) {
    if (name == none) return "";
  }
  if (name == "nvfp4") {
    const OuterScale scale = recipe.nvfp4.scale;
    return std::string("e2m1/16:e4m3") + (scale == OuterScale::kNone  ? ""
                                          : scale == OuterScale::kRow ? "/row:f32"
                                                                      : "/tensor:f32");
  }
  if (const auto known = kShapes.find(name); known != kShapes.end()) return known->second;
  const ScaleLevel& level = recipe.format.levels[0];
  const std::string element = name == "int4" ? "int4" : "e4m3";
  const std::string group = level.group != 0       ? std::to_string(level.group)
                            : recipe.scales_rows() ? "row"
                                                   : "tensor";
  return element + "/" + group + ":" + scale_type(level);
}

// What one form refuses, the other has to refuse too; `blocks` of the result are those compared.
Differences differences(const Backend& backend, const Recipe& named, const Recipe& custom) {
  BlockSource source(seed_of(custom.text));
  Differences found;
  for (int k = 0; k < kKinds; ++k) {
    const HardTile hard = hard_tile(source, named, static_cast<Kind>(k),
                                    named.is_2d() ? named.format.block_rows : 1, false);
    Quantized want;
    try {
      want = quantized(backend, named, hard.tile, hard.outer);
    } catch (const RefusedInput&) {
      CHECK_THROWS_AS(quantized(backend, custom, hard.tile, hard.outer), RefusedInput);
      continue;
    }
    found += compare(backend, custom, hard.tile, want,
                     quantized(backend, custom, hard.tile, hard.outer));
  }
  return found;
}

}  // namespace

TEST_SUITE_BEGIN("cross");

TEST_CASE("a named format written as custom: with its contract gives the same bits") {
  int pairs = 0;
  std::int64_t total_blocks = 0;
  for (const FormatRow& row : all_formats()) {
    for (const ContractInfo& info : contracts_of(row.family, row.format.name)) {
      const std::string contract = "contract=" + std::string(info.name);
      const std::string prefix = std::string(row.format.name) + ":" + contract;
      // Second-level scales that have to be given.
      Recipe named = parse_recipe(required_keys(prefix));
      // A shape has groups along K only.
      if (named.is_2d()) named = parse_recipe(required_keys(prefix + ",gran=1x128"));
      const std::string shape = shape_of(named);
      if (shape.empty()) continue;
      Recipe custom = parse_recipe(required_keys("custom:" + shape + "," + contract));
      // A contract that says nothing about signs of zero would refuse every kind of hard block.
      if (named.family == Family::kMx && named.mx.zero_sign == ZeroSign::kRefuse) {
        named = parse_recipe(named.text + ",zero-sign=keep");
        custom = parse_recipe(custom.text + ",zero-sign=keep");
      }
      CAPTURE(custom.text);
      CHECK(custom.family == named.family);
      CHECK(custom.format.bits_per_element() == named.format.bits_per_element());
      CHECK(custom.format.scale_bytes == named.format.scale_bytes);
      std::int64_t blocks = 0;
      std::vector<const Backend*> backends = backends_for(named);
      backends.push_back(&oracle_backend());
      for (const Backend* backend : backends) {
        const Differences d = differences(*backend, named, custom);
        CHECK_MESSAGE(d.total() == 0, name_of(*backend));
        CHECK(d.blocks > 0);
        blocks = d.blocks;  // the same ones for every backend
      }
      total_blocks += blocks;
      ++pairs;
    }
  }
  std::printf("%d pairs of format and contract compared with their custom: form, %lld blocks\n",
              pairs, static_cast<long long>(total_blocks));
  CHECK(pairs == 138);  // a contract more: count it here
}
