// probe_blocks.cc: see the header. Ties of elements: probe_ties.cc.
#include "analysis/compare/probe_blocks.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace fp4scope {
namespace {

constexpr std::int64_t kBlocksPerRow = 16;

// One row of blocks.
SmallTensor side_by_side(const std::vector<Block>& blocks, std::size_t first, std::size_t count,
                         std::int64_t rows, SourceType source) {
  SmallTensor tensor;
  const std::int64_t block = std::ssize(blocks.front()) / rows;
  tensor.source = source;
  tensor.rows = rows;
  tensor.cols = static_cast<std::int64_t>(count) * block;
  tensor.x.resize(static_cast<std::size_t>(tensor.rows * tensor.cols));
  for (std::size_t b = 0; b < count; ++b) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(blocks[first + b].begin() + r * block, block,
                  tensor.x.begin() + r * tensor.cols + static_cast<std::int64_t>(b) * block);
    }
  }
  return tensor;
}

}  // namespace

bool BlockResult::same_scale(const BlockResult& other, bool level1_only) const {
  if (is_refused || other.is_refused) return is_refused == other.is_refused;
  const std::size_t bytes = level1_only ? std::min<std::size_t>(1, scales.size()) : scales.size();
  return choice == other.choice &&
         std::equal(scales.begin(), scales.begin() + static_cast<std::ptrdiff_t>(bytes),
                    other.scales.begin());
}

BlockLab::BlockLab(const Backend& backend, const Recipe& recipe, SourceType source, float amax)
    : backend_(backend),
      recipe_(recipe),
      transform_(std::max<std::int64_t>(1, recipe.rht.size)),
      source_(source),
      grid_(source),
      amax_(amax),
      rows_(recipe.is_2d() && recipe.format.block < 64 ? 2 : 1) {
  recipe_.rht.size = 0;
}

bool BlockLab::has_micro_levels() const {
  for (int i = 0; i < recipe_.format.num_levels; ++i) {
    if (recipe_.format.levels[static_cast<std::size_t>(i)].kind == ScaleKind::kMicroExponent)
      return true;
  }
  return false;
}

// With the anchor; whole groups of the transform.
std::int64_t BlockLab::blocks_in_row(std::int64_t blocks) const {
  const std::int64_t block = recipe_.format.block, group = std::lcm(block, transform_) / block;
  const std::int64_t most = recipe_.is_2d() ? blocks : std::min(blocks, kBlocksPerRow);
  return (most + (amax_ != 0 ? 1 : 0) + group - 1) / group * group;
}

std::vector<Block> BlockLab::anchored(const std::vector<Block>& blocks) const {
  const std::int64_t in_row = blocks_in_row(std::ssize(blocks));
  Block anchor(static_cast<std::size_t>(elements()));
  for (std::size_t i = 0; i < anchor.size(); ++i)
    anchor[i] = i == anchor.size() / 2 ? amax_ : grid_.toward_zero(amax_ * 0.75f);
  std::vector<Block> all;
  std::size_t next = 0;
  while (next < blocks.size() || std::ssize(all) % in_row != 0) {
    if (amax_ != 0 && std::ssize(all) % in_row == 0) {
      all.push_back(anchor);
      continue;
    }
    all.push_back(blocks[next % blocks.size()]);
    ++next;
  }
  return all;
}

SmallTensor BlockLab::tensor_of(const std::vector<Block>& blocks) const {
  const std::vector<Block> all = anchored(blocks);
  const auto in_row = static_cast<std::size_t>(blocks_in_row(std::ssize(blocks)));
  SmallTensor tensor = side_by_side(all, 0, in_row, rows_, source_);
  // 1-D blocks have one row of content.
  for (std::size_t first = in_row; first < all.size(); first += in_row) {
    const SmallTensor row = side_by_side(all, first, in_row, rows_, source_);
    tensor.x.insert(tensor.x.end(), row.x.begin(), row.x.end());
    tensor.rows += row.rows;
  }
  return tensor;
}

void BlockLab::run_range(const std::vector<Block>& blocks, std::size_t first, std::size_t last,
                         std::vector<BlockResult>& results) const {
  if (first == last) return;
  std::vector<Block> some(blocks.begin() + static_cast<std::ptrdiff_t>(first),
                          blocks.begin() + static_cast<std::ptrdiff_t>(last));
  const std::size_t skipped = amax_ != 0 ? 1 : 0;
  if (skipped != 0) {
    Block anchor(static_cast<std::size_t>(elements()), amax_);
    some.insert(some.begin(), std::move(anchor));
  }
  const SmallTensor tensor = side_by_side(some, 0, some.size(), rows_, source_);
  const Outcome out = outcome_of(backend_, recipe_, tensor, false);
  if (out.is_refused()) {
    if (last - first == 1) {
      results[first].is_refused = true;
      return;
    }
    const std::size_t middle = first + (last - first) / 2;
    run_range(blocks, first, middle, results);
    run_range(blocks, middle, last, results);
    return;
  }
  if (!out.has_codes) return;
  const std::int64_t block = recipe_.format.block, bytes = recipe_.format.scale_bytes;
  for (std::size_t b = first; b < last; ++b) {
    BlockResult& result = results[b];
    const auto at = static_cast<std::int64_t>(b - first + skipped);
    if (!out.tile.choices.empty()) result.choice = out.tile.choices[static_cast<std::size_t>(at)];
    result.scales.assign(out.tile.scales.begin() + at * bytes,
                         out.tile.scales.begin() + (at + 1) * bytes);
    result.codes.clear();
    for (std::int64_t r = 0; r < rows_; ++r) {
      const auto from =
          out.tile.codes.begin() + (r * out.tile.padded_cols + at * block) * recipe_.code_bytes();
      result.codes.insert(result.codes.end(), from, from + block * recipe_.code_bytes());
    }
  }
}

