// custom_format_test.cc: user-defined formats (sim/custom_format.h): canonical text and round trip,
// family and default contract, geometry and bits per value against the named formats, and every
// refusal with its sentence.
#include "sim/custom_format.h"

#include <doctest/doctest.h>

#include "formats/scalars.h"
#include "tests/unit/recipe_support.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

struct Spelling {
  std::string typed, canonical;
};

// A named format, the same as a shape, and the bits per value: element bits plus scale bits over
// the group, the outer scale not counted.
struct Published {
  std::string named, shape;
  double bits;
};
const Published kPublished[] = {
    {"mxfp4", "custom:e2m1/32:e8m0", 4.25},
    {"mxfp6e2m3", "custom:e2m3/32:e8m0", 6.25},
    {"mxfp6e3m2", "custom:e3m2/32:e8m0", 6.25},
    {"mxfp8e4m3", "custom:e4m3/32:e8m0", 8.25},
    {"mxfp8e5m2", "custom:e5m2/32:e8m0", 8.25},
    {"mxfp4:block=16", "custom:e2m1/16:e8m0", 4.5},
    {"nvfp4", "custom:e2m1/16:e4m3/tensor:f32", 4.5},
    {"nvint4", "custom:int4/16:e4m3/tensor:f32", 4.5},
    {"hif4", "custom:e1m2/4:micro/8:micro/64:e6m2", 4.5},
    {"hif4:width=3", "custom:e1m1/4:micro/8:micro/64:e6m2", 3.5},
    {"hif4:width=5", "custom:e1m3/4:micro/8:micro/64:e6m2", 5.5},
    {"int4", "custom:int4/32:bf16", 4.5},
    {"int4:group=128", "custom:int4/128:bf16", 4.125},
    {"int4:dtype=f16", "custom:int4/32:f16", 4.5},
    {"int4:contract=rtp-llm", "custom:int4/32:e4m3,contract=rtp-llm", 4.25},
    {"fp8", "custom:e4m3/128:f32", 8.25},
    {"fp8:elem=e5m2", "custom:e5m2/128:f32", 8.25},
    {"fp8:gran=tensor", "custom:e4m3/tensor:f32", 8.0},
    {"fp8:gran=row", "custom:e4m3/row:f32", 8.0},
    {"fp8:contract=deepgemm,scale-fmt=ue8m0", "custom:e4m3/128:e8m0,contract=deepgemm", 8.0625},
};

