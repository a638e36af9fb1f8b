// oracle_nvfp4.cc: NVFP4 and its siblings over a tile: block maxima, candidates, the choice of
// "four over six" with its errors (spec/nvfp4.md 3.3, 4.3, 5), padding. What a contract computes is
// in oracle_nvfp4_contracts.cc.
#include "sim/oracle/oracle_nvfp4.h"

#include <algorithm>
#include <optional>

#include "formats/hd.h"
#include "sim/error.h"

namespace fp4scope::oracle {
namespace nvfp4 {
namespace {

// A block: one row of elements, or the rows that share a scale.
struct Block {
  std::vector<std::vector<float>> rows;
  std::vector<std::vector<std::uint32_t>> random;  // a byte or Nvfp4Rules::kNearest per element
  std::int64_t first_row = 0;
};

struct Candidate {
  Grid grid = Grid::kTop;
  std::uint32_t byte = 0;
  float sf = 0;
  std::vector<std::vector<Nvfp4Rules::Element>> rows;
  // Of the first element without a code. It counts if the candidate is taken; its error is NaN.
  std::optional<RefusedInput> refusal;
};

// Largest magnitude, NaN ignored; bit patterns order like the values.
float block_maximum(const Block& block) {
  std::uint32_t bits = 0;
  for (const std::vector<float>& row : block.rows) {
    for (const float v : row) {
      if (!is_nan32(v)) bits = std::max(bits, bits32(magnitude_of(v)));
    }
  }
  return from_bits32(bits);
}

Candidate candidate(const Nvfp4Rules& rules, const OuterScale32& outer, const Block& block,
                    float bmax, Grid grid) {
  Candidate c;
  c.grid = grid;
  const float s = rules.unrounded_scale(outer, bmax, grid);
  c.byte = rules.scale_byte(s);
  c.sf = rules.scale_value(c.byte);
  const Nvfp4Rules::Divisor divisor = rules.divisor(outer, bmax, s, c.sf);
  for (std::size_t r = 0; r < block.rows.size(); ++r) {
    std::vector<Nvfp4Rules::Element> row;
    for (std::size_t i = 0; i < block.rows[r].size(); ++i) {
      try {
        row.push_back(rules.encode(block.rows[r][i], divisor, grid, block.random[r][i],
                                   block.first_row + static_cast<std::int64_t>(r)));
      } catch (const RefusedInput& e) {
        if (!c.refusal) c.refusal = e;
        row.push_back({0, from_bits32(0x7fc00000u)});
      }
    }
    c.rows.push_back(std::move(row));
  }
  return c;
}

// r[i] += r[i + n/2], then n/4, ... 1.
float tree(const Machine& machine, std::vector<float> r) {
  for (std::size_t half = r.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) r[i] = machine.add(r[i], r[i + half]);
  }
  return r[0];
}

// The error of one row of a block, in the order of the recipe.
float row_error(const Nvfp4Rules& rules, const std::vector<float>& differences) {
  const Machine& machine = rules.machine;
  const Nvfp4Options& options = rules.options;
  const bool squared = options.select == Select::kMse;
  std::vector<float> terms;
  for (const float d : differences) {
    terms.push_back(squared ? machine.mul(d, d) : magnitude_of(d));
  }
  if (options.select == Select::kAbsmax) {
    float largest = from_bits32(0);
    for (const float t : terms) {
      if (is_nan32(t)) return t;
      if (machine.less(largest, t)) largest = t;
    }
    return largest;
  }
  const auto sequential = [&](std::size_t from, std::size_t to) {
    float sum = from_bits32(0);
    for (std::size_t i = from; i < to; ++i) {
      const bool fused = squared && options.sum == SumOrder::kFma;
      sum = fused ? machine.fma(differences[i], differences[i], sum) : machine.add(sum, terms[i]);
    }
    return sum;
  };
  switch (options.sum) {
    case SumOrder::kHalves:
      return machine.add(sequential(0, terms.size() / 2),
                         sequential(terms.size() / 2, terms.size()));
    case SumOrder::kTree:
      return tree(machine, std::move(terms));
    case SumOrder::kSeq:
    case SumOrder::kFma:
      break;
  }
  return sequential(0, terms.size());
}

float error_of(const Nvfp4Rules& rules, const OuterScale32& outer, const Block& block,
               const Candidate& c) {
  std::vector<float> errors;  // of the rows
  for (std::size_t r = 0; r < block.rows.size(); ++r) {
    std::vector<float> differences;
    for (std::size_t i = 0; i < block.rows[r].size(); ++i) {
      differences.push_back(
          rules.difference(outer, c.sf, c.rows[r][i].v, block.rows[r][i], c.grid));
    }
    errors.push_back(row_error(rules, differences));
  }
  if (rules.options.select != Select::kAbsmax) return tree(rules.machine, std::move(errors));
  float largest = from_bits32(0);
  for (const float e : errors) {
    if (is_nan32(e)) return e;
    if (rules.machine.less(largest, e)) largest = e;
  }
  return largest;
}

struct Decision {
  Candidate taken;
  bool choice = false;
  float errors[2] = {0, 0};
};
Decision decide(const Nvfp4Rules& rules, const OuterScale32& outer, const Block& block) {
  const float bmax = block_maximum(block);
  Decision d;
  if (!rules.options.is_adaptive()) {
    d.taken = candidate(rules, outer, block, bmax, Grid::kTop);
    if (d.taken.refusal) throw *d.taken.refusal;
    return d;
  }
  const bool flashinfer = rules.options.order == Nvfp4Order::kFlashinfer ||
                          rules.options.order == Nvfp4Order::kFlashinferFast;
  if (flashinfer && rules.machine.is_zero(bmax)) {  // 4.1: all-zero bytes
    for (const std::vector<float>& row : block.rows) {
      d.taken.rows.emplace_back(row.size(), Nvfp4Rules::Element{0, from_bits32(0)});
    }
    return d;
  }
  const Grid other_grid = rules.is_if4 ? Grid::kInt4 : Grid::kFour;
  Candidate other = candidate(rules, outer, block, bmax, other_grid);
  Candidate six = candidate(rules, outer, block, bmax, Grid::kTop);
  d.errors[0] = error_of(rules, outer, block, other);
  d.errors[1] = error_of(rules, outer, block, six);
  d.choice = rules.machine.less(d.errors[0], d.errors[1]);  // a tie or NaN takes map-to-6
  d.taken = d.choice ? std::move(other) : std::move(six);
  if (d.taken.refusal) throw *d.taken.refusal;
  if (rules.is_if4 && d.choice) d.taken.byte += 0x80;  // 5.3: the mark
  return d;
}

// The tile is one that the random Hadamard transform, where the recipe has one, has gone over: the
// outer scales come from the transformed values too.
void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
              QuantizedTile& out) {
  resize(out, recipe, tile.rows, tile.cols);
  const Nvfp4Rules rules(recipe, tile.source);
  const std::int64_t size = recipe.format.block;
  const std::int64_t band = recipe.format.block_rows;
  for (std::int64_t top = 0; top < tile.rows; top += band) {
    const OuterScale32 outer_scale = outer_of_row(recipe, outer, top);
    if (recipe.nvfp4.order == Nvfp4Order::kFouroversixCuda &&
        recipe.nvfp4.scale == OuterScale::kTensor && exact(outer_scale.amax).is_zero()) {
      throw RefusedInput(top, "contract fouroversix-cuda writes no output for an all-zero tensor");
    }
    for (std::int64_t b = 0; b < out.blocks_per_row; ++b) {
      Block block;
      block.first_row = top;
      for (std::int64_t row = top; row < top + band; ++row) {
        std::vector<float>& values = block.rows.emplace_back();
        std::vector<std::uint32_t>& random = block.random.emplace_back();
        for (std::int64_t col = b * size; col < (b + 1) * size; ++col) {
          values.push_back(element_at(tile, row, col));
          const bool inside = row < tile.rows && col < tile.cols;
          random.push_back(recipe.sr.enabled && inside ? random_byte(recipe, tile, row, col)
                                                       : Nvfp4Rules::kNearest);
        }
      }
      const Decision d = decide(rules, outer_scale, block);
      for (std::int64_t row = top; row < std::min(top + band, tile.rows); ++row) {
        const auto at = static_cast<std::size_t>(row * out.blocks_per_row + b);
        out.scales[at] = static_cast<std::uint8_t>(d.taken.byte);
        if (!out.choices.empty()) out.choices[at] = d.choice ? 1 : 0;
        if (!out.errors.empty()) {
          out.errors[2 * at] = d.errors[0];
          out.errors[2 * at + 1] = d.errors[1];
        }
        const auto& codes = d.taken.rows[static_cast<std::size_t>(row - top)];
        for (std::size_t i = 0; i < codes.size(); ++i) {
          out.codes[static_cast<std::size_t>(row * out.padded_cols + b * size) + i] =
              static_cast<std::uint8_t>(codes[i].code);
        }
      }
    }
  }
}

bool is_power_of_two(int n) {
  return (n & (n - 1)) == 0;
}
Support support(const Recipe& recipe) {
  const Nvfp4Options& options = recipe.nvfp4;
  if (recipe.format.lut != nullptr) {
    return {false, "the exact oracle has no elements from a table here"};
  }
  if (options.order == Nvfp4Order::kMlxCpu && options.scale != OuterScale::kNone) {
    return {false, "the rules of mlx-cpu with a tensor scale are not known (spec/more.md 4.1)"};
  }
  const bool sums = options.is_adaptive() && options.select != Select::kAbsmax;
  const bool as_tree = options.sum == SumOrder::kTree || recipe.is_2d();
  if (sums && as_tree && !is_power_of_two(recipe.format.block)) {
    return {false, "error sums as a tree are defined for blocks of a power of two"};
  }
  if (sums && options.sum == SumOrder::kHalves && recipe.format.block % 2 != 0) {
    return {false, "sum=halves is defined for blocks of an even number of elements"};
  }
  return {};
}

OuterScale32 outer_scale(const Recipe& recipe, std::uint32_t amax_bits) {
  return Nvfp4Rules(recipe).outer(amax_bits);
}

float decode(const Recipe& recipe, const OuterScale32& outer, const std::uint8_t* scale,
             bool choice, int, std::uint32_t code) {
  return Nvfp4Rules(recipe).decoded(outer, scale[0], choice, code);
}

}  // namespace
}  // namespace nvfp4

OracleFamily nvfp4_oracle() {
  return {nvfp4::support, nvfp4::outer_scale, nvfp4::quantize, nvfp4::decode};
}

}  // namespace fp4scope::oracle
