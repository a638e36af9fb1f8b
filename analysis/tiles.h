// tiles.h: reading one tile of a tensor, and running over all of them in parallel.
#pragma once
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/io/tensor_source.h"
#include "analysis/tile_grid.h"
#include "sim/backend.h"

namespace fp4scope {

// Which random bits a tensor has under stochastic rounding (Tile::tensor_id): a hash of its name.
std::uint64_t stream_of(std::string_view tensor_name);
// The type that the values of a tensor have before a cast. FP8 values count as binary32: nothing
// rounds to FP8 again.
SourceType source_type(DType dtype);
// Blocks of the recipe cross row ends of this tensor, so that it is seen as one row.
bool crosses_rows(const Recipe& recipe, const TensorInfo& tensor);

// One tile in memory, reused from tile to tile.
struct TileBuffer {
  std::vector<float> f32;
  std::vector<double> f64;  // only for binary64 sources
  Tile tile;
  // With a recipe that has a random Hadamard transform, its result takes the place of the values;
  // pass null for the values themselves.
  void read(const TensorSource& source, const TensorInfo& tensor, const TileSpan& span,
            const Recipe* transform = nullptr);

  // BF16 and binary16 tensors as they are stored, in tile.f16 alone; others as read(). widen() then
  // adds tile.f32, once.
  std::vector<std::uint16_t> f16;
  void read_stored(const TensorSource& source, const TensorInfo& tensor, const TileSpan& span);
  void widen();

 private:
  void place(const TensorInfo& tensor, const TileSpan& span);
};
// Whether read_stored() leaves tensors of this type as they are.
inline bool is_half(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16;
}
// The tile after the transform of the recipe, with its values in `storage`; the tile itself for
// recipes without one.
Tile transformed_tile(const Recipe& recipe, const Tile& tile, std::vector<float>& storage);
// Throws Error(kData) where a row does not hold whole groups of the transform, or where the source
// of the random numbers does not run.
void require_shape(const Recipe& recipe, const TensorInfo& tensor);

// Calls body(tile index, thread) for every tile, in parallel, and returns true; false when `stop`
// was set before all of them ran. The exception of the lowest failing tile is rethrown after the
// parallel region, which it must not leave.
template <class Body>
bool for_each_tile(std::int64_t tiles, int threads, const std::atomic<bool>* stop,
                   const Body& body) {
  std::atomic<std::int64_t> failed{tiles};
  std::atomic<bool> stopped{false};
  std::exception_ptr failure;
  // Threads without a tile would only spin, for longer than a small tensor takes.
  const int workers = static_cast<int>(std::clamp<std::int64_t>(tiles, 1, threads));
#pragma omp parallel for schedule(dynamic, 1) num_threads(workers)
  for (std::int64_t i = 0; i < tiles; ++i) {
    if (stop != nullptr && *stop) stopped = true;
    if (stopped || i > failed) continue;
    try {
      body(i, omp_get_thread_num());
    } catch (...) {
#pragma omp critical(fp4scope_tile_failure)
      if (i < failed) {
        failed = i;
        failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
  return !stopped;
}

// 0 means all cores.
inline int thread_count(int threads) {
  return threads > 0 ? threads : omp_get_num_procs();
}

// XXH3-64 of the stored bytes, one hash per tile of the grid without 2-D blocks and one over these:
// the hash that every report states. Sixteen hexadecimal digits; "" when stopped, or for tensors
// without stored bytes.
std::string source_hash(const TensorSource& source, const TensorInfo& tensor, int threads,
                        const std::atomic<bool>* stop);

// Largest magnitude of a tensor and, when asked for, of each row, as marked_amax_bits(): integer
// maxima, exact and free of order.
struct AmaxResult {
  std::uint32_t tensor = 0;
  std::vector<std::uint32_t> rows;
  bool complete = true;  // false: stopped
};
AmaxResult measure_amax(const TensorSource& source, const TensorInfo& tensor, bool per_row,
                        int threads, const std::atomic<bool>* stop,
                        const Recipe* transform = nullptr);
// The outer scales of a recipe: one, or one per row.
std::vector<OuterScale32> outer_scales(const Backend& backend, const Recipe& recipe,
                                       const AmaxResult& amax);
// Those of the rows of one tile.
std::span<const OuterScale32> outer_of_tile(const std::vector<OuterScale32>& outer,
                                            const Recipe& recipe, const TileSpan& span);

}  // namespace fp4scope