struct BadShape {
  std::string typed;
  std::string part;  // of the sentence
};
const BadShape kBadShapes[] = {
    // Parts that are missing or empty.
    {"custom", "custom: needs a shape such as custom:e2m1/16:e4m3/tensor:f32"},
    {"custom:", "element \"\" is unknown; expected exmy such as e2m1, intN, s1p2 or lut:NAME"},
    {"custom:,contract=te", "element \"\" is unknown"},
    {"custom:/16:e4m3", "element \"\" is unknown"},
    {"custom:e2m1", "e2m1 has no scale, expected ELEM/GROUP:SCALE"},
    {"custom:e2m1/", "\"\" is no scale, expected GROUP:SCALE such as 16:e4m3 or tensor:f32"},
    {"custom:e2m1//tensor:f32", "\"\" is no scale"},
    {"custom:e2m1/16", "\"16\" is no scale"},
    {"custom:e2m1/:e4m3", "expected a group of 1 to 256 elements, row or tensor"},
    {"custom:e2m1/16:", "16:: unknown scale type"},
    {"custom:e2m1/16:e4m3,", "an item is empty"},
    // Elements.
    {"custom:fp4/16:e4m3", "element \"fp4\" is unknown"},
    {"custom:em/16:e4m3", "element \"em\" is unknown"},
    {"custom:e2/16:e4m3", "element \"e2\" is unknown"},
    {"custom:e2m1x/16:e4m3", "element \"e2m1x\" is unknown"},
    {"custom:ue4m3/16:e4m3", "element \"ue4m3\" is unknown"},
    {"custom:e0m3/16:e4m3", "element e0m3: expected 1 to 6 exponent bits"},
    {"custom:e7m0/16:e4m3", "element e7m0: expected 1 to 6 exponent bits"},
    {"custom:e4m4/16:e4m3", "at most 8 bits with the sign"},
    {"custom:e1m11/16:e4m3", "at most 10 fraction bits"},
    {"custom:bf16/16:e4m3", "element \"bf16\" is unknown"},
    {"custom:int1/32:bf16", "element int1: expected int2 to int8"},
    {"custom:int9/32:bf16", "element int9: expected int2 to int8"},
    {"custom:int/32:bf16", "element int: expected int2 to int8"},
    {"custom:lut:nf5/16:e4m3", "element lut:nf5: no such table; expected one of nf4"},
    {"custom:lut:/16:e4m3", "element lut:: no such table"},
    // Scales.
    {"custom:e2m1/16:e5m2", "16:e5m2: unknown scale type; expected e4m3, ue5m3, e6m2, e8m0, micro"},
    {"custom:e2m1/0:e4m3", "0:e4m3: expected a group of 1 to 256 elements"},
    {"custom:e2m1/-16:e4m3", "-16:e4m3: expected a group of 1 to 256"},
    {"custom:e2m1/257:e4m3", "257:e4m3: expected a group of 1 to 256"},
    {"custom:e2m1/99999999999:e4m3", "expected a group of 1 to 256"},
    {"custom:e2m1/16x:e4m3", "16x:e4m3: expected a group of 1 to 256"},
    {"custom:e2m1/ten:e4m3", "ten:e4m3: expected a group of 1 to 256"},
    {"custom:e2m1/16:e4m3/tensor:e4m3", "tensor:e4m3: a scale per tensor or row is f32"},
    {"custom:e2m1/16:e4m3/row:bf16", "row:bf16: a scale per tensor or row is f32"},
    {"custom:e2m1/tensor:f32/16:e4m3",
     "16:e4m3 comes after the tensor or row scale, which is outermost"},
    {"custom:e2m1/16:e4m3/row:f32/tensor:f32", "tensor:f32 comes after the tensor or row scale"},
    {"custom:e1m2/8:micro/4:micro/64:e6m2",
     "group 4 does not nest: expected a larger multiple of 8"},
    {"custom:e1m2/8:micro/12:e6m2", "group 12 does not nest: expected a larger multiple of 8"},
    {"custom:e1m2/8:micro/8:e6m2", "group 8 does not nest: expected a larger multiple of 8"},
    {"custom:e1m2/2:micro/4:micro/8:micro/64:e6m2", "expected at most three scales below"},
    // Combinations without a contract.
    {"custom:e2m1/16:e4m3/64:e4m3", "no contract says how two block scales"},
    {"custom:e2m1/16:micro", "one-bit scales go below a block scale of type e4m3, ue5m3 or e6m2"},
    {"custom:e2m1/4:micro/32:e8m0", "one-bit scales go below a block scale"},
    {"custom:e1m2/4:micro/64:e8m0", "one-bit scales go below a block scale"},
    {"custom:e1m2/4:micro/8:e4m3/64:e6m2", "between the elements and the block scale"},
    {"custom:e1m2/8:micro/64:e6m2/tensor:f32", "one-bit scales has no tensor or row scale"},
    {"custom:e2m1/32:e8m0/tensor:f32", "no contract combines e8m0 block scales with a tensor"},
    {"custom:e4m3/128:f32/row:f32", "no contract combines f32 block scales with a tensor"},
    {"custom:int4/32:bf16/tensor:f32", "no contract combines 16-bit block scales with a tensor"},
    {"custom:lut:nf4/tensor:f32", "a table of values needs a block scale"},
    {"custom:lut:nf4/32:e8m0", "no MX contract says how a table of values is scaled"},
    {"custom:lut:nf4/8:micro/64:e6m2", "a table of values do not go with one-bit levels"},
    // Contracts of other families and keys that the shape has answered.
    {"custom:e2m1/32:e8m0,contract=gcc", "custom:e2m1/32:e8m0 has no contract \"gcc\""},
    {"custom:e2m1/16:e4m3/tensor:f32,contract=rtp-llm", "has no contract \"rtp-llm\""},
    {"custom:e2m1/16:e4m3/tensor:f32,contract=torchoa", "did you mean \"torchao\"?"},
    {"custom:int4/32:bf16,contract=te", "has no contract \"te\""},
    {"custom:e2m1/32:e8m0,block=32", "key block"},
    {"custom:int4/32:bf16,group=64", "key group"},
    {"custom:e4m3/128:f32,gran=row", "key gran"},
    {"custom:e4m3/128:f32,elem=e5m2", "key elem"},
    {"custom:e5m2/tensor:f32,dtype=bf16", "key dtype"},
    {"custom:e2m1/16:e4m3/tensor:f32,contract=onednn", "has no outer scale (scale=none)"},
    {"custom:e2m1/16:e4m3/row:f32,contract=onednn", "has no outer scale (scale=none)"},
    {"custom:e1m2/4:micro/8:micro/64:e6m2,width=5", "key width"},
    {"custom:e1m2/4:micro/8:micro/64:e6m2,search=mse", "key search"},
    {"custom:e2m1/16:ue5m3/tensor:f32,e4m3max=256", "key e4m3max"},
    // What a contract defines for E2M1 under E4M3 only.
    {"custom:e2m3/16:e4m3/tensor:f32,contract=fouroversix",
     "defined for e2m1 elements under e4m3 scales only"},
    {"custom:e2m1/16:ue5m3/tensor:f32,contract=torchao",
     "defined for e2m1 elements under e4m3 scales only"},
    {"custom:e2m3/16:e4m3/tensor:f32,select=mse", "needs e2m1 elements"},
    {"custom:e2m1/16:ue5m3/tensor:f32,select=mse,metric=fast", "metric=fast needs e4m3 scales"},
    {"custom:e2m1/12:e4m3/tensor:f32,select=mse,sum=tree", "need a block of a power of two"},
    {"custom:e2m1/15:e4m3/tensor:f32,select=mse,sum=halves", "sum=halves needs an even block"},
    {"custom:lut:nf4/16:e4m3,round=sr", "round=sr needs elements on a minifloat or integer grid"},
    {"custom:lut:nf4/64:e4m3,round=sr", "round=sr needs elements on a minifloat or integer grid"},
    {"custom:lut:nf4/64:bf16,round=sr", "round=sr needs elements on a minifloat or integer grid"},
    {"custom:lut:nf4/64:f32,round=sr", "round=sr needs elements on a minifloat or integer grid"},
    {"custom:int4/32:e4m3,contract=skyrl", "e4m3 with rtp-llm is all that is defined"},
    {"custom:e4m3/128:e8m0,contract=deepgemm,scale-fmt=f32", "goes with scales of type e8m0"},
    {"custom:e4m3/128:f32,contract=deepgemm,scale-fmt=ue8m0", "goes with scales of type e8m0"},
    {"custom:e2m1/16:e4m3+resq:sparsity=2of4", "after \"+\" do not exist in this version"},
};

}  // namespace

