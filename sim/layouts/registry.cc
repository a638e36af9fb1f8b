// registry.cc: see registry.h. Sources and evidence: spec/layouts.md sections 1, 2, 4 and 5,
// spec/more.md 1.3, 2.3, 5.3 and 6, spec/hif4.md 4.
#include "sim/layouts/registry.h"

namespace fp4scope {
namespace {

constexpr Evidence kVerified = Evidence::kVerified, kRead = Evidence::kRead;

constexpr LayoutInfo kLayouts[] = {
    {"nibbles", "low-first", "byte i/2, low half for even i",
     "torchao, TransformerEngine, FlashInfer, Triton since PR 5197, ONNX, gpt-oss, "
     "compressed-tensors, ModelOpt, fouroversix, torch float4_e2m1fn_x2, HiF4 (PTO, AMCT)",
     kVerified},
    {"nibbles", "high-first", "byte i/2, high half for even i", "older HiF4 layout", kRead},
    {"nibbles", "split8", "byte i/16*8 + i%8, low half for i%16 < 8", "ggml NVFP4", kVerified},
    {"nibbles", "split16", "byte i/32*16 + i%16, low half for i%32 < 16", "ggml MXFP4", kVerified},

    {"layout", "linear", "r*cols + c", "fp4scope, ModelOpt, compressed-tensors, torchao",
     kVerified},
    {"layout", "128x4",
     "((r/128)*ceil(cols/4) + c/4)*512 + (r%32)*16 + ((r%128)/32)*4 + c%4, padding 0",
     "cuBLASLt, CUTLASS, TransformerEngine at GEMM time, FlashInfer, torchao to_blocked, "
     "fouroversix nvfp4 and mxfp4",
     kVerified},
    {"layout", "8x4", "((r/8)*ceil(cols/4) + c/4)*32 + (r%8)*4 + c%4, padding 0",
     "FlashInfer SWIZZLED_8x4", kVerified},
    {"scales", "te-padded", "r*4*ceil(cols/4) + c, rows padded to 128, padding 0",
     "TransformerEngine scale_inv", kRead},
    {"scales", "deepgemm", "((c/4)*4*ceil(rows/4) + r)*4 + c%4: int32 words, M-major",
     "DeepGEMM, vLLM, SGLang UE8M0 on SM100", kRead},
    {"scales", "m-major", "c*4*ceil(rows/4) + r, binary32", "DeepGEMM on SM90", kRead},
    {"scales", "trtllm-page", "(t/4*4 + s/(S/4))*S + (s%(S/4))*4 + t%4", "vLLM NVFP4 KV cache",
     kRead},

    {"carrier", "u32", "E bits 7:0, e8[j] bit 8+j, e16[k] bit 16+k, little endian",
     "PTO-SPEC, CUBE_M32, CANN goldens", kVerified},
    {"carrier", "bytes", "E, e8, e16 low, e16 high; bits=msb reverses bytes 1..3",
     "fp4scope (lsb), AMCT (msb)", kVerified},
    {"carrier", "f32", "the u32 as the bits of a float32", "torch_npu hifloat4_scale", kRead},
    {"carrier", "a6", "((line/16)*G + group)*64 + b/2*32 + (line%16)*2 + b%2",
     "Ascend A6, HIF4_A_ZZ and HIF4_B_NN", kRead},

    {"blocks", "block-mxfp4", "17 bytes: E8M0, 16 nibble bytes split16", "ggml d99724f", kVerified},
    {"blocks", "block-nvfp4", "36 bytes: 4 UE4M3, 32 nibble bytes split8", "ggml d99724f",
     kVerified},

    {"pack", "ct", "word i/8, bits 4*(i%8), code q + 8", "compressed-tensors pack-quantized",
     kVerified},
    {"pack", "dense", "bits i*b of the row, code q + 2^(b-1), b = 1..8",
     "compressed-tensors, newer versions", kRead},
    {"pack", "twos", "byte i/2, low half for even i, code q & 15", "CUTLASS W4A8, rtp-llm", kRead},
    {"pack", "awq", "word n/8, bits 4*[0,4,1,5,2,6,3,7][n%8], code q + z", "AWQ, slime", kVerified},
    {"pack", "gptq", "word k/8, bits 4*(k%8), code q + z; zeros z - 1 (v1) or z (v2)", "GPTQ",
     kRead},

    {"meta-layout", "linear", "r*2*ceil(U/2) + u", "exchange files", kRead},
    {"meta-layout", "torch",
     "words in rows r/g*g + (r%8)*(g/8) + (r%g)/8, g = 32 (int8: 16), 2x2 blocks transposed, "
     "column pairs first",
     "torch SparseSemiStructuredTensor, CUTLASS back end, 16-bit and int8", kVerified},
    {"meta-layout", "cslt-sm90/16",
     "r/64*64U + u/8*512 + (r%64)/16*128 + (r%8)*16 + (u%4)*4 + (u%8)/4*2 + (r%16)/8",
     "cuSPARSELt 0.8.0 on sm_90, 16-bit", kVerified},
    {"meta-layout", "cslt-sm90/8",
     "r/64*64U + u/16*1024 + (r%64)/16*256 + (r%8)*32 + (u%8)/2*8 + (u%16)/8*4 + (r%16)/8*2 + u%2",
     "cuSPARSELt 0.8.0 on sm_90, int8 and e4m3", kVerified},
    {"meta-layout", "cutlass-sm100-f4",
     "element (k/256)*(Mp*256) + (r/128)*32768 + (r%128)*256 + k%256, a nibble per 8",
     "CUTLASS 7107b055", kRead},
    {"meta-layout", "cutlass-sm100-f8f6f4",
     "element (k/128)*(Mp*128) + (r/128)*16384 + (r%128)*128 + k%128, a nibble per 4",
     "CUTLASS 7107b055, also i8", kRead},
    {"meta-layout", "cutlass-sm100-f16",
     "128x128 atoms, strides r 8:128 2:16 8:2048, k 16:1 2:1024 4:32, a nibble per 4",
     "CUTLASS 7107b055", kRead},
};

}  // namespace

std::span<const LayoutInfo> all_layouts() {
  return kLayouts;
}

}  // namespace fp4scope
