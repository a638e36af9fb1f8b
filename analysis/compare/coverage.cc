// coverage.cc: see the header.
#include "analysis/compare/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/compare/source_grid.h"

namespace fp4scope {
namespace {

bool has_micro_levels(const BlockFormat& format) {
  const auto begin = format.levels.begin();
  return std::any_of(begin, begin + format.num_levels, [](const ScaleLevel& level) {
    return level.kind == ScaleKind::kMicroExponent;
  });
}

// First bit of each one-bit level in the stored bytes of a block, and its group.
struct Plane {
  int first_bit, group;
};
std::vector<Plane> planes_of(const BlockFormat& format) {
  std::vector<Plane> planes;
  int byte = 0;
  for (int i = 0; i < format.num_levels; ++i) {
    const ScaleLevel& level = format.levels[static_cast<std::size_t>(i)];
    if (level.group == 0) continue;
    if (level.kind == ScaleKind::kMicroExponent) planes.push_back({8 * byte, level.group});
    byte += (level.storage_bits() * (format.block / level.group) + 7) / 8;
  }
  return planes;
}
bool bit_of(const std::uint8_t* scale, int bit) {
  return (scale[bit / 8] >> (bit % 8) & 1) != 0;
}
// The level bits that act on element i, as one number.
std::uint32_t levels_of(const std::vector<Plane>& planes, const std::uint8_t* scale,
                        std::int64_t i) {
  std::uint32_t key = 0;
  for (const Plane& p : planes)
    key = 2 * key + (bit_of(scale, p.first_bit + static_cast<int>(i / p.group)) ? 1u : 0u);
  return key;
}

std::string ranges(const std::vector<int>& codes) {
  std::string text;
  for (std::size_t i = 0; i < codes.size();) {
    std::size_t last = i;
    while (last + 1 < codes.size() && codes[last + 1] == codes[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += fmt::format("0x{:02x}", codes[i]);
    if (last > i) text += fmt::format("-0x{:02x}", codes[last]);
    i = last + 1;
  }
  return text;
}

// if4: bit 7 of the scale byte marks INT4 elements.
bool is_marked(const Recipe& recipe) {
  return recipe.family == Family::kNvfp4 && recipe.nvfp4.int4_candidate;
}

// Codes that the type of the outermost block scale has; 0: not of one byte.
int scale_codes(const Recipe& recipe) {
  const BlockFormat& format = recipe.format;
  if (format.scale_bytes != 1 && !has_micro_levels(format)) return 0;
  for (int i = 0; i < format.num_levels; ++i) {
    const ScaleLevel& level = format.levels[static_cast<std::size_t>(i)];
    if (level.group == 0) continue;
    if (level.kind == ScaleKind::kE8m0) return 256;
    if (level.kind != ScaleKind::kMinifloat || level.spec.storage_bits() > 8) return 0;
    return static_cast<int>(level.spec.code_count()) * (is_marked(recipe) ? 2 : 1);
  }
  return 0;
}

}  // namespace

CoverageCounter::CoverageCounter(const Recipe& recipe) : recipe_(recipe) {
  int bits = 0;
  for (const Plane& p : planes_of(recipe.format)) bits += recipe.format.block / p.group;
  bit_clear_.assign(static_cast<std::size_t>(bits), false);
  bit_set_ = bit_clear_;
  // After a transform the codec sees other values than the input.
  if (recipe.code_bytes() != 1 || recipe.rht.size != 0) return;
  orders_.push_back(code_order(recipe));
  if (is_marked(recipe)) orders_.push_back(code_order(recipe, true));
  for (const CodeOrder& order : orders_)
    ties_.emplace_back(static_cast<std::size_t>(std::max(0, order.ranks - 1)), false);
}

void CoverageCounter::add_scales(const Outcome& outcome, std::size_t index) {
  const auto bytes = static_cast<std::size_t>(recipe_.format.scale_bytes);
  if (!outcome.tile.choices.empty()) ++count_.choices[outcome.tile.choices[index]];
  if (bytes == 0) return;
  const std::uint8_t* scale = outcome.tile.scales.data() + index * bytes;
  std::uint32_t stored = 0;
  for (std::size_t i = 0; i < (bit_clear_.empty() ? bytes : 1); ++i)
    stored |= std::uint32_t{scale[i]} << (8 * i);
  scales_.insert(stored);
  std::size_t bit = 0;
  for (const Plane& p : planes_of(recipe_.format)) {
    for (int i = 0; i < recipe_.format.block / p.group; ++i, ++bit)
      (bit_of(scale, p.first_bit + i) ? bit_set_ : bit_clear_)[bit] = true;
  }
}

void CoverageCounter::add_ties(const SmallTensor& input, const Outcome& outcome, std::int64_t row,
                               std::int64_t block) {
  struct Element {
    std::uint32_t levels;
    std::int64_t step;
    std::uint8_t code;
  };
  const BlockFormat& format = recipe_.format;
  const auto index = static_cast<std::size_t>(row * outcome.tile.blocks_per_row + block);
  const std::uint8_t* scale =
      outcome.tile.scales.data() + index * static_cast<std::size_t>(format.scale_bytes);
  const SourceGrid grid(input.source);
  const std::vector<Plane> planes = planes_of(format);
  std::vector<Element> elements;
  const std::int64_t count =
      std::min<std::int64_t>(format.block, input.cols - block * format.block);
  for (std::int64_t i = 0; i < count; ++i) {
    const float v = input.x[static_cast<std::size_t>(row * input.cols + block * format.block + i)];
    const std::uint8_t code = outcome.tile.codes[static_cast<std::size_t>(
        row * outcome.tile.padded_cols + block * format.block + i)];
    if (std::isfinite(v)) elements.push_back({levels_of(planes, scale, i), grid.step(v), code});
  }
  std::sort(elements.begin(), elements.end(), [](const Element& a, const Element& b) {
    return std::pair(a.levels, a.step) < std::pair(b.levels, b.step);
  });
  const std::size_t kind = orders_.size() > 1 ? outcome.tile.choices[index] : 0;
  const std::vector<int>& rank = orders_[kind].rank;
  for (std::size_t i = 1; i < elements.size(); ++i) {
    const Element &a = elements[i - 1], &b = elements[i];
    if (a.levels != b.levels || b.step != a.step + 1) continue;
    if (rank[a.code] >= 0 && rank[b.code] == rank[a.code] + 1)
      ties_[kind][static_cast<std::size_t>(rank[a.code])] = true;
  }
}

void CoverageCounter::add(const SmallTensor& input, const Outcome& outcome) {
  if (outcome.is_refused() || !outcome.has_codes) return;
  count_.elements += input.rows * input.cols;
  count_.blocks += input.rows * outcome.tile.blocks_per_row;
  for (std::int64_t row = 0; row < input.rows; ++row) {
    for (std::int64_t b = 0; b < outcome.tile.blocks_per_row; ++b) {
      add_scales(outcome, static_cast<std::size_t>(row * outcome.tile.blocks_per_row + b));
      if (!orders_.empty()) add_ties(input, outcome, row, b);
    }
  }
}

Coverage CoverageCounter::result() const {
  const auto ones = [](const std::vector<bool>& bits) {
    return static_cast<int>(std::count(bits.begin(), bits.end(), true));
  };
  Coverage c = count_;
  c.scales_hit = static_cast<int>(scales_.size());
  c.scales_all = scale_codes(recipe_);
  std::vector<int> missing;
  for (int code = 0; code < c.scales_all; ++code)
    if (!scales_.contains(static_cast<std::uint32_t>(code))) missing.push_back(code);
  c.scales_missing = ranges(missing);
  for (const std::vector<bool>& ties : ties_) {
    c.ties_hit += ones(ties);
    c.ties_all += static_cast<int>(ties.size());
  }
  c.level_bits_hit = ones(bit_clear_) + ones(bit_set_);
  c.level_bits_all = static_cast<int>(2 * bit_clear_.size());
  return c;
}

}  // namespace fp4scope
