// fused.h: one pass over a tile: load, quantize, decode, measure, store, with everything between
// loads and stores in registers; private to the fused kernels sim/cpu_fused_*.cc. Include it after
// the pragma that silences -Wpsabi.
//
// A codec says how a format does it, over the text of formats/: one lane is one block, W blocks are
// a panel. The usual panel (finite input, scales far from the ends of binary32) goes the short way;
// any other is left, block by block, to the reference backend and sim/figures.h. So does a panel
// with a block whose sums have to be in binary64.
//
//   struct Codec {
//     static constexpr int kBlock, kScaleBytes;
//     static constexpr bool kIsAdaptive;
//     explicit Codec(const Recipe&);  void set_row(OuterScale32);
//     template <class L> struct State;  // of the blocks of a panel
//     // `amax`: magnitude bits of each block, all finite. Elements have any sign. Bit 0 of
//     // `unusual`: in which lanes the short way is not allowed; of `careful`: where elements need
//     // more care, as they may be clamped for one.
//     template <class L> void prepare(const F* x, U amax, State<L>&, U& unusual, U& careful) const;
//     // Element i on the grid of the codes, with 3 bits of code: of its magnitude or, kTakesSigns,
//     // with its sign. kWatch, of codecs that have it, lowers `doubt` to 0 where the result may be
//     // wrong; then kFull is right.
//     static constexpr bool kTakesSigns;
//     static constexpr bool kIsEverCareful, kWatches;
//     template <class L, Care kCare>
//     GridPoint<L> on_grid(const State<L>&, F magnitude, int i, U& saturated, U& doubt) const;
//     template <class L> F factor(const State<L>&, int i) const;  // decoded value = grid * factor
//     bool drops_zero_signs() const;  // the code of a zero has no sign
//     template <int W> void store_scales(const State<Lane<W>>&, std::uint8_t* out) const;
//     template <class L> U is_map4(const State<L>&) const;  // where kIsAdaptive
//   };
#pragma once
#include <algorithm>
#include <memory>

#include "formats/grid.h"
#include "sim/code_counts.h"
#include "sim/error.h"
#include "sim/fused_strips.h"
#include "sim/fused_task.h"

