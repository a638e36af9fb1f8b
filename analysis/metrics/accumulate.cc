// accumulate.cc: from the figures of blocks to the counts and sums of one tile. The order of every
// float addition is fixed by block index; see totals.h.
#include <algorithm>
#include <bit>
#include <cmath>

#include "analysis/metrics/totals.h"
#include "formats/minifloat.h"
#include "formats/scalars.h"
#include "formats/widen.h"

namespace fp4scope {
namespace {

std::uint32_t magnitude_bits(float v) {
  return bit_cast<std::uint32_t>(v) & kMagnitudeMask;
}
bool is_finite(float v) {
  return magnitude_bits(v) < kInfBits;
}
bool is_finite(double v) {
  return (bit_cast<std::uint64_t>(v) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull;
}
float magnitude(float v) {
  return bit_cast<float>(magnitude_bits(v));
}
double magnitude(double v) {
  return bit_cast<double>(bit_cast<std::uint64_t>(v) & 0x7fffffffffffffffull);
}
// floor(log2(v)) of a positive finite value, from its bits.
int exponent_of(double v) {
  int offset = 1023;
  if (v < 0x1p-1022) {
    v *= 0x1p54;
    offset += 54;
  }
  return static_cast<int>(bit_cast<std::uint64_t>(v) >> 52) - offset;
}
constexpr std::array<std::uint8_t, 256> kBitsOfByte = [] {
  std::array<std::uint8_t, 256> bits{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    bits[byte] = static_cast<std::uint8_t>(std::popcount(byte));
  }
  return bits;
}();

// A histogram of a tile. Neighbours go to different copies, so that equal ones, which are common,
// do not wait for each other.
template <std::size_t kBins>
class TileHistogram {
 public:
  void add(std::size_t turn, std::size_t bin) { ++counts_[turn % kCopies][bin]; }
  std::int64_t count(std::size_t bin) const {
    std::int64_t n = 0;
    for (const auto& copy : counts_) n += copy[bin];
    return n;
  }
  void add_to(std::vector<std::int64_t>& totals) const {
    for (std::size_t bin = 0; bin < kBins; ++bin) totals[bin] += count(bin);
  }

 private:
  static constexpr std::size_t kCopies = 4;
  std::array<std::array<std::uint32_t, kBins>, kCopies> counts_{};  // a tile has less than 2^32
};

// The largest of n nonnegative numbers, or 0; in four chains.
double largest(const StripFigures::PerBlock<double>& v, std::size_t n) {
  std::array<double, 4> most{};
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (std::size_t k = 0; k < 4; ++k) most[k] = std::max(most[k], v[i + k]);
  }
  for (; i < n; ++i) most[0] = std::max(most[0], v[i]);
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
}

// The outermost stored block scale: what its bytes mean to the counters.
struct ScaleTraits {
  bool exists = false;   // false: the format has an outer scale only, or none
  bool is_byte = false;  // one byte: it has a histogram
  std::array<bool, 256> zero{}, nan{}, top{};
  ScaleKind kind = ScaleKind::kE8m0;
  // Positions of the one-bit levels behind the scale byte: elements per bit.
  std::array<int, 2> micro{};
};
ScaleTraits scale_traits(const Recipe& recipe) {
  ScaleTraits t;
  int micros = 0;
  for (int i = 0; i < recipe.format.num_levels; ++i) {
    const ScaleLevel& level = recipe.format.levels[static_cast<std::size_t>(i)];
    if (level.group == 0) continue;
    if (level.kind == ScaleKind::kMicroExponent) {
      if (micros < 2) t.micro[static_cast<std::size_t>(micros++)] = level.group;
      continue;
    }
    if (t.exists) continue;
    t.exists = true;
    t.kind = level.kind;
    t.is_byte = level.storage_bits() == 8;
    for (std::uint32_t byte = 0; t.is_byte && byte < 256; ++byte) {
      if (level.kind == ScaleKind::kE8m0) {
        t.nan[byte] = byte == 255;
        t.top[byte] = byte == 254;
        continue;
      }
      // if4 marks INT4 blocks in the sign bit of the scale, which no other format uses.
      const std::uint32_t code = level.spec.storage_bits() == 7 ? byte & 0x7fu : byte;
      const float v = decode<Lane<1>>(level.spec, code);
      t.zero[byte] = v == 0;
      t.nan[byte] = v != v;
      t.top[byte] = code == level.spec.max_finite_code();
    }
  }
  return t;
}

// Value of a wider block scale.
float wide_scale(ScaleKind kind, const std::uint8_t* bytes) {
  const std::uint32_t low = bytes[0] | static_cast<std::uint32_t>(bytes[1]) << 8;
  if (kind == ScaleKind::kBinary16) return decode<Lane<1>>(kFP16, low);
  if (kind == ScaleKind::kBfloat16) return bit_cast<float>(low << 16);
  return bit_cast<float>(low | static_cast<std::uint32_t>(bytes[2]) << 16 |
                         static_cast<std::uint32_t>(bytes[3]) << 24);
}

constexpr int kErrorRun = 64;
template <class X>
void count_errors(const X* x_of, const float* v_of, int n, Tallies& t) {
  for (; n > kErrorRun; n -= kErrorRun, x_of += kErrorRun, v_of += kErrorRun) {
    count_errors(x_of, v_of, kErrorRun, t);
  }
  // Bins, -1 for what does not count, in a loop without branches.
  std::array<std::int32_t, kErrorRun> absolute, relative;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const X x = x_of[i], v = static_cast<X>(v_of[i]);
    const X d = magnitude(v - x);
    const std::uint32_t bits = magnitude_bits(static_cast<float>(d)) >> kErrorBinShift;
    const std::uint32_t share =
        magnitude_bits(static_cast<float>(d / magnitude(x))) >> kErrorBinShift;
    const std::uint32_t lost = (is_finite(x) ? 0u : ~0u) | (is_finite(v) ? 0u : ~0u);
    absolute[i] = static_cast<std::int32_t>(bits | lost);
    relative[i] = static_cast<std::int32_t>(share | lost | (x == X{} ? ~0u : 0u));
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    if (absolute[i] >= 0) ++t.absolute_error_bins[static_cast<std::size_t>(absolute[i])];
    if (relative[i] >= 0) ++t.relative_error_bins[static_cast<std::size_t>(relative[i])];
  }
}

// Folds the strips of one tile, which come in order.
class TileAccumulator final : public FigureSink {
 public:
  TileAccumulator(const TilePlace& place, Tallies& tallies, TileSums& sums)
      : place_(place),
        tallies_(tallies),
        tile_(sums),
        scale_(scale_traits(place.recipe)),
        width_(place.recipe.format.block),
        blocks_per_row_((place.tile.cols + width_ - 1) / width_) {
    if (!place.grid.enabled() || place.tile.rows * blocks_per_row_ == 0) return;
    begin_row();
    const std::int64_t first = place.first_row / place.grid.rows_per_cell;
    const std::int64_t last = (place.first_row + place.tile.rows - 1) / place.grid.rows_per_cell;
    tile_.first_cell = first * place.grid.grid_cols;
    columns_.resize(static_cast<std::size_t>(blocks_per_row_));
    tile_.cell_error.assign(static_cast<std::size_t>((last - first + 1) * place.grid.grid_cols),
                            0.0);
  }

