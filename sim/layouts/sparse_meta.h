// sparse_meta.h: structured sparsity as stored values and metadata nibbles (spec/more.md section
// 5). A chunk has four units, of which two are stored: 2:4 elements, 4:8 pairs, or halves of two
// tf32 elements (1:2). nibble = idx0 | idx1 << 2, the places of the stored units in the chunk;
// written are {0,1} 0100, {0,2} 1000, {0,3} 1100, {1,2} 1001, {1,3} 1101, {2,3} 1110 only.
#pragma once
#include <array>

#include "sim/layouts/sparse_mask.h"

namespace fp4scope {

// Chunks with fewer or more than two kept units (spec/more.md 5.2).
enum class SparseFill : std::uint8_t {
  // torch: idx0 = the first kept of units 0 and 1, else 2; idx1 = 2 where unit 2 is kept and idx0
  // is
  // not 2, else 1 where 0 and 1 are kept, else 3. Three or four kept units lose some.
  kTorch,
  // CUTLASS: none: nibble 0000; unit i < 3 alone: {i,3}; unit 3 alone: {0,3}; three or four:
  // refused, the source overruns its array.
  kCutlass
};

struct SparseChunk {
  std::uint8_t nibble;
  // Units in stored order; one that the mask drops is stored as zero.
  std::array<std::uint8_t, 2> units;
};
// `kept`: bit u = unit u. Error(kData) where the fill has no answer.
SparseChunk encode_chunk(SparseFill fill, unsigned kept);

// Nibbles that a reader takes beyond the six.
struct MetaRead {
  bool falling = false;  // meta=tcgen05: 0110, indices 2,1
  bool empty = false;    // fill=cutlass: 0000, nothing kept, both stored units zero
};
// Units of a nibble in stored order, {0,0} for an accepted 0000; Error(kData) for any other nibble.
std::array<std::uint8_t, 2> decode_chunk(MetaRead read, std::uint8_t nibble);

// Chunks of a row; a partial last chunk is stored whole, absent units as not kept.
std::int64_t sparse_chunks(SparsePattern pattern, std::int64_t cols);

// mask and codes [rows, cols] to values [rows, chunks * group/2] in ascending order of place and
// nibbles [rows, chunks], one byte each. Pairs are kept or dropped whole; of two tf32 elements at
// most one is kept (Error(kData) otherwise). Returns how many kept elements the fill lost.
std::int64_t compress_sparse(SparsePattern pattern, SparseFill fill, std::int64_t rows,
                             std::int64_t cols, std::span<const std::uint8_t> codes,
                             std::span<const std::uint8_t> mask, std::span<std::uint8_t> values,
                             std::span<std::uint8_t> nibbles);
// Back to codes [rows, cols], dropped elements as code 0.
void expand_sparse(SparsePattern pattern, MetaRead read, std::int64_t rows, std::int64_t cols,
                   std::span<const std::uint8_t> values, std::span<const std::uint8_t> nibbles,
                   std::span<std::uint8_t> codes);

// The mask of the CUTLASS compressor, which finds the kept units in the data: units with a
// magnitude other than 0 (`magnitude` masks the sign away, 7 for E2M1); -0 alone is dropped, a pair
// is kept with its -0.
void occupied_mask(SparsePattern pattern, std::uint8_t magnitude, std::int64_t rows,
                   std::int64_t cols, std::span<const std::uint8_t> codes,
                   std::span<std::uint8_t> mask);

}  // namespace fp4scope
