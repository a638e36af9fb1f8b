// allocations.h: counts what a program allocates, by replacing operator new: nothing may be
// allocated because a header says so. To be included by one source of a program.
#pragma once
#include <atomic>
#include <cstdlib>
#include <new>

namespace fp4scope::test {

// Since the last reset: the largest allocation and the sum of all, freed or not.
inline std::atomic<std::size_t> largest_allocation = 0, sum_of_allocations = 0;

inline void reset_allocations() {
  largest_allocation = 0;
  sum_of_allocations = 0;
}

}  // namespace fp4scope::test

// Not inlined: the compiler would see free() on memory from new and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  using namespace fp4scope::test;
  std::size_t largest = largest_allocation;
  while (bytes > largest && !largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
  sum_of_allocations += bytes;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
