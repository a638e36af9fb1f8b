// cpu_hif4.cc: CPU kernels of HiF4 and HiFX, and of user-defined formats with one-bit levels.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "sim/cpu_hif4.h"

#include "formats/codecs/hif4.h"
#include "formats/scalars.h"

namespace fp4scope {
namespace {

template <int W>
FP4SCOPE_INLINE void store_group(QuantizeTask& task, std::int64_t row, std::int64_t b,
                                 const Hif4Block<Lane<W>>& out) {
  store_codes<W>(out.codes, 64, task.codes(row) + 64 * b);
  for (int l = 0; l < W; ++l) {
    std::uint8_t* s = task.scales(row) + 4 * (b + l);
    const std::uint32_t level3 = lane_of<W>(out.level3, l);
    s[0] = static_cast<std::uint8_t>(lane_of<W>(out.scale, l));
    s[1] = static_cast<std::uint8_t>(lane_of<W>(out.level2, l));
    s[2] = static_cast<std::uint8_t>(level3);
    s[3] = static_cast<std::uint8_t>(level3 >> 8);
    refuse_nonfinite(task, row, lane_of<W>(out.refused, l));
  }
}

// What a kernel knows at compile time.
enum class Known : std::uint8_t {
  kGreedyUp,    // Algorithm 1, width 4, ties = up
  kGreedyEven,  // Algorithm 1, width 4, ties = even
  kNothing,     // everything else but search=mse
  kMse          // search=mse
};

template <Known kKnown>
struct Hif4Panel {
  template <int W>
  FP4SCOPE_INLINE static void quantize(QuantizeTask& task) {
    run_row<Hif4Panel, W>(task, task.row, 64);
  }
  template <int W>
  FP4SCOPE_INLINE static void run(QuantizeTask& task, std::int64_t row, std::int64_t b) {
    using L = Lane<W>;
    typename L::F in[64];
    load_panel<W>(task.x(row), task.tile.cols, b, 64, in);
    Hif4Options options = task.recipe.hif4;
    Hif4Block<L> out;
    if constexpr (kKnown == Known::kGreedyUp || kKnown == Known::kGreedyEven) {
      options.search = Hif4Search::kGreedy;
      options.ties = kKnown == Known::kGreedyUp ? Rounding::kAway : Rounding::kEven;
      hif4_quantize<L, false>(options, kE1M2, in, out);
    } else if constexpr (kKnown == Known::kMse) {
      options.search = Hif4Search::kMse;
      hif4_quantize<L>(options, task.recipe.format.element, in, out);
    } else {
      hif4_quantize<L, false>(options, task.recipe.format.element, in, out);
    }
    store_group<W>(task, row, b, out);
  }
};

// Stochastic rounding: Lane<1> in every backend.
void quantize_stochastic(QuantizeTask& task) {
  const Hif4Options options = codec_options(task.recipe);
  for (std::int64_t b = 0; b < task.out.blocks_per_row; ++b) {
    float in[64];
    std::uint32_t random[64];
    load_panel<1>(task.x(task.row), task.tile.cols, b, 64, in);
    load_random(task, task.row, 64 * b, 64, random);
    Hif4Block<Lane<1>> out;
    hif4_quantize<Lane<1>, false>(options, task.recipe.format.element, in, out, random);
    store_group<1>(task, task.row, b, out);
  }
}

// geometry=64x64: W squares side by side.
template <int W>
FP4SCOPE_INLINE void run_squares(QuantizeTask& task, std::int64_t b) {
  using L = Lane<W>;
  const Hif4Options options = codec_options(task.recipe);
  const MinifloatSpec element = task.recipe.format.element;
  typename L::F in[64];
  Hif4Square<L> square{};
  for (int r = 0; r < task.rows; ++r) {
    load_panel<W>(task.x(task.row + r), task.tile.cols, b, 64, in);
    hif4_measure_row<L>(options, r, in, square);
  }
  hif4_decide<L>(options, element, square);
  for (int r = 0; r < task.rows; ++r) {
    load_panel<W>(task.x(task.row + r), task.tile.cols, b, 64, in);
    Hif4Block<L> out;
    if constexpr (W == 1) {
      std::uint32_t random[64]{};
      if (task.recipe.sr.enabled) load_random(task, task.row + r, 64 * b, 64, random);
      hif4_encode_row<L>(options, element, r, in, square, out, random);
    } else {  // never with stochastic rounding
      hif4_encode_row<L>(options, element, r, in, square, out);
    }
    store_group<W>(task, task.row + r, b, out);
  }
}
struct Hif4Squares {
  template <int W>
  FP4SCOPE_INLINE static void quantize(QuantizeTask& task) {
    std::int64_t b = 0;
    if constexpr (W > 1) {
      for (; b + W <= task.tile.cols / 64; b += W) run_squares<W>(task, b);
    }
    for (; b < task.out.blocks_per_row; ++b) run_squares<1>(task, b);
  }
};

template <MinifloatSpec kSpec>
struct Hif4Decode {
  static constexpr int kBlock = 64;
  FP4SCOPE_INLINE static void run(const DecodeTask& task, std::int64_t b,
                                  const std::uint32_t (&code)[64], float (&v)[64]) {
    const std::uint8_t* s = task.scales() + 4 * b;
    const std::uint32_t level3 = s[2] | static_cast<std::uint32_t>(s[3]) << 8;
    float scale[64];  // spread first, so that the loop over elements is one vector loop
    for (int k = 0; k < 16; ++k) {
      const float of_four = hif4_decode_scale<Lane<1>>(s[0], s[1], level3, 4 * k);
      for (int i = 4 * k; i < 4 * k + 4; ++i) scale[i] = of_four;
    }
    for (int i = 0; i < 64; ++i) v[i] = hif4_decode<Lane<1>>(kSpec, code[i], scale[i]);
  }
};

double scaled(const ElementTask& e) {
  if (!e.recipe.shape.empty()) return hif4_custom_scaled(e);
  const int i = e.index;
  const std::uint32_t e8 = e.scale[1] >> (i / 8) & 1u;
  const std::uint32_t e16 = e.scale[2 + i / 32] >> (i / 4 % 8) & 1u;
  const float shift = pow2(-static_cast<int>(e8 + e16));
  const Hif4Options options = codec_options(e.recipe);
  const float x = static_cast<float>(magnitude_of_double(e.value));
  return hif4_scaled<Lane<1>>(options, hif4_input<Lane<1>>(options, x),
                              e6m2_reciprocal<Lane<1>>(e.scale[0]), shift);
}

#if defined(__x86_64__)
template <Known kKnown>
void quantize_avx512(QuantizeTask& task) {
  run_avx512<QuantizeOp<Hif4Panel<kKnown>>, void, QuantizeTask&>(task);
}
#endif
QuantizeFn quantizer_for(Isa isa, const Recipe& recipe) {
  const Hif4Options& o = recipe.hif4;
  if (o.geometry == Hif4Geometry::k64x64) {
    return run_quantize_for<Hif4Squares>(recipe.sr.enabled ? Isa::kReference : isa);
  }
  if (recipe.sr.enabled) return quantize_stochastic;
  if (o.search == Hif4Search::kMse) return run_quantize_for<Hif4Panel<Known::kMse>>(isa);
#if defined(__x86_64__)
  // Measured with GCC 12: constants pay off with 512-bit vectors and cost 10 % without.
  if (isa == Isa::kAvx512 && o.search == Hif4Search::kGreedy && recipe.format.element == kE1M2) {
    if (o.ties == Rounding::kAway) return quantize_avx512<Known::kGreedyUp>;
    if (o.ties == Rounding::kEven) return quantize_avx512<Known::kGreedyEven>;
  }
#endif
  return run_quantize_for<Hif4Panel<Known::kNothing>>(isa);
}

}  // namespace

FamilyKernels hif4_kernels(Isa isa, const Recipe& recipe) {
  if (!recipe.shape.empty()) return hif4_custom_kernels(isa, recipe);
  return {quantizer_for(isa, recipe),
          recipe.hif4.width == 3   ? run_decode_for<DecodeBlocks<Hif4Decode<kE1M1>>>(isa)
          : recipe.hif4.width == 5 ? run_decode_for<DecodeBlocks<Hif4Decode<kE1M3>>>(isa)
                                   : run_decode_for<DecodeBlocks<Hif4Decode<kE1M2>>>(isa)};
}
FamilyRules hif4_rules() {
  return {no_outer_scale, scaled};
}

}  // namespace fp4scope