TEST_CASE("a shape has one canonical spelling, and printing and parsing give the same recipe") {
  const Spelling spellings[] = {
      {"custom:e2m1/16:e4m3/tensor:f32", "custom:e2m1/16:e4m3/tensor:f32"},
      {" CUSTOM: S1P2/4:Micro/8:MICRO/64:E6M2 ", "custom:e1m2/4:micro/8:micro/64:e6m2"},
      {"custom:e2m1/16:UE4M3/row:f32", "custom:e2m1/16:e4m3/row:f32"},
      {"custom:e2m1/32:e8m0,contract=torchao_rceil", "custom:e2m1/32:e8m0"},
      {"custom:e2m1/32:e8m0,ties=away,contract=torchao-floor",
       "custom:e2m1/32:e8m0,contract=torchao-floor,ties=away"},
      {"custom:e3m1/24:e8m0", "custom:e3m1/24:e8m0"},
      {"custom:lut:NF4/64:f32", "custom:lut:nf4/64:f32"},
      {"custom:lut:nf4/16:e4m3/tensor:f32,neg-zero=drop",
       "custom:lut:nf4/16:e4m3/tensor:f32,neg-zero=drop"},
      {"custom:e2m1/16:e4m3/tensor:f32,g=0x3f800000,scale=given",
       "custom:e2m1/16:e4m3/tensor:f32,scale=given,g=0x3f800000"},
      {"custom:e2m1/16:e4m3/tensor:f32,select=mse", "custom:e2m1/16:e4m3/tensor:f32,select=mse"},
      {"custom:int3/32:bf16,round=sr,seed=4", "custom:int3/32:bf16,round=sr,seed=4"},
      {"custom:int4/32:f16,dtype=f16", "custom:int4/32:f16"},
      {"custom:int4/32:e4m3,contract=rtp-llm", "custom:int4/32:e4m3,contract=rtp-llm"},
      {"custom:e4m3/128:e8m0,contract=deepgemm", "custom:e4m3/128:e8m0,contract=deepgemm"},
      {"custom:e5m2/row:f32", "custom:e5m2/row:f32"},
  };
  for (const Spelling& s : spellings) {
    CAPTURE(s.typed);
    const Recipe recipe = parse_recipe(s.typed);
    CHECK(to_string(recipe) == s.canonical);
    CHECK(same_bits(parse_recipe(s.canonical), recipe));
    const std::string full = to_full_string(recipe);
    CAPTURE(full);
    CHECK(same_bits(parse_recipe(full), recipe));
    CHECK(to_string(parse_recipe(full)) == s.canonical);
  }
  CHECK(to_full_string(parse_recipe("custom:e2m1/16:e4m3/tensor:f32")) ==
        "custom:e2m1/16:e4m3/tensor:f32,contract=te,scale=tensor,g-rule=div,block=1d,"
        "select=static6,metric=exact,e4m3max=448,neg-zero=keep,ragged=pad,nibbles=low-first,"
        "layout=linear,rht=none,round=rne");
}

