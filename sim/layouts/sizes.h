// sizes.h: sizes of layouts in 64 bits. A shape whose product does not fit, or a span of the wrong
// size, is Error(kData) with one sentence; nothing is allocated before.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fp4scope {

constexpr std::int64_t divide_up(std::int64_t n, std::int64_t unit) {
  return n / unit + (n % unit != 0 ? 1 : 0);
}
constexpr std::int64_t round_up(std::int64_t n, std::int64_t unit) {
  return divide_up(n, unit) * unit;
}

// Throws where a side of [rows, cols] is negative or too long to be rounded up.
void require_shape(std::int64_t rows, std::int64_t cols, std::string_view what);
// a * b for sides of a shape; throws where the product does not fit.
std::int64_t checked_product(std::int64_t a, std::int64_t b, std::string_view what);
// Throws unless a span named `what` holds `want` entries.
void require_entries(std::size_t got, std::int64_t want, std::string_view what);
// Throws unless n is a multiple of `unit`: "what: n is no multiple of unit".
void require_multiple(std::int64_t n, std::int64_t unit, std::string_view what);

}  // namespace fp4scope
