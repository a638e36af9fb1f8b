// cpu_backend.cc: the CPU backends avx512, avx2 and reference, all instantiated from the codec
// text of formats/codecs. One lane is one block; the blocks of a row go through in panels of W, and
// what does not fill a panel goes through Lane<1>. ISA code generation comes from target attributes
// on thin wrappers, never from per-file -m flags; vectors never cross a call that is not inlined.
#pragma GCC diagnostic ignored "-Wpsabi"
#include <algorithm>
#include <array>
#include <cstring>

#include "formats/codecs/hif4.h"
#include "formats/codecs/mx.h"
#include "formats/codecs/nvfp4.h"
#include "sim/backend.h"
#include "sim/error.h"

#define FP4SCOPE_INLINE [[gnu::always_inline]] inline
#ifdef __clang__  // clang 14 does not know the attribute prefer-vector-width
#define FP4SCOPE_AVX512 "arch=x86-64-v4"
#else
#define FP4SCOPE_AVX512 "arch=x86-64-v4,prefer-vector-width=512"
#endif
#define FP4SCOPE_AVX2 "arch=x86-64-v3"

namespace fp4scope {
namespace {

// Everything a row kernel needs.
struct RowTask {
  const Recipe* recipe;
  const float* x;     // the row
  const double* x64;  // or null
  std::int64_t cols;  // of the data
  std::int64_t blocks;
  float encode_scale;                    // NVFP4
  const std::uint32_t* block_amax_bits;  // NVFP4 block=2d: one per block; null: own maximum
  std::uint8_t* codes;                   // blocks * block bytes
  std::uint8_t* scales;                  // blocks * scale_bytes
  bool refused;                          // out: nonfinite=error met NaN or Inf
};

template <int W, class V>
FP4SCOPE_INLINE std::uint32_t lane_of(const V& v, [[maybe_unused]] int lane) {
  if constexpr (W == 1) {
    return v;
  } else {
    return v[lane];
  }
}

// Blocks b .. b+W-1 of a row, element i of lane l is x[N*(b+l) + i]; +0 beyond the row.
template <int W, int N>
FP4SCOPE_INLINE void load_panel(const float* x, std::int64_t cols, std::int64_t b,
                                typename Lane<W>::F (&in)[N]) {
  const float* first = x + N * b;
  if constexpr (W == 1) {
    const std::int64_t valid = std::min<std::int64_t>(N, cols - N * b);
    for (int i = 0; i < N; ++i) in[i] = i < valid ? first[i] : 0.0f;
  } else {
    (void)cols;
    for (int i = 0; i < N; ++i) {
      for (int l = 0; l < W; ++l) in[i][l] = first[N * l + i];
    }
  }
}

template <int W, int N>
FP4SCOPE_INLINE void store_codes(const typename Lane<W>::U (&codes)[N], std::uint8_t* out) {
  for (int l = 0; l < W; ++l) {
    for (int i = 0; i < N; ++i) out[N * l + i] = static_cast<std::uint8_t>(lane_of<W>(codes[i], l));
  }
}

struct MxPanel {
  static constexpr int kBlock = 32;
  template <int W>
  FP4SCOPE_INLINE static void run(RowTask& task, std::int64_t b) {
    using L = Lane<W>;
    typename L::F in[32];
    load_panel<W, 32>(task.x, task.cols, b, in);
    MxBlock<L> out;
    mx_quantize<L>(task.recipe->mx, task.recipe->format.element, in, out);
    store_codes<W, 32>(out.codes, task.codes + 32 * b);
    for (int l = 0; l < W; ++l) {
      task.scales[b + l] = static_cast<std::uint8_t>(lane_of<W>(out.scale, l));
    }
  }
};

struct Nvfp4Panel {
  static constexpr int kBlock = 16;
  template <int W>
  FP4SCOPE_INLINE static void run(RowTask& task, std::int64_t b) {
    using L = Lane<W>;
    typename L::F in[16];
    load_panel<W, 16>(task.x, task.cols, b, in);
    typename L::U amax{};
    if (task.block_amax_bits == nullptr) {
      amax = nvfp4_block_amax<L>(in);
    } else if constexpr (W == 1) {
      amax = task.block_amax_bits[b];
    } else {
      for (int l = 0; l < W; ++l) amax[l] = task.block_amax_bits[b + l];
    }
    Nvfp4Block<L> out;
    nvfp4_quantize<L>(task.recipe->nvfp4, task.encode_scale, amax, in, out);
    store_codes<W, 16>(out.codes, task.codes + 16 * b);
    for (int l = 0; l < W; ++l) {
      task.scales[b + l] = static_cast<std::uint8_t>(lane_of<W>(out.scale, l));
    }
  }
};

struct Hif4Panel {
  static constexpr int kBlock = 64;
  template <int W>
  FP4SCOPE_INLINE static void run(RowTask& task, std::int64_t b) {
    using L = Lane<W>;
    typename L::F in[64];
    load_panel<W, 64>(task.x, task.cols, b, in);
    Hif4Block<L> out;
    hif4_quantize<L>(task.recipe->hif4, task.recipe->format.element, in, out);
    store_codes<W, 64>(out.codes, task.codes + 64 * b);
    for (int l = 0; l < W; ++l) {
      std::uint8_t* s = task.scales + 4 * (b + l);
      const std::uint32_t level3 = lane_of<W>(out.level3, l);
      s[0] = static_cast<std::uint8_t>(lane_of<W>(out.scale, l));
      s[1] = static_cast<std::uint8_t>(lane_of<W>(out.level2, l));
      s[2] = static_cast<std::uint8_t>(level3);
      s[3] = static_cast<std::uint8_t>(level3 >> 8);
      task.refused |= lane_of<W>(out.refused, l) != 0;
    }
  }
};

template <class Panel, int W>
FP4SCOPE_INLINE void run_row(RowTask& task) {
  std::int64_t b = 0;
  if constexpr (W > 1) {
    const std::int64_t full = task.cols / Panel::kBlock;
    for (; b + W <= full; b += W) Panel::template run<W>(task, b);
  }
  for (; b < task.blocks; ++b) Panel::template run<1>(task, b);
}

using RowFn = void (*)(RowTask&);
template <class Panel>
void row_reference(RowTask& task) {
  run_row<Panel, 1>(task);
}
template <class Panel>
[[gnu::target(FP4SCOPE_AVX2)]] void row_avx2(RowTask& task) {
  run_row<Panel, 8>(task);
}
template <class Panel>
[[gnu::target(FP4SCOPE_AVX512)]] void row_avx512(RowTask& task) {
  run_row<Panel, 16>(task);
}

// binary64 rows of formats that cast it directly: Lane<1> in every backend.
void row_mx_binary64(RowTask& task) {
  for (std::int64_t b = 0; b < task.blocks; ++b) {
    double in[32];
    const std::int64_t valid = std::min<std::int64_t>(32, task.cols - 32 * b);
    for (int i = 0; i < 32; ++i) in[i] = i < valid ? task.x64[32 * b + i] : 0.0;
    MxBlock<Lane<1>> out;
    mx_quantize(task.recipe->mx, task.recipe->format.element, in, out);
    store_codes<1, 32>(out.codes, task.codes + 32 * b);
    task.scales[b] = static_cast<std::uint8_t>(out.scale);
  }
}

// One row of codes and scales to values. The element is a template argument so that decode folds;
// blocks are decoded whole in local arrays, which cannot alias, and cut at the end of the row.
struct DecodeTask {
  const Recipe* recipe;
  OuterScale32 outer;
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  std::int64_t cols;
  float* values;
};

template <MinifloatSpec kSpec>
struct MxDecode {
  static constexpr int kBlock = 32;
  FP4SCOPE_INLINE static void run(const DecodeTask& task, std::int64_t b,
                                  const std::uint32_t (&code)[32], float (&v)[32]) {
    const std::uint32_t scale = task.scales[b];
    for (int i = 0; i < 32; ++i) v[i] = mx_decode<Lane<1>>(kSpec, code[i], scale);
  }
};

struct Nvfp4Decode {
  static constexpr int kBlock = 16;
  FP4SCOPE_INLINE static void run(const DecodeTask& task, std::int64_t b,
                                  const std::uint32_t (&code)[16], float (&v)[16]) {
    const float factor = nvfp4_decode_factor<Lane<1>>(
        task.recipe->nvfp4, {task.outer.amax, task.outer.encode_scale}, task.scales[b]);
    for (int i = 0; i < 16; ++i) v[i] = nvfp4_decode<Lane<1>>(code[i], factor);
  }
};

template <MinifloatSpec kSpec>
struct Hif4Decode {
  static constexpr int kBlock = 64;
  FP4SCOPE_INLINE static void run(const DecodeTask& task, std::int64_t b,
                                  const std::uint32_t (&code)[64], float (&v)[64]) {
    const std::uint8_t* s = task.scales + 4 * b;
    const std::uint32_t level3 = s[2] | static_cast<std::uint32_t>(s[3]) << 8;
    float scale[64];  // spread first, so that the loop over elements is one vector loop
    for (int k = 0; k < 16; ++k) {
      const float of_four = hif4_decode_scale<Lane<1>>(s[0], s[1], level3, 4 * k);
      for (int i = 4 * k; i < 4 * k + 4; ++i) scale[i] = of_four;
    }
    for (int i = 0; i < 64; ++i) v[i] = hif4_decode<Lane<1>>(kSpec, code[i], scale[i]);
  }
};

template <class Decode>
FP4SCOPE_INLINE void decode_row(const DecodeTask& task) {
  constexpr int kN = Decode::kBlock;
  for (std::int64_t b = 0; b * kN < task.cols; ++b) {
    std::uint32_t code[kN];
    float v[kN];
    for (int i = 0; i < kN; ++i) code[i] = task.codes[b * kN + i];
    Decode::run(task, b, code, v);
    const std::int64_t valid = std::min<std::int64_t>(kN, task.cols - b * kN);
    std::memcpy(task.values + b * kN, v, static_cast<std::size_t>(valid) * sizeof(float));
  }
}
using DecodeFn = void (*)(const DecodeTask&);
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

struct DecodeKernel {
  Family family;
  MinifloatSpec element;
  DecodeFn avx512, avx2, reference;
};
template <class Decode>
constexpr DecodeKernel decode_kernel(Family family, MinifloatSpec element) {
  return {family, element, decode_avx512<Decode>, decode_avx2<Decode>, decode_reference<Decode>};
}
constexpr DecodeKernel kDecodeKernels[] = {
    decode_kernel<MxDecode<kE2M1>>(Family::kMx, kE2M1),
    decode_kernel<MxDecode<kE2M3>>(Family::kMx, kE2M3),
    decode_kernel<MxDecode<kE3M2>>(Family::kMx, kE3M2),
    decode_kernel<MxDecode<kE4M3>>(Family::kMx, kE4M3),
    decode_kernel<MxDecode<kE5M2>>(Family::kMx, kE5M2),
    decode_kernel<Nvfp4Decode>(Family::kNvfp4, kE2M1),
    decode_kernel<Hif4Decode<kE1M2>>(Family::kHif4, kE1M2),
    decode_kernel<Hif4Decode<kE1M1>>(Family::kHif4, kE1M1),
    decode_kernel<Hif4Decode<kE1M3>>(Family::kHif4, kE1M3),
};

struct KernelSet {
  std::string_view name;
  bool (*available)();
  std::string_view missing;  // reason when not available
  RowFn mx, nvfp4, hif4;
  DecodeFn DecodeKernel::*decode;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const KernelSet& kernels) : kernels_(kernels) {}

