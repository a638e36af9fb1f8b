// probe_ties.cc: elements on both sides of every code threshold (probe_blocks.h, tie_blocks).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/compare/code_order.h"
#include "analysis/compare/probe_blocks.h"

namespace fp4scope {
namespace {

// Where neighbouring elements of a block may be put without changing its scales.
struct Slot {
  std::size_t block, element;
  // Two where a third one on a tie would turn the choice of the block over.
  std::size_t width = 3;
};
struct Layout {
  std::vector<Block> blocks;
  std::vector<Slot> slots;
};

// Group lengths of the one-bit levels, innermost first.
std::vector<std::int64_t> micro_groups(const BlockFormat& format) {
  std::vector<std::int64_t> groups;
  for (int i = format.num_levels - 1; i >= 0; --i) {
    const ScaleLevel& level = format.levels[static_cast<std::size_t>(i)];
    if (level.kind == ScaleKind::kMicroExponent) groups.push_back(level.group);
  }
  return groups;
}

// Formats without one-bit levels: everything but the maximum is free.
void add_plain_block(const BlockLab& lab, float peak, Layout& layout) {
  const auto n = static_cast<std::size_t>(lab.elements());
  const std::size_t position = (7 * layout.blocks.size() + 3) % n;
  const std::size_t index = layout.blocks.size();
  layout.blocks.push_back(
      filled_block(lab, Fill::kMixed, lab.grid().step(peak), static_cast<std::int64_t>(position)));
  for (std::size_t i = 0; i + 3 <= n;) {
    if (position >= i && position < i + 3) {
      i = position + 1;
      continue;
    }
    layout.slots.push_back({index, i});
    i += 3;
  }
}

// Recipes with a choice: a block that takes `choice` and whose other elements decode exactly under
// it, so that two elements on ties do not turn it over. Empty when none is found.
Block steady_block(const BlockLab& lab, float peak, int choice) {
  Random random(0x13198a2e03707344u);
  const std::uint32_t codes = lab.recipe().format.element.code_count();
  for (int attempt = 0; attempt < 64; ++attempt) {
    Block block = random_block(lab, peak, 0, random);
    const BlockResult first = lab.run({block})[0];
    if (first.is_refused || first.choice != choice) continue;
    std::vector<std::vector<float>> values;
    for (std::uint32_t c = 0; c < codes; ++c)
      values.push_back(lab.decoded(first, static_cast<std::uint8_t>(c)));
    for (std::size_t i = 1; i < block.size(); ++i) {
      const float v = lab.grid().toward_zero(values[random.below(codes)][i]);
      if (std::isfinite(v) && std::fabs(v) <= std::fabs(peak)) block[i] = v;
    }
    const BlockResult second = lab.run({block})[0];
    if (second.same_state(first)) return block;
  }
  return {};
}
void add_steady_block(const Block& block, Layout& layout) {
  const std::size_t index = layout.blocks.size();
  layout.blocks.push_back(block);
  layout.slots.push_back({index, 1 + index % (block.size() - 2), 2});
}

// One-bit levels: each innermost group has a local maximum that sets the wanted bits, and the rest
// of the group is free. `top` is the largest magnitude without any level.
void add_level_block(const BlockLab& lab, float peak, float top, int level, Layout& layout) {
  const std::vector<std::int64_t> groups = micro_groups(lab.recipe().format);
  const std::int64_t inner = groups.front(), outer = groups.back();
  const std::int64_t n = lab.recipe().format.block;
  if (inner < 4) return;
  const std::size_t index = layout.blocks.size();
  Block block(static_cast<std::size_t>(lab.elements()), 0.0f);
  const int most = static_cast<int>(groups.size());
  const float local = lab.grid().toward_zero(top * static_cast<float>(1 << level));
  const float upper = lab.grid().toward_zero(top * static_cast<float>(1 << most));
  block[0] = peak;
  for (std::int64_t at = outer; at + inner <= n; at += inner) {
    // Of two levels, one alone is set in an outer group whose maximum is in its first inner group.
    const bool is_partner = level > 0 && level < most && at % outer == 0;
    if (is_partner) {
      block[static_cast<std::size_t>(at)] = upper;
      continue;
    }
    if (level > 0) block[static_cast<std::size_t>(at)] = local;
    layout.slots.push_back({index, static_cast<std::size_t>(at + 1)});
  }
  layout.blocks.push_back(std::move(block));
}

// One pair of adjacent codes in one slot.
struct Search {
  Slot slot{};
  std::int64_t low = 0, high = 0;  // steps, rising values
  double midpoint = 0;
};

void put(const BlockLab& lab, std::vector<Block>& blocks, const Search& s, std::int64_t step,
         std::size_t offset) {
  blocks[s.slot.block][s.slot.element + offset] = lab.grid().value(step);
}
void put_all(const BlockLab& lab, std::vector<Block>& blocks, const Search& s, std::int64_t step) {
  for (std::size_t i = 0; i < s.slot.width; ++i) put(lab, blocks, s, step, i);
}

// Adjacent steps between which the code leaves that of the low end.
void bisect(const BlockLab& lab, std::vector<Block> blocks, std::vector<Search>& searches) {
  const auto code = [&](const std::vector<BlockResult>& results, const Search& s) {
    const BlockResult& result = results[s.slot.block];
    return result.is_refused ? -1 : int{result.codes[s.slot.element]};
  };
  for (const Search& s : searches) put_all(lab, blocks, s, s.low);
  std::vector<int> low_codes;
  const std::vector<BlockResult> at_low = lab.run(blocks);
  for (const Search& s : searches) low_codes.push_back(code(at_low, s));
  const auto is_open = [](const Search& s) { return s.high - s.low > 1; };
  while (std::any_of(searches.begin(), searches.end(), is_open)) {
    const auto middle = [](const Search& s) { return s.low + (s.high - s.low) / 2; };
    for (const Search& s : searches) put_all(lab, blocks, s, middle(s));
    const std::vector<BlockResult> results = lab.run(blocks);
    for (std::size_t i = 0; i < searches.size(); ++i) {
      Search& s = searches[i];
      if (is_open(s)) (code(results, s) == low_codes[i] ? s.low : s.high) = middle(s);
    }
  }
}

// The two sides of the threshold, and the midpoint or, where it is one of them, the step beyond it.
void place(const BlockLab& lab, std::vector<Block>& blocks, const Search& s) {
  std::int64_t third = lab.grid().step(static_cast<float>(s.midpoint));
  if (third == s.low) third = s.low - 1;
  if (third == s.high) third = s.high + 1;
  put(lab, blocks, s, s.low, 0);
  put(lab, blocks, s, s.high, 1);
  if (s.slot.width > 2) put(lab, blocks, s, third, 2);
}

// The largest decoded magnitude of a block without its one-bit levels.
float top_without_levels(const BlockLab& lab, BlockResult result) {
  std::fill(result.scales.begin() + 1, result.scales.end(), 0);
  float top = 0;
  for (std::uint32_t c = 0; c < lab.recipe().format.element.code_count(); ++c) {
    const float v = lab.decoded(result, static_cast<std::uint8_t>(c))[0];
    if (std::isfinite(v)) top = std::max(top, v);
  }
  return top;
}

// Blocks with at least `wanted` slots; fewer where the format has no room.
Layout layout_of(const BlockLab& lab, const Block& first, const BlockResult& result, float peak,
                 int level, std::size_t wanted) {
  Layout layout;
  const float top = lab.has_micro_levels() ? top_without_levels(lab, result) : 0;
  while (layout.slots.size() < wanted) {
    const std::size_t before = layout.slots.size();
    if (lab.recipe().chooses()) {
      add_steady_block(first, layout);
    } else if (lab.has_micro_levels()) {
      add_level_block(lab, peak, top, level, layout);
    } else {
      add_plain_block(lab, peak, layout);
    }
    if (layout.slots.size() == before) break;
  }
  return layout;
}

// A search between the decoded values of each pair of adjacent codes, as far as the maximum lets
// them be inputs.
std::vector<Search> searches_of(const BlockLab& lab, const Layout& layout,
                                const std::vector<BlockResult>& scales, const CodeOrder& order,
                                float limit) {
  const Recipe& recipe = lab.recipe();
  const bool refuses_zero =
      recipe.family == Family::kMx && recipe.mx.zero_sign == ZeroSign::kRefuse;
  std::vector<std::vector<float>> values;  // by code, of the block at hand
  std::size_t block = layout.blocks.size();
  std::vector<Search> searches;
  for (int rank = 0; rank + 1 < order.ranks; ++rank) {
    Search s;
    s.slot = layout.slots[static_cast<std::size_t>(rank)];
    if (s.slot.block != block) {
      block = s.slot.block;
      values.clear();
      for (std::size_t c = 0; c < order.rank.size(); ++c)
        values.push_back(lab.decoded(scales[block], static_cast<std::uint8_t>(c)));
    }
    float ends[2] = {0, 0};
    for (std::size_t c = 0; c < order.rank.size(); ++c) {
      for (int end = 0; end < 2; ++end)
        if (order.rank[c] == rank + end) ends[end] = values[c][s.slot.element];
    }
    if (refuses_zero && (ends[0] == 0 || ends[1] == 0)) continue;
    s.midpoint = (double{ends[0]} + double{ends[1]}) / 2;
    s.low = lab.grid().step(std::clamp(ends[0], -limit, limit));
    s.high = lab.grid().step(std::clamp(ends[1], -limit, limit));
    if (std::abs(s.midpoint) <= limit && s.low < s.high) searches.push_back(s);
  }
  return searches;
}

}  // namespace

std::vector<Block> tie_blocks(const BlockLab& lab, float peak, int level, int choice) {
  const Recipe& recipe = lab.recipe();
  if (recipe.code_bytes() != 1) return {};
  const Block first = recipe.chooses() ? steady_block(lab, peak, choice)
                                       : filled_block(lab, Fill::kMixed, lab.grid().step(peak), 0);
  if (first.size() < 4) return {};
  const BlockResult result = lab.run({first})[0];
  if (result.is_refused) return {};
  const CodeOrder order = code_order(recipe, recipe.nvfp4.int4_candidate && result.choice != 0);
  const auto wanted = static_cast<std::size_t>(std::max(0, order.ranks - 1));
  Layout layout = layout_of(lab, first, result, peak, level, wanted);
  const std::vector<BlockResult> scales = lab.run(layout.blocks);
  const auto is_refused = [](const BlockResult& r) { return r.is_refused; };
  if (layout.slots.size() < wanted || std::any_of(scales.begin(), scales.end(), is_refused))
    return {};
  std::vector<Search> searches = searches_of(lab, layout, scales, order, std::fabs(peak));
  bisect(lab, layout.blocks, searches);
  for (const Search& s : searches) place(lab, layout.blocks, s);
  return layout.blocks;
}

}  // namespace fp4scope
