// probe_blocks.h: blocks of deliberate values under one recipe and one outer scale, and the search
// for inputs one step of the source type apart between which a scale, a choice or a code changes.
// Thresholds are found by bisection through a backend, so no rule is written a second time here.
// Private to probes.cc, separate.cc and their parts.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "analysis/compare/outcome.h"
#include "analysis/compare/source_grid.h"

namespace fp4scope {

// Integers of a fixed engine, so that every machine draws the same values.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint32_t bits() { return static_cast<std::uint32_t>(engine_() >> 32); }
  std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>(std::uint64_t{bits()} * n >> 32);
  }
  bool coin() { return (bits() & 1u) != 0; }
  // In [0, 1), 24 bits.
  float unit() { return static_cast<float>(bits() >> 8) * 0x1p-24f; }

 private:
  std::mt19937_64 engine_;
};

// The elements under one block scale, [content rows, block]. Of a 2-D block two rows are used (one,
// where a row has 64 elements or more): the band is partial.
using Block = std::vector<float>;

struct BlockResult {
  bool is_refused = false;
  std::uint8_t choice = 0;
  std::vector<std::uint8_t> scales;  // format.scale_bytes of the first row
  std::vector<std::uint8_t> codes;   // [content rows, block, code bytes]
  // What a scale threshold changes: the outermost scale and the choice.
  bool same_scale(const BlockResult& other, bool level1_only) const;
  // The same with the one-bit levels.
  bool same_state(const BlockResult& other) const { return same_scale(other, false); }
};

class BlockLab {
 public:
  // `amax` is the tensor (or row) maximum that an anchor block brings along; 0: no anchor, for
  // recipes whose outer scale does not depend on the tensor.
  BlockLab(const Backend& backend, const Recipe& recipe, SourceType source, float amax);

  const Recipe& recipe() const { return recipe_; }
  const SourceGrid& grid() const { return grid_; }
  SourceType source() const { return source_; }
  float amax() const { return amax_; }
  std::int64_t elements() const { return rows_ * recipe_.format.block; }
  bool has_micro_levels() const;

  // Blocks side by side behind the anchor, 16 to a row (of a 2-D recipe all in one band); the last
  // row is filled up with the first blocks. Rows hold whole groups of a Hadamard transform.
  SmallTensor tensor_of(const std::vector<Block>& blocks) const;
  // Each block by itself would give the same: a refusal is found by halving. Where the recipe has
  // values but no codes (NaN that stays NaN) the results are empty.
  std::vector<BlockResult> run(const std::vector<Block>& blocks) const;
  // Decoded values [elements] of a block with these codes under the scales of `result`.
  std::vector<float> decoded(const BlockResult& result, std::uint8_t code) const;

 private:
  std::int64_t blocks_in_row(std::int64_t blocks) const;
  std::vector<Block> anchored(const std::vector<Block>& blocks) const;
  void run_range(const std::vector<Block>& blocks, std::size_t first, std::size_t last,
                 std::vector<BlockResult>& results) const;

  const Backend& backend_;
  Recipe recipe_;  // without its transform: blocks are what the codec sees
  std::int64_t transform_ = 1;
  SourceType source_;
  SourceGrid grid_;
  float amax_;
  std::int64_t rows_;
};

// Two blocks that differ in one step of one element (or of the maximum), with different results.
struct Threshold {
  Block below, above;
};

// Contents of a block whose maximum is the number `step`.
enum class Fill {
  kMixed,   // magnitudes from 0.17 of the maximum up, of both signs
  kThrees,  // the maximum and three quarters of it, which map-to-4 decodes exactly
  kOneHot   // zeros
};
Block filled_block(const BlockLab& lab, Fill fill, std::int64_t step, std::int64_t position);

// Magnitudes up to the peak, of both signs, like those of real data; the peak at `position`.
Block random_block(const BlockLab& lab, float peak, std::int64_t position, Random& random);

// Where the block scale (or the choice) changes as the maximum grows from `least` to `most` steps;
// at most `limit` of them, evenly chosen, in rising order. The position of the maximum moves
// through the block.
std::vector<Threshold> scale_thresholds(const BlockLab& lab, Fill fill, std::int64_t least,
                                        std::int64_t most, std::size_t limit);

// Where the choice or a one-bit level changes while one element moves and the maximum stays: random
// pairs of blocks with the maximum `peak` are walked from one to the other. Finds about `pairs`, or
// none for recipes whose scale depends on the maximum alone.
std::vector<Threshold> state_thresholds(const BlockLab& lab, float peak, std::size_t pairs,
                                        Random& random);

// Blocks with the maximum `peak` whose other elements sit on both sides of the threshold between
// each pair of adjacent codes, of either sign, and on the midpoint of the decoded values.
// `level`: how many one-bit levels multiply the elements, 0 for formats without. `choice`: of
// recipes that choose, the candidate that the blocks take; the other elements are exact under it.
std::vector<Block> tie_blocks(const BlockLab& lab, float peak, int level, int choice);

}  // namespace fp4scope
