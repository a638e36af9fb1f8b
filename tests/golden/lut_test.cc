// lut_test.cc: elements from a table (custom:lut:NAME; rule: formats/lut.h) under INT4, FP8 and
// NVFP4 contracts on every CPU backend. Expected: the published constants of NF4 (Dettmers et al.,
// arXiv 2305.14314, appendix E), midpoints in exact fractions, small tables by hand. The exact
// oracle has no tables.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "sim/custom_format.h"
#include "sim/format_file.h"
#include "tests/support/backends.h"
#include "tests/support/container_bytes.h"
#include "tests/support/paths.h"
#include "tests/support/quantized.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

struct Nf4 {
  double published;
  std::uint32_t bits;        // as binary32
  std::uint32_t times3;      // RN32(3 * value)
  std::uint32_t times3_b16;  // that as BF16
};
constexpr Nf4 kNf4[] = {
    {-1.0, 0xbf800000, 0xc0400000, 0xc040},
    {-0.6961928009986877, 0xbf3239b1, 0xc005ab45, 0xc006},
    {-0.5250730514526367, 0xbf066b30, 0xbfc9a0c8, 0xbfca},
    {-0.39491748809814453, 0xbeca32a0, 0xbf97a5f8, 0xbf98},
    {-0.28444138169288635, 0xbe91a24d, 0xbf5a7374, 0xbf5a},
    {-0.18477343022823334, 0xbe3d353f, 0xbf0de7ef, 0xbf0e},
    {-0.09105003625154495, 0xbdba7871, 0xbe8bda55, 0xbe8c},
    {0.0, 0x00000000, 0x00000000, 0x0000},
    {0.07958029955625534, 0x3da2faff, 0x3e74787e, 0x3e74},
    {0.16093020141124725, 0x3e24cae3, 0x3ef73054, 0x3ef7},
    {0.24611230194568634, 0x3e7c04dd, 0x3f3d03a6, 0x3f3d},
    {0.33791524171829224, 0x3ead033a, 0x3f81c26c, 0x3f82},
    {0.44070982933044434, 0x3ee1a4b8, 0x3fa93b8a, 0x3fa9},
    {0.5626170039176941, 0x3f1007ab, 0x3fd80b80, 0x3fd8},
    {0.7229568362236023, 0x3f3913b3, 0x400acec6, 0x400b},
    {1.0, 0x3f800000, 0x40400000, 0x4040},
};

// Between codes i and i + 1: the last binary32 below the midpoint, the first above it, and the
// midpoint itself where it is a binary32 number; the even code has it.
struct Midpoint {
  std::uint32_t below, above, tie;
  bool has_tie;
};
constexpr Midpoint kMidpoints[] = {
    {0xbf591cd9, 0xbf591cd8, 0, false},         {0xbf1c5271, 0xbf1c5270, 0, false},
    {0xbeeb8481, 0xbeeb847f, 0xbeeb8480, true}, {0xbeadea77, 0xbeadea76, 0, false},
    {0xbe703ced, 0xbe703cec, 0, false},         {0xbe0d38bc, 0xbe0d38bb, 0, false},
    {0xbd3a7872, 0xbd3a7870, 0xbd3a7871, true}, {0x3d22fafe, 0x3d22fb00, 0x3d22faff, true},
    {0x3df64862, 0x3df64863, 0, false},         {0x3e5067df, 0x3e5067e1, 0x3e5067e0, true},
    {0x3e9582d4, 0x3e9582d5, 0, false},         {0x3ec753f8, 0x3ec753fa, 0x3ec753f9, true},
    {0x3f006d03, 0x3f006d04, 0, false},         {0x3f248dae, 0x3f248db0, 0x3f248daf, true},
    {0x3f5c89d9, 0x3f5c89da, 0, false},
};

struct Probe {
  float x;
  std::uint32_t code;
  std::uint32_t value;  // of the decoded element, as bits
};
// A format, the largest element of every block and the scale bytes that it gives.
struct Setting {
  std::string recipe;
  float amax;
  std::vector<std::uint8_t> scale;
};

// Every block is amax and then probes; the block is read from the recipe.
void check_probes(const Setting& setting, const std::vector<Probe>& probes,
                  std::shared_ptr<const FormatLibrary> library = nullptr) {
  CAPTURE(setting.recipe);
  CAPTURE(setting.amax);
  const Recipe recipe = parse_recipe(setting.recipe, std::move(library));
  REQUIRE(recipe.format.lut != nullptr);
  const auto block = static_cast<std::size_t>(recipe.format.block);
  std::vector<float> x;
  std::vector<std::size_t> places;
  for (const Probe& probe : probes) {
    if (x.size() % block == 0) x.push_back(setting.amax);
    places.push_back(x.size());
    x.push_back(probe.x);
  }
  x.resize((x.size() + block - 1) / block * block, 0.0f);
  for (const Backend* backend : available_backends()) {
    CAPTURE(backend->name());
    const Quantized got = quantized(*backend, recipe, x, 1, std::ssize(x));
    REQUIRE(got.tile.scales.size() == x.size() / block * setting.scale.size());
    for (std::size_t i = 0; i < got.tile.scales.size(); ++i) {
      CHECK(got.tile.scales[i] == setting.scale[i % setting.scale.size()]);
    }
    for (std::size_t i = 0; i < probes.size(); ++i) {
      CAPTURE(probes[i].x);
      CHECK(got.tile.codes[places[i]] == probes[i].code);
      CHECK(bit_cast<std::uint32_t>(got.values[places[i]]) == probes[i].value);
    }
  }
}

