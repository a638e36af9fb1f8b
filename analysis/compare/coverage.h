// coverage.h: which scales, code thresholds, level bits and choices some results of a recipe hit.
// Counted from what was quantized, not from what the input was meant for.
#pragma once
#include <array>
#include <set>
#include <string>
#include <vector>

#include "analysis/compare/code_order.h"
#include "analysis/compare/outcome.h"

namespace fp4scope {

struct Coverage {
  std::int64_t blocks = 0, elements = 0;
  // Bytes of the block scale (of HiF4 the E6M2 byte) that occur, of all that its type has, NaN
  // included; if4: with bit 7 set and clear. `all` is 0 for scales of more than a byte (then `hit`
  // counts different scales) and for recipes without block scales.
  int scales_hit = 0, scales_all = 0;
  std::string scales_missing;  // "0xfd-0xfe", "" for none
  // Pairs of adjacent codes (by value, either sign) of which both occur on inputs one step of the
  // source type apart in one block. Zero for bf16 and for recipes with a Hadamard transform.
  int ties_hit = 0, ties_all = 0;
  // One-bit levels: bits of a block seen clear, and seen set.
  int level_bits_hit = 0, level_bits_all = 0;
  // Blocks by choice: map-to-6, map-to-4. Zero for recipes that do not choose.
  std::array<std::int64_t, 2> choices{};
};

class CoverageCounter {
 public:
  explicit CoverageCounter(const Recipe& recipe);
  // `input` is what the codec saw. Refused input and values without codes count nothing.
  void add(const SmallTensor& input, const Outcome& outcome);
  Coverage result() const;

 private:
  void add_scales(const Outcome& outcome, std::size_t index);
  void add_ties(const SmallTensor& input, const Outcome& outcome, std::int64_t row,
                std::int64_t block);

  const Recipe& recipe_;
  Coverage count_;
  std::set<std::uint32_t> scales_;
  // By kind of element; if4 has a second one under choice bit 1.
  std::vector<CodeOrder> orders_;
  std::vector<std::vector<bool>> ties_;  // by lower rank
  std::vector<bool> bit_clear_, bit_set_;
};

}  // namespace fp4scope
