// compare.h: one tile through two backends: scales and codes as integers, decoded values bit for
// bit (any NaN equals any NaN).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/backend.h"

namespace fp4scope::test {

struct Differences {
  std::int64_t blocks = 0;
  std::int64_t scales = 0;  // differing scale bytes
  std::int64_t codes = 0;
  std::int64_t values = 0;
  std::int64_t total() const { return scales + codes + values; }
  Differences& operator+=(const Differences& d) {
    blocks += d.blocks;
    scales += d.scales;
    codes += d.codes;
    values += d.values;
    return *this;
  }
};

struct Outcome {
  QuantizedTile tile;
  std::vector<std::uint32_t> values;  // [rows, cols] binary32 bits
};
Outcome run_backend(const Backend& backend, const Recipe& recipe, const Tile& tile,
                    std::span<const OuterScale32> outer);

// Prints the first differing blocks of a run: recipe, backend, row, block, input, want, got.
enum class Print { kFirst, kNothing };
Differences compare(const Backend& backend, const Recipe& recipe, const Tile& tile,
                    const Outcome& want, const Outcome& got, Print print = Print::kFirst);

// Backends of this build that can run here and know the recipe.
std::vector<const Backend*> backends_for(const Recipe& recipe);

// Outer scales of a tile as the recipe measures them: one, or one per row.
std::vector<OuterScale32> measured_scales(const Backend& backend, const Recipe& recipe,
                                          const Tile& tile);

}  // namespace fp4scope::test
