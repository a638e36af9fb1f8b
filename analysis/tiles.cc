// tiles.cc: see tiles.h.
#include "analysis/tiles.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "formats/amax.h"
#include "formats/widen.h"
#include "sim/amax.h"
#include "sim/error.h"
#include "sim/transforms.h"

namespace fp4scope {

SourceType source_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return SourceType::kBf16;
    case DType::kF16:
      return SourceType::kF16;
    case DType::kF64:
      return SourceType::kF64;
    default:
      return SourceType::kF32;
  }
}

bool crosses_rows(const Recipe& recipe, const TensorInfo& tensor) {
  return recipe.ragged() == Ragged::kFlat && tensor.cols() > 0 &&
         tensor.cols() % recipe.format.block != 0;
}

std::uint64_t stream_of(std::string_view tensor_name) {
  return XXH3_64bits(tensor_name.data(), tensor_name.size());
}

TileSteps tile_steps(const Recipe& recipe) {
  TileSteps steps;
  // Whole bands, of 64 rows or a little more.
  if (recipe.is_2d()) {
    const std::int64_t band = recipe.format.block_rows;
    steps.rows = (std::max<std::int64_t>(64, band) + band - 1) / band * band;
  }
  steps.cols = std::lcm<std::int64_t>(128, recipe.format.block);
  return steps;
}

std::vector<TileSpan> tile_grid(std::int64_t rows, std::int64_t cols, const TileSteps& steps) {
  std::vector<TileSpan> grid;
  if (rows <= 0 || cols <= 0) return grid;
  const std::int64_t step = steps.rows;
  const std::int64_t kTileColumnStep = steps.cols;
  // Short rows are padded to whole blocks, so they count as one column step.
  const std::int64_t padded = (cols + kTileColumnStep - 1) / kTileColumnStep * kTileColumnStep;
  std::int64_t height = kTileElements / padded / step * step;
  std::int64_t width = cols;
  if (height < step) {
    height = step;
    // At least one step, whatever a tile should have.
    const std::int64_t steps_of_tile =
        std::max<std::int64_t>(1, kTileElements / step / kTileColumnStep);
    width = std::min(cols, steps_of_tile * kTileColumnStep);
  }
  for (std::int64_t r = 0; r < rows; r += height) {
    for (std::int64_t c = 0; c < cols; c += width) {
      grid.push_back({r, std::min(height, rows - r), c, std::min(width, cols - c)});
    }
  }
  return grid;
}

void TileBuffer::read(const TensorSource& source, const TensorInfo& tensor, const TileSpan& span,
                      const Recipe* transform) {
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
  place(tensor, span);
  tile.f32 = f32.data();
  tile.f64 = f64.empty() ? nullptr : f64.data();
  if (transform != nullptr && transform->rht.size != 0) {
    apply_rht(*transform, tile, f32.data());
    tile.f64 = nullptr;
  }
}

void TileBuffer::place(const TensorInfo& tensor, const TileSpan& span) {
  tile = Tile{};
  tile.rows = span.rows;
  tile.cols = span.cols;
  tile.stride = span.cols;
  tile.source = source_type(tensor.dtype);
  tile.first_row = span.row;
  tile.first_col = span.col;
  tile.tensor_cols = tensor.cols();
  tile.tensor_id = stream_of(tensor.name);
}

void TileBuffer::read_stored(const TensorSource& source, const TensorInfo& tensor,
                             const TileSpan& span) {
  if (!is_half(tensor.dtype)) {
    read(source, tensor, span);
    return;
  }
  f16.resize(static_cast<std::size_t>(span.elements()));
  source.read_raw(tensor, span.row, span.rows, span.col, span.cols, f16.data());
  place(tensor, span);
  tile.f16 = f16.data();
}

void TileBuffer::widen() {
  if (tile.f32 != nullptr) return;
  f32.resize(f16.size());
  widen_halves(tile.source == SourceType::kBf16, f16.data(), std::ssize(f16), f32.data());
  tile.f32 = f32.data();
}

Tile transformed_tile(const Recipe& recipe, const Tile& tile, std::vector<float>& storage) {
  if (recipe.rht.size == 0) return tile;
  storage.assign(tile.f32, tile.f32 + tile.rows * tile.stride);
  apply_rht(recipe, tile, storage.data());
  Tile out = tile;
  out.f32 = storage.data();
  out.f64 = nullptr;
  return out;
}

