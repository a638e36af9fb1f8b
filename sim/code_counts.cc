// code_counts.cc: see code_counts.h. Four words of nibbles are turned into four planes, one for
// each bit of the codes; the places of a code are an AND of planes, and their number is a
// population count.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "sim/code_counts.h"

#include <bit>
#include <cstring>

#include "sim/cpu_kernels.h"

namespace fp4scope {
namespace {

template <class V>
struct Planes {
  V bit[4];
};
// A place of every plane holds one nibble of the four words; which one does not matter.
template <class V>
FP4SCOPE_INLINE Planes<V> planes_of(const V (&w)[4]) {
  constexpr std::uint64_t kOdd = 0x5555555555555555u, kLowPair = 0x3333333333333333u;
  // Bits 0 and 2 of two words, then bits 1 and 3.
  const V even01 = (w[0] & kOdd) | ((w[1] << 1) & ~kOdd);
  const V odd01 = ((w[0] >> 1) & kOdd) | (w[1] & ~kOdd);
  const V even23 = (w[2] & kOdd) | ((w[3] << 1) & ~kOdd);
  const V odd23 = ((w[2] >> 1) & kOdd) | (w[3] & ~kOdd);
  return {{(even01 & kLowPair) | ((even23 << 2) & ~kLowPair),
           (odd01 & kLowPair) | ((odd23 << 2) & ~kLowPair),
           ((even01 >> 2) & kLowPair) | (even23 & ~kLowPair),
           ((odd01 >> 2) & kLowPair) | (odd23 & ~kLowPair)}};
}
// Adds to counts[c], of the places of V; `count_bits` counts the bits of each of its words.
template <class V, class CountBits>
FP4SCOPE_INLINE void count_planes(const Planes<V>& p, V* counts, const CountBits& count_bits) {
  for (int c = 0; c < 8; ++c) {
    const V places = ((c & 1) != 0 ? p.bit[0] : ~p.bit[0]) & ((c & 2) != 0 ? p.bit[1] : ~p.bit[1]) &
                     ((c & 4) != 0 ? p.bit[2] : ~p.bit[2]);
    counts[c] += count_bits(places & ~p.bit[3]);
    counts[8 + c] += count_bits(places & p.bit[3]);
  }
}

// Whole groups of four words of V; returns the bytes that are done.
template <class V, class CountBits>
FP4SCOPE_INLINE std::size_t count_groups(const std::uint8_t* packed, std::size_t bytes,
                                         std::int64_t* counts, const CountBits& count_bits) {
  V sums[16] = {};
  std::size_t at = 0;
  for (; at + 4 * sizeof(V) <= bytes; at += 4 * sizeof(V)) {
    V words[4];
    std::memcpy(words, packed + at, sizeof words);
    count_planes(planes_of(words), sums, count_bits);
  }
  for (int c = 0; c < 16; ++c) {
    std::uint64_t lanes[sizeof(V) / 8];
    std::memcpy(lanes, &sums[c], sizeof(V));
    for (const std::uint64_t lane : lanes) counts[c] += static_cast<std::int64_t>(lane);
  }
  return at;
}
FP4SCOPE_INLINE std::size_t count_words(const std::uint8_t* packed, std::size_t bytes,
                                        std::int64_t* counts) {
  return count_groups<std::uint64_t>(packed, bytes, counts, [](std::uint64_t v) {
    return static_cast<std::uint64_t>(std::popcount(v));
  });
}

std::size_t count_portable(const std::uint8_t* packed, std::size_t bytes, std::int64_t* counts) {
  return count_words(packed, bytes, counts);
}
using CountFn = std::size_t (*)(const std::uint8_t*, std::size_t, std::int64_t*);

#if defined(__x86_64__)
[[gnu::target(FP4SCOPE_AVX2)]] std::size_t count_avx2(const std::uint8_t* packed, std::size_t bytes,
                                                      std::int64_t* counts) {
  return count_words(packed, bytes, counts);
}
#ifndef __clang__  // clang 14 has no such vectors in a lambda
typedef std::uint64_t Words __attribute__((vector_size(64)));
[[gnu::target(FP4SCOPE_AVX512 ",avx512vpopcntdq")]] std::size_t count_avx512(
    const std::uint8_t* packed, std::size_t bytes, std::int64_t* counts) {
  const std::size_t done = count_groups<Words>(
      packed, bytes, counts, [](const Words& v) __attribute__((always_inline)) {
        Words bits;
        asm("vpopcntq %1, %0" : "=v"(bits) : "v"(v));
        return bits;
      });
  return done + count_words(packed + done, bytes - done, counts);
}
#else
constexpr auto count_avx512 = count_avx2;
#endif
#endif
CountFn count_for(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512 && __builtin_cpu_supports("avx512vpopcntdq")) return count_avx512;
  if (isa != Isa::kReference) return count_avx2;
#else
  (void)isa;
#endif
  return count_portable;
}

void count_with(CountFn count, const std::uint8_t* packed, std::size_t bytes,
                std::int64_t* counts) {
  for (std::size_t at = count(packed, bytes, counts); at < bytes; ++at) {
    ++counts[packed[at] & 15];
    ++counts[packed[at] >> 4];
  }
}

}  // namespace

void count_nibbles(const std::uint8_t* packed, std::size_t bytes, std::int64_t* counts) {
  static const CountFn count = count_for(widest_isa());
  count_with(count, packed, bytes, counts);
}
void count_nibbles(const Backend& backend, const std::uint8_t* packed, std::size_t bytes,
                   std::int64_t* counts) {
  count_with(count_for(isa_of(backend)), packed, bytes, counts);
}

}  // namespace fp4scope
