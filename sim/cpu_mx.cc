// cpu_mx.cc: CPU kernels of the MX formats. Named formats with plain contracts have a kernel of 32
// literal elements; other contracts have the same size with everything that a contract may need,
// and other block sizes (key block, user-defined formats) a run-time size.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "sim/cpu_mx.h"

#include "formats/codecs/mx.h"
#include "sim/cpu_kernels.h"
#include "sim/error.h"
#include "sim/rcp_table.h"
#include "sim/transforms.h"

namespace fp4scope {
namespace {

const char* sentence(MxRefusal why) {
  switch (why) {
    case MxRefusal::kNan:
      return "the contract's source does not say what a NaN gives; the key nan decides it";
    case MxRefusal::kInf:
      return "the contract's source does not say what an infinity gives; the key inf decides it";
    case MxRefusal::kZeroBlock:
      return "the contract's source does not say which scale an all-zero block has; the key "
             "zero-block decides it";
    case MxRefusal::kSmallScale:
      return "the contract's source does not say what a scale below 2^-127 becomes; write "
             "byte0=exact "
             "or byte0=flush";
    case MxRefusal::kZeroSign:
      return "the contract's source does not say whether a negative value that becomes zero keeps "
             "its sign; write zero-sign=keep, drop-input, drop or set";
    case MxRefusal::kNo:
      break;
  }
  return "";
}

struct MxContext {
  QuantizeTask& task;
  MxPlan plan;
  int block;  // elements along K
};
MxContext context_of(QuantizeTask& task) {
  return {task, mx_plan_of(task.recipe), task.recipe.format.block};
}

// Whether a NaN or an infinity is refused, so that its row must be known.
bool refuses_values(const MxOptions& o) {
  return o.nan == MxNan::kRefuse || o.inf == MxInf::kRefuse;
}

// `amax`: of this row of the block.
template <int W, int kSize>
FP4SCOPE_INLINE void store_block(const MxContext& c, std::int64_t row, std::int64_t b, int n,
                                 const MxAmax<Lane<W>>& amax,
                                 const MxBlock<Lane<W>, kSize>& block) {
  store_codes<W>(block.codes, n, c.task.codes(row) + n * b);
  for (int l = 0; l < W; ++l) {
    c.task.scales(row)[b + l] = static_cast<std::uint8_t>(lane_of<W>(block.scale, l));
    const auto why = static_cast<MxRefusal>(lane_of<W>(block.refusal, l));
    if (why == MxRefusal::kNo) continue;
    // Every row of a 2-D block is refused then; the one that holds the value is named.
    if (why == MxRefusal::kNan && lane_of<W>(amax.is_nan, l) == 0) continue;
    if (why == MxRefusal::kInf && lane_of<W>(amax.is_inf, l) == 0) continue;
    c.task.refuse(row, sentence(why));
  }
}

struct PlainPanel {
  template <int W>
  FP4SCOPE_INLINE static void run(const MxContext& c, std::int64_t b) {
    using L = Lane<W>;
    const std::int64_t row = c.task.row;
    typename L::F in[32];
    load_panel<W>(c.task.x(row), c.task.tile.cols, b, 32, in);
    MxBlock<L> out;
    const MxPlan plan = c.plan;  // a copy that the stores below cannot alias
    mx_quantize_plain<L, 32>(plan, in, out);
    store_codes<W>(out.codes, 32, c.task.codes(row) + 32 * b);
    for (int l = 0; l < W; ++l) {
      c.task.scales(row)[b + l] = static_cast<std::uint8_t>(lane_of<W>(out.scale, l));
    }
  }
};

// kSize 0: the size of the recipe. A 2-D block takes its maximum over the rows of the band.
template <int kSize>
struct AnyPanel {
  static constexpr int kMost = kSize > 0 ? kSize : kMxMaxBlock;
  template <int W>
  FP4SCOPE_INLINE static void load(const MxContext& c, std::int64_t row, std::int64_t b, int n,
                                   typename Lane<W>::F (&in)[kMost]) {
    load_panel<W>(c.task.x(row), c.task.tile.cols, b, n, in);
    if (mx_narrows(c.plan.options)) {
      for (int i = 0; i < n; ++i) in[i] = mx_narrow<Lane<W>>(c.plan.options, in[i]);
    }
  }
  template <int W>
  FP4SCOPE_INLINE static void run(const MxContext& c, std::int64_t b) {
    using L = Lane<W>;
    const int n = kSize > 0 ? kSize : c.block;
    const QuantizeTask& task = c.task;
    typename L::F in[kMost];
    load<W>(c, task.row, b, n, in);
    MxAmax<L> amax = mx_amax<L>(in, n);
    for (std::int64_t r = 1; r < task.rows; ++r) {
      load<W>(c, task.row + r, b, n, in);
      amax = mx_merge<L>(amax, mx_amax<L>(in, n));
    }
    for (std::int64_t r = 0; r < task.rows; ++r) {
      MxAmax<L> of_row = amax;
      if (task.rows > 1) {
        load<W>(c, task.row + r, b, n, in);
        if (refuses_values(c.plan.options)) of_row = mx_amax<L>(in, n);
      }
      std::uint8_t random[kMost];
      const bool stochastic = task.recipe.sr.enabled;
      if constexpr (W == 1) {
        if (stochastic) random_bytes(task.recipe, task.tile, task.row + r, n * b, n, random);
      }
      MxBlock<L, kMost> out;
      const MxPlan plan = c.plan;  // a copy that the stores below cannot alias
      mx_quantize_any<L, kMost>(plan, n, amax, in, stochastic ? random : nullptr, out);
      store_block<W>(c, task.row + r, b, n, of_row, out);
    }
  }
};

// Full panels of W blocks first, then one by one.
template <class Panel>
struct RunBlocks {
  template <int W>
  FP4SCOPE_INLINE static void quantize(QuantizeTask& task) {
    const MxContext c = context_of(task);
    std::int64_t b = 0;
    if constexpr (W > 1) {
      const std::int64_t full = task.tile.cols / c.block;
      for (; b + W <= full; b += W) Panel::template run<W>(c, b);
    }
    for (; b < task.out.blocks_per_row; ++b) Panel::template run<1>(c, b);
  }
};

// binary64 rows that are cast directly: Lane<1> in every backend.
std::uint64_t magnitude_bits(double v) {
  return bit_cast<std::uint64_t>(magnitude_of_double(v));
}
void load_binary64(const MxContext& c, std::int64_t row, std::int64_t b, double* in) {
  const std::int64_t n = c.block, valid = std::min<std::int64_t>(n, c.task.tile.cols - n * b);
  for (int i = 0; i < n; ++i) in[i] = i < valid ? c.task.x64(row)[n * b + i] : 0.0;
}
void quantize_binary64(QuantizeTask& task) {
  const MxContext c = context_of(task);
  const int n = c.block;
  for (std::int64_t b = 0; b < task.out.blocks_per_row; ++b) {
    double in[kMxMaxBlock];
    std::uint64_t amax = 0;
    std::uint32_t is_nan = 0;
    for (std::int64_t r = 0; r < task.rows; ++r) {
      load_binary64(c, task.row + r, b, in);
      for (int i = 0; i < n; ++i) {
        is_nan |= in[i] != in[i] ? 1u : 0u;
        if (in[i] == in[i]) amax = std::max(amax, magnitude_bits(in[i]));
      }
    }
    for (std::int64_t r = 0; r < task.rows; ++r) {
      load_binary64(c, task.row + r, b, in);
      std::uint8_t random[kMxMaxBlock];
      const bool stochastic = task.recipe.sr.enabled;
      if (stochastic) random_bytes(task.recipe, task.tile, task.row + r, n * b, n, random);
      MxBlock<Lane<1>, kMxMaxBlock> out;
      mx_quantize_any<kMxMaxBlock>(c.plan, n, mx_amax_of_bits(amax, is_nan), in,
                                   stochastic ? random : nullptr, out);
      store_block<1>(c, task.row + r, b, n, mx_amax(in, n), out);
    }
  }
}
template <class Kernel>
struct BySource {
  template <int W>
  FP4SCOPE_INLINE static void quantize(QuantizeTask& task) {
    if (task.tile.f64 != nullptr && task.recipe.casts_f64_directly()) {
      quantize_binary64(task);
    } else {
      Kernel::template quantize<W>(task);
    }
  }
};
template <class Panel>
QuantizeFn quantize_for(Isa isa) {
  return run_quantize_for<BySource<RunBlocks<Panel>>>(isa);
}
QuantizeFn quantizer(Isa isa, const Recipe& recipe) {
  const bool is_32 = recipe.format.block == 32;
  if (recipe.sr.enabled) {  // random bytes are drawn for one block at a time
    return quantize_for<AnyPanel<0>>(Isa::kReference);
  }
  if (is_32 && mx_is_plain(recipe.mx)) return quantize_for<PlainPanel>(isa);
  return is_32 ? quantize_for<AnyPanel<32>>(isa) : quantize_for<AnyPanel<0>>(isa);
}

// --- decoding ---

template <MinifloatSpec kSpec>
struct MxDecode {
  static constexpr int kBlock = 32;
  FP4SCOPE_INLINE static void run(const DecodeTask& task, std::int64_t b,
                                  const std::uint32_t (&code)[32], float (&v)[32]) {
    const std::uint32_t scale = task.scales()[b];
    for (int i = 0; i < 32; ++i) v[i] = mx_decode<Lane<1>>(kSpec, code[i], scale);
  }
};

// Any element and block size.
void decode_any(const DecodeTask& task) {
  const MinifloatSpec element = task.recipe.format.element;
  const int n = task.recipe.format.block;
  for (std::int64_t i = 0; i < task.tile.cols; ++i) {
    task.values[i] = mx_decode<Lane<1>>(element, task.codes()[i], task.scales()[i / n]);
  }
}

DecodeFn decoder(Isa isa, const Recipe& recipe) {
  const MinifloatSpec element = recipe.format.element;
  if (recipe.format.block != 32) return decode_any;
  if (element == kE2M1) return run_decode_for<DecodeBlocks<MxDecode<kE2M1>>>(isa);
  if (element == kE2M3) return run_decode_for<DecodeBlocks<MxDecode<kE2M3>>>(isa);
  if (element == kE3M2) return run_decode_for<DecodeBlocks<MxDecode<kE3M2>>>(isa);
  if (element == kE4M3) return run_decode_for<DecodeBlocks<MxDecode<kE4M3>>>(isa);
  if (element == kE5M2) return run_decode_for<DecodeBlocks<MxDecode<kE5M2>>>(isa);
  return decode_any;
}

// What the elements of a block are multiplied with, measured on the source once more.
float inverse_of(const Recipe& recipe, const SourceBlock& source) {
  const bool is_binary64 = source.f64 != nullptr && recipe.casts_f64_directly();
  if (is_binary64)
    return mx_scale<Lane<1>>(mx_plan_of(recipe), true, mx_amax(source.f64, source.n)).inverse;
  float x[kMxMaxBlock];
  for (int i = 0; i < source.n; ++i) {
    x[i] = mx_narrow<Lane<1>>(
        recipe.mx, source.f64 != nullptr ? static_cast<float>(source.f64[i]) : source.f32[i]);
  }
  return mx_scale<Lane<1>>(mx_plan_of(recipe), false, mx_amax<Lane<1>>(x, source.n)).inverse;
}

// What the cast gets. A block with scale byte 0 was flushed or, beyond what a block of that scale
// can hold, erased because of a value that is not finite.
double scaled(const ElementTask& e) {
  const MxOptions& o = e.recipe.mx;
  const std::uint32_t byte = e.scale[0];
  double value = e.value;
  if (!e.recipe.casts_f64_directly()) {
    value = mx_narrow<Lane<1>>(o, static_cast<float>(value));
  }
  if (byte == 0 && o.byte0 == MxByte0::kFlush) return 0.0;
  if (byte == 254 && o.quirk == MxQuirk::kZeroInverse254) return 0.0;
  // universal: scale byte 0 may stand for an infinite inverse, which clamps everything but zero.
  if (byte == 0 && o.quirk == MxQuirk::kUniversal && value != 0.0) {
    const float inverse = inverse_of(e.recipe, e.source);
    if (inverse > kFloatMax) return magnitude_of_double(value * inverse);
  }
  const double magnitude = magnitude_of_double(mx_scaled(value, byte));
  const bool may_be_erased = o.nan == MxNan::kErase || o.inf == MxInf::kErase;
  const double largest = element_max(e.recipe.format);
  return may_be_erased && byte == 0 && magnitude >= 2 * largest ? 0.0 : magnitude;
}

}  // namespace

MxPlan mx_plan_of(const Recipe& recipe) {
  const bool needs_rcp = recipe.mx.scale_arith == MxScaleArith::kRcp;
  return mx_plan(recipe.mx, recipe.format.element,
                 needs_rcp ? rcp_bytes(recipe, recipe.mx.rcp) : nullptr);
}

FamilyKernels mx_kernels(Isa isa, const Recipe& recipe) {
  return {quantizer(isa, recipe), decoder(isa, recipe)};
}
FamilyRules mx_rules() {
  return {no_outer_scale, scaled};
}

}  // namespace fp4scope
