// verify_cases.h: many comparisons in one process: lists of cases from a file, the cases of a
// golden file, and running them in parallel.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "analysis/compare/verify.h"
#include "analysis/report.h"

namespace fp4scope {

// One JSON object per line with the keys name, recipe, input, codes, scales, choice, fake,
// outer_scale, amax, layout, nibbles and axis; names of files are relative to the folder of `path`.
// What a line does not say comes from `defaults`. Throws Error(kData) naming the line.
std::vector<VerifyCase> read_cases(const std::string& path, const VerifyCase& defaults);

// The cases of a file written by `fp4scope golden`: NAME.x with NAME.codes and, where there are
// any, NAME.scales, NAME.choice, NAME.amax, NAME.outer_scale and NAME.values. An empty recipe in
// `defaults` means the one that the file states. Throws Error(kData).
std::vector<VerifyCase> golden_cases(const std::string& path, const VerifyCase& defaults,
                                     SourceCache& sources);

struct VerifyOutcome {
  std::string name;
  std::optional<VerifyResult> result;
  std::optional<ErrorRecord> error;  // the case could not be compared
};
// In the order of the cases. Several cases share the threads, one thread each.
std::vector<VerifyOutcome> verify_all(const std::vector<VerifyCase>& cases,
                                      const VerifyOptions& options, SourceCache& sources);

// JUnit XML with a test case per outcome: a difference is a failure, an error an error. Times are
// not stated, so that equal runs write equal files.
std::string junit_xml(const std::vector<VerifyOutcome>& outcomes);

}  // namespace fp4scope
