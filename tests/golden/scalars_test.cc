// scalars_test.cc: the scalar casts against the recorded vectors of data/golden/scalars, in every
// lane width. Expected codes come from the files; their origin is in data/golden/README.md.
#include <cstring>

#include "formats/codecs/hif4.h"
#include "formats/e8m0.h"
#include "formats/minifloat.h"
#include "formats/philox.h"
#include "tests/support/rules.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::Diff;
using test::hex_bits;
using test::hex_float;
using test::load_golden;

// fn over one value in Lane<1> and, spread over all lanes, in Lane<8> and Lane<16>.
template <class Fn>
std::uint32_t in_all_lanes(float v, std::uint32_t byte, Diff& lanes, Fn&& fn) {
  const std::uint32_t want = fn.template operator()<Lane<1>>(v, byte);
  const auto wide = [&]<int W>() {
    typename Lane<W>::F x{};
    typename Lane<W>::U b{};
    for (int l = 0; l < W; ++l) x[l] = v, b[l] = byte;
    const auto got = fn.template operator()<Lane<W>>(x, b);
    for (int l = 0; l < W; ++l) lanes.compare(got[l], want, std::to_string(v));
  };
  wide.template operator()<8>();
  wide.template operator()<16>();
  return want;
}

TEST_CASE("element casts follow elem_cast.json in all four deterministic roundings") {
  Diff diff("scalars/elem_cast.json"), lanes("scalars/elem_cast.json, lanes 8 and 16");
  const auto json = load_golden("scalars/elem_cast.json");
  for (const auto& format : json["formats"]) {
    const std::string name = format["fmt"];
    const MinifloatSpec spec = test::spec_named(name);
    for (const auto& row : format["rows"]) {
      const float v = hex_float(row["in"]);
      const std::pair<const char*, Rounding> columns[] = {{"rne", Rounding::kEven},
                                                          {"rna", Rounding::kAway},
                                                          {"rhz", Rounding::kZero},
                                                          {"rtz", Rounding::kTrunc}};
      for (const auto& [column, rounding] : columns) {
        const std::uint32_t got = in_all_lanes(
            v, 0, lanes,
            [&]<class L>(typename L::F x, typename L::U) { return encode<L>(spec, rounding, x); });
        diff.compare(got, row[column], name + " " + column + " " + std::string(row["in"]));
      }
    }
  }
  diff.check();
  lanes.check();
}

TEST_CASE("the E2M1 cast is that of cvt.rn.satfinite.e2m1x2.f32") {
  Diff diff("scalars/e2m1_satfinite.json");
  const CastPolicy policy{
      Rounding::kEven, Overflow::kSaturate, {hardware_nan_code(kE2M1), NanRule::Sign::kDrop}};
  const auto json = load_golden("scalars/e2m1_satfinite.json");
  for (const auto& row : json["rows"]) {
    diff.compare(cast<Lane<1>>(kE2M1, policy, hex_float(row[0])), row[1], row[0]);
  }
  diff.check();
}

TEST_CASE("E4M3 casts saturate as PTX and overflow as torch, and decode exactly") {
  Diff saturating("e4m3_cast.json satfinite"), torch("e4m3_cast.json torch"),
      decoded("e4m3_cast.json decode"), half("f16_decode.json");
  const auto json = load_golden("scalars/e4m3_cast.json");
  const CastPolicy ptx{Rounding::kEven, Overflow::kSaturate, {0x7f, NanRule::Sign::kDrop}};
  const CastPolicy plain{Rounding::kEven, Overflow::kSpecial, {0x7f, NanRule::Sign::kCopy}};
  for (const auto& row : json["rows"]) {
    const float v = hex_float(row[0]);
    saturating.compare(cast<Lane<1>>(kE4M3, ptx, v), row[1], row[0]);
    torch.compare(cast<Lane<1>>(kE4M3, plain, v), row[2], row[0]);
  }
  for (std::uint32_t code = 0; code < kE4M3.code_count(); ++code) {
    decoded.compare_float(bit_cast<std::uint32_t>(decode<Lane<1>>(kE4M3, code)),
                          hex_bits(json["decode"][code]), std::to_string(code));
  }
  // Decoded values narrowed to FP16 are exact; FP16 NaN is 0x7fff there.
  const auto f16 = load_golden("scalars/f16_decode.json");
  const CastPolicy to_half{Rounding::kEven, Overflow::kSpecial, {0x7fff, NanRule::Sign::kDrop}};
  for (std::uint32_t code = 0; code < 256; ++code) {
    half.compare(cast<Lane<1>>(kFP16, to_half, decode<Lane<1>>(kE4M3, code)),
                 hex_bits(f16["e4m3_to_f16"][code]), "e4m3 " + std::to_string(code));
  }
  for (std::uint32_t code = 0; code < 16; ++code) {
    half.compare(cast<Lane<1>>(kFP16, to_half, decode<Lane<1>>(kE2M1, code)),
                 hex_bits(f16["e2m1_to_f16"][code]), "e2m1 " + std::to_string(code));
  }
  saturating.check();
  torch.check();
  decoded.check();
  half.check();
}