// Scale bytes of 1, 4, 1/4 and 3 in the three families, and where the quotient is binary32.
const char* const kUnderInt4 = "custom:lut:nf4/64:bf16,dtype=f32";
const char* const kUnderFp8 = "custom:lut:nf4/64:f32";
const char* const kUnderNvfp4 = "custom:lut:nf4/16:e4m3";
const std::vector<Setting> kPowers = {
    {kUnderInt4, 1.0f, {0x80, 0x3f}},      {kUnderInt4, 4.0f, {0x80, 0x40}},
    {kUnderInt4, 0.25f, {0x80, 0x3e}},     {kUnderFp8, 1.0f, {0, 0, 0x80, 0x3f}},
    {kUnderFp8, 4.0f, {0, 0, 0x80, 0x40}}, {kUnderFp8, 0.25f, {0, 0, 0x80, 0x3e}},
    {kUnderNvfp4, 1.0f, {0x38}},           {kUnderNvfp4, 4.0f, {0x48}},
    {kUnderNvfp4, 0.25f, {0x28}},
};

float of(std::uint32_t bits) {
  return bit_cast<float>(bits);
}
// Exact: the factor is a power of two.
Probe scaled(float x, std::uint32_t code, float power) {
  return {x * power, code, bit_cast<std::uint32_t>(of(kNf4[code].bits) * power)};
}

}  // namespace

TEST_CASE("the built-in nf4 has the published constants") {
  REQUIRE(built_in_luts().size() == 1);
  const NamedLut& nf4 = built_in_luts()[0];
  CHECK(nf4.name == "nf4");
  REQUIRE(nf4.lut->count == 16);
  for (std::size_t i = 0; i < 16; ++i) {
    CAPTURE(i);
    CHECK(bit_cast<std::uint32_t>(nf4.lut->value[i]) == kNf4[i].bits);
    CHECK(static_cast<float>(kNf4[i].published) == of(kNf4[i].bits));
  }
}

TEST_CASE("nf4: every value has its code, and codes change at the midpoints") {
  for (const Setting& setting : kPowers) {
    const float power = setting.amax;
    std::vector<Probe> probes;
    for (std::uint32_t code = 0; code < 16; ++code) {
      probes.push_back(scaled(of(kNf4[code].bits), code, power));
    }
    int ties = 0;
    for (std::uint32_t i = 0; i < 15; ++i) {
      const Midpoint& m = kMidpoints[i];
      probes.push_back(scaled(of(m.below), i, power));
      probes.push_back(scaled(of(m.above), i + 1, power));
      if (m.has_tie) probes.push_back(scaled(of(m.tie), i + i % 2, power));
      ties += m.has_tie;
    }
    CHECK(ties == 6);
    probes.push_back(scaled(0.0f, 7, power));
    probes.push_back(scaled(-0.0f, 7, power));
    check_probes(setting, probes);
  }
}

TEST_CASE("nf4 under the scale 3: a value comes back rounded once") {
  // FP8: S = RN(1/3) = 0x3eaaaaab, and RN(1/S) = 3; x * S is within two units of x / 3, far from
  // every midpoint. E4M3: 3 = 1.5 * 2, 0x44.
  std::vector<Probe> probes;
  for (std::uint32_t code = 0; code < 16; ++code) {
    probes.push_back({of(kNf4[code].times3), code, kNf4[code].times3});
  }
  for (const float sign : {1.0f, -1.0f}) {
    const bool is_negative = sign < 0;
    // 1/2 is nearer to 0.4407 than to 0.5626, -1/2 to -0.5251; 2/3 to 0.7230, -2/3 to -0.6962.
    for (const auto& [x, code] :
         {std::pair{1.5f, is_negative ? 2u : 12u}, std::pair{2.0f, is_negative ? 1u : 14u}}) {
      probes.push_back({sign * x, code, kNf4[code].times3});
    }
  }
  check_probes({kUnderInt4, 3.0f, {0x40, 0x40}}, probes);
  check_probes({kUnderFp8, 3.0f, {0, 0, 0x40, 0x40}}, probes);
  check_probes({kUnderNvfp4, 3.0f, {0x44}}, probes);
}

