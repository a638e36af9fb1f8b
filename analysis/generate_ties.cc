// generate_ties.cc: see generate_ties.h. One 64-bit word per element holds all draws: bits 0-1
// where it lies, bit 2 its sign, bits 3-4 whether it is on a code instead, bits 32-63 which
// midpoint. The word of the first element of a group also has the anchor's place (bits 8-17) and
// size (18-19), that of a block the size of the block's anchor (20-26) and which group has it
// (27-31).
#include "analysis/generate_ties.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/analyze.h"
#include "analysis/dtype_grid.h"
#include "analysis/tiles.h"
#include "sim/element.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::uint64_t field(std::uint64_t bits, int low, int width) {
  return bits >> low & ((std::uint64_t{1} << width) - 1);
}

double with_sign(double magnitude, std::uint64_t bits) {
  return field(bits, 2, 1) != 0 ? -magnitude : magnitude;
}

[[noreturn]] void refuse(const Recipe& recipe, const std::string& why) {
  throw Error(ErrorKind::kUsage,
              fmt::format("recipe {} cannot align ties: {}", to_string(recipe), why));
}
void require_ties(const Recipe& recipe) {
  const char* why = nullptr;
  if (recipe.element_ties() == Rounding::kStochastic) why = "stochastic rounding has no ties";
  if (recipe.rht.size != 0) why = "a Hadamard transform moves the values off their ties";
  if (recipe.format.lut != nullptr) why = "elements from a table are not supported";
  if (recipe.format.name == "if4") why = "its blocks have two kinds of elements";
  if (why != nullptr) refuse(recipe, why);
}

OuterScale32 outer_for(const Backend& backend, const Recipe& recipe, float amax) {
  return backend.outer_scale(recipe, amax_of(recipe, bit_cast<std::uint32_t>(amax)));
}

// 448 * 6, 6, 7 and 15 times a power of two: what largest codes and scales of formats divide.
float choose_amax(const Backend& backend, const Recipe& recipe) {
  constexpr float kCandidates[] = {5.25f, 6.0f, 7.0f, 7.5f, 4.0f, 5.0f};
  for (const float amax : kCandidates) {
    const float g = outer_for(backend, recipe, amax).g;
    if ((bit_cast<std::uint32_t>(g) & 0x007fffffu) == 0) return amax;
  }
  return kCandidates[0];
}

std::int64_t finest_group(const BlockFormat& format) {
  std::int64_t finest = format.block;
  for (int i = 0; i < format.num_levels; ++i) {
    const int group = format.levels[static_cast<std::size_t>(i)].group;
    if (group > 0) finest = std::min<std::int64_t>(finest, group);
  }
  return finest;
}

// So many that a midpoint (m + 2 bits) times the scale still fits the dtype, and no more than a
// minifloat scale keeps.
int anchor_bits(const BlockFormat& format, DType dtype) {
  int bits = std::min(4, significant_bits(dtype) - format.element.mantissa_bits - 2);
  for (int i = 0; i < format.num_levels; ++i) {
    const ScaleLevel& level = format.levels[static_cast<std::size_t>(i)];
    if (level.kind == ScaleKind::kMinifloat) bits = std::min(bits, level.spec.mantissa_bits + 1);
  }
  return std::max(bits, 1);
}

std::vector<double> midpoints_of(MinifloatSpec spec) {
  std::vector<double> midpoints;
  for (std::uint32_t code = 0; code < spec.max_finite_code(); ++code) {
    const double low = decode<Lane<1>>(spec, code), high = decode<Lane<1>>(spec, code + 1);
    midpoints.push_back((low + high) / 2);
  }
  return midpoints;
}

}  // namespace

struct TieAligned::Pass {
  const TileSpan& span;
  double* values;
  Work& work;
  std::vector<OuterScale32> outer;  // one, or one per row

  double& at(std::int64_t row, std::int64_t col) { return values[row * span.cols + col]; }
  double at(std::int64_t row, std::int64_t col) const { return values[row * span.cols + col]; }
  std::uint64_t bits(std::int64_t row, std::int64_t col) const {
    return work.bits[static_cast<std::size_t>(row * span.cols + col)];
  }
};