  std::string_view name() const override { return kernels_.name; }
  Support available() const override {
    if (kernels_.available()) return {};
    return {false, std::string(kernels_.missing)};
  }
  Support supports(const Recipe&) const override { return available(); }

  OuterScale32 outer_scale(const Recipe& recipe, std::uint32_t amax_bits) const override {
    if (recipe.family != Family::kNvfp4) return {bit_cast<float>(amax_bits), 1.0f};
    const Nvfp4Outer outer = nvfp4_outer(recipe.nvfp4, amax_bits);
    return {outer.amax, outer.g};
  }

  void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                QuantizedTile& out) const override {
    require_outer(recipe, tile.rows, outer.size());
    resize(out, recipe, tile.rows, tile.cols);
    const bool binary64 = tile.f64 != nullptr && recipe.casts_f64_directly();
    const RowFn fn = binary64                          ? row_mx_binary64
                     : recipe.family == Family::kMx    ? kernels_.mx
                     : recipe.family == Family::kNvfp4 ? kernels_.nvfp4
                                                       : kernels_.hif4;
    std::vector<std::uint32_t> band;  // block=2d: maxima of 16 rows
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      if (recipe.is_2d() && r % 16 == 0) measure_band(tile, r, out.blocks_per_row, band);
      RowTask task{&recipe,
                   tile.f32 + r * tile.stride,
                   binary64 ? tile.f64 + r * tile.stride : nullptr,
                   tile.cols,
                   out.blocks_per_row,
                   outer_of_row(recipe, outer, r).encode_scale,
                   recipe.is_2d() ? band.data() : nullptr,
                   out.codes.data() + r * out.padded_cols,
                   out.scales.data() + r * out.blocks_per_row * recipe.format.scale_bytes,
                   false};
      fn(task);
      if (task.refused && recipe.family == Family::kHif4 &&
          recipe.hif4.nonfinite == Hif4Nonfinite::kError) {
        throw RefusedInput(r, "NaN or Inf, which the recipe refuses (nonfinite=error)");
      }
    }
  }

  void dequantize(const Recipe& recipe, const QuantizedTile& tile,
                  std::span<const OuterScale32> outer, float* values,
                  std::int64_t stride) const override {
    require_outer(recipe, tile.rows, outer.size());
    DecodeFn decode = nullptr;
    for (const DecodeKernel& k : kDecodeKernels) {
      if (k.family == recipe.family && k.element == recipe.format.element) {
        decode = k.*kernels_.decode;
      }
    }
    if (decode == nullptr) {
      throw Error(ErrorKind::kUnsupported, "no CPU kernel decodes " + to_string(recipe));
    }
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      decode({&recipe, outer_of_row(recipe, outer, r), tile.codes.data() + r * tile.padded_cols,
              tile.scales.data() + r * tile.blocks_per_row * recipe.format.scale_bytes, tile.cols,
              values + r * stride});
    }
  }

 private:
  // Block maxima of rows r .. r+15 (fewer in the last band), one per block column.
  static void measure_band(const Tile& tile, std::int64_t first, std::int64_t blocks,
                           std::vector<std::uint32_t>& band) {
    band.assign(static_cast<std::size_t>(blocks), 0);
    for (std::int64_t r = first; r < std::min(first + 16, tile.rows); ++r) {
      const float* x = tile.f32 + r * tile.stride;
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t n = std::min<std::int64_t>(16, tile.cols - 16 * b);
        band[b] = std::max(band[b], amax_bits(x + 16 * b, n));
      }
    }
  }

  const KernelSet& kernels_;
};