  ~TileAccumulator() override {
    exponents_.add_to(tallies_.amax_exponents);
    if (scale_.is_byte) {
      scales_.add_to(tallies_.scales);
      count_limits();
    }
    if (rows_of_columns_ > 0) add_columns();
  }
  TileAccumulator(const TileAccumulator&) = delete;
  TileAccumulator& operator=(const TileAccumulator&) = delete;

  bool wants_values(std::int64_t first) const override {
    return place_.full_percentiles || first / kStripBlocks % kSampleStrips == 0;
  }

  void add(const StripFigures& s) override {
    if (scale_.exists) {
      if (scale_.is_byte) {
        count_scale_bytes(s);
      } else {
        for (int i = 0; i < s.count; ++i) count_wide_scale(s, i);
      }
    }
    count(s);
    add_sums(s);
    if (wants_values(s.first)) {
      for (int i = 0; i < s.count; ++i) count_errors_of(s, i);
    }
    if (place_.grid.enabled()) add_to_maps(s);
  }

 private:
  const TilePlace& place_;
  Tallies& tallies_;
  TileSums& tile_;
  ScaleTraits scale_;
  std::int64_t width_, blocks_per_row_;
  // Where the first block of the next strip is, for the maps: its row, how many blocks are left of
  // the row and of its cell, and the cell.
  std::int64_t row_ = 0, left_of_row_ = 0, left_of_cell_ = 0, cell_ = 0;
  // Counts of each column of blocks over the rows of a row of cells.
  struct Columns {
    std::vector<std::int32_t> elements, underflow, saturated, scales;
    void resize(std::size_t n) {
      for (auto* counts : {&elements, &underflow, &saturated, &scales}) counts->assign(n, 0);
    }
  };
  Columns columns_;
  std::int64_t rows_of_columns_ = 0;
  TileHistogram<2 * kExponentOffset> exponents_;
  TileHistogram<256> scales_;
  std::array<std::uint8_t, kStripBlocks> is_zero_scale_{};

