// cpu_hif4.cc: CPU kernels of HiF4 and HiFX.
#pragma GCC diagnostic ignored "-Wpsabi"
#include <cstring>

#include "formats/codecs/hif4.h"
#include "formats/scalars.h"
#include "sim/cpu_kernels.h"

namespace fp4scope {
namespace {

struct Hif4Panel {
  static constexpr int kBlock = 64;
  template <int W>
  FP4SCOPE_INLINE static void run(QuantizeTask& task, std::int64_t row, std::int64_t b) {
    using L = Lane<W>;
    typename L::F in[64];
    load_panel<W>(task.x(row), task.tile.cols, b, 64, in);
    Hif4Block<L> out;
    hif4_quantize<L>(task.recipe.hif4, task.recipe.format.element, in, out);
    store_codes<W>(out.codes, 64, task.codes(row) + 64 * b);
    for (int l = 0; l < W; ++l) {
      std::uint8_t* s = task.scales(row) + 4 * (b + l);
      const std::uint32_t level3 = lane_of<W>(out.level3, l);
      s[0] = static_cast<std::uint8_t>(lane_of<W>(out.scale, l));
      s[1] = static_cast<std::uint8_t>(lane_of<W>(out.level2, l));
      s[2] = static_cast<std::uint8_t>(level3);
      s[3] = static_cast<std::uint8_t>(level3 >> 8);
      if (task.recipe.hif4.nonfinite == Hif4Nonfinite::kError && lane_of<W>(out.refused, l) != 0) {
        task.refused_row = row;
        task.refusal = "NaN or Inf, which the recipe refuses (nonfinite=error)";
      }
    }
  }
};

template <class Panel>
void quantize_reference(QuantizeTask& task) {
  run_row<Panel, 1>(task, task.row, Panel::kBlock);
}
template <class Panel>
[[gnu::target(FP4SCOPE_AVX2)]] void quantize_avx2(QuantizeTask& task) {
  run_row<Panel, 8>(task, task.row, Panel::kBlock);
}
template <class Panel>
[[gnu::target(FP4SCOPE_AVX512)]] void quantize_avx512(QuantizeTask& task) {
  run_row<Panel, 16>(task, task.row, Panel::kBlock);
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
using DecodeFn = void (*)(const DecodeTask&);
template <class Decode>
DecodeFn decode_for(Isa isa) {
  return isa == Isa::kAvx512 ? decode_avx512<Decode>
         : isa == Isa::kAvx2 ? decode_avx2<Decode>
                             : decode_reference<Decode>;
}

double scaled(const ElementTask& e) {
  const int i = e.index;
  const std::uint32_t e8 = e.scale[1] >> (i / 8) & 1u;
  const std::uint32_t e16 = e.scale[2 + i / 32] >> (i / 4 % 8) & 1u;
  const float shift = pow2(-static_cast<int>(e8 + e16));
  const Hif4Options& options = e.recipe.hif4;
  const float x = static_cast<float>(magnitude_of_double(e.value));
  return hif4_scaled<Lane<1>>(options, hif4_input<Lane<1>>(options, x),
                              e6m2_reciprocal<Lane<1>>(e.scale[0]), shift);
}

}  // namespace

FamilyKernels hif4_kernels(Isa isa, const Recipe& recipe) {
  using P = Hif4Panel;
  return {isa == Isa::kAvx512 ? quantize_avx512<P>
          : isa == Isa::kAvx2 ? quantize_avx2<P>
                              : quantize_reference<P>,
          recipe.hif4.width == 3   ? decode_for<Hif4Decode<kE1M1>>(isa)
          : recipe.hif4.width == 5 ? decode_for<Hif4Decode<kE1M3>>(isa)
                                   : decode_for<Hif4Decode<kE1M2>>(isa)};
}
FamilyRules hif4_rules() {
  return {[](const Recipe&, std::uint32_t bits) {
            return OuterScale32{bit_cast<float>(bits), 1.0f};
          },
          scaled};
}

}  // namespace fp4scope
