// meta_layout.cc: see meta_layout.h.
#include "sim/layouts/meta_layout.h"

#include <algorithm>

#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::string_view kWhat = "sparsity metadata";

void require_planes(MetaLayout layout, std::int64_t rows, std::int64_t chunks, std::size_t nibbles,
                    std::size_t stored) {
  require_entries(stored, meta_bytes(layout, rows, chunks), "bytes of sparsity metadata");
  require_entries(nibbles, checked_product(rows, chunks, kWhat), "metadata nibbles");
}

}  // namespace

std::int64_t meta_bytes(MetaLayout layout, std::int64_t rows, std::int64_t chunks) {
  require_shape(rows, chunks, kWhat);
  std::int64_t row_unit = 1, chunk_unit = 1;
  switch (layout) {
    case MetaLayout::kLinear:
      return checked_product(rows, divide_up(chunks, 2), kWhat);
    case MetaLayout::kCutlassSm100F4:
    case MetaLayout::kCutlassSm100F8f6f4:
    case MetaLayout::kCutlassSm100F16:
      return checked_product(round_up(rows, 128), round_up(chunks, 32) / 2, kWhat);
    case MetaLayout::kTorch16:
      row_unit = 32, chunk_unit = 8;
      break;
    case MetaLayout::kTorch8:
      row_unit = 16, chunk_unit = 16;
      break;
    case MetaLayout::kCsltSm90b16:
      row_unit = 64, chunk_unit = 8;
      break;
    case MetaLayout::kCsltSm90b8:
      row_unit = 64, chunk_unit = 16;
      break;
  }
  require_multiple(rows, row_unit, "rows of this metadata layout");
  require_multiple(chunks, chunk_unit, "chunks per row of this metadata layout");
  return checked_product(rows, chunks / 2, kWhat);
}

void store_meta(MetaLayout layout, std::int64_t rows, std::int64_t chunks,
                std::span<const std::uint8_t> nibbles, std::span<std::uint8_t> stored) {
  require_planes(layout, rows, chunks, nibbles.size(), stored.size());
  if (std::ranges::any_of(nibbles, [](std::uint8_t nibble) { return nibble > 0xf; })) {
    throw Error(ErrorKind::kData, "a metadata nibble is above 15");
  }
  std::ranges::fill(stored, std::uint8_t{0});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t u = 0; u < chunks; ++u) {
      const std::int64_t n = meta_nibble(layout, rows, chunks, r, u);
      std::uint8_t& byte = stored[static_cast<std::size_t>(n / 2)];
      byte = static_cast<std::uint8_t>(byte | nibbles[static_cast<std::size_t>(r * chunks + u)]
                                                  << (n % 2 * 4));
    }
  }
}

void load_meta(MetaLayout layout, std::int64_t rows, std::int64_t chunks,
               std::span<const std::uint8_t> stored, std::span<std::uint8_t> nibbles) {
  require_planes(layout, rows, chunks, nibbles.size(), stored.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t u = 0; u < chunks; ++u) {
      const std::int64_t n = meta_nibble(layout, rows, chunks, r, u);
      nibbles[static_cast<std::size_t>(r * chunks + u)] =
          static_cast<std::uint8_t>(stored[static_cast<std::size_t>(n / 2)] >> (n % 2 * 4) & 0xf);
    }
  }
}

}  // namespace fp4scope
