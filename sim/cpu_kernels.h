// cpu_kernels.h: what the CPU backends are made of, private to sim: per family and instruction set
// one kernel that quantizes a band of rows and one that decodes a row. All are instances of the
// codec text of formats/codecs: one lane is one block, the blocks of a row go through in panels of
// W, and what does not fill a panel goes through Lane<1>. ISA code generation comes from target
// attributes on thin wrappers, never from per-file -m flags; vectors never cross a call that is not
// inlined.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "formats/lut.h"
#include "sim/element.h"

#define FP4SCOPE_INLINE [[gnu::always_inline]] inline
#ifdef __clang__  // clang 14 does not know the attribute prefer-vector-width
#define FP4SCOPE_AVX512 "arch=x86-64-v4"
#else
#define FP4SCOPE_AVX512 "arch=x86-64-v4,prefer-vector-width=512"
#endif
#define FP4SCOPE_AVX2 "arch=x86-64-v3"

namespace fp4scope {

// Those of other architectures are never available.
enum class Isa : std::uint8_t { kAvx512, kAvx2, kNeon, kReference };
Isa isa_of(const Backend& backend);  // of a CPU backend
bool is_available(Isa isa);
Isa widest_isa();  // that is available

// Rows row .. row+rows-1 of a tile, a band of format.block_rows (fewer at the end of the tensor).
struct QuantizeTask {
  const Recipe& recipe;
  const Tile& tile;
  std::span<const OuterScale32> outer;
  QuantizedTile& out;  // resized
  std::int64_t row = 0, rows = 1;
  // Out: the first row with input that the recipe refuses, and why; the codes written are
  // meaningless then.
  std::int64_t refused_row = -1;
  const char* refusal = nullptr;
  // Blocks of a band are not visited in the order of rows.
  void refuse(std::int64_t r, const char* why) {
    if (refused_row >= 0 && refused_row <= r) return;
    refused_row = r;
    refusal = why;
  }

  const float* x(std::int64_t r) const { return tile.f32 + r * tile.stride; }
  const double* x64(std::int64_t r) const { return tile.f64 + r * tile.stride; }
  std::uint8_t* codes(std::int64_t r) const {
    return out.codes.data() + r * out.padded_cols * recipe.code_bytes();
  }
  std::uint8_t* scales(std::int64_t r) const {
    return out.scales.data() + r * out.blocks_per_row * recipe.format.scale_bytes;
  }
  std::uint8_t* choices(std::int64_t r) const {  // null unless the recipe chooses
    return out.choices.empty() ? nullptr : out.choices.data() + r * out.blocks_per_row;
  }
  float* errors(std::int64_t r) const {  // null unless they are wanted
    return out.errors.empty() ? nullptr : out.errors.data() + r * out.blocks_per_row * 2;
  }
  OuterScale32 outer_of(std::int64_t r) const { return outer_of_row(recipe, outer, r); }
};

struct DecodeTask {
  const Recipe& recipe;
  const QuantizedTile& tile;
  OuterScale32 outer;  // of the row
  std::int64_t row;
  float* values;  // [tile.cols]

