// nvfp4_panels.h: the loops of the NVFP4 kernels over panels of blocks and bands of rows, private
// to sim/cpu_nvfp4*.cc. A kernel is the codec text with some options as constants (Fixed, Adaptive)
// or all at run time (Any). Include it after the pragma that silences -Wpsabi.
#pragma once
#include "formats/codecs/nvfp4.h"
#include "sim/cpu_kernels.h"

namespace fp4scope {

// cpu_nvfp4_fixed.cc: the hot recipes of nvfp4; null for the others.
QuantizeFn nvfp4_fixed_kernel(Isa isa, const Recipe& recipe);
// cpu_nvfp4_any.cc: every recipe.
QuantizeFn nvfp4_any_kernel(Isa isa, const Recipe& recipe);
// Run-time options and geometry of a recipe; a task adds the type of its input.
Nvfp4Rules nvfp4_rules_of(const Recipe& recipe);
Nvfp4Rules nvfp4_rules_of(const QuantizeTask& task);
// Refuses the tensor that a source writes no output for.
bool nvfp4_refuses_tensor(QuantizeTask& task);
// Notes that an element of `row` has no code under its contract.
void nvfp4_refuse_nan(QuantizeTask& task, std::int64_t row);

namespace nvfp4_panels {

using Order = Nvfp4Order;

// 16 x E2M1 under E4M3, the order is a constant.
template <Order kOrder>
struct Fixed {
  static constexpr bool kMayRefuse = false;
  static constexpr bool kHas2d = kOrder == Order::kTe;
  static constexpr bool kHasWide2d = kHas2d;
  static constexpr int kMost = 16;
  FP4SCOPE_INLINE static int block(const Recipe&) { return 16; }
  FP4SCOPE_INLINE static Nvfp4Rules fix(Nvfp4Rules r) {
    r.options.order = kOrder;
    r.options.int4_candidate = false;
    r.element = kE2M1;
    r.scale = kUE4M3;
    r.element_max = 6.0f;
    r.lut = nullptr;
    if (kOrder == Order::kTe) r.options.ftz = false;
    return r;
  }
};
template <Order kOrder>
struct Static6 : Fixed<kOrder> {
  FP4SCOPE_INLINE static Nvfp4Rules fix(Nvfp4Rules r) {
    r = Fixed<kOrder>::fix(r);
    r.options.select = Select::kStatic6;
    return r;
  }
};
// The adaptive choice with sequential sums.
template <Order kOrder, Select kSelect, Metric kMetric>
struct Adaptive : Fixed<kOrder> {
  FP4SCOPE_INLINE static Nvfp4Rules fix(Nvfp4Rules r) {
    r = Fixed<kOrder>::fix(r);
    r.options.select = kSelect;
    r.options.metric = kMetric;
    r.options.sum = SumOrder::kSeq;
    return r;
  }
};
// Options and geometry at run time; 2-D blocks one at a time.
struct Any {
  static constexpr bool kMayRefuse = true;
  static constexpr bool kHas2d = true;
  static constexpr bool kHasWide2d = false;
  static constexpr int kMost = kNvfp4MostElements;
  FP4SCOPE_INLINE static Nvfp4Rules fix(Nvfp4Rules r) { return r; }
  FP4SCOPE_INLINE static int block(const Recipe& recipe) { return recipe.format.block; }
};

template <class P, int W>
FP4SCOPE_INLINE void note_refusal(QuantizeTask& task, std::int64_t row,
                                  const typename Lane<W>::U& refused) {
  if constexpr (P::kMayRefuse) {
    for (int l = 0; l < W; ++l) {
      if (lane_of<W>(refused, l) != 0) nvfp4_refuse_nan(task, row);
    }
  }
}

template <int W>
FP4SCOPE_INLINE void store_choice(const QuantizeTask& task, std::int64_t row, std::int64_t b,
                                  const Nvfp4Choice<Lane<W>>& c) {
  std::uint8_t* choices = task.choices(row);
  float* errors = task.errors(row);
  for (int l = 0; l < W; ++l) {
    choices[b + l] = static_cast<std::uint8_t>(lane_of<W>(c.is_four, l) & 1u);
    if (errors == nullptr) continue;
    if constexpr (W == 1) {
      errors[2 * b] = c.error4;
      errors[2 * b + 1] = c.error6;
    } else {
      errors[2 * (b + l)] = c.error4[l];
      errors[2 * (b + l) + 1] = c.error6[l];
    }
  }
}
template <int W>
FP4SCOPE_INLINE void store_scales(const QuantizeTask& task, std::int64_t row, std::int64_t b,
                                  const typename Lane<W>::U& scale) {
  std::uint8_t* scales = task.scales(row) + b;
  for (int l = 0; l < W; ++l) scales[l] = static_cast<std::uint8_t>(lane_of<W>(scale, l));
}

// Blocks b .. b+W-1 of one row. `random`: a byte per element of the row, or null.
template <class P, bool kIsAdaptive, int W>
FP4SCOPE_INLINE void panel_1d(QuantizeTask& task, const Nvfp4Rules& rules, const Nvfp4Row& shared,
                              std::int64_t row, std::int64_t b, const std::uint8_t* random) {
  using L = Lane<W>;
  using F = typename L::F;
  using U = typename L::U;
  const int n = P::block(task.recipe);
  constexpr int kMost = P::kMost;
  F in[kMost];
  U codes[kMost];
  U refused{};
  load_panel<W>(task.x(row), task.tile.cols, b, n, in);
  const F bmax = bit_cast<F>(nvfp4_block_amax<L>(in, n));
  if constexpr (kIsAdaptive) {
    Nvfp4Choice<L> c = nvfp4_candidates<L>(rules, shared, bmax);
    nvfp4_choose<L>(rules, shared, n, in, c, codes, refused);
    store_choice<W>(task, row, b, c);
    store_scales<W>(task, row, b, nvfp4_chosen_scale<L>(rules, c));
  } else {
    const Nvfp4Candidate<L> c = nvfp4_candidate<L>(rules, shared, bmax, false);
    const std::uint8_t* bytes = random == nullptr ? nullptr : random + n * b;
    nvfp4_codes<L>(rules, n, c.inverse, in, bytes, codes, refused);
    store_scales<W>(task, row, b, c.scale);
  }
  store_codes<W>(codes, n, task.codes(row) + n * b);
  note_refusal<P, W>(task, row, refused);
}

// The sum over the rows of a 2-D block: a tree whatever `sum` says (spec/nvfp4.md 3.3).
template <class L>
FP4SCOPE_INLINE typename L::F over_rows(const Nvfp4Options& o, typename L::F* errors, int rows) {
  using U = typename L::U;
  const FlushOps<L> op{o.ftz};
  for (int half = rows / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      if (o.select == Select::kAbsmax) {
        const U largest = max_of(bit_cast<U>(errors[i]), bit_cast<U>(errors[i + half]));
        errors[i] = bit_cast<typename L::F>(largest);
      } else {
        errors[i] = op.add(errors[i], errors[i + half]);
      }
    }
  }
  return errors[0];
}

// Blocks b .. b+W-1 of a whole band. Rows beyond the tensor are +0 and take part in the errors.
template <class P, bool kIsAdaptive, int W>
FP4SCOPE_INLINE void panel_2d(QuantizeTask& task, const Nvfp4Rules& rules, const Nvfp4Row& shared,
                              std::int64_t b, const std::uint8_t* const* random) {
  using L = Lane<W>;
  using F = typename L::F;
  using U = typename L::U;
  const int n = P::block(task.recipe);
  constexpr int kMost = P::kMost;
  F in[kMost];
  U codes[kMost];
  U amax{};
  for (std::int64_t i = 0; i < task.rows; ++i) {
    load_panel<W>(task.x(task.row + i), task.tile.cols, b, n, in);
    amax = max_of(amax, nvfp4_block_amax<L>(in, n));
  }
  const F bmax = bit_cast<F>(amax);
  Nvfp4Candidate<L> one{};
  Nvfp4Choice<L> c{};
  if constexpr (kIsAdaptive) {
    U ignored{};  // refused when the codes are written
    c = nvfp4_candidates<L>(rules, shared, bmax);
    F four[kMost], six[kMost];
    for (int i = 0; i < n; ++i) {
      if (i < task.rows) {
        load_panel<W>(task.x(task.row + i), task.tile.cols, b, n, in);
      } else {
        for (int k = 0; k < n; ++k) in[k] = F{};
      }
      four[i] =
          nvfp4_try<L>(rules, shared, n, c.four, rules.options.int4_candidate, in, codes, ignored);
      six[i] = nvfp4_try<L>(rules, shared, n, c.six, false, in, codes, ignored);
    }
    c.error4 = over_rows<L>(rules.options, four, n);
    c.error6 = over_rows<L>(rules.options, six, n);
    nvfp4_decide<L>(c);
    one.scale = nvfp4_chosen_scale<L>(rules, c);
  } else {
    one = nvfp4_candidate<L>(rules, shared, bmax, false);
  }
  for (std::int64_t i = 0; i < task.rows; ++i) {
    const std::int64_t row = task.row + i;
    U refused{};
    load_panel<W>(task.x(row), task.tile.cols, b, n, in);
    if constexpr (kIsAdaptive) {
      nvfp4_chosen_codes<L>(rules, n, in, c, codes, refused);
      store_choice<W>(task, row, b, c);
    } else {
      const std::uint8_t* bytes = random == nullptr ? nullptr : random[i] + n * b;
      nvfp4_codes<L>(rules, n, one.inverse, in, bytes, codes, refused);
    }
    store_scales<W>(task, row, b, one.scale);
    store_codes<W>(codes, n, task.codes(row) + n * b);
    note_refusal<P, W>(task, row, refused);
  }
}

inline Nvfp4Outer outer_of(const QuantizeTask& task, std::int64_t row) {
  const OuterScale32 outer = task.outer_of(row);
  return {outer.amax, outer.g};
}

// Blocks from `first` on, of a row or of a band: full panels, or all one by one.
template <class P, bool kIsAdaptive, int W>
FP4SCOPE_INLINE std::int64_t run_1d(QuantizeTask& task, const Nvfp4Rules& rules, std::int64_t row,
                                    std::int64_t first) {
  const Nvfp4Row shared = nvfp4_row(rules, outer_of(task, row));
  const std::int64_t end =
      W == 1 ? task.out.blocks_per_row : task.tile.cols / P::block(task.recipe);
  std::int64_t b = first;
  for (; b + W <= end; b += W) panel_1d<P, kIsAdaptive, W>(task, rules, shared, row, b, nullptr);
  return b;
}
template <class P, bool kIsAdaptive, int W>
FP4SCOPE_INLINE std::int64_t run_2d(QuantizeTask& task, const Nvfp4Rules& rules,
                                    std::int64_t first) {
  const Nvfp4Row shared = nvfp4_row(rules, outer_of(task, task.row));
  const std::int64_t end =
      W == 1 ? task.out.blocks_per_row : task.tile.cols / P::block(task.recipe);
  std::int64_t b = first;
  for (; b + W <= end; b += W) panel_2d<P, kIsAdaptive, W>(task, rules, shared, b, nullptr);
  return b;
}

// The end of a row and the reference backend: one block at a time, one function for all.
template <class P, bool kIsAdaptive>
[[gnu::noinline]] void one_by_one(QuantizeTask& task, const Nvfp4Rules& given, std::int64_t row,
                                  std::int64_t first) {
  const Nvfp4Rules rules = P::fix(given);
  if constexpr (P::kHas2d) {
    if (task.recipe.is_2d()) {
      run_2d<P, kIsAdaptive, 1>(task, rules, first);
      return;
    }
  }
  run_1d<P, kIsAdaptive, 1>(task, rules, row, first);
}

template <class P, bool kIsAdaptive, int W>
FP4SCOPE_INLINE void quantize_band(QuantizeTask& task) {
  if (nvfp4_refuses_tensor(task)) return;
  const Nvfp4Rules rules = P::fix(nvfp4_rules_of(task));
  if constexpr (P::kHas2d) {
    if (task.recipe.is_2d()) {
      std::int64_t b = 0;
      if constexpr (W > 1 && P::kHasWide2d) b = run_2d<P, kIsAdaptive, W>(task, rules, b);
      if (b < task.out.blocks_per_row) one_by_one<P, kIsAdaptive>(task, rules, task.row, b);
      return;
    }
  }
  for (std::int64_t row = task.row; row < task.row + task.rows; ++row) {
    std::int64_t b = 0;
    if constexpr (W > 1) b = run_1d<P, kIsAdaptive, W>(task, rules, row, b);
    if (b < task.out.blocks_per_row) one_by_one<P, kIsAdaptive>(task, rules, row, b);
  }
}
template <class P, bool kIsAdaptive>
struct Bands {
  template <int W>
  FP4SCOPE_INLINE static void quantize(QuantizeTask& task) {
    quantize_band<P, kIsAdaptive, W>(task);
  }
};
template <class P, bool kIsAdaptive>
QuantizeFn for_isa(Isa isa) {
  return run_quantize_for<Bands<P, kIsAdaptive>>(isa);
}

}  // namespace nvfp4_panels
}  // namespace fp4scope
