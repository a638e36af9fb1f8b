// compare.h: one tile through two backends: scales and codes as integers, decoded values bit for
// bit (any NaN equals any NaN).
#pragma once
#include <cstdint>

#include "tests/support/quantized.h"

namespace fp4scope::test {

struct Differences {
  std::int64_t blocks = 0;
  std::int64_t scales = 0;  // differing scale bytes
  std::int64_t codes = 0;
  std::int64_t values = 0;
  std::int64_t choices = 0;  // and the errors that were compared
  std::int64_t refusals = 0;
  std::int64_t total() const { return scales + codes + values + choices + refusals; }
  Differences& operator+=(const Differences& d) {
    blocks += d.blocks;
    scales += d.scales;
    codes += d.codes;
    values += d.values;
    choices += d.choices;
    refusals += d.refusals;
    return *this;
  }
};

// Prints the first differing blocks of a run: recipe, backend, row, block, input, want, got.
enum class Print { kFirst, kNothing };
Differences compare(const Backend& backend, const Recipe& recipe, const Tile& tile,
                    const Quantized& want, const Quantized& got, Print print = Print::kFirst);

}  // namespace fp4scope::test