TieAligned::TieAligned(const Recipe& recipe, DType dtype, std::int64_t cols, StreamKey key,
                       float amax)
    : recipe_(recipe),
      backend_(choose_backend("auto", recipe)),
      dtype_(dtype),
      cols_(cols),
      key_(key),
      amax_(amax),
      group_(finest_group(recipe.format)),
      significand_bits_(anchor_bits(recipe.format, dtype)),
      largest_(decode<Lane<1>>(recipe.format.element, recipe.format.element.max_finite_code())),
      midpoints_(midpoints_of(recipe.format.element)) {
  require_ties(recipe);
  if (amax_ == 0) amax_ = choose_amax(backend_, recipe_);
  if (!(amax_ >= 0x1p-10f && amax_ <= 0x1p10f) || rounded_to(dtype, amax_) != double{amax_}) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the amax of a tie-aligned tensor has to be a value of {} from 2^-10 "
                            "to 2^10, found {}",
                            dtype_name(dtype), amax_));
  }
  outer_ = outer_for(backend_, recipe_, amax_);
}

// The largest code times a number with few significant bits, in one of the six octaves up to the
// amax.
double TieAligned::block_anchor(std::int64_t row, std::int64_t block, std::uint64_t bits) const {
  if (block == 0 && (row == 0 || recipe_.scales_rows())) return amax_;
  const std::uint64_t smallest = std::uint64_t{1} << (significand_bits_ - 1);
  std::uint64_t significand = smallest + field(bits, 20, 4) % smallest;
  // HiF4 multiplies with the BF16 reciprocal of the scale: only powers of two have exact ties.
  if (recipe_.family == Family::kHif4 && field(bits, 22, 2) != 0) significand = smallest;
  double anchor = largest_ * static_cast<double>(significand);
  while (anchor > double{amax_}) anchor /= 2;
  while (anchor * 2 <= double{amax_}) anchor *= 2;
  for (std::uint64_t i = field(bits, 24, 3) % 6; i > 0; --i) anchor /= 2;
  return rounded_to(dtype_, anchor);
}

void TieAligned::place_anchors(Pass& pass) const {
  const TileSpan& span = pass.span;
  const std::int64_t block = recipe_.format.block, groups = block / group_;
  std::fill_n(pass.values, span.elements(), 0.0);
  pass.work.anchors.clear();
  for (std::int64_t row = 0; row < span.rows; row += recipe_.format.block_rows) {
    for (std::int64_t col = 0; col < span.cols; col += block) {
      const std::uint64_t block_bits = pass.bits(row, col);
      const std::int64_t block_index = (span.col + col) / block;
      const double top = block_anchor(span.row + row, block_index, block_bits);
      const bool first = top == double{amax_} && block_index == 0;
      const std::int64_t present =
          std::min(groups, (std::min(block, span.cols - col) + group_ - 1) / group_);
      const std::int64_t host =
          first ? 0 : static_cast<std::int64_t>(field(block_bits, 27, 5)) % present;
      for (std::int64_t g = 0; g < present; ++g) {
        const std::int64_t from = col + g * group_, n = std::min(group_, span.cols - from);
        const std::uint64_t bits = pass.bits(row, from);
        const std::int64_t place =
            first && g == 0 ? 0 : static_cast<std::int64_t>(field(bits, 8, 10)) % n;
        constexpr double kSizes[] = {1.0, 0.5, 0.25, 1.0};
        const double size = g == host ? top : top * kSizes[field(bits, 18, 2)];
        pass.at(row, from + place) = with_sign(size, bits);
        pass.work.anchors.push_back({from + place, size});
      }
    }
  }
}