namespace fp4scope {

namespace fused {

template <int W, int kHalf, class V, int... I>
FP4SCOPE_INLINE V interleaved_with(V a, V b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (I % 2 * W + kHalf * W / 2 + I / 2)...);
}
// words[k], lane l -> in[words * l + k], in order: the words of W blocks one after the other.
template <int W, int words>
FP4SCOPE_INLINE void interleave(const typename Lane<W>::U* word, typename Lane<W>::U* in) {
  using U = typename Lane<W>::U;
  if constexpr (words == 1) {
    in[0] = word[0];
  } else {
    constexpr int kHalf = words / 2;
    U even[kHalf], odd[kHalf], even_in[kHalf], odd_in[kHalf];
    for (int k = 0; k < kHalf; ++k) {
      even[k] = word[2 * k];
      odd[k] = word[2 * k + 1];
    }
    interleave<W, kHalf>(even, even_in);
    interleave<W, kHalf>(odd, odd_in);
    const auto order = std::make_integer_sequence<int, W>{};
    for (int k = 0; k < kHalf; ++k) {
      in[2 * k] = interleaved_with<W, 0>(even_in[k], odd_in[k], order);
      in[2 * k + 1] = interleaved_with<W, 1>(even_in[k], odd_in[k], order);
    }
  }
}

template <class Body, int... I>
FP4SCOPE_INLINE void unrolled(std::integer_sequence<int, I...>, const Body& body) {
  (body(I), ...);
}

// What a kernel computes: figures for TileOutput::statistics, codes and values ("kept"), or these
// with all figures.
enum class Mode : std::uint8_t { kErrors, kKept, kErrorsKept, kAll };

// The least and the largest amax whose sums stay in binary32 (sim/figures.h).
inline constexpr std::uint32_t kLeastNarrow = (127u - 40u) << 23;
inline constexpr std::uint32_t kMostNarrow = (127u + 40u) << 23;

// What a panel needs, or'ed over its lanes.
inline constexpr std::uint32_t kUnusual = 1, kCareful = 2, kHasZeros = 4;
enum class Care : std::uint8_t { kNone, kWatch, kFull };

template <class Codec, int W>
struct Panel {
  typename Lane<W>::F x[Codec::kBlock];  // with their signs or without, see Signs
  typename Codec::template State<Lane<W>> state;
  typename Lane<W>::U amax;
  std::uint32_t needs;
};

// A row of blocks goes through in panels; figures are gathered in strips.
template <class Codec, class Input, Mode kMode, int W>
class Stream {
  using L = Lane<W>;
  using F = typename L::F;
  using U = typename L::U;
  using Element = typename Input::Element;
  using Strip =
      std::conditional_t<kMode == Mode::kAll, FigureStrip<Codec, W>, TotalStrip<Codec, W>>;
  static constexpr int kBlock = Codec::kBlock;
  static constexpr int kScaleBytes = Codec::kScaleBytes;
  static constexpr int kPanel = W * kBlock;  // elements
  static constexpr bool kUnrolls = W < 16;
  static constexpr bool kKeeps = kMode != Mode::kErrors;
  static constexpr bool kMeasures = kMode != Mode::kKept;
  static constexpr Signs kSigns = kKeeps               ? Signs::kKept
                                  : Codec::kTakesSigns ? Signs::kAny
                                                       : Signs::kDropped;
  // How far ahead lines are asked for, so that a core does not wait for memory: one step for each
  // element of a block, since many at once would fill the buffers between the caches.
  static constexpr std::int64_t kPanelBytes = kPanel * static_cast<std::int64_t>(sizeof(Element));
  static constexpr std::int64_t kAheadBytes = std::max<std::int64_t>(3 * kPanelBytes, 2048);

 public:
  FP4SCOPE_INLINE Stream(const FusedTask& task, const Element* x)
      : task_(task),
        x_(x),
        input_(task.tile.source),
        codec_(task.recipe),
        strip_(task.out.statistics, task.out.figures) {}

  FP4SCOPE_INLINE void run() {
    const Tile& tile = task_.tile;
    const std::int64_t blocks = (tile.cols + kBlock - 1) / kBlock;
    std::int64_t rows = tile.rows, cols = tile.cols;
    // Rows that lie one behind the other under one outer scale are one long row.
    const TileOutput& out = task_.out;
    const bool is_one = !task_.recipe.scales_rows() && cols % kBlock == 0 && tile.stride == cols &&
                        (out.packed == nullptr || out.packed_stride == cols / 2) &&
                        (out.scales == nullptr || out.scales_stride == blocks * kScaleBytes) &&
                        (out.values == nullptr || out.values_stride == cols);
    if (is_one) {
      cols *= rows;
      rows = rows > 0 ? 1 : 0;
    }
    bypasses_caches_ = out.bypass_caches && is_aligned(out.values, 4 * out.values_stride) &&
                       is_aligned(out.packed, out.packed_stride);
    for (row_ = 0; row_ < rows; ++row_) {
      codec_.set_row(outer_of_row(task_.recipe, task_.outer, row_));
      run_row(x_ + row_ * tile.stride, cols);
    }
    strip_.finish();
    if constexpr (kKeeps) {
      count_codes();
      if (!bypasses_caches_) return;
      for (int i = 0; staged_to_ != nullptr && i < kBlock; ++i) stream_staged(i);
      stream_end();
    }
  }

 private:
  const FusedTask& task_;
  const Element* x_;
  Input input_;
  Codec codec_;
  Strip strip_;
  std::int64_t row_ = 0;
  bool bypasses_caches_ = false;
  // Values of the panel before, on their way past the caches: one store for each element of a
  // block, since many at once would hold up the others.
  alignas(64) float staged_[kKeeps ? kPanel : 1];
  float* staged_to_ = nullptr;
  // Codes whose occurrences have not been counted yet.
  static constexpr std::size_t kUncounted = kKeeps ? 4096 : 64;
  alignas(64) std::uint8_t uncounted_[kUncounted];
  std::size_t uncounted_bytes_ = 0;

