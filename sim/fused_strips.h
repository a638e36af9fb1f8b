// fused_strips.h: where fused kernels (sim/fused.h) put the figures of a panel until a strip is
// full: TotalStrip for TileOutput::statistics, FigureStrip for TileOutput::figures.
#pragma once
#include <algorithm>
#include <type_traits>

#include "sim/cpu_kernels.h"
#include "sim/lane_io.h"
#include "sim/statistics.h"

namespace fp4scope::fused {

// Of W blocks, one to a lane. FigureStrip takes them all.
template <int W>
struct PanelFigures {
  using F = typename Lane<W>::F;
  using U = typename Lane<W>::U;
  F squared_error, absolute_error;
  U underflow, saturated, is_map4;
  F error, signal, value, product;
  U amax, max_error, zeros, inexact;  // maxima as bits of binary32
};

template <int W>
struct WideLane {
  typedef double V __attribute__((vector_size(8 * W)));
};
template <int W>
FP4SCOPE_INLINE typename WideLane<W>::V widened(const typename Lane<W>::F& v) {
  return __builtin_convertvector(v, typename WideLane<W>::V);
}
template <int W>
FP4SCOPE_INLINE void store_wide(const typename Lane<W>::F& v, double* out) {
  const auto wide = widened<W>(v);
  std::memcpy(out, &wide, sizeof wide);
}
template <int W>
FP4SCOPE_INLINE void store_counts(const typename Lane<W>::U& v, std::int32_t* out) {
  std::memcpy(out, &v, sizeof v);
}
template <int W>
FP4SCOPE_INLINE void store_bytes(const typename Lane<W>::U& v, std::uint8_t* out) {
  const auto bytes = __builtin_convertvector(v, typename ByteLane<W>::V);
  std::memcpy(out, &bytes, sizeof bytes);
}

// The sums of a strip come from 16 accumulators in memory; panels add to all of them, or to as many
// as they have lanes. Counts go round a whole tile.
template <class Codec, int W>
class TotalStrip {
  using F = typename Lane<W>::F;
  using U = typename Lane<W>::U;

 public:
  FP4SCOPE_INLINE TotalStrip(Statistics* statistics, FigureSink*) : statistics_(statistics) {
    clear_sums();
    store_zero(underflow_);
    store_zero(saturated_);
    store_zero(map4_);
  }
  FP4SCOPE_INLINE bool is_wanted() const { return statistics_ != nullptr; }
  FP4SCOPE_INLINE bool wants_values(int) const { return false; }
  FP4SCOPE_INLINE void keep_values(const F*) {}

  // `scales`: of W blocks. The first `valid` blocks count; their last one lacks `padding` elements.
  FP4SCOPE_INLINE void add_panel(const PanelFigures<W>& f, const std::uint8_t* scales, int valid,
                                 int padding) {
    if (valid != W || count_ % W != 0) {
      const PanelFigures<W> copy = f;  // so that the others stay in registers
      add_lanes(copy, scales, valid, padding);
      return;
    }
    const auto at = static_cast<std::size_t>(count_) % kStripLanes;
    add_wide(f.squared_error, squared_error_ + at);
    add_wide(f.absolute_error, absolute_error_ + at);
    add_counts(f.underflow, underflow_);
    add_counts(f.saturated, saturated_);
    if constexpr (Codec::kIsAdaptive) add_counts(f.is_map4, map4_);
    for (int l = 0; l < W; ++l) ++scale_counts_[l & 3][scales[l * Codec::kScaleBytes]];
    elements_ += W * Codec::kBlock - padding;
    advance(W);
  }

  // One block, as BlockMeter measures it.
  void add_measured(const BlockMeter& meter, const MeasuredBlock<float>& block) {
    StripFigures one;
    meter.measure(block, one, 0);
    const auto at = static_cast<std::size_t>(count_) % kStripLanes;
    squared_error_[at] += one.squared_error[0];
    absolute_error_[at] += one.absolute_error[0];
    statistics_->underflow += one.underflow[0];
    statistics_->saturated += one.saturated[0];
    statistics_->map4 += one.is_map4[0];
    elements_ += one.elements[0];
    ++scale_counts_[0][block.scale[0]];
    advance(1);
  }

  void finish() {
    if (!is_wanted()) return;
    if (count_ > 0) fold();
    statistics_->elements += elements_;
    for (int l = 0; l < W; ++l) {
      statistics_->underflow += underflow_[l];
      statistics_->saturated += saturated_[l];
      statistics_->map4 += map4_[l];
    }
    for (const auto& counts : scale_counts_) {
      for (std::size_t byte = 0; byte < 256; ++byte) statistics_->scales[byte] += counts[byte];
    }
  }