std::vector<BlockResult> BlockLab::run(const std::vector<Block>& blocks) const {
  std::vector<BlockResult> results(blocks.size());
  run_range(blocks, 0, blocks.size(), results);
  return results;
}

std::vector<float> BlockLab::decoded(const BlockResult& result, std::uint8_t code) const {
  QuantizedTile tile;
  const std::int64_t block = recipe_.format.block;
  resize(tile, recipe_, rows_, block);
  std::fill(tile.codes.begin(), tile.codes.end(), code);
  for (std::int64_t r = 0; r < rows_; ++r) {
    std::copy(result.scales.begin(), result.scales.end(),
              tile.scales.begin() + r * recipe_.format.scale_bytes);
  }
  std::fill(tile.choices.begin(), tile.choices.end(), result.choice);
  const std::uint32_t bits = bit_cast<std::uint32_t>(amax_);
  const std::vector<OuterScale32> outer(recipe_.scales_rows() ? static_cast<std::size_t>(rows_) : 1,
                                        backend_.outer_scale(recipe_, bits));
  std::vector<float> values(static_cast<std::size_t>(elements()));
  backend_.dequantize(recipe_, tile, outer, values.data(), block);
  return values;
}

Block filled_block(const BlockLab& lab, Fill fill, std::int64_t step, std::int64_t position) {
  constexpr float kFractions[] = {0.731f,  -0.493f, 0.251f,  -0.377f, 0.171f,  -0.917f,
                                  0.4375f, 0.5625f, -0.625f, 0.831f,  -0.203f, 0.3125f};
  const float peak = lab.grid().value(step);
  Block block(static_cast<std::size_t>(lab.elements()), 0.0f);
  for (std::size_t i = 0; i < block.size(); ++i) {
    const float fraction =
        fill == Fill::kThrees ? 0.75f
        : fill == Fill::kOneHot
            ? 0.0f
            : kFractions[(i + static_cast<std::size_t>(position)) % std::size(kFractions)];
    block[i] = lab.grid().toward_zero(peak * fraction);
  }
  block[static_cast<std::size_t>(position)] = position % 2 == 0 ? peak : -peak;
  return block;
}

Block random_block(const BlockLab& lab, float peak, std::int64_t position, Random& random) {
  Block block(static_cast<std::size_t>(lab.elements()));
  const float spread = random.coin() ? 1.0f : 0.5f;
  for (float& v : block) {
    const float u = random.unit();
    v = lab.grid().toward_zero(peak * spread * (random.coin() ? u : u * u));
    if (random.coin()) v = -v;
  }
  block[static_cast<std::size_t>(position)] = random.coin() ? peak : -peak;
  return block;
}

