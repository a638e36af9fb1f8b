// lane_io.h: rows of elements in memory to lanes and back, private to the CPU kernels: W blocks of
// n elements side by side become n vectors of which lane l is block l. Input is binary32, BF16 or
// binary16 and is widened on the way, exactly. Include it after the pragma that silences -Wpsabi.
#pragma once
#include <cstring>
#include <utility>

#include "formats/lane.h"
#include "formats/widen.h"
#include "sim/cpu_kernels.h"

namespace fp4scope {

template <class V, int... I>
FP4SCOPE_INLINE V shuffled(V a, V b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, I...);
}

// --- transposition ---
// Elements of 32 bits in vectors of W lanes, within 128-bit quarters first (unpack), then whole
// quarters: every step is one instruction of AVX2 or AVX-512.

// Order of lanes for the steps below; `half` selects the upper result.
template <int W, int kStep, int kHalf>
struct StepOrder {
  // kStep 1: 32-bit units, 2: 64-bit units, both within quarters. 4: quarters of 128 bits, even
  // ones then odd ones.
  static constexpr int at(int lane) {
    if constexpr (kStep == 1) {
      const int base = lane / 4 * 4, in = lane % 4;
      return (in % 2) * W + base + kHalf * 2 + in / 2;
    } else if constexpr (kStep == 2) {
      const int base = lane / 4 * 4, in = lane % 4;
      return (in / 2) * W + base + kHalf * 2 + in % 2;
    } else {
      const int quarters = W / 4, quarter = lane / 4;
      const int from = quarter < quarters / 2 ? 0 : W;
      return from + (quarter % (quarters / 2) * 2 + kHalf) * 4 + lane % 4;
    }
  }
};
template <int W, int kStep, int kHalf, class V, int... I>
FP4SCOPE_INLINE V step_with(V a, V b, std::integer_sequence<int, I...>) {
  return shuffled(a, b, std::integer_sequence<int, StepOrder<W, kStep, kHalf>::at(I)...>{});
}
template <int W, int kStep, int kHalf, class V>
FP4SCOPE_INLINE V step(V a, V b) {
  return step_with<W, kStep, kHalf>(a, b, std::make_integer_sequence<int, W>{});
}

// rows[r][c] -> rows[c][r], W x W.
template <int W, class V>
FP4SCOPE_INLINE void transpose(V* rows) {
  static_assert(W == 4 || W == 8 || W == 16);
  V t[W];
  // 4x4 squares inside the quarters: t[4g + c], quarter p, entry i = rows[4g + i][4p + c].
  for (int g = 0; g < W; g += 4) {
    const V lo01 = step<W, 1, 0>(rows[g], rows[g + 1]), hi01 = step<W, 1, 1>(rows[g], rows[g + 1]);
    const V lo23 = step<W, 1, 0>(rows[g + 2], rows[g + 3]);
    const V hi23 = step<W, 1, 1>(rows[g + 2], rows[g + 3]);
    t[g] = step<W, 2, 0>(lo01, lo23);
    t[g + 1] = step<W, 2, 1>(lo01, lo23);
    t[g + 2] = step<W, 2, 0>(hi01, hi23);
    t[g + 3] = step<W, 2, 1>(hi01, hi23);
  }
  if constexpr (W == 4) {
    for (int i = 0; i < W; ++i) rows[i] = t[i];
  } else if constexpr (W == 8) {
    for (int c = 0; c < 4; ++c) {
      rows[c] = step<W, 4, 0>(t[c], t[4 + c]);
      rows[4 + c] = step<W, 4, 1>(t[c], t[4 + c]);
    }
  } else {
    for (int c = 0; c < 4; ++c) {
      // Quarters 0 and 2, then 1 and 3, of groups 0 and 1, and of groups 2 and 3.
      const V even01 = step<W, 4, 0>(t[c], t[4 + c]), odd01 = step<W, 4, 1>(t[c], t[4 + c]);
      const V even23 = step<W, 4, 0>(t[8 + c], t[12 + c]),
              odd23 = step<W, 4, 1>(t[8 + c], t[12 + c]);
      rows[c] = step<W, 4, 0>(even01, even23);
      rows[8 + c] = step<W, 4, 1>(even01, even23);
      rows[4 + c] = step<W, 4, 0>(odd01, odd23);
      rows[12 + c] = step<W, 4, 1>(odd01, odd23);
    }
  }
}

