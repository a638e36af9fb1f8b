// sweep.h: runs an encoder over binary32 patterns in one lane width and compares every code with a
// list of segments. An encoder is a small struct with `run<L>(value, random_byte)`; its formats and
// roundings are run-time data, so five instantiations cover everything.
#pragma once
#include <cstdint>
#include <cstdio>
#include <vector>

#include "formats/lane.h"

namespace fp4scope::test {

// Lane width and instruction set. The plain ones are compiled for the baseline of the build.
enum class Isa { kLane1, kLane8, kLane16, kLane8Avx2, kLane16Avx512 };
inline const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::kLane1:
      return "Lane<1>";
    case Isa::kLane8:
      return "Lane<8>";
    case Isa::kLane16:
      return "Lane<16>";
    case Isa::kLane8Avx2:
      return "Lane<8> x86-64-v3";
    case Isa::kLane16Avx512:
      return "Lane<16> x86-64-v4";
  }
  return "";
}
// One entry per lane width: the best instruction set this processor has for it.
inline std::vector<Isa> widths() {
  std::vector<Isa> list{Isa::kLane1, Isa::kLane8, Isa::kLane16};
#ifdef __x86_64__
  // Feature names: clang 14 does not know the level names here.
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512cd");
  if (v3) list[1] = Isa::kLane8Avx2;
  if (v4) list[2] = Isa::kLane16Avx512;
#endif
  return list;
}

// Patterns first, first + 1, ... that shall get the code `want`.
struct Segment {
  std::uint32_t first;
  std::uint64_t count;
  std::uint32_t want;
};

namespace detail {

template <class U>
[[gnu::always_inline]] inline std::uint32_t lane_of(const U& v, [[maybe_unused]] int i) {
  if constexpr (sizeof(U) == sizeof(std::uint32_t)) {
    return v;
  } else {
    return v[i];
  }
}

template <class L>
[[gnu::always_inline]] inline typename L::U counting(std::uint32_t first) {
  typename L::U v{};
  if constexpr (L::kWidth == 1) {
    v = first;
  } else {
    for (int i = 0; i < L::kWidth; ++i) v[i] = first + static_cast<std::uint32_t>(i);
  }
  return v;
}

// Number of wrong codes in a segment. The first pass only asks whether there is one.
template <class L, class Encoder>
[[gnu::always_inline]] inline std::uint64_t count_wrong(const Encoder& encoder, Segment s,
                                                        std::uint32_t random_byte) {
  using U = typename L::U;
  using F = typename L::F;
  constexpr std::uint64_t kWidth = L::kWidth;
  const Encoder local = encoder;
  const U want = U{} + s.want;
  const U random = U{} + random_byte;
  const std::uint64_t whole = s.count / kWidth;
  U any{};
  U at = counting<L>(s.first);
  for (std::uint64_t i = 0; i < whole; ++i) {
    any |= local.template run<L>(bit_cast<F>(at), random) ^ want;
    at += static_cast<std::uint32_t>(kWidth);
  }
  std::uint32_t found = 0;
  for (int i = 0; i < L::kWidth; ++i) found |= lane_of(any, i);
  std::uint64_t wrong = 0;
  const std::uint64_t start = found == 0 ? whole : 0;  // nothing wrong: only the tail is left
  at = counting<L>(s.first + static_cast<std::uint32_t>(start * kWidth));
  for (std::uint64_t done = start * kWidth; done < s.count; done += kWidth) {
    const U code = local.template run<L>(bit_cast<F>(at), random);
    for (int i = 0; i < L::kWidth; ++i) {
      if (done + static_cast<std::uint64_t>(i) < s.count && lane_of(code, i) != s.want) ++wrong;
    }
    at += static_cast<std::uint32_t>(kWidth);
  }
  return wrong;
}

// Codes of n patterns; n is a multiple of 16.
template <class L, class Encoder>
[[gnu::always_inline]] inline void encode_all(const Encoder& encoder, const std::uint32_t* in,
                                              std::uint32_t* out, std::size_t n,
                                              std::uint32_t random_byte) {
  using U = typename L::U;
  using F = typename L::F;
  const Encoder local = encoder;
  for (std::size_t i = 0; i < n; i += L::kWidth) {
    U bits;
    __builtin_memcpy(&bits, in + i, sizeof bits);
    const U code = local.template run<L>(bit_cast<F>(bits), U{} + random_byte);
    __builtin_memcpy(out + i, &code, sizeof code);
  }
}

// Two operations on five targets. The attribute sits on these thin wrappers; everything below them
// is inlined.
#define FP4SCOPE_SWEEP_WRAPPERS(SUFFIX, WIDTH, ATTRIBUTE)                                         \
  template <class Encoder>                                                                        \
  ATTRIBUTE std::uint64_t count_wrong_##SUFFIX(const Encoder& e, Segment s, std::uint32_t byte) { \
    return count_wrong<Lane<WIDTH>>(e, s, byte);                                                  \
  }                                                                                               \
  template <class Encoder>                                                                        \
  ATTRIBUTE void encode_all_##SUFFIX(const Encoder& e, const std::uint32_t* in,                   \
                                     std::uint32_t* out, std::size_t n, std::uint32_t byte) {     \
    encode_all<Lane<WIDTH>>(e, in, out, n, byte);                                                 \
  }