namespace {

// Steps between `least` and `most`, so many to a binade (fewer where the type has fewer), in order.
std::vector<std::int64_t> sweep_steps(const SourceGrid& grid, std::int64_t least, std::int64_t most,
                                      std::int64_t per_binade) {
  std::vector<std::int64_t> steps;
  std::int64_t step = least;
  while (step < most) {
    steps.push_back(step);
    const std::int64_t size = std::min(step, grid.binade());
    step += std::max<std::int64_t>(1, size / per_binade);
  }
  if (least <= most) steps.push_back(most);
  return steps;
}

// Two inputs, a number of steps apart in one element, with different results. That of `low` is
// kept; `low` may be the larger one.
struct Search {
  Block block;         // state_thresholds: the other elements
  std::int64_t place;  // of the element
  std::int64_t low, high;
  BlockResult at_low;
  bool is_open() const { return std::abs(high - low) > 1; }
  std::int64_t middle() const { return low + (high - low) / 2; }
};

// Halves the distance of all searches at once until it is one step. block_at(search, step) is the
// input, same(a, b) whether two results are alike.
template <class BlockAt, class Same>
std::vector<Threshold> bisected(const BlockLab& lab, std::vector<Search> searches,
                                const BlockAt& block_at, const Same& same) {
  const auto is_open = [](const Search& s) { return s.is_open(); };
  while (std::any_of(searches.begin(), searches.end(), is_open)) {
    std::vector<Block> blocks;
    for (const Search& s : searches) blocks.push_back(block_at(s, s.middle()));
    const std::vector<BlockResult> results = lab.run(blocks);
    for (std::size_t i = 0; i < searches.size(); ++i) {
      Search& s = searches[i];
      if (s.is_open()) (same(s.at_low, results[i]) ? s.low : s.high) = s.middle();
    }
  }
  std::vector<Threshold> found;
  for (const Search& s : searches) found.push_back({block_at(s, s.low), block_at(s, s.high)});
  return found;
}

// First result that differs from the one before it, in groups of `group`; 0 for none.
std::vector<std::size_t> first_changes(const std::vector<BlockResult>& results, std::size_t group) {
  std::vector<std::size_t> changes;
  for (std::size_t first = 0; first < results.size(); first += group) {
    std::size_t at = 1;
    while (at < group && results[first + at - 1].same_state(results[first + at])) ++at;
    changes.push_back(at < group ? at : 0);
  }
  return changes;
}

// A block, then the same with one element after the other taken from a second block. Both have the
// maximum at one place.
std::vector<Block> walk_of(const BlockLab& lab, float peak, Random& random) {
  const auto n = static_cast<std::uint32_t>(lab.elements());
  const std::size_t position = random.below(n);
  const auto at = static_cast<std::int64_t>(position);
  Block walk = random_block(lab, peak, at, random);
  const Block end = random_block(lab, peak, at, random);
  std::vector<Block> walks{walk};
  for (std::size_t i = 0; i < n; ++i) {
    if (i != position) walk[i] = end[i];
    walks.push_back(walk);
  }
  return walks;
}

}  // namespace

std::vector<Threshold> scale_thresholds(const BlockLab& lab, Fill fill, std::int64_t least,
                                        std::int64_t most, std::size_t limit) {
  const bool has_byte = lab.recipe().format.scale_bytes == 1 || lab.has_micro_levels();
  const auto same = [&](const BlockResult& a, const BlockResult& b) {
    return a.same_scale(b, lab.has_micro_levels());
  };
  const auto block_at = [&](const Search& s, std::int64_t step) {
    return filled_block(lab, fill, step, s.place);
  };
  const std::vector<std::int64_t> steps = sweep_steps(lab.grid(), least, most, has_byte ? 32 : 2);
  std::vector<Block> blocks;
  for (const std::int64_t step : steps) blocks.push_back(filled_block(lab, fill, step, 0));
  const std::vector<BlockResult> swept = lab.run(blocks);
  std::vector<std::size_t> changes;
  for (std::size_t i = 1; i < steps.size(); ++i)
    if (!same(swept[i - 1], swept[i])) changes.push_back(i);

  // The place of the maximum moves on, and with it the fill: the ends are looked at again.
  std::vector<Search> searches;
  blocks.clear();
  const std::size_t count = std::min(limit, changes.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = changes[i * changes.size() / count];
    const std::int64_t place = static_cast<std::int64_t>(5 * i + 1) % lab.elements();
    searches.push_back({{}, place, steps[at - 1], steps[at], {}});
    blocks.push_back(block_at(searches.back(), steps[at - 1]));
    blocks.push_back(block_at(searches.back(), steps[at]));
  }
  const std::vector<BlockResult> ends = lab.run(blocks);
  std::vector<Search> kept;
  for (std::size_t i = 0; i < searches.size(); ++i) {
    if (same(ends[2 * i], ends[2 * i + 1])) continue;
    searches[i].at_low = ends[2 * i];
    kept.push_back(std::move(searches[i]));
  }
  return bisected(lab, std::move(kept), block_at, same);
}

std::vector<Threshold> state_thresholds(const BlockLab& lab, float peak, std::size_t pairs,
                                        Random& random) {
  if (!lab.recipe().chooses() && !lab.has_micro_levels()) return {};
  const auto n = static_cast<std::size_t>(lab.elements());
  std::vector<Block> walks;
  for (std::size_t p = 0; p < pairs; ++p) {
    for (Block& block : walk_of(lab, peak, random)) walks.push_back(std::move(block));
  }
  const std::vector<BlockResult> walked = lab.run(walks);
  const std::vector<std::size_t> changes = first_changes(walked, n + 1);
  std::vector<Search> searches;
  for (std::size_t p = 0; p < pairs; ++p) {
    if (changes[p] == 0) continue;
    const std::size_t before = p * (n + 1) + changes[p] - 1, element = changes[p] - 1;
    searches.push_back({walks[before], static_cast<std::int64_t>(element),
                        lab.grid().step(walks[before][element]),
                        lab.grid().step(walks[before + 1][element]), walked[before]});
  }
  const auto block_at = [&](const Search& s, std::int64_t step) {
    Block block = s.block;
    block[static_cast<std::size_t>(s.place)] = lab.grid().value(step);
    return block;
  };
  const auto same = [](const BlockResult& a, const BlockResult& b) { return a.same_state(b); };
  return bisected(lab, std::move(searches), block_at, same);
}

}  // namespace fp4scope
