// byte_order.h: elements of big-endian files in the order of the machine.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace fp4scope {

template <std::size_t Bytes>
void swap_elements(unsigned char* data, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::reverse(data + i * static_cast<std::int64_t>(Bytes),
                 data + (i + 1) * static_cast<std::int64_t>(Bytes));
  }
}

// Reverses each of `count` elements of 2, 4, 8 or 16 bytes; others stay as they are.
inline void swap_bytes(unsigned char* data, std::int64_t count, int bytes) {
  if (bytes == 2) swap_elements<2>(data, count);
  if (bytes == 4) swap_elements<4>(data, count);
  if (bytes == 8) swap_elements<8>(data, count);
  if (bytes == 16) swap_elements<16>(data, count);
}

}  // namespace fp4scope
