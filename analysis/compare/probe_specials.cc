// probe_specials.cc: special values and shapes (probes.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "analysis/compare/probe_parts.h"
#include "analysis/generate.h"

namespace fp4scope {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Blocks of special values; sizes and positions follow the recipe.
class Specials {
 public:
  explicit Specials(const BlockLab& lab) : lab_(lab), n_(lab.elements()) {}

  Block all(float v) const { return Block(static_cast<std::size_t>(n_), v); }
  // `base` with v at some places.
  Block with(Block base, float v, std::initializer_list<std::int64_t> places) const {
    for (const std::int64_t at : places) base[static_cast<std::size_t>(at % n_)] = v;
    return base;
  }
  // Ordinary data of maximum about `peak`.
  Block data(float peak) const {
    return filled_block(lab_, Fill::kMixed, lab_.grid().step(peak), n_ / 3);
  }
  // v at the first, second, middle and last place of four blocks.
  std::vector<Block> at_places(const Block& base, float v) const {
    return {with(base, v, {0}), with(base, v, {1}), with(base, v, {n_ / 2}),
            with(base, v, {n_ - 1})};
  }
  Block alternating(float even, float odd) const {
    Block block = all(even);
    for (std::size_t i = 1; i < block.size(); i += 2) block[i] = odd;
    return block;
  }
  // The peak, then magnitudes that halve from it, of alternating signs, and -0.
  Block halving(float peak, int first) const {
    Block block;
    float v = std::ldexp(peak, -first);
    for (std::int64_t i = 0; i < n_; ++i, v *= 0.5f)
      block.push_back(lab_.grid().toward_zero(i % 2 == 0 ? v : -v));
    return with(with(block, peak, {n_ / 2}), -0.0f, {n_ - 1});
  }
  Block subnormals() const {
    Block block;
    for (std::int64_t i = 0; i < n_; ++i) {
      const std::int64_t step = (lab_.grid().binade() >> (i % 8)) - (i % 3);
      block.push_back(lab_.grid().value(i % 2 == 0 ? step : -step));
    }
    return block;
  }

 private:
  const BlockLab& lab_;
  std::int64_t n_;
};

void append(std::vector<Block>& list, std::vector<Block> more) {
  list.insert(list.end(), more.begin(), more.end());
}

// Without an anchor: what follows is the whole tensor.
void add_whole_tensors(const BlockLab& lab, std::vector<Probe>& probes) {
  const Specials s(lab);
  const SourceGrid& grid = lab.grid();
  const float largest = grid.value(grid.largest()), smallest = grid.value(1);
  add_blocks(lab, "zero-tensor", "a tensor of +0", {s.all(0.0f), s.all(0.0f)}, probes);
  add_blocks(lab, "zero-tensor-negative", "a tensor of -0", {s.all(-0.0f)}, probes);
  add_blocks(lab, "subnormal-tensor", "a tensor of subnormals",
             {s.subnormals(), s.all(smallest), s.with(s.all(0.0f), -smallest, {3})}, probes);
  std::vector<Block> large = s.at_places(s.data(1.0f), -largest);
  append(large, {s.all(largest), s.alternating(largest, -largest), s.halving(largest, 0)});
  add_blocks(lab, "largest", "the largest finite number of the type", large, probes);
  std::vector<Block> infinite = s.at_places(s.data(1.0f), -kInf);
  append(infinite, {s.all(kInf), s.with(s.all(0.0f), kInf, {2}), s.data(2.875f)});
  add_blocks(lab, "infinity",
             "infinities at the ends and in the middle of a block, alone and with "
             "zeros; a block without",
             infinite, probes);
  add_blocks(lab, "nan-infinity", "NaN and infinity in one block",
             {s.with(s.with(s.data(2.0f), kInf, {1}), kNan, {4}), s.alternating(kNan, kInf)},
             probes);
  add_blocks(lab, "nan-tensor", "a tensor of NaN", {s.all(kNan), s.all(-kNan)}, probes);
}

void add_within_data(const BlockLab& lab, float peak, std::vector<Probe>& probes) {
  const Specials s(lab);
  const float smallest = lab.grid().value(1);
  add_blocks(lab, "zero-blocks", "blocks of +0, of -0 and of both, beside others",
             {s.all(0.0f), s.all(-0.0f), s.alternating(0.0f, -0.0f), s.alternating(-0.0f, peak)},
             probes);
  add_blocks(lab, "subnormal", "subnormals alone and beside larger numbers",
             {s.subnormals(), s.all(smallest), s.with(s.all(0.0f), -smallest, {5}),
              s.with(s.subnormals(), peak, {2}), s.alternating(smallest, -0.0f)},
             probes);
  std::vector<Block> halving;
  for (const int first : {0, 3, 9, 17, 33}) halving.push_back(s.halving(peak, first));
  add_blocks(lab, "underflow",
             "magnitudes far below the maximum of the block, of both signs, and -0", halving,
             probes);
  std::vector<Block> small;
  for (const int down : {8, 10, 11, 12, 14, 20, 30}) {
    const float top = lab.grid().toward_zero(std::ldexp(peak, -down));
    if (top != 0) append(small, {s.data(top), s.alternating(top, -0.0f)});
  }
  add_blocks(lab, "underflow-blocks", "blocks far below the maximum of the tensor", small, probes);
  std::vector<Block> nan = s.at_places(s.data(peak), kNan);
  append(nan, {s.with(s.data(peak), -kNan, {2, 5})});
  add_blocks(lab, "nan", "one NaN at the ends and in the middle of a block", nan, probes);
  add_blocks(lab, "nan-blocks", "blocks of NaN alone, and of NaN and zeros",
             {s.all(kNan), s.alternating(kNan, 0.0f), s.alternating(-0.0f, -kNan)}, probes);
}

Probe shaped(const std::string& name, const std::string& what, std::int64_t rows, std::int64_t cols,
             SourceType source) {
  Probe probe;
  probe.name = name;
  probe.what = what;
  probe.rows = rows;
  probe.cols = cols;
  probe.source = source;
  probe.x.resize(static_cast<std::size_t>(rows * cols));
  return probe;
}

// Heavy-tailed data with a scale of its own for every row.
void fill_rows(Probe& probe, std::uint64_t seed) {
  constexpr float kScales[] = {1.0f, 0.0137f, 41.5f, 2.875f, 0.3f};
  const SourceGrid grid(probe.source);
  for (std::int64_t r = 0; r < probe.rows; ++r) {
    const std::span<float> row(probe.x.data() + r * probe.cols,
                               static_cast<std::size_t>(probe.cols));
    generate(Distribution::kStudent3, seed, r * probe.cols, kScales[r % 5], row);
    for (float& v : row) v = grid.toward_zero(v);
  }
}

// Each block of a band has its maximum in another row.
void add_band(const Recipe& recipe, SourceType source, std::vector<Probe>& probes) {
  const std::int64_t band = recipe.format.block_rows, block = recipe.format.block;
  constexpr std::int64_t kMostElements = 33000;
  const std::int64_t across = std::clamp<std::int64_t>(kMostElements / (band * block), 1, band);
  Probe probe = shaped("band", "2-D blocks with the maximum in different rows, and a partial band",
                       band + 3, across * block, source);
  fill_rows(probe, 11);
  for (std::int64_t b = 0; b < across; ++b) {
    const std::int64_t row = b * band / across, col = b * block + (5 * b + 1) % block;
    probe.x[static_cast<std::size_t>(row * probe.cols + col)] = 4096.0f;
  }
  probes.push_back(std::move(probe));
}

// bf16: numbers beside and on the midpoints of BF16, with even and odd neighbours, in every binade.
void add_bf16_ties(SourceType source, std::vector<Probe>& probes) {
  const SourceGrid grid(source);
  std::vector<float> x;
  for (std::uint32_t field = 0; field < 255; ++field) {
    for (const std::uint32_t low : {0x7fffu, 0x8000u, 0x8001u, 0x17fffu, 0x18000u, 0x18001u}) {
      const std::uint32_t sign = field % 2 << 31;
      x.push_back(grid.toward_zero(std::bit_cast<float>(sign | field << 23 | low)));
    }
  }
  x.resize(64 * 24);
  Probe probe = shaped("ties", "midpoints of BF16 and the steps beside them", 24, 64, source);
  probe.x = std::move(x);
  probes.push_back(std::move(probe));
}

}  // namespace

