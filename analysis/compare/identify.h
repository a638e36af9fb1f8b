// identify.h: which recipe, order of scales and order of codes made these bytes. Every contract
// with its settings is tried on a fixed sample of blocks and dropped at its first unexplained one;
// what is left is checked in full (design/architecture.md section 10).
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/compare/identify_casts.h"
#include "analysis/compare/separate.h"
#include "analysis/compare/verify.h"

namespace fp4scope {

struct IdentifyOptions {
  VerifyCase job;               // without a recipe; layout and nibbles empty: all are tried
  std::vector<Recipe> more;     // further candidates, as user-defined formats
  std::string format;           // only recipes of this format; empty: all
  std::size_t best = 3;         // candidates to report where none explains everything
  std::size_t separations = 8;  // inputs that tell explaining recipes apart
  std::int64_t separation_blocks = std::int64_t{1} << 16;  // searched for each of them
  VerifyOptions verify;                                    // backend, threads, files, stop
};

// A recipe with the orders under which it explains everything, or most.
struct ExplainingRecipe {
  Recipe recipe;
  std::string nibbles, layout;
  // Other orders under which these bytes are the same.
  std::vector<std::string> other_nibbles, other_layouts;
  // A contract that explains everything with a key that no candidate of it has.
  bool is_varied = false;
  bool differs_from_native = false;  // in the order of codes or scales, from the contract's project
  VerifyResult check;                // in full, padding not counted
  // Other recipes of the contract that explain everything, in canonical form.
  std::vector<std::string> also;
  // Single settings that change nothing on this data, as "sum=tree|halves".
  std::vector<std::string> without_effect;
};

// An input on which the first explaining recipe and another one differ.
struct Separation {
  std::string a, b;  // recipes
  std::optional<Separator> input;
};

struct IdentifyResult {
  std::string file, tensor, dtype;
  std::vector<std::int64_t> shape;
  std::string source_hash;  // of the input
  // Everything is explained: one entry per contract and format, the shortest recipe first.
  std::vector<ExplainingRecipe> explaining;
  // Without scales: scalar casts that explain everything.
  std::vector<CastExplanation> casts;
  std::vector<ExplainingRecipe> best;  // otherwise, by how much they explain
  std::vector<Separation> separations;
  std::int64_t tried = 0;  // candidate recipes
  // `also`, `without_effect` and other orders were looked at on a sample of a large tensor alone.
  bool on_sample = false;
  std::vector<std::string> warnings, notes;
};

// Throws Error for operands that cannot be read or fit no format.
IdentifyResult identify(const IdentifyOptions& options, SourceCache& sources);

// What is left unexplained, in words: "scale off by one (found = expected + 1) in all 1088 scales".
std::string remainder_of(const VerifyResult& check);

}  // namespace fp4scope
