// cpu_int4.cc: CPU kernels of INT4 group quantization (spec/more.md section 1).
#pragma GCC diagnostic ignored "-Wpsabi"
#include <vector>

#include "formats/codecs/int4.h"
#include "sim/cpu_runs.h"
#include "sim/error.h"
#include "sim/transforms.h"

namespace fp4scope {
namespace {

using Scalar = Lane<1>;

Int4Rules rules(const Recipe& recipe) {
  const BlockFormat& format = recipe.format;
  const float max = element_max(format);
  const float div = format.lut != nullptr ? max : int4_scale_div(recipe.int4, format.element, max);
  return {recipe.int4, format.levels[0].kind, div};
}

// Element specs that kernels know as constants.
enum class SpecKind : std::uint8_t { kSymmetric, kFull, kOther };
template <SpecKind kKind>
FP4SCOPE_INLINE MinifloatSpec known_spec(const Recipe& recipe) {
  return kKind == SpecKind::kSymmetric ? integer_spec(4, 0, SignCode::kTwosComplement)
         : kKind == SpecKind::kFull    ? integer_spec(4, 0, SignCode::kTwosComplementFull)
                                       : recipe.format.element;
}

template <Int4Step kStep, DType16 kType>
struct Int4Encoder {
  MinifloatSpec spec;
  Int4Scale<Scalar> scale;
  template <class L>
  FP4SCOPE_INLINE typename L::U code(typename L::F w) const {
    using F = typename L::F;
    const F y = int4_scaled<L>(kStep, kType, spec, w, F{} + scale.divisor, F{} + scale.stored);
    return encode<L>(spec, Rounding::kEven, y);
  }
};
template <DType16 kType>
struct Int4Decoder {
  MinifloatSpec spec;
  float scale;
  template <class L>
  FP4SCOPE_INLINE typename L::F value(typename L::U code) const {
    return int4_decode<L>(kType, spec, code, typename L::F{} + scale);
  }
};

// encode(row, group, valid elements, scale) for every group; stores the scales.
template <class Encode>
FP4SCOPE_INLINE void for_each_scale(QuantizeTask& task, const Encode& encode) {
  const BlockFormat& format = task.recipe.format;
  const Int4Rules r = rules(task.recipe);
  const std::int64_t block = format.block;
  for (std::int64_t b = 0; b < task.out.blocks_per_row; ++b) {
    const std::int64_t valid = std::min(block, task.tile.cols - b * block);
    RunMaximum m;
    include_run(m, task.x(task.row) + b * block, valid);
    if (!m.is_finite()) {
      task.refuse(task.row, "NaN or Inf, which no contract of INT4 groups has a code for");
      m.amax = 0;
    }
    const Int4Scale<Scalar> s = int4_scale<Scalar>(r, bit_cast<float>(m.amax));
    store_scale(format, s.stored, task.scales(task.row) + b * format.scale_bytes);
    encode(b * block, valid, s);
  }
}

template <SpecKind kKind, Int4Step kStep, DType16 kType>
struct Int4Quantize {
  template <int W>
  struct Encode {
    QuantizeTask& task;
    FP4SCOPE_INLINE void operator()(std::int64_t first, std::int64_t valid,
                                    const Int4Scale<Scalar>& s) const {
      const Int4Encoder<kStep, kType> encoder{known_spec<kKind>(task.recipe), s};
      encode_block<W>(encoder, task.x(task.row) + first, valid, task.recipe.format.block,
                      task.codes(task.row) + first);
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
  std::uint8_t* random;  // a byte per element of a block, for stochastic rounding
  void operator()(std::int64_t first, std::int64_t valid, const Int4Scale<Scalar>& s) const {
    const Recipe& recipe = task.recipe;
    const Int4Options& o = recipe.int4;
    const std::int64_t block = recipe.format.block;
    if (recipe.sr.enabled) random_bytes(recipe, task.tile, task.row, first, valid, random);
    const Rounding rounding = recipe.sr.enabled ? Rounding::kStochastic : Rounding::kEven;
    for (std::int64_t i = 0; i < block; ++i) {
      const float x = i < valid ? task.x(task.row)[first + i] : 0.0f;
      std::uint32_t code = 0;
      if (recipe.format.lut != nullptr) {
        const DType16 type = int4_quotient_type(o);
        code = lut_encode(*recipe.format.lut, round_to_dtype<Scalar>(type, x / s.divisor));
      } else {
        const float y = int4_scaled<Scalar>(int4_step(o.order), int4_quotient_type(o),
                                            recipe.format.element, x, s.divisor, s.stored);
        code = encode<Scalar>(recipe.format.element, rounding, y,
                              recipe.sr.enabled ? std::uint32_t{random[i]} : 0u);
      }
      task.codes(task.row)[first + i] = static_cast<std::uint8_t>(code);
    }
  }
};
void quantize_slowly(QuantizeTask& task) {
  const bool is_stochastic = task.recipe.sr.enabled;
  std::vector<std::uint8_t> random(
      is_stochastic ? static_cast<std::size_t>(task.recipe.format.block) : 0u);
  for_each_scale(task, EncodeSlowly{task, random.data()});
}

template <SpecKind kKind, DType16 kType>
struct Int4Decode {
  template <int W>
  FP4SCOPE_INLINE static void decode(const DecodeTask& task) {
    const BlockFormat& format = task.recipe.format;
    const std::int64_t block = format.block, cols = task.tile.cols;
    for (std::int64_t b = 0; b * block < cols; ++b) {
      const float scale = load_scale(format, task.scales() + b * format.scale_bytes);
      decode_run<W>(Int4Decoder<kType>{known_spec<kKind>(task.recipe), scale},
                    task.codes() + b * block, std::min(block, cols - b * block),
                    task.values + b * block);
    }
  }
};
void decode_lut(const DecodeTask& task) {
  const BlockFormat& format = task.recipe.format;
  const std::int64_t block = format.block, cols = task.tile.cols;
  const DType16 dtype = task.recipe.int4.dtype;
  for (std::int64_t b = 0; b * block < cols; ++b) {
    const float scale = load_scale(format, task.scales() + b * format.scale_bytes);
    for (std::int64_t i = b * block; i < std::min(cols, (b + 1) * block); ++i) {
      task.values[i] = round_to_dtype<Scalar>(dtype, format.lut->value[task.codes()[i]] * scale);
    }
  }
}

template <SpecKind kKind>
QuantizeFn quantizer(Isa isa, const Int4Options& o) {
  using enum DType16;
  if (int4_step(o.order) == Int4Step::kExport)
    return run_quantize_for<Int4Quantize<kKind, Int4Step::kExport, kBf16>>(isa);
  constexpr Int4Step kStep = Int4Step::kDivide;
  switch (int4_quotient_type(o)) {
    case kF32:
      return run_quantize_for<Int4Quantize<kKind, kStep, kF32>>(isa);
    case kF16:
      return run_quantize_for<Int4Quantize<kKind, kStep, kF16>>(isa);
    case kBf16:
      break;
  }
  return run_quantize_for<Int4Quantize<kKind, kStep, kBf16>>(isa);
}
template <SpecKind kKind>
FamilyKernels kernels(Isa isa, const Recipe& recipe) {
  using enum DType16;
  const DType16 dtype = recipe.int4.dtype;
  return {recipe.sr.enabled ? quantize_slowly : quantizer<kKind>(isa, recipe.int4),
          dtype == kF32   ? run_decode_for<Int4Decode<kKind, kF32>>(isa)
          : dtype == kF16 ? run_decode_for<Int4Decode<kKind, kF16>>(isa)
                          : run_decode_for<Int4Decode<kKind, kBf16>>(isa)};
}

// The divisor of the elements is known from the stored scale where it is that; otherwise (miles,
// rtp-llm) up to the rounding of the stored scale, which matters next to the limit only.
double scaled(const ElementTask& e) {
  const Recipe& recipe = e.recipe;
  const MinifloatSpec element = recipe.format.element;
  const float stored = load_scale(recipe.format, e.scale);
  const float divisor = stored == 0.0f ? 1.0f : stored;
  const auto x = static_cast<float>(e.value);
  const double y = round_to_dtype<Scalar>(int4_quotient_type(recipe.int4), x / divisor);
  if (recipe.format.lut != nullptr || element.sign_code != SignCode::kTwosComplementFull ||
      y >= 0.0)
    return clamping_of(recipe.format, y);
  // The negative side goes one step further than the limit of the positive side tells: what is not
  // clamped there must not look clamped.
  const double lowest = -static_cast<double>(element.max_finite_code() + 1u);
  return y < lowest - 0.5 ? -y : std::min(-y, -lowest - 1.0);
}

}  // namespace

FamilyKernels int4_kernels(Isa isa, const Recipe& recipe) {
  if (recipe.format.lut != nullptr) {
    if (recipe.sr.enabled)
      throw Error(ErrorKind::kUnsupported,
                  "round=sr is defined for numbers, not for a table of values");
    return {quantize_slowly, decode_lut};
  }
  if (recipe.format.element == known_spec<SpecKind::kSymmetric>(recipe))
    return kernels<SpecKind::kSymmetric>(isa, recipe);
  if (recipe.format.element == known_spec<SpecKind::kFull>(recipe))
    return kernels<SpecKind::kFull>(isa, recipe);
  return kernels<SpecKind::kOther>(isa, recipe);
}
FamilyRules int4_rules() {
  return {no_outer_scale, scaled};
}

}  // namespace fp4scope
