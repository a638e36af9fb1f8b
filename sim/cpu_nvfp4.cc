// cpu_nvfp4.cc: CPU kernels of NVFP4.
#pragma GCC diagnostic ignored "-Wpsabi"
#include <cstring>

#include "formats/codecs/nvfp4.h"
#include "sim/cpu_kernels.h"

namespace fp4scope {
namespace {

// Block maximum over all rows of the band.
std::uint32_t band_amax(const QuantizeTask& task, std::int64_t b) {
  std::uint32_t amax = 0;
  for (std::int64_t r = task.row; r < task.row + task.rows; ++r) {
    const std::int64_t n = std::min<std::int64_t>(16, task.tile.cols - 16 * b);
    amax = std::max(amax, amax_bits(task.x(r) + 16 * b, n));
  }
  return amax;
}
template <int W>
FP4SCOPE_INLINE void set_lanes(typename Lane<W>::U& amax, const QuantizeTask& task,
                               std::int64_t b) {
  if constexpr (W == 1) {
    amax = band_amax(task, b);
  } else {
    for (int l = 0; l < W; ++l) amax[l] = band_amax(task, b + l);
  }
}

struct Nvfp4Panel {
  static constexpr int kBlock = 16;
  template <int W>
  FP4SCOPE_INLINE static void run(QuantizeTask& task, std::int64_t row, std::int64_t b) {
    using L = Lane<W>;
    typename L::F in[16];
    load_panel<W>(task.x(row), task.tile.cols, b, 16, in);
    typename L::U amax{};
    if (!task.recipe.is_2d()) {
      amax = nvfp4_block_amax<L>(in);
    } else {
      set_lanes<W>(amax, task, b);
    }
    Nvfp4Block<L> out;
    nvfp4_quantize<L>(task.recipe.nvfp4, task.outer_of(row).g, amax, in, out);
    store_codes<W>(out.codes, 16, task.codes(row) + 16 * b);
    for (int l = 0; l < W; ++l) {
      task.scales(row)[b + l] = static_cast<std::uint8_t>(lane_of<W>(out.scale, l));
    }
  }
};

template <class Panel>
void quantize_reference(QuantizeTask& task) {
  for (std::int64_t r = 0; r < task.rows; ++r) run_row<Panel, 1>(task, task.row + r, 16);
}
template <class Panel>
[[gnu::target(FP4SCOPE_AVX2)]] void quantize_avx2(QuantizeTask& task) {
  for (std::int64_t r = 0; r < task.rows; ++r) run_row<Panel, 8>(task, task.row + r, 16);
}
template <class Panel>
[[gnu::target(FP4SCOPE_AVX512)]] void quantize_avx512(QuantizeTask& task) {
  for (std::int64_t r = 0; r < task.rows; ++r) run_row<Panel, 16>(task, task.row + r, 16);
}

struct Nvfp4Decode {
  static constexpr int kBlock = 16;
  FP4SCOPE_INLINE static void run(const DecodeTask& task, std::int64_t b,
                                  const std::uint32_t (&code)[16], float (&v)[16]) {
    const float factor = nvfp4_decode_factor<Lane<1>>(
        task.recipe.nvfp4, {task.outer.amax, task.outer.g}, task.scales()[b]);
    for (int i = 0; i < 16; ++i) v[i] = nvfp4_decode<Lane<1>>(code[i], factor);
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
  return magnitude_of_double(static_cast<float>(e.value) *
                             nvfp4_inverse<Lane<1>>(e.scale[0], e.outer.g));
}

}  // namespace

FamilyKernels nvfp4_kernels(Isa isa, const Recipe&) {
  using P = Nvfp4Panel;
  return {isa == Isa::kAvx512 ? quantize_avx512<P>
          : isa == Isa::kAvx2 ? quantize_avx2<P>
                              : quantize_reference<P>,
          decode_for<Nvfp4Decode>(isa)};
}
FamilyRules nvfp4_rules() {
  return {[](const Recipe& recipe, std::uint32_t bits) {
            const Nvfp4Outer outer = nvfp4_outer(recipe.nvfp4, bits);
            return OuterScale32{outer.amax, outer.g};
          },
          scaled};
}

}  // namespace fp4scope
