// hard_blocks.h: blocks of input values that sit on ties, thresholds and edges (kinds of
// design/architecture.md sections 1 and 7). Input values only: nothing here states what a codec
// shall make of them. The generator uses integers of a fixed engine, so the blocks are the same on
// every machine.
#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "sim/backend.h"

namespace fp4scope::test {

enum class Kind {
  kAllEqual,
  kOneHot,
  kTieHeavyBf16,
  kTieAligned,
  kPatternedExponents,
  kNan,
  kInfinity,
  kNegativeZero,
  kSubnormal,
  kMaximal,
  kScaleThreshold,
  kSimilar,
  kAnyBits,
};
inline constexpr int kKinds = 13;
const char* name_of(Kind kind);

struct BlockSource {
  explicit BlockSource(std::uint64_t seed) : engine(seed) {}
  std::mt19937_64 engine;

  std::uint32_t bits() { return static_cast<std::uint32_t>(engine()); }
  // 0 <= result < n
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(engine() % n); }
  bool coin() { return (engine() & 1) != 0; }
};

// Fills one block for a recipe. `encode_scale` is the NVFP4 g that the block will meet (1 for the
// other formats), so that tie-aligned values can be placed on the midpoints under that scale.
void fill_block(BlockSource& source, Kind kind, const Recipe& recipe, float encode_scale,
                std::span<float> block);

// Values that need binary64: the same values with bits below the binary32 fraction, some beyond the
// range of binary32.
std::vector<double> widen(BlockSource& source, const std::vector<float>& values);

}  // namespace fp4scope::test