template <class V>
FP4SCOPE_INLINE V load_vector(const void* at) {
  V v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

// --- panels: W blocks of n elements ---

// Bits of the smallest and the largest magnitude of each block.
template <int W>
struct MagnitudeRange {
  typename Lane<W>::U least = ~typename Lane<W>::U{}, most{};
};

// What a kernel takes of its input.
enum class Signs : std::uint8_t {
  kKept,
  kDropped,
  kAny,  // kept or dropped, and the range may leave NaN out
};

#if defined(FP4SCOPE_X86_LANES) && !defined(__clang__)
// Magnitudes from signed numbers in one step. A NaN beside a number is left out.
FP4SCOPE_INLINE Lane<16>::U largest_magnitude(Lane<16>::U a, Lane<16>::F b) {
  asm("vrangeps $0x0b, %2, %1, %0" : "=v"(a) : "v"(a), "vm"(b));
  return a;
}
FP4SCOPE_INLINE Lane<16>::U least_magnitude(Lane<16>::U a, Lane<16>::F b) {
  asm("vrangeps $0x0a, %2, %1, %0" : "=v"(a) : "v"(a), "vm"(b));
  return a;
}
inline constexpr bool kHasMagnitudeRange = true;
#else
inline constexpr bool kHasMagnitudeRange = false;
#endif

struct F32Input {
  using Element = float;
  explicit F32Input(SourceType) {}
  float widened(float x) const { return x; }

  template <int W, int n, Signs kSigns>
  FP4SCOPE_INLINE MagnitudeRange<W> load(const float* x, typename Lane<W>::F* in) const {
    using F = typename Lane<W>::F;
    using U = typename Lane<W>::U;
    static_assert(n % W == 0);
    for (int c = 0; c < n; c += W) {
      F rows[W];
      for (int l = 0; l < W; ++l) rows[l] = load_vector<F>(x + n * l + c);
      transpose<W>(rows);
      for (int i = 0; i < W; ++i) in[c + i] = rows[i];
    }
    MagnitudeRange<W> range;
    if constexpr (kSigns == Signs::kAny && W == 16 && kHasMagnitudeRange) {
      // Steps of 4 cycles: in four chains.
      U most[4] = {}, least[4];
      for (int k = 0; k < 4; ++k) least[k] = U{} + kInfBits;
      for (int i = 0; i < n; ++i) {
        most[i % 4] = largest_magnitude(most[i % 4], in[i]);
        least[i % 4] = least_magnitude(least[i % 4], in[i]);
      }
      range.most = max_of(max_of(most[0], most[1]), max_of(most[2], most[3]));
      range.least = min_of(min_of(least[0], least[1]), min_of(least[2], least[3]));
      return range;
    }
    for (int i = 0; i < n; ++i) {
      const U magnitude = bit_cast<U>(in[i]) & kMagnitudeMask;
      range.most = max_of(range.most, magnitude);
      range.least = min_of(range.least, magnitude);
      if constexpr (kSigns != Signs::kKept) in[i] = bit_cast<F>(magnitude);
    }
    return range;
  }
};

// Maxima and minima of unsigned halves of lanes. GCC 12: as max_of() in formats/lane.h.
template <int W>
FP4SCOPE_INLINE typename Lane<W>::U max_of_halves(typename Lane<W>::U a, typename Lane<W>::U b) {
#if defined(FP4SCOPE_X86_LANES) && !defined(__clang__)
  asm("vpmaxuw %2, %1, %0" : "=v"(a) : "v"(a), "vm"(b));
  return a;
#else
  typedef std::uint16_t H __attribute__((vector_size(4 * W)));
  const H x = bit_cast<H>(a), y = bit_cast<H>(b);
  return bit_cast<typename Lane<W>::U>(x < y ? y : x);
#endif
}
template <int W>
FP4SCOPE_INLINE typename Lane<W>::U min_of_halves(typename Lane<W>::U a, typename Lane<W>::U b) {
#if defined(FP4SCOPE_X86_LANES) && !defined(__clang__)
  asm("vpminuw %2, %1, %0" : "=v"(a) : "v"(a), "vm"(b));
  return a;
#else
  typedef std::uint16_t H __attribute__((vector_size(4 * W)));
  const H x = bit_cast<H>(a), y = bit_cast<H>(b);
  return bit_cast<typename Lane<W>::U>(y < x ? y : x);
#endif
}

// BF16 and binary16. Pairs of elements are transposed as units of 32 bits, with half of the steps,
// and widened afterwards.
class HalfInput {
 public:
  using Element = std::uint16_t;
  explicit HalfInput(SourceType source) : is_bf16_(source == SourceType::kBf16) {}
  float widened(std::uint16_t x) const { return is_bf16_ ? widen_bf16(x) : widen_f16(x); }

  template <int W, int n, Signs kSigns>
  FP4SCOPE_INLINE MagnitudeRange<W> load(const std::uint16_t* x, typename Lane<W>::F* in) const {
    using F = typename Lane<W>::F;
    using U = typename Lane<W>::U;
    U pair[n / 2];
    load_pairs<W, n>(x, pair);
    U least = ~U{}, most{};  // of both halves; the order of magnitudes is that of their words
    for (int p = 0; p < n / 2; ++p) {
      const U words = pair[p] & 0x7fff7fffu;
      most = max_of_halves<W>(most, words);
      least = min_of_halves<W>(least, words);
      if constexpr (kSigns != Signs::kKept) pair[p] = words;
    }
    most = max_of(most >> 16, most & 0xffffu);
    least = min_of(least >> 16, least & 0xffffu);
    if (is_bf16_) {
      for (int p = 0; p < n / 2; ++p) {
        in[2 * p] = bit_cast<F>(pair[p] << 16);
        in[2 * p + 1] = bit_cast<F>(pair[p] & 0xffff0000u);
      }
      return {least << 16, most << 16};
    }
    for (int p = 0; p < n / 2; ++p) {
      in[2 * p] = widen_binary16<Lane<W>>(pair[p] & 0xffffu);
      in[2 * p + 1] = widen_binary16<Lane<W>>(pair[p] >> 16);
    }
    return {bit_cast<U>(widen_binary16<Lane<W>>(least)),
            bit_cast<U>(widen_binary16<Lane<W>>(most))};
  }

 private:
  bool is_bf16_;

  // pair[p], lane l: elements 2p (low half) and 2p + 1 of block l.
  template <int W, int n>
  FP4SCOPE_INLINE static void load_pairs(const std::uint16_t* x, typename Lane<W>::U* pair) {
    using U = typename Lane<W>::U;
    if constexpr (n % (2 * W) == 0) {
      for (int c = 0; c < n / 2; c += W) {
        U rows[W];
        for (int l = 0; l < W; ++l) rows[l] = load_vector<U>(x + n * l + 2 * c);
        transpose<W>(rows);
        for (int i = 0; i < W; ++i) pair[c + i] = rows[i];
      }
    } else {
      // A vector has two blocks: by quarters (2g, pairs 0..3), (2g, 4..7), (2g + 1, 0..3), ...
      static_assert(n == W && W == 16);
      U first[4], second[4];  // pairs 0..3 and 4..7, quarter q of entry j: block 4j + q
      for (int j = 0; j < 4; ++j) {
        const U low = load_vector<U>(x + 4 * n * j), high = load_vector<U>(x + 4 * n * j + 2 * n);
        first[j] = step<W, 4, 0>(low, high);
        second[j] = step<W, 4, 1>(low, high);
      }
      squares(first, pair);
      squares(second, pair + 4);
    }
  }
  // v[j], quarter q, entry p = pair p of block 4j + q -> out[p], lane 4j + q.
  template <class V>
  FP4SCOPE_INLINE static void squares(const V* v, V* out) {
    const V lo01 = step<16, 1, 0>(v[0], v[1]), hi01 = step<16, 1, 1>(v[0], v[1]);
    const V lo23 = step<16, 1, 0>(v[2], v[3]), hi23 = step<16, 1, 1>(v[2], v[3]);
    // Quarter q, entry j of each is block 4j + q.
    out[0] = crossed(step<16, 2, 0>(lo01, lo23), std::make_integer_sequence<int, 16>{});
    out[1] = crossed(step<16, 2, 1>(lo01, lo23), std::make_integer_sequence<int, 16>{});
    out[2] = crossed(step<16, 2, 0>(hi01, hi23), std::make_integer_sequence<int, 16>{});
    out[3] = crossed(step<16, 2, 1>(hi01, hi23), std::make_integer_sequence<int, 16>{});
  }
  template <class V, int... I>
  FP4SCOPE_INLINE static V crossed(V a, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, a, (I % 4 * 4 + I / 4)...);
  }
};