  static bool is_aligned(const void* rows, std::int64_t stride_bytes) {
    constexpr std::uintptr_t kVector = 4 * W;
    return rows == nullptr || (reinterpret_cast<std::uintptr_t>(rows) % kVector == 0 &&
                               static_cast<std::uintptr_t>(stride_bytes) % kVector == 0);
  }
  FP4SCOPE_INLINE void stream_staged(int i) const {
    stream_vector(staged_to_ + i * W, load_vector<F>(staged_ + i * W));
  }
  FP4SCOPE_INLINE bool wants_codes() const {
    return task_.out.packed != nullptr || task_.out.code_counts != nullptr;
  }

  FP4SCOPE_INLINE void run_row(const Element* x, std::int64_t cols) {
    const std::int64_t whole = cols / kPanel, left = cols - whole * kPanel;
    const std::int64_t panels = whole + (left != 0 ? 1 : 0);
    alignas(64) Element tail[kPanel];
    if (left != 0) {
      std::memset(tail, 0, sizeof tail);
      std::memcpy(tail, x + whole * kPanel, static_cast<std::size_t>(left) * sizeof(Element));
    }
    // The scales of the next panel are on their way while the elements of this one are done.
    Panel<Codec, W> panel[2];
    for (std::int64_t p = -1; p < panels; ++p) {
      if (p + 1 < panels) load(p + 1 < whole ? x + (p + 1) * kPanel : tail, panel[(p + 1) & 1]);
      if (p < 0) continue;
      const bool is_whole = p < whole;
      finish(panel[p & 1], is_whole ? x + p * kPanel : tail, p * W,
             is_whole ? W : static_cast<int>((left + kBlock - 1) / kBlock),
             is_whole ? kPanel : static_cast<int>(left));
    }
  }

  FP4SCOPE_INLINE void load(const Element* x, Panel<Codec, W>& panel) const {
    const auto [least, amax] = input_.template load<W, kBlock, kSigns>(x, panel.x);
    panel.amax = amax;
    U unusual{}, careful{};
    codec_.template prepare<L>(panel.x, amax, panel.state, unusual, careful);
    // Nonzero and outside of the sums in binary32, or not finite (which is above, too).
    const U is_zero = (amax - 1u) >> 31;
    unusual = unusual | ((((amax - kLeastNarrow) | ((U{} + kMostNarrow) - amax)) >> 31) & ~is_zero);
    const U needs = (unusual & 1u) | (careful & 1u) << 1 | ((least - 1u) >> 31) << 2;
    panel.needs = is_any_set<W>(needs) ? or_of_lanes<W>(needs) : 0;
    if constexpr (kKeeps) {
      // Below, every element has the sign of its input.
      if (!codec_.drops_zero_signs() || (panel.needs & kHasZeros) == 0) return;
      for (F& v : panel.x) {
        const U bits = bit_cast<U>(v);
        v = bit_cast<F>(bits & (0u - min_of(bits & kMagnitudeMask, U{} + 1u)));
      }
    }
  }

  // Blocks b .. b+valid-1 of the row, `elements` of them from the row. x: where they are.
  FP4SCOPE_INLINE void finish(const Panel<Codec, W>& panel, const Element* x, std::int64_t b,
                              int valid, int elements) {
    if ((panel.needs & kUnusual) != 0) {
      finish_by_steps(x, b, valid, elements);
      return;
    }
    if constexpr (Codec::kIsEverCareful) {
      if ((panel.needs & kCareful) != 0) {
        if constexpr (Codec::kWatches) {
          if (finish_panel<Care::kWatch>(panel, x, b, valid, elements)) return;
        }
        finish_panel<Care::kFull>(panel, x, b, valid, elements);
        return;
      }
    }
    finish_panel<Care::kNone>(panel, x, b, valid, elements);
  }

