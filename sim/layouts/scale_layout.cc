// scale_layout.cc: see scale_layout.h.
#include "sim/layouts/scale_layout.h"

#include <algorithm>

#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::string_view kWhat = "scales";

std::int64_t linear_entries(std::int64_t rows, std::int64_t cols) {
  require_shape(rows, cols, kWhat);
  return checked_product(rows, cols, kWhat);
}

}  // namespace

std::int64_t scale_buffer_entries(ScaleOrder order, std::int64_t rows, std::int64_t cols) {
  require_shape(rows, cols, kWhat);
  switch (order) {
    case ScaleOrder::kLinear:
      return checked_product(rows, cols, kWhat);
    case ScaleOrder::k128x4:
    case ScaleOrder::kTePadded:
      return checked_product(round_up(rows, 128), round_up(cols, 4), kWhat);
    case ScaleOrder::k8x4:
      return checked_product(round_up(rows, 8), round_up(cols, 4), kWhat);
    case ScaleOrder::kDeepGemm:
      return checked_product(round_up(rows, 4), round_up(cols, 4), kWhat);
    case ScaleOrder::kMMajor:
      return checked_product(round_up(rows, 4), cols, kWhat);
    case ScaleOrder::kTrtllmPage:
      require_multiple(rows, 4, "tokens of a trtllm-page");
      require_multiple(cols, 4, "scale columns of a trtllm-page");
      return checked_product(rows, cols, kWhat);
  }
  return 0;
}

template <class T>
void store_scales(ScaleOrder order, std::int64_t rows, std::int64_t cols, std::span<const T> linear,
                  std::span<T> stored) {
  require_entries(linear.size(), linear_entries(rows, cols), "linear scales");
  require_entries(stored.size(), scale_buffer_entries(order, rows, cols), "stored scales");
  std::ranges::fill(stored, T{});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      stored[static_cast<std::size_t>(scale_offset(order, rows, cols, r, c))] =
          linear[static_cast<std::size_t>(r * cols + c)];
    }
  }
}

template <class T>
void load_scales(ScaleOrder order, std::int64_t rows, std::int64_t cols, std::span<const T> stored,
                 std::span<T> linear) {
  require_entries(linear.size(), linear_entries(rows, cols), "linear scales");
  require_entries(stored.size(), scale_buffer_entries(order, rows, cols), "stored scales");
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      linear[static_cast<std::size_t>(r * cols + c)] =
          stored[static_cast<std::size_t>(scale_offset(order, rows, cols, r, c))];
    }
  }
}

#define FP4SCOPE_SCALES(T)                                                                  \
  template void store_scales<T>(ScaleOrder, std::int64_t, std::int64_t, std::span<const T>, \
                                std::span<T>);                                              \
  template void load_scales<T>(ScaleOrder, std::int64_t, std::int64_t, std::span<const T>,  \
                               std::span<T>);
FP4SCOPE_SCALES(std::uint8_t)
FP4SCOPE_SCALES(std::uint32_t)
FP4SCOPE_SCALES(float)
#undef FP4SCOPE_SCALES

void repeat_scale_rows(std::int64_t block_rows, std::int64_t rows, std::int64_t cols,
                       std::span<const std::uint8_t> blocks, std::span<std::uint8_t> out) {
  if (block_rows < 1) throw Error(ErrorKind::kUsage, "a scale is shared by at least one row");
  const std::int64_t entries = linear_entries(rows, cols);
  require_entries(blocks.size(), checked_product(divide_up(rows, block_rows), cols, kWhat),
                  "scales of row blocks");
  require_entries(out.size(), entries, "scales of rows");
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(blocks.data() + r / block_rows * cols, cols, out.data() + r * cols);
  }
}

}  // namespace fp4scope
