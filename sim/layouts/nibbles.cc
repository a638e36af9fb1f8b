// nibbles.cc: see nibbles.h. The order is a template argument, so that the place of an element
// folds into the loop.
#include "sim/layouts/nibbles.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/error.h"
#include "sim/layouts/sizes.h"

namespace fp4scope {
namespace {

struct Sizes {
  std::int64_t codes, packed, row_bytes;
};
Sizes sizes_of(Nibbles order, std::int64_t rows, std::int64_t cols) {
  require_shape(rows, cols, "codes");
  const std::int64_t row_bytes = packed_row_bytes(order, cols);
  return {checked_product(rows, cols, "codes"), checked_product(rows, row_bytes, "packed codes"),
          row_bytes};
}

template <Nibbles kOrder>
void pack_row(const std::uint8_t* codes, std::int64_t cols, std::uint8_t* packed) {
  for (std::int64_t i = 0; i < cols; ++i) {
    const NibblePlace place = nibble_place(kOrder, i);
    packed[place.byte] = static_cast<std::uint8_t>(packed[place.byte] | codes[i] << place.shift);
  }
}
template <Nibbles kOrder>
void unpack_row(const std::uint8_t* packed, std::int64_t cols, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < cols; ++i) {
    const NibblePlace place = nibble_place(kOrder, i);
    codes[i] = static_cast<std::uint8_t>(packed[place.byte] >> place.shift & 0xf);
  }
}

// Calls f.template operator()<order>().
template <class F>
void with_order(Nibbles order, F&& f) {
  switch (order) {
    case Nibbles::kLowFirst:
      return f.template operator()<Nibbles::kLowFirst>();
    case Nibbles::kHighFirst:
      return f.template operator()<Nibbles::kHighFirst>();
    case Nibbles::kSplit8:
      return f.template operator()<Nibbles::kSplit8>();
    case Nibbles::kSplit16:
      return f.template operator()<Nibbles::kSplit16>();
  }
}

}  // namespace

std::int64_t packed_row_bytes(Nibbles order, std::int64_t cols) {
  return round_up(cols, nibble_unit(order)) / 2;
}

void pack_nibbles(Nibbles order, std::int64_t rows, std::int64_t cols,
                  std::span<const std::uint8_t> codes, std::span<std::uint8_t> packed) {
  const Sizes sizes = sizes_of(order, rows, cols);
  require_entries(codes.size(), sizes.codes, "codes");
  require_entries(packed.size(), sizes.packed, "packed codes");
  const auto wide = std::ranges::find_if(codes, [](std::uint8_t code) { return code > 0xf; });
  if (wide != codes.end()) {
    throw Error(ErrorKind::kData, fmt::format("code {:#x} of element {} does not fit four bits",
                                              *wide, wide - codes.begin()));
  }
  std::ranges::fill(packed, std::uint8_t{0});
  with_order(order, [&]<Nibbles kOrder>() {
    for (std::int64_t row = 0; row < rows; ++row) {
      pack_row<kOrder>(codes.data() + row * cols, cols, packed.data() + row * sizes.row_bytes);
    }
  });
}

void unpack_nibbles(Nibbles order, std::int64_t rows, std::int64_t cols,
                    std::span<const std::uint8_t> packed, std::span<std::uint8_t> codes) {
  const Sizes sizes = sizes_of(order, rows, cols);
  require_entries(packed.size(), sizes.packed, "packed codes");
  require_entries(codes.size(), sizes.codes, "codes");
  with_order(order, [&]<Nibbles kOrder>() {
    for (std::int64_t row = 0; row < rows; ++row) {
      unpack_row<kOrder>(packed.data() + row * sizes.row_bytes, cols, codes.data() + row * cols);
    }
  });
}

}  // namespace fp4scope
