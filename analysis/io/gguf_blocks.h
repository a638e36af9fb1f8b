// gguf_blocks.h: decoders of ggml's blocks for MappedSource, bit for bit what dequantize_row_* of
// ggml d99724f returns: every value is one binary32 product, a product and a sum (Q4_1, Q5_1) or a
// product of three from the left (Q6_K), each operation rounded by itself. Builds of ggml that fuse
// product and sum differ in the last bit. FP4 blocks go through sim/layouts/ggml_blocks.h.
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