void TieAligned::quantize(Pass& pass) const {
  const TileSpan& span = pass.span;
  Work& work = pass.work;
  const std::size_t n = static_cast<std::size_t>(span.elements());
  work.f32.resize(n);
  std::transform(pass.values, pass.values + n, work.f32.begin(),
                 [](double v) { return static_cast<float>(v); });
  Tile tile;
  tile.f32 = work.f32.data();
  tile.f64 = dtype_ == DType::kF64 ? pass.values : nullptr;
  tile.rows = span.rows;
  tile.cols = tile.stride = span.cols;
  tile.source = source_type(dtype_);
  tile.first_row = span.row;
  tile.first_col = span.col;
  tile.tensor_cols = cols_;
  try {
    backend_.quantize(recipe_, tile, pass.outer, work.quantized);
  } catch (const RefusedInput& error) {
    refuse(recipe_, error.what());
  }
}

double TieAligned::scaled(const Pass& pass, std::int64_t row, std::int64_t col,
                          double value) const {
  const QuantizedTile& q = pass.work.quantized;
  const std::int64_t block = recipe_.format.block, b = row * q.blocks_per_row + col / block;
  const std::int64_t first = col / block * block;
  SourceBlock source;
  source.n = static_cast<int>(std::min(block, pass.span.cols - first));
  const std::size_t at = static_cast<std::size_t>(row * pass.span.cols + first);
  (dtype_ == DType::kF64 ? void(source.f64 = pass.values + at)
                         : void(source.f32 = pass.work.f32.data() + at));
  return scaled_magnitude(recipe_, outer_of_row(recipe_, pass.outer, row),
                          q.scales.data() + b * recipe_.format.scale_bytes,
                          !q.choices.empty() && q.choices[static_cast<std::size_t>(b)] != 0,
                          static_cast<int>(col % block), value, source);
}

// The value of the dtype near `start` that is scaled to the midpoint, or the smallest above it.
double TieAligned::value_near(const Pass& pass, std::int64_t row, std::int64_t col, double target,
                              double start) const {
  double v = rounded_to(dtype_, start);
  constexpr int kMostSteps = 8;
  double y = scaled(pass, row, col, v);
  // What multiplies on encode need not be the reciprocal of the decode scale (HiF4: its BF16 form).
  if (y > 0 && y != target) {
    v = rounded_to(dtype_, v * (target / y));
    y = scaled(pass, row, col, v);
  }
  for (int i = 0; i < kMostSteps && y > target; ++i) {
    const double below = neighbour(dtype_, v, -1), scaled_below = scaled(pass, row, col, below);
    if (scaled_below < target) return v;
    v = below;
    y = scaled_below;
  }
  for (int i = 0; i < kMostSteps && y < target; ++i) {
    v = neighbour(dtype_, v, 1);
    y = scaled(pass, row, col, v);
  }
  return v;
}

// What the largest code decodes to, at every element: the scales without writing their rules.
void TieAligned::decode_largest(Pass& pass) const {
  QuantizedTile& q = pass.work.quantized;
  const std::uint32_t code = recipe_.format.element.max_finite_code();
  const int bytes = recipe_.code_bytes();
  for (std::size_t i = 0; i < q.codes.size(); ++i)
    q.codes[i] = static_cast<std::uint8_t>(code >> 8 * (i % static_cast<std::size_t>(bytes)));
  pass.work.decoded.resize(static_cast<std::size_t>(pass.span.elements()));
  backend_.dequantize(recipe_, q, pass.outer, pass.work.decoded.data(), pass.span.cols);
}

// One element other than the anchors, under an anchor of magnitude `limit`.
double TieAligned::tie_value(const Pass& pass, std::int64_t row, std::int64_t col,
                             double limit) const {
  const std::uint64_t bits = pass.bits(row, col);
  const double unit =
      double{pass.work.decoded[static_cast<std::size_t>(row * pass.span.cols + col)]} / largest_;
  if (!(unit > 0 && unit < kFloatMax)) return with_sign(0, bits);
  const auto end = std::upper_bound(midpoints_.begin(), midpoints_.end(), limit / unit);
  const auto count = static_cast<std::uint64_t>(end - midpoints_.begin());
  if (count == 0) return with_sign(0, bits);
  const std::uint64_t pick = field(bits, 32, 32) * count >> 32;
  // A block of ties alone would have less error under the other candidate and choose that.
  if (recipe_.chooses() && field(bits, 3, 2) != 0) {
    const double code = decode<Lane<1>>(recipe_.format.element, static_cast<std::uint32_t>(pick));
    return with_sign(rounded_to(dtype_, code * unit), bits);
  }
  const double target = midpoints_[static_cast<std::size_t>(pick)];
  double v = value_near(pass, row, col, target, target * unit);
  const std::uint64_t beside = field(bits, 0, 2);
  if (beside >= 2) v = neighbour(dtype_, v, beside == 2 ? -1 : 1);
  return with_sign(std::min(v, limit), bits);
}