FP4SCOPE_SWEEP_WRAPPERS(lane1, 1, )
FP4SCOPE_SWEEP_WRAPPERS(lane8, 8, )
FP4SCOPE_SWEEP_WRAPPERS(lane16, 16, )
#ifdef __x86_64__
FP4SCOPE_SWEEP_WRAPPERS(avx2, 8, __attribute__((target("arch=x86-64-v3"))))
FP4SCOPE_SWEEP_WRAPPERS(avx512, 16, __attribute__((target("arch=x86-64-v4"))))
#endif
#undef FP4SCOPE_SWEEP_WRAPPERS

}  // namespace detail

template <class Encoder>
std::uint64_t count_wrong(Isa isa, const Encoder& e, Segment s, std::uint32_t byte) {
  switch (isa) {
    case Isa::kLane1:
      return detail::count_wrong_lane1(e, s, byte);
    case Isa::kLane8:
      return detail::count_wrong_lane8(e, s, byte);
    case Isa::kLane16:
      return detail::count_wrong_lane16(e, s, byte);
#ifdef __x86_64__
    case Isa::kLane8Avx2:
      return detail::count_wrong_avx2(e, s, byte);
    case Isa::kLane16Avx512:
      return detail::count_wrong_avx512(e, s, byte);
#else
    default:
      break;
#endif
  }
  return detail::count_wrong_lane1(e, s, byte);
}

template <class Encoder>
void encode_all(Isa isa, const Encoder& e, const std::uint32_t* in, std::uint32_t* out,
                std::size_t n, std::uint32_t byte) {
  switch (isa) {
    case Isa::kLane1:
      return detail::encode_all_lane1(e, in, out, n, byte);
    case Isa::kLane8:
      return detail::encode_all_lane8(e, in, out, n, byte);
    case Isa::kLane16:
      return detail::encode_all_lane16(e, in, out, n, byte);
#ifdef __x86_64__
    case Isa::kLane8Avx2:
      return detail::encode_all_avx2(e, in, out, n, byte);
    case Isa::kLane16Avx512:
      return detail::encode_all_avx512(e, in, out, n, byte);
#else
    default:
      break;
#endif
  }
  return detail::encode_all_lane1(e, in, out, n, byte);
}

struct Count {
  std::uint64_t swept = 0;
  std::uint64_t wrong = 0;
  Count& operator+=(const Count& c) {
    swept += c.swept;
    wrong += c.wrong;
    return *this;
  }
};

void report_difference(const char* what, Isa isa, std::uint32_t random_byte, std::uint32_t pattern,
                       std::uint32_t want, std::uint32_t got);

// All patterns of the segments, pieces spread over the threads. Up to `show` differences are
// printed.
template <class Encoder>
Count sweep(const char* what, Isa isa, const Encoder& e, const std::vector<Segment>& segments,
            std::uint32_t byte = 0, int show = 4) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 22;
  std::vector<Segment> pieces;
  for (const Segment& s : segments) {
    for (std::uint64_t done = 0; done < s.count; done += kPiece) {
      pieces.push_back(
          {s.first + static_cast<std::uint32_t>(done), std::min(kPiece, s.count - done), s.want});
    }
  }
  Count total;
  std::vector<std::uint64_t> wrong(pieces.size());
  const auto n = static_cast<std::int64_t>(pieces.size());
#pragma omp parallel for schedule(dynamic, 16)
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    wrong[at] = count_wrong(isa, e, pieces[at], byte);
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    total += {pieces[i].count, wrong[i]};
    if (wrong[i] == 0 || show <= 0) continue;
    std::uint64_t left = wrong[i];
    for (std::uint64_t k = 0; k < pieces[i].count && left > 0 && show > 0; k += 16) {
      std::uint32_t in[16], got[16];
      for (std::uint32_t j = 0; j < 16; ++j) {
        in[j] = pieces[i].first + static_cast<std::uint32_t>(k) + j;
      }
      encode_all(isa, e, in, got, 16, byte);
      for (std::uint32_t j = 0; j < 16 && k + j < pieces[i].count; ++j) {
        if (got[j] == pieces[i].want) continue;
        --left;
        if (show-- > 0) report_difference(what, isa, byte, in[j], pieces[i].want, got[j]);
      }
    }
  }
  return total;
}

// Chosen patterns with their codes; both vectors have the same length, a multiple of 16.
template <class Encoder>
Count compare_patterns(const char* what, Isa isa, const Encoder& e,
                       const std::vector<std::uint32_t>& patterns,
                       const std::vector<std::uint32_t>& want, std::uint32_t byte = 0,
                       int show = 4) {
  std::vector<std::uint32_t> got(patterns.size());
  encode_all(isa, e, patterns.data(), got.data(), patterns.size(), byte);
  Count total{patterns.size(), 0};
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (got[i] == want[i]) continue;
    if (++total.wrong <= static_cast<std::uint64_t>(show)) {
      report_difference(what, isa, byte, patterns[i], want[i], got[i]);
    }
  }
  return total;
}

}  // namespace fp4scope::test
