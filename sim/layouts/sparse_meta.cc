// sparse_meta.cc: see sparse_meta.h.
#include "sim/layouts/sparse_meta.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "sim/error.h"
#include "sim/layouts/sizes.h"

namespace fp4scope {
namespace {

// Entries of the planes of one matrix.
struct Planes {
  std::int64_t chunks, elements, values, nibbles;
};
Planes planes_of(SparsePattern pattern, std::int64_t rows, std::int64_t cols) {
  require_shape(rows, cols, "sparse matrix");
  const std::int64_t chunks = sparse_chunks(pattern, cols);
  const std::int64_t nibbles = checked_product(rows, chunks, "metadata");
  return {chunks, checked_product(rows, cols, "sparse matrix"),
          checked_product(nibbles, sparse_group(pattern) / 2, "stored values"), nibbles};
}

// First element of a unit in the chunk, and elements per unit: a tf32 element is two units.
struct UnitElements {
  std::int64_t first, count;
};
UnitElements unit_elements(SparsePattern pattern, std::int64_t unit) {
  if (pattern == SparsePattern::k4of8Pairs) return {2 * unit, 2};
  if (pattern == SparsePattern::k1of2) return {unit / 2, 1};
  return {unit, 1};
}
// Stored units that own bytes: of the two halves of a tf32 element only the first.
int stored_units(SparsePattern pattern) {
  return pattern == SparsePattern::k1of2 ? 1 : 2;
}

// Kept units of a chunk whose row ends after `present` elements.
unsigned kept_units(SparsePattern pattern, const std::uint8_t* mask, std::int64_t present) {
  unsigned kept = 0;
  for (std::int64_t unit = 0; unit < 4; ++unit) {
    const UnitElements e = unit_elements(pattern, unit);
    const std::int64_t last = std::min(present, e.first + e.count);
    std::int64_t ones = 0;
    for (std::int64_t i = e.first; i < last; ++i) ones += mask[i] != 0 ? 1 : 0;
    if (ones == 0) continue;
    if (ones != last - e.first) {
      throw Error(ErrorKind::kData, "a pair of a 4:8 pattern is kept or dropped whole");
    }
    kept |= 1u << unit;
  }
  if (pattern == SparsePattern::k1of2 && kept == 0xfu) {
    throw Error(ErrorKind::kData, "a 1:2 pattern keeps one of two elements");
  }
  return kept;
}

}  // namespace

SparseChunk encode_chunk(SparseFill fill, unsigned kept) {
  const auto chunk = [](unsigned first, unsigned second) {
    return SparseChunk{static_cast<std::uint8_t>(first | second << 2),
                       {static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(second)}};
  };
  const auto has = [&](unsigned unit) { return (kept >> unit & 1u) != 0; };
  if (fill == SparseFill::kTorch) {
    const unsigned first = has(0) ? 0 : has(1) ? 1 : 2;
    const unsigned second = has(2) && first != 2 ? 2 : has(0) && has(1) ? 1 : 3;
    return chunk(first, second);
  }
  const auto lowest = static_cast<unsigned>(std::countr_zero(kept));
  switch (std::popcount(kept)) {
    case 0:
      return chunk(0, 0);
    case 1:
      return lowest < 3 ? chunk(lowest, 3) : chunk(0, 3);
    case 2:
      return chunk(lowest, static_cast<unsigned>(std::bit_width(kept)) - 1u);
    default:
      throw Error(ErrorKind::kData,
                  "fill=cutlass has no answer for a chunk with more than two kept units");
  }
}

std::array<std::uint8_t, 2> decode_chunk(MetaRead read, std::uint8_t nibble) {
  const unsigned first = nibble & 3u, second = nibble >> 2;
  const bool is_accepted = nibble <= 0xf && (first < second || (read.falling && nibble == 6) ||
                                             (read.empty && nibble == 0));
  if (!is_accepted) {
    throw Error(ErrorKind::kData,
                fmt::format("metadata nibble {:04b} is not one of the six legal values", nibble));
  }
  return {static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(second)};
}

std::int64_t sparse_chunks(SparsePattern pattern, std::int64_t cols) {
  return divide_up(cols, sparse_group(pattern));
}

std::int64_t compress_sparse(SparsePattern pattern, SparseFill fill, std::int64_t rows,
                             std::int64_t cols, std::span<const std::uint8_t> codes,
                             std::span<const std::uint8_t> mask, std::span<std::uint8_t> values,
                             std::span<std::uint8_t> nibbles) {
  const Planes planes = planes_of(pattern, rows, cols);
  require_entries(codes.size(), planes.elements, "codes");
  require_entries(mask.size(), planes.elements, "mask");
  require_entries(values.size(), planes.values, "stored values");
  require_entries(nibbles.size(), planes.nibbles, "metadata nibbles");
  const std::int64_t group = sparse_group(pattern);
  std::ranges::fill(values, std::uint8_t{0});
  std::int64_t lost = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < planes.chunks; ++c) {
      const std::int64_t at = row * cols + c * group;
      const std::int64_t present = std::min(group, cols - c * group);
      const unsigned kept = kept_units(pattern, mask.data() + at, present);
      const SparseChunk chunk = encode_chunk(fill, kept);
      const std::int64_t index = row * planes.chunks + c;
      nibbles[static_cast<std::size_t>(index)] = chunk.nibble;
      std::uint8_t* out = values.data() + index * (group / 2);
      for (int s = 0; s < stored_units(pattern); ++s) {
        const UnitElements e = unit_elements(pattern, chunk.units[static_cast<std::size_t>(s)]);
        for (std::int64_t i = e.first; i < e.first + e.count; ++i, ++out) {
          if (i < present && mask[static_cast<std::size_t>(at + i)] != 0) {
            *out = codes[static_cast<std::size_t>(at + i)];
          }
        }
      }
      const unsigned stored = 1u << chunk.units[0] | 1u << chunk.units[1];
      for (std::int64_t unit = 0; unit < 4; ++unit) {
        const UnitElements e = unit_elements(pattern, unit);
        if ((kept & ~stored) >> unit & 1u) lost += std::min(present, e.first + e.count) - e.first;
      }
    }
  }
  return lost;
}

