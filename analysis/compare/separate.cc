// separate.cc: see the header.
#include "analysis/compare/separate.h"

#include <algorithm>
#include <cmath>

#include "analysis/analyze.h"
#include "analysis/compare/hard_tensors.h"
#include "analysis/compare/probes.h"

namespace fp4scope {
namespace {

// Two recipes with their backends.
struct Pair {
  const Recipe& a;
  const Recipe& b;
  const Backend& on_a;
  const Backend& on_b;
  const ComparedPlanes& planes;
  std::optional<Difference> difference(const SmallTensor& tensor) const {
    return first_difference(a, outcome_of(on_a, a, tensor, planes.values), b,
                            outcome_of(on_b, b, tensor, planes.values), planes);
  }
};

// Rows [first, first + rows) and, side by side, some of their blocks.
SmallTensor cut(const SmallTensor& tensor, std::int64_t first, std::int64_t rows,
                const std::vector<std::int64_t>& blocks, std::int64_t block_size) {
  SmallTensor out;
  out.source = tensor.source;
  out.rows = rows;
  for (const std::int64_t b : blocks)
    out.cols += std::min(block_size, tensor.cols - b * block_size);
  for (std::int64_t r = first; r < first + rows; ++r) {
    for (const std::int64_t b : blocks) {
      const auto from = tensor.x.begin() + r * tensor.cols + b * block_size;
      out.x.insert(out.x.end(), from, from + std::min(block_size, tensor.cols - b * block_size));
    }
  }
  return out;
}

// Blocks of a band of rows by falling maximum; infinities count as such, NaN does not.
std::vector<std::int64_t> by_maximum(const SmallTensor& tensor, std::int64_t first,
                                     std::int64_t rows, std::int64_t block_size) {
  const std::int64_t count = (tensor.cols + block_size - 1) / block_size;
  std::vector<float> maxima(static_cast<std::size_t>(count), 0.0f);
  for (std::int64_t r = first; r < first + rows; ++r) {
    for (std::int64_t c = 0; c < tensor.cols; ++c) {
      const float v = std::fabs(tensor.x[static_cast<std::size_t>(r * tensor.cols + c)]);
      float& largest = maxima[static_cast<std::size_t>(c / block_size)];
      if (v > largest) largest = v;
    }
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  for (std::int64_t b = 0; b < count; ++b) order[static_cast<std::size_t>(b)] = b;
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t l, std::int64_t r) {
    return maxima[static_cast<std::size_t>(l)] > maxima[static_cast<std::size_t>(r)];
  });
  return order;
}

std::int64_t row_of_maximum(const SmallTensor& tensor) {
  std::int64_t row = 0;
  float largest = 0;
  for (std::size_t i = 0; i < tensor.x.size(); ++i) {
    if (!(std::fabs(tensor.x[i]) > largest)) continue;
    largest = std::fabs(tensor.x[i]);
    row = static_cast<std::int64_t>(i) / tensor.cols;
  }
  return row;
}

bool is_refusal(const Difference& d) {
  return d.what.starts_with("input that");
}

Separator separator_of(SmallTensor tensor, Difference difference) {
  Separator found;
  static_cast<SmallTensor&>(found) = std::move(tensor);
  found.row = difference.row;
  found.block = difference.block;
  found.what = std::move(difference.what);
  return found;
}

// The smallest of some pieces of `tensor` that still separates.
Separator shrunk(const Pair& pair, const SmallTensor& tensor, const Difference& difference) {
  const std::int64_t size = pair.a.format.block;
  const std::int64_t band = std::max(pair.a.format.block_rows, pair.b.format.block_rows);
  const std::int64_t first = difference.row / band * band;
  const std::int64_t rows = std::min(band, tensor.rows - first);
  std::vector<SmallTensor> pieces;
  const bool is_whole_row = pair.a.rht.size != 0 || pair.b.rht.size != 0;
  if (!is_whole_row) {
    // The block alone; then behind the block that has the maximum of its row, or of the tensor.
    pieces.push_back(cut(tensor, first, rows, {difference.block}, size));
    const std::int64_t largest = by_maximum(tensor, first, rows, size).front();
    pieces.push_back(cut(tensor, first, rows, {largest}, size));
    if (largest != difference.block) {
      std::vector<std::int64_t> two{largest, difference.block};
      std::sort(two.begin(), two.end());
      pieces.push_back(cut(tensor, first, rows, two, size));
    }
  }
  if (!is_whole_row && band == 1) {
    // The maximum of the tensor may be in another row.
    const std::int64_t row = row_of_maximum(tensor);
    SmallTensor two = cut(tensor, row, 1, {by_maximum(tensor, row, 1, size).front()}, size);
    const SmallTensor block = cut(tensor, first, 1, {difference.block}, size);
    two.x.insert(two.x.end(), block.x.begin(), block.x.end());
    two.cols += block.cols;
    pieces.push_back(std::move(two));
  }
  std::vector<std::int64_t> all((static_cast<std::size_t>(tensor.cols + size - 1)) /
                                static_cast<std::size_t>(size));
  for (std::size_t b = 0; b < all.size(); ++b) all[b] = static_cast<std::int64_t>(b);
  pieces.push_back(cut(tensor, first, rows, all, size));
  for (SmallTensor& piece : pieces) {
    auto found = pair.difference(piece);
    if (found && is_refusal(*found) == is_refusal(difference))
      return separator_of(std::move(piece), std::move(*found));
  }
  // A maximum in another row: rows are dropped one by one.
  SmallTensor rest = tensor;
  Difference last = difference;
  for (std::int64_t r = rest.rows - band; r >= 0 && rest.rows > band; r -= band) {
    SmallTensor fewer = rest;
    const std::int64_t from = r / band * band, to = std::min(from + band, rest.rows);
    fewer.x.erase(fewer.x.begin() + from * rest.cols, fewer.x.begin() + to * rest.cols);
    fewer.rows -= to - from;
    auto found = pair.difference(fewer);
    if (!found || is_refusal(*found) != is_refusal(difference)) continue;
    rest = std::move(fewer);
    last = std::move(*found);
  }
  return separator_of(std::move(rest), std::move(last));
}

// The search of one recipe against many.
class Search {
 public:
  Search(const Recipe& a, std::span<const Recipe> others, const SeparateOptions& options)
      : a_(a), on_a_(choose_backend("auto", a)), others_(others), options_(options) {
    found_.resize(others.size());
    refusals_.resize(others.size());
    for (const Recipe& b : others) on_b_.push_back(&choose_backend("auto", b));
  }