// n vectors -> W blocks of n binary32 elements.
template <int W, int n>
FP4SCOPE_INLINE void store_panel(const typename Lane<W>::F* v, float* out) {
  using F = typename Lane<W>::F;
  for (int c = 0; c < n; c += W) {
    F rows[W];
    for (int i = 0; i < W; ++i) rows[i] = v[c + i];
    transpose<W>(rows);
    for (int l = 0; l < W; ++l) std::memcpy(out + n * l + c, &rows[l], sizeof(F));
  }
}

// A store past the caches; `to` is aligned to a vector. stream_end() makes the stores visible.
template <class V>
FP4SCOPE_INLINE void stream_vector(void* to, const V& v) {
#if defined(__clang__)
  __builtin_nontemporal_store(v, static_cast<V*>(to));
#elif defined(__x86_64__)
  asm volatile("vmovntps %1, %0" : "=m"(*static_cast<V*>(to)) : "v"(v));
#else
  std::memcpy(to, &v, sizeof v);
#endif
}
FP4SCOPE_INLINE void stream_end() {
#if defined(__x86_64__)
  asm volatile("sfence" ::: "memory");
#endif
}

// count + 1 in the lanes of a comparison. Its result is a vector of 0 and -1 but for AVX-512, where
// it is a mask.
template <int W, class M, class U>
FP4SCOPE_INLINE U plus_one_where(const M& mask, const U& count) {
  if constexpr (W == 16) {
    return select(mask, count + 1u, count);
  } else {
    return count - bit_cast<U>(mask);
  }
}

// Whether a bit of any lane is set.
template <int W>
FP4SCOPE_INLINE bool is_any_set(const typename Lane<W>::U& v) {
#if defined(FP4SCOPE_X86_LANES) && !defined(__clang__)
  if constexpr (W == 16) {
    std::uint16_t mask;
    asm("vptestmd %1, %1, %0" : "=Yk"(mask) : "v"(v));
    return mask != 0;
  } else if constexpr (W == 8) {
    bool is_set;
    asm("vptest %1, %1" : "=@ccnz"(is_set) : "x"(v));
    return is_set;
  }
#endif
  typename Lane<W>::U zero{};
  return std::memcmp(&v, &zero, sizeof v) != 0;
}

// All lanes of an integer vector or'ed.
template <int W>
FP4SCOPE_INLINE std::uint32_t or_of_lanes(const typename Lane<W>::U& v) {
  if constexpr (W == 1) {
    return v;
  } else {
    std::uint64_t word[W / 2], all = 0;
    std::memcpy(word, &v, sizeof v);
    for (int i = 0; i < W / 2; ++i) all |= word[i];
    return static_cast<std::uint32_t>(all | all >> 32);
  }
}

}  // namespace fp4scope
