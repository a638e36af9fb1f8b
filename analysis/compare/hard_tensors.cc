// hard_tensors.cc: see the header. Input values only: nothing here says what a codec makes of them.
#include "analysis/compare/hard_tensors.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/generate.h"

namespace fp4scope {
namespace {

enum class Kind { kNudged, kStates, kSimilar, kFewBits, kAnyBits, kEqual, kPatterned, kSubnormal };
constexpr std::int64_t kKinds = 8;

float power(int e) {
  return std::ldexp(1.0f, e);
}

// Exponents of ordinary data most of the time, the whole range now and then.
int exponent(Random& random) {
  if (random.below(6) == 0) return static_cast<int>(random.below(276)) - 149;
  return static_cast<int>(random.below(24)) - 12;
}
float with_random_sign(Random& random, float v) {
  return random.coin() ? v : -v;
}
float significand(Random& random, int fraction_bits) {
  return 1.0f + std::ldexp(static_cast<float>(random.below(1u << fraction_bits)), -fraction_bits);
}

Block random_values(Kind kind, std::size_t n, Random& random) {
  constexpr float kPoints[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f,   5.0f,
                               6.0f,  7.0f,  0.5f,  0.0f,  1.5f, 0.125f, 4.0f};
  Block block(n);
  const int top = exponent(random);
  const float unit = power(top) * (random.coin() ? 1.0f : significand(random, 5));
  const int fraction_bits = random.coin() ? 7 : 23;
  for (float& v : block) {
    switch (kind) {
      case Kind::kFewBits:
        v = kPoints[random.below(std::size(kPoints))] * unit;
        break;
      case Kind::kAnyBits: {
        const std::uint32_t bits = random.bits() & 0x7fffffffu;
        v = std::bit_cast<float>(bits < 0x7f800000u ? bits : bits & 0x7fffffu);
        break;
      }
      case Kind::kEqual:
        v = unit;
        break;
      case Kind::kPatterned:
        v = std::bit_cast<float>((1 + random.below(254)) << 23 | ((1u << random.below(23)) - 1u));
        break;
      case Kind::kSubnormal:
        v = std::bit_cast<float>(random.bits() & (0xffffffu >> random.below(24)));
        break;
      default:
        v = std::ldexp(significand(random, fraction_bits),
                       top - static_cast<int>(random.below(10)));
        break;
    }
    v = with_random_sign(random, v);
  }
  return block;
}

SmallTensor nudged(const std::vector<Probe>& probes, SourceType source, Random& random) {
  SmallTensor tensor = probes[random.below(static_cast<std::uint32_t>(probes.size()))];
  const SourceGrid grid(source);
  for (float& v : tensor.x) {
    if (random.coin() || !std::isfinite(v)) continue;
    const std::int64_t moved = grid.step(v) + static_cast<std::int64_t>(random.below(5)) - 2;
    if (std::abs(moved) <= grid.largest()) v = grid.value(moved);
    if (random.below(4) == 0) v = -v;
  }
  return tensor;
}

}  // namespace

SmallTensor hard_tensor(const Backend& backend, const Recipe& recipe, SourceType source,
                        const std::vector<Probe>& probes, std::int64_t round, Random& random) {
  const auto kind = static_cast<Kind>(round % kKinds);
  if (kind == Kind::kNudged && !probes.empty()) return nudged(probes, source, random);
  const SourceGrid grid(source);
  float amax = 0;
  if (recipe.needs_amax() && random.below(4) != 0)
    amax = grid.toward_zero(significand(random, 7) * power(exponent(random) / 2));
  const BlockLab lab(backend, recipe, source, amax);
  std::vector<Block> blocks;
  if (kind == Kind::kStates) {
    const float peak = amax != 0 ? amax * (random.coin() ? 1.0f : random.unit()) : 2.875f;
    for (const Threshold& t : state_thresholds(lab, grid.toward_zero(peak), 32, random)) {
      blocks.push_back(t.below);
      blocks.push_back(t.above);
    }
  }
  while (blocks.size() < 64) {
    Block block = random_values(kind, static_cast<std::size_t>(lab.elements()), random);
    for (float& v : block) {
      if (amax != 0 && std::fabs(v) > amax) v = std::copysign(amax * random.unit(), v);
      v = grid.toward_zero(v);
    }
    blocks.push_back(std::move(block));
  }
  return lab.tensor_of(blocks);
}

SmallTensor ordinary_tensor(const Recipe& recipe, SourceType source, std::uint64_t seed,
                            std::int64_t round) {
  constexpr Distribution kKindsOfData[] = {Distribution::kNormal, Distribution::kLaplace,
                                           Distribution::kNormal, Distribution::kStudent5};
  constexpr float kScales[] = {1.0f, 0.02f, 3.7f, 0.11f};
  SmallTensor tensor;
  const std::int64_t block = recipe.format.block;
  const std::int64_t whole = std::lcm(block, std::max<std::int64_t>(1, recipe.rht.size));
  const std::int64_t across = std::max<std::int64_t>(1, 64 * block / whole);
  tensor.source = source;
  tensor.rows = std::max<std::int64_t>(64, recipe.format.block_rows);
  tensor.cols = across * whole;
  tensor.x.resize(static_cast<std::size_t>(tensor.rows * tensor.cols));
  generate(kKindsOfData[round % 4], seed + 1, round * std::ssize(tensor.x), kScales[round / 4 % 4],
           tensor.x);
  const SourceGrid grid(source);
  for (float& v : tensor.x) v = grid.toward_zero(v);
  return tensor;
}

}  // namespace fp4scope
