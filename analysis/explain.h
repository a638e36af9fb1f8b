// explain.h: one block of a tensor, or of values from the command line, under one recipe, step by
// step: where it lies, the trace of sim/trace, and its two renderings. Used by `explain`, and by
// whoever wants to say why two blocks differ.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/json_text.h"
#include "sim/trace/trace.h"

namespace fp4scope {

struct Explanation {
  Recipe recipe;
  // Of the tensor; empty for values from the command line.
  std::string file, tensor;
  std::string dtype;                // "bf16"
  std::vector<std::int64_t> shape;  // as stored; of values [rows, columns]
  std::int64_t row = 0, block = 0;  // of the matrix that the recipe sees
  std::int64_t first_col = 0;
  std::vector<std::string> notes;  // about the place; those about the arithmetic are in `trace`
  BlockTrace trace;
};

// Numbers from outside instead of measured ones: the maximum of the tensor (or of every row) and
// its outer scale, in the contract's convention.
struct OuterOverride {
  std::optional<float> amax, outer_scale;
};

// A block of a tile as Backend::quantize takes it (transformed, of a 2-D recipe with whole blocks),
// whose names, dtype and shape `place` has; `row` and `block` count in the tile. The call for
// programs that have tile and outer scales at hand. Errors: trace_block().
Explanation explain_block(const Recipe& recipe, const Tile& tile,
                          std::span<const OuterScale32> outer, std::int64_t row, std::int64_t block,
                          Explanation place);

// --- values ---

// "6.42,0.27,-1.4" or binary32 patterns "0x40cd70a4", rows separated by ';'. Throws Error(kUsage)
// for what is no number, or none of `source`, which the values are to be of.
std::vector<std::vector<float>> parse_values(std::string_view text, SourceType source);
// One number as above.
float parse_number(std::string_view text, const char* option);
// Block 0 of row 0 of the values, padded with +0 to one block (and to whole groups of the recipe's
// transform). Throws Error(kUsage) for more values than that, or more rows than the block has.
Explanation explain_values(const Recipe& recipe, const std::vector<std::vector<float>>& rows,
                           SourceType source, const OuterOverride& given = {});

// --- tensors ---

// FILE:TENSOR@ROW,BLOCK; the last '@' before two integers counts, so names may hold others.
struct BlockPlace {
  Operand operand;
  std::int64_t row = 0, block = 0;
};
// Throws Error(kUsage).
BlockPlace parse_block_place(const std::string& text);

struct ExplainOptions {
  int axis = -1;
  int threads = 0;  // for the tensor maximum
  OpenOptions open;
  OuterOverride given;
  const std::atomic<bool>* stop = nullptr;
};
// Row and block of the tensor flattened to [rows, columns] with the axis last (ragged=flat: of the
// single row of all elements). The tensor may be left out where the file holds one. Throws
// Error(kUsage) for a row or block that is not there, Error(kData) for a bad file, a shape or
// values that the recipe refuses.
Explanation explain_tensor(const Recipe& recipe, const BlockPlace& place,
                           const ExplainOptions& options);

// --- renderings (render_explain.cc, explain_json.cc) ---

// For people, at most 79 columns wide. `element`: whose steps are shown, -1: the one with the
// largest error.
std::string explanation_text(const Explanation& explanation, int element = -1);
// One entry of "results". Numbers of binary32 come with their bits: NaN and Inf are null.
Json explanation_json(const Explanation& explanation);

}  // namespace fp4scope
