// oracle_transforms_test.cc: the exact oracle's Hadamard transform and random bytes against
// ../shared/vectors (nvfp4/rht16.json, scalars/philox_sr.json) and the definitions of spec/nvfp4.md
// 3.5, and stochastic rounding inside a block.
#include <doctest/doctest.h>

#include <array>
#include <string>

#include "sim/error.h"
#include "sim/oracle/oracle_blocks.h"
#include "tests/shared/oracle_runs.h"
#include "tests/support/vectors.h"

using namespace fp4scope;
using namespace fp4scope::test;
using nlohmann::json;

namespace {

std::vector<float> transform(const std::string& keys, const std::vector<float>& x,
                             std::int64_t rows, SourceType source) {
  const std::int64_t cols = std::ssize(x) / rows;
  std::vector<float> storage;
  const Tile tile{x.data(), nullptr, rows, cols, cols, source};
  const Tile got = oracle::transformed(parse_recipe("bf16:" + keys), tile, storage);
  return {got.f32, got.f32 + x.size()};
}

}  // namespace

TEST_CASE("the oracle's Hadamard transform of size 16") {
  if (!have_shared("vectors")) return;
  const json file = load_shared("nvfp4/rht16.json");
  const std::vector<float> x = bf16_floats(file["x_bf16"]);
  REQUIRE(x.size() == 64 * 16);
  for (const auto& [signs, key] : {std::pair{"fixed", "y_bf16"}, {"none", "y_nosign_bf16"}}) {
    for (const char* sum : {"mma-f32", "seq"}) {
      Diff diff(std::string("oracle: nvfp4/rht16.json ") + signs + " " + sum);
      std::vector<std::uint32_t> want = hex_words(file[key], 4);
      for (std::uint32_t& w : want) w <<= 16;
      const std::vector<float> got = transform(
          std::string("rht=16,rht-signs=") + signs + ",rht-sum=" + sum, x, 4, SourceType::kBf16);
      compare_floats(diff, bits_of(got), want, key);
      diff.check();
    }
  }
}

TEST_CASE("Hadamard transforms of one element: the factor, the matrix and the signs of a seed") {
  if (!have_shared("vectors")) return;
  // fl(1/sqrt(2)) = 0x3f3504f3; sizes 32 and 128 divide it by 4 and 8, sizes 16 and 64 are exact.
  struct Size {
    std::uint32_t n, factor;
  };
  constexpr Size kSizes[] = {
      {16, 0x3e800000}, {32, 0x3e3504f3}, {64, 0x3e000000}, {128, 0x3db504f3}};
  const json file = load_shared("scalars/philox_sr.json");
  const json& first = file["philox"][0];
  REQUIRE((first["seed"] == 0 && first["subsequence"] == 0 && first["offset"] == 0));
  Diff diff("oracle: rht=16..128 of one element");
  for (const Size& size : kSizes) {
    for (const char* sum : {"mma-f32", "seq"}) {
      // Row i of x is one at column i.
      std::vector<float> x(std::size_t{size.n} * size.n, 0.0f);
      for (std::size_t i = 0; i < size.n; ++i) x[i * size.n + i] = 1;
      const std::vector<float> y =
          transform("rht=" + std::to_string(size.n) + ",rht-signs=seed0,rht-sum=" + sum, x, size.n,
                    SourceType::kF32);
      for (std::uint32_t i = 0; i < size.n; ++i) {
        const std::string word = first["out"][i / 32];
        const std::uint32_t flip = hex_bits(word) >> (i % 32) & 1u;
        for (std::uint32_t j = 0; j < size.n; ++j) {
          const auto common = static_cast<std::uint32_t>(__builtin_popcount(i & j)) & 1u;
          diff.compare(bit_cast<std::uint32_t>(y[i * size.n + j]),
                       size.factor | (flip ^ common) << 31, at(sum, i * size.n + j));
        }
      }
    }
  }
  diff.check();
}

