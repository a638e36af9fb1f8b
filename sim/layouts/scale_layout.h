// scale_layout.h: where the scale of row r and block column c lies in the buffers of other projects
// (spec/layouts.md section 2, spec/more.md 2.3 and 6). The matrix is [rows, cols], cols =
// ceil(K / block). Padding is written as 0 and never read. Offsets count entries: bytes for
// one-byte scales, 32-bit words for binary32 scales.
#pragma once
#include <span>

#include "formats/contracts/common_options.h"
#include "sim/layouts/sizes.h"

namespace fp4scope {

enum class ScaleOrder : std::uint8_t {
  kLinear,     // fp4scope's own
  k128x4,      // cuBLASLt 1-D block scaling: tiles of 128 rows x 4 columns in 512 bytes
  k8x4,        // tiles of 8 rows x 4 columns in 32 bytes
  kTePadded,   // TransformerEngine storage: linear, [rows up to 128, cols up to 4]
  kDeepGemm,   // UE8M0: 4 columns in one little-endian int32, first in bits 7:0; words M-major
  kMMajor,     // binary32 scales of DeepGEMM on SM90: column-major, rows up to 4
  kTrtllmPage  // KV cache page: groups of 4 tokens x 4 columns transposed
};
constexpr ScaleOrder scale_order(ScaleLayout layout) {
  return layout == ScaleLayout::k128x4 ? ScaleOrder::k128x4
         : layout == ScaleLayout::k8x4 ? ScaleOrder::k8x4
                                       : ScaleOrder::kLinear;
}

// linear       r*cols + c
// 128x4        ((r/128)*ceil(cols/4) + c/4)*512 + (r%32)*16 + ((r%128)/32)*4 + c%4
// 8x4          ((r/8)*ceil(cols/4) + c/4)*32 + (r%8)*4 + c%4
// te-padded    r*(4*ceil(cols/4)) + c
// deepgemm     ((c/4)*(4*ceil(rows/4)) + r)*4 + c%4
// m-major      c*(4*ceil(rows/4)) + r
// trtllm-page  (r/4*4 + c/(cols/4))*cols + (c%(cols/4))*4 + r%4
constexpr std::int64_t scale_offset(ScaleOrder order, std::int64_t rows, std::int64_t cols,
                                    std::int64_t r, std::int64_t c) {
  switch (order) {
    case ScaleOrder::kLinear:
      return r * cols + c;
    case ScaleOrder::k128x4:
      return (r / 128 * divide_up(cols, 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
    case ScaleOrder::k8x4:
      return (r / 8 * divide_up(cols, 4) + c / 4) * 32 + r % 8 * 4 + c % 4;
    case ScaleOrder::kTePadded:
      return r * round_up(cols, 4) + c;
    case ScaleOrder::kDeepGemm:
      return (c / 4 * round_up(rows, 4) + r) * 4 + c % 4;
    case ScaleOrder::kMMajor:
      return c * round_up(rows, 4) + r;
    case ScaleOrder::kTrtllmPage:
      return (r / 4 * 4 + c / (cols / 4)) * cols + c % (cols / 4) * 4 + r % 4;
  }
  return 0;
}

// Entries of the whole buffer, padding included. Error(kData) for a shape that the order does not
// have (trtllm-page: both sides are multiples of 4) or whose size does not fit 64 bits.
std::int64_t scale_buffer_entries(ScaleOrder order, std::int64_t rows, std::int64_t cols);

// linear [rows, cols] to the order and back; `stored` has scale_buffer_entries. T is uint8_t
// (E8M0, E4M3), uint32_t (HiF4 words) or float.
template <class T>
void store_scales(ScaleOrder order, std::int64_t rows, std::int64_t cols, std::span<const T> linear,
                  std::span<T> stored);
template <class T>
void load_scales(ScaleOrder order, std::int64_t rows, std::int64_t cols, std::span<const T> stored,
                 std::span<T> linear);

// Scales of 128-row weight blocks, [ceil(rows/block_rows), cols], once per row: [rows, cols]
// (before DeepGEMM's order, spec/more.md 2.3).
void repeat_scale_rows(std::int64_t block_rows, std::int64_t rows, std::int64_t cols,
                       std::span<const std::uint8_t> blocks, std::span<std::uint8_t> out);

}  // namespace fp4scope