TEST_CASE("a published format written as a shape has its geometry and bits per value") {
  for (const Published& p : kPublished) {
    CAPTURE(p.named);
    CAPTURE(p.shape);
    const Recipe named = parse_recipe(p.named), shape = parse_recipe(p.shape);
    CHECK(named.format.bits_per_element() == p.bits);
    CHECK(shape.format.bits_per_element() == p.bits);
    CHECK(shape.family == named.family);
    CHECK(shape.has_outer() == named.has_outer());
    CHECK(shape.scales_rows() == named.scales_rows());
    CHECK(shape.needs_amax() == named.needs_amax());
    CHECK(same_format(shape.format, named.format));
    CHECK(shape.format.name == "custom");
  }
}

TEST_CASE("with the same contract a shape has the options of the named format") {
  for (const Published& p : kPublished) {
    const Recipe named = parse_recipe(p.named);
    const bool has_contract = p.shape.find(',') != std::string::npos;
    const std::string typed = p.shape + (has_contract ? "" : ",contract=" + named.contract);
    CAPTURE(typed);
    if (p.named == "nvint4") {  // its grid of +-7 is that of the name
      CHECK(refusal(typed).find("e2m1 elements under e4m3 scales only") != std::string::npos);
      continue;
    }
    const Recipe shape = parse_recipe(typed);
    CHECK(shape.contract == named.contract);
    CHECK(shape.mx == named.mx);
    CHECK(shape.nvfp4 == named.nvfp4);
    CHECK(shape.int4 == named.int4);
    CHECK(shape.rht == named.rht);
    CHECK(shape.sr == named.sr);
    CHECK(shape.native == named.native);
  }
}

