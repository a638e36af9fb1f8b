// recipes.cc: see the header.
#include "tests/cross/recipes.h"

#include "sim/recipe.h"

namespace fp4scope::test {
namespace {

const char* const kMxFormats[] = {"mxfp4", "mxfp6e2m3", "mxfp6e3m2", "mxfp8e4m3", "mxfp8e5m2"};

}  // namespace

std::vector<std::string> contract_recipes() {
  std::vector<std::string> list;
  for (const char* format : kMxFormats) {
    for (const ContractInfo& c : contracts_of(Family::kMx, "custom")) {
      list.push_back(std::string(format) + ":contract=" + std::string(c.name));
    }
  }
  for (const ContractInfo& c : contracts_of(Family::kNvfp4, "custom")) {
    const std::string contract = "nvfp4:contract=" + std::string(c.name);
    list.push_back(contract);
    list.push_back(contract + ",scale=row");
    list.push_back(contract + ",scale=none");
    list.push_back(contract + ",scale=given,g=0x45280000");  // 2688
    list.push_back(contract + ",block=2d");
  }
  for (const ContractInfo& c : contracts_of(Family::kHif4, "custom")) {
    list.push_back("hif4:contract=" + std::string(c.name));
  }
  return list;
}

std::vector<std::string> option_recipes() {
  std::vector<std::string> list;
  for (const char* format : kMxFormats) {
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
                           "a6,nonfinite=group-nan,neg-zero=keep"}) {
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
