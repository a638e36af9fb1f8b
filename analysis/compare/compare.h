// compare.h: the comparison core of agree, verify and identify: two results for one tile, block by
// block, and the blocks that differ with everything that is needed to show why. Codes and scales
// are compared as integers; of decoded values any NaN equals any NaN (spec/scalars.md section 0).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "analysis/json_text.h"
#include "sim/backend.h"

namespace fp4scope {

// One result for a tile. `values`: decoded, with the stride of the tile's columns; may be null.
struct Side {
  const Recipe& recipe;
  const QuantizedTile& tile;
  const float* values = nullptr;
  std::span<const OuterScale32> outer;
};

// Blocks of both have the same elements and their scale bytes the same meaning.
bool same_blocks(const Recipe& a, const Recipe& b);
// Codes of both have the same meaning.
bool same_elements(const Recipe& a, const Recipe& b);
// Values of both are those of the same tensor: neither or both have the same Hadamard transform.
bool same_values(const Recipe& a, const Recipe& b);

// Equal as numbers: +0 = -0, NaN = NaN.
inline bool equal_value(float a, float b) {
  return a == b || (a != a && b != b);
}
// Equal bit for bit: +0 is not -0, but NaN = NaN.
inline bool same_pattern(float a, float b) {
  return bit_cast<std::uint32_t>(a) == bit_cast<std::uint32_t>(b) || (a != a && b != b);
}

// Puts the NaN elements of a tile back into its decoded values, for recipes that keep them
// (Recipe::keeps_nan_elements()). values[rows, cols].
void keep_nan_elements(const Recipe& recipe, const Tile& x, float* values);

// The element of a block: that of the format, or the integers of an INT4 block of if4.
MinifloatSpec element_of(const Recipe& recipe, bool choice);

// Position of a code among the values of its element: equal for +0 and -0, one apart for
// neighbours.
int ordinal_of_code(const MinifloatSpec& element, std::uint32_t code);
bool is_zero_code(const MinifloatSpec& element, std::uint32_t code);

// Whether some element of the block is neither zero nor NaN; of a 2-D block any of its rows counts.
// `block` is one of the tile.
bool is_live_block(const Recipe& recipe, const Tile& tile, std::int64_t row, std::int64_t block);

// One block of one row that differs.
struct DifferingBlock {
  struct Half {
    std::vector<std::uint8_t> scale;   // bytes
    std::vector<std::uint32_t> codes;  // of the elements inside the tensor
    std::vector<float> values;         // decoded; empty where there are none
    std::optional<bool> four;          // the choice, for recipes that choose
    std::optional<float> error4, error6;
  };
  std::int64_t row = 0, block = 0;  // of the tensor
  std::int64_t col = 0;             // its first column
  std::vector<double> x;            // inputs
  bool is_wide = false;             // of a binary64 source
  Half a, b;
  std::vector<int> elements;  // that differ, by index in the block
  std::string what;           // in words; empty: none
  std::string command;        // that explains the block
  std::string explanation;  // what the command prints for the first result, where it was asked for
};
// Block `block` of row `row` of a tile that begins at row `first_row` and block `first_block` of
// the tensor. Elements whose codes or values differ are listed.
DifferingBlock differing_block(const Tile& x, const Side& a, const Side& b, std::int64_t row,
                               std::int64_t block, std::int64_t first_row,
                               std::int64_t first_block);

// Sorted by row and block, and no more than `most` of them.
void keep_first(std::vector<DifferingBlock>& blocks, std::size_t most);

// "0x39"; HiF4: "0xb9 ff ffff"; binary32 and 16-bit scales as their pattern.
std::string scale_text(const Recipe& recipe, std::span<const std::uint8_t> scale);
// One hexadecimal digit per four-bit code, two digits otherwise.
std::string codes_text(const Recipe& recipe, std::span<const std::uint32_t> codes);

// How the two results are called: {"a", "b"} or {"expected", "found"}.
struct SideNames {
  const char* a;
  const char* b;
};
Json to_json(const DifferingBlock& block, const Recipe& a, const Recipe& b, const SideNames& names);
// Lines for people, at most 79 columns where names allow.
std::string to_text(const DifferingBlock& block, const Recipe& a, const Recipe& b,
                    const SideNames& names);

// `fp4scope explain` of block `block` of row `row`. `more`: further options, or "".
std::string explain_command(const Recipe& recipe, const std::string& operand, std::int64_t row,
                            std::int64_t block, const std::string& more);

}  // namespace fp4scope