  // Scale bytes: histogram, limits, one-bit levels.
  void count_scale_bytes(const StripFigures& s) {
    const int stride = place_.recipe.format.scale_bytes;
    is_zero_scale_.fill(0);
    bool has_least = false;
    for (int i = 0; i < s.count; ++i) {
      const std::uint8_t byte = s.scales[i * stride];
      scales_.add(static_cast<std::size_t>(i), byte);
      has_least = has_least | (byte == 0) | scale_.zero[byte];
    }
    if (has_least) count_least_scales(s);
    if (scale_.micro[0] == 0) return;
    for (int i = 0; i < s.count; ++i) count_level_bits(s, i);
  }
  void count_least_scales(const StripFigures& s) {
    for (int i = 0; i < s.count; ++i) {
      const auto k = static_cast<std::size_t>(i);
      const std::uint8_t byte = s.scales[i * place_.recipe.format.scale_bytes];
      is_zero_scale_[k] = scale_.zero[byte] ? 1 : 0;
      if (s.amax[k] == 0) continue;
      tallies_.counts.lost_blocks += scale_.zero[byte];
      tallies_.counts.scale_min += byte == 0;
    }
  }
  // What the bytes say by themselves.
  void count_limits() {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (scale_.nan[byte]) tallies_.counts.scale_nan += scales_.count(byte);
      if (scale_.top[byte]) tallies_.counts.scale_max += scales_.count(byte);
    }
  }
  void count_wide_scale(const StripFigures& s, int i) {
    const auto k = static_cast<std::size_t>(i);
    const float v = wide_scale(scale_.kind, s.scales + i * place_.recipe.format.scale_bytes);
    is_zero_scale_[k] = v == 0 ? 1 : 0;
    tallies_.counts.lost_blocks += s.amax[k] != 0 && v == 0;
    tallies_.counts.scale_nan += v != v;
  }
  // Of the groups that have elements: a padded block ends before some of its bits.
  void count_level_bits(const StripFigures& s, int i) {
    const std::uint8_t* bytes = s.scales + i * place_.recipe.format.scale_bytes + 1;
    Counts& counts = tallies_.counts;
    for (std::size_t level = 0; level < 2 && scale_.micro[level] != 0; ++level) {
      const int group = scale_.micro[level];
      const int groups = (s.elements[static_cast<std::size_t>(i)] + group - 1) / group;
      int set = 0;
      for (int at = 0; at < groups; at += 8) {
        const unsigned mask = groups - at >= 8 ? 0xffu : (1u << (groups - at)) - 1u;
        set += kBitsOfByte[bytes[at / 8] & mask];
      }
      (level == 0 ? counts.level2_bits : counts.level3_bits) += groups;
      (level == 0 ? counts.level2_set : counts.level3_set) += set;
      bytes += (place_.recipe.format.block / group + 7) / 8;  // bits of a level begin at a byte
    }
  }