TEST_CASE("elements and scales are those of spec/scalars.md section 1") {
  CHECK(parse_recipe("custom:s1p2/32:e8m0").format.element == kE1M2);
  CHECK(parse_recipe("custom:e4m3/32:e8m0").format.element == kE4M3);
  CHECK(parse_recipe("custom:e5m2/32:e8m0").format.element == kE5M2);
  // Not in that table: bias 2^(x-1) - 1 and no special values.
  CHECK(parse_recipe("custom:e3m1/32:e8m0").format.element ==
        MinifloatSpec{3, 1, 3, true, true, Special::kNone});
  CHECK(parse_recipe("custom:e3m4/32:e8m0").format.element ==
        MinifloatSpec{3, 4, 3, true, true, Special::kNone});
  CHECK(parse_recipe("custom:int8/32:e8m0").format.element ==
        integer_spec(8, 0, SignCode::kTwosComplement));
  CHECK(parse_recipe("custom:e2m1/16:ue4m3").format.levels[0].spec == kUE4M3);
  CHECK(parse_recipe("custom:e2m1/16:ue5m3").format.levels[0].spec == kUE5M3);
  CHECK(parse_recipe("custom:e2m1/16:e6m2").format.levels[0].spec == kE6M2);
  CHECK(parse_recipe("custom:e2m1/256:e8m0").format.block == 256);
  const Recipe nf4 = parse_recipe("custom:lut:nf4/64:f32");
  REQUIRE(nf4.format.lut != nullptr);
  CHECK(nf4.format.lut->count == 16);
  CHECK(nf4.format.bits_per_element() == 4.5);
  CHECK(lut_max(*nf4.format.lut) == 1.0f);
  CHECK(nf4.format.lut->value[7] == 0.0f);
  CHECK(nf4.packs_nibbles());
}

TEST_CASE("the scales decide family and default contract") {
  struct Default {
    const char* shape;
    Family family;
    const char* contract;
    bool has_outer, is_row;
  };
  const Default defaults[] = {
      {"custom:e2m1/32:e8m0", Family::kMx, "torchao-rceil", false, false},
      {"custom:e2m1/16:e4m3/tensor:f32", Family::kNvfp4, "te", true, false},
      {"custom:e2m1/16:e4m3/row:f32", Family::kNvfp4, "te", true, true},
      {"custom:e1m2/4:micro/8:micro/64:e6m2", Family::kHif4, "gcc", false, false},
      {"custom:e2m1/8:micro/64:ue5m3", Family::kHif4, "gcc", false, false},
      {"custom:int4/32:bf16", Family::kInt4, "ct-rtn", false, false},
      {"custom:int8/64:f32", Family::kInt4, "ct-rtn", false, false},
      {"custom:e2m1/64:f16", Family::kInt4, "ct-rtn", false, false},
      {"custom:e4m3/128:f32", Family::kFp8, "te", false, false},
      {"custom:lut:nf4/64:f32", Family::kFp8, "te", false, false},
      {"custom:e4m3/tensor:f32", Family::kFp8, "te", true, false},
      {"custom:e4m3/row:f32", Family::kFp8, "te", true, true},
  };
  for (const Default& d : defaults) {
    CAPTURE(d.shape);
    const Recipe recipe = parse_recipe(d.shape);
    CHECK(recipe.family == d.family);
    CHECK(recipe.contract == d.contract);
    CHECK(recipe.has_outer() == d.has_outer);
    CHECK(recipe.scales_rows() == d.is_row);
  }
  CHECK(parse_recipe("custom:e2m1/16:e4m3").nvfp4.scale == OuterScale::kNone);
  // A contract of another family that has such scales.
  CHECK(parse_recipe("custom:e4m3/128:e8m0,contract=deepgemm").family == Family::kFp8);
  CHECK(parse_recipe("custom:e4m3/128:e8m0,contract=deepgemm").fp8.scale_fmt == ScaleFmt::kUe8m0);
  CHECK(parse_recipe("custom:int4/32:e4m3,contract=rtp-llm").family == Family::kInt4);
}

TEST_CASE("a bad shape is a usage error that names the offending part") {
  for (const BadShape& bad : kBadShapes) {
    CAPTURE(bad.typed);
    const std::string message = refusal(bad.typed);
    CAPTURE(message);
    CHECK(message.starts_with("recipe \"" + bad.typed + "\": "));
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.find(bad.part) != std::string::npos);
  }
}
