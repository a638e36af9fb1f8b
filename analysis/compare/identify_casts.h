// identify_casts.h: codes, or decoded values, without any scale: which scalar cast made them
// (spec/scalars.md sections 2 to 7).
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "analysis/compare/verify.h"

namespace fp4scope {

// A cast that explains every element.
struct CastExplanation {
  std::string scalar;    // "e4m3", "e8m0", "bf16"
  std::string rounding;  // "ties to even", or the rule of an E8M0 cast
  std::string overflow;  // "saturates", "NaN beyond the range", ...; empty where it cannot matter
  std::string nan;       // what NaN inputs gave; empty: there were none, or values were compared
  std::string packing;   // "bytes", "low-first", ...; empty for values
};

// Tries every named scalar with every rounding on --codes or --fake alone. Empty where scales or an
// outer scale are given, or nothing explains everything. Reads the tensors piece by piece.
// `stop` ends it with Error(kData).
std::vector<CastExplanation> identify_casts(const VerifyCase& job, SourceCache& sources,
                                            const std::atomic<bool>* stop = nullptr);

std::string to_text(const CastExplanation& cast);

}  // namespace fp4scope
