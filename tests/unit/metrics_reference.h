// metrics_reference.h: every figure of a report computed a second time, straightforwardly, from a
// whole tensor in memory: x, its codes and scales and the decoded values of one backend call. The
// definitions are those of design/architecture.md sections 9 and 10 and product.md ("What analyze
// reports"); nothing of analysis/metrics or analysis/tiles.h is used.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/report.h"
#include "sim/backend.h"
#include "tests/unit/metrics_tensors.h"

namespace fp4scope::test {

// Sums that the fixed tree of section 9 delivers.
struct TreeSums {
  double dd = 0, ad = 0, d = 0, xx = 0, vv = 0, vx = 0, crest = 0;
  void add(const TreeSums& o);
};
struct Expected {
  std::map<std::string, std::int64_t> counts;  // by report key
  std::int64_t counted = 0, inexact = 0, finite = 0, nonzero_blocks = 0;
  TreeSums sums;
  double amax = 0, max_abs_err = 0, crest_max = 0;
  std::int64_t level2_bits = 0, level2_set = 0, level3_bits = 0, level3_set = 0;
  std::vector<std::int64_t> codes, scales;
  std::map<int, std::int64_t> amax_exponents;
  std::vector<double> absolute_sample, relative_sample;  // sorted
  // Per element: finite, underflow, saturated. Per block: squared error, scale byte.
  std::vector<std::uint8_t> finite_at, underflow_at, saturated_at;
  std::vector<double> block_dd;
  std::vector<int> block_scale;
  std::int64_t rows = 0, cols = 0, block = 0, blocks_per_row = 0;
  // Merging for aggregates: counts, sums and maxima, in tensor order.
  void add(const Expected& o);
};
Expected brute_force(const Recipe& recipe, const TestTensor& tensor, const Backend& backend,
                     bool full_percentiles = false);

// One line per figure of `row` that differs from `want`; empty when all agree.
std::vector<std::string> differences(const Row& row, const Expected& want);
std::vector<std::string> map_differences(const Maps& maps, const Expected& want);
// Everything of two rows that may not depend on threads, backend, memory or other recipes.
std::vector<std::string> row_differences(const Row& a, const Row& b);
std::string join(const std::vector<std::string>& lines);

}  // namespace fp4scope::test
