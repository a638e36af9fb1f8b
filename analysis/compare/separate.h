// separate.h: an input on which two recipes differ: codes, scales, outer scale or decoded values
// (NaN equals NaN), or one refuses it and the other does not. Used by golden files and by identify
// ("these contracts are equal on your data; this input tells them apart").
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/compare/outcome.h"

namespace fp4scope {

struct SeparateOptions {
  // Blocks of random data that go through each recipe after the deliberate ones found nothing: rare
  // differences such as the order of an error sum in BF16 data need 10^5 to 10^6.
  std::int64_t blocks = std::int64_t{1} << 18;
  std::uint64_t seed = 0;
  SourceType source = SourceType::kF32;  // type of the input: kF32, kBf16 or kF16
  ComparedPlanes planes;                 // what a user of the input can see
};

// A few blocks, with the place of the first difference.
struct Separator : SmallTensor {
  std::int64_t row = 0, block = 0;
  std::string what;  // "scale byte 0x39 and 0x3a", "code 3 and 4 of element 5", ...
};

// Searches the probes of both recipes (probes.h), then random data near thresholds, then ordinary
// data, and drops the blocks that the difference does not need. A difference of bytes is preferred
// to a refusal. Nothing: equal as far as the budget saw. Recipes whose codes or scales have
// different shapes are told apart by any input. The same result in every run.
std::optional<Separator> separate(const Recipe& a, const Recipe& b,
                                  const SeparateOptions& options = {});

// separate(a, each of others), sharing the work on `a`.
std::vector<std::optional<Separator>> separate_all(const Recipe& a, std::span<const Recipe> others,
                                                   const SeparateOptions& options = {});

}  // namespace fp4scope