 private:
  Statistics* statistics_;
  int count_ = 0;  // blocks of the strip
  std::int64_t elements_ = 0;
  alignas(64) double squared_error_[kStripLanes];
  alignas(64) double absolute_error_[kStripLanes];
  // A tile has less than 2^32 elements.
  alignas(64) std::uint32_t underflow_[W];
  alignas(64) std::uint32_t saturated_[W];
  alignas(64) std::uint32_t map4_[W];
  // In turn, so that equal neighbours do not wait for each other.
  std::uint32_t scale_counts_[4][256] = {};

  FP4SCOPE_INLINE static void add_wide(const F& v, double* sums) {
    typename WideLane<W>::V all;
    std::memcpy(&all, sums, sizeof all);
    all = all + widened<W>(v);
    std::memcpy(sums, &all, sizeof all);
  }
  FP4SCOPE_INLINE static void add_counts(const U& v, std::uint32_t* counts) {
    U all;
    std::memcpy(&all, counts, sizeof all);
    all = all + v;
    std::memcpy(counts, &all, sizeof all);
  }
  FP4SCOPE_INLINE static void store_zero(double* sums) {
    const typename WideLane<W>::V zero{};
    std::memcpy(sums, &zero, sizeof zero);
  }
  FP4SCOPE_INLINE static void store_zero(std::uint32_t* counts) {
    const U zero{};
    std::memcpy(counts, &zero, sizeof zero);
  }
  // Vector by vector: GCC makes a loop in microcode of one memset.
  FP4SCOPE_INLINE void clear_sums() {
    for (std::size_t k = 0; k < kStripLanes; k += W) {
      store_zero(squared_error_ + k);
      store_zero(absolute_error_ + k);
    }
  }
  [[gnu::noinline]] void add_lanes(const PanelFigures<W>& f, const std::uint8_t* scales, int valid,
                                   int padding) {
    for (int l = 0; l < valid; ++l) {
      const auto at = static_cast<std::size_t>(count_) % kStripLanes;
      squared_error_[at] += static_cast<double>(f.squared_error[l]);
      absolute_error_[at] += static_cast<double>(f.absolute_error[l]);
      statistics_->underflow += f.underflow[l];
      statistics_->saturated += f.saturated[l];
      if constexpr (Codec::kIsAdaptive) statistics_->map4 += f.is_map4[l];
      elements_ += Codec::kBlock - (l == valid - 1 ? padding : 0);
      ++scale_counts_[0][scales[l * Codec::kScaleBytes]];
      advance(1);
    }
  }
  FP4SCOPE_INLINE void advance(int blocks) {
    count_ += blocks;
    if (count_ == kStripBlocks) fold();
  }
  FP4SCOPE_INLINE void fold() {
    double squared_error = 0, absolute_error = 0;
    for (std::size_t k = 0; k < kStripLanes; ++k) {
      squared_error += squared_error_[k];
      absolute_error += absolute_error_[k];
    }
    statistics_->squared_error += squared_error;
    statistics_->absolute_error += absolute_error;
    statistics_->blocks += count_;
    count_ = 0;
    clear_sums();
  }
};

// Figures block by block. A panel may write beyond the end of the strip; what it wrote there then
// begins the next one.
template <class Codec, int W>
class FigureStrip {
  using F = typename Lane<W>::F;
  static constexpr int kBlock = Codec::kBlock;
  static constexpr int kScaleBytes = Codec::kScaleBytes;

 public:
  FP4SCOPE_INLINE FigureStrip(Statistics*, FigureSink* sink) : sink_(sink) {
    reset();
    strip_.zeros.fill(0);
    strip_.is_map4.fill(0);
    wants_now_ = sink_->wants_values(0);
    wants_next_ = sink_->wants_values(kStripBlocks);
  }
  FP4SCOPE_INLINE bool is_wanted() const { return true; }
  // Whether blocks of this or, where the panel reaches beyond its end, the next strip want values.
  FP4SCOPE_INLINE bool wants_values(int valid) const {
    return wants_now_ || (filled_ + valid > kStripBlocks && wants_next_);
  }
  // Before the add_panel() that they belong to.
  FP4SCOPE_INLINE void keep_values(const F* v) {
    store_panel<W, kBlock>(v, values_ + filled_ * kBlock);
  }

