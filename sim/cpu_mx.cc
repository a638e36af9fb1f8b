// cpu_mx.cc: CPU kernels of the MX formats. Named formats with plain contracts have a kernel of 32
// literal elements; other contracts have the same size with everything that a contract may need,
// and other block sizes (key block, user-defined formats) a run-time size.
#pragma GCC diagnostic ignored "-Wpsabi"
#include <cstring>

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
  const Recipe& recipe = task.recipe;
  const bool needs_rcp = recipe.mx.scale_arith == MxScaleArith::kRcp;
  return {task,
          mx_plan(recipe.mx, recipe.format.element,
                  needs_rcp ? rcp_bytes(recipe, recipe.mx.rcp) : nullptr),
          recipe.format.block};
}

template <int W, int kSize>
FP4SCOPE_INLINE void store_block(const MxContext& c, std::int64_t row, std::int64_t b, int n,
                                 const MxBlock<Lane<W>, kSize>& block) {
  store_codes<W>(block.codes, n, c.task.codes(row) + n * b);
  for (int l = 0; l < W; ++l) {
    c.task.scales(row)[b + l] = static_cast<std::uint8_t>(lane_of<W>(block.scale, l));
    const std::uint32_t refusal = lane_of<W>(block.refusal, l);
    if (refusal != 0 && c.task.refused_row < 0) {
      c.task.refused_row = row;
      c.task.refusal = sentence(static_cast<MxRefusal>(refusal));
    }
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
      if (task.rows > 1) load<W>(c, task.row + r, b, n, in);
      std::uint8_t random[kMost];
      const bool stochastic = task.recipe.sr.enabled;
      if constexpr (W == 1) {
        if (stochastic) random_bytes(task.recipe, task.tile, task.row + r, n * b, n, random);
      }
      MxBlock<L, kMost> out;
      const MxPlan plan = c.plan;  // a copy that the stores below cannot alias
      mx_quantize_any<L, kMost>(plan, n, amax, in, stochastic ? random : nullptr, out);
      store_block<W>(c, task.row + r, b, n, out);
    }
  }
};

// Full panels of W blocks first, then one by one.
template <class Panel, int W>
FP4SCOPE_INLINE void run_blocks(QuantizeTask& task) {
  const MxContext c = context_of(task);
  std::int64_t b = 0;
  if constexpr (W > 1) {
    const std::int64_t full = task.tile.cols / c.block;
    for (; b + W <= full; b += W) Panel::template run<W>(c, b);
  }
  for (; b < task.out.blocks_per_row; ++b) Panel::template run<1>(c, b);
}
template <class Panel>
void quantize_reference(QuantizeTask& task) {
  run_blocks<Panel, 1>(task);
}
template <class Panel>
[[gnu::target(FP4SCOPE_AVX2)]] void quantize_avx2(QuantizeTask& task) {
  run_blocks<Panel, 8>(task);
}
template <class Panel>
[[gnu::target(FP4SCOPE_AVX512)]] void quantize_avx512(QuantizeTask& task) {
  run_blocks<Panel, 16>(task);
}

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
      store_block<1>(c, task.row + r, b, n, out);
    }
  }
}
template <void (*kBinary32)(QuantizeTask&)>
void by_source(QuantizeTask& task) {
  task.tile.f64 != nullptr&& task.recipe.casts_f64_directly() ? quantize_binary64(task)
                                                              : kBinary32(task);
}
using QuantizeFn = void (*)(QuantizeTask&);
template <class Panel>
QuantizeFn quantize_for(Isa isa) {
  return isa == Isa::kAvx512 ? by_source<quantize_avx512<Panel>>
         : isa == Isa::kAvx2 ? by_source<quantize_avx2<Panel>>
                             : by_source<quantize_reference<Panel>>;
}
QuantizeFn quantizer(Isa isa, const Recipe& recipe) {
  const bool is_32 = recipe.format.block == 32;
  if (recipe.sr.enabled) {  // random bytes are drawn for one block at a time
    return by_source<quantize_reference<AnyPanel<0>>>;
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
// Any element and block size.
void decode_any(const DecodeTask& task) {
  const MinifloatSpec element = task.recipe.format.element;
  const int n = task.recipe.format.block;
  for (std::int64_t i = 0; i < task.tile.cols; ++i) {
    task.values[i] = mx_decode<Lane<1>>(element, task.codes()[i], task.scales()[i / n]);
  }
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
  if (recipe.format.block != 32) return decode_any;
  if (element == kE2M1) return decode_for<MxDecode<kE2M1>>(isa);
  if (element == kE2M3) return decode_for<MxDecode<kE2M3>>(isa);
  if (element == kE3M2) return decode_for<MxDecode<kE3M2>>(isa);
  if (element == kE4M3) return decode_for<MxDecode<kE4M3>>(isa);
  if (element == kE5M2) return decode_for<MxDecode<kE5M2>>(isa);
  return decode_any;
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
  const double magnitude = magnitude_of_double(mx_scaled(value, byte));
  const bool may_be_erased = o.nan == MxNan::kErase || o.inf == MxInf::kErase;
  const double largest =
      decode<Lane<1>>(e.recipe.format.element, e.recipe.format.element.max_finite_code());
  return may_be_erased && byte == 0 && magnitude >= 2 * largest ? 0.0 : magnitude;
}

}  // namespace

FamilyKernels mx_kernels(Isa isa, const Recipe& recipe) {
  return {quantizer(isa, recipe), decoder(isa, recipe)};
}
FamilyRules mx_rules() {
  return {[](const Recipe&, std::uint32_t bits) {
            return OuterScale32{bit_cast<float>(bits), 1.0f};
          },
          scaled};
}

}  // namespace fp4scope
