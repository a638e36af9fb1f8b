// recipe_errors_test.cc: what a recipe refuses, in one sentence that names the part and lists what
// is legal (grammar: spec/scalars.md 0): spelling, unknown words, keys that a contract does not
// use, keys that need or exclude each other (spec/mx.md 2.2, nvfp4.md 1, hif4.md 6, more.md 1, 2).
#include <doctest/doctest.h>

#include "tests/unit/recipe_support.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

struct BadCase {
  std::string typed;
  std::vector<std::string> parts;  // distinctive parts of the sentence
};
const std::string kNotUsed = "does not go with contract";
const BadCase kBadCases[] = {
    {"",
     {"the format is missing",
      "mxfp4, mxfp6e2m3, mxfp6e3m2, mxfp8e4m3, mxfp8e5m2, mxint8, mxint4, nvfp4, if4, nvint4, "
      "hif4, int4, fp8, bf16"}},
    {":scale=row", {"the format is missing"}},
    {"mxpf4", {"unknown format \"mxpf4\"", "did you mean \"mxfp4\"?"}},
    {"nvfp44", {"did you mean \"nvfp4\"?"}},
    {"int44", {"did you mean \"int4\"?"}},
    {"float8", {"unknown format \"float8\"", "expected one of mxfp4"}},
    {"nvfp4:", {"an item is empty"}},
    {"nvfp4:scale=row,", {"an item is empty"}},
    {"nvfp4:,scale=row", {"an item is empty"}},
    {"nvfp4:scale", {"\"scale\" has no value, expected key=value"}},
    {"nvfp4:scale=", {"key \"scale\" has no value"}},
    {"nvfp4:=row", {"has no key"}},
    {"nvfp4:scale=row=row", {"is not one key=value"}},
    {"nvfp4:scale=row:block=2d", {"is not one key=value"}},
    {"nvfp4:block:scale=row", {"is not one key=value"}},
    {"nvfp4:scale=row,SCALE=none", {"key \"scale\" is given twice"}},
    {"nvfp4:scale=row,scale=row", {"key \"scale\" is given twice"}},
    {"hif4:ragged=pad,tail=pad", {"key \"ragged\" is given twice"}},
    {"hif4:contract=a6,contract=a6", {"key \"contract\" is given twice"}},
    {"mxfp4:ties=even,ti_es=even", {"mxfp4 has no key \"ti_es\""}},
    {"mxfp4:tie=even",
     {"mxfp4 has no key \"tie\"",
      "expected one of contract, block, scale-rule, scale-arith, rcp, ftz, even-width, dtype, "
      "narrow, ties, top, nan, inf, zero-block, byte0, zero-sign, flush, triton-sticky, int8-grid, "
      "axis, ragged, nibbles, layout, rht, rht-signs, rht-sum, round, sr, sr-stream, seed;",
      "did you mean \"ties\"?"}},
    {"mxfp4:tail=pad", {"mxfp4 has no key \"tail\""}},  // an alias of hif4 only
    {"nvfp4:selct=static6",
     {"contract, scale, g, amax, g-rule, block, select, metric, score, e4m3max, sum, rcp, ftz, "
      "scalar-div, amax-dtype, neg-zero, ragged, nibbles, layout, rht",
      "did you mean \"select\"?"}},
    {"hif4:elm=bf16",
     {"contract, thr, elem, ties, e6m2, overflow, zero, nonfinite, neg-zero, cast, search, "
      "geometry, width, ragged, nibbles, bits, carrier, rht",
      "did you mean \"elem\"?"}},
    {"int4:grup=32",
     {"contract, group, scale-div, qmin, scalar-div, dtype, pack, ragged, rht",
      "did you mean \"group\"?"}},
    {"fp8:scalefmt=f32",
     {"contract, gran, elem, scale-fmt, scalar-div, div, rcp, dtype, eps, amax, margin, "
      "upper-bound, g, ragged, rht",
      "did you mean \"scale-fmt\"?"}},
    {"bf16:ragged=pad", {"bf16 has no key \"ragged\""}},
    {"mxfp4:contract=torchao-ciel",
     {"mxfp4 has no contract \"torchao-ciel\"",
      "ocp-floor-rne, torchao-floor, torchao-ceil, torchao-even, torchao-rceil",
      "did you mean \"torchao-ceil\"?"}},
    // Contracts that another format of the family has.
    {"mxfp4:contract=te-rceil", {"mxfp4 has no contract \"te-rceil\""}},
    {"mxfp6e2m3:contract=ggml-cpu", {"mxfp6e2m3 has no contract \"ggml-cpu\""}},
    {"mxint4:contract=torchao-rceil", {"expected one of microx-torch, microx-cuda"}},
    {"mxint8:contract=torchao-rceil", {"mxint8 has no contract"}},
    {"nvint4:contract=te", {"nvint4 has no contract \"te\"", "expected fouroversix"}},
    {"hif4:contract=te",
     {"hif4 has no contract \"te\"", "gcc, amct, a6, dynamic-mx-quant, moe-routing"}},
    {"int4:contract=gptq",
     {"int4 has no contract", "ct-rtn, skyrl, miles-train, miles-export, rtp-llm, rtp-llm-ct"}},
    {"nvfp4:select=abs", {"key select has no value \"abs\"", "static6, static4, mse, mae, absmax"}},
    {"nvfp4:scale=rows", {"tensor, row, none, given", "did you mean \"row\"?"}},
    {"mxfp4:scale-rule=round",
     {"floor, ceil, even, rceil, ceil-log2, field-up, triton-up, triton-down, rint-log2, down6, "
      "round-log2, mlx-cpu"}},
    {"mxfp4:ties=up", {"key ties has no value \"up\"", "even, away, zero, trunc"}},
    {"mxfp4:zero-sign=kep", {"keep, drop-input, drop, set", "did you mean \"keep\"?"}},
    {"mxfp4:block=33", {"key block has no value \"33\"", "8, 16, 32, 64, 128, 256, 2d"}},
    {"mxfp4:zero-block=255", {"0, refuse, emax, N with N from 0 to 254"}},
    {"mxfp4:zero-block=1.5", {"N with N from 0 to 254"}},
    {"mxfp4:axis=0", {"key axis has no value \"0\"", "-1"}},
    {"hif4:ties=rne", {"up, even, zero, trunc"}},
    {"hif4:e6m2=zero", {"even, away"}},
    {"hif4:width=6", {"3, 4, 5"}},
    {"hif4:width=04", {"3, 4, 5"}},
    {"hif4:nonfinite=drop", {"group-nan, element, saturate, error"}},
    {"nvfp4:e4m3max=240", {"448, 256"}},
    {"int4:group=4", {"N with N from 8 to 1024"}},
    {"int4:group=12", {"group must be a multiple of 8"}},
    {"fp8:gran=4", {"tensor, row, 1x128, 128x128, 32x32, N with N from 8 to 1024"}},
    {"hif4:rht=8", {"none, 16, 32, 64, 128"}},
    {"hif4:rht=16,rht-signs=seed4294967296", {"seedN with N from 0 to 4294967295"}},
    {"hif4:rht=16,rht-signs=seed", {"seedN with N"}},
    {"hif4:rht=16,rht-signs=seed-1", {"seedN with N"}},
    {"hif4:round=sr,seed=18446744073709551616", {"N with N from 0 to 18446744073709551615"}},
    // Keys that the contract and the other keys do not use; the sentence lists those that they do.
    {"mxfp4:rcp=rn", {"key rcp", kNotUsed, "contract, block, scale-rule, scale-arith, narrow"}},
    {"mxfp4:even-width=elem", {"key even-width", kNotUsed}},
    {"mxfp4:dtype=f32", {"key dtype", kNotUsed}},
    {"mxfp4:flush=1", {"key flush", kNotUsed}},
    {"mxfp4:ftz=1", {"key ftz", kNotUsed}},
    {"mxfp4:triton-sticky=0", {"key triton-sticky", kNotUsed}},
    {"mxfp8e4m3:contract=triton-up,triton-sticky=0", {"key triton-sticky", kNotUsed}},
    {"mxfp4:int8-grid=full", {"key int8-grid", kNotUsed}},
    {"mxfp4:contract=fos-static6,byte0=exact", {"key byte0", kNotUsed}},
    {"mxfp8e4m3:nibbles=low-first", {"key nibbles", kNotUsed}},
    {"nvfp4:rcp=rn", {"key rcp", kNotUsed}},
    {"nvfp4:ftz=on", {"key ftz", kNotUsed}},
    {"nvfp4:scalar-div=rcp", {"key scalar-div", kNotUsed}},
    {"nvfp4:amax-dtype=bf16", {"key amax-dtype", kNotUsed}},
    {"nvfp4:score=amax", {"key score", kNotUsed}},
    {"nvfp4:sum=tree", {"key sum", kNotUsed}},
    {"nvfp4:contract=trtllm,metric=exact", {"key metric", kNotUsed}},
    {"nvfp4:contract=torchao,e4m3max=448", {"key e4m3max", kNotUsed}},
    {"nvfp4:contract=onednn,scale=none", {"key scale", kNotUsed}},
    {"nvfp4:g=0x3f800000", {"key g", kNotUsed, "expected one of contract, scale, amax"}},
    {"nvfp4:scale=row,g=0x3f800000", {"key g", kNotUsed}},
    {"nvfp4:scale=row,amax=0x3f800000", {"key amax", kNotUsed}},
    {"nvfp4:scale=none,amax=0x3f800000", {"key amax", kNotUsed}},
    {"nvfp4:scale=given,g=0x3f800000,g-rule=div", {"key g-rule", kNotUsed}},
    {"int4:scale-div=7", {"key scale-div", kNotUsed}},
    {"int4:contract=miles-export,scalar-div=exact", {"key scalar-div", kNotUsed}},
    {"int4:contract=skyrl,dtype=f16", {"key dtype", kNotUsed}},
    {"fp8:div=ieee", {"key div", kNotUsed}},
    {"fp8:contract=triton-group,div=ieee,rcp=rn", {"key rcp", kNotUsed}},
    {"fp8:contract=sgl-token,scale-fmt=pow2", {"key scale-fmt", kNotUsed}},
    {"fp8:amax=0x3f800000", {"key amax", kNotUsed}},
    {"hif4:rht-sum=seq", {"key rht-sum", kNotUsed}},
    {"hif4:rht-signs=none", {"key rht-signs", kNotUsed}},
    {"hif4:seed=1", {"key seed", kNotUsed}},
    {"hif4:sr=soft", {"key sr", kNotUsed}},
    // Keys that need each other or exclude each other.
    {"mxfp4:scale-rule=ceil,scale-arith=mul", {"scale-rule=ceil has scale-arith=field only"}},
    {"mxfp4:contract=torchao-floor,scale-arith=div",
     {"scale-rule=floor has scale-arith=field or log2 only"}},
    {"mxfp4:block=2d", {"block=2d exists for contracts fos-static6 and fos-static4 only"}},
    {"mxfp4:byte0=wrap", {"go with scale-rule=floor only"}},
    {"mxfp4:contract=microx-torch,round=sr", {"has its own element arithmetic"}},
    {"mxfp4:contract=microx-torch,ties=zero", {"ties=away, even or trunc"}},
    {"nvfp4:scale=given", {"key g is missing"}},
    {"nvfp4:scale=given,g=1.0", {"g=1.0", "0x and 8 hex digits"}},
    {"nvfp4:scale=given,g=0x3f8", {"0x and 8 hex digits"}},
    {"nvfp4:scale=given,g=0x3f8000000", {"0x and 8 hex digits"}},
    {"nvfp4:scale=given,g=0x3f80000g", {"0x and 8 hex digits"}},
    // A zero or non-finite global scale is an error, never an infinity (layouts.md 4, case C14).
    {"nvfp4:scale=given,g=0x00000000", {"g=0x00000000 is not a finite positive binary32 number"}},
    {"nvfp4:scale=given,g=0x80000000", {"not a finite positive"}},
    {"nvfp4:scale=given,g=0xbf800000", {"not a finite positive"}},
    {"nvfp4:scale=given,g=0x7f800000", {"not a finite positive"}},
    {"nvfp4:scale=given,g=0x7fc00000", {"not a finite positive"}},
    {"nvfp4:amax=0x7f800001", {"amax=0x7f800001 is not a binary32 number of at least +0"}},
    {"nvfp4:amax=0xbf800000", {"at least +0"}},
    {"nvfp4:amax=0x80000000", {"at least +0"}},
    {"nvfp4:scale=row,block=2d", {"scale=row excludes block=2d"}},
    {"nvfp4:scale=row,rht=16", {"scale=row excludes rht"}},
    {"nvfp4:scale=row,round=sr", {"scale=row excludes rht and round=sr"}},
    {"nvfp4:select=mse,round=sr", {"the adaptive choice excludes round=sr"}},
    {"nvfp4:contract=modelopt,scale=row", {"contract modelopt has no scale per row"}},
    {"nvfp4:contract=trtllm,block=2d", {"contract trtllm has no 16x16 blocks"}},
    {"nvfp4:contract=vllm,select=mse", {"no adaptive choice under contract vllm"}},
    {"nvfp4:select=static4", {"select=static4 exists for nvfp4 with contract fouroversix"}},
    {"nvfp4:select=absmax", {"select=absmax exists for contracts fouroversix"}},
    {"nvfp4:contract=fouroversix,e4m3max=256", {"has e4m3max=448 with this selection"}},
    {"nvfp4:contract=fouroversix,select=mse,metric=fast", {"metric=fast goes with"}},
    {"nvfp4:select=mae,sum=fma", {"sum=fma goes with select=mse only"}},
    {"nvfp4:scale=none,select=mae,score=amax", {"scale=none has score=decode"}},
    {"if4:select=static6", {"if4 chooses between two candidates"}},
    {"nvint4:select=mse", {"nvint4 has no adaptive choice"}},
    {"nvfp4:contract=mlx-metal,scale=given,g=0x3f800000", {"takes a tensor maximum and no scale"}},
    {"nvfp4:contract=mlx-cpu,scale=tensor", {"scale=none only"}},
    {"nvfp4:contract=flashinfer-kv", {"key g is missing"}},
    {"nvfp4:contract=flashinfer-kv,scale=tensor", {"scale=given with g"}},
    {"hif4:ties=sr,round=rne", {"ties=sr and round=rne contradict each other"}},
    {"hif4:search=mse,geometry=64x64", {"search=mse is defined for geometry=1x64"}},
    {"hif4:search=mse,round=sr", {"search=mse compares deterministic roundings"}},
    {"hif4:rht=32,rht-signs=fixed", {"rht-signs=fixed is published for rht=16 only"}},
    {"hif4:round=sr,sr-stream=te", {"sr-stream=te is the stream of a kernel for nvfp4"}},
    {"bf16:round=sr", {"round=sr is not defined for bf16"}},
    {"int4:contract=miles-export,round=sr", {"miles-export rounds twice"}},
    {"int4:contract=rtp-llm,dtype=f16", {"the floor 1e-12 of rtp-llm is 0"}},
    {"fp8:contract=sgl-token,gran=tensor", {"gran=row only"}},
    {"fp8:contract=vllm-tensor,gran=row", {"gran=tensor only"}},
    {"fp8:contract=torchao-dyn,gran=1x128", {"gran=tensor and gran=row only"}},
    {"fp8:contract=fbgemm-triton,gran=tensor", {"fbgemm-triton has no gran=tensor"}},
    {"fp8:contract=vllm-group,gran=row", {"gran=tensor and gran=row are no blocks"}},
    {"fp8:gran=row,scale-fmt=ue8m0", {"scale-fmt=ue8m0 stores a byte per block"}},
    {"fp8:contract=vllm-kv,g=0x00000000", {"g=0x00000000 is not a finite positive"}},
    {"fp8:contract=vllm-kv,g=0xbf800000", {"not a finite positive"}},
    {"fp8:contract=vllm-kv,g=0x7f800000", {"not a finite positive"}},
    {"fp8:contract=te-delayed,amax=0x80000000", {"amax=0x80000000 is not a binary32 number of at"}},
    {"fp8:contract=te-delayed,amax=0xbf800000", {"amax=0xbf800000 is not a binary32 number of at"}},
    {"fp8:eps=0xb8d1b717", {"eps=0xb8d1b717 is not a binary32 number of at least +0"}},
    {"fp8:contract=fbgemm-cuda,upper-bound=0x7fc00000", {"upper-bound=0x7fc00000 is not"}},
    {"fp8:contract=verl-dsv4,scale-fmt=f32", {"verl-dsv4 has powers of two only"}},
    // Parts of the grammar that this version does not have.
    {"hif4+resq:sparsity=2of4", {"after \"+\" do not exist in this version"}},
    {"@rules.toml", {"(@FILE) do not exist in this version"}},
};

}  // namespace

TEST_CASE("a bad recipe is a usage error whose one sentence says what is wrong and what is legal") {
  for (const BadCase& c : kBadCases) {
    CAPTURE(c.typed);
    const std::string message = refusal(c.typed);
    CAPTURE(message);
    CHECK(message.starts_with("recipe \"" + c.typed + "\": "));
    CHECK(message.find('\n') == std::string::npos);
    for (const std::string& part : c.parts) {
      CAPTURE(part);
      CHECK(message.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("refused recipes end with exit code 2") {
  try {
    (void)parse_recipe("mxfp5");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.exit_code() == 2);
  }
}

TEST_CASE("a far-fetched suggestion is not made") {
  for (const char* typed : {"float8", "mxfp4:tail=32", "hif4:contract=te", "nvfp4:select=abs"}) {
    CAPTURE(typed);
    const std::string message = refusal(typed);
    CHECK(!message.empty());
    CHECK(message.find("did you mean") == std::string::npos);
  }
}
