// oracle_vectors_test.cc: the scalar casts of the exact oracle against the recorded vectors of
// ../shared/vectors/scalars (conventions: vectors/README.md there). The oracle was written from the
// specification alone, so these runs check two independent readings against each other.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "formats/scalars.h"
#include "sim/oracle/exact_format.h"
#include "tests/support/vectors.h"

using namespace fp4scope;
using namespace fp4scope::test;
using nlohmann::json;
using oracle::exact;
using oracle::Number;

namespace {

json load_shared(const std::string& name) {
  return load_json(shared_dir() / "vectors" / name);
}

std::string at(const std::string& what, std::size_t i) {
  return what + " " + std::to_string(i);
}

}  // namespace

TEST_CASE("the oracle's scalar casts give the recorded codes") {
  if (!have_shared("vectors")) return;
  SUBCASE("element casts under four roundings") {
    const json file = load_shared("scalars/elem_cast.json");
    const std::map<std::string, Rounding> columns = {{"rne", Rounding::kEven},
                                                     {"rna", Rounding::kAway},
                                                     {"rhz", Rounding::kZero},
                                                     {"rtz", Rounding::kTrunc}};
    Diff diff("oracle: scalars/elem_cast.json");
    for (const json& format : file["formats"]) {
      const std::string name = format["fmt"];
      for (const json& row : format["rows"]) {
        const std::string in = row["in"];
        const Number x = exact(hex_float(in));
        if (x.is_nan()) continue;  // its code is a policy of the caller
        for (const auto& [column, rounding] : columns) {
          diff.compare(oracle::cast_saturating(spec_named(name), x, rounding), row[column],
                       name + " " + column + " " + in);
        }
      }
    }
    diff.check();
  }
  SUBCASE("the default E2M1 cast") {
    Diff diff("oracle: scalars/e2m1_satfinite.json");
    const json file = load_shared("scalars/e2m1_satfinite.json");
    for (const json& row : file["rows"]) {
      const std::string in = row[0];
      const Number x = exact(hex_float(in));
      const std::uint32_t got =
          x.is_nan() ? 7u : oracle::cast_saturating(kE2M1, x, Rounding::kEven);
      diff.compare(got, row[1], in);
    }
    diff.check();
  }
  SUBCASE("E4M3 saturating, non-saturating and decoded") {
    const json file = load_shared("scalars/e4m3_cast.json");
    Diff diff("oracle: scalars/e4m3_cast.json");
    for (const json& row : file["rows"]) {
      const std::string in = row[0];
      const Number x = exact(hex_float(in));
      const std::uint32_t saturating =
          x.is_nan() ? 0x7fu : oracle::cast_saturating(kE4M3, x, Rounding::kEven);
      diff.compare(saturating, row[1], in + " saturating");
      const std::uint32_t nan_code = x.negative ? 0xffu : 0x7fu;
      diff.compare(oracle::cast_special(kE4M3, x, Rounding::kEven, nan_code), row[2],
                   in + " special");
    }
    for (std::uint32_t code = 0; code < 256; ++code) {
      const std::string want = file["decode"][code];
      diff.compare_float(bit_cast<std::uint32_t>(round32(oracle::value(kE4M3, code))),
                         want == "nan" ? kQuietNanBits : hex_bits(want), at("code", code));
    }
    diff.check();
  }
  SUBCASE("UE4M3 scales") {
    Diff diff("oracle: scalars/ue4m3_scale.json");
    const json file = load_shared("scalars/ue4m3_scale.json");
    for (const json& row : file["rows"]) {
      const std::string in = row["in"];
      const Number x = exact(hex_float(in));
      if (x.is_nan()) continue;
      diff.compare(oracle::cast_saturating(kUE4M3, x, Rounding::kEven), row["rne_sat"], in);
    }
    diff.check();
  }
  SUBCASE("E8M0 by seven rules, and its corner values") {
    using oracle::E8m0Cast;
    const std::map<std::string, E8m0Cast> rules = {
        {"down", E8m0Cast::kDown},
        {"up_ptx_satfinite", E8m0Cast::kUpPtxSatfinite},
        {"up_ptx_nosat", E8m0Cast::kUpPtxNosat},
        {"up_onnx", E8m0Cast::kUpOnnx},
        {"nearest_torch", E8m0Cast::kNearestTorch},
        {"nearest_onnx_saturate", E8m0Cast::kNearestOnnxSaturate},
        {"nearest_ml_dtypes", E8m0Cast::kNearestMlDtypes}};
    Diff diff("oracle: scalars/e8m0_cast.json");
    const json file = load_shared("scalars/e8m0_cast.json");
    for (const json& row : file["rows"]) {
      const std::string in = row["in"];
      for (const auto& [column, rule] : rules) {
        diff.compare(oracle::cast_e8m0(rule, exact(hex_float(in))), row[column], column + " " + in);
      }
    }
    const json decode = load_shared("scalars/e8m0_decode.json");
    for (const auto& [byte, text] : decode["correct"].items()) {
      const std::uint32_t got = bit_cast<std::uint32_t>(
          round32(oracle::value_e8m0(static_cast<std::uint32_t>(std::stoul(byte)))));
      const std::string want = text;
      diff.compare_float(got, want == "NaN" ? kQuietNanBits : hex_bits(want), "byte " + byte);
    }
    diff.check();
  }
  SUBCASE("E6M2: decode, reciprocal, encode") {
    const json file = load_shared("scalars/e6m2.json");
    Diff diff("oracle: scalars/e6m2.json");
    for (std::uint32_t code = 0; code < 256; ++code) {
      const std::string value = file["decode"][code];
      diff.compare_float(bit_cast<std::uint32_t>(round32(oracle::value(kE6M2, code))),
                         value == "nan" ? kQuietNanBits : hex_bits(value), at("decode", code));
      const std::string rcp = file["rcp_bf16"][code];
      diff.compare_float(bit_cast<std::uint32_t>(oracle::reciprocal_e6m2(code)),
                         rcp == "nan" ? kQuietNanBits : hex_bits(rcp) << 16,
                         at("reciprocal", code));
    }
    for (const json& row : file["encode"]) {
      const std::string in = row[0];
      const Number x = exact(bit_cast<float>(hex_bits(in) << 16));
      if (!row[1].is_null()) {
        diff.compare(oracle::cast_saturating(kE6M2, x, Rounding::kEven), row[1], in + " even");
      }
      if (!row[2].is_null()) {
        diff.compare(oracle::cast_saturating(kE6M2, x, Rounding::kAway), row[2], in + " away");
      }
      // PTO TCVT: NaN below zero; without saturation also above the largest value 0xfe, whatever
      // it would round to.
      const bool is_bad = x.is_nan() || (x.negative && !x.is_zero());
      const std::uint32_t even = is_bad ? 255 : oracle::cast_saturating(kE6M2, x, Rounding::kEven);
      diff.compare(even, row[3], in + " TCVT");
      const bool is_above =
          is_bad || x.is_infinite() || x.magnitude > oracle::value(kE6M2, 254).magnitude;
      diff.compare(is_above ? 255 : even, row[4], in + " TCVT without saturation");
      // overflow=nan,zero=ff: below 2^-48 and from 1.625 * 2^15 on (spec/hif4.md 2.1).
      if (!row[5].is_null()) {
        const bool is_ff = !x.is_finite() || x.magnitude < oracle::Dyadic::pow2(-48) ||
                           x.magnitude >= oracle::Dyadic(13, 12);
        diff.compare(is_ff ? 255 : even, row[5], in + " overflow=nan,zero=ff");
      }
    }
    diff.check();
  }
  SUBCASE("BF16 and FP16 narrowing, by two different roundings") {
    Diff diff("oracle: scalars/bf16_fp16_cast.json");
    const json file = load_shared("scalars/bf16_fp16_cast.json");
    for (const json& row : file["rows"]) {
      const std::string in = row[0], bf16 = row[1], fp16 = row[2];
      const float v = hex_float(in);
      const Number x = exact(v);
      if (x.is_nan()) continue;
      diff.compare(oracle::bf16_code(v, 0x7fffu), hex_bits(bf16), in + " bf16");
      diff.compare(oracle::fp16_code(v, 0x7fffu), hex_bits(fp16), in + " fp16");
      // The same through the tables of values.
      diff.compare(oracle::cast_special(kBF16, x, Rounding::kEven, 0), hex_bits(bf16),
                   in + " bf16 by table");
      diff.compare(oracle::cast_special(kFP16, x, Rounding::kEven, 0), hex_bits(fp16),
                   in + " fp16 by table");
    }
    diff.check();
  }
  SUBCASE("stochastic rounding to E2M1") {
    Diff diff("oracle: scalars/philox_sr.json soft_sr");
    const json file = load_shared("scalars/philox_sr.json");
    for (const json& row : file["soft_sr"]) {
      const std::string in = row[0];
      const std::uint32_t byte = row[1];
      const float v = hex_float(in);
      const Number x = exact(v);
      const std::uint32_t magnitude = oracle::stochastic(kE2M1, v, byte);
      const std::uint32_t got = x.is_nan() ? 7u : magnitude | (x.negative ? 8u : 0u);
      diff.compare(got, row[2], in + " byte " + std::to_string(byte));
    }
    diff.check();
  }
  SUBCASE("decode of E2M1 and E4M3 to FP16") {
    const json file = load_shared("scalars/f16_decode.json");
    Diff diff("oracle: scalars/f16_decode.json");
    for (std::uint32_t code = 0; code < 16; ++code) {
      const std::string want = file["e2m1_to_f16"][code];
      diff.compare(oracle::fp16_code(round32(oracle::value(kE2M1, code)), 0x7fffu), hex_bits(want),
                   at("e2m1", code));
    }
    for (std::uint32_t code = 0; code < 256; ++code) {
      const std::string want = file["e4m3_to_f16"][code];
      diff.compare(oracle::fp16_code(round32(oracle::value(kE4M3, code)), 0x7fffu), hex_bits(want),
                   at("e4m3", code));
    }
    diff.check();
  }
}
