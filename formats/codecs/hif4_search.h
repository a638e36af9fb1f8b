// hif4_search.h: search=mse of HiF4: scale code and level bits of least squared error. Not
// standard; the definition is at the top of formats/codecs/hif4.h.
#pragma once
#include "formats/codecs/hif4_steps.h"

namespace fp4scope {

template <class L>
struct Hif4Choice {
  typename L::U code;
  typename L::U e8[8];
  typename L::U e16[16];
};

// Squared error of four magnitudes under a scale E * 2^s, s = e8 + e16.
template <class L>
FP4SCOPE_HD constexpr typename L::F hif4_error_of_four(Hif4Options options, MinifloatSpec element,
                                                       const typename L::F* a, typename L::F r,
                                                       typename L::F scale, int s) {
  using F = typename L::F;
  const F decode_scale = scale * pow2(s);
  F error{};
  for (int i = 0; i < 4; ++i) {
    const F n = hif4_scaled<L>(options, a[i], r, F{} + pow2(-s));
    const F v = decode<L>(element, encode<L>(element, options.ties, n)) * decode_scale;
    const F d = v - a[i];
    const F square = d * d;
    error = error + square;
  }
  return error;
}

template <class L>
FP4SCOPE_HD constexpr void hif4_search_mse(Hif4Options options, MinifloatSpec element,
                                           typename L::U greedy, const typename L::F* a,
                                           Hif4Choice<L>& best) {
  using U = typename L::U;
  using F = typename L::F;
  const U one = U{} + 1u;
  F best_error{};
  for (std::uint32_t t = 0; t < 5; ++t) {
    const U code = min_of(max_of(greedy + t, U{} + 2u) - 2u, U{} + 254u);
    const F r = e6m2_reciprocal<L>(code);
    const F scale = decode<L>(kE6M2, code);
    Hif4Choice<L> c{};
    c.code = code;
    F total{};
    for (int j = 0; j < 8; ++j) {
      F of_four[2][3];
      for (int h = 0; h < 2; ++h) {
        for (int s = 0; s < 3; ++s) {
          of_four[h][s] = hif4_error_of_four<L>(options, element, a + 8 * j + 4 * h, r, scale, s);
        }
      }
      F of_eight[2];
      U bits[2][2];
      for (int e8 = 0; e8 < 2; ++e8) {
        F least[2];
        for (int h = 0; h < 2; ++h) {
          const auto is_set = of_four[h][e8 + 1] < of_four[h][e8];
          bits[e8][h] = select(is_set, one, U{});
          least[h] = select(is_set, of_four[h][e8 + 1], of_four[h][e8]);
        }
        of_eight[e8] = least[0] + least[1];
      }
      const auto is_set = of_eight[1] < of_eight[0];
      c.e8[j] = select(is_set, one, U{});
      for (int h = 0; h < 2; ++h) c.e16[2 * j + h] = select(is_set, bits[1][h], bits[0][h]);
      total = total + select(is_set, of_eight[1], of_eight[0]);
    }
    if (t == 0) {
      best = c;
      best_error = total;
      continue;
    }
    const auto is_better = total < best_error;
    best_error = select(is_better, total, best_error);
    best.code = select(is_better, c.code, best.code);
    for (int j = 0; j < 8; ++j) best.e8[j] = select(is_better, c.e8[j], best.e8[j]);
    for (int k = 0; k < 16; ++k) best.e16[k] = select(is_better, c.e16[k], best.e16[k]);
  }
}

}  // namespace fp4scope
