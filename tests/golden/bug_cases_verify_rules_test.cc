// bug_cases_verify_rules_test.cc: the cases of ../shared/cases/bugs.md whose report has to name a
// rule (C01, C02, C08, C09, C11, C12, C15 to C18), through verify and identify as a user runs them;
// inputs and answers are those of that file.
#include <doctest/doctest.h>

#include <cmath>

#include "sim/error.h"
#include "tests/golden/dump.h"

namespace fp4scope {
namespace {

using test::at;
using test::classes_text;
using test::dump;
using test::Dump;
using test::explains;
using test::has;
using test::padded;
using test::poke;
using test::poke_code;
using test::stored_case;
using test::tensors_of;

TEST_CASE("C01 a leaked mantissa bit is named as the neighbour's scale, nothing else") {
  // Four binary32 scales packed into one word by shifts without a mask: bit 22 of a scale falls
  // into the top bit of the byte below. It is set in the subnormal 2^-127 and in 1.5.
  const auto leaking_word = [](const std::vector<float>& scales) {
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint64_t wide = bit_cast<std::uint32_t>(scales[i]);
      word |= static_cast<std::uint32_t>(wide << (8 * i) >> 23);
    }
    return word;
  };
  struct Case {
    std::vector<float> scales;  // of the other program
    std::uint32_t word;
    int right;  // first byte as it should be
    const char* classes;
  };
  const Case cases[] = {{{1.0f, 0x1p-127f, 2.0f, 4.0f}, 0x818000FFu, 0x7F, "nan_scale 1"},
                        {{0x1p-63f, 0x1p-127f, 2.0f, 4.0f}, 0x818000C0u, 0x40, "other_scale 1"},
                        {{0x1p-63f, 1.5f, 2.0f, 4.0f}, 0x81807FC0u, 0x40, "other_scale 1"}};
  const Dump d;
  const char* recipe = "mxfp4:contract=ocp-floor-rne";
  for (const Case& c : cases) {
    CHECK(leaking_word(c.scales) == c.word);
    std::vector<float> x(128, 0.0f);
    for (std::size_t i = 0; i < 4; ++i) x[32 * i] = 4 * c.scales[i];  // floor: amax / 4
    // As DeepGEMM stores them: a word per row, rows padded to 4.
    auto tensors = tensors_of(stored_case(recipe, x, 1, 128), "low-first", "deepgemm");
    REQUIRE(int{static_cast<std::uint8_t>(test::data_named(tensors, "scales")[0])} == c.right);
    CHECK(d.verify(tensors, recipe, "codes scales", "deepgemm").agrees());
    test::data_named(tensors, "scales").replace(0, 4, test::little_endian(c.word, 4));
    const VerifyResult r = d.verify(tensors, recipe, "codes scales", "deepgemm");
    CHECK(classes_text(r) == c.classes);
    CHECK(r.scales_differing == 1);
    CHECK(r.elements_differing == 0);
    CHECK((r.first.at(0).row == 0 && r.first.at(0).block == 0));
    CHECK(r.first.at(0).a.scale == test::Bytes{static_cast<std::uint8_t>(c.right)});
    CHECK(r.first.at(0).b.scale == test::Bytes{static_cast<std::uint8_t>(c.word & 0xFFu)});
  }
}

TEST_CASE("C02 identify names the scale rule that fits the dump") {
  const Dump d;
  const std::vector<float> seven = padded({7.0f, 0.3f, -0.3f, 5.5f}, 32);
  const std::vector<float> six_and_half = padded({6.5f}, 32);
  std::vector<float> x = seven;
  x.insert(x.end(), six_and_half.begin(), six_and_half.end());
  struct Case {
    const char* contract;
    std::vector<int> codes;
    std::string scales;
  };
  const auto codes = [](std::vector<int> a, int b) {
    a.resize(32, 0);
    a.push_back(b);
    return a;
  };
  const Case cases[] = {{"torchao-floor", codes({7, 1, 9, 7}, 7), "\x7F\x7F"},
                        {"torchao-even", codes({6, 0, 8, 5}, 7), "\x80\x7F"},
                        {"torchao-ceil", codes({6, 0, 8, 5}, 5), "\x80\x80"},
                        {"torchao-rceil", codes({6, 0, 8, 5}, 5), "\x80\x80"}};
  for (const Case& c : cases) {
    const auto tensors = dump(x, c.codes, c.scales);
    const IdentifyResult result = d.identify(tensors, "mxfp4");
    CHECK(!result.explaining.empty());
    for (const Case& other : cases) {
      const bool same = other.codes == c.codes && other.scales == c.scales;
      const std::string recipe = std::string("mxfp4:contract=") + other.contract;
      CHECK_MESSAGE(explains(result, recipe) == same, c.contract, " ", other.contract);
      const VerifyResult r = d.verify(tensors, recipe);
      CHECK(r.agrees() == same);
      if (!same) CHECK(r.classes[at(static_cast<int>(DifferenceClass::kScaleOffByOne))] > 0);
    }
  }
}

TEST_CASE("C08 and C09 a NaN byte in a scale plane is a class of its own") {
  const Dump d;
  // 16 zeros, 16 x 1.0, 16 x 1.2 with a calibrated amax of 1.0.
  std::vector<float> x(48, 0.0f);
  for (std::size_t i = 16; i < 48; ++i) x[i] = i < 32 ? 1.0f : 1.2f;
  const std::pair<const char*, int> contracts[] = {
      {"te", 0x00}, {"modelopt", 0x38}, {"compressed-tensors", 0x20}, {"torchao", 0x08}};
  for (const auto& [contract, zero_byte] : contracts) {
    const std::string recipe = std::string("nvfp4:contract=") + contract + ",amax=0x3f800000";
    const std::string scales = {static_cast<char>(zero_byte), 0x7E, 0x7E};
    std::vector<int> codes(48, 7);
    std::fill(codes.begin(), codes.begin() + 16, 0);
    auto tensors = dump(x, codes, scales);
    VerifyResult r = d.verify(tensors, recipe);
    CHECK_MESSAGE(r.agrees(), contract, ": ", summary_of(r));
    // Another contract's byte for a block of zeros.
    poke(tensors, "scales", 0, zero_byte ^ 0x40);
    CHECK(classes_text(d.verify(tensors, recipe)) == "other_scale 1");
    for (const int nan : {0x7F, 0xFF}) {
      for (const int block : {0, 2}) {
        tensors = dump(x, codes, scales);
        poke(tensors, "scales", block, nan);
        r = d.verify(tensors, recipe);
        CHECK(classes_text(r) == "nan_scale 1");
        CHECK(r.elements_differing == 0);
        CHECK(r.first.at(0).block == block);
      }
    }
  }
  // 0x78 to 0x7E are numbers: 448 taken for 256 is another scale and no NaN.
  auto tensors = dump(padded({2688.0f}, 16), {7}, "\x7E");
  CHECK(d.verify(tensors, "nvfp4:scale=none").agrees());
  poke(tensors, "scales", 0, 0x78);
  CHECK(classes_text(d.verify(tensors, "nvfp4:scale=none")) == "other_scale 1");
}

TEST_CASE("C11 elements divided by the unrounded scale") {
  const Dump d;
  const std::vector<float> x = padded({6.42f, 0.27f, -1.4f, 0.85f}, 16);
  CHECK(d.verify(dump(x, {7, 0, 10, 2}, "\x39"), "nvfp4:scale=none").agrees());
  const VerifyResult r = d.verify(dump(x, {7, 1, 11, 2}, "\x39"), "nvfp4:scale=none");
  CHECK(classes_text(r) == "adjacent_code 2");
  CHECK(r.first.at(0).elements == std::vector<int>{1, 2});
}

TEST_CASE("C12 two legal contracts are told apart and not called a defect") {
  const Dump d;
  // amax_g 25.75, block amax 1.20703125: te 0x5B, (a/6)*S 0x5A. Two blocks; the first has amax_g.
  // 1.20703125 = 0x3F9A8000 is no BF16 value, so the file is F32.
  std::vector<float> x(32, 0.0f);
  x[0] = 25.75f;
  x[16] = 1.20703125f;
  const auto te = stored_case("nvfp4", x, 1, 32);
  REQUIRE(te.q.tile.scales[1] == 0x5B);
  for (const char* contract : {"te", "trtllm", "vllm", "torchao", "fouroversix"}) {
    const std::string recipe = std::string("nvfp4:contract=") + contract;
    const auto theirs = stored_case(recipe, x, 1, 32);
    if (std::string(contract) != "te" && std::string(contract) != "torchao") {
      CHECK_MESSAGE(theirs.q.tile.scales[1] == 0x5A, contract);
    }
    const auto tensors = tensors_of(theirs);
    CHECK(d.verify(tensors, recipe).agrees());
    const VerifyResult r = d.verify(tensors, "nvfp4");
    const bool same = theirs.q.tile.scales == te.q.tile.scales;
    if (!same) {
      CHECK(r.classes[at(static_cast<int>(DifferenceClass::kScaleOffByOne))] == 1);
      CHECK(r.scales_one_above == 0);
    }
    const IdentifyResult result = d.identify(tensors, "nvfp4");
    CHECK_MESSAGE(explains(result, recipe), contract);
    CHECK_MESSAGE(explains(result, "nvfp4") == same, contract);
  }
  // amax_g 17.25, scale byte 0x5B, element 0.2470703125: code 4 by te, 3 by x * (S/s) (te-fast
  // would round S/s to BF16 first).
  const float s = 22.0f * 17.25f / 2688.0f;  // block amax is 6 s or near it
  x.assign(32, 0.0f);
  x[0] = 17.25f;
  x[16] = bit_cast<float>(bit_cast<std::uint32_t>(6 * s) & 0xFFFF0000u);
  x[17] = 0.2470703125f;
  const auto c = stored_case("nvfp4", x, 1, 32, SourceType::kBf16);
  REQUIRE(c.q.tile.scales[1] == 0x5B);
  REQUIRE(c.q.tile.codes[17] == 4);
  auto tensors = tensors_of(c);
  poke_code(tensors, 0, 17, 3);
  const VerifyResult r = d.verify(tensors, "nvfp4");
  CHECK(r.elements_differing == 1);
  CHECK(r.first.at(0).elements == std::vector<int>{1});
}

TEST_CASE("C15 and C16 ceiling, norm and ties of the 4/6 choice") {
  const Dump d;
  // [1, 0.75 x 15], amax_g = 1: ceiling 448 picks 6, codes 7 6...; 256 picks 4, scale 0x7C, 6 5...
  const std::vector<float> x = [] {
    std::vector<float> v(16, 0.75f);
    v[0] = 1.0f;
    return v;
  }();
  std::vector<int> six(16, 6), four(16, 5);
  six[0] = 7;
  four[0] = 6;
  const std::string m448 = "nvfp4:select=mae,e4m3max=448", m256 = "nvfp4:select=mae,e4m3max=256";
  CHECK(d.verify(dump(x, six, "\x7E"), m448).agrees());
  CHECK(d.verify(dump(x, four, "\x7C"), m256).agrees());
  CHECK(!d.verify(dump(x, six, "\x7E"), m256).agrees());
  CHECK(!d.verify(dump(x, four, "\x7C"), m448).agrees());
  const VerifyResult flipped = d.verify(dump(x, six, "\x78"), m256);
  CHECK(flipped.classes[at(static_cast<int>(DifferenceClass::kChoiceFlipped))] == 1);
  CHECK(explains(d.identify(dump(x, four, "\x7C"), "nvfp4"), m256));
  // T and D of C16 with g = 1.
  std::vector<float> both(32, 0.0f);
  both[0] = 24;
  const float block[] = {24, 20, 8, 8, 8};
  std::copy(std::begin(block), std::end(block), both.begin() + 16);
  std::vector<int> codes(32, 0);
  codes[0] = 7;
  const auto with = [&](const std::vector<int>& second) {
    std::vector<int> all = codes;
    std::copy(second.begin(), second.end(), all.begin() + 16);
    return all;
  };
  const auto mae = dump(both, with({7, 6, 4, 4, 4}), "\x48\x48");
  const auto mse = dump(both, with({6, 5, 3, 3, 3}), "\x48\x4C");
  CHECK(d.verify(mae, "nvfp4:scale=none,select=mae").agrees());
  CHECK(d.verify(mse, "nvfp4:scale=none,select=mse").agrees());
  CHECK(classes_text(d.verify(mae, "nvfp4:scale=none,select=mse")) ==
        "follows_scale 5, choice_flipped 1");
  CHECK(classes_text(d.verify(mse, "nvfp4:scale=none,select=mae")) ==
        "follows_scale 5, choice_flipped 1");
  const IdentifyResult result = d.identify(mse, "nvfp4");
  CHECK(explains(result, "nvfp4:scale=none,select=mse"));
  CHECK(!explains(result, "nvfp4:scale=none,select=mae"));
  // T chosen the other way: a tie goes to 6.
  auto t = mae;
  poke(t, "scales", 0, 0x4C);
  poke_code(t, 0, 0, 6);
  CHECK(classes_text(d.verify(t, "nvfp4:scale=none,select=mae")) ==
        "follows_scale 1, choice_flipped 1");
}

TEST_CASE("C17 the rule for ties that fits the dump") {
  const Dump d;
  const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  std::vector<float> x(32, 0.0f);
  for (std::size_t i = 0; i < 7; ++i) {
    x[i] = ties[i];
    x[i + 7] = -ties[i];
  }
  x[14] = 6.0f;  // pins the scale
  struct Case {
    const char* ties;
    int codes[7];
  };
  const Case cases[] = {{"even", {0, 2, 2, 4, 4, 6, 6}},
                        {"away", {1, 2, 3, 4, 5, 6, 7}},
                        {"zero", {0, 1, 2, 3, 4, 5, 6}}};
  for (const Case& c : cases) {
    std::vector<int> codes(32, 0);
    for (std::size_t i = 0; i < 7; ++i) {
      codes[i] = c.codes[i];
      codes[i + 7] = c.codes[i] + 8;
    }
    codes[14] = 7;
    const auto tensors = dump(x, codes, "\x7F");
    const IdentifyResult result = d.identify(tensors, "mxfp4");
    for (const Case& other : cases) {
      const std::string recipe = std::string("mxfp4:contract=ocp-floor-rne,ties=") + other.ties;
      const VerifyResult r = d.verify(tensors, recipe);
      const bool same = &other == &c;
      CHECK_MESSAGE(r.agrees() == same, c.ties, " against ", recipe, ": ", summary_of(r));
      if (same) continue;
      // Every difference is a tie, and all of them are counted so.
      CHECK(r.classes[at(static_cast<int>(DifferenceClass::kTie))] == r.elements_differing);
    }
    CHECK_MESSAGE(!result.explaining.empty(), c.ties);
    // Everything that explains the dump rounds ties in this way; on ties alone, truncation is the
    // rule toward zero.
    for (const ExplainingRecipe& e : result.explaining) {
      const std::string full = to_full_string(e.recipe);
      const bool is_zero = std::string(c.ties) == "zero";
      CHECK_MESSAGE(
          (has(full, std::string("ties=") + c.ties) || (is_zero && has(full, "ties=trunc"))), full);
    }
  }
}

TEST_CASE("C18 double rounding shows as neighbouring codes, not as ties") {
  const Dump d;
  const float first = bit_cast<float>(0x3E802000u), second = bit_cast<float>(0x40202000u);
  const std::vector<float> x = padded({6.0f, first, second}, 32);
  const char* recipe = "mxfp4:contract=ocp-floor-rne";
  CHECK(d.verify(dump(x, {7, 1, 5}, "\x7F"), recipe).agrees());
  const VerifyResult r = d.verify(dump(x, {7, 0, 4}, "\x7F"), recipe);
  CHECK(classes_text(r) == "adjacent_code 2");
  CHECK(r.first.at(0).elements == std::vector<int>{1, 2});
  // FP64: 2.5 + 2^-40. MX casts it directly, NVFP4 rounds it to binary32 first.
  std::vector<double> wide(32, 0.0);
  wide[0] = 6.0;
  wide[1] = 2.5 + std::ldexp(1.0, -40);
  auto tensors = dump(x, {7, 5}, "\x7F");
  tensors[0] = {"x", "F64", {1, 32}, test::bytes_of(wide)};
  CHECK(d.verify(tensors, recipe).agrees());
  poke_code(tensors, 0, 1, 4);
  CHECK(classes_text(d.verify(tensors, recipe)) == "adjacent_code 1");
  test::tensor_named(tensors, "scales") = {"scales", "U8", {1, 2}, std::string("\x38\x00", 2)};
  CHECK(d.verify(tensors, "nvfp4:scale=none").agrees());
}

}  // namespace
}  // namespace fp4scope
