// jobs.h: what host and device compute alike and compare: scalar sweeps as order-free checksums,
// and block codecs byte for byte.
#pragma once
#include <cstdint>
#include <vector>

#include "formats/contracts/hif4.h"
#include "formats/contracts/mx.h"
#include "formats/contracts/nvfp4.h"
#include "formats/minifloat.h"

namespace fp4scope::test {

// One scalar sweep over all 2^32 binary32 patterns, in chunks of 2^24.
struct ScalarJob {
  MinifloatSpec spec;
  Rounding rounding;
  std::uint32_t random_byte;
};
inline constexpr int kChunkBits = 24;
inline constexpr int kChunks = 1 << (32 - kChunkBits);
// Weight of a pattern: a swap or a change of any single code changes the sum.
FP4SCOPE_HD constexpr std::uint64_t weight(std::uint32_t pattern) {
  return (static_cast<std::uint64_t>(pattern) * 0x9e3779b97f4a7c15ull) | 1ull;
}
// Sum over the patterns of a chunk of weight * (code + 1) plus the decoded bits, modulo 2^64.
std::uint64_t host_chunk_sum(const ScalarJob& job, std::uint32_t chunk);

enum class BlockKind { kMx, kMxBinary64, kNvfp4, kHif4 };
struct BlockJob {
  const char* name;
  BlockKind kind;
  MinifloatSpec element;
  MxOptions mx;
  Nvfp4Options nvfp4;
  float g;
  Hif4Options hif4;
  int block() const { return kind == BlockKind::kHif4 ? 64 : kind == BlockKind::kNvfp4 ? 16 : 32; }
};
std::vector<BlockJob> block_jobs();
// Codes (one byte per element) and metadata words of `blocks` blocks.
struct BlockOutput {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint32_t> metadata;
};
BlockOutput host_blocks(const BlockJob& job, const std::vector<float>& x,
                        const std::vector<double>& x64, int blocks);
// Random and hard blocks: nearby exponents, ties, signed zeros, subnormals, NaN, Inf, all from an
// integer generator.
void fill_blocks(int block, int blocks, std::uint64_t seed, std::vector<float>& x,
                 std::vector<double>& x64);

}  // namespace fp4scope::test
