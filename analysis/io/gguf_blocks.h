// gguf_blocks.h: decoders of ggml's blocks for MappedSource, bit for bit what dequantize_row_* of
// ggml d99724f returns. Products of an FP16 scale with the small integers of a block are exact in
// binary32; only the sum of Q4_1 and Q5_1 rounds, once, so that builds of ggml with and without
// fused operations agree. FP4 blocks go through sim/layouts/ggml_blocks.h.
#pragma once
#include "analysis/io/mapped_source.h"

namespace fp4scope {

struct GgufCodecs {
  BlockCodec little, big;  // to binary32, of files in either byte order
  BlockCodec codes;        // FP4 only: two codes a byte, element 0 in the low nibble
  BlockCodec scales;       // FP4 only: the scale bytes as stored
};

extern const GgufCodecs kGgufQ4_0, kGgufQ4_1, kGgufQ5_0, kGgufQ5_1, kGgufQ8_0, kGgufQ6K, kGgufMxfp4,
    kGgufNvfp4;

}  // namespace fp4scope
