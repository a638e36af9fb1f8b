// recipe_test.cc: recipe strings against spec/scalars.md 0, mx.md 2.2 and 3, nvfp4.md 1 and 2,
// hif4.md 2.1 and 6, more.md 1, 2 and 4: canonical and full form, the options they stand for, and
// round trips of every value of every key. Refusals: recipe_errors_test.cc.
#include "sim/recipe.h"

#include <doctest/doctest.h>

#include <set>

#include "formats/scalars.h"
#include "tests/unit/recipe_support.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

struct Case {
  std::string typed, canonical, full;
};
const std::string kEnd = ",rht=none,round=rne";
const std::string kMxEnd = ",ragged=pad,nibbles=low-first,layout=linear" + kEnd;
// mx.md 3, torchao-*: every open point as there; `rule` is scale-rule to even-width.
std::string torchao(const std::string& head, const std::string& rule, const std::string& ties) {
  return head + ",block=32," + rule + ",narrow=none,ties=" + ties +
         ",top=nan,nan=propagate,inf=nan,zero-block=0,byte0=exact,zero-sign=keep";
}
const std::string kRceil = "scale-rule=rceil,scale-arith=mul";
const std::string kMxfp4 = torchao("mxfp4:contract=torchao-rceil", kRceil, "even") + kMxEnd;
const std::string kMxfp4Ceil =
    torchao("mxfp4:contract=torchao-rceil", "scale-rule=ceil,scale-arith=field", "even") + kMxEnd;
// nvfp4.md 1: defaults.
std::string te(const std::string& scale, const std::string& rest,
               const std::string& end = ",neg-zero=keep,ragged=pad") {
  return "nvfp4:contract=te,scale=" + scale + rest + end + ",nibbles=low-first,layout=linear" +
         kEnd;
}
const std::string kStatic = ",block=1d,select=static6,metric=exact,e4m3max=448";
const std::string kNvfp4 = te("tensor", ",g-rule=div" + kStatic);
// hif4.md 2.1, the three settings; then geometry, width and native layout of section 4.
std::string hif4(const std::string& settings, const std::string& bits, const std::string& carrier,
                 const std::string& middle = ",search=greedy,geometry=1x64,width=4,ragged=pad") {
  return "hif4:contract=" + settings + middle + ",nibbles=low-first,bits=" + bits +
         ",carrier=" + carrier;
}
const std::string kGcc =
    "gcc,thr=exact,elem=exact,ties=up,e6m2=even,overflow=clamp,zero=00,nonfinite=saturate,"
    "neg-zero=drop,cast=none";
const std::string kHif4 = hif4(kGcc, "lsb", "bytes") + kEnd;
std::string a6(const std::string& ties) {
  return "a6,thr=bf16,elem=bf16,ties=" + ties +
         ",e6m2=even,overflow=clamp,zero=00,nonfinite=saturate,neg-zero=drop,cast=bf16";
}
const std::string kFp8Te =
    "fp8:contract=te,gran=1x128,elem=e4m3,scale-fmt=f32,dtype=bf16,eps=0x00000000,ragged=pad" +
    kEnd;