TEST_CASE("E8M0 casts follow seven published rules") {
  Diff diff("scalars/e8m0_cast.json"), lanes("scalars/e8m0_cast.json, lanes 8 and 16");
  const auto json = load_golden("scalars/e8m0_cast.json");
  for (const auto& row : json["rows"]) {
    for (const auto& [column, rule, exact] : test::kE8m0Rules) {
      if (row[column].is_null()) continue;
      const std::uint32_t got = in_all_lanes(
          hex_float(row["in"]), 0, lanes,
          [&]<class L>(typename L::F x, typename L::U) { return e8m0_encode<L>(rule, x); });
      diff.compare(got, row[column], std::string(row["in"]) + " " + column);
    }
  }
  const auto decoded = load_golden("scalars/e8m0_decode.json");
  for (const auto& [byte, bits] : decoded["correct"].items()) {
    const float v = e8m0_decode<Lane<1>>(static_cast<std::uint32_t>(std::stoul(byte)));
    const std::string text = bits;
    diff.compare_float(bit_cast<std::uint32_t>(v), hex_bits(text), "decode " + byte);
  }
  diff.check();
  lanes.check();
}

TEST_CASE("E6M2 encodes, decodes and inverts as recorded") {
  Diff diff("scalars/e6m2.json");
  const auto json = load_golden("scalars/e6m2.json");
  for (std::uint32_t code = 0; code < 256; ++code) {
    diff.compare_float(bit_cast<std::uint32_t>(decode<Lane<1>>(kE6M2, code)),
                       hex_bits(json["decode"][code]), "decode " + std::to_string(code));
    if (code == 255) continue;  // NaN has no reciprocal
    diff.compare(bit_cast<std::uint32_t>(e6m2_reciprocal<Lane<1>>(code)) >> 16,
                 hex_bits(json["rcp_bf16"][code]), "reciprocal " + std::to_string(code));
  }
  Hif4Options cann;
  cann.overflow = Hif4Overflow::kNan;
  cann.zero = Hif4Zero::kFf;
  for (const auto& row : json["encode"]) {
    const float v = bit_cast<float>(hex_bits(row[0]) << 16);
    const std::string where = row[0];
    if (!row[1].is_null()) {
      diff.compare(encode<Lane<1>>(kE6M2, Rounding::kEven, v), row[1], where + " even");
      diff.compare(encode<Lane<1>>(kE6M2, Rounding::kAway, v), row[2], where + " away");
    }
    if (!row[5].is_null() && v == v) {
      const bool is_ff = hif4_scale_is_nan<Lane<1>>(cann, {}, v) != 0;
      diff.compare(is_ff ? 255u : encode<Lane<1>>(kE6M2, Rounding::kEven, v), row[5],
                   where + " overflow=nan,zero=ff");
    }
  }
  diff.check();
}

TEST_CASE("UE4M3 scales round to nearest even and saturate") {
  Diff diff("scalars/ue4m3_scale.json rne_sat");
  const CastPolicy policy{Rounding::kEven, Overflow::kSaturate, {0x7f, NanRule::Sign::kDrop}};
  const auto json = load_golden("scalars/ue4m3_scale.json");
  for (const auto& row : json["rows"]) {
    diff.compare(cast<Lane<1>>(kUE4M3, policy, hex_float(row["in"])), row["rne_sat"], row["in"]);
  }
  diff.check();
}

TEST_CASE("narrowing to BF16 and FP16 is the IEEE conversion") {
  Diff diff("scalars/bf16_fp16_cast.json");
  const CastPolicy bf16{Rounding::kEven, Overflow::kSpecial, {0x7fff, NanRule::Sign::kDrop}};
  const CastPolicy fp16{Rounding::kEven, Overflow::kSpecial, {0x7fff, NanRule::Sign::kDrop}};
  const auto json = load_golden("scalars/bf16_fp16_cast.json");
  for (const auto& row : json["rows"]) {
    const float v = hex_float(row[0]);
    if (v != v) continue;
    const std::string where = row[0];
    diff.compare(cast<Lane<1>>(kBF16, bf16, v), hex_bits(row[1]), where + " bf16");
    diff.compare(bit_cast<std::uint32_t>(round_to_bf16<Lane<1>>(v)) >> 16, hex_bits(row[1]),
                 where + " round_to_bf16");
    diff.compare(cast<Lane<1>>(kFP16, fp16, v), hex_bits(row[2]), where + " fp16");
  }
  diff.check();
}

TEST_CASE("Philox and software stochastic rounding follow philox_sr.json") {
  Diff philox("philox_sr.json philox"), sr("philox_sr.json soft_sr"), lanes("soft_sr, lanes");
  const auto json = load_golden("scalars/philox_sr.json");
  for (const auto& row : json["philox"]) {
    const std::uint64_t seed = row["seed"], subsequence = row["subsequence"];
    std::uint64_t offset = row["offset"];
    const auto lo = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
    const auto hi = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
    for (std::size_t i = 0; i < row["out"].size(); i += 4, ++offset) {
      const std::uint32_t counter[4] = {lo(offset), hi(offset), lo(subsequence), hi(subsequence)};
      const std::uint32_t key[2] = {lo(seed), hi(seed)};
      std::uint32_t out[4];
      philox4x32_10<Lane<1>>(counter, key, out);
      for (std::size_t k = 0; k < 4; ++k) {
        philox.compare(out[k], hex_bits(row["out"][i + k]), "seed " + std::to_string(seed));
      }
    }
  }
  const CastPolicy policy{Rounding::kStochastic, Overflow::kSaturate, {7, NanRule::Sign::kDrop}};
  for (const auto& row : json["soft_sr"]) {
    const std::uint32_t got = in_all_lanes(hex_float(row[0]), row[1], lanes,
                                           [&]<class L>(typename L::F x, typename L::U byte) {
                                             return cast<L>(kE2M1, policy, x, byte);
                                           });
    sr.compare(got, row[2], std::string(row[0]) + " byte " + row[1].dump());
  }
  philox.check();
  sr.check();
  lanes.check();
}

}  // namespace
}  // namespace fp4scope