  void count(const StripFigures& s) {
    // At most 2^16 elements in a block.
    std::int32_t elements = 0, finite = 0, counted = 0, zeros = 0, inexact = 0, underflow = 0,
                 live_underflow = 0, saturated = 0, zero_blocks = 0, chosen4 = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(s.count); ++i) {
      elements += s.elements[i];
      finite += s.finite[i];
      counted += s.counted[i];
      zeros += s.zeros[i];
      inexact += s.inexact[i];
      underflow += s.underflow[i];
      live_underflow += s.underflow_code[i] & (std::int32_t{is_zero_scale_[i]} - 1);
      saturated += s.saturated[i];
      zero_blocks += s.zeros[i] == s.elements[i] ? 1 : 0;
      chosen4 += s.is_map4[i];
    }
    Counts& counts = tallies_.counts;
    counts.elements += elements;
    counts.counted += counted;
    counts.zeros += zeros;
    counts.nonzero += finite - zeros;
    counts.nonfinite_in += elements - finite;
    counts.nonfinite_out += finite - counted;
    counts.inexact += inexact;
    counts.underflow_code += live_underflow;
    counts.underflow_scale += underflow - live_underflow;
    counts.saturated += saturated;
    counts.blocks += s.count;
    counts.zero_blocks += zero_blocks;
    counts.chosen4 += chosen4;
    count_exponents(s);
  }
  void count_exponents(const StripFigures& s) {
    const auto n = static_cast<std::size_t>(s.count);
    std::array<std::uint64_t, kStripBlocks> fields;
    std::uint64_t is_normal = 1;
    for (std::size_t i = 0; i < n; ++i) {
      fields[i] = bit_cast<std::uint64_t>(s.amax[i]) >> 52;
      is_normal = is_normal & ((fields[i] + 2047) >> 11);  // 0 for field 0
    }
    if (is_normal != 0) {
      tallies_.counts.nonzero_blocks += s.count;
      for (std::size_t i = 0; i < n; ++i) exponents_.add(i, fields[i] + kExponentOffset - 1023);
      return;
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (s.amax[i] == 0) continue;
      ++tallies_.counts.nonzero_blocks;
      exponents_.add(i, static_cast<std::size_t>(exponent_of(s.amax[i]) + kExponentOffset));
    }
  }

  void add_sums(const StripFigures& s) {
    StripFigures::PerBlock<double> crest;
    const auto n = static_cast<std::size_t>(s.count);
    // Full blocks of 2^k elements: the product with 2^-k is the quotient.
    const auto width = static_cast<std::uint32_t>(width_);
    bool is_full = std::has_single_bit(width);
    for (std::size_t i = 0; i < n; ++i) {
      is_full = is_full & (static_cast<std::uint32_t>(s.finite[i]) == width);
    }
    if (is_full) {
      const double inverse = 1.0 / width;
      for (std::size_t i = 0; i < n; ++i) crest[i] = s.energy[i] * inverse;
    } else {
      for (std::size_t i = 0; i < n; ++i) crest[i] = s.energy[i] / s.finite[i];
    }
    // 0/0 where nothing is finite, 0/0 and more of zeros: not counted.
    for (std::size_t i = 0; i < n; ++i) {
      const double ratio = s.amax[i] / std::sqrt(crest[i]);
      crest[i] = s.amax[i] == 0 ? 0.0 : ratio;
    }
    tile_.crest_max = std::max(tile_.crest_max, largest(crest, n));
    tile_.amax = std::max(tile_.amax, largest(s.amax, n));
    tile_.max_abs_err = std::max(tile_.max_abs_err, largest(s.max_error, n));
    tile_.sums.add({folded(s.squared_error, s.count), folded(s.absolute_error, s.count),
                    folded(s.error, s.count), folded(s.signal, s.count), folded(s.value, s.count),
                    folded(s.product, s.count), folded(crest, s.count)});
  }

  void count_errors_of(const StripFigures& s, int i) {
    const std::int64_t index = s.first + i;
    const std::int64_t at =
        index / blocks_per_row_ * place_.tile.stride + index % blocks_per_row_ * width_;
    const auto k = static_cast<std::size_t>(i);
    const Tile& tile = place_.tile;
    if (tile.f64 != nullptr) {
      count_errors(tile.f64 + at, s.values[k], s.elements[k], tallies_);
    } else if (tile.f32 != nullptr) {
      count_errors(tile.f32 + at, s.values[k], s.elements[k], tallies_);
    } else {
      count_errors_of_half(tile.f16 + at, s.values[k], s.elements[k]);
    }
  }
  void count_errors_of_half(const std::uint16_t* x, const float* v, int n) {
    std::array<float, kErrorRun> wide;
    for (int i = 0; i < n; i += kErrorRun) {
      const int run = std::min(kErrorRun, n - i);
      widen_halves(place_.tile.source == SourceType::kBf16, x + i, run, wide.data());
      count_errors(wide.data(), v + i, run, tallies_);
    }
  }

  void begin_row() {
    const MapGrid& grid = place_.grid;
    left_of_row_ = blocks_per_row_;
    left_of_cell_ = grid.blocks_per_cell - place_.first_block % grid.blocks_per_cell;
    cell_ = first_cell_of_row(row_);
  }
  std::int64_t first_cell_of_row(std::int64_t row) const {
    const MapGrid& grid = place_.grid;
    return (place_.first_row + row) / grid.rows_per_cell * grid.grid_cols +
           place_.first_block / grid.blocks_per_cell;
  }
  void add_to_maps(const StripFigures& s) {
    for (int i = 0; i < s.count;) {
      // The blocks up to the end of the row.
      const int n = static_cast<int>(std::min<std::int64_t>(s.count - i, left_of_row_));
      add_to_columns(s, i, n, static_cast<std::size_t>(blocks_per_row_ - left_of_row_));
      add_errors_to_cells(s, i, i + n);
      i += n;
      left_of_row_ -= n;
      if (left_of_row_ != 0) continue;
      ++row_;
      ++rows_of_columns_;
      // Columns are added up before they overflow, too.
      if ((place_.first_row + row_) % place_.grid.rows_per_cell == 0 || rows_of_columns_ == 8192) {
        add_columns();
      }
      begin_row();
    }
  }
  void add_to_columns(const StripFigures& s, int from, int n, std::size_t column) {
    const auto add = [&](std::vector<std::int32_t>& to, const std::int32_t* counts) {
      std::int32_t* sums = to.data() + column;
      for (int i = 0; i < n; ++i) sums[i] += counts[from + i];
    };
    add(columns_.elements, s.finite.data());
    add(columns_.underflow, s.underflow.data());
    add(columns_.saturated, s.saturated.data());
    if (!scale_.is_byte) return;
    const std::uint8_t* bytes = s.scales + from * place_.recipe.format.scale_bytes;
    std::int32_t* sums = columns_.scales.data() + column;
    if (place_.recipe.format.scale_bytes == 1) {
      for (int i = 0; i < n; ++i) sums[i] += bytes[i];
    } else {
      for (int i = 0; i < n; ++i) sums[i] += bytes[i * place_.recipe.format.scale_bytes];
    }
  }
  void add_errors_to_cells(const StripFigures& s, int begin, int end) {
    double* errors = tile_.cell_error.data() - tile_.first_cell;
    while (begin < end) {
      const int n = static_cast<int>(std::min<std::int64_t>(end - begin, left_of_cell_));
      double sum = errors[cell_];
      for (int i = begin; i < begin + n; ++i) sum += s.squared_error[static_cast<std::size_t>(i)];
      errors[cell_] = sum;
      begin += n;
      left_of_cell_ -= n;
      if (left_of_cell_ != 0) continue;
      left_of_cell_ = place_.grid.blocks_per_cell;
      ++cell_;
    }
  }
  // The columns of the rows that ended last, to their cells.
  void add_columns() {
    const std::int64_t per_cell = place_.grid.blocks_per_cell;
    const std::int64_t first = first_cell_of_row(row_ - 1);
    for (std::int64_t block = 0; block < blocks_per_row_; ++block) {
      const auto k = static_cast<std::size_t>(block);
      const auto at =
          static_cast<std::size_t>(first + (place_.first_block % per_cell + block) / per_cell);
      tallies_.map_elements[at] += columns_.elements[k];
      tallies_.map_underflow[at] += columns_.underflow[k];
      tallies_.map_saturated[at] += columns_.saturated[k];
      tallies_.map_scale_sum[at] += columns_.scales[k];
      tallies_.map_blocks[at] += rows_of_columns_;
    }
    columns_.resize(columns_.elements.size());
    rows_of_columns_ = 0;
  }
};

void resize_if_needed(std::vector<std::int64_t>& v, std::size_t n) {
  if (v.size() < n) v.resize(n);
}

}  // namespace

bool has_scale_codes(const Recipe& recipe) {
  return scale_traits(recipe).is_byte;
}

std::unique_ptr<FigureSink> make_accumulator(const TilePlace& place, Tallies& tallies,
                                             TileSums& sums) {
  resize_if_needed(tallies.absolute_error_bins, kErrorBins);
  resize_if_needed(tallies.relative_error_bins, kErrorBins);
  resize_if_needed(tallies.amax_exponents, 2 * kExponentOffset);
  if (place.grid.enabled()) {
    const auto cells = static_cast<std::size_t>(place.grid.grid_rows * place.grid.grid_cols);
    resize_if_needed(tallies.map_elements, cells);
    resize_if_needed(tallies.map_underflow, cells);
    resize_if_needed(tallies.map_saturated, cells);
    resize_if_needed(tallies.map_scale_sum, cells);
    resize_if_needed(tallies.map_blocks, cells);
  }
  return std::make_unique<TileAccumulator>(place, tallies, sums);
}

}  // namespace fp4scope
