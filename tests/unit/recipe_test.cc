// recipe_test.cc: recipe strings against spec/scalars.md 0, spec/mx.md 2.2 and 3, spec/nvfp4.md 1,
// spec/hif4.md 2.1 and 6: canonical and full form, the options they stand for, and errors.
#include "sim/recipe.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "formats/scalars.h"
#include "sim/error.h"

using namespace fp4scope;

namespace {

// Everything that can change a bit; `text` may differ between two spellings of one recipe.
bool same_bits(const Recipe& a, const Recipe& b) {
  return a.contract == b.contract && a.family == b.family && a.format.name == b.format.name &&
         a.format.element == b.format.element && a.mx == b.mx && a.nvfp4 == b.nvfp4 &&
         a.hif4 == b.hif4 && a.source_refuses_ragged == b.source_refuses_ragged;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

struct Case {
  const char* typed;
  const char* canonical;
  const char* full;
};
const char* const kMxfp4Full =
    "mxfp4:contract=torchao-rceil,scale-rule=rceil,scale-arith=mul,ties=even,top=nan,"
    "nan=propagate,inf=nan,zero-sign=keep,ragged=pad";
const char* const kMxfp4CeilFull =
    "mxfp4:contract=torchao-rceil,scale-rule=ceil,scale-arith=field,ties=even,top=nan,"
    "nan=propagate,inf=nan,zero-sign=keep,ragged=pad";
const char* const kNvfp4Full =
    "nvfp4:contract=te,scale=tensor,block=1d,select=static6,e4m3max=448,neg-zero=keep,ragged=pad";
const char* const kHif4Full =
    "hif4:contract=gcc,thr=exact,elem=exact,ties=up,e6m2=even,overflow=clamp,zero=00,"
    "nonfinite=saturate,neg-zero=drop,cast=none,search=greedy,width=4,ragged=pad";
const Case kCases[] = {
    // Defaults: mx.md 3 (replay on NVIDIA), nvfp4.md 1, hif4.md.
    {"mxfp4", "mxfp4", kMxfp4Full},
    {"nvfp4", "nvfp4", kNvfp4Full},
    {"hif4", "hif4", kHif4Full},
    // Spelling: case, '-' and '_', blanks, order, the default spelled out.
    {" MXFP4 ", "mxfp4", kMxfp4Full},
    {"MxFp4:Contract=TorchAO_RCEIL", "mxfp4", kMxfp4Full},
    {"hif4: Neg_Zero = DROP , TIES=Up", "hif4", kHif4Full},
    {"nvfp4:ragged=pad,scale=tensor", "nvfp4", kNvfp4Full},
    {"nvfp4:neg_zero=drop,scale=row", "nvfp4:scale=row,neg-zero=drop",
     "nvfp4:contract=te,scale=row,block=1d,select=static6,e4m3max=448,neg-zero=drop,ragged=pad"},
    // Every MX contract of this version; ragged=error is a note there (layouts.md 3).
    {"mxfp4:contract=ocp-floor-rne", "mxfp4:contract=ocp-floor-rne",
     "mxfp4:contract=ocp-floor-rne,scale-rule=floor,scale-arith=field,ties=even,top=nan,"
     "nan=propagate,inf=nan,zero-sign=keep,ragged=pad"},
    {"mxfp6e2m3:contract=torchao-floor", "mxfp6e2m3:contract=torchao-floor",
     "mxfp6e2m3:contract=torchao-floor,scale-rule=floor,scale-arith=field,ties=even,top=nan,"
     "nan=propagate,inf=nan,zero-sign=keep,ragged=pad"},
    {"mxfp6e3m2:contract=torchao-ceil", "mxfp6e3m2:contract=torchao-ceil",
     "mxfp6e3m2:contract=torchao-ceil,scale-rule=ceil,scale-arith=field,ties=even,top=nan,"
     "nan=propagate,inf=nan,zero-sign=keep,ragged=pad"},
    {"mxfp8e4m3:contract=torchao-even", "mxfp8e4m3:contract=torchao-even",
     "mxfp8e4m3:contract=torchao-even,scale-rule=even,scale-arith=field,ties=even,top=nan,"
     "nan=propagate,inf=nan,zero-sign=keep,ragged=pad"},
    {"mxfp8e5m2:contract=torchao-rceil", "mxfp8e5m2",
     "mxfp8e5m2:contract=torchao-rceil,scale-rule=rceil,scale-arith=mul,ties=even,top=nan,"
     "nan=propagate,inf=nan,zero-sign=keep,ragged=pad"},
    // contract= is applied first wherever it stands.
    {"mxfp4:ties=away,contract=ocp-floor-rne", "mxfp4:contract=ocp-floor-rne,ties=away",
     "mxfp4:contract=ocp-floor-rne,scale-rule=floor,scale-arith=field,ties=away,top=nan,"
     "nan=propagate,inf=nan,zero-sign=keep,ragged=pad"},
    // A scale rule brings its own arithmetic, whichever key comes first.
    {"mxfp4:scale-rule=ceil", "mxfp4:scale-rule=ceil", kMxfp4CeilFull},
    {"mxfp4:scale-arith=field,scale-rule=ceil", "mxfp4:scale-rule=ceil", kMxfp4CeilFull},
    {"mxfp4:contract=torchao-floor,scale-rule=rceil",
     "mxfp4:contract=torchao-floor,scale-rule=rceil",
     "mxfp4:contract=torchao-floor,scale-rule=rceil,scale-arith=mul,ties=even,top=nan,"
     "nan=propagate,inf=nan,zero-sign=keep,ragged=pad"},
    {"mxfp4:scale-arith=div,scale-rule=rceil,contract=torchao-floor",
     "mxfp4:contract=torchao-floor,scale-rule=rceil,scale-arith=div",
     "mxfp4:contract=torchao-floor,scale-rule=rceil,scale-arith=div,ties=even,top=nan,"
     "nan=propagate,inf=nan,zero-sign=keep,ragged=pad"},
    {"mxfp4:scale-arith=field", "mxfp4:scale-arith=field",
     "mxfp4:contract=torchao-rceil,scale-rule=rceil,scale-arith=field,ties=even,top=nan,"
     "nan=propagate,inf=nan,zero-sign=keep,ragged=pad"},
    {"mxfp4:zero-sign=drop_input,inf=254,nan=drop,top=254,ties=trunc,ragged=error",
     "mxfp4:ties=trunc,top=254,nan=drop,inf=254,zero-sign=drop-input,ragged=error",
     "mxfp4:contract=torchao-rceil,scale-rule=rceil,scale-arith=mul,ties=trunc,top=254,nan=drop,"
     "inf=254,zero-sign=drop-input,ragged=error"},
    // NVFP4.
    {"nvfp4:block=2D,e4m3max=256", "nvfp4:block=2d,e4m3max=256",
     "nvfp4:contract=te,scale=tensor,block=2d,select=static6,e4m3max=256,neg-zero=keep,ragged=pad"},
    {"nvfp4:scale=none,ragged=error", "nvfp4:scale=none,ragged=error",
     "nvfp4:contract=te,scale=none,block=1d,select=static6,e4m3max=448,neg-zero=keep,ragged=error"},
    {"nvfp4:g=0X3F80000A,scale=given", "nvfp4:scale=given,g=0x3f80000a",
     "nvfp4:contract=te,scale=given,g=0x3f80000a,block=1d,select=static6,e4m3max=448,"
     "neg-zero=keep,ragged=pad"},
    {"nvfp4:amax=0x00000000", "nvfp4:amax=0x00000000",
     "nvfp4:contract=te,scale=tensor,amax=0x00000000,block=1d,select=static6,e4m3max=448,"
     "neg-zero=keep,ragged=pad"},
    {"nvfp4:amax=0x7f800000,scale=given,g=0x00000001",
     "nvfp4:scale=given,g=0x00000001,amax=0x7f800000",
     "nvfp4:contract=te,scale=given,g=0x00000001,amax=0x7f800000,block=1d,select=static6,"
     "e4m3max=448,neg-zero=keep,ragged=pad"},
    // HiF4: the settings of hif4.md 2.1.
    {"hif4:contract=amct", "hif4:contract=amct",
     "hif4:contract=amct,thr=exact,elem=bf16,ties=up,e6m2=even,overflow=clamp,zero=00,"
     "nonfinite=group-nan,neg-zero=drop,cast=none,search=greedy,width=4,ragged=pad"},
    {"hif4:contract=a6", "hif4:contract=a6",
     "hif4:contract=a6,thr=bf16,elem=bf16,ties=even,e6m2=even,overflow=clamp,zero=00,"
     "nonfinite=saturate,neg-zero=drop,cast=bf16,search=greedy,width=4,ragged=pad"},
    {"hif4:width=5,contract=a6", "hif4:contract=a6,width=5",
     "hif4:contract=a6,thr=bf16,elem=bf16,ties=even,e6m2=even,overflow=clamp,zero=00,"
     "nonfinite=saturate,neg-zero=drop,cast=bf16,search=greedy,width=5,ragged=pad"},
    {"hif4:ties=away", "hif4", kHif4Full},  // synonym, printed `up`
    {"hif4:contract=a6,ties=away", "hif4:contract=a6,ties=up",
     "hif4:contract=a6,thr=bf16,elem=bf16,ties=up,e6m2=even,overflow=clamp,zero=00,"
     "nonfinite=saturate,neg-zero=drop,cast=bf16,search=greedy,width=4,ragged=pad"},
    {"hif4:tail=error", "hif4:ragged=error",
     "hif4:contract=gcc,thr=exact,elem=exact,ties=up,e6m2=even,overflow=clamp,zero=00,"
     "nonfinite=saturate,neg-zero=drop,cast=none,search=greedy,width=4,ragged=error"},
    {"hif4:search=LEVEL1_3.5,zero=FF,overflow=nan,e6m2=away",
     "hif4:e6m2=away,overflow=nan,zero=ff,search=level1-3.5",
     "hif4:contract=gcc,thr=exact,elem=exact,ties=up,e6m2=away,overflow=nan,zero=ff,"
     "nonfinite=saturate,neg-zero=drop,cast=none,search=level1-3.5,width=4,ragged=pad"},
};

struct BadCase {
  const char* typed;
  std::vector<const char*> parts;  // distinctive parts of the sentence
};
const BadCase kBadCases[] = {
    {"",
     {"the format is missing", "mxfp4, mxfp6e2m3, mxfp6e3m2, mxfp8e4m3, mxfp8e5m2, nvfp4, hif4"}},
    {":scale=row", {"the format is missing"}},
    {"mxpf4", {"unknown format \"mxpf4\"", "did you mean \"mxfp4\"?"}},
    {"nvfp44", {"did you mean \"nvfp4\"?"}},
    {"int8", {"unknown format \"int8\"", "expected one of mxfp4"}},
    {"mxint8", {"unknown format"}},
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
      "expected one of contract, scale-rule, scale-arith, ties, top, nan, inf, zero-sign, ragged;",
      "did you mean \"ties\"?"}},
    {"mxfp4:block=32", {"mxfp4 has no key \"block\""}},
    {"mxfp4:tail=pad", {"mxfp4 has no key \"tail\""}},  // an alias of hif4 only
    {"nvfp4:selct=static6",
     {"contract, scale, g, amax, block, select, e4m3max, neg-zero, ragged",
      "did you mean \"select\"?"}},
    {"hif4:elm=bf16",
     {"contract, thr, elem, ties, e6m2, overflow, zero, nonfinite, neg-zero, cast, search, width, "
      "ragged",
      "did you mean \"elem\"?"}},
    {"mxfp4:contract=torchao-ciel",
     {"mxfp4 has no contract \"torchao-ciel\"",
      "ocp-floor-rne, torchao-floor, torchao-ceil, torchao-even, torchao-rceil",
      "did you mean \"torchao-ceil\"?"}},
    {"nvfp4:contract=flashinfer", {"nvfp4 has no contract \"flashinfer\"", "expected te"}},
    {"hif4:contract=te", {"hif4 has no contract \"te\"", "gcc, amct, a6"}},
    {"nvfp4:select=mse", {"key select has no value \"mse\"", "expected static6"}},
    {"nvfp4:scale=rows", {"tensor, row, none, given", "did you mean \"row\"?"}},
    {"mxfp4:scale-rule=round", {"floor, ceil, even, rceil"}},
    {"mxfp4:ties=up", {"key ties has no value \"up\"", "even, away, zero, trunc"}},
    {"mxfp4:zero-sign=kep", {"keep, drop-input, drop, set", "did you mean \"keep\"?"}},
    {"hif4:ties=rne", {"up, even, zero, trunc"}},
    {"hif4:ties=stochastic", {"up, even, zero, trunc"}},
    {"hif4:e6m2=zero", {"even, away"}},
    {"hif4:width=6", {"3, 4, 5"}},
    {"hif4:width=04", {"3, 4, 5"}},
    {"hif4:nonfinite=element", {"group-nan, saturate, error"}},
    {"nvfp4:e4m3max=240", {"448, 256"}},
    // Keys that need each other or exclude each other.
    {"mxfp4:scale-rule=floor,scale-arith=mul", {"go with scale-rule=rceil only"}},
    {"mxfp4:contract=torchao-even,scale-arith=div", {"go with scale-rule=rceil only"}},
    {"nvfp4:scale=given", {"key g is missing"}},
    {"nvfp4:g=0x3f800000", {"key g does not apply here", "scale=given"}},
    {"nvfp4:scale=row,g=0x3f800000", {"key g does not apply here"}},
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
    {"nvfp4:scale=row,amax=0x3f800000", {"amax goes with scale=tensor or scale=given only"}},
    {"nvfp4:scale=none,amax=0x3f800000", {"amax goes with scale=tensor or scale=given only"}},
    {"nvfp4:amax=0x7f800001", {"amax=0x7f800001 is not a binary32 number of at least +0"}},
    {"nvfp4:amax=0xbf800000", {"at least +0"}},
    {"nvfp4:amax=0x80000000", {"at least +0"}},
    {"nvfp4:scale=row,block=2d", {"scale=row excludes block=2d"}},
    // Parts of the grammar that this version does not have.
    {"hif4+resq:sparsity=2of4", {"after \"+\" do not exist in this version"}},
    {"custom:e2m1/16:e4m3/tensor:f32", {"(custom:) do not exist in this version"}},
    {"@rules.toml", {"(@FILE) do not exist in this version"}},
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

TEST_CASE("a bad recipe is a usage error whose one sentence says what is wrong and what is legal") {
  for (const BadCase& c : kBadCases) {
    CAPTURE(c.typed);
    std::string message = "no error";
    try {
      parse_recipe(c.typed);
    } catch (const Error& error) {
      message = error.what();
      CHECK(error.exit_code() == 2);
    }
    CAPTURE(message);
    CHECK(message.find(std::string("recipe \"") + c.typed + "\"") == 0);
    CHECK(message.find('\n') == std::string::npos);
    for (const char* part : c.parts) CHECK(message.find(part) != std::string::npos);
  }
}

TEST_CASE("a far-fetched suggestion is not made") {
  for (const char* typed : {"int8", "mxfp4:block=32", "hif4:contract=te", "nvfp4:select=mse"}) {
    CAPTURE(typed);
    std::string message;
    try {
      parse_recipe(typed);
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK(!message.empty());
    CHECK(message.find("did you mean") == std::string::npos);
  }
}

TEST_CASE("every single-key override of every contract survives printing and parsing") {
  int checked = 0;
  for (const FormatRow& row : all_formats()) {
    for (const ContractInfo& contract : contracts_of(row.family, row.format.name)) {
      const std::string start =
          std::string(row.format.name) + ":contract=" + std::string(contract.name);
      const Recipe plain = parse_recipe(start);
      CHECK(same_bits(parse_recipe(to_string(plain)), plain));
      for (const KeyHelp& key : recipe_keys(row.family)) {
        if (key.key == "contract") continue;
        std::set<std::string> full_forms;
        for (std::string value : split(key.values, '|')) {
          const bool is_bits = value.rfind("0x", 0) == 0;
          if (is_bits) value = "0x3f812345";
          std::string typed = start + "," + std::string(key.key) + "=" + value;
          if (key.key == "g") typed += ",scale=given";
          if (value == "given") typed += ",g=0x3f812345";
          // The other scale rules have one arithmetic only.
          if (key.key == "scale-arith") typed += ",scale-rule=rceil";
          CAPTURE(typed);
          const Recipe recipe = parse_recipe(typed);
          const std::string canonical = to_string(recipe), full = to_full_string(recipe);
          CAPTURE(canonical);
          CHECK(same_bits(parse_recipe(canonical), recipe));
          CHECK(same_bits(parse_recipe(full), recipe));
          CHECK(to_string(parse_recipe(full)) == canonical);
          CHECK(to_full_string(parse_recipe(canonical)) == full);
          CHECK(canonical.size() <= full.size());
          full_forms.insert(full);
          ++checked;
        }
        // No two values of a key mean the same.
        CHECK(full_forms.size() == split(key.values, '|').size());
      }
    }
  }
  // 5 formats x 5 contracts x 23 values, 15 values of one contract, 3 contracts x 31 values.
  CHECK(checked == 5 * 5 * 23 + 15 + 3 * 31);
}

TEST_CASE("options hold what the recipe says") {
  const Recipe mx = parse_recipe(
      "mxfp8e4m3:contract=torchao-even,ties=zero,top=254,nan=drop,"
      "inf=254,zero-sign=set,ragged=error");
  CHECK(mx.family == Family::kMx);
  CHECK(mx.format.element == kE4M3);
  CHECK(mx.mx.scale_rule == MxScaleRule::kEven);
  CHECK(mx.mx.scale_arith == MxScaleArith::kField);
  CHECK(mx.mx.ties == Rounding::kZero);
  CHECK(mx.mx.top == MxTop::k254);
  CHECK(mx.mx.nan == MxNan::kDrop);
  CHECK(mx.mx.inf == MxInf::k254);
  CHECK(mx.mx.zero_sign == ZeroSign::kSet);
  CHECK(mx.ragged() == Ragged::kError);
  CHECK(mx.source_refuses_ragged);
  CHECK(!mx.needs_amax());
  CHECK(mx.casts_f64_directly());
  CHECK(!mx.packs_nibbles());
  CHECK(parse_recipe("mxfp4:zero-sign=drop").mx.zero_sign == ZeroSign::kDrop);

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
      "zero=ff,nonfinite=error,neg-zero=keep,search=level1,tail=error");
  CHECK(hi.hif4.thr == Hif4Product::kFp32);
  CHECK(hi.hif4.elem == Hif4Product::kBf16);
  CHECK(hi.hif4.ties == Rounding::kTrunc);
  CHECK(hi.hif4.e6m2 == Rounding::kAway);
  CHECK(hi.hif4.overflow == Hif4Overflow::kNan);
  CHECK(hi.hif4.zero == Hif4Zero::kFf);
  CHECK(hi.hif4.nonfinite == Hif4Nonfinite::kError);
  CHECK(hi.hif4.neg_zero == NegZero::kKeep);
  CHECK(hi.hif4.cast == Hif4Cast::kNone);
  CHECK(hi.hif4.search == Hif4Search::kLevel1);
  CHECK(hi.ragged() == Ragged::kError);
}

TEST_CASE("the element of HiFX follows the width") {
  CHECK(parse_recipe("hif4").format.element == kE1M2);
  CHECK(parse_recipe("hif4:width=3").format.element == kE1M1);
  CHECK(parse_recipe("hif4:width=4").format.element == kE1M2);
  CHECK(parse_recipe("hif4:width=5").format.element == kE1M3);
  CHECK(parse_recipe("hif4:width=3").packs_nibbles());
  CHECK(!parse_recipe("hif4:width=5").packs_nibbles());
}

TEST_CASE("the tensor maximum is measured only where an outer scale comes from it") {
  struct AmaxCase {
    const char* recipe;
    bool needs;
  };
  const AmaxCase cases[] = {
      {"nvfp4", true},
      {"nvfp4:block=2d", true},
      {"nvfp4:scale=row", true},
      {"nvfp4:amax=0x3f800000", false},
      {"nvfp4:scale=none", false},
      {"nvfp4:scale=given,g=0x3f800000", false},
      {"nvfp4:scale=given,g=0x3f800000,amax=0x3f800000", false},
      {"mxfp4", false},
      {"hif4", false},
  };
  for (const AmaxCase& c : cases) {
    CAPTURE(c.recipe);
    CHECK(parse_recipe(c.recipe).needs_amax() == c.needs);
  }
}

TEST_CASE("contracts whose source refuses ragged rows say so and quantize them all the same") {
  // hif4.md 2.1 column "length", mx.md 3 column "ragged (source)", layouts.md 3.
  struct RaggedCase {
    const char* recipe;
    bool refuses;
  };
  const RaggedCase cases[] = {
      {"hif4:contract=gcc", false},
      {"hif4:contract=amct", true},
      {"hif4:contract=a6", true},
      {"nvfp4:contract=te", true},
      {"mxfp4:contract=torchao-rceil", true},
      {"mxfp4:contract=ocp-floor-rne", true},
  };
  for (const RaggedCase& c : cases) {
    CAPTURE(c.recipe);
    CHECK(parse_recipe(c.recipe).source_refuses_ragged == c.refuses);
    CHECK(parse_recipe(c.recipe).ragged() == Ragged::kPad);
  }
}

TEST_CASE("help lists every format, one default contract per family and a meaning per key") {
  std::vector<std::string> names;
  for (const FormatRow& row : all_formats()) {
    names.emplace_back(row.format.name);
    CHECK(!row.summary.empty());
    CHECK(!row.source.empty());
  }
  CHECK(names == std::vector<std::string>{"mxfp4", "mxfp6e2m3", "mxfp6e3m2", "mxfp8e4m3",
                                          "mxfp8e5m2", "nvfp4", "hif4", "bf16"});
  const std::pair<Family, const char*> defaults[] = {
      {Family::kMx, "torchao-rceil"}, {Family::kNvfp4, "te"}, {Family::kHif4, "gcc"}};
  for (const auto& [family, name] : defaults) {
    int count = 0;
    for (const ContractInfo& info : contracts_of(family, "custom")) {
      if (!info.is_default) continue;
      ++count;
      CHECK(info.name == name);
    }
    CHECK(count == 1);
    for (const KeyHelp& key : recipe_keys(family)) {
      CAPTURE(key.key);
      CHECK(!key.values.empty());
      CHECK(!key.meaning.empty());
    }
  }
}
