// cpu_amax.cc: see amax.h. The same loop for every width; what NaN does is left to the text of
// formats/amax.h, which runs where there is one.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "formats/amax.h"
#include "sim/amax.h"
#include "sim/cpu_kernels.h"
#include "sim/lane_io.h"

namespace fp4scope {
namespace {

// Lines that loads run ahead by, as in sim/fused.h.
constexpr std::int64_t kAheadBytes = 2048;

template <int W>
FP4SCOPE_INLINE std::uint32_t largest_lane(const typename Lane<W>::U& v) {
  std::uint32_t lanes[W], largest = 0;
  std::memcpy(lanes, &v, sizeof v);
  for (const std::uint32_t lane : lanes) largest = std::max(largest, lane);
  return largest;
}

// Largest of the magnitudes as integers, NaN among them. Four maxima, so that no load waits for
// one.
template <int W>
FP4SCOPE_INLINE std::uint32_t largest_magnitude(const float* x, std::int64_t count) {
  using U = typename Lane<W>::U;
  U largest[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * W <= count; i += 4 * W) {
    const auto ahead = reinterpret_cast<std::uintptr_t>(x + i) + kAheadBytes;
    for (std::uintptr_t k = 0; k < 16 * W; k += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(ahead + k));
    }
    for (int k = 0; k < 4; ++k) {
      largest[k] = max_of(largest[k], load_vector<U>(x + i + k * W) & kMagnitudeMask);
    }
  }
  std::uint32_t all =
      largest_lane<W>(max_of(max_of(largest[0], largest[1]), max_of(largest[2], largest[3])));
  for (; i < count; ++i) all = std::max(all, bit_cast<std::uint32_t>(x[i]) & kMagnitudeMask);
  return all;
}
// Of 16-bit words without their sign.
template <int W>
FP4SCOPE_INLINE std::uint32_t largest_magnitude(const std::uint16_t* x, std::int64_t count) {
  using U = typename Lane<W>::U;
  U upper[4] = {}, lower[4] = {};
  std::int64_t i = 0;
  for (; i + 8 * W <= count; i += 8 * W) {
    const auto ahead = reinterpret_cast<std::uintptr_t>(x + i) + kAheadBytes;
    for (std::uintptr_t k = 0; k < 16 * W; k += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(ahead + k));
    }
    for (int k = 0; k < 4; ++k) {
      // Whole words: what is below the upper half does not change which one is largest.
      const U pair = load_vector<U>(x + i + 2 * k * W);
      upper[k] = max_of(upper[k], pair & kMagnitudeMask);
      lower[k] = max_of(lower[k], pair & 0x7fffu);
    }
  }
  const U up = max_of(max_of(upper[0], upper[1]), max_of(upper[2], upper[3]));
  const U low = max_of(max_of(lower[0], lower[1]), max_of(lower[2], lower[3]));
  std::uint32_t all = largest_lane<W>(max_of(up >> 16, low));
  for (; i < count; ++i) all = std::max(all, x[i] & 0x7fffu);
  return all;
}

struct LargestOp {
  template <int W, class X>
  FP4SCOPE_INLINE static std::uint32_t run(const X* x, std::int64_t count) {
    return largest_magnitude<W>(x, count);
  }
};
template <class X>
std::uint32_t largest(Isa isa, const X* x, std::int64_t count) {
  return run_for<LargestOp, std::uint32_t, const X*, std::int64_t>(isa)(x, count);
}

std::uint32_t amax_with(Isa isa, const float* x, std::int64_t count) {
  const std::uint32_t all = largest(isa, x, count);
  return all <= kInfBits ? all : marked_amax_bits(x, count);
}
std::uint32_t amax_with(Isa isa, const std::uint16_t* x, std::int64_t count, SourceType source) {
  const HalfInput input(source);
  const std::uint32_t infinity = source == SourceType::kBf16 ? 0x7f80u : 0x7c00u;
  const auto widened = [&](std::uint32_t word) {
    return bit_cast<std::uint32_t>(input.widened(static_cast<std::uint16_t>(word)));
  };
  const std::uint32_t all = largest(isa, x, count);
  if (all <= infinity) return widened(all);
  std::uint32_t amax = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = x[i] & 0x7fffu;
    if (magnitude <= infinity) amax = std::max(amax, magnitude);
  }
  return widened(amax) | kSignBit;
}

}  // namespace

std::uint32_t vector_amax_bits(const float* x, std::int64_t count) {
  return amax_with(widest_isa(), x, count);
}
std::uint32_t vector_amax_bits(const std::uint16_t* x, std::int64_t count, SourceType source) {
  return amax_with(widest_isa(), x, count, source);
}
std::uint32_t vector_amax_bits(const Backend& backend, const float* x, std::int64_t count) {
  return amax_with(isa_of(backend), x, count);
}
std::uint32_t vector_amax_bits(const Backend& backend, const std::uint16_t* x, std::int64_t count,
                               SourceType source) {
  return amax_with(isa_of(backend), x, count, source);
}

}  // namespace fp4scope
