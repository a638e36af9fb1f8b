// fp8_options.h: FP8 with binary32 or power-of-two scales per tensor, row or block (keys and
// contracts: spec/more.md section 2).
#pragma once
#include "formats/contracts/common_options.h"

namespace fp4scope {

// One value per row of spec/more.md 2.1.
enum class Fp8Order : std::uint8_t {
  kTe,
  kTeDelayed,  // the amax of the history is given
  kDeepgemm,
  kTilekernels,
  kTritonGroup,
  kTritonGroupDiv,
  kVllmGroup,
  kSglGroup,
  kSglToken,
  kVllmToken,
  kVllmTensor,
  kFbgemmTriton,
  kFbgemmCuda,
  kTorchaoDyn,
  kTorchaoAffine,
  kHfBlock,
  kVerlDsv4,
  kVllmTorchTensor,
  kVllmKv,  // spec/more.md section 6: the scale is given
};
enum class ScaleFmt : std::uint8_t {
  kF32,
  kPow2,  // binary32, a power of two by the contract's rule
  kUe8m0  // the same scale as an E8M0 byte
};
// Every quotient a/b of the contract: one rounding, or fl(a * rcp~(b)).
enum class Div : std::uint8_t { kIeee, kTriton };
// Granularity: elements along K (0: the whole row) and rows (0: all rows) under one scale.
struct Fp8Gran {
  std::uint32_t cols = 128;
  std::uint32_t rows = 1;
  constexpr bool operator==(const Fp8Gran&) const = default;
  FP4SCOPE_HD constexpr bool is_tensor() const { return cols == 0 && rows == 0; }
  FP4SCOPE_HD constexpr bool is_row() const { return cols == 0 && rows == 1; }
};
inline constexpr std::uint32_t kFp8NoBound = 0x7f800000;  // +Inf
struct Fp8Options {
  Fp8Order order = Fp8Order::kTe;
  Fp8Gran gran;
  ScaleFmt scale_fmt = ScaleFmt::kF32;
  ScalarDiv scalar_div = ScalarDiv::kExact;
  Div div = Div::kIeee;
  Rcp rcp = Rcp::kH200;
  DType16 dtype = DType16::kBf16;  // of the input: dt() and the overflow value of te blocks
  bool e5m2 = false;               // elem=e5m2
  Ragged ragged = Ragged::kPad;
  bool has_g = false;  // vllm-kv: the decode scale
  std::uint32_t g_bits = 0;
  std::uint32_t eps_bits = 0;              // te: smallest amax, binary32 bits
  std::uint32_t bound_bits = kFp8NoBound;  // fbgemm: largest amax, binary32 bits
  // te-delayed: the amax of the history, and margin of 448/2^margin.
  bool has_amax = false;
  std::uint32_t amax_bits = 0;
  std::uint32_t margin = 0;
  constexpr bool operator==(const Fp8Options&) const = default;
};

}  // namespace fp4scope
