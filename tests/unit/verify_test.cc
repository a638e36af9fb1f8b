// verify_test.cc: verify on tensors small enough to count by hand: every class of difference alone,
// what --accept forgives, outer scales, choices, decoded values. Expected codes are worked out from
// ../shared/spec by hand where a comment shows them, otherwise they come from the exact backend.
#include "analysis/compare/verify.h"

#include <doctest/doctest.h>

#include <cmath>

#include "sim/error.h"
#include "tests/support/paths.h"
#include "tests/support/stored_case.h"

namespace fp4scope {
namespace {

using test::at;
using test::classes_text;
using test::FileTensor;
using test::has;
using test::job_of;
using test::poke;
using test::poke_code;
using test::stored_case;
using test::tensors_of;
using test::verified;

const test::TempDir& folder() {
  static const test::TempDir dir;
  return dir;
}
std::string path() {
  return folder().file("x.safetensors");
}

// nvfp4 with g = 1: 6 gives the scale 1.0 = 0x38 (spec/nvfp4.md 3.2), so that an element is its own
// scaled value. Two rows of two blocks.
constexpr const char* kPlain = "nvfp4:scale=none";
constexpr std::int64_t kBlocks = 4, kElements = 64;
std::vector<float> plain_input() {
  std::vector<float> x(kElements, 0.0f);
  const float first[] = {6, 0.25f, 2.5f, std::nanf(""), -0.25f, 0.3f, 1, 4, -0.0f, 0.27f};
  std::copy(std::begin(first), std::end(first), x.begin());
  x[16] = 3;   // scale 0.5 = 0x30
  x[32] = 12;  // scale 2 = 0x40
  x[33] = 1;   // 0.5: code 1
  x[48] = 1.5f;
  return x;
}
std::vector<FileTensor> plain_tensors() {
  auto tensors = tensors_of(stored_case(kPlain, plain_input(), 2, 32));
  // By hand, so that the cases below do not rest on the exact backend alone.
  CHECK(test::data_named(tensors, "scales") == std::string("\x38\x30\x40\x28"));
  const std::string codes = test::data_named(tensors, "codes");
  const int want[] = {7, 0, 4, 7, 8, 1, 2, 6, 8, 1};
  for (std::size_t i = 0; i < std::size(want); ++i) {
    CHECK((codes[i / 2] >> (i % 2 == 0 ? 0 : 4) & 0xF) == want[i]);
  }
  return tensors;
}

TEST_CASE("equal bytes agree") {
  const auto tensors = plain_tensors();
  for (const char* parts : {"codes scales", "codes", "scales", "values", "codes scales values"}) {
    const VerifyResult r = verified(path(), tensors, job_of(path(), kPlain, parts));
    CHECK(r.agrees());
    CHECK(classes_text(r).empty());
    // Elements that nothing was given for are not said to be compared.
    CHECK(r.elements == (std::string(parts) == "scales" ? 0 : kElements));
    CHECK(r.blocks == kBlocks);
    CHECK(r.scales == (has(parts, "scales") ? kBlocks : 0));
    CHECK(r.first.empty());
    CHECK(!has(summary_of(r), "differ"));
  }
}

struct CodeChange {
  const char* name;
  std::int64_t col;
  int code;
};
TEST_CASE("each class of code alone is counted under its name") {
  const CodeChange changes[] = {{"tie", 1, 1},             // 0.25 to 0.5 instead of 0
                                {"tie", 2, 5},             // 2.5 to 3 instead of 2
                                {"tie", 4, 9},             // -0.25 to -0.5 instead of -0
                                {"nan_code", 3, 0},        // NaN
                                {"nan_code", 3, 15},       // of the other sign
                                {"sign_of_zero", 4, 0},    // -0.25 to +0
                                {"sign_of_zero", 8, 0},    // -0
                                {"sign_of_zero", 10, 8},   // +0
                                {"adjacent_code", 5, 0},   // 0.3 to 0
                                {"adjacent_code", 6, 1},   // 1.0 to 0.5
                                {"adjacent_code", 7, 7},   // 4 to 6
                                {"adjacent_code", 0, 6},   // 6 to 4
                                {"adjacent_code", 10, 1},  // 0 to 0.5
                                {"other_code", 6, 5},      // 1.0 to 3
                                {"other_code", 6, 10},     // 1.0 to -1.0
                                {"other_code", 0, 15}};    // 6 to -6
  for (const CodeChange& c : changes) {
    auto tensors = plain_tensors();
    poke_code(tensors, 0, c.col, c.code);
    const VerifyResult r = verified(path(), tensors, job_of(path(), kPlain));
    CHECK_MESSAGE(classes_text(r) == std::string(c.name) + " 1", c.name, " column ", c.col);
    CHECK(r.elements_differing == 1);
    CHECK(r.scales_differing == 0);
    CHECK(r.blocks_differing == 1);
    CHECK(!r.agrees());
    REQUIRE(r.first.size() == 1);
    CHECK(r.first[0].row == 0);
    CHECK(r.first[0].block == 0);
    CHECK(r.first[0].elements == std::vector<int>{static_cast<int>(c.col)});
    CHECK(has(summary_of(r), "1 of 64 elements"));
    CHECK(has(summary_of(r), "column " + std::to_string(c.col)));
  }
}

TEST_CASE("classes of several blocks add up") {
  auto tensors = plain_tensors();
  poke_code(tensors, 0, 1, 1);   // tie
  poke_code(tensors, 0, 2, 5);   // tie
  poke_code(tensors, 0, 8, 0);   // sign
  poke_code(tensors, 0, 16, 6);  // 3 at scale 0.5: 6 to 4
  poke_code(tensors, 1, 1, 3);   // 1 at scale 2: 0.5 to 1.5
  const VerifyResult r = verified(path(), tensors, job_of(path(), kPlain));
  CHECK(classes_text(r) == "sign_of_zero 1, tie 2, adjacent_code 1, other_code 1");
  CHECK(r.elements_differing == 5);
  CHECK(r.blocks_differing == 3);
  REQUIRE(r.first.size() == 3);
  CHECK(r.first[0].elements == std::vector<int>{1, 2, 8});
  CHECK((r.first[1].row == 0 && r.first[1].block == 1 && r.first[1].col == 16));
  CHECK((r.first[2].row == 1 && r.first[2].block == 0));
  CHECK(has(summary_of(r), "5 of 64 elements"));
}

struct ScaleChange {
  const char* classes;
  int byte;
  std::int64_t above;
};
TEST_CASE("each class of scale alone: elements under it are not blamed") {
  const ScaleChange changes[] = {{"scale_off_by_one 1", 0x39, 1}, {"scale_off_by_one 1", 0x37, 0},
                                 {"nan_scale 1", 0x7F, 0},        {"nan_scale 1", 0xFF, 0},
                                 {"other_scale 1", 0x3A, 0},      {"other_scale 1", 0x36, 0},
                                 {"other_scale 1", 0x00, 0}};
  for (const ScaleChange& c : changes) {
    auto tensors = plain_tensors();
    poke(tensors, "scales", 0, c.byte);
    const VerifyResult r = verified(path(), tensors, job_of(path(), kPlain));
    CHECK_MESSAGE(classes_text(r) == c.classes, c.byte);
    CHECK(r.scales_differing == 1);
    CHECK(r.elements_differing == 0);
    CHECK(r.blocks_differing == 1);
    CHECK(r.scales_one_above == c.above);
    REQUIRE(r.first.size() == 1);
    CHECK((r.first[0].row == 0 && r.first[0].block == 0));
    CHECK(has(summary_of(r), "1 of 4 scales"));
    CHECK(!has(summary_of(r), "elements"));
  }
}

TEST_CASE("codes under another scale are measured against that scale") {
  // Under 1.125: 0.27 / 1.125 = 0.24 is code 0 (C11) and 2.5 / 1.125 = 2.22 stays code 4.
  auto tensors = plain_tensors();
  poke(tensors, "scales", 0, 0x39);
  poke_code(tensors, 0, 9, 0);
  VerifyResult r = verified(path(), tensors, job_of(path(), kPlain));
  CHECK(classes_text(r) == "follows_scale 1, scale_off_by_one 1");
  CHECK(r.elements_differing == 1);
  // A code that follows neither scale keeps its own class: 4 / 1.125 = 3.56 is code 6, found 5.
  poke_code(tensors, 0, 7, 5);
  r = verified(path(), tensors, job_of(path(), kPlain));
  CHECK(classes_text(r) == "adjacent_code 1, follows_scale 1, scale_off_by_one 1");
  // A tie under the scale that was found: 3 / 1 under the scale 0.5 was 6; under 1.2 = 0x3A (1.25),
  // x = 2.5 would be 2.0, no tie; under 0x40 (2.0) x = 2.5 is 1.25, a tie of 1.0 and 1.5.
  tensors = plain_tensors();
  poke(tensors, "scales", 0, 0x40);
  poke_code(tensors, 0, 2, 3);  // up; to even is code 2
  r = verified(path(), tensors, job_of(path(), kPlain));
  CHECK(classes_text(r) == "tie 1, other_scale 1");
}

TEST_CASE("what --accept forgives is counted apart") {
  auto tensors = plain_tensors();
  poke_code(tensors, 0, 4, 0);
  poke_code(tensors, 0, 8, 0);
  poke_code(tensors, 0, 3, 8);
  VerifyOptions options;
  options.accept = parse_accept("sign-of-zero");
  VerifyResult r = verified(path(), tensors, job_of(path(), kPlain), options);
  CHECK(classes_text(r) == "nan_code 1");
  CHECK(r.accepted == 2);
  CHECK(!r.agrees());
  options.accept = parse_accept("nan-code");
  r = verified(path(), tensors, job_of(path(), kPlain), options);
  CHECK(classes_text(r) == "sign_of_zero 2");
  CHECK(r.accepted == 1);
  options.accept = parse_accept("sign-of-zero,nan-code");
  r = verified(path(), tensors, job_of(path(), kPlain), options);
  CHECK(r.agrees());
  CHECK(r.blocks_differing == 0);
  CHECK(r.first.empty());
  CHECK(r.accepted == 3);
  CHECK(has(summary_of(r), "3 differences accepted"));
  // Anything else still counts.
  poke_code(tensors, 0, 6, 3);
  r = verified(path(), tensors, job_of(path(), kPlain), options);
  CHECK(classes_text(r) == "adjacent_code 1");
  for (const char* text : {"sign", "sign-of-zero,,nan-code", "tie", "sign-of-zero;nan-code"}) {
    CHECK_THROWS_AS(parse_accept(text), Error);
  }
}

TEST_CASE("a flipped 4/6 choice, the plane of choices, and both") {
  // spec/nvfp4.md 8: [24, 20, 8, 8, 8, 0...] with g = 1: mse takes map-to-4, scale 6.0 = 0x4C.
  // Under it 4 3.33 1.33: codes 6 5 3; under 4.0 = 0x48 6 5 2: codes 7 6 4.
  const char* recipe = "nvfp4:scale=none,select=mse";
  std::vector<float> x(32, 0.0f);
  const float block[] = {24, 20, 8, 8, 8};
  std::copy(std::begin(block), std::end(block), x.begin());
  x[16] = 6;  // exact under either: a tie, map-to-6
  const auto tensors = tensors_of(stored_case(recipe, x, 1, 32));
  auto good = tensors;
  REQUIRE(test::data_named(good, "choice") == std::string("\x01\x00", 2));
  REQUIRE(test::data_named(good, "scales").substr(0, 1) == "\x4C");
  REQUIRE(test::data_named(good, "codes").substr(0, 3) == "\x56\x33\x03");
  CHECK(verified(path(), good, job_of(path(), recipe, "codes scales choice")).agrees());
  auto flipped = tensors;
  poke(flipped, "scales", 0, 0x48);
  poke(flipped, "codes", 0, 0x67);
  poke(flipped, "codes", 1, 0x44);
  poke(flipped, "codes", 2, 0x04);
  VerifyResult r = verified(path(), flipped, job_of(path(), recipe));
  CHECK(classes_text(r) == "follows_scale 5, choice_flipped 1");
  CHECK(r.scales_differing == 1);
  CHECK(r.elements_differing == 5);
  CHECK(r.choices_differing == 0);
  r = verified(path(), flipped, job_of(path(), recipe, "scales"));
  CHECK(classes_text(r) == "choice_flipped 1");
  auto plane = tensors;
  poke(plane, "choice", 1, 1);
  r = verified(path(), plane, job_of(path(), recipe, "codes scales choice"));
  CHECK(classes_text(r) == "choice_bit 1");
  CHECK(r.choices_differing == 1);
  CHECK(r.blocks_differing == 1);
  CHECK((r.first.at(0).row == 0 && r.first.at(0).block == 1));
  poke(flipped, "choice", 0, 0);
  r = verified(path(), flipped, job_of(path(), recipe, "codes scales choice"));
  CHECK(classes_text(r) == "follows_scale 5, choice_flipped 1, choice_bit 1");
  // A wrong code under the other candidate is measured against that candidate.
  poke(flipped, "codes", 1, 0x54);
  r = verified(path(), flipped, job_of(path(), recipe));
  CHECK(classes_text(r) == "adjacent_code 1, follows_scale 4, choice_flipped 1");
}

TEST_CASE("HiF4 level bits") {
  // spec/hif4.md 7: all 2.0: E = b9, every level bit set, codes 6.
  const auto tensors = tensors_of(stored_case("hif4", std::vector<float>(128, 2.0f), 1, 128));
  auto good = tensors;
  REQUIRE(test::data_named(good, "scales") == "\xB9\xFF\xFF\xFF\xB9\xFF\xFF\xFF");
  auto bits = tensors;
  poke(bits, "scales", 6, 0xFE);  // e16[0] of the second group
  VerifyResult r = verified(path(), bits, job_of(path(), "hif4"));
  CHECK(classes_text(r) == "level_bits 1");
  CHECK(r.elements_differing == 0);
  CHECK(r.first.at(0).block == 1);
  // Without that bit 2.0 / 0.3125 / 2 = 3.2 saturates to 1.75: code 7 in elements 0..3.
  poke(bits, "codes", 32, 0x77);
  poke(bits, "codes", 33, 0x77);
  r = verified(path(), bits, job_of(path(), "hif4"));
  CHECK(classes_text(r) == "follows_scale 4, level_bits 1");
  for (const auto& [byte, want, above] :
       {std::tuple{0xBA, "scale_off_by_one 1", 1}, std::tuple{0xB8, "scale_off_by_one 1", 0},
        std::tuple{0xFF, "nan_scale 1", 0}, std::tuple{0xC9, "other_scale 1", 0}}) {
    auto changed = tensors;
    poke(changed, "scales", 0, byte);
    r = verified(path(), changed, job_of(path(), "hif4"));
    CHECK(classes_text(r) == want);
    CHECK(r.scales_one_above == above);
    CHECK(r.elements_differing == 0);
  }
}

TEST_CASE("tensor scale and amax: a wrong one is one difference and not a thousand") {
  const char* recipe = "nvfp4";
  const auto c = stored_case(recipe, test::some_values(8 * 64), 8, 64);
  const auto tensors = tensors_of(c);
  const char* all = "codes scales outer amax";
  VerifyResult r = verified(path(), tensors, job_of(path(), recipe, all));
  CHECK(r.agrees());
  CHECK(r.outer_scales == 2);
  // g one ulp up: amax 2688/g changes nothing else in the file.
  for (const char* name : {"outer", "amax"}) {
    auto changed = tensors;
    std::string& data = test::data_named(changed, name);
    data[0] = static_cast<char>(data[0] + 1);
    r = verified(path(), changed, job_of(path(), recipe, all));
    CHECK(r.classes[at(static_cast<int>(DifferenceClass::kOuterScale))] >= 1);
    CHECK(!r.agrees());
    r = verified(path(), changed, job_of(path(), recipe, std::string("codes scales ") + name));
    CHECK(r.outer_scales == 1);
    CHECK(r.outer_scales_differing == 1);
    CHECK(has(summary_of(r), "1 of 1 outer scales"));
    CHECK(!r.notes.empty());
  }
  // The other program's g, used by it everywhere: only g differs.
  const float wrong = std::nextafter(c.q.outer[0].g, 1e30f);
  const std::vector<OuterScale32> outer = {{c.q.outer[0].amax, wrong}};
  auto theirs = c;
  theirs.q =
      test::quantized(oracle_backend(), c.recipe, Tile{c.x.data(), nullptr, 8, 64, 64}, outer);
  r = verified(path(), tensors_of(theirs), job_of(path(), recipe, "codes scales outer"));
  CHECK(classes_text(r) == "outer_scale 1");
  CHECK(r.elements_differing == 0);
  CHECK(r.scales_differing == 0);
}

TEST_CASE("row scales") {
  const char* recipe = "nvfp4:scale=row";
  std::vector<float> x = test::some_values(5 * 32);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= std::ldexp(1.0f, static_cast<int>(i / 32));
  const auto tensors = tensors_of(stored_case(recipe, x, 5, 32));
  VerifyResult r = verified(path(), tensors, job_of(path(), recipe, "codes scales outer amax"));
  CHECK(r.agrees());
  CHECK(r.outer_scales == 10);
  for (std::int64_t row = 0; row < 5; ++row) {
    auto changed = tensors;
    std::string& data = test::data_named(changed, "outer");
    data[at(4 * row)] = static_cast<char>(data[at(4 * row)] ^ 1);
    r = verified(path(), changed, job_of(path(), recipe, "outer scales"));
    CHECK(r.outer_scales == 5);
    CHECK(r.outer_scales_differing == 1);
    REQUIRE(!r.notes.empty());
    CHECK(has(r.notes[0], "row " + std::to_string(row)));
  }
  // One scale where five are needed.
  auto one = tensors;
  test::tensor_named(one, "outer") = {"outer", "F32", {1}, std::string(4, '\x3F')};
  CHECK_THROWS_AS(verified(path(), one, job_of(path(), recipe, "scales outer")), Error);
}

TEST_CASE("decoded values in F32 and BF16") {
  // MX under floor: 6 has the byte 127; values are codes. Two blocks.
  const char* recipe = "mxfp4:contract=ocp-floor-rne";
  std::vector<float> x(64, 0.0f);
  const float block[] = {6, 0.25f, 2.5f, -0.25f, 0.3f, 1.1f};
  std::copy(std::begin(block), std::end(block), x.begin());
  x[32] = -12;
  const auto tensors = tensors_of(stored_case(recipe, x, 1, 64));
  const std::vector<float> decoded = {6, 0, 2, -0.0f, 0.5f, 1};
  const auto with = [&](std::size_t i, float v, bool bf16) {
    auto changed = tensors;
    std::vector<float> values(64, 0.0f);
    std::copy(decoded.begin(), decoded.end(), values.begin());
    values[32] = -12;
    values[i] = v;
    FileTensor& t = test::tensor_named(changed, "values");
    if (bf16) t.dtype = "BF16";
    t.data = bf16 ? test::bf16_bytes(values) : test::bytes_of(values);
    return verified(path(), changed, job_of(path(), recipe, "values"));
  };
  for (const bool bf16 : {false, true}) {
    CHECK(with(0, 6, bf16).agrees());
    CHECK(classes_text(with(3, 0.0f, bf16)) == "sign_of_zero 1");
    CHECK(classes_text(with(1, 0.5f, bf16)) == "adjacent_code 1");  // the code is not in the file
    CHECK(classes_text(with(5, 1.5f, bf16)) == "adjacent_code 1");
    CHECK(classes_text(with(5, 4, bf16)) == "other_value 1");
    CHECK(classes_text(with(5, std::nanf(""), bf16)) == "other_value 1");
    const VerifyResult r = with(32, 12, bf16);
    CHECK(classes_text(r) == "other_value 1");
    CHECK((r.first.at(0).block == 1 && r.first.at(0).elements == std::vector<int>{0}));
  }
  CHECK(!with(5, 1, true).notes.empty());
}

TEST_CASE("decoded values are rounded once to the dtype of the file") {
  const auto c = stored_case("nvfp4", test::some_values(4 * 48, 9), 4, 48);
  auto tensors = tensors_of(c);
  FileTensor& t = test::tensor_named(tensors, "values");
  std::vector<float> rounded;
  std::int64_t changed = 0;
  for (const float v : c.q.values) {  // to nearest even, of finite values
    const auto bits = bit_cast<std::uint32_t>(v);
    rounded.push_back(bit_cast<float>((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u));
    changed += rounded.back() != v ? 1 : 0;
  }
  CHECK(changed > 20);
  t.dtype = "BF16";
  t.data = test::bf16_bytes(rounded);
  CHECK(verified(path(), tensors, job_of(path(), "nvfp4", "values")).agrees());
  // Truncated instead.
  t.data = test::bf16_bytes(c.q.values);
  const VerifyResult r = verified(path(), tensors, job_of(path(), "nvfp4", "values"));
  CHECK(!r.agrees());
  CHECK(r.elements_differing <= changed);
}

TEST_CASE("what cannot be compared is refused with the kind of its reason") {
  const auto tensors = plain_tensors();
  test::write_tensors(path(), tensors);
  const auto kind = [&](const VerifyCase& job) {
    try {
      verified(job);
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find('\n') == std::string::npos);
      return e.exit_code();
    }
    return 0;
  };
  CHECK(kind(job_of(path(), kPlain, "")) == 2);
  CHECK(kind(job_of(path(), "mxfp4:contract=nothing")) == 2);
  CHECK(kind(job_of(path(), "bf16", "codes scales")) != 0);
  CHECK(kind(job_of(path() + "x", kPlain)) == 3);
  CHECK(kind(job_of(path(), "mxfp4", "scales")) == 3);        // 4 bytes, not 2
  CHECK(kind(job_of(path(), "mxfp4", "codes outer")) == 2);   // no outer scale
  CHECK(kind(job_of(path(), "nvfp4", "codes choice")) != 0);  // does not choose
  CHECK(kind(job_of(path(), "nvfp4:ragged=error", "codes")) == 0);
  VerifyCase job = job_of(path(), kPlain);
  job.codes = path() + ":y";
  CHECK(kind(job) == 3);
  job = job_of(path(), kPlain);
  job.input = path();  // several tensors
  CHECK(kind(job) != 0);
  job = job_of(path(), kPlain);
  job.layout = "diagonal";
  CHECK(kind(job) == 2);
  job.layout = "";
  job.axis = 2;
  CHECK(kind(job) != 0);
}

}  // namespace
}  // namespace fp4scope