const Case kCases[] = {
    // Defaults: mx.md 7, nvfp4.md 1 and 5.3, hif4.md, more.md 1 and 2.
    {"mxfp4", "mxfp4", kMxfp4},
    {"nvfp4", "nvfp4", kNvfp4},
    {"hif4", "hif4", kHif4},
    {"mxint8", "mxint8",
     "mxint8:contract=microx-cuda,block=32,scale-rule=floor,scale-arith=field,narrow=none,"
     "ties=away,top=nan,nan=propagate,inf=nan,zero-block=0,byte0=exact,zero-sign=drop,flush=0,"
     "int8-grid=symmetric,ragged=pad,layout=linear" +
         kEnd},
    {"mxint4", "mxint4",
     "mxint4:contract=microx-cuda,block=32,scale-rule=floor,scale-arith=field,narrow=none,"
     "ties=away,top=nan,nan=propagate,inf=nan,zero-block=0,byte0=exact,zero-sign=drop,flush=0,"
     "int8-grid=symmetric" +
         kMxEnd},
    {"if4", "if4",
     "if4:contract=fouroversix,scale=tensor,block=1d,select=mse,metric=exact,score=amax,"
     "e4m3max=448,sum=seq,scalar-div=exact,neg-zero=drop,ragged=pad,nibbles=low-first,"
     "layout=linear" +
         kEnd},
    {"nvint4", "nvint4",
     "nvint4:contract=fouroversix,scale=tensor,block=1d,select=static6,e4m3max=448,"
     "scalar-div=exact,neg-zero=drop,ragged=pad,nibbles=low-first,layout=linear" +
         kEnd},
    {"int4", "int4",
     "int4:contract=ct-rtn,group=32,scalar-div=exact,dtype=bf16,pack=ct,ragged=pad" + kEnd},
    {"fp8", "fp8", kFp8Te},
    {"bf16", "bf16", "bf16:contract=bf16" + kEnd},
    // Spelling: case, '-' and '_', blanks, order, the default spelled out.
    {" MXFP4 ", "mxfp4", kMxfp4},
    {"MxFp4:Contract=TorchAO_RCEIL", "mxfp4", kMxfp4},
    {"hif4: Neg_Zero = DROP , TIES=Up", "hif4", kHif4},
    {"nvfp4:ragged=pad,scale=tensor", "nvfp4", kNvfp4},
    {"nvfp4:neg_zero=drop,scale=row", "nvfp4:scale=row,neg-zero=drop",
     te("row", kStatic, ",neg-zero=drop,ragged=pad")},
    // MX contracts; ragged=error is a note there (layouts.md 3).
    {"mxfp4:contract=ocp-floor-rne", "mxfp4:contract=ocp-floor-rne",
     torchao("mxfp4:contract=ocp-floor-rne", "scale-rule=floor,scale-arith=field", "even") +
         kMxEnd},
    {"mxfp6e2m3:contract=torchao-floor", "mxfp6e2m3:contract=torchao-floor",
     torchao("mxfp6e2m3:contract=torchao-floor", "scale-rule=floor,scale-arith=field", "even") +
         ",ragged=pad,layout=linear" + kEnd},
    {"mxfp8e4m3:contract=torchao-even", "mxfp8e4m3:contract=torchao-even",
     torchao("mxfp8e4m3:contract=torchao-even", "scale-rule=even,scale-arith=field,even-width=elem",
             "even") +
         ",ragged=pad,layout=linear" + kEnd},
    {"mxfp8e5m2:contract=te-rceil", "mxfp8e5m2:contract=te-rceil",
     "mxfp8e5m2:contract=te-rceil,block=32,scale-rule=rceil,scale-arith=mul,narrow=none,"
     "ties=even,top=254,nan=drop,inf=254,zero-block=0,byte0=exact,zero-sign=keep,ragged=pad,"
     "layout=linear" +
         kEnd},
    {"mxfp4:contract=ggml-cpu", "mxfp4:contract=ggml-cpu",
     "mxfp4:contract=ggml-cpu,block=32,scale-rule=floor,scale-arith=log2,narrow=none,ties=zero,"
     "top=nan,nan=drop,inf=refuse,zero-block=0,byte0=wrap,zero-sign=drop,ragged=pad,"
     "nibbles=split16,layout=linear" +
         kEnd},
    {"mxfp4:contract=pychop", "mxfp4:contract=pychop",
     "mxfp4:contract=pychop,block=32,scale-rule=floor,scale-arith=log2,narrow=none,ties=even,"
     "top=nan,nan=pass,inf=254,zero-block=refuse,byte0=refuse,zero-sign=drop-input,ragged=flat,"
     "nibbles=low-first,layout=linear" +
         kEnd},
    {"mxfp4:contract=fos-static4,block=2d", "mxfp4:contract=fos-static4,block=2d",
     "mxfp4:contract=fos-static4,block=2d,scale-rule=field-up,scale-arith=div,narrow=none,"
     "ties=even,top=nan,nan=byte0,inf=nan,zero-block=0,zero-sign=drop-input,ragged=pad,"
     "nibbles=low-first,layout=128x4" +
         kEnd},
    // contract= is applied first wherever it stands; a rule brings its own arithmetic.
    {"mxfp4:ties=away,contract=ocp-floor-rne", "mxfp4:contract=ocp-floor-rne,ties=away",
     torchao("mxfp4:contract=ocp-floor-rne", "scale-rule=floor,scale-arith=field", "away") +
         kMxEnd},
    {"mxfp4:scale-rule=ceil", "mxfp4:scale-rule=ceil", kMxfp4Ceil},
    {"mxfp4:scale-arith=field,scale-rule=ceil", "mxfp4:scale-rule=ceil", kMxfp4Ceil},
    {"mxfp4:scale-arith=div,scale-rule=rceil,contract=torchao-floor",
     "mxfp4:contract=torchao-floor,scale-rule=rceil,scale-arith=div",
     torchao("mxfp4:contract=torchao-floor", "scale-rule=rceil,scale-arith=div", "even") + kMxEnd},
    {"mxfp4:rcp=rn,scale-arith=rcp", "mxfp4:scale-arith=rcp,rcp=rn",
     torchao("mxfp4:contract=torchao-rceil", "scale-rule=rceil,scale-arith=rcp,rcp=rn", "even") +
         kMxEnd},
    {"mxfp4:zero-sign=drop_input,inf=254,nan=drop,top=254,ties=trunc,ragged=error,narrow=bf16,"
     "zero-block=5,byte0=flush,block=64,layout=8x4,nibbles=high-first",
     "mxfp4:block=64,narrow=bf16,ties=trunc,top=254,nan=drop,inf=254,zero-block=5,byte0=flush,"
     "zero-sign=drop-input,ragged=error,nibbles=high-first,layout=8x4",
     "mxfp4:contract=torchao-rceil,block=64,scale-rule=rceil,scale-arith=mul,narrow=bf16,"
     "ties=trunc,top=254,nan=drop,inf=254,zero-block=5,byte0=flush,zero-sign=drop-input,"
     "ragged=error,nibbles=high-first,layout=8x4" +
         kEnd},
    // NVFP4.
    {"nvfp4:block=2D,e4m3max=256", "nvfp4:block=2d,e4m3max=256",
     te("tensor", ",g-rule=div,block=2d,select=static6,metric=exact,e4m3max=256")},
    {"nvfp4:scale=none,ragged=error", "nvfp4:scale=none,ragged=error",
     te("none", kStatic, ",neg-zero=keep,ragged=error")},
    {"nvfp4:g=0X3F80000A,scale=given", "nvfp4:scale=given,g=0x3f80000a",
     te("given", ",g=0x3f80000a" + kStatic)},
    {"nvfp4:amax=0x00000000", "nvfp4:amax=0x00000000",
     te("tensor", ",amax=0x00000000,g-rule=div" + kStatic)},
    {"nvfp4:amax=0x7f800000,scale=given,g=0x00000001",
     "nvfp4:scale=given,g=0x00000001,amax=0x7f800000",
     te("given", ",g=0x00000001,amax=0x7f800000" + kStatic)},
    // The ceiling of an adaptive choice is 256 (te, fouroversix*) or 448 (flashinfer*); scale=none
    // and flashinfer per tensor decode with 1/g.
    {"nvfp4:select=mae", "nvfp4:select=mae",
     te("tensor", ",g-rule=div,block=1d,select=mae,metric=exact,score=amax,e4m3max=256,sum=seq")},
    {"nvfp4:scale=none,select=mse,metric=fast", "nvfp4:scale=none,select=mse,metric=fast",
     te("none", ",block=1d,select=mse,metric=fast,e4m3max=256,sum=seq")},
    {"nvfp4:contract=flashinfer-fast,select=mae", "nvfp4:contract=flashinfer-fast,select=mae",
     "nvfp4:contract=flashinfer-fast,scale=tensor,g-rule=div,block=1d,select=mae,metric=exact,"
     "score=decode,e4m3max=448,sum=seq,rcp=h200,ftz=on,neg-zero=keep,ragged=pad,"
     "nibbles=low-first,layout=128x4" +
         kEnd},
    {"nvfp4:contract=fouroversix-cuda,select=mse", "nvfp4:contract=fouroversix-cuda,select=mse",
     "nvfp4:contract=fouroversix-cuda,scale=tensor,block=1d,select=mse,metric=exact,score=amax,"
     "e4m3max=256,sum=fma,scalar-div=exact,neg-zero=keep,ragged=pad,nibbles=low-first,"
     "layout=128x4" +
         kEnd},
    {"nvfp4:contract=compressed-tensors,amax-dtype=bf16",
     "nvfp4:contract=compressed-tensors,amax-dtype=bf16",
     "nvfp4:contract=compressed-tensors,scale=tensor,block=1d,select=static6,scalar-div=exact,"
     "amax-dtype=bf16,neg-zero=drop,ragged=pad,nibbles=low-first,layout=linear" +
         kEnd},
    {"nvfp4:contract=sglang", "nvfp4:contract=sglang-online",
     "nvfp4:contract=sglang-online,scale=tensor,g-rule=inv-mul,block=1d,select=static6,"
     "metric=exact,e4m3max=448,ftz=on,neg-zero=keep,ragged=pad,nibbles=low-first,layout=linear" +
         kEnd},
    // HiF4: the settings of hif4.md 2.1.
    {"hif4:contract=amct", "hif4:contract=amct",
     hif4("amct,thr=exact,elem=bf16,ties=up,e6m2=even,overflow=clamp,zero=00,nonfinite=group-nan,"
          "neg-zero=drop,cast=none",
          "msb", "bytes") +
         kEnd},
    {"hif4:contract=a6", "hif4:contract=a6", hif4(a6("even"), "lsb", "a6") + kEnd},
    {"hif4:contract=dynamic-mx-quant", "hif4:contract=dynamic-mx-quant",
     hif4("dynamic-mx-quant,thr=exact,elem=bf16,ties=even,e6m2=even,overflow=nan,zero=ff,"
          "nonfinite=group-nan,neg-zero=drop,cast=none",
          "lsb", "u32") +
         kEnd},
    {"hif4:width=5,contract=a6", "hif4:contract=a6,width=5",
     hif4(a6("even"), "lsb", "a6", ",search=greedy,geometry=1x64,width=5,ragged=pad") + kEnd},
    {"hif4:ties=away", "hif4", kHif4},  // synonym, printed `up`
    {"hif4:contract=a6,ties=away", "hif4:contract=a6,ties=up", hif4(a6("up"), "lsb", "a6") + kEnd},
    {"hif4:tail=error", "hif4:ragged=error",
     hif4(kGcc, "lsb", "bytes", ",search=greedy,geometry=1x64,width=4,ragged=error") + kEnd},
    {"hif4:search=LEVEL1_3.5,zero=FF,overflow=nan,e6m2=away",
     "hif4:e6m2=away,overflow=nan,zero=ff,search=level1-3.5",
     hif4("gcc,elem=exact,ties=up,e6m2=away,overflow=nan,zero=ff,nonfinite=saturate,neg-zero=drop,"
          "cast=none",
          "lsb", "bytes", ",search=level1-3.5,geometry=1x64,width=4,ragged=pad") +
         kEnd},
    // INT4 and FP8: more.md 1.1 and 2.1.
    {"int4:contract=skyrl,scale-div=7.0,qmin=-7", "int4:contract=skyrl,scale-div=7,qmin=-7",
     "int4:contract=skyrl,group=32,scale-div=7,qmin=-7,scalar-div=exact,pack=ct,ragged=pad" + kEnd},
    {"int4:contract=miles-export,group=128", "int4:contract=miles-export,group=128",
     "int4:contract=miles-export,group=128,pack=ct,ragged=pad" + kEnd},
    {"int4:contract=rtp-llm", "int4:contract=rtp-llm",
     "int4:contract=rtp-llm,group=32,scalar-div=exact,dtype=bf16,pack=twos,ragged=pad" + kEnd},
    {"fp8:gran=128", "fp8", kFp8Te},
    {"fp8:contract=deepgemm,scale-fmt=ue8m0,gran=128x128",
     "fp8:contract=deepgemm,gran=128x128,scale-fmt=ue8m0",
     "fp8:contract=deepgemm,gran=128x128,scale-fmt=ue8m0,scalar-div=exact,ragged=pad" + kEnd},
    {"fp8:contract=triton-group,rcp=rn", "fp8:contract=triton-group,rcp=rn",
     "fp8:contract=triton-group,gran=1x128,scale-fmt=f32,div=triton,rcp=rn,ragged=pad" + kEnd},
    {"fp8:contract=triton-group,div=ieee", "fp8:contract=triton-group,div=ieee",
     "fp8:contract=triton-group,gran=1x128,scale-fmt=f32,div=ieee,ragged=pad" + kEnd},
    {"fp8:contract=vllm-kv,elem=e5m2", "fp8:contract=vllm-kv,elem=e5m2",
     "fp8:contract=vllm-kv,gran=tensor,elem=e5m2,g=0x3f800000,ragged=pad" + kEnd},
    // Keys of every family (nvfp4.md 1): signs are fixed for size 16, else seed0; the sum is that
    // of the contract.
    {"hif4:rht=16", "hif4:rht=16",
     hif4(kGcc, "lsb", "bytes") + ",rht=16,rht-signs=fixed,rht-sum=mma-f32,round=rne"},
    {"hif4:rht-signs=SEED7,rht=64", "hif4:rht=64,rht-signs=seed7",
     hif4(kGcc, "lsb", "bytes") + ",rht=64,rht-signs=seed7,rht-sum=mma-f32,round=rne"},
    {"hif4:rht-signs=seed0,rht=32", "hif4:rht=32",
     hif4(kGcc, "lsb", "bytes") + ",rht=32,rht-signs=seed0,rht-sum=mma-f32,round=rne"},
    {"nvfp4:contract=fouroversix-cuda,rht=16", "nvfp4:contract=fouroversix-cuda,rht=16",
     "nvfp4:contract=fouroversix-cuda,scale=tensor,block=1d,select=static6,metric=exact,"
     "e4m3max=448,scalar-div=exact,neg-zero=keep,ragged=pad,nibbles=low-first,layout=128x4,"
     "rht=16,rht-signs=fixed,rht-sum=seq,round=rne"},
    {"hif4:ties=sr", "hif4:round=sr",
     hif4(kGcc, "lsb", "bytes") + ",rht=none,round=sr,sr=soft,sr-stream=index,seed=0"},
    {"hif4:seed=18446744073709551615,sr=soft,round=sr", "hif4:round=sr,seed=18446744073709551615",
     hif4(kGcc, "lsb", "bytes") +
         ",rht=none,round=sr,sr=soft,sr-stream=index,seed=18446744073709551615"},
};

}  // namespace