void add_blocks(const BlockLab& lab, const std::string& name, const std::string& what,
                const std::vector<Block>& blocks, std::vector<Probe>& probes) {
  if (blocks.empty()) return;
  const std::vector<BlockResult> results = lab.run(blocks);
  std::vector<Block> accepted, refused;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    (results[i].is_refused ? refused : accepted).push_back(blocks[i]);
  if (refused.size() > 1) refused.resize(1);
  const auto add = [&](const std::vector<Block>& list, const char* suffix) {
    if (list.empty()) return;
    Probe probe;
    static_cast<SmallTensor&>(probe) = lab.tensor_of(list);
    probe.name = name + suffix;
    probe.what = what;
    probes.push_back(std::move(probe));
  };
  add(accepted, "");
  add(refused, kRefusedSuffix);
}

void add_specials(const Backend& backend, const Recipe& recipe, SourceType source,
                  const std::vector<float>& maxima, std::vector<Probe>& probes) {
  const BlockLab alone(backend, recipe, source, 0);
  add_whole_tensors(alone, probes);
  const float amax = maxima.size() > 1 ? maxima[1] : 0.0f;
  const BlockLab within(backend, recipe, source, amax);
  add_within_data(within, amax != 0 ? amax : within.grid().toward_zero(2.875f), probes);
}

void add_shapes(const Recipe& recipe, SourceType source, std::vector<Probe>& probes) {
  const std::int64_t block = recipe.format.block;
  const std::int64_t whole = std::lcm(block, std::max<std::int64_t>(1, recipe.rht.size));
  Probe rows = shaped("rows", "rows of different sizes, one of them zero", 6, 2 * whole, source);
  fill_rows(rows, 7);
  std::fill(rows.x.begin() + 4 * rows.cols, rows.x.begin() + 5 * rows.cols, 0.0f);
  probes.push_back(std::move(rows));
  Probe random = shaped("random", "heavy-tailed data", 8, 4 * whole, source);
  fill_rows(random, 3);
  probes.push_back(std::move(random));
  if (recipe.is_2d()) add_band(recipe, source, probes);
  if (recipe.family == Family::kPass) add_bf16_ties(source, probes);
  if (recipe.ragged() == Ragged::kError || recipe.rht.size != 0) return;
  for (const std::int64_t tail : {std::int64_t{1}, block / 2, block - 1}) {
    Probe ragged = shaped(fmt::format("ragged-{}", tail),
                          fmt::format("rows that end {} elements into a block", tail), 2,
                          2 * block + tail, source);
    fill_rows(ragged, 5);
    probes.push_back(std::move(ragged));
  }
}

}  // namespace fp4scope