  // False, and nothing done, where kWatch finds a doubt.
  template <Care kCare>
  FP4SCOPE_INLINE bool finish_panel(const Panel<Codec, W>& panel, const Element* at, std::int64_t b,
                                    int valid, int elements) {
    const auto ahead = reinterpret_cast<std::uintptr_t>(at) + kAheadBytes;
    constexpr int kWords = kBlock / 8;
    F squared_error{}, absolute_error{}, error{}, signal{}, value{}, product{};
    U saturated{}, decoded_zeros{}, max_error{}, inexact{}, doubt = U{} + 0x7fffffffu;
    F values[kKeeps ? kBlock : 1];
    U words[kWords];
    const bool streams = kKeeps && staged_to_ != nullptr;
    U word{};
    const auto element = [&](int i) __attribute__((always_inline)) {
      __builtin_prefetch(reinterpret_cast<const void*>(
          ahead + static_cast<std::uintptr_t>(i * (kPanelBytes / kBlock))));
      if (streams) stream_staged(i);
      const F x = panel.x[i];
      const F a = kKeeps ? bit_cast<F>(bit_cast<U>(x) & kMagnitudeMask) : x;
      const GridPoint<L> q = codec_.template on_grid<L, kCare>(panel.state, a, i, saturated, doubt);
      const F v = q.value * codec_.template factor<L>(panel.state, i);
      if constexpr (kMeasures) {
        const F d = v - a;
        const U magnitude = bit_cast<U>(d) & kMagnitudeMask;
        squared_error = squared_error + d * d;
        absolute_error = absolute_error + bit_cast<F>(magnitude);
        decoded_zeros = plus_one_where<W>(v == F{}, decoded_zeros);
      }
      if constexpr (kMode == Mode::kAll) {
        const F d = v - a;
        const U magnitude = bit_cast<U>(d) & kMagnitudeMask;
        error = error + bit_cast<F>(bit_cast<U>(d) ^ (bit_cast<U>(x) & kSignBit));
        signal = signal + a * a;
        value = value + v * v;
        product = product + v * a;
        max_error = max_of(max_error, magnitude);
        inexact = inexact + min_of(magnitude, U{} + 1u);
      }
      if constexpr (kKeeps) {
        const U sign = bit_cast<U>(x) & kSignBit;
        values[i] = bit_cast<F>(bit_cast<U>(v) | sign);
        word = word >> 4 | ((q.code << 28 & kMagnitudeMask) | sign);
      }
    };
    for (int w = 0; w < kWords; ++w) {
      word = U{};
      // With 16 registers the loop costs more than it saves; with 32 it keeps loads and stores
      // apart.
      if constexpr (kUnrolls) {
        unrolled(
            std::make_integer_sequence<int, 8>{}, [&](int k) __attribute__((always_inline)) {
              element(8 * w + k);
            });
      } else {
#pragma GCC unroll 1
        for (int k = 0; k < 8; ++k) element(8 * w + k);
      }
      words[w] = word;
    }
    if constexpr (kCare == Care::kWatch) {
      if (is_any_set<W>((doubt - 1u) >> 31)) return false;
    }
    if constexpr (kSigns == Signs::kAny) {
      // The range may have left a NaN out, which no sum does.
      const U sum = bit_cast<U>(squared_error) & kMagnitudeMask;
      if (is_any_set<W>((kInfBits - 1u - sum) >> 31)) {
        finish_by_steps(at, b, valid, elements);
        return true;
      }
    }
    if constexpr (kKeeps) staged_to_ = nullptr;
    alignas(64) std::uint8_t scales[W * kScaleBytes];
    codec_.template store_scales<W>(panel.state, scales);
    if constexpr (kKeeps) {
      if (wants_codes()) store_codes_of(words, b, valid, elements);
      if (task_.out.values != nullptr) store_values(values, b, valid, elements);
      if (strip_.wants_values(valid)) strip_.keep_values(values);
      if (task_.out.scales != nullptr) {
        std::uint8_t* to = task_.out.scales + row_ * task_.out.scales_stride + b * kScaleBytes;
        if (valid == W) {
          std::memcpy(to, scales, W * kScaleBytes);
        } else {
          std::memcpy(to, scales, static_cast<std::size_t>(valid * kScaleBytes));
        }
      }
    }
    if (!kMeasures || !strip_.is_wanted()) return true;
    U zeros{};
    if ((panel.needs & kHasZeros) != 0) {
      for (int i = 0; i < kBlock; ++i) {
        zeros = zeros + 1u - min_of(bit_cast<U>(panel.x[i]) & kMagnitudeMask, U{} + 1u);
      }
    }
    PanelFigures<W> f;
    f.squared_error = squared_error;
    f.absolute_error = absolute_error;
    f.underflow = decoded_zeros - zeros;
    f.saturated = saturated;
    if constexpr (Codec::kIsAdaptive) f.is_map4 = codec_.template is_map4<L>(panel.state);
    if constexpr (kMode == Mode::kAll) {
      f.error = error;
      f.signal = signal;
      f.value = value;
      f.product = product;
      f.amax = panel.amax;
      f.max_error = max_error;
      f.zeros = zeros;
      f.inexact = inexact;
    }
    strip_.add_panel(f, scales, valid, valid * kBlock - elements);
    return true;
  }