TEST_CASE("typed recipes have the canonical and the full form of the specification") {
  for (const Case& c : kCases) {
    CAPTURE(c.typed);
    const Recipe recipe = parse_recipe(c.typed);
    CHECK(to_string(recipe) == c.canonical);
    CHECK(to_full_string(recipe) == c.full);
    CHECK(recipe.text == c.typed);
    CHECK(same_bits(parse_recipe(c.canonical), recipe));
    CHECK(same_bits(parse_recipe(c.full), recipe));
  }
}

TEST_CASE("options hold what the recipe says") {
  const Recipe mx = parse_recipe(
      "mxfp8e4m3:contract=torchao-even,ties=zero,top=254,nan=drop,"
      "inf=254,zero-sign=set,ragged=error,zero-block=refuse,block=16,narrow=bf16");
  CHECK(mx.family == Family::kMx);
  CHECK(mx.format.element == kE4M3);
  CHECK(mx.format.block == 16);
  CHECK(mx.format.levels[0].group == 16);
  CHECK(mx.mx.scale_rule == MxScaleRule::kEven);
  CHECK(mx.mx.scale_arith == MxScaleArith::kField);
  CHECK(mx.mx.ties == Rounding::kZero);
  CHECK(mx.mx.top == MxTop::k254);
  CHECK(mx.mx.nan == MxNan::kDrop);
  CHECK(mx.mx.inf == MxInf::k254);
  CHECK(mx.mx.zero_sign == ZeroSign::kSet);
  CHECK(mx.mx.zero_block == kRefuseZeroBlock);
  CHECK(mx.mx.narrow_bf16);
  CHECK(mx.ragged() == Ragged::kError);
  CHECK(mx.source_refuses_ragged);
  CHECK(!mx.needs_amax());
  CHECK(!mx.casts_f64_directly());  // narrow=bf16 is defined on binary32
  CHECK(!mx.packs_nibbles());
  CHECK(parse_recipe("mxfp4").casts_f64_directly());
  CHECK(parse_recipe("mxfp4:zero-sign=drop").mx.zero_sign == ZeroSign::kDrop);
  // mx.md 3: field-up divides by 6, by 4 under fos-static4.
  CHECK(parse_recipe("mxfp4:scale-rule=field-up").mx.divisor == 6);
  CHECK(parse_recipe("mxfp4:contract=fos-static4").mx.divisor == 4);
  const Recipe square = parse_recipe("mxfp4:contract=fos-static6,block=2d");
  CHECK(square.is_2d());
  CHECK(square.format.block_rows == 32);

  const Recipe nv = parse_recipe(
      "nvfp4:scale=given,g=0x42280000,amax=0x40000000,neg-zero=drop,"
      "e4m3max=256,block=2d");
  CHECK(nv.nvfp4.scale == OuterScale::kGiven);
  CHECK(nv.nvfp4.g_bits == 0x42280000u);
  CHECK(nv.nvfp4.has_amax);
  CHECK(nv.nvfp4.amax_bits == 0x40000000u);
  CHECK(nv.nvfp4.neg_zero == NegZero::kDrop);
  CHECK(nv.nvfp4.e4m3max == 256u);
  CHECK(nv.is_2d());
  CHECK(nv.ragged() == Ragged::kPad);
  CHECK(!nv.casts_f64_directly());
  CHECK(nv.packs_nibbles());

  const Recipe hi = parse_recipe(
      "hif4:contract=amct,thr=fp32,ties=trunc,e6m2=away,overflow=nan,"
      "zero=ff,nonfinite=error,neg-zero=keep,tail=error");
  CHECK(hi.hif4.thr == Hif4Product::kFp32);
  CHECK(hi.hif4.elem == Hif4Product::kBf16);
  CHECK(hi.hif4.ties == Rounding::kTrunc);
  CHECK(hi.hif4.e6m2 == Rounding::kAway);
  CHECK(hi.hif4.overflow == Hif4Overflow::kNan);
  CHECK(hi.hif4.zero == Hif4Zero::kFf);
  CHECK(hi.hif4.nonfinite == Hif4Nonfinite::kError);
  CHECK(hi.hif4.neg_zero == NegZero::kKeep);
  CHECK(hi.hif4.cast == Hif4Cast::kNone);
  CHECK(hi.hif4.search == Hif4Search::kGreedy);
  CHECK(parse_recipe("hif4:search=level1").hif4.search == Hif4Search::kLevel1);
  CHECK(hi.ragged() == Ragged::kError);
  CHECK(parse_recipe("hif4:geometry=64x64").format.block_rows == 64);

  const Recipe i4 = parse_recipe("int4:contract=skyrl,group=64,scale-div=7,qmin=-7");
  CHECK(i4.int4.scale_div_x2 == 14);
  CHECK(i4.int4.qmin == -7);
  CHECK(i4.format.block == 64);
  CHECK(i4.format.levels[0].kind == ScaleKind::kBfloat16);
  CHECK(i4.format.element.sign_code == SignCode::kTwosComplement);
  CHECK(parse_recipe("int4").format.element.sign_code == SignCode::kTwosComplementFull);
  CHECK(parse_recipe("int4:dtype=f32").format.scale_bytes == 4);
  CHECK(parse_recipe("int4:contract=miles-train").format.scale_bytes == 4);
  CHECK(parse_recipe("int4:contract=rtp-llm").format.scale_bytes == 1);

  const Recipe f8 = parse_recipe("fp8:contract=hf-block");
  CHECK(f8.format.block == 128);
  CHECK(f8.format.block_rows == 128);
  CHECK(parse_recipe("fp8:elem=e5m2").format.element == kE5M2);
  CHECK(parse_recipe("fp8:gran=row").scales_rows());
  CHECK(parse_recipe("fp8:gran=tensor").format.scale_bytes == 0);
  CHECK(parse_recipe("fp8:contract=deepgemm,scale-fmt=ue8m0").format.scale_bytes == 1);
  CHECK(parse_recipe("bf16").code_bytes() == 2);
  CHECK(parse_recipe("nvfp4:contract=sglang-online").nvfp4.finite_amax);
  CHECK(!parse_recipe("nvfp4:contract=flashinfer").nvfp4.finite_amax);

  const Recipe seeded = parse_recipe("mxfp4:rht=128,rht-signs=none,round=sr,seed=12");
  CHECK(seeded.rht.size == 128);
  CHECK(seeded.rht.signs == 1);
  CHECK(seeded.sr.enabled);
  CHECK(seeded.sr.seed == 12);
  CHECK(seeded.element_ties() == Rounding::kStochastic);
}

