// trace.h: one block of any recipe, step by step: every binary32 operation, rounding and cast that
// the codecs of formats/codecs carry out on the way from the elements to codes and back. Nothing is
// computed a second time for the purpose: the production text runs over a lane that writes down
// what it does (traced_lane.h), and the result is compared with the backend "reference".
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/backend.h"

namespace fp4scope {

enum class StepKind : std::uint8_t {
  kOperation,  // a op b, one binary32 operation; `op`, `a` and `b` say which
  kRounding,   // a number to another number: BF16, FP16, flush to zero, rcp~, a power of two
  kCast,       // a number to a code; `value` is the number that the code stands for
  kDecode,     // a code to a number
  kRule        // a bound, a special case or a decision; `value` is what it gives
};
struct TraceStep {
  StepKind kind = StepKind::kRule;
  std::string what;           // "rounded to BF16", "E4M3"; empty for operations
  std::string expression;     // "1.2 / 6 = 0.2", "1.07 -> 0x39 = 1.125"
  float value = 0;            // the result
  std::uint32_t bits = 0;     // binary32 bits of `value`
  char op = 0;                // + - * / of an operation
  float a = 0, b = 0;         // its operands; `a` is also what a rounding or a cast gets
  std::uint32_t code = 0;     // of a cast
  bool is_tie = false;        // of a cast: exactly between two neighbouring codes
  bool is_saturated = false;  // of a cast: beyond what rounds to the largest code
  bool is_number = true;      // false: a statement, `value` means nothing
};

// What is computed once for the block, in order.
struct TracePhase {
  std::string title;    // "block scale, map-to-4"
  std::string formula;  // in the contract's symbols; may be empty
  std::vector<TraceStep> steps;
};

// One element of the traced row.
struct TracedElement {
  std::int64_t row = 0;  // of the tile
  int index = 0;         // in the block
  bool is_padding = false;
  double input = 0;              // after the transform, where the recipe has one
  std::vector<TraceStep> steps;  // to the code, then back to the value
  float scaled = 0;              // what the cast gets
  std::uint32_t code = 0;
  float value = 0;         // decoded
  double error = 0;        // value - input
  bool tie = false;        // `scaled` lies exactly between two neighbouring codes
  bool saturated = false;  // `scaled` lies beyond what rounds to the largest code
};

// One of the two candidates of an adaptive choice, on the traced row.
struct TracedCandidate {
  std::string name;  // "map-to-4", "map-to-6", of if4 "INT4" and "E2M1"
  std::uint32_t scale = 0;
  float scale_value = 0;
  std::vector<std::uint32_t> codes;
  std::vector<float> differences;  // decoded minus x, as the metric takes it
  std::vector<float> row_errors;   // of 2-D blocks, one per row of the block
  float error = 0;                 // that is compared
  bool chosen = false;
  std::vector<TraceStep> steps;  // of the errors of the traced row, then of the sum over rows
};

// Elements under one innermost bit of a format with one-bit scales (HiF4), and that bit.
struct TracedLevel {
  int first = 0, count = 0;  // elements of the block
  bool has_outer = false;    // there is a bit above this one, for outer_count elements
  int outer_count = 0;
  float outer_max = 0, outer_product = 0;
  std::uint32_t outer_bit = 0;
  float inner_max = 0, inner_product = 0;
  std::uint32_t inner_bit = 0;
  bool is_tested = false;     // the bits come from thresholds; otherwise they are 0 or searched
  std::vector<float> errors;  // search=mse: under E * 2^s, s = 0, 1 (, 2)
};

struct BlockTrace {
  std::int64_t row = 0, block = 0;  // of the tile
  std::int64_t first_col = 0;       // of the tile
  int block_size = 0, valid = 0;    // elements along K, and those that are not padding
  std::int64_t block_rows = 1;      // rows of the tile that share the scales with `row`
  bool has_outer = false;
  OuterScale32 outer;
  float amax = 0;  // of the block; NaN where it propagates
  std::vector<std::string> notes;
  std::vector<TracePhase> phases;
  std::vector<TracedCandidate> candidates;  // two or none
  std::vector<TracedLevel> levels;
  std::vector<TracedElement> elements;  // of `row`, block_size of them
  std::vector<std::uint8_t> scale_bytes;
  std::optional<int> choice;               // 1: map-to-4 (if4: INT4); nothing: no choice
  std::vector<std::uint8_t> packed_codes;  // as stored, low nibble first, without padding
};

// Block `block` of row `row` of a tile of transformed values (Tile as Backend::quantize takes it;
// of a 2-D recipe with all rows of the block), `outer` as there. Throws RefusedInput with the row
// in the tile where the recipe refuses a row of the block, and Error(kUnsupported) if the trace and
// the backend "reference" disagree, which would be a fault of this program.
BlockTrace trace_block(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                       std::int64_t row, std::int64_t block);

// "6.42", "inf", "nan": the shortest decimal that reads back as the same binary32 number.
std::string float_text(float v);
// "0x40cd70a4".
std::string bits_text(float v);
// A code in hexadecimal with as many digits as its width needs, "0x39".
std::string code_text(std::uint32_t code, int storage_bits);
// Name of a scalar format for people: "E2M1", "UE4M3", "INT4"; "e2m0" for one without a name.
std::string spec_text(MinifloatSpec spec);

}  // namespace fp4scope
