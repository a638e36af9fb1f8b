// sparse_mask.cc: see sparse_mask.h.
#include "sim/layouts/sparse_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/error.h"
#include "sim/layouts/sizes.h"

namespace fp4scope {
namespace {

// Elements that are kept or dropped together.
constexpr std::int64_t unit_of(SparsePattern pattern) {
  return pattern == SparsePattern::k4of8Pairs ? 2 : 1;
}

void keep_group(SparsePattern pattern, MaskTie tie, const float* key, std::int64_t present,
                std::uint8_t* mask) {
  const std::int64_t unit = unit_of(pattern);
  const std::int64_t units = divide_up(present, unit);
  const std::int64_t kept = sparse_group(pattern) / unit / 2;
  // The square orders like the magnitude and is exact in binary64.
  std::array<double, 4> score{};
  for (std::int64_t i = 0; i < present; ++i) {
    score[static_cast<std::size_t>(i / unit)] += double{key[i]} * double{key[i]};
  }
  std::fill_n(mask, present, std::uint8_t{0});
  for (std::int64_t u = 0; u < units; ++u) {
    std::int64_t better = 0;
    for (std::int64_t v = 0; v < units; ++v) {
      const double mine = score[static_cast<std::size_t>(u)];
      const double other = score[static_cast<std::size_t>(v)];
      better += other > mine || (other == mine && (tie == MaskTie::kLow ? v < u : v > u));
    }
    if (better >= kept) continue;
    for (std::int64_t i = u * unit; i < std::min(present, (u + 1) * unit); ++i) mask[i] = 1;
  }
}

}  // namespace

SparsePattern sparse_pattern_of_kind(std::string_view kind) {
  constexpr std::string_view kTwoOfFour[] = {"f16", "i8", "f8f6f4", "mxf8f6f4"};
  if (std::ranges::find(kTwoOfFour, kind) != std::end(kTwoOfFour)) return SparsePattern::k2of4;
  if (kind == "mxf4" || kind == "mxf4nvf4") return SparsePattern::k4of8Pairs;
  if (kind == "tf32") return SparsePattern::k1of2;
  throw Error(ErrorKind::kUnsupported,
              fmt::format("\"{}\" is no kind of sparse MMA: f16, tf32, i8, f8f6f4, mxf8f6f4, mxf4, "
                          "mxf4nvf4",
                          kind));
}

std::int64_t keep_largest(SparsePattern pattern, MaskTie tie, Ragged ragged, std::int64_t rows,
                          std::int64_t cols, std::span<const float> key,
                          std::span<std::uint8_t> mask) {
  require_shape(rows, cols, "mask");
  const std::int64_t entries = checked_product(rows, cols, "mask");
  require_entries(key.size(), entries, "keys of a mask");
  require_entries(mask.size(), entries, "mask");
  const std::int64_t group = sparse_group(pattern);
  if (ragged == Ragged::kFlat) {
    throw Error(ErrorKind::kUsage, "groups of a sparse pattern never cross a row end");
  }
  if (ragged == Ragged::kError) require_multiple(cols, group, "row of sparse groups");
  const auto bad = std::ranges::find_if(key, [](float k) { return std::isnan(k); });
  if (bad != key.end()) {
    throw Error(ErrorKind::kData,
                fmt::format("element {} is NaN and has no rank in a mask", bad - key.begin()));
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t first = 0; first < cols; first += group) {
      keep_group(pattern, tie, key.data() + row * cols + first, std::min(group, cols - first),
                 mask.data() + row * cols + first);
    }
  }
  return cols % group != 0 ? rows : 0;
}

}  // namespace fp4scope
