// cpu_hif4.cc: CPU kernels of HiF4 and HiFX, and of user-defined formats with one-bit levels.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "sim/cpu_hif4.h"

#include <cstring>

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

template <class Panel>
void quantize_reference(QuantizeTask& task) {
  run_row<Panel, 1>(task, task.row, 64);
}
template <class Panel>
[[gnu::target(FP4SCOPE_AVX2)]] void quantize_avx2(QuantizeTask& task) {
  run_row<Panel, 8>(task, task.row, 64);
}
template <class Panel>
[[gnu::target(FP4SCOPE_AVX512)]] void quantize_avx512(QuantizeTask& task) {
  run_row<Panel, 16>(task, task.row, 64);
}
template <Known kKnown>
QuantizeFn quantizer(Isa isa) {
  return isa == Isa::kAvx512 ? quantize_avx512<Hif4Panel<kKnown>>
         : isa == Isa::kAvx2 ? quantize_avx2<Hif4Panel<kKnown>>
                             : quantize_reference<Hif4Panel<kKnown>>;
}

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
template <int W>
FP4SCOPE_INLINE void run_band(QuantizeTask& task) {
  std::int64_t b = 0;
  if constexpr (W > 1) {
    for (; b + W <= task.tile.cols / 64; b += W) run_squares<W>(task, b);
  }
  for (; b < task.out.blocks_per_row; ++b) run_squares<1>(task, b);
}
void squares_reference(QuantizeTask& task) {
  run_band<1>(task);
}
[[gnu::target(FP4SCOPE_AVX2)]] void squares_avx2(QuantizeTask& task) {
  run_band<8>(task);
}
[[gnu::target(FP4SCOPE_AVX512)]] void squares_avx512(QuantizeTask& task) {
  run_band<16>(task);
}

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

// Blocks are decoded whole in local arrays, which cannot alias, and cut at the end of the row.
template <class Decode>
FP4SCOPE_INLINE void decode_row(const DecodeTask& task) {
  constexpr int kN = Decode::kBlock;
  const std::uint8_t* codes = task.codes();
  for (std::int64_t b = 0; b * kN < task.tile.cols; ++b) {
    std::uint32_t code[kN];
    float v[kN];
    for (int i = 0; i < kN; ++i) code[i] = codes[b * kN + i];
    Decode::run(task, b, code, v);
    const std::int64_t valid = std::min<std::int64_t>(kN, task.tile.cols - b * kN);
    std::memcpy(task.values + b * kN, v, static_cast<std::size_t>(valid) * sizeof(float));
  }
}
template <class Decode>
void decode_reference(const DecodeTask& task) {
  decode_row<Decode>(task);
}
template <class Decode>
[[gnu::target(FP4SCOPE_AVX2)]] void decode_avx2(const DecodeTask& task) {
  decode_row<Decode>(task);
}
template <class Decode>
[[gnu::target(FP4SCOPE_AVX512)]] void decode_avx512(const DecodeTask& task) {
  decode_row<Decode>(task);
}
template <class Decode>
DecodeFn decode_for(Isa isa) {
  return isa == Isa::kAvx512 ? decode_avx512<Decode>
         : isa == Isa::kAvx2 ? decode_avx2<Decode>
                             : decode_reference<Decode>;
}

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

QuantizeFn quantizer_for(Isa isa, const Recipe& recipe) {
  const Hif4Options& o = recipe.hif4;
  if (o.geometry == Hif4Geometry::k64x64) {
    if (recipe.sr.enabled) return squares_reference;
    return isa == Isa::kAvx512 ? squares_avx512
           : isa == Isa::kAvx2 ? squares_avx2
                               : squares_reference;
  }
  if (recipe.sr.enabled) return quantize_stochastic;
  if (o.search == Hif4Search::kMse) return quantizer<Known::kMse>(isa);
  // Measured with GCC 12: constants pay off with 512-bit vectors and cost 10 % without.
  if (isa == Isa::kAvx512 && o.search == Hif4Search::kGreedy && recipe.format.element == kE1M2) {
    if (o.ties == Rounding::kAway) return quantize_avx512<Hif4Panel<Known::kGreedyUp>>;
    if (o.ties == Rounding::kEven) return quantize_avx512<Hif4Panel<Known::kGreedyEven>>;
  }
  return quantizer<Known::kNothing>(isa);
}

}  // namespace

FamilyKernels hif4_kernels(Isa isa, const Recipe& recipe) {
  if (!recipe.shape.empty()) return hif4_custom_kernels(isa, recipe);
  return {quantizer_for(isa, recipe), recipe.hif4.width == 3 ? decode_for<Hif4Decode<kE1M1>>(isa)
                                      : recipe.hif4.width == 5
                                          ? decode_for<Hif4Decode<kE1M3>>(isa)
                                          : decode_for<Hif4Decode<kE1M2>>(isa)};
}
FamilyRules hif4_rules() {
  return {[](const Recipe&, std::uint32_t bits) {
            return OuterScale32{bit_cast<float>(bits), 1.0f};
          },
          scaled};
}

}  // namespace fp4scope