TEST_CASE("the two sums of a Hadamard transform differ where an intermediate sum is rounded") {
  // 2^24 + 1 + 1: in order both ones are lost to ties, exactly they make 2. Column 0, no signs.
  std::vector<float> x(16, 0.0f);
  x[0] = 16777216.0f;
  x[1] = x[2] = 1;
  Diff diff("oracle: rht-sum=seq and mma-f32");
  diff.compare(bit_cast<std::uint32_t>(
                   transform("rht=16,rht-signs=none,rht-sum=seq", x, 1, SourceType::kF32)[0]),
               0x4a800000u, "seq: 2^24 / 4");
  diff.compare(bit_cast<std::uint32_t>(
                   transform("rht=16,rht-signs=none,rht-sum=mma-f32", x, 1, SourceType::kF32)[0]),
               0x4a800001u, "mma-f32: (2^24 + 2) / 4");
  diff.check();
  CHECK_THROWS_AS(transform("rht=32", x, 1, SourceType::kF32), Error);
}

TEST_CASE("random bytes of sr-stream=index are those of the recorded Philox calls") {
  if (!have_shared("vectors")) return;
  Diff diff("oracle: scalars/philox_sr.json philox, index");
  const json file = load_shared("scalars/philox_sr.json");
  for (const json& row : file["philox"]) {
    Recipe recipe = parse_recipe("mxfp4:round=sr");
    recipe.sr.seed = row["seed"].get<std::uint64_t>();
    Tile tile;
    tile.rows = 1, tile.cols = 48, tile.tensor_cols = std::int64_t{1} << 40;
    tile.first_col = row["offset"].get<std::int64_t>() * 16;
    tile.tensor_id = row["subsequence"].get<std::uint64_t>();
    for (std::int64_t i = 0; i < 48; ++i) {
      const std::string word = row["out"][static_cast<std::size_t>(i / 4)];
      diff.compare(oracle::random_byte(recipe, tile, 0, i), hex_bits(word) >> (8 * (i % 4)) & 0xffu,
                   at("byte", static_cast<std::size_t>(i)));
    }
  }
  diff.check();
}

TEST_CASE("random bytes of sr-stream=te: the words of thread 7 of the first thread block") {
  if (!have_shared("vectors")) return;
  const json file = load_shared("scalars/philox_sr.json");
  const json& row = file["philox"][1];
  REQUIRE((row["subsequence"] == 7 && row["offset"] == 0));
  Recipe recipe = parse_recipe("nvfp4:contract=te,round=sr,sr-stream=te");
  recipe.sr.seed = row["seed"].get<std::uint64_t>();
  Tile tile;
  tile.rows = 128, tile.cols = 128, tile.source = SourceType::kBf16;
  Diff diff("oracle: scalars/philox_sr.json philox, te");
  // Row 1 and row 33, columns 48 to 63; the lower half of the sixteen comes first.
  for (std::int64_t i = 0; i < 32; ++i) {
    const std::string word = row["out"][static_cast<std::size_t>(i / 4)];
    diff.compare(oracle::random_byte(recipe, tile, i < 16 ? 1 : 33, 48 + i % 16),
                 hex_bits(word) >> (8 * (i % 4)) & 0xffu, at("byte", static_cast<std::size_t>(i)));
  }
  diff.check();
  tile.source = SourceType::kF32;
  CHECK_THROWS_AS(oracle::random_byte(recipe, tile, 0, 0), Error);
}

TEST_CASE("stochastic rounding in an MXFP4 block takes the element's byte") {
  if (!have_shared("vectors")) return;
  Diff diff("oracle: scalars/philox_sr.json soft_sr in a block");
  const json file = load_shared("scalars/philox_sr.json");
  std::vector<float> block(32, 0.0f);
  block[0] = 6;  // the scale is 1
  int outside = 0;
  for (const json& row : file["soft_sr"]) {
    const std::string in = row[0];
    const std::uint32_t byte = row[1];
    const float x = hex_float(in);
    if (!(x >= -6 && x <= 6)) {  // the block would have another scale
      ++outside;
      continue;
    }
    // A seed that gives the second element the recorded byte.
    Recipe recipe = parse_recipe("mxfp4:contract=torchao-rceil,round=sr");
    block[1] = x;
    const Tile tile{block.data(), nullptr, 1, 32, 32};
    while (oracle::random_byte(recipe, tile, 0, 1) != byte) ++recipe.sr.seed;
    const QuantizedTile got = oracle_run(recipe, block, 1).tile;
    diff.compare(got.scales[0], 127, in);
    diff.compare(got.codes[1], row[2], in + " byte " + std::to_string(byte));
  }
  diff.check();
  CHECK(file["soft_sr"].size() == 350);
  CHECK(outside == 30);
}
