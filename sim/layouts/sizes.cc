// sizes.cc: see sizes.h.
#include "sim/layouts/sizes.h"

#include <fmt/format.h>

#include "sim/error.h"

namespace fp4scope {

void require_shape(std::int64_t rows, std::int64_t cols, std::string_view what) {
  // Sides are rounded up to at most 256 and multiplied by at most 4 bytes before the product.
  constexpr std::int64_t kLongest = INT64_MAX / 1024;
  if (rows >= 0 && cols >= 0 && rows <= kLongest && cols <= kLongest) return;
  throw Error(ErrorKind::kData, fmt::format("{}: [{}, {}] is no usable shape", what, rows, cols));
}

std::int64_t checked_product(std::int64_t a, std::int64_t b, std::string_view what) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  throw Error(ErrorKind::kData, fmt::format("{}: {} times {} does not fit 64 bits", what, a, b));
}

void require_entries(std::size_t got, std::int64_t want, std::string_view what) {
  if (static_cast<std::uint64_t>(want) == got) return;
  throw Error(ErrorKind::kData, fmt::format("{}: expected {} entries, found {}", what, want, got));
}

void require_multiple(std::int64_t n, std::int64_t unit, std::string_view what) {
  if (n % unit == 0) return;
  throw Error(ErrorKind::kData, fmt::format("{}: {} is no multiple of {}", what, n, unit));
}

}  // namespace fp4scope
