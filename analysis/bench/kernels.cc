// kernels.cc: see work.h.
#include <omp.h>

#include <algorithm>

#include "analysis/analyze.h"
#include "analysis/bench/work.h"
#include "analysis/tiles.h"
#include "formats/amax.h"
#include "formats/minifloat.h"
#include "sim/amax.h"
#include "sim/error.h"
#include "sim/run_tile.h"
#include "sim/statistics.h"

namespace fp4scope::bench {
namespace {

// g = 6 * 448 / 2, as if the largest magnitude were 2.
const char* const kHotRecipes[] = {"nvfp4:scale=given,g=0x44a80000",
                                   "nvfp4:contract=flashinfer,scale=given,g=0x44a80000",
                                   "nvfp4:select=mse,scale=given,g=0x44a80000",
                                   "nvfp4:select=mae,scale=given,g=0x44a80000",
                                   "nvfp4:select=mse,metric=fast,scale=given,g=0x44a80000",
                                   "nvfp4:select=mae,metric=fast,scale=given,g=0x44a80000",
                                   "mxfp4",
                                   "mxfp4:contract=ocp-floor-rne",
                                   "mxfp4:scale-rule=ceil",
                                   "mxfp4:scale-rule=even",
                                   "hif4",
                                   "hif4:contract=amct",
                                   "hif4:contract=a6"};

// Sums of four uniform numbers, near enough to what activations look like, and their BF16 and
// binary16 roundings.
void fill(Buffers& buffers, std::int64_t n) {
  auto* f32 = buffers.f32.as<float>();
  auto* bf16 = buffers.bf16.as<std::uint16_t>();
  auto* f16 = buffers.f16.as<std::uint16_t>();
  const CastPolicy policy{Rounding::kEven, Overflow::kSpecial, {0x7fffu, NanRule::Sign::kDrop}};
#pragma omp parallel for
  for (std::int64_t row = 0; row < n / kCols; ++row) {
    std::uint64_t state = 0x9e3779b97f4a7c15ull * static_cast<std::uint64_t>(row + 1);
    for (std::int64_t i = row * kCols; i < (row + 1) * kCols; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      const std::uint64_t mixed = state ^ (state >> 29);
      float sum = -2.0f;
      for (int k = 0; k < 4; ++k) sum += static_cast<float>(mixed >> (16 * k) & 0xffffu) * 0x1p-16f;
      f32[i] = sum;
      bf16[i] =
          static_cast<std::uint16_t>(bit_cast<std::uint32_t>(round_to_bf16<Lane<1>>(sum)) >> 16);
      f16[i] = static_cast<std::uint16_t>(cast<Lane<1>>(kFP16, policy, sum));
    }
  }
}

enum class Mode { kStatistics, kPacked, kValues, kAll };
constexpr std::pair<Mode, const char*> kModes[] = {{Mode::kStatistics, "stats"},
                                                   {Mode::kPacked, "pack"},
                                                   {Mode::kValues, "fake"},
                                                   {Mode::kAll, "all"}};

// A recipe on a backend.
struct Kernel {
  Recipe recipe;
  const Backend* backend;
  std::vector<OuterScale32> outer;  // for one tile
  Mode mode;
  SourceType input;
};

std::int64_t scale_bytes_of_row(const BlockFormat& format) {
  return (kCols + format.block - 1) / format.block * format.scale_bytes;
}
std::int64_t packed_bytes_of_row(const BlockFormat& format) {
  return (kCols + format.block - 1) / format.block * format.block / 2;
}
bool packs(Mode mode) {
  return mode == Mode::kPacked || mode == Mode::kAll;
}

// Input and output of rows `first` .. of a tensor of kCols columns.
void run_rows(const Kernel& kernel, Buffers& buffers, std::int64_t first, std::int64_t rows,
              Statistics* statistics, TileScratch& scratch) {
  const BlockFormat& format = kernel.recipe.format;
  Tile tile;
  tile.rows = rows;
  tile.cols = tile.stride = kCols;
  tile.source = kernel.input;
  const std::int64_t at = first * kCols;
  if (kernel.input == SourceType::kF32) tile.f32 = buffers.f32.as<float>() + at;
  if (kernel.input != SourceType::kF32) tile.f16 = buffers.half(kernel.input) + at;
  TileOutput out;
  const std::int64_t scale_bytes = scale_bytes_of_row(format);
  if (packs(kernel.mode)) {
    out.packed_stride = packed_bytes_of_row(format);
    out.packed = buffers.packed.data() + first * out.packed_stride;
    out.scales = buffers.scales.data() + first * scale_bytes;
    out.scales_stride = scale_bytes;
  }
  if (kernel.mode == Mode::kValues || kernel.mode == Mode::kAll) {
    out.values = buffers.values.as<float>() + at;
    out.values_stride = kCols;
    out.bypass_caches = true;
  }
  out.statistics = statistics;
  run_tile(*kernel.backend, kernel.recipe, tile, kernel.outer, out, scratch);
}

void run_kernel(const Kernel& kernel, Buffers& buffers, std::int64_t n, int threads) {
  const std::int64_t tiles = n / kCols / kTileRows;
  std::vector<Statistics> of_tile(static_cast<std::size_t>(tiles));
  std::vector<TileScratch> scratch(static_cast<std::size_t>(threads));
  const bool measures = kernel.mode == Mode::kStatistics || kernel.mode == Mode::kAll;
  for_each_tile(tiles, threads, nullptr, [&](std::int64_t t, int thread) {
    run_rows(kernel, buffers, t * kTileRows, kTileRows,
             measures ? &of_tile[static_cast<std::size_t>(t)] : nullptr,
             scratch[static_cast<std::size_t>(thread)]);
  });
  Statistics all;
  for (const Statistics& s : of_tile) all.add(s);
}

double bytes_of(const Kernel& kernel, std::int64_t n) {
  const auto elements = static_cast<double>(n);
  const BlockFormat& format = kernel.recipe.format;
  double bytes = elements * (kernel.input == SourceType::kF32 ? 4 : 2);
  if (packs(kernel.mode)) {
    bytes += elements * (0.5 + static_cast<double>(scale_bytes_of_row(format)) / kCols);
  }
  if (kernel.mode == Mode::kValues || kernel.mode == Mode::kAll) bytes += elements * 4;
  return bytes;
}

void run_amax(const Backend& backend, SourceType input, Buffers& buffers, std::int64_t n,
              bool per_row, int threads) {
  const std::int64_t rows = n / kCols;
  std::vector<std::uint32_t> maxima(static_cast<std::size_t>(rows));
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t at = r * kCols;
    maxima[static_cast<std::size_t>(r)] =
        input == SourceType::kF32
            ? vector_amax_bits(backend, buffers.f32.as<float>() + at, kCols)
            : vector_amax_bits(backend, buffers.half(input) + at, kCols, input);
  }
  if (per_row) return;
  std::uint32_t all = 0;
  for (const std::uint32_t m : maxima) all = merged_amax_bits(all, m);
}

bool wanted(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}
constexpr std::pair<SourceType, const char*> kInputs[] = {
    {SourceType::kF32, "f32"}, {SourceType::kBf16, "bf16"}, {SourceType::kF16, "f16"}};

std::vector<std::string> backends_of(const BenchOptions& options) {
  if (!options.backends.empty()) return options.backends;
  std::vector<std::string> names;
  for (const Backend* backend : cpu_backends()) {
    if (backend->available().ok && backend->name() != "reference") {
      names.emplace_back(backend->name());
    }
  }
  if (names.empty()) names.emplace_back("reference");
  return names;
}

bool is_cpu_backend(const Backend& backend) {
  const auto& all = cpu_backends();
  return std::find(all.begin(), all.end(), &backend) != all.end();
}

void add_maxima(const BenchOptions& options, std::vector<Work>& works) {
  const std::int64_t n = options.elements;
  for (const bool per_row : {false, true}) {
    for (const std::string& name : backends_of(options)) {
      const Backend& backend = choose_backend(name, parse_recipe("nvfp4"));
      if (!is_cpu_backend(backend)) continue;  // the oracle has no pass of its own
      for (const auto& [input, input_name] : kInputs) {
        if (!wanted(options.dtypes, input_name)) continue;
        Work work;
        work.row = {per_row ? "amax of rows" : "amax", input_name, "-",
                    std::string(backend.name())};
        work.row.elements = n;
        work.row.bytes = static_cast<double>(n) * (input == SourceType::kF32 ? 4 : 2);
        work.row.bound = "read";
        work.run = [&backend, n, input = input, per_row](Buffers& buffers, int threads) {
          run_amax(backend, input, buffers, n, per_row, threads);
        };
        works.push_back(std::move(work));
      }
    }
  }
}

void add_recipe(const BenchOptions& options, const std::string& text, std::vector<Work>& works) {
  const std::int64_t n = options.elements;
  const Recipe recipe = parse_recipe(text);
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kUsage, "recipe " + text + ": " + what);
  };
  const bool packs_given =
      options.modes_are_given && (wanted(options.modes, "pack") || wanted(options.modes, "all"));
  if (packs_given && !recipe.packs_nibbles()) {
    refuse("has no packed nibbles; expected --mode stats, fake or both");
  }
  if (recipe.rht.size != 0) refuse("bench does not run the Hadamard transform (rht)");
  if (recipe.ragged() == Ragged::kError && kCols % recipe.format.block != 0) {
    refuse("ragged=error refuses the rows of bench, which have " + std::to_string(kCols) +
           " elements");
  }
  if (kTileRows % recipe.format.block_rows != 0) {
    refuse("bench has bands of " + std::to_string(kTileRows) + " rows, blocks have " +
           std::to_string(recipe.format.block_rows));
  }
  for (const std::string& name : backends_of(options)) {
    const Backend& backend = choose_backend(name, recipe);
    const std::vector<OuterScale32> outer(
        static_cast<std::size_t>(recipe.scales_rows() ? kTileRows : 1),
        backend.outer_scale(recipe, bit_cast<std::uint32_t>(2.0f)));
    for (const auto& [input, input_name] : kInputs) {
      for (const auto& [mode, mode_name] : kModes) {
        if (!wanted(options.dtypes, input_name) || !wanted(options.modes, mode_name)) continue;
        if (packs(mode) && !recipe.packs_nibbles()) continue;
        const Kernel kernel{recipe, &backend, outer, mode, input};
        Work work;
        work.row = {text, input_name, mode_name, std::string(backend.name())};
        work.row.recipe = text;
        work.row.elements = n;
        work.row.bytes = bytes_of(kernel, n);
        work.row.bound = mode == Mode::kStatistics ? "read" : "stream";
        if (packs(mode)) {
          work.packed_bytes = n / kCols * packed_bytes_of_row(recipe.format);
          work.scale_bytes = n / kCols * scale_bytes_of_row(recipe.format);
        }
        work.run = [kernel, n](Buffers& buffers, int threads) {
          run_kernel(kernel, buffers, n, threads);
        };
        works.push_back(std::move(work));
      }
    }
  }
}

}  // namespace

Buffers::Buffers(std::int64_t elements, std::int64_t packed_bytes, std::int64_t scale_bytes)
    : f32(4 * elements),
      bf16(2 * elements),
      f16(2 * elements),
      values(4 * elements),
      packed(packed_bytes),
      scales(scale_bytes) {
  fill(*this, elements);
}

std::vector<Work> kernel_works(const BenchOptions& options) {
  std::vector<Work> works;
  add_maxima(options, works);
  std::vector<std::string> recipes = options.recipes;
  if (recipes.empty()) recipes.assign(std::begin(kHotRecipes), std::end(kHotRecipes));
  for (const std::string& text : recipes) add_recipe(options, text, works);
  return works;
}

}  // namespace fp4scope::bench
