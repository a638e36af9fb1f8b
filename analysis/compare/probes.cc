// probes.cc: see the header. Thresholds: probe_blocks.cc and probe_ties.cc; special values:
// probe_specials.cc.
#include "analysis/compare/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/analyze.h"
#include "analysis/compare/probe_blocks.h"
#include "analysis/compare/probe_parts.h"

namespace fp4scope {
namespace {

float peak_of(const Block& block) {
  float peak = 0;
  for (const float v : block) peak = std::max(peak, std::fabs(v));
  return peak;
}

std::vector<Block> both_sides(const std::vector<Threshold>& thresholds) {
  std::vector<Block> blocks;
  for (const Threshold& t : thresholds) {
    blocks.push_back(t.below);
    blocks.push_back(t.above);
  }
  return blocks;
}

std::string under(float amax) {
  return amax == 0 ? "" : fmt::format(", tensor maximum {}", amax);
}

// Scales, ties and choices under one outer maximum. The first maximum is looked at in full.
class Thresholds {
 public:
  Thresholds(const Backend& backend, const Recipe& recipe, SourceType source, float amax,
             std::size_t index)
      : lab_(backend, recipe, source, amax),
        is_first_(index == 0),
        suffix_(index == 0 ? "" : fmt::format("-{}", index)),
        under_(under(amax)) {}

  void add_to(std::vector<Probe>& probes) {
    add_scales(probes);
    add_ties(probes);
    add_choices(probes);
  }

 private:
  void add(std::vector<Probe>& probes, const std::string& name, const std::string& what,
           const std::vector<Block>& blocks) {
    add_blocks(lab_, name + suffix_, what + under_, blocks, probes);
  }
  void add_scales(std::vector<Probe>& probes) {
    const SourceGrid& grid = lab_.grid();
    const std::int64_t most = lab_.amax() == 0 ? grid.largest() : grid.step(lab_.amax());
    const bool has_byte = lab_.recipe().format.scale_bytes == 1 || lab_.has_micro_levels();
    const std::size_t limit = !has_byte ? 24 : is_first_ ? 512 : 64;
    // Below 2^-24 of a tensor maximum every block scale is its smallest.
    const std::int64_t least = std::max<std::int64_t>(1, most - 24 * grid.binade());
    thresholds_ = scale_thresholds(lab_, Fill::kMixed, lab_.amax() == 0 ? 1 : least, most, limit);
    add(probes, "scales", "block maxima one step apart with different scales",
        both_sides(thresholds_));
    if (!is_first_ || !lab_.recipe().chooses()) return;
    for (const Fill fill : {Fill::kThrees, Fill::kOneHot}) {
      const std::vector<Threshold> more =
          scale_thresholds(lab_, fill, lab_.amax() == 0 ? 1 : least, most, limit);
      add(probes, fill == Fill::kThrees ? "scales-map4" : "scales-one-hot",
          "the same with another choice between map-to-4 and map-to-6", both_sides(more));
    }
  }
  // The largest maxima that some scales have, evenly chosen.
  std::vector<float> peaks() const {
    const std::size_t wanted = is_first_ ? 5 : 2;
    std::vector<float> list;
    for (std::size_t i = 0; i < std::min(wanted, thresholds_.size()); ++i)
      list.push_back(peak_of(thresholds_[(2 * i + 1) * thresholds_.size() / (2 * wanted)].below));
    if (!list.empty()) return list;
    if (lab_.amax() != 0) return {lab_.amax()};
    const SourceGrid& grid = lab_.grid();
    return {grid.value(grid.largest()), grid.toward_zero(2.875f), grid.toward_zero(0.0013f)};
  }
  void add_ties(std::vector<Probe>& probes) {
    std::vector<Block> blocks;
    const int levels = lab_.has_micro_levels() ? 3 : 1;
    const int choices = lab_.recipe().chooses() ? 2 : 1;
    for (const float peak : peaks()) {
      for (int i = 0; i < levels * choices; ++i) {
        const std::vector<Block> some = tie_blocks(lab_, peak, i % levels, i / levels);
        blocks.insert(blocks.end(), some.begin(), some.end());
      }
    }
    add(probes, "ties", "elements one step apart with adjacent codes, and their midpoints", blocks);
  }
  void add_choices(std::vector<Probe>& probes) {
    Random random(0x243f6a8885a308d3u);
    std::vector<Block> blocks;
    const std::size_t pairs = is_first_ ? 48 : 24;
    for (const float peak : peaks()) {
      const std::vector<Block> some =
          both_sides(state_thresholds(lab_, peak, pairs / peaks().size() + 1, random));
      blocks.insert(blocks.end(), some.begin(), some.end());
    }
    const bool chooses = lab_.recipe().chooses();
    add(probes, chooses ? "choices" : "levels",
        chooses ? "blocks one step apart in one element with different choices"
                : "blocks one step apart in one element with different level bits",
        blocks);
  }

  BlockLab lab_;
  bool is_first_;
  std::string suffix_, under_;
  std::vector<Threshold> thresholds_;
};

}  // namespace

std::vector<float> probe_maxima(const Recipe& recipe, SourceType source) {
  if (!recipe.needs_amax()) return {0.0f};
  // 2688 and 1536 give g = 1 (E4M3 ceilings 448 and 256) and 448 the FP8 scale 1; then maxima of
  // spec/nvfp4.md 3.1, 7 and 8, and the ends of the range.
  const SourceGrid grid(source);
  std::vector<float> maxima;
  for (const float wanted :
       {2688.0f, 2.875f, 5.90625f, 25.75f, 17.25f, 1536.0f, 448.0f, 0.0371f, 1.7e-5f, 3.1e4f,
        0x1.8p-30f, 0x1.3p100f, 0x1p-126f, 0x1p-140f, 0x1.fffffep127f}) {
    const float value = grid.toward_zero(wanted);
    if (value != 0 && std::find(maxima.begin(), maxima.end(), value) == maxima.end())
      maxima.push_back(value);
  }
  return maxima;
}

std::vector<Probe> probes_of(const Recipe& recipe, SourceType source) {
  const Backend& backend = choose_backend("auto", recipe);
  std::vector<Probe> probes;
  const std::vector<float> maxima = probe_maxima(recipe, source);
  for (std::size_t i = 0; i < maxima.size(); ++i)
    Thresholds(backend, recipe, source, maxima[i], i).add_to(probes);
  add_specials(backend, recipe, source, maxima, probes);
  add_shapes(recipe, source, probes);
  for (Probe& probe : probes) {
    if (probe.name.ends_with(kRefusedSuffix)) continue;
    if (outcome_of(backend, recipe, probe, false).is_refused()) probe.name += kRefusedSuffix;
  }
  return probes;
}

}  // namespace fp4scope