// The elements of all blocks, or of those whose scales differ from `before`.
void TieAligned::fill_blocks(Pass& pass, const QuantizedTile* before) const {
  const TileSpan& span = pass.span;
  const QuantizedTile& q = pass.work.quantized;
  const std::int64_t block = recipe_.format.block, band = recipe_.format.block_rows;
  const std::int64_t groups = (span.cols + group_ - 1) / group_;
  const auto is_same = [&](std::int64_t b) {
    const auto bytes = static_cast<std::size_t>(recipe_.format.scale_bytes);
    const std::size_t at = static_cast<std::size_t>(b) * bytes;
    return std::equal(q.scales.begin() + at, q.scales.begin() + at + bytes,
                      before->scales.begin() + at) &&
           (q.choices.empty() ||
            q.choices[static_cast<std::size_t>(b)] == before->choices[static_cast<std::size_t>(b)]);
  };
  for (std::int64_t row = 0; row < span.rows; ++row) {
    for (std::int64_t g = 0; g < groups; ++g) {
      if (before != nullptr && is_same(row * q.blocks_per_row + g * group_ / block)) continue;
      const Anchor& anchor = pass.work.anchors[static_cast<std::size_t>(row / band * groups + g)];
      const std::int64_t end = std::min((g + 1) * group_, span.cols);
      for (std::int64_t col = g * group_; col < end; ++col) {
        if (row % band == 0 && col == anchor.col) continue;
        pass.at(row, col) = tie_value(pass, row, col, anchor.magnitude);
      }
    }
  }
}

void TieAligned::count_ties(const Pass& pass, TieCounts& counts) const {
  for (std::int64_t row = 0; row < pass.span.rows; ++row) {
    for (std::int64_t col = 0; col < pass.span.cols; ++col) {
      const double y = scaled(pass, row, col, pass.at(row, col));
      counts.ties += std::binary_search(midpoints_.begin(), midpoints_.end(), y);
    }
  }
  counts.elements += pass.span.elements();
}

void TieAligned::fill(const TileSpan& span, double* out, Work& work, TieCounts& counts) const {
  Pass pass{span, out, work, {outer_}};
  if (recipe_.scales_rows()) pass.outer.assign(static_cast<std::size_t>(span.rows), outer_);
  work.bits.resize(static_cast<std::size_t>(span.elements()));
  const bool whole_rows = span.cols == cols_;
  for (std::int64_t row = 0; row < (whole_rows ? 1 : span.rows); ++row) {
    random_bits(key_, kTiePurpose, static_cast<std::uint64_t>((span.row + row) * cols_ + span.col),
                std::span(work.bits).subspan(
                    static_cast<std::size_t>(row * span.cols),
                    static_cast<std::size_t>(span.cols * (whole_rows ? span.rows : 1))));
  }
  place_anchors(pass);
  quantize(pass);
  // Where the other elements have a say in the scales, the blocks they changed are filled again.
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    const QuantizedTile before = round == 0 ? QuantizedTile{} : work.previous;
    work.previous = work.quantized;
    decode_largest(pass);
    fill_blocks(pass, round == 0 ? nullptr : &before);
    quantize(pass);
    if (work.quantized.scales == work.previous.scales &&
        work.quantized.choices == work.previous.choices) {
      break;
    }
  }
  count_ties(pass, counts);
}

}  // namespace fp4scope