void expand_sparse(SparsePattern pattern, MetaRead read, std::int64_t rows, std::int64_t cols,
                   std::span<const std::uint8_t> values, std::span<const std::uint8_t> nibbles,
                   std::span<std::uint8_t> codes) {
  const Planes planes = planes_of(pattern, rows, cols);
  require_entries(values.size(), planes.values, "stored values");
  require_entries(nibbles.size(), planes.nibbles, "metadata nibbles");
  require_entries(codes.size(), planes.elements, "codes");
  const std::int64_t group = sparse_group(pattern);
  std::ranges::fill(codes, std::uint8_t{0});
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < planes.chunks; ++c) {
      const std::int64_t index = row * planes.chunks + c;
      const std::uint8_t* in = values.data() + index * (group / 2);
      const std::uint8_t nibble = nibbles[static_cast<std::size_t>(index)];
      const std::array<std::uint8_t, 2> units = decode_chunk(read, nibble);
      const std::int64_t present = std::min(group, cols - c * group);
      if (nibble == 0) {
        if (std::any_of(in, in + group / 2, [](std::uint8_t v) { return v != 0; })) {
          throw Error(ErrorKind::kData, "a chunk with metadata 0000 stores values other than 0");
        }
        continue;
      }
      if (pattern == SparsePattern::k1of2 && nibble != 0b0100 && nibble != 0b1110) {
        throw Error(
            ErrorKind::kData,
            fmt::format("metadata nibble {:04b} splits an element of a 1:2 pattern", nibble));
      }
      for (int s = 0; s < stored_units(pattern); ++s) {
        const UnitElements e = unit_elements(pattern, units[static_cast<std::size_t>(s)]);
        for (std::int64_t i = e.first; i < e.first + e.count; ++i, ++in) {
          if (i < present) codes[static_cast<std::size_t>(row * cols + c * group + i)] = *in;
        }
      }
    }
  }
}

void occupied_mask(SparsePattern pattern, std::uint8_t magnitude, std::int64_t rows,
                   std::int64_t cols, std::span<const std::uint8_t> codes,
                   std::span<std::uint8_t> mask) {
  const Planes planes = planes_of(pattern, rows, cols);
  require_entries(codes.size(), planes.elements, "codes");
  require_entries(mask.size(), planes.elements, "mask");
  const std::int64_t unit = pattern == SparsePattern::k4of8Pairs ? 2 : 1;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t first = 0; first < cols; first += unit) {
      const auto at = static_cast<std::size_t>(row * cols + first);
      const auto count = static_cast<std::size_t>(std::min(unit, cols - first));
      const bool is_occupied = std::ranges::any_of(
          codes.subspan(at, count), [&](std::uint8_t code) { return (code & magnitude) != 0; });
      std::ranges::fill(mask.subspan(at, count), std::uint8_t{is_occupied});
    }
  }
}

}  // namespace fp4scope
