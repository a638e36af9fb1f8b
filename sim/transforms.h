// transforms.h: what happens to x before any amax is taken: the random Hadamard transform
// (spec/nvfp4.md section 3.5), and the random bytes of stochastic rounding (spec/scalars.md 2.3 and
// 2.4).
#pragma once
#include <cstdint>
#include <vector>

#include "sim/backend.h"

namespace fp4scope {

// Rows of `tile` transformed in place: `values` holds rows x cols elements with the tile's stride.
// Needs cols (and the tile's first column) to be a multiple of recipe.rht.size; throws Error(kData)
// otherwise. The result is rounded to the source type of the tile. A binary64 source is rounded to
// binary32 first, and so is its result.
void apply_rht(const Recipe& recipe, const Tile& tile, float* values);

// The random byte of each of `count` elements of a row of a tile, from column `col` on. The key is
// {seed low, seed high}; a call gives four words, byte i of a word is bits 8i..8i+7.
//
// sr-stream=index: formats/contracts/common_options.h. Row-major index in the tensor, so tiles,
// threads and devices agree.
//
// sr-stream=te: the row-wise words of the tuned 1D kernel of TransformerEngine (sources:
// quantize_transpose_nvfp4_tuned_1D.cuh, core_nvfp4.cuh get_rbits, curanddx.hpp, ptx.cuh; [R]). A
// thread block of 128 threads has a chunk of 128x128 elements, chunks are numbered along the
// columns first. Thread t of chunk q = chunk_row * ceil(cols/128) + chunk_col draws from
// subsequence t + 128 q: its n-th word is word n%4 of the call with counter {n/4, 0, subsequence
// low, subsequence high}. Stage s = 2 * (y/64) + x/64 has 64x64 elements of the chunk (y, x: place
// in it). In a stage, thread t owns 16 elements of row t/4 (iteration 0) and of row 32 + t/4
// (iteration 1), from column 16 * (t%4) on. It walks their two halves in two waves, upper half
// first when (t%32)/16 is 1, and draws two words a wave, for elements 0..3 and 4..7 of the half;
// element i of the four takes byte i. Per stage these 8 words come first and 8 words of the
// column-wise copy follow, so stage s begins at word 16 s.
// Inferred: the transposed copy is made (without it stages begin at word 8 s), offset 0, the seed
// alone makes the key. Open: equality with the hardware instruction (spec/scalars.md 2.3). The
// kernel takes BF16 tensors whose rows and columns are multiples of 32; others throw Error(kData).
void random_bytes(const Recipe& recipe, const Tile& tile, std::int64_t row, std::int64_t col,
                  std::int64_t count, std::uint8_t* bytes);

// For callers that know the whole tensor: throws Error(kData) where the source of the recipe's
// random bytes does not run. random_bytes() sees no number of rows.
void require_random_shape(const Recipe& recipe, std::int64_t rows, std::int64_t cols,
                          SourceType source);

}  // namespace fp4scope
