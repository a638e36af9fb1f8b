// tiles.cc: see tiles.h.
#include "analysis/tiles.h"

#include <algorithm>

#include "formats/amax.h"

namespace fp4scope {

std::vector<TileSpan> tile_grid(std::int64_t rows, std::int64_t cols, bool two_dimensional) {
  std::vector<TileSpan> grid;
  if (rows <= 0 || cols <= 0) return grid;
  const std::int64_t step = two_dimensional ? kTileRows2d : 1;
  // Short rows are padded to whole blocks, so they count as one column step.
  const std::int64_t padded = (cols + kTileColumnStep - 1) / kTileColumnStep * kTileColumnStep;
  std::int64_t height = kTileElements / padded / step * step;
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

AmaxResult measure_amax(const TensorSource& source, const TensorInfo& tensor, bool per_row,
                        int threads, const std::atomic<bool>* stop) {
  const auto grid = tile_grid(tensor.rows(), tensor.cols(), false);
  AmaxResult result;
  if (per_row) result.rows.resize(static_cast<std::size_t>(tensor.rows()));
  struct Worker {
    TileBuffer buffer;
    std::vector<std::uint32_t> maxima;
  };
  std::vector<Worker> workers(static_cast<std::size_t>(threads));
  const auto body = [&](std::int64_t i, int thread) {
    Worker& w = workers[static_cast<std::size_t>(thread)];
    const TileSpan& span = grid[static_cast<std::size_t>(i)];
    w.buffer.read(source, tensor, span);
    w.maxima.clear();
    for (std::int64_t r = 0; r < span.rows; ++r) {
      const float* x = w.buffer.tile.f32 + r * w.buffer.tile.stride;
      w.maxima.push_back(amax_bits(x, span.cols));
    }
#pragma omp critical(fp4scope_amax)
    for (std::int64_t r = 0; r < span.rows; ++r) {
      const std::uint32_t amax = w.maxima[static_cast<std::size_t>(r)];
      result.tensor = std::max(result.tensor, amax);
      if (!per_row) continue;
      std::uint32_t& row = result.rows[static_cast<std::size_t>(span.row + r)];
      row = std::max(row, amax);
    }
  };
  result.complete = for_each_tile(static_cast<std::int64_t>(grid.size()), threads, stop, body);
  return result;
}

std::vector<OuterScale32> outer_scales(const Backend& backend, const Recipe& recipe,
                                       const AmaxResult& amax) {
  if (!recipe.scales_rows()) return {backend.outer_scale(recipe, amax.tensor)};
  std::vector<OuterScale32> outer;
  outer.reserve(amax.rows.size());
  for (const std::uint32_t bits : amax.rows) outer.push_back(backend.outer_scale(recipe, bits));
  return outer;
}

std::span<const OuterScale32> outer_of_tile(const std::vector<OuterScale32>& outer,
                                            const Recipe& recipe, const TileSpan& span) {
  const std::span<const OuterScale32> all(outer);
  if (!recipe.scales_rows()) return all;
  return all.subspan(static_cast<std::size_t>(span.row), static_cast<std::size_t>(span.rows));
}

}  // namespace fp4scope