  const std::uint8_t* codes() const {
    return tile.codes.data() + row * tile.padded_cols * recipe.code_bytes();
  }
  const std::uint8_t* scales() const {
    return tile.scales.data() + row * tile.blocks_per_row * recipe.format.scale_bytes;
  }
  const std::uint8_t* choices() const {
    return tile.choices.empty() ? nullptr : tile.choices.data() + row * tile.blocks_per_row;
  }
};

// One element of a quantized block, for statistics.
struct ElementTask {
  const Recipe& recipe;
  OuterScale32 outer;
  const std::uint8_t* scale;  // of its block
  bool choice;
  int index;     // in the block
  double value;  // a finite element of the source
  const SourceBlock& source;
};

using QuantizeFn = void (*)(QuantizeTask&);
using DecodeFn = void (*)(const DecodeTask&);
struct FamilyKernels {
  QuantizeFn quantize;
  DecodeFn decode;
};
// What does not depend on the instruction set.
struct FamilyRules {
  // Outer scale from an amax (binary32 bits, see amax_of()); as the recipe says for given ones.
  OuterScale32 (*outer)(const Recipe&, std::uint32_t amax_bits);
  // Magnitude that the element cast gets, computed by the codec's own text from the stored scales
  // (of elements from a table lut_excess()); beyond element_limit() the element was clamped.
  double (*scaled_magnitude)(const ElementTask&);
};

FamilyKernels mx_kernels(Isa isa, const Recipe& recipe);
FamilyKernels nvfp4_kernels(Isa isa, const Recipe& recipe);
FamilyKernels hif4_kernels(Isa isa, const Recipe& recipe);
FamilyKernels int4_kernels(Isa isa, const Recipe& recipe);
FamilyKernels fp8_kernels(Isa isa, const Recipe& recipe);
FamilyKernels pass_kernels(Isa isa, const Recipe& recipe);
FamilyRules mx_rules();
FamilyRules nvfp4_rules();
FamilyRules hif4_rules();
FamilyRules int4_rules();
FamilyRules fp8_rules();
FamilyRules pass_rules();
FamilyRules rules_of(Family family);

// --- helpers of the kernels ---

FP4SCOPE_INLINE double magnitude_of_double(double v) {
  return bit_cast<double>(bit_cast<std::uint64_t>(v) & 0x7fffffffffffffffull);
}

// What scaled_magnitude() says about an element that the cast gets as y.
inline double clamping_of(const BlockFormat& format, double y) {
  return format.lut != nullptr ? lut_excess(*format.lut, y) : magnitude_of_double(y);
}

// The outer scale of families without one.
inline OuterScale32 no_outer_scale(const Recipe&, std::uint32_t amax_bits) {
  return {bit_cast<float>(amax_bits), 1.0f};
}

template <int W>
struct ByteLane {
  typedef std::uint8_t V __attribute__((vector_size(W)));
};

template <int W, class V>
FP4SCOPE_INLINE std::uint32_t lane_of(const V& v, [[maybe_unused]] int lane) {
  if constexpr (W == 1) {
    return v;
  } else {
    return v[lane];
  }
}

// Blocks b .. b+W-1 of a row of n-element blocks, element i of lane l is x[n*(b+l) + i]; +0 beyond
// the row. Only Lane<1> may meet the end of the row. `n` is a literal for the named formats.
template <int W>
FP4SCOPE_INLINE void load_panel(const float* x, std::int64_t cols, std::int64_t b, int n,
                                typename Lane<W>::F* in) {
  const float* first = x + n * b;
  if constexpr (W == 1) {
    const std::int64_t valid = std::min<std::int64_t>(n, cols - n * b);
    for (int i = 0; i < n; ++i) in[i] = i < valid ? first[i] : 0.0f;
  } else {
    (void)cols;
    for (int i = 0; i < n; ++i) {
      for (int l = 0; l < W; ++l) in[i][l] = first[n * l + i];
    }
  }
}

template <int W>
FP4SCOPE_INLINE void store_codes(const typename Lane<W>::U* codes, int n, std::uint8_t* out) {
  for (int l = 0; l < W; ++l) {
    for (int i = 0; i < n; ++i) {
      out[n * l + i] = static_cast<std::uint8_t>(lane_of<W>(codes[i], l));
    }
  }
}

// Panel::run<W>(task, row, block) for every block of a row: full panels first, then one by one.
template <class Panel, int W>
FP4SCOPE_INLINE void run_row(QuantizeTask& task, std::int64_t row, int block) {
  std::int64_t b = 0;
  if constexpr (W > 1) {
    const std::int64_t full = task.tile.cols / block;
    for (; b + W <= full; b += W) Panel::template run<W>(task, row, b);
  }
  for (; b < task.out.blocks_per_row; ++b) Panel::template run<1>(task, row, b);
}

// Decode::run(task, block, codes, values) for every block of a row. Blocks are decoded whole in
// local arrays, which cannot alias, and cut at the end of the row.
template <class Decode>
struct DecodeBlocks {
  template <int W>
  FP4SCOPE_INLINE static void decode(const DecodeTask& task) {
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
};

// Op::run<W>(...) compiled for one instruction set.
template <class Op, class R, class... A>
R run_reference(A... a) {
  return Op::template run<1>(a...);
}
#if defined(__x86_64__)
template <class Op, class R, class... A>
[[gnu::target(FP4SCOPE_AVX2)]] R run_avx2(A... a) {
  return Op::template run<8>(a...);
}
template <class Op, class R, class... A>
[[gnu::target(FP4SCOPE_AVX512)]] R run_avx512(A... a) {
  return Op::template run<16>(a...);
}
#elif defined(__aarch64__)
template <class Op, class R, class... A>
R run_neon(A... a) {
  return Op::template run<4>(a...);
}
#endif
template <class Op, class R, class... A>
auto run_for(Isa isa) -> R (*)(A...) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return run_avx512<Op, R, A...>;
    case Isa::kAvx2:
      return run_avx2<Op, R, A...>;
#elif defined(__aarch64__)
    case Isa::kNeon:
      return run_neon<Op, R, A...>;
#endif
    default:
      return run_reference<Op, R, A...>;
  }
}

template <class Kernel>
struct QuantizeOp {
  template <int W>
  FP4SCOPE_INLINE static void run(QuantizeTask& task) {
    Kernel::template quantize<W>(task);
  }
};
template <class Kernel>
struct DecodeOp {
  template <int W>
  FP4SCOPE_INLINE static void run(const DecodeTask& task) {
    Kernel::template decode<W>(task);
  }
};
template <class Kernel>
QuantizeFn run_quantize_for(Isa isa) {
  return run_for<QuantizeOp<Kernel>, void, QuantizeTask&>(isa);
}
template <class Kernel>
DecodeFn run_decode_for(Isa isa) {
  return run_for<DecodeOp<Kernel>, void, const DecodeTask&>(isa);
}

}  // namespace fp4scope