  // Eight codes to a word of a block, packed.
  FP4SCOPE_INLINE void store_codes_of(const U* words, std::int64_t b, int valid, int elements) {
    constexpr int kBytes = kPanel / 2;
    U in_order[kBlock / 8];
    interleave<W, kBlock / 8>(words, in_order);
    const int n = valid * kBlock / 2;
    if (task_.out.packed != nullptr) {
      std::uint8_t* to = task_.out.packed + row_ * task_.out.packed_stride + b * (kBlock / 2);
      if (valid == W && bypasses_caches_) {
        for (int k = 0; k < kBlock / 8; ++k) stream_vector(to + k * 4 * W, in_order[k]);
      } else if (valid == W) {
        std::memcpy(to, in_order, kBytes);
      } else {
        std::memcpy(to, in_order, static_cast<std::size_t>(n));
      }
    }
    if (task_.out.code_counts == nullptr) return;
    std::uint8_t* to = uncounted_ + uncounted_bytes_;
    if (valid == W) {
      std::memcpy(to, words, kBytes);  // in any order
      uncounted_bytes_ += kBytes;
    } else {
      std::memcpy(to, in_order, static_cast<std::size_t>(n));
      uncounted_bytes_ += static_cast<std::size_t>(n);
    }
    task_.out.code_counts[0] -= valid * kBlock - elements;  // blocks are padded with +0
    if (uncounted_bytes_ + kBytes > kUncounted) count_codes();
  }

  FP4SCOPE_INLINE void store_values(const F* v, std::int64_t b, int valid, int elements) {
    float* to = task_.out.values + row_ * task_.out.values_stride + b * kBlock;
    if (valid == W && elements == kPanel) {
      store_panel<W, kBlock>(v, bypasses_caches_ ? staged_ : to);
      if (bypasses_caches_) staged_to_ = to;
      return;
    }
    float local[kPanel];
    store_panel<W, kBlock>(v, local);
    std::memcpy(to, local, static_cast<std::size_t>(elements) * sizeof(float));
  }

  void count_codes() {
    if (uncounted_bytes_ != 0) {
      count_nibbles(uncounted_, uncounted_bytes_, task_.out.code_counts);
    }
    uncounted_bytes_ = 0;
  }