bool always() {
  return true;
}
// The level names cover all that arch=x86-64-v3 and -v4 allow; clang 14 knows feature names only.
bool has_avx2() {
#ifdef __clang__
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("f16c");
#else
  return __builtin_cpu_supports("x86-64-v3");
#endif
}
bool has_avx512() {
#ifdef __clang__
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
#else
  return __builtin_cpu_supports("x86-64-v4");
#endif
}

constexpr KernelSet kKernelSets[] = {
    {"avx512", has_avx512, "this processor has no AVX-512 (F, BW, DQ, VL, CD)", row_avx512<MxPanel>,
     row_avx512<Nvfp4Panel>, row_avx512<Hif4Panel>, &DecodeKernel::avx512},
    {"avx2", has_avx2, "this processor has no AVX2, FMA and BMI2", row_avx2<MxPanel>,
     row_avx2<Nvfp4Panel>, row_avx2<Hif4Panel>, &DecodeKernel::avx2},
    {"reference", always, "", row_reference<MxPanel>, row_reference<Nvfp4Panel>,
     row_reference<Hif4Panel>, &DecodeKernel::reference},
};

}  // namespace

std::span<const Backend* const> cpu_backends() {
  static const CpuBackend backends[] = {CpuBackend(kKernelSets[0]), CpuBackend(kKernelSets[1]),
                                        CpuBackend(kKernelSets[2])};
  static const Backend* const list[] = {&backends[0], &backends[1], &backends[2]};
  return list;
}

}  // namespace fp4scope
