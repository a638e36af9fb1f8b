// recipes.cc: see the header.
#include "tests/cross/recipes.h"

#include "sim/recipe.h"
#include "tests/support/required_keys.h"

namespace fp4scope::test {
namespace {

// Every contract of a family's formats with each of `keys` that it has.
void add_crossed(Family family, std::initializer_list<const char*> keys,
                 std::vector<std::string>& list) {
  for (const FormatRow& row : all_formats()) {
    if (row.family != family) continue;
    for (const ContractInfo& c : contracts_of(family, row.format.name)) {
      const std::string base =
          required_keys(std::string(row.format.name) + ":contract=" + std::string(c.name));
      for (const char* more : keys) {
        const std::string text = base + "," + more;
        if (is_legal(text)) list.push_back(text);
      }
    }
  }
}

}  // namespace

std::vector<std::string> contract_recipes() {
  std::vector<std::string> list;
  for (const FormatRow& row : all_formats()) {
    for (const ContractInfo& c : contracts_of(row.family, row.format.name)) {
      list.push_back(
          required_keys(std::string(row.format.name) + ":contract=" + std::string(c.name)));
    }
  }
  // Contracts that do not say which sign a zero result has refuse most blocks without it.
  std::vector<std::string> signed_zeros;
  for (const std::string& text : list) {
    const Recipe recipe = parse_recipe(text);
    if (recipe.family == Family::kMx && recipe.mx.zero_sign == ZeroSign::kRefuse)
      signed_zeros.push_back(text + ",zero-sign=keep");
  }
  list.insert(list.end(), signed_zeros.begin(), signed_zeros.end());
  add_crossed(Family::kNvfp4,
              {"scale=row", "scale=none", "scale=given,g=0x45280000", "block=2d", "select=mae",
               "select=mse,metric=fast"},
              list);
  return list;
}

std::vector<std::string> option_recipes() {
  std::vector<std::string> list;
  for (const char* format : {"mxfp4", "mxfp6e2m3", "mxfp6e3m2", "mxfp8e4m3", "mxfp8e5m2"}) {
    const std::string f = format;
    for (const char* keys :
         {"torchao-floor,ties=away", "torchao-floor,ties=zero", "torchao-ceil,ties=trunc",
          "torchao-floor,zero-sign=drop-input", "torchao-floor,zero-sign=drop",
          "torchao-even,zero-sign=set", "torchao-rceil,top=254", "torchao-rceil,nan=drop",
          "torchao-floor,nan=drop,inf=254,ties=away", "torchao-even,top=254,inf=254",
          "torchao-rceil,scale-arith=field", "torchao-rceil,scale-arith=div",
          "torchao-rceil,nan=drop,inf=254,top=254,zero-sign=drop"}) {
      list.push_back(f + ":contract=" + keys);
    }
  }
  const std::string te = "nvfp4:contract=te";
  for (const char* keys :
       {",e4m3max=256", ",scale=row,e4m3max=256", ",neg-zero=drop", ",scale=none,neg-zero=drop",
        ",scale=none,block=2d", ",block=2d,e4m3max=256", ",amax=0x40380000",
        ",scale=given,g=0x4469bd38,amax=0x40380000", ",scale=given,g=0x00000001",
        ",scale=given,g=0x7f7fffff", ",scale=given,g=0x3f800001,block=2d",
        ",scale=given,g=0x45280000,amax=0x3f800000,e4m3max=256"}) {
    list.push_back(te + keys);
  }
  add_crossed(Family::kNvfp4,
              {"select=static4",
               "select=mse",
               "select=absmax",
               "select=mae,metric=fast",
               "select=mae,block=2d",
               "select=mse,metric=fast,block=2d",
               "select=mae,scale=row",
               "select=mse,sum=halves",
               "select=mae,sum=tree",
               "select=mse,sum=fma",
               "select=mae,score=amax",
               "select=mae,score=decode",
               "select=mae,e4m3max=448",
               "select=mae,e4m3max=256",
               "g-rule=rcp-mul",
               "g-rule=inv-div",
               "g-rule=inv-mul",
               "g-rule=div-unguarded",
               "rcp=rn",
               "ftz=on",
               "ftz=off",
               "scalar-div=rcp",
               "amax-dtype=bf16",
               "amax-dtype=f16,scalar-div=rcp",
               "neg-zero=keep",
               "neg-zero=drop",
               "select=mae,scale=given,g=0x4469bd38",
               "select=mse,scale=none",
               "ftz=on,scale=row",
               "ftz=off,scale=row,select=mae"},
              list);
  add_crossed(Family::kMx,
              {"ties=trunc",
               "ties=away",
               "flush=1",
               "flush=0",
               "byte0=flush",
               "byte0=exact",
               "nan=drop",
               "nan=byte0",
               "nan=254",
               "nan=erase",
               "nan=propagate",
               "inf=254",
               "inf=clamp",
               "inf=erase",
               "zero-block=7",
               "zero-block=0",
               "narrow=bf16",
               "dtype=bf16",
               "dtype=f16",
               "even-width=e2m1",
               "int8-grid=full",
               "int8-grid=integer127",
               "block=16",
               "block=64",
               "block=2d",
               "triton-sticky=0",
               "ftz=0",
               "ftz=1",
               "scale-rule=down6",
               "scale-rule=rint-log2",
               "scale-rule=triton-up"},
              list);
  add_crossed(Family::kInt4,
              {"group=16", "group=128", "qmin=-7", "scale-div=7", "scalar-div=rcp", "dtype=f16",
               "dtype=f32"},
              list);
  add_crossed(
      Family::kFp8,
      {"gran=row", "gran=tensor", "gran=128x128", "gran=32", "scale-fmt=ue8m0", "scale-fmt=pow2",
       "scalar-div=rcp", "div=triton", "div=ieee", "rcp=rn", "dtype=f16", "dtype=f32", "elem=e5m2"},
      list);
  for (const char* text : {"custom:e2m1/8:e4m3/tensor:f32",
                           "custom:e2m1/24:e4m3/row:f32",
                           "custom:e2m1/32:ue5m3",
                           "custom:e3m2/16:e4m3/tensor:f32",
                           "custom:e2m1/128:e6m2",
                           "custom:int4/16:e4m3/tensor:f32",
                           "custom:e2m1/16:e4m3,contract=fouroversix,select=mse",
                           "custom:e2m1/16:e8m0",
                           "custom:e3m4/64:e8m0,contract=ocp-floor-rne",
                           "custom:int4/32:e8m0,contract=ocp-floor-rne",
                           "custom:e2m0/8:e8m0",
                           "custom:e1m2/4:micro/64:e6m2",
                           "custom:e2m1/4:micro/8:micro/32:e4m3",
                           "custom:e2m1/8:micro/32:ue5m3,contract=a6",
                           "custom:int3/64:f16",
                           "custom:int8/128:bf16",
                           "custom:e5m2/tensor:f32",
                           "custom:e3m4/row:f32",
                           "custom:e4m3/64:f32,contract=deepgemm",
                           "custom:e2m1/32:f32,contract=te"}) {
    list.push_back(text);
  }
  for (const char* keys : {"gcc,neg-zero=keep",
                           "gcc,width=3",
                           "gcc,width=5",
                           "amct,width=5",
                           "a6,width=3",
                           "gcc,e6m2=away",
                           "gcc,cast=bf16",
                           "gcc,search=level1",
                           "gcc,search=level1-3.5",
                           "a6,search=level1",
                           "gcc,thr=fp32,elem=fp32",
                           "gcc,thr=bf16",
                           "gcc,elem=bf16",
                           "gcc,thr=fp32",
                           "gcc,ties=even",
                           "a6,ties=up",
                           "amct,ties=even,overflow=nan,zero=ff",
                           "a6,overflow=nan,zero=ff",
                           "gcc,overflow=nan",
                           "gcc,zero=ff",
                           "gcc,nonfinite=group-nan",
                           "amct,nonfinite=saturate",
                           "amct,cast=bf16",
                           "amct,neg-zero=keep",
                           "gcc,overflow=nan,zero=ff,neg-zero=keep",
                           "a6,nonfinite=group-nan,neg-zero=keep",
                           "gcc,nonfinite=element",
                           "gcc,search=mse",
                           "a6,search=mse,width=5",
                           "gcc,geometry=64x64",
                           "amct,geometry=64x64,e6m2=away",
                           "gcc,round=sr",
                           "a6,round=sr,seed=7"}) {
    list.push_back(std::string("hif4:contract=") + keys);
  }
  return list;
}

std::uint64_t seed_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

}  // namespace fp4scope::test
