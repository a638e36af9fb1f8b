// agree.h: two recipes on the same tensors: how many scales, 4/6 choices, codes and decoded values
// are equal, with exact ties and near ties counted apart (design/architecture.md section 10).
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/compare/compare.h"
#include "analysis/report.h"

namespace fp4scope {

struct AgreeCounts {
  std::int64_t elements = 0;
  // Of the first recipe, per row: a 2-D block counts once for each of its rows, as it is stored.
  std::int64_t blocks = 0;
  std::int64_t blocks_differing = 0;  // in a scale, a choice, a code or a value
  std::int64_t scales_differing = 0;
  std::int64_t codes_differing = 0;
  std::int64_t values_differing = 0;                          // +0 = -0, NaN = NaN
  std::int64_t outer_scales = 0, outer_scales_differing = 0;  // as bits
  // Blocks with amax > 0, of which [first is map-to-4][second is map-to-4].
  std::int64_t live_blocks = 0;
  std::int64_t choice_table[2][2] = {};
  // Live blocks whose two errors are equal, or differ by at most 2^-20 of the larger one, in at
  // least one of the recipes; an exact tie is no near tie.
  std::int64_t ties = 0, near_ties = 0;
  // Of the choices that differ.
  std::int64_t choices_differing = 0, choices_differing_at_ties = 0,
               choices_differing_at_near_ties = 0;
  // (code of the first, code of the second) -> elements, where they differ.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> code_table;
  void add(const AgreeCounts& other);
};

struct AgreeRow {
  std::string file, tensor, dtype;
  NameFields fields;
  std::vector<std::int64_t> shape;
  std::string source_hash;  // XXH3-64, as analyze states it
  Recipe a, b;
  std::string backend_a, backend_b;
  // What can be compared at all: the blocks and scale types are the same, and so on.
  bool has_scales = false, has_choices = false, has_codes = false, has_values = false;
  bool has_ties = false;  // at least one of the recipes chooses
  AgreeCounts counts;
  std::vector<DifferingBlock> first;
  std::vector<std::string> notes;
};

struct AgreeOptions {
  Recipe a, b;
  TensorFilter filter;
  int axis = -1;
  std::string backend = "auto";
  int threads = 0;
  std::int64_t memory_bytes = std::int64_t{1} << 30;
  std::size_t first = 3;
  OpenOptions open;
  std::vector<std::string> name_patterns;  // regular expressions, see name_pattern.h
  std::string explain_options;             // appended to the commands that explain a block
  const std::atomic<bool>* stop = nullptr;
  std::function<void(std::int64_t done, std::int64_t total)> progress;
  std::function<void(std::int64_t files)> looking;  // as AnalyzeOptions has it
};

struct AgreeResult {
  std::vector<AgreeRow> rows;
  std::optional<AgreeCounts> total;  // of more than one tensor
  std::vector<ErrorRecord> errors, skipped;
  std::vector<Report::Source> sources;
  std::vector<std::string> warnings;  // sentences about options and operands
  int threads = 1;
  bool interrupted = false;
};

// `files` are FILE, DIRECTORY or FILE:TENSOR. Goes on after a bad file or tensor and records it.
AgreeResult agree(const std::vector<std::string>& files, const AgreeOptions& options);

// 1 - differing/of; nothing for of = 0.
std::optional<double> agreement(std::int64_t differing, std::int64_t of);

}  // namespace fp4scope
