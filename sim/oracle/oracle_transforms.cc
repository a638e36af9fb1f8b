// oracle_transforms.cc: random Hadamard transform and the random bytes of stochastic rounding, of
// the oracle's own (spec/nvfp4.md 3.5, spec/scalars.md 2.3 and 2.4; SrStream in
// formats/contracts/common_options.h). Philox4x32-10: Salmon et al., SC11, with 64-bit products.
#include <array>

#include "formats/hd.h"
#include "sim/error.h"
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle {
namespace {

using Words = std::array<std::uint32_t, 4>;

Words philox(std::uint64_t key, Words counter) {
  auto key_low = static_cast<std::uint32_t>(key), key_high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t q = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(q >> 32) ^ counter[1] ^ key_low, static_cast<std::uint32_t>(q),
        static_cast<std::uint32_t>(p >> 32) ^ counter[3] ^ key_high, static_cast<std::uint32_t>(p)};
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return counter;
}

// The published signs of size 16, spec/nvfp4.md 3.5.
constexpr std::array<int, 16> kFixedSigns = {1,  1,  1,  -1, 1,  -1, -1, -1,
                                             -1, -1, -1, 1,  -1, 1,  -1, -1};

bool is_flipped(const RhtOptions& rht, std::uint32_t i, const Words& drawn) {
  switch (rht.signs) {
    case 0:
      return kFixedSigns.at(i) < 0;
    case 1:
      return false;
    default:
      return (drawn[i / 32] >> (i % 32) & 1u) != 0;
  }
}

// Entry of the Sylvester matrix: (-1)^(number of common one bits).
bool is_negative_entry(std::uint32_t i, std::uint32_t j) {
  return (__builtin_popcount(i & j) & 1) != 0;
}

// The exact sum of numbers; an exact zero is +0, as of an accumulator that starts there.
Number exact_sum(const std::vector<Number>& terms) {
  Number total;
  bool plus_infinity = false, minus_infinity = false, any_nan = false;
  Dyadic sum;
  for (const Number& t : terms) {
    any_nan |= t.is_nan();
    plus_infinity |= t.is_infinite() && !t.negative;
    minus_infinity |= t.is_infinite() && t.negative;
    if (t.is_finite()) sum = t.negative ? sum - t.magnitude : sum + t.magnitude;
  }
  if (any_nan || (plus_infinity && minus_infinity)) {
    total.kind = Number::Kind::kNan;
  } else if (plus_infinity || minus_infinity) {
    total.kind = Number::Kind::kInfinite;
    total.negative = minus_infinity;
  } else {
    total.negative = sum.sign() < 0;
    total.magnitude = total.negative ? Dyadic() - sum : sum;
  }
  return total;
}

// fl(1/sqrt(n)): the binary32 number c whose neighbourhood contains it, from c^2 * n around 1.
float rounded_inverse_sqrt(std::uint32_t n) {
  const Dyadic one = Dyadic::pow2(0), size(Integer(n), 0);
  std::uint32_t low = 0, high = 0x3f800000u;  // 1/sqrt(n) lies between the two
  const auto midpoint_square = [](std::uint32_t bits) {
    const Dyadic a = exact(bit_cast<float>(bits)).magnitude;
    const Dyadic m = (a + exact(bit_cast<float>(bits + 1)).magnitude).scaled(-1);
    return m * m;
  };
  // The smallest pattern whose midpoint with the next one is not below 1/sqrt(n).
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (midpoint_square(middle) * size >= one) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return bit_cast<float>(low);
}

DType16 type_of(SourceType source) {
  switch (source) {
    case SourceType::kBf16:
      return DType16::kBf16;
    case SourceType::kF16:
      return DType16::kF16;
    case SourceType::kF32:
    case SourceType::kF64:  // rounded to binary32 beforehand
      break;
  }
  return DType16::kF32;
}

// Output j of one group: the signs go on x, then row j of the (symmetric) matrix.
float transformed_value(const RhtOptions& rht, const std::vector<Number>& group, std::uint32_t j,
                        float factor) {
  std::vector<Number> terms = group;
  for (std::uint32_t i = 0; i < rht.size; ++i) {
    if (is_negative_entry(i, j)) terms[i].negative = !terms[i].negative;
  }
  if (rht.sum == RhtSum::kSeq) {
    float sum = 0;
    for (const Number& t : terms) sum = add32(sum, round32(t));
    return mul32(sum, factor);
  }
  if (rht.size == 16) {
    // The products with +-1/4 are exact, so that there is one rounding only.
    Number sum = exact_sum(terms);
    sum.magnitude = sum.magnitude.scaled(-2);
    return round32(sum);
  }
  return mul32(round32(exact_sum(terms)), factor);
}

// sr-stream=te, as sim/transforms.h says: which thread of the tuned 1D kernel holds an element, and
// the number of its word. A thread block has 128 threads and 128x128 elements; four stages of
// 64x64; in a stage a thread has 16 neighbours of one row of either half (iteration 0 and 1), which
// it walks in two waves of eight.
std::uint32_t te_byte(std::uint64_t seed, const Tile& tile, std::int64_t row, std::int64_t col,
                      std::int64_t width) {
  if (tile.source != SourceType::kBf16 || width % 32 != 0) {
    throw Error(ErrorKind::kData,
                "sr-stream=te: the kernel takes BF16 tensors whose rows and columns are multiples "
                "of 32");
  }
  const std::int64_t chunk = row / 128 * ((width + 127) / 128) + col / 128;
  const std::int64_t y = row % 128, x = col % 128;
  const std::int64_t stage = y / 64 * 2 + x / 64;
  const std::int64_t stage_row = y % 64, stage_col = x % 64;
  const std::int64_t iteration = stage_row / 32;
  const std::int64_t thread = stage_row % 32 * 4 + stage_col / 16;
  const bool upper_first = thread % 32 / 16 == 1;
  const std::int64_t half = stage_col % 16 / 8;
  const std::int64_t wave = upper_first ? 1 - half : half;
  const std::int64_t four = stage_col % 8 / 4;
  const std::int64_t word = 16 * stage + 4 * iteration + 2 * wave + four;
  const auto subsequence = static_cast<std::uint64_t>(thread + 128 * chunk);
  const Words words = philox(
      seed, {static_cast<std::uint32_t>(word / 4), 0, static_cast<std::uint32_t>(subsequence),
             static_cast<std::uint32_t>(subsequence >> 32)});
  return words[static_cast<std::size_t>(word % 4)] >> (8 * (stage_col % 4)) & 0xffu;
}

}  // namespace

