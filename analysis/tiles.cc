// tiles.cc: see tiles.h.
#include "analysis/tiles.h"

#include <algorithm>

#include "formats/lane.h"

namespace fp4scope {

std::vector<TileSpan> tile_grid(std::int64_t rows, std::int64_t cols, bool two_dimensional) {
  std::vector<TileSpan> grid;
  if (rows <= 0 || cols <= 0) return grid;
  const std::int64_t step = two_dimensional ? kTileRows2d : 1;
  std::int64_t height = kTileElements / cols / step * step;
  std::int64_t width = cols;
  if (height < step) {
    height = step;
    width = std::min(cols, kTileElements / step / kTileColumnStep * kTileColumnStep);
  }
  for (std::int64_t r = 0; r < rows; r += height) {
    for (std::int64_t c = 0; c < cols; c += width) {
      grid.push_back({r, std::min(height, rows - r), c, std::min(width, cols - c)});
    }
  }
  return grid;
}

void TileBuffer::read(const TensorSource& source, const TensorInfo& tensor, const TileSpan& span) {
  const auto n = static_cast<std::size_t>(span.elements());
  f32.resize(n);
  f64.clear();
  if (tensor.dtype == DType::kF64) {
    f64.resize(n);
    source.read_f64(tensor, span.row, span.rows, span.col, span.cols, f64.data());
    // Rounded once to nearest even (spec/scalars.md section 7); the original stays beside it.
    std::transform(f64.begin(), f64.end(), f32.begin(),
                   [](double v) { return static_cast<float>(v); });
  } else {
    source.read_f32(tensor, span.row, span.rows, span.col, span.cols, f32.data());
  }
  tile.f32 = f32.data();
  tile.f64 = f64.empty() ? nullptr : f64.data();
  tile.rows = span.rows;
  tile.cols = span.cols;
  tile.stride = span.cols;
}

std::uint32_t amax_bits(const float* x, std::int64_t n) {
  std::uint32_t amax = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t mag = bit_cast<std::uint32_t>(x[i]) & kMagnitudeMask;
    amax = std::max(amax, mag > kInfBits ? 0u : mag);
  }
  return amax;
}

}  // namespace fp4scope
