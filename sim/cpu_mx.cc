// cpu_mx.cc: CPU kernels of the MX formats.
#pragma GCC diagnostic ignored "-Wpsabi"
#include <cstring>

#include "formats/codecs/mx.h"
#include "sim/cpu_kernels.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

struct MxPanel {
  static constexpr int kBlock = 32;
  template <int W>
  FP4SCOPE_INLINE static void run(QuantizeTask& task, std::int64_t row, std::int64_t b) {
    using L = Lane<W>;
    typename L::F in[32];
    load_panel<W>(task.x(row), task.tile.cols, b, 32, in);
    MxBlock<L> out;
    mx_quantize<L>(task.recipe.mx, task.recipe.format.element, in, out);
    store_codes<W>(out.codes, 32, task.codes(row) + 32 * b);
    for (int l = 0; l < W; ++l) {
      task.scales(row)[b + l] = static_cast<std::uint8_t>(lane_of<W>(out.scale, l));
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

// binary64 rows are cast directly: Lane<1> in every backend.
void quantize_binary64(QuantizeTask& task) {
  const std::int64_t cols = task.tile.cols;
  for (std::int64_t b = 0; b < task.out.blocks_per_row; ++b) {
    double in[32];
    const std::int64_t valid = std::min<std::int64_t>(32, cols - 32 * b);
    for (int i = 0; i < 32; ++i) in[i] = i < valid ? task.x64(task.row)[32 * b + i] : 0.0;
    MxBlock<Lane<1>> out;
    mx_quantize(task.recipe.mx, task.recipe.format.element, in, out);
    store_codes<1>(out.codes, 32, task.codes(task.row) + 32 * b);
    task.scales(task.row)[b] = static_cast<std::uint8_t>(out.scale);
  }
}
template <void (*kBinary32)(QuantizeTask&)>
void by_source(QuantizeTask& task) {
  task.tile.f64 != nullptr ? quantize_binary64(task) : kBinary32(task);
}

template <MinifloatSpec kSpec>
struct MxDecode {
  static constexpr int kBlock = 32;
  FP4SCOPE_INLINE static void run(const DecodeTask& task, std::int64_t b,
                                  const std::uint32_t (&code)[32], float (&v)[32]) {
    const std::uint32_t scale = task.scales()[b];
    for (int i = 0; i < 32; ++i) v[i] = mx_decode<Lane<1>>(kSpec, code[i], scale);
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

DecodeFn decoder(Isa isa, const Recipe& recipe) {
  const MinifloatSpec element = recipe.format.element;
  if (element == kE2M1) return decode_for<MxDecode<kE2M1>>(isa);
  if (element == kE2M3) return decode_for<MxDecode<kE2M3>>(isa);
  if (element == kE3M2) return decode_for<MxDecode<kE3M2>>(isa);
  if (element == kE4M3) return decode_for<MxDecode<kE4M3>>(isa);
  if (element == kE5M2) return decode_for<MxDecode<kE5M2>>(isa);
  throw Error(ErrorKind::kUnsupported, "no CPU kernel decodes " + to_string(recipe));
}

double scaled(const ElementTask& e) {
  return magnitude_of_double(mx_scaled(e.value, e.scale[0]));
}

}  // namespace

FamilyKernels mx_kernels(Isa isa, const Recipe& recipe) {
  using P = MxPanel;
  return {isa == Isa::kAvx512 ? by_source<quantize_avx512<P>>
          : isa == Isa::kAvx2 ? by_source<quantize_avx2<P>>
                              : by_source<quantize_reference<P>>,
          decoder(isa, recipe)};
}
FamilyRules mx_rules() {
  return {[](const Recipe&, std::uint32_t bits) {
            return OuterScale32{bit_cast<float>(bits), 1.0f};
          },
          scaled};
}

}  // namespace fp4scope
