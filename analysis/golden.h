// golden.h: test vectors of one recipe for other repositories: inputs that hit every tie, scale
// code and special value, and tell the recipe apart from all others, with the bytes that it must
// give.
#pragma once
#include <string>
#include <vector>

#include "analysis/compare/coverage.h"
#include "analysis/compare/probes.h"

namespace fp4scope {

struct GoldenOptions {
  SourceType source = SourceType::kF32;  // type of the inputs: kF32, kBf16 or kF16
  std::uint64_t seed = 0;                // of the random search for separators
  // Random blocks through each recipe that the deliberate inputs do not tell apart (separate.h).
  std::int64_t search_blocks = std::int64_t{1} << 19;
  // The exact backend makes the bytes and a production backend has to agree; false: the production
  // backend makes them.
  bool with_oracle = true;
};

// One input and what the recipe makes of it, in fp4scope's own layout (product.md,
// "Machine-readable output"). The shapes of the planes follow from rows and cols.
struct GoldenCase : Probe {
  std::string refusal;    // not empty: the recipe refuses the input, and there is nothing else
  bool has_codes = true;  // false: values alone
  std::vector<std::uint8_t> codes, scales, choice;
  std::vector<float> amax, outer_scale, values;
};

struct Golden {
  Recipe recipe;
  SourceType source = SourceType::kF32;
  std::uint64_t seed = 0;  // of the search for separators
  std::string made_by;     // one sentence: which backend made the bytes
  std::vector<GoldenCase> cases;
  Coverage coverage;
  int separated = 0;               // catalog recipes of the same shape that the cases tell apart
  std::vector<std::string> equal;  // those that nothing was found for, canonical text
};

// Cases: probes_of(recipe), and a separator for every recipe of contract_catalog() with codes and
// scales of the same shape that the probes do not tell apart. Throws Error(kUnsupported) where no
// backend of this machine runs the recipe, where it refuses every probe, or where the exact and the
// production backend disagree.
Golden make_golden(const Recipe& recipe, const GoldenOptions& options = {});

// Writes `out` as a whole or not at all: safetensors or JSON by its ending; Error(kUsage) for
// another. Returns the size of the file.
//   safetensors: NAME.x (F32, BF16 or F16), NAME.codes, NAME.scales, NAME.choice, NAME.amax,
//     NAME.outer_scale as `quantize` stores them, NAME.values F32; __metadata__ has recipe, version
//     and, under "cases", what each case is for.
//   JSON: the same planes as hexadecimal text, one string per row: 8 digits per binary32, 4 per
//   BF16
//     or FP16 element, 2 per byte.
std::int64_t write_golden(const Golden& golden, const std::string& out);
// The Error(kUsage) of write_golden, before the work.
void require_golden_ending(const std::string& out);

}  // namespace fp4scope
