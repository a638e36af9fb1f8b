// verify_run.h: one run of verify in parts, private to verify*.cc.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/compare/prepared.h"
#include "analysis/compare/verify.h"

namespace fp4scope::verifying {

// What a thread gathers.
struct Tally {
  VerifyResult counts;
  std::vector<DifferingBlock> first;
  // For the warnings.
  bool has_code = false, has_scale = false, scale_varies = false;
  bool choice_seen[2] = {false, false};
  std::vector<std::uint8_t> scale;
};

// What is compared.
struct Run {
  const VerifyCase& job;
  const VerifyOptions& options;
  const Recipe& recipe;
  const Backend& backend;
  const PreparedInput& input;
  const StoredCodes* codes = nullptr;
  const StoredScales* scales = nullptr;
  const TensorBytes* choice = nullptr;
  const PreparedInput* fake = nullptr;
  std::vector<OuterScale32> outer;
  // The recipe's own where others were given; empty: none were, or they are equal.
  std::vector<OuterScale32> own_outer;
  std::string explain_options;
};

// Buffers and counts of one thread.
struct Worker {
  TileBuffer buffer;
  QuantizedTile expected, found;
  std::vector<float> values, fake;
  std::vector<std::uint8_t> choices;
  Tally tally;
};

// Expected codes and scales of a tile, in w.expected. Throws Error(kData) where the recipe refuses
// the input.
void quantize_tile(const Run& run, const TileSpan& span, std::span<const OuterScale32> outer,
                   Worker& w);
// Whether the recipe refuses some tile of the input.
bool is_refused(const Run& run);
// Compares one tile and adds to w.tally.
void compare_tile(const Run& run, const TileSpan& span, Worker& w);
// The counts of all threads, and the first `first` differing blocks in row order.
Tally merge(const std::vector<Worker>& workers, std::size_t first);

// Values of a small operand, one or one per row, as binary32.
std::vector<float> small_floats(const SourceCache::Opened& opened, std::string_view option);
// Fills run.outer, and run.own_outer where given scales differ from the recipe's.
void take_outer_scales(Run& run, SourceCache& sources, VerifyResult& result);

// The first other order under which all codes, or all scales, are as expected; empty: none.
std::string probe_nibbles(const Run& run, const TensorBytes& bytes, CodePacking used,
                          StoredShape shape);
std::string probe_layout(const Run& run, const TensorBytes& bytes, ScaleStorage used,
                         StoredShape shape);

}  // namespace fp4scope::verifying