TEST_CASE("nf4 with BF16 weights rounds the quotient and the value to BF16") {
  std::vector<Probe> probes;
  for (std::uint32_t code = 0; code < 16; ++code) {
    probes.push_back({of(kNf4[code].times3), code, kNf4[code].times3_b16 << 16});
  }
  check_probes({"custom:lut:nf4/64:bf16", 3.0f, {0x40, 0x40}}, probes);
  // The quotient 0x3df64863, just above the midpoint of codes 8 and 9, becomes 0x3df6 below it;
  // 0x3d22fafe, just below that of 7 and 8, becomes 0x3d23 above it.
  check_probes({"custom:lut:nf4/64:bf16", 1.0f, {0x80, 0x3f}},
               {{of(0x3df64863), 8, 0x3da30000}, {of(0x3d22fafe), 8, 0x3da30000}});
}

TEST_CASE("nf4: blocks of zeros have code 7") {
  // spec/more.md 1.1: a zero group of ct-rtn stores the epsilon of the weight's type. 2.1: 1.
  const Setting settings[] = {{kUnderInt4, 0.0f, {0, 0x34}},  // 2^-23
                              {"custom:lut:nf4/64:bf16", 0.0f, {0, 0x3c}},
                              {kUnderFp8, 0.0f, {0, 0, 0x80, 0x3f}},
                              {kUnderNvfp4, 0.0f, {0}}};
  for (const Setting& setting : settings) {
    check_probes(setting, {{0.0f, 7, 0}, {-0.0f, 7, 0}});
  }
}

// Tables of a format file whose midpoints are exact in every type involved.
TEST_CASE("a tie takes the even code, and of two even or two odd codes the smaller") {
  TempDir dir;
  const std::string path = dir.file("tables.toml");
  write_file(path,
             "[[lut]]\nname = \"mixed\"\nvalues = [0.75, -1, 0.25, 1, -0.25, -0.5]\n"
             "[[lut]]\nname = \"rising\"\nvalues = [-1, 0, 1]\n"
             "[[lut]]\nname = \"falling\"\nvalues = [1, 0, -1, 0.5, 0.75, -0.5]\n");
  const auto library = load_format_file(path);
  struct Table {
    const char* name;
    std::vector<Probe> probes;
  };
  const auto probe = [](float x, std::uint32_t code, float value) {
    return Probe{x, code, bit_cast<std::uint32_t>(value)};
  };
  const Table tables[] = {
      // In order of value: -1 (code 1), -0.5 (5), -0.25 (4), 0.25 (2), 0.75 (0), 1 (3).
      {"mixed",
       {probe(-0.75f, 1, -1.0f),    // 1 and 5: the smaller odd code, the smaller value
        probe(-0.375f, 4, -0.25f),  // 5 and 4: even
        probe(0.0f, 2, 0.25f),      // 4 and 2: the smaller even code, the larger value
        probe(-0.0f, 2, 0.25f),     //
        probe(0.5f, 0, 0.75f),      // 2 and 0
        probe(0.875f, 0, 0.75f),    // 0 and 3: even
        probe(-0.765625f, 1, -1.0f), probe(-0.734375f, 5, -0.5f), probe(-0.390625f, 5, -0.5f),
        probe(-0.359375f, 4, -0.25f), probe(-0.015625f, 4, -0.25f), probe(0.015625f, 2, 0.25f),
        probe(0.484375f, 2, 0.25f), probe(0.515625f, 0, 0.75f), probe(0.859375f, 0, 0.75f),
        probe(0.890625f, 3, 1.0f)}},
      {"rising",
       {probe(-0.5f, 0, -1.0f),  // 0 and 1: even
        probe(0.5f, 2, 1.0f),    // 1 and 2: even, the larger code
        probe(0.4921875f, 1, 0.0f), probe(-0.4921875f, 1, 0.0f)}},
      // In order of value: -1 (2), -0.5 (5), 0 (1), 0.5 (3), 0.75 (4), 1 (0).
      {"falling",
       {probe(-0.75f, 2, -1.0f),   // 2 and 5: even
        probe(-0.25f, 1, 0.0f),    // 5 and 1: the smaller odd code, the larger value
        probe(0.25f, 1, 0.0f),     // 1 and 3: the smaller odd code
        probe(0.625f, 4, 0.75f),   // 3 and 4: even, the larger code
        probe(0.875f, 0, 1.0f)}},  // 4 and 0: the smaller even code
  };
  for (const Table& table : tables) {
    const std::string shape = std::string("custom:lut:") + table.name;
    check_probes({shape + "/64:bf16", 1.0f, {0x80, 0x3f}}, table.probes, library);
    check_probes({shape + "/64:f32", 1.0f, {0, 0, 0x80, 0x3f}}, table.probes, library);
    check_probes({shape + "/16:e4m3", 1.0f, {0x38}}, table.probes, library);
  }
}