std::uint32_t random_byte(const Recipe& recipe, const Tile& tile, std::int64_t row,
                          std::int64_t col) {
  const std::int64_t width = tile.tensor_cols != 0 ? tile.tensor_cols : tile.cols;
  if (recipe.sr.stream == SrStream::kTe) {
    return te_byte(recipe.sr.seed, tile, tile.first_row + row, tile.first_col + col, width);
  }
  const auto index =
      static_cast<std::uint64_t>((tile.first_row + row) * width + tile.first_col + col);
  const std::uint64_t call = index / 16;
  const Words words = philox(
      recipe.sr.seed, {static_cast<std::uint32_t>(call), static_cast<std::uint32_t>(call >> 32),
                       static_cast<std::uint32_t>(tile.tensor_id),
                       static_cast<std::uint32_t>(tile.tensor_id >> 32)});
  const std::uint64_t byte = index % 16;
  return words[byte / 4] >> (8 * (byte % 4)) & 0xffu;
}

Tile transformed(const Recipe& recipe, const Tile& tile, std::vector<float>& storage) {
  const RhtOptions& rht = recipe.rht;
  if (rht.size == 0) return tile;
  if (tile.cols % rht.size != 0) {
    throw Error(ErrorKind::kData, "rht=" + std::to_string(rht.size) +
                                      " needs rows of whole groups, found rows of " +
                                      std::to_string(tile.cols));
  }
  const Words drawn = philox(rht.signs >= 2 ? rht.signs - 2 : 0, {0, 0, 0, 0});
  const float factor = rounded_inverse_sqrt(rht.size);
  storage.assign(static_cast<std::size_t>(tile.rows * tile.cols), 0.0f);
  std::vector<Number> group(rht.size);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    for (std::int64_t start = 0; start < tile.cols; start += rht.size) {
      for (std::uint32_t i = 0; i < rht.size; ++i) {
        group[i] = exact(tile.f32[row * tile.stride + start + i]);
        if (is_flipped(rht, i, drawn)) group[i].negative = !group[i].negative;
      }
      for (std::uint32_t j = 0; j < rht.size; ++j) {
        storage[static_cast<std::size_t>(row * tile.cols + start + j)] =
            round_to_type(type_of(tile.source), transformed_value(rht, group, j, factor));
      }
    }
  }
  Tile out = tile;
  out.f32 = storage.data();
  out.f64 = nullptr;
  out.stride = tile.cols;
  return out;
}

}  // namespace fp4scope::oracle