  // The long way, block by block.
  [[gnu::noinline, gnu::cold]] void finish_by_steps(const Element* x, std::int64_t b, int valid,
                                                    int elements) {
    const Backend& reference = *cpu_backends().back();
    const BlockMeter meter(task_.recipe);
    const auto outer = task_.recipe.scales_rows()
                           ? task_.outer.subspan(static_cast<std::size_t>(row_), 1)
                           : task_.outer;
    const TileOutput& out = task_.out;
    for (int l = 0; l < valid; ++l) {
      const int n = std::min(kBlock, elements - l * kBlock);
      float block[kBlock] = {}, v[kBlock] = {};
      for (int i = 0; i < n; ++i) block[i] = input_.widened(x[l * kBlock + i]);
      Tile tile = task_.tile;
      tile.f32 = block;
      tile.f64 = nullptr;
      tile.f16 = nullptr;
      tile.rows = 1;
      tile.cols = tile.stride = n;
      QuantizedTile q;
      try {
        reference.quantize(task_.recipe, tile, outer, q);
      } catch (const RefusedInput& e) {
        const std::int64_t at = row_ * task_.tile.stride + (b + l) * kBlock;
        throw RefusedInput(at / task_.tile.stride, e.what());
      }
      reference.dequantize(task_.recipe, q, outer, v, n);
      if (strip_.is_wanted()) {
        strip_.add_measured(
            meter, {block, v, q.codes.data(), q.scales.data(), outer_of_row(task_.recipe, outer, 0),
                    n, !q.choices.empty() && q.choices[0] != 0});
      }
      if (out.code_counts != nullptr) {
        for (int i = 0; i < n; ++i) ++out.code_counts[q.codes[static_cast<std::size_t>(i)]];
      }
      if (out.packed != nullptr) {
        std::uint8_t* to = out.packed + row_ * out.packed_stride + (b + l) * (kBlock / 2);
        for (std::size_t i = 0; i < kBlock / 2; ++i) {
          to[i] = static_cast<std::uint8_t>(q.codes[2 * i] | q.codes[2 * i + 1] << 4);
        }
      }
      if (out.scales != nullptr) {
        std::memcpy(out.scales + row_ * out.scales_stride + (b + l) * kScaleBytes, q.scales.data(),
                    kScaleBytes);
      }
      if (out.values != nullptr) {
        std::memcpy(out.values + row_ * out.values_stride + (b + l) * kBlock, v,
                    static_cast<std::size_t>(n) * sizeof(float));
      }
    }
  }
};

// A codec for one kind of input and all that may be wanted.
template <class Codec, class Input, int W>
FP4SCOPE_INLINE void run_stream(const FusedTask& task, const typename Input::Element* x) {
  const TileOutput& out = task.out;
  const bool keeps = out.packed != nullptr || out.scales != nullptr || out.values != nullptr ||
                     out.code_counts != nullptr;
  if (out.figures != nullptr) {
    Stream<Codec, Input, Mode::kAll, W>(task, x).run();
  } else if (keeps && out.statistics != nullptr) {
    Stream<Codec, Input, Mode::kErrorsKept, W>(task, x).run();
  } else if (keeps) {
    Stream<Codec, Input, Mode::kKept, W>(task, x).run();
  } else {
    Stream<Codec, Input, Mode::kErrors, W>(task, x).run();
  }
}
template <class Codec, class Input, int W>
FP4SCOPE_INLINE void run_input(const FusedTask& task) {
  if constexpr (sizeof(typename Input::Element) == 2) {
    run_stream<Codec, Input, W>(task, task.tile.f16);
  } else {
    run_stream<Codec, Input, W>(task, task.tile.f32);
  }
}
template <class Codec, class Input>
[[gnu::target(FP4SCOPE_AVX2)]] void run_avx2(const FusedTask& task) {
  run_input<Codec, Input, 8>(task);
}
template <class Codec, class Input>
[[gnu::target(FP4SCOPE_AVX512)]] void run_avx512(const FusedTask& task) {
  run_input<Codec, Input, 16>(task);
}
template <class Codec, class Input>
FusedFn for_isa(Isa isa) {
  return isa == Isa::kAvx512 ? run_avx512<Codec, Input>
         : isa == Isa::kAvx2 ? run_avx2<Codec, Input>
                             : nullptr;
}
template <class Codec>
FusedFn for_input(Isa isa, const Tile& tile) {
  return tile.f32 != nullptr ? for_isa<Codec, F32Input>(isa) : for_isa<Codec, HalfInput>(isa);
}

}  // namespace fused
}  // namespace fp4scope
