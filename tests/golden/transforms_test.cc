// transforms_test.cc: the random Hadamard transform and stochastic rounding against the recorded
// vectors: nvfp4/rht16.json (64 vectors, both sums, with and without signs), scalars/philox_sr.json
// (words of the generator, soft_sr rows of the element cast); sums of far exponents against exact
// ones.
#include "sim/transforms.h"

#include <string>

#include "formats/hadamard.h"
#include "formats/minifloat.h"
#include "sim/oracle/dyadic.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::bf16_floats;
using test::Diff;
using test::hex_bits;
using test::hex_float;
using test::hex_words;
using test::load_golden;

TEST_CASE("rht=16 equals rht16.json with and without signs, under both sums") {
  const auto json = load_golden("nvfp4/rht16.json");
  const std::vector<float> x = bf16_floats(json["x_bf16"]);
  REQUIRE(x.size() == 64 * 16);
  for (const char* sum : {"mma-f32", "seq"}) {
    for (const auto& [signs, key] : {std::pair{"fixed", "y_bf16"}, {"none", "y_nosign_bf16"}}) {
      const Recipe recipe =
          parse_recipe(std::string("nvfp4:rht=16,rht-signs=") + signs + ",rht-sum=" + sum);
      const std::vector<float> want = bf16_floats(json[key]);
      REQUIRE(want.size() == x.size());
      Diff diff(std::string("nvfp4/rht16.json ") + signs + " " + sum);
      // As 64 rows of one group and as 4 rows of 16 groups.
      for (const std::int64_t cols : {16, 256}) {
        std::vector<float> y = x;
        Tile tile{x.data(), nullptr, 1024 / cols, cols, cols};
        tile.source = SourceType::kBf16;
        apply_rht(recipe, tile, y.data());
        for (std::size_t i = 0; i < y.size(); ++i) {
          diff.compare(bit_cast<std::uint32_t>(y[i]), bit_cast<std::uint32_t>(want[i]),
                       "value " + std::to_string(i));
        }
      }
      diff.check();
    }
  }
}

TEST_CASE("the matrix of size 16 is R of rht16.json") {
  const auto json = load_golden("nvfp4/rht16.json");
  Diff diff("nvfp4/rht16.json R");
  for (int i = 0; i < 16; ++i) {
    // Row i of R is the image of the unit vector i.
    float x[16] = {}, y[16];
    x[i] = 1;
    hadamard(16, hadamard_signs(0), RhtSum::kMmaF32, x, y);
    for (int j = 0; j < 16; ++j) {
      const float want =
          json["R_times_4"][static_cast<std::size_t>(i)][static_cast<std::size_t>(j)].get<float>() /
          4;
      diff.compare(bit_cast<std::uint32_t>(y[j]), bit_cast<std::uint32_t>(want),
                   std::to_string(i) + " " + std::to_string(j));
    }
  }
  diff.check();
}

// Element 0 without signs: a quarter of the exact sum, rounded once, for n = 16 (spec/nvfp4.md
// 3.5), otherwise the rounded sum times fl(1/sqrt(n)).
float exact_first(int n, const std::vector<float>& x) {
  oracle::Dyadic sum;
  for (const float v : x) {
    const oracle::Number e = oracle::exact(v);
    sum = e.negative ? sum - e.magnitude : sum + e.magnitude;
  }
  oracle::Number total;
  total.negative = sum.sign() < 0;
  total.magnitude = total.negative ? oracle::Dyadic() - sum : sum;
  if (n == 16) {
    total.magnitude = total.magnitude.scaled(-2);
    return oracle::round32(total);
  }
  const float factor = bit_cast<float>(n == 32 ? 0x3e3504f3u : n == 64 ? 0x3e000000u : 0x3db504f3u);
  return oracle::mul32(oracle::round32(total), factor);
}

