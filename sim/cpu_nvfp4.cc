// cpu_nvfp4.cc: NVFP4, if4, nvint4 and user-defined formats of that shape on the CPU: which kernel
// a recipe has (cpu_nvfp4_fixed.cc, cpu_nvfp4_any.cc), refusals, decoding, outer scales.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "sim/nvfp4_panels.h"
#include "sim/rcp_table.h"

namespace fp4scope {
namespace {

using Order = Nvfp4Order;

MinifloatSpec scale_spec(const BlockFormat& format) {
  for (int i = 0; i < format.num_levels; ++i) {
    const ScaleLevel& level = format.levels[static_cast<std::size_t>(i)];
    if (level.group != 0) return level.spec;
  }
  return kUE4M3;
}
enum class DecodeKind : std::uint8_t { kTe, kNamed, kCustom };

// Codes of W neighbouring elements.
template <int W>
FP4SCOPE_INLINE typename Lane<W>::U load_codes(const std::uint8_t* codes) {
  if constexpr (W == 1) {
    return codes[0];
  } else {
    typedef std::uint8_t Bytes __attribute__((vector_size(W)));
    Bytes bytes;
    std::memcpy(&bytes, codes, W);
    return __builtin_convertvector(bytes, typename Lane<W>::U);
  }
}

// W elements of a block at a time. Blocks are decoded whole in a local array, which cannot alias,
// and cut at the end of the row.
template <DecodeKind kKind, int W>
FP4SCOPE_INLINE void decode_row(const DecodeTask& task) {
  using L = Lane<W>;
  constexpr bool kIsCustom = kKind == DecodeKind::kCustom;
  static_assert(!kIsCustom || W == 1);
  Nvfp4Rules rules = nvfp4_rules_of(task.recipe);
  if (!kIsCustom) {
    rules = nvfp4_panels::Fixed<Order::kTe>::fix(rules);
    rules.options.order = kKind == DecodeKind::kTe ? Order::kTe : task.recipe.nvfp4.order;
  }
  constexpr int kMost = kIsCustom ? kNvfp4MostElements : 16;
  const int n = kIsCustom ? task.recipe.format.block : 16;
  const Nvfp4Outer outer{task.outer.amax, task.outer.g};
  const bool has_factor = nvfp4_has_factor(rules.options.order);
  const std::uint8_t* codes = task.codes();
  const std::uint8_t* scales = task.scales();
  for (std::int64_t b = 0; b * n < task.tile.cols; ++b) {
    float v[kMost];
    const float factor = has_factor ? nvfp4_decode_factor<Lane<1>>(rules, outer, scales[b]) : 0.0f;
    for (int i = 0; i < n; i += W) {
      const typename L::U code = load_codes<W>(codes + b * n + i);
      typename L::F value{};
      if (has_factor) {
        value = nvfp4_decode_element<L>(rules, code) * factor;
      } else {
        const typename L::U scale = typename L::U{} + std::uint32_t{scales[b]};
        value = nvfp4_decode_chain<L>(rules, outer, scale, code);
      }
      std::memcpy(v + i, &value, sizeof value);
    }
    const std::int64_t valid = std::min<std::int64_t>(n, task.tile.cols - b * n);
    std::memcpy(task.values + b * n, v, static_cast<std::size_t>(valid) * sizeof(float));
  }
}
template <DecodeKind kKind>
struct Nvfp4Decode {
  template <int W>
  FP4SCOPE_INLINE static void decode(const DecodeTask& task) {
    decode_row<kKind, kKind == DecodeKind::kCustom ? 1 : W>(task);
  }
};
DecodeFn decoder(Isa isa, const Recipe& recipe) {
  if (recipe.format.name != "nvfp4") return run_decode_for<Nvfp4Decode<DecodeKind::kCustom>>(isa);
  return nvfp4_is_te(recipe.nvfp4.order) ? run_decode_for<Nvfp4Decode<DecodeKind::kTe>>(isa)
                                         : run_decode_for<Nvfp4Decode<DecodeKind::kNamed>>(isa);
}

// The element's own magnitude stands in for the block maximum where an inverse asks whether the
// block is zero. An INT4 block of if4 is clamped beyond 7.5 and not beyond 7.
double scaled(const ElementTask& e) {
  using L = Lane<1>;
  const Nvfp4Rules rules = nvfp4_rules_of(e.recipe);
  const Nvfp4Row row = nvfp4_row(rules, {e.outer.amax, e.outer.g});
  const float x = static_cast<float>(e.value);
  const float bmax = bit_cast<float>(bit_cast<std::uint32_t>(x) & kMagnitudeMask);
  const float s = nvfp4_scale_value<L>(rules, row, bmax, e.choice);
  const float inverse = nvfp4_inverse<L>(rules, row, e.scale[0], bmax, s);
  const FlushOps<L> op{rules.options.ftz};
  const float y = nvfp4_divides(rules.options.order) ? x / inverse : op.mul(x, inverse);
  if (rules.options.int4_candidate && e.choice)
    return magnitude_of_double(y * 1.16666666f) * (7.0 / 7.5);
  return clamping_of(e.recipe.format, y);
}

}  // namespace

Nvfp4Rules nvfp4_rules_of(const Recipe& recipe) {
  const Order order = recipe.nvfp4.order;
  const bool uses_rcp = nvfp4_is_fast(order) || order == Order::kFlashinferKv;
  Nvfp4Rules rules;
  rules.options = recipe.nvfp4;
  rules.element = recipe.format.element;
  rules.scale = scale_spec(recipe.format);
  rules.lut = recipe.format.lut;
  rules.element_max = element_max(recipe.format);
  rules.table = uses_rcp ? rcp_bytes(recipe, recipe.nvfp4.rcp) : nullptr;
  return rules;
}
Nvfp4Rules nvfp4_rules_of(const QuantizeTask& task) {
  Nvfp4Rules rules = nvfp4_rules_of(task.recipe);
  rules.dtype = task.tile.source == SourceType::kBf16  ? DType16::kBf16
                : task.tile.source == SourceType::kF16 ? DType16::kF16
                                                       : DType16::kF32;
  return rules;
}
bool nvfp4_refuses_tensor(QuantizeTask& task) {
  const Nvfp4Options& o = task.recipe.nvfp4;
  if (o.order != Order::kFouroversixCuda || o.scale != OuterScale::kTensor ||
      task.outer_of(task.row).amax != 0.0f) {
    return false;
  }
  task.refuse(task.row, "contract fouroversix-cuda writes no output for an all-zero tensor");
  return true;
}
void nvfp4_refuse_nan(QuantizeTask& task, std::int64_t row) {
  switch (task.recipe.nvfp4.order) {
    case Order::kFouroversix:
      task.refuse(row, "contract fouroversix defines no code for NaN");
      break;
    case Order::kCompressedTensors:
      task.refuse(row, "contract compressed-tensors defines no code for NaN");
      break;
    default:
      task.refuse(row,
                  "contract mlx-cpu defines no code for NaN, which 0/0 in a zero block is too");
      break;
  }
}

FamilyKernels nvfp4_kernels(Isa isa, const Recipe& recipe) {
  const QuantizeFn fixed = recipe.sr.enabled ? nullptr : nvfp4_fixed_kernel(isa, recipe);
  return {fixed != nullptr ? fixed : nvfp4_any_kernel(isa, recipe), decoder(isa, recipe)};
}
FamilyRules nvfp4_rules() {
  return {[](const Recipe& recipe, std::uint32_t bits) {
            const Nvfp4Outer outer = nvfp4_outer(nvfp4_rules_of(recipe), bits);
            return OuterScale32{outer.amax, outer.g};
          },
          scaled};
}

}  // namespace fp4scope
