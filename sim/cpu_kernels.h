// cpu_kernels.h: what the CPU backends are made of, private to sim: per family and instruction set
// one kernel that quantizes a band of rows and one that decodes a row. All are instances of the
// codec text of formats/codecs: one lane is one block, the blocks of a row go through in panels of
// W, and what does not fill a panel goes through Lane<1>. ISA code generation comes from target
// attributes on thin wrappers, never from per-file -m flags; vectors never cross a call that is not
// inlined.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "formats/lane.h"
#include "sim/backend.h"

#define FP4SCOPE_INLINE [[gnu::always_inline]] inline
#ifdef __clang__  // clang 14 does not know the attribute prefer-vector-width
#define FP4SCOPE_AVX512 "arch=x86-64-v4"
#else
#define FP4SCOPE_AVX512 "arch=x86-64-v4,prefer-vector-width=512"
#endif
#define FP4SCOPE_AVX2 "arch=x86-64-v3"

namespace fp4scope {

enum class Isa : std::uint8_t { kAvx512, kAvx2, kReference };

// Rows row .. row+rows-1 of a tile, a band of format.block_rows (fewer at the end of the tensor).
struct QuantizeTask {
  const Recipe& recipe;
  const Tile& tile;
  std::span<const OuterScale32> outer;
  QuantizedTile& out;  // resized
  std::int64_t row = 0, rows = 1;
  // Out: a row with input that the recipe refuses, and why; the codes written are meaningless then.
  std::int64_t refused_row = -1;
  const char* refusal = nullptr;

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
};

struct FamilyKernels {
  void (*quantize)(QuantizeTask&);
  void (*decode)(const DecodeTask&);
};
// What does not depend on the instruction set.
struct FamilyRules {
  // Outer scale from an amax (binary32 bits, NaN ignored); as the recipe says for given ones.
  OuterScale32 (*outer)(const Recipe&, std::uint32_t amax_bits);
  // Magnitude that the element cast gets, computed by the codec's own text from the stored scales;
  // beyond saturation_limit() the element was clamped.
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

}  // namespace fp4scope