TEST_CASE("sums by butterflies and by long addition are exact at every spread of exponents") {
  Diff diff("rht=16..128 of values 2^20 to 2^89 apart");
  for (const int n : {16, 32, 64, 128}) {
    for (int k = 20; k < 90; ++k) {
      const float large = bit_cast<float>(static_cast<std::uint32_t>(127 + k) << 23 | 0x7fffffu);
      std::vector<float> x(static_cast<std::size_t>(n), large);
      x[0] = 0x1.000002p0f;
      for (const bool alternates : {false, true}) {
        if (alternates) {
          for (std::size_t i = 1; i < x.size(); i += 2) x[i] = -x[i];
        }
        std::vector<float> y(x.size());
        hadamard(n, hadamard_signs(1), RhtSum::kMmaF32, x.data(), y.data());
        diff.compare(bit_cast<std::uint32_t>(y[0]), bit_cast<std::uint32_t>(exact_first(n, x)),
                     std::to_string(n) + " 2^" + std::to_string(k));
      }
    }
  }
  diff.check();
}

TEST_CASE("the element cast with random bytes equals the soft_sr rows") {
  const auto json = load_golden("scalars/philox_sr.json");
  Diff diff("scalars/philox_sr.json soft_sr");
  for (const auto& row : json["soft_sr"]) {
    const std::string x = row[0];
    const auto byte = row[1].get<std::uint32_t>();
    const CastPolicy policy{Rounding::kStochastic,
                            Overflow::kSaturate,
                            {hardware_nan_code(kE2M1), NanRule::Sign::kDrop}};
    diff.compare(cast<Lane<1>>(kE2M1, policy, hex_float(x), byte), row[2].get<std::uint32_t>(),
                 x + " " + std::to_string(byte));
  }
  CHECK(diff.compared() == 350);
  diff.check();
}

// Words of the recorded generator through the two streams. A stream that starts at (seed,
// subsequence, offset) of a recorded row reads its bytes.
TEST_CASE("random bytes are the recorded Philox words") {
  const auto json = load_golden("scalars/philox_sr.json");
  Diff index("philox_sr.json through sr-stream=index"), te("philox_sr.json through sr-stream=te");
  for (const auto& row : json["philox"]) {
    const auto seed = row["seed"].get<std::uint64_t>();
    const auto subsequence = row["subsequence"].get<std::uint64_t>();
    const auto offset = row["offset"].get<std::uint64_t>();
    const std::string where = std::to_string(seed) + " " + std::to_string(subsequence);
    std::vector<std::uint8_t> want;
    for (const auto& word : row["out"]) {
      const std::uint32_t bits = hex_bits(word);
      for (int i = 0; i < 4; ++i) want.push_back(static_cast<std::uint8_t>(bits >> (8 * i)));
    }
    REQUIRE(want.size() == 48);
    // Index stream: counter = {i/16, tensor}; the recorded counter is {offset, subsequence}.
    const Recipe recipe = parse_recipe("mxfp4:round=sr,seed=" + std::to_string(seed));
    Tile tile;
    tile.rows = 1;
    tile.cols = 48;
    tile.first_col = static_cast<std::int64_t>(offset * 16);
    tile.tensor_cols = std::int64_t{1} << 40;
    tile.tensor_id = subsequence;
    std::vector<std::uint8_t> got(48);
    random_bytes(recipe, tile, 0, 0, 48, got.data());
    for (std::size_t i = 0; i < 48; ++i) index.compare(got[i], want[i], where);
    // One by one from the middle of a call.
    for (std::int64_t i = 0; i < 48; ++i) {
      random_bytes(recipe, tile, 0, i, 1, got.data());
      index.compare(got[0], want[static_cast<std::size_t>(i)], where + " single");
    }
    // The kernel's stream starts at offset 0; thread t of chunk q has subsequence t + 128 q. Its
    // words 0..3 are stage 0, iteration 0: row t/4, columns 16 (t%4)...; words 4..7 iteration 1.
    if (offset != 0 || subsequence >= 128) continue;
    const Recipe kernel = parse_recipe("nvfp4:round=sr,sr-stream=te,seed=" + std::to_string(seed));
    const auto t = static_cast<std::int64_t>(subsequence);
    Tile bf16;
    bf16.rows = 128;
    bf16.cols = 128;
    bf16.source = SourceType::kBf16;
    REQUIRE(t % 32 / 16 == 0);  // lower half first
    for (int iteration = 0; iteration < 2; ++iteration) {
      random_bytes(kernel, bf16, 32 * iteration + t / 4, 16 * (t % 4), 16, got.data());
      for (std::size_t i = 0; i < 16; ++i) {
        te.compare(got[i], want[16 * static_cast<std::size_t>(iteration) + i], where);
      }
    }
  }
  index.check();
  te.check();
}

}  // namespace
}  // namespace fp4scope