TEST_CASE("the element of HiFX follows the width") {
  CHECK(parse_recipe("hif4").format.element == kE1M2);
  CHECK(parse_recipe("hif4:width=3").format.element == kE1M1);
  CHECK(parse_recipe("hif4:width=4").format.element == kE1M2);
  CHECK(parse_recipe("hif4:width=5").format.element == kE1M3);
  CHECK(parse_recipe("hif4:width=3").packs_nibbles());
  CHECK(!parse_recipe("hif4:width=5").packs_nibbles());
}

TEST_CASE("the maximum is measured only where an outer scale or a score comes from it") {
  const std::pair<const char*, bool> cases[] = {
      {"nvfp4", true},
      {"nvfp4:block=2d", true},
      {"nvfp4:scale=row", true},
      {"nvfp4:amax=0x3f800000", false},
      {"nvfp4:scale=none", false},
      {"nvfp4:scale=given,g=0x3f800000", false},
      {"nvfp4:scale=given,g=0x3f800000,select=mse", true},  // score=amax
      {"nvfp4:scale=given,g=0x3f800000,select=mse,metric=fast", false},
      {"nvfp4:scale=given,g=0x3f800000,amax=0x3f800000,select=mse", false},
      {"fp8", false},
      {"fp8:gran=tensor", true},
      {"fp8:gran=row", true},
      {"fp8:contract=vllm-kv", false},  // the scale is given
      {"fp8:contract=te-delayed", true},
      {"fp8:contract=te-delayed,amax=0x40000000", false},  // the history is given
      {"int4", false},
      {"mxfp4", false},
      {"hif4", false},
  };
  for (const auto& [text, needs] : cases) {
    CAPTURE(text);
    CHECK(parse_recipe(text).needs_amax() == needs);
  }
}

