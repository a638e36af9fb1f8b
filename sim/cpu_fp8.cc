// cpu_fp8.cc: CPU kernels of FP8 (spec/more.md section 2).
#pragma GCC diagnostic ignored "-Wpsabi"
#include <vector>

#include "formats/codecs/fp8.h"
#include "sim/cpu_runs.h"
#include "sim/error.h"
#include "sim/rcp_table.h"
#include "sim/transforms.h"

namespace fp4scope {
namespace {

using Scalar = Lane<1>;

Fp8Rules rules(const Recipe& recipe) {
  const Fp8Options& o = recipe.fp8;
  return {o, element_max(recipe.format),
          o.div == Div::kTriton ? rcp_bytes(recipe, o.rcp) : nullptr};
}
Fp8Scale<Scalar> scale_of(const Fp8Rules& r, const RunMaximum& m) {
  const bool is_nan = m.has_nan() && fp8_propagates_nan(r.options.order);
  return fp8_scale<Scalar>(r, bit_cast<float>(is_nan ? kQuietNanBits : m.amax));
}
Fp8Scale<Scalar> scale_of(const Fp8Rules& r, const OuterScale32& outer) {
  return fp8_scale<Scalar>(r, outer.amax);
}

// Element specs that kernels know as constants; `spec` of the others comes from the recipe.
enum class SpecKind : std::uint8_t { kE4m3, kE5m2, kOther };
template <SpecKind kKind>
FP4SCOPE_INLINE MinifloatSpec known_spec(const Recipe& recipe) {
  return kKind == SpecKind::kE4m3   ? kE4M3
         : kKind == SpecKind::kE5m2 ? kE5M2
                                    : recipe.format.element;
}

template <Fp8Step kStep, Fp8Cast kCast>
struct Fp8Encoder {
  MinifloatSpec spec;
  DType16 dtype;
  float factor;
  template <class L>
  FP4SCOPE_INLINE typename L::U code(typename L::F x) const {
    const auto y = fp8_scaled<L>(kStep, dtype, x, typename L::F{} + factor);
    return fp8_element<L>(kCast, spec, Rounding::kEven, y);
  }
};
struct Fp8Decoder {
  MinifloatSpec spec;
  float scale;
  template <class L>
  FP4SCOPE_INLINE typename L::F value(typename L::U code) const {
    return fp8_decode<L>(spec, code, typename L::F{} + scale);
  }
};

// encode(row, block or -1 for a whole row, factor) for every piece that has one scale; stores block
// scales.
template <class Encode>
FP4SCOPE_INLINE void for_each_scale(QuantizeTask& task, const Encode& encode) {
  const BlockFormat& format = task.recipe.format;
  const Fp8Rules r = rules(task.recipe);
  if (format.scale_bytes == 0) {
    for (std::int64_t i = task.row; i < task.row + task.rows; ++i) {
      encode(i, 0, task.tile.cols, task.out.padded_cols, scale_of(r, task.outer_of(i)).factor);
    }
    return;
  }
  const std::int64_t block = format.block;
  for (std::int64_t b = 0; b < task.out.blocks_per_row; ++b) {
    const std::int64_t valid = std::min(block, task.tile.cols - b * block);
    RunMaximum m;
    for (std::int64_t i = task.row; i < task.row + task.rows; ++i) {
      include_run(m, task.x(i) + b * block, valid);
    }
    const Fp8Scale<Scalar> s = scale_of(r, m);
    for (std::int64_t i = task.row; i < task.row + task.rows; ++i) {
      store_scale(format, s.scale, task.scales(i) + b * format.scale_bytes);
      encode(i, b * block, valid, block, s.factor);
    }
  }
}

template <SpecKind kKind, Fp8Step kStep, Fp8Cast kCast>
struct Fp8Quantize {
  template <int W>
  struct Encode {
    QuantizeTask& task;
    FP4SCOPE_INLINE void operator()(std::int64_t row, std::int64_t first, std::int64_t valid,
                                    std::int64_t padded, float factor) const {
      const Fp8Encoder<kStep, kCast> encoder{known_spec<kKind>(task.recipe), task.recipe.fp8.dtype,
                                             factor};
      encode_block<W>(encoder, task.x(row) + first, valid, padded, task.codes(row) + first);
    }
  };
  template <int W>
  FP4SCOPE_INLINE static void quantize(QuantizeTask& task) {
    for_each_scale(task, Encode<W>{task});
  }
};

// Stochastic rounding, and elements from a table: one at a time in every backend.
struct EncodeSlowly {
  QuantizeTask& task;
  std::uint8_t* random;  // a byte per element of a piece, for stochastic rounding
  void operator()(std::int64_t row, std::int64_t first, std::int64_t valid, std::int64_t padded,
                  float factor) const {
    const Recipe& recipe = task.recipe;
    const Fp8Options& o = recipe.fp8;
    if (recipe.sr.enabled) random_bytes(recipe, task.tile, row, first, valid, random);
    const Rounding rounding = recipe.sr.enabled ? Rounding::kStochastic : Rounding::kEven;
    for (std::int64_t i = 0; i < padded; ++i) {
      const float x = i < valid ? task.x(row)[first + i] : 0.0f;
      const float y = fp8_scaled<Scalar>(fp8_step(o), o.dtype, x, factor);
      const std::uint32_t code =
          recipe.format.lut != nullptr
              ? lut_encode(*recipe.format.lut, y)
              : fp8_element<Scalar>(fp8_cast(o.order), recipe.format.element, rounding, y,
                                    recipe.sr.enabled ? std::uint32_t{random[i]} : 0u);
      task.codes(row)[first + i] = static_cast<std::uint8_t>(code);
    }
  }
};
void quantize_slowly(QuantizeTask& task) {
  const bool is_stochastic = task.recipe.sr.enabled;
  std::vector<std::uint8_t> random(is_stochastic ? static_cast<std::size_t>(task.out.padded_cols)
                                                 : 0u);
  for_each_scale(task, EncodeSlowly{task, random.data()});
}

template <SpecKind kKind>
struct Fp8Decode {
  template <int W>
  FP4SCOPE_INLINE static void decode(const DecodeTask& task) {
    const BlockFormat& format = task.recipe.format;
    const MinifloatSpec spec = known_spec<kKind>(task.recipe);
    const std::int64_t cols = task.tile.cols;
    if (format.scale_bytes == 0) {
      decode_run<W>(Fp8Decoder{spec, task.outer.g}, task.codes(), cols, task.values);
      return;
    }
    const std::int64_t block = format.block;
    for (std::int64_t b = 0; b * block < cols; ++b) {
      const float scale = load_scale(format, task.scales() + b * format.scale_bytes);
      decode_run<W>(Fp8Decoder{spec, scale}, task.codes() + b * block,
                    std::min(block, cols - b * block), task.values + b * block);
    }
  }
};
void decode_lut(const DecodeTask& task) {
  const BlockFormat& format = task.recipe.format;
  const std::int64_t block = format.block, cols = task.tile.cols;
  for (std::int64_t b = 0; b * block < cols; ++b) {
    const float scale = load_scale(format, task.scales() + b * format.scale_bytes);
    for (std::int64_t i = b * block; i < std::min(cols, (b + 1) * block); ++i) {
      task.values[i] = format.lut->value[task.codes()[i]] * scale;
    }
  }
}

template <SpecKind kKind>
QuantizeFn quantizer(Isa isa, Fp8Step step, Fp8Cast cast) {
  using enum Fp8Step;
  using enum Fp8Cast;
  if (step == kMultiplyRounded)
    return run_quantize_for<Fp8Quantize<kKind, kMultiplyRounded, kSaturate>>(isa);
  if (step == kMultiply)
    return cast == kClamp   ? run_quantize_for<Fp8Quantize<kKind, kMultiply, kClamp>>(isa)
           : cast == kTorch ? run_quantize_for<Fp8Quantize<kKind, kMultiply, kTorch>>(isa)
                            : run_quantize_for<Fp8Quantize<kKind, kMultiply, kSaturate>>(isa);
  return cast == kClamp   ? run_quantize_for<Fp8Quantize<kKind, kDivide, kClamp>>(isa)
         : cast == kTorch ? run_quantize_for<Fp8Quantize<kKind, kDivide, kTorch>>(isa)
                          : run_quantize_for<Fp8Quantize<kKind, kDivide, kSaturate>>(isa);
}
template <SpecKind kKind>
FamilyKernels kernels(Isa isa, const Recipe& recipe) {
  const Fp8Options& o = recipe.fp8;
  return {
      recipe.sr.enabled ? quantize_slowly : quantizer<kKind>(isa, fp8_step(o), fp8_cast(o.order)),
      run_decode_for<Fp8Decode<kKind>>(isa)};
}

// Per tensor and row exactly as quantized. Of a block only the scale is stored, so contracts that
// multiply with a separately rounded inverse can be two units in the last place away; no element
// is that near to the limit.
double scaled(const ElementTask& e) {
  const Recipe& recipe = e.recipe;
  const Fp8Options& o = recipe.fp8;
  const auto x = static_cast<float>(e.value);
  if (recipe.format.scale_bytes != 0) {
    return clamping_of(recipe.format, x / load_scale(recipe.format, e.scale));
  }
  const float factor = scale_of(rules(recipe), e.outer).factor;
  return magnitude_of_double(fp8_scaled<Scalar>(fp8_step(o), o.dtype, x, factor));
}

OuterScale32 outer(const Recipe& recipe, std::uint32_t amax_bits) {
  const float amax = bit_cast<float>(amax_bits);
  if (!recipe.has_outer()) return {amax, 1.0f};
  const float g = fp8_scale<Scalar>(rules(recipe), amax).scale;
  return {amax, g};
}

}  // namespace

FamilyKernels fp8_kernels(Isa isa, const Recipe& recipe) {
  if (recipe.format.lut != nullptr) {
    if (recipe.sr.enabled)
      throw Error(ErrorKind::kUnsupported,
                  "round=sr is defined for numbers, not for a table of values");
    return {quantize_slowly, decode_lut};
  }
  if (recipe.format.element == kE4M3) return kernels<SpecKind::kE4m3>(isa, recipe);
  if (recipe.format.element == kE5M2) return kernels<SpecKind::kE5m2>(isa, recipe);
  return kernels<SpecKind::kOther>(isa, recipe);
}
FamilyRules fp8_rules() {
  return {outer, scaled};
}

}  // namespace fp4scope
