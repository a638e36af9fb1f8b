// random_bits.cc: see random_bits.h. Many counters at once in the lanes of one Philox; the widest
// lanes that this processor runs.
#include "analysis/random_bits.h"

#include <cstring>

#include "formats/philox.h"

namespace fp4scope {
namespace {

struct Stream {
  StreamKey key;
  std::uint32_t purpose;
};

template <int W>
[[gnu::always_inline]] inline std::uint32_t lane_of(const typename Lane<W>::U& v,
                                                    [[maybe_unused]] int lane) {
  if constexpr (W == 1) {
    return v;
  } else {
    return v[lane];
  }
}

// Both halves of W consecutive counters from `pair` on.
template <int W>
[[gnu::always_inline]] inline void pairs(const Stream& stream, std::uint64_t pair,
                                         std::uint64_t* out) {
  using U = typename Lane<W>::U;
  const auto low = static_cast<std::uint32_t>(pair), high = static_cast<std::uint32_t>(pair >> 32);
  // Through memory: GCC 12 takes U{} + number for uninitialised here.
  std::uint32_t lanes[6][W];
  for (int l = 0; l < W; ++l) {
    lanes[0][l] = low + static_cast<std::uint32_t>(l);
    lanes[1][l] = high + (lanes[0][l] < low ? 1u : 0u);
    lanes[2][l] = stream.key.tensor;
    lanes[3][l] = stream.purpose;
    lanes[4][l] = static_cast<std::uint32_t>(stream.key.seed);
    lanes[5][l] = static_cast<std::uint32_t>(stream.key.seed >> 32);
  }
  U counter[4], key[2];
  for (int i = 0; i < 4; ++i) std::memcpy(&counter[i], lanes[i], sizeof(U));
  for (int i = 0; i < 2; ++i) std::memcpy(&key[i], lanes[4 + i], sizeof(U));
  U words[4];
  philox4x32_10<Lane<W>>(counter, key, words);
  for (int l = 0; l < W; ++l) {
    out[2 * l] = std::uint64_t{lane_of<W>(words[1], l)} << 32 | lane_of<W>(words[0], l);
    out[2 * l + 1] = std::uint64_t{lane_of<W>(words[3], l)} << 32 | lane_of<W>(words[2], l);
  }
}

// `count` whole pairs.
template <int W>
[[gnu::always_inline]] inline void fill(const Stream& stream, std::uint64_t pair, std::size_t count,
                                        std::uint64_t* out) {
  std::size_t i = 0;
  for (; i + W <= count; i += W) pairs<W>(stream, pair + i, out + 2 * i);
  for (; i < count; ++i) pairs<1>(stream, pair + i, out + 2 * i);
}

using Fill = void (*)(const Stream&, std::uint64_t, std::size_t, std::uint64_t*);
void fill_baseline(const Stream& s, std::uint64_t pair, std::size_t count, std::uint64_t* out) {
  fill<4>(s, pair, count, out);
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] void fill_avx2(const Stream& s, std::uint64_t pair, std::size_t count,
                                       std::uint64_t* out) {
  fill<8>(s, pair, count, out);
}
[[gnu::target("avx512f,avx512dq,avx512bw,avx512vl")]] void fill_avx512(const Stream& s,
                                                                       std::uint64_t pair,
                                                                       std::size_t count,
                                                                       std::uint64_t* out) {
  fill<16>(s, pair, count, out);
}

Fill choose_fill() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return fill_avx512;
  }
  return __builtin_cpu_supports("avx2") ? fill_avx2 : fill_baseline;
}
#else
Fill choose_fill() {
  return fill_baseline;
}
#endif

}  // namespace

void random_bits(StreamKey key, std::uint32_t purpose, std::uint64_t first,
                 std::span<std::uint64_t> out) {
  static const Fill fill_pairs = choose_fill();
  const Stream stream{key, purpose};
  std::uint64_t both[2];
  if (first % 2 == 1 && !out.empty()) {
    pairs<1>(stream, first / 2, both);
    out[0] = both[1];
    out = out.subspan(1);
    ++first;
  }
  fill_pairs(stream, first / 2, out.size() / 2, out.data());
  if (out.size() % 2 == 1) {
    pairs<1>(stream, first / 2 + out.size() / 2, both);
    out.back() = both[0];
  }
}

}  // namespace fp4scope