void require_shape(const Recipe& recipe, const TensorInfo& tensor) {
  const std::int64_t cols = tensor.cols();
  require_random_shape(recipe, tensor.rows(), cols, source_type(tensor.dtype));
  if (recipe.rht.size == 0 || cols % recipe.rht.size == 0) return;
  throw Error(ErrorKind::kData, "expected rows of a multiple of " +
                                    std::to_string(recipe.rht.size) +
                                    " elements (rht=" + std::to_string(recipe.rht.size) +
                                    "), found " + std::to_string(cols));
}

std::string source_hash(const TensorSource& source, const TensorInfo& tensor, int threads,
                        const std::atomic<bool>* stop) {
  const auto grid = tile_grid(tensor.rows(), tensor.cols(), TileSteps{});
  std::vector<std::uint64_t> hashes(grid.size());
  std::vector<std::vector<unsigned char>> buffers(static_cast<std::size_t>(threads));
  const auto body = [&](std::int64_t i, int thread) {
    const TileSpan& span = grid[static_cast<std::size_t>(i)];
    std::vector<unsigned char>& raw = buffers[static_cast<std::size_t>(thread)];
    raw.resize(static_cast<std::size_t>(span.elements() * dtype_bytes(tensor.dtype)));
    source.read_raw(tensor, span.row, span.rows, span.col, span.cols, raw.data());
    hashes[static_cast<std::size_t>(i)] = XXH3_64bits(raw.data(), raw.size());
  };
  if (!for_each_tile(std::ssize(grid), threads, stop, body)) return "";
  return fmt::format("{:016x}", XXH3_64bits(hashes.data(), hashes.size() * sizeof(hashes[0])));
}

AmaxResult measure_amax(const TensorSource& source, const TensorInfo& tensor, bool per_row,
                        int threads, const std::atomic<bool>* stop, const Recipe* transform) {
  const auto grid = tile_grid(tensor.rows(), tensor.cols(), TileSteps{});
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
    const bool is_stored =
        is_half(tensor.dtype) && (transform == nullptr || transform->rht.size == 0);
    if (is_stored) {
      w.buffer.read_stored(source, tensor, span);
    } else {
      w.buffer.read(source, tensor, span, transform);
    }
    w.maxima.clear();
    const Tile& tile = w.buffer.tile;
    for (std::int64_t r = 0; r < span.rows; ++r) {
      const std::int64_t at = r * tile.stride;
      w.maxima.push_back(is_stored ? vector_amax_bits(tile.f16 + at, span.cols, tile.source)
                                   : vector_amax_bits(tile.f32 + at, span.cols));
    }
#pragma omp critical(fp4scope_amax)
    for (std::int64_t r = 0; r < span.rows; ++r) {
      const std::uint32_t amax = w.maxima[static_cast<std::size_t>(r)];
      result.tensor = merged_amax_bits(result.tensor, amax);
      if (!per_row) continue;
      std::uint32_t& row = result.rows[static_cast<std::size_t>(span.row + r)];
      row = merged_amax_bits(row, amax);
    }
  };
  result.complete = for_each_tile(static_cast<std::int64_t>(grid.size()), threads, stop, body);
  return result;
}

std::vector<OuterScale32> outer_scales(const Backend& backend, const Recipe& recipe,
                                       const AmaxResult& amax) {
  if (!recipe.scales_rows()) return {backend.outer_scale(recipe, amax_of(recipe, amax.tensor))};
  std::vector<OuterScale32> outer;
  outer.reserve(amax.rows.size());
  for (const std::uint32_t bits : amax.rows)
    outer.push_back(backend.outer_scale(recipe, amax_of(recipe, bits)));
  return outer;
}

std::span<const OuterScale32> outer_of_tile(const std::vector<OuterScale32>& outer,
                                            const Recipe& recipe, const TileSpan& span) {
  const std::span<const OuterScale32> all(outer);
  if (!recipe.scales_rows()) return all;
  return all.subspan(static_cast<std::size_t>(span.row), static_cast<std::size_t>(span.rows));
}

}  // namespace fp4scope