  std::vector<std::optional<Separator>> run() {
    probes_ = probes_of(a_, options_.source);
    shapes();
    for (const Probe& probe : probes_) try_all(probe);
    for (std::size_t i = 0; i < others_.size(); ++i) {
      if (found_[i]) continue;
      for (const Probe& probe : probes_of(others_[i], options_.source)) try_one(i, probe);
      // What one of them refuses tells them apart as well.
      if (!found_[i]) found_[i] = std::move(refusals_[i]);
    }
    at_random();
    return std::move(found_);
  }

 private:
  void shapes() {
    for (std::size_t i = 0; i < others_.size(); ++i) {
      std::string what = shape_difference(a_, others_[i]);
      if (what.empty() || !(options_.planes.codes || options_.planes.scales)) continue;
      SmallTensor block;
      block.source = options_.source;
      block.rows = 1;
      block.cols = a_.format.block;
      block.x.assign(static_cast<std::size_t>(block.cols), 1.0f);
      found_[i] = separator_of(std::move(block), {0, 0, std::move(what)});
    }
  }
  bool is_done() const {
    return std::all_of(found_.begin(), found_.end(), [](const auto& f) { return f.has_value(); });
  }
  void try_all(const SmallTensor& tensor) {
    if (is_done()) return;
    const Outcome on_a = outcome_of(on_a_, a_, tensor, options_.planes.values);
    for (std::size_t i = 0; i < others_.size(); ++i) compare(i, tensor, on_a);
  }
  void try_one(std::size_t i, const SmallTensor& tensor) {
    if (!found_[i]) compare(i, tensor, outcome_of(on_a_, a_, tensor, options_.planes.values));
  }
  void compare(std::size_t i, const SmallTensor& tensor, const Outcome& on_a) {
    if (found_[i]) return;
    const Recipe& b = others_[i];
    const auto difference = first_difference(
        a_, on_a, b, outcome_of(*on_b_[i], b, tensor, options_.planes.values), options_.planes);
    if (!difference) return;
    const Pair pair{a_, b, on_a_, *on_b_[i], options_.planes};
    if (is_refusal(*difference)) {
      if (!refusals_[i]) refusals_[i] = shrunk(pair, tensor, *difference);
    } else {
      found_[i] = shrunk(pair, tensor, *difference);
    }
  }
  void at_random() {
    if (options_.blocks <= 0) return;
    Random random(options_.seed + 0x9e3779b97f4a7c15u);
    std::int64_t seen = 0;
    const auto block_count = [&](const SmallTensor& t) {
      return t.rows * ((t.cols + a_.format.block - 1) / a_.format.block);
    };
    // A quarter of the budget near thresholds, at most 400 tensors.
    for (std::int64_t round = 0; round < 400 && seen < options_.blocks / 4 && !is_done(); ++round) {
      const SmallTensor tensor = hard_tensor(on_a_, a_, options_.source, probes_, round, random);
      seen += block_count(tensor);
      try_all(tensor);
    }
    for (std::int64_t round = 0; seen < options_.blocks && !is_done(); ++round) {
      const SmallTensor tensor = ordinary_tensor(a_, options_.source, options_.seed, round);
      seen += block_count(tensor);
      try_all(tensor);
    }
  }

  const Recipe& a_;
  const Backend& on_a_;
  std::span<const Recipe> others_;
  SeparateOptions options_;
  std::vector<const Backend*> on_b_;
  std::vector<Probe> probes_;
  std::vector<std::optional<Separator>> found_, refusals_;
};

}  // namespace

std::vector<std::optional<Separator>> separate_all(const Recipe& a, std::span<const Recipe> others,
                                                   const SeparateOptions& options) {
  return Search(a, others, options).run();
}

std::optional<Separator> separate(const Recipe& a, const Recipe& b,
                                  const SeparateOptions& options) {
  return std::move(separate_all(a, {&b, 1}, options)[0]);
}

}  // namespace fp4scope
