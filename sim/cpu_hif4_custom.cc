// cpu_hif4_custom.cc: CPU kernels of user-defined formats with one-bit levels: the text of
// formats/codecs/hif4.h with the shape of the recipe at run time. Groups of up to kMaxWideBlock
// elements go through in panels of lanes, longer ones through Lane<1>.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "formats/codecs/hif4.h"
#include "sim/cpu_hif4.h"

namespace fp4scope {
namespace {

constexpr int kMaxBlock = 256;  // what sim/custom_format.cc accepts
constexpr int kMaxWideBlock = 128;

Hif4Shape shape_of(const Recipe& recipe) {
  const BlockFormat& format = recipe.format;
  const ScaleLevel& scale = format.levels[0];
  Hif4Shape shape;
  shape.element = format.element;
  shape.scale = scale.spec;
  shape.block = format.block;
  shape.outer = format.num_levels == 3 ? format.levels[1].group : 0;
  shape.inner = format.levels[static_cast<std::size_t>(format.num_levels - 1)].group;
  shape.factor = hif4_factor(format.element, shape.levels());
  return shape;
}

// Bytes of the level bits behind the scale byte: the outer level first, each in whole bytes.
int bytes_of(int bits) {
  return (bits + 7) / 8;
}

template <int W>
FP4SCOPE_INLINE void store_group(QuantizeTask& task, const Hif4Shape& shape, std::int64_t b,
                                 const Hif4Group<Lane<W>>& group, const Hif4Work<Lane<W>>& work) {
  const int bytes = task.recipe.format.scale_bytes;
  store_codes<W>(work.codes, shape.block, task.codes(task.row) + shape.block * b);
  for (int l = 0; l < W; ++l) {
    std::uint8_t* s = task.scales(task.row) + bytes * (b + l);
    std::fill_n(s, bytes, std::uint8_t{0});
    s[0] = static_cast<std::uint8_t>(lane_of<W>(group.scale, l));
    std::uint8_t* level = s + 1;
    for (int j = 0; j < shape.outer_bits(); ++j) {
      level[j / 8] |= static_cast<std::uint8_t>(lane_of<W>(work.outer[j], l) << (j % 8));
    }
    level += bytes_of(shape.outer_bits());
    for (int k = 0; k < shape.inner_bits(); ++k) {
      level[k / 8] |= static_cast<std::uint8_t>(lane_of<W>(work.inner[k], l) << (k % 8));
    }
    refuse_nonfinite(task, task.row, lane_of<W>(group.refused, l));
  }
}

void run_narrow(QuantizeTask& task, const Hif4Shape& shape, std::int64_t first) {
  float x[kMaxBlock], a[kMaxBlock], outer_max[kMaxBlock], inner_max[kMaxBlock], shift[kMaxBlock];
  std::uint32_t sign[kMaxBlock], codes[kMaxBlock], outer[kMaxBlock], inner[kMaxBlock],
      random[kMaxBlock];
  const Hif4Work<Lane<1>> work{a, outer_max, inner_max, shift, sign, codes, outer, inner};
  const Hif4Options options = codec_options(task.recipe);
  const bool is_stochastic = task.recipe.sr.enabled;
  for (std::int64_t b = first; b < task.out.blocks_per_row; ++b) {
    load_panel<1>(task.x(task.row), task.tile.cols, b, shape.block, x);
    if (is_stochastic) load_random(task, task.row, shape.block * b, shape.block, random);
    const Hif4Group<Lane<1>> group =
        hif4_quantize_group<Lane<1>>(options, shape, x, is_stochastic ? random : nullptr, work);
    store_group<1>(task, shape, b, group, work);
  }
}

template <int W>
FP4SCOPE_INLINE std::int64_t run_wide(QuantizeTask& task, const Hif4Shape& shape) {
  using L = Lane<W>;
  using U = typename L::U;
  using F = typename L::F;
  F x[kMaxWideBlock], a[kMaxWideBlock], outer_max[kMaxWideBlock], inner_max[kMaxWideBlock],
      shift[kMaxWideBlock];
  U sign[kMaxWideBlock], codes[kMaxWideBlock], outer[kMaxWideBlock], inner[kMaxWideBlock];
  const Hif4Work<L> work{a, outer_max, inner_max, shift, sign, codes, outer, inner};
  std::int64_t b = 0;
  for (; b + W <= task.tile.cols / shape.block; b += W) {
    load_panel<W>(task.x(task.row), task.tile.cols, b, shape.block, x);
    const Hif4Group<L> group = hif4_quantize_group<L>(task.recipe.hif4, shape, x, nullptr, work);
    store_group<W>(task, shape, b, group, work);
  }
  return b;
}

struct CustomQuantize {
  template <int W>
  FP4SCOPE_INLINE static void quantize(QuantizeTask& task) {
    const Hif4Shape shape = shape_of(task.recipe);
    std::int64_t first = 0;
    if constexpr (W > 1) first = run_wide<W>(task, shape);
    run_narrow(task, shape, first);
  }
};

// Sum of the level bits of element i of a block.
int level_bits(const Hif4Shape& shape, const std::uint8_t* scale, int i) {
  const auto bit = [](const std::uint8_t* bytes, int at) { return bytes[at / 8] >> (at % 8) & 1; };
  const int outer = shape.outer != 0 ? bit(scale + 1, i / shape.outer) : 0;
  return outer + bit(scale + 1 + bytes_of(shape.outer_bits()), i / shape.inner);
}

void decode(const DecodeTask& task) {
  const Hif4Shape shape = shape_of(task.recipe);
  const std::uint8_t* codes = task.codes();
  for (std::int64_t i = 0; i < task.tile.cols; ++i) {
    const std::uint8_t* scale = task.scales() + i / shape.block * task.recipe.format.scale_bytes;
    const int bits = level_bits(shape, scale, static_cast<int>(i % shape.block));
    task.values[i] = hif4_decode_any<Lane<1>>(shape, codes[i], scale[0], bits);
  }
}

}  // namespace

double hif4_custom_scaled(const ElementTask& e) {
  const Hif4Shape shape = shape_of(e.recipe);
  const float x = static_cast<float>(magnitude_of_double(e.value));
  const Hif4Options options = codec_options(e.recipe);
  return hif4_scaled<Lane<1>>(options, hif4_input<Lane<1>>(options, x),
                              hif4_reciprocal<Lane<1>>(shape, e.scale[0]),
                              pow2(-level_bits(shape, e.scale, e.index)));
}

FamilyKernels hif4_custom_kernels(Isa isa, const Recipe& recipe) {
  const bool is_wide = recipe.format.block <= kMaxWideBlock && !recipe.sr.enabled;
  return {run_quantize_for<CustomQuantize>(is_wide ? isa : Isa::kReference), decode};
}

}  // namespace fp4scope