  FP4SCOPE_INLINE void add_panel(const PanelFigures<W>& f, const std::uint8_t* scales, int valid,
                                 int padding) {
    const int at = filled_;
    store_wide<W>(f.squared_error, &strip_.squared_error[at]);
    store_wide<W>(f.absolute_error, &strip_.absolute_error[at]);
    store_counts<W>(f.underflow, &strip_.underflow[at]);
    store_counts<W>(f.saturated, &strip_.saturated[at]);
    if constexpr (Codec::kIsAdaptive) store_bytes<W>(f.is_map4, &strip_.is_map4[at]);
    store_counts<W>(f.underflow, &strip_.underflow_code[at]);
    store_counts<W>(f.zeros, &strip_.zeros[at]);
    store_counts<W>(f.inexact, &strip_.inexact[at]);
    store_wide<W>(bit_cast<F>(f.amax), &strip_.amax[at]);
    store_wide<W>(bit_cast<F>(f.max_error), &strip_.max_error[at]);
    store_wide<W>(f.error, &strip_.error[at]);
    store_wide<W>(f.signal, &strip_.signal[at]);
    store_wide<W>(f.signal, &strip_.energy[at]);
    store_wide<W>(f.value, &strip_.value[at]);
    store_wide<W>(f.product, &strip_.product[at]);
    std::memcpy(scales_ + at * kScaleBytes, scales, W * kScaleBytes);
    if (padding != 0) {
      const auto last = static_cast<std::size_t>(at + valid - 1);
      strip_.elements[last] = strip_.finite[last] = strip_.counted[last] = kBlock - padding;
      strip_.zeros[last] -= padding;
      is_ragged_ = true;
    }
    advance(valid);
  }

  void add_measured(const BlockMeter& meter, const MeasuredBlock<float>& block) {
    meter.measure(block, strip_, filled_);
    is_ragged_ = true;
    std::memcpy(scales_ + filled_ * kScaleBytes, block.scale, kScaleBytes);
    std::memcpy(values_ + filled_ * kBlock, block.v,
                static_cast<std::size_t>(block.n) * sizeof(float));
    advance(1);
  }

  FP4SCOPE_INLINE void finish() {
    if (filled_ > 0) flush(filled_);
  }

 private:
  FigureSink* sink_;
  StripFigures strip_;
  int filled_ = 0;                               // blocks in the strip
  bool wants_now_ = false, wants_next_ = false;  // values, for this strip and the next one
  bool is_ragged_ = false;  // an entry of elements, finite or counted is not kBlock
  alignas(64) std::uint8_t scales_[(kStripBlocks + W) * kScaleBytes];
  alignas(64) float values_[(kStripBlocks + W) * kBlock];

  void reset() {
    strip_.elements.fill(kBlock);
    strip_.finite.fill(kBlock);
    strip_.counted.fill(kBlock);
    for (int i = 0; i < kStripBlocks; ++i) {
      strip_.values[static_cast<std::size_t>(i)] = values_ + i * kBlock;
    }
    strip_.scales = scales_;
    is_ragged_ = false;
  }
  FP4SCOPE_INLINE void advance(int blocks) {
    filled_ += blocks;
    if (filled_ >= kStripBlocks) flush(kStripBlocks);
  }
  [[gnu::noinline]] void flush(int count) {
    strip_.count = count;
    sink_->add(strip_);
    if (is_ragged_ || filled_ > count) restart(count);
    wants_now_ = wants_next_;
    wants_next_ = sink_->wants_values(strip_.first + 2 * kStripBlocks);
    strip_.first += count;
    filled_ -= count;
  }
  void restart(int count) {
    const int rest = filled_ - count;
    const StripFigures from = strip_;
    reset();
    const auto move = [&](auto& to, const auto& old) {
      std::copy_n(old.begin() + count, rest, to.begin());
    };
    move(strip_.elements, from.elements);
    move(strip_.finite, from.finite);
    move(strip_.counted, from.counted);
    move(strip_.zeros, from.zeros);
    move(strip_.inexact, from.inexact);
    move(strip_.underflow, from.underflow);
    move(strip_.underflow_code, from.underflow_code);
    move(strip_.saturated, from.saturated);
    move(strip_.amax, from.amax);
    move(strip_.max_error, from.max_error);
    move(strip_.squared_error, from.squared_error);
    move(strip_.absolute_error, from.absolute_error);
    move(strip_.error, from.error);
    move(strip_.signal, from.signal);
    move(strip_.value, from.value);
    move(strip_.product, from.product);
    move(strip_.energy, from.energy);
    move(strip_.is_map4, from.is_map4);
    std::memmove(scales_, scales_ + count * kScaleBytes,
                 static_cast<std::size_t>(rest * kScaleBytes));
    std::memmove(values_, values_ + count * kBlock,
                 static_cast<std::size_t>(rest * kBlock) * sizeof(float));
    for (int i = 0; i < rest; ++i) is_ragged_ = is_ragged_ || strip_.counted[i] != kBlock;
  }
};

}  // namespace fp4scope::fused
