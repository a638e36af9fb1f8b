// hd.h: the only place that knows whether the including compiler is nvcc.
#pragma once
#include <cstdint>
#ifdef __CUDACC__
#define FP4SCOPE_HD __host__ __device__ __forceinline__
#else
#define FP4SCOPE_HD [[gnu::always_inline]] inline
#endif
#ifdef __FAST_MATH__
#error "fp4scope defines exact bits: build without -ffast-math"
#endif

namespace fp4scope {

// __builtin_bit_cast instead of std::bit_cast: nvcc 13 accepts it in device code without
// --expt-relaxed-constexpr, and it is constexpr for scalars.
template <class To, class From>
FP4SCOPE_HD constexpr To bit_cast(From v) {
  return __builtin_bit_cast(To, v);
}

}  // namespace fp4scope