TEST_CASE("contracts whose source refuses ragged rows say so and quantize them all the same") {
  // hif4.md 2.1 column "length", mx.md 3 column "ragged (source)", layouts.md 3.
  const std::pair<const char*, bool> cases[] = {
      {"hif4:contract=gcc", false},
      {"hif4:contract=amct", true},
      {"hif4:contract=a6", true},
      {"nvfp4:contract=te", true},
      {"nvfp4:contract=fouroversix", false},
      {"mxfp4:contract=torchao-rceil", true},
      {"mxfp4:contract=ocp-floor-rne", true},
      {"mxfp4:contract=ggml-cpu", true},
      {"mxfp4:contract=microx-torch", false},
      {"mxfp4:contract=modelopt-qtensor", false},
  };
  for (const auto& [text, refuses] : cases) {
    CAPTURE(text);
    CHECK(parse_recipe(text).source_refuses_ragged == refuses);
    CHECK(parse_recipe(text).ragged() == Ragged::kPad);
  }
  CHECK(parse_recipe("mxfp4:contract=pychop").ragged() == Ragged::kFlat);
}

TEST_CASE("help lists every format, its default contract, and a meaning for every key") {
  const std::pair<const char*, const char*> expected[] = {{"mxfp4", "torchao-rceil"},
                                                          {"mxfp6e2m3", "torchao-rceil"},
                                                          {"mxfp6e3m2", "torchao-rceil"},
                                                          {"mxfp8e4m3", "torchao-rceil"},
                                                          {"mxfp8e5m2", "torchao-rceil"},
                                                          {"mxint8", "microx-cuda"},
                                                          {"mxint4", "microx-cuda"},
                                                          {"nvfp4", "te"},
                                                          {"if4", "fouroversix"},
                                                          {"nvint4", "fouroversix"},
                                                          {"hif4", "gcc"},
                                                          {"int4", "ct-rtn"},
                                                          {"fp8", "te"},
                                                          {"bf16", "bf16"}};
  REQUIRE(all_formats().size() == std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const FormatRow& row = all_formats()[i];
    CHECK(row.format.name == expected[i].first);
    CHECK(row.default_contract == expected[i].second);
    CHECK(!row.summary.empty());
    CHECK(!row.source.empty());
    CHECK(parse_recipe(row.format.name).contract == expected[i].second);
    std::set<std::string_view> names;
    int defaults = 0;
    for (const ContractInfo& info : contracts_of(row.family, row.format.name)) {
      CHECK(names.insert(info.name).second);
      CHECK(!info.source.empty());
      defaults += info.is_default;
      CHECK(info.is_default == (info.name == expected[i].second));
    }
    CHECK(defaults == 1);
    for (const KeyHelp& key : recipe_keys(row.family)) {
      CAPTURE(key.key);
      CHECK(!key.values.empty());
      CHECK(!key.meaning.empty());
    }
  }
}
