// nvfp4_options.h: NVFP4 and its siblings if4 and nvint4 (keys: spec/nvfp4.md section 1).
#pragma once
#include "formats/contracts/common_options.h"

namespace fp4scope {

// The order of operations of a stack: second-level scale, block scale, inverse, zero rules, element
// cast and decode. One value per row of spec/nvfp4.md section 2 and of spec/more.md section 4.
enum class Nvfp4Order : std::uint8_t {
  kTe,
  kTeFast,
  kFlashinfer,
  kFlashinferFast,
  kTrtllm,
  kVllm,
  kFouroversix,
  kFouroversixCuda,
  kModelopt,
  kModeloptStatic,  // export with a scale relative to the tensor maximum
  kCompressedTensors,
  kTorchao,
  kMlxMetal,  // spec/more.md 4.1
  kMlxCuda,
  kMlxCpu,
  kOnednn,        // spec/more.md 4.2, dynamic_fp
  kMslk,          // spec/more.md 4.3
  kMslkE8m0,      // the same with use_e8m0_scale: powers of two in E4M3
  kFlashinferKv,  // spec/more.md 6, nvfp4_kv_quant
};
enum class OuterScale : std::uint8_t {
  kTensor,  // g from the tensor amax
  kRow,     // g from the amax of each row
  kNone,    // g = 1
  kGiven    // g is part of the recipe
};
// How a tensor-level g is derived (spec/nvfp4.md 3.1); 6M as the contract has it.
enum class GRule : std::uint8_t { kDiv, kRcpMul, kInvDiv, kInvMul, kDivUnguarded };
enum class BlockShape : std::uint8_t { k1d, k2d };  // 1xB, or BxB with the byte on B rows
enum class Select : std::uint8_t {
  kStatic6,  // the block maximum is mapped to 6 (nvint4: 7)
  kStatic4,  // to 4
  kMse,      // the candidate with the smaller error; ties and NaN take map-to-6
  kMae,
  kAbsmax
};
enum class Metric : std::uint8_t { kExact, kFast };  // fast: in FP16 units of code * scale
enum class Score : std::uint8_t { kAmax, kDecode };  // exact metric: times amax/(6M), or times 1/g
enum class SumOrder : std::uint8_t {
  kSeq,
  kHalves,  // two sequential sums of 8, then added
  kTree,    // e[i] += e[i+8], then +4, +2, +1
  kFma      // seq with err = fma(d, d, err); mse only
};
struct Nvfp4Options {
  Nvfp4Order order = Nvfp4Order::kTe;
  OuterScale scale = OuterScale::kTensor;
  GRule g_rule = GRule::kDiv;
  BlockShape block = BlockShape::k1d;
  Select select = Select::kStatic6;
  Metric metric = Metric::kExact;
  Score score = Score::kAmax;
  SumOrder sum = SumOrder::kSeq;
  std::uint32_t e4m3max = 448;  // M: 448 or 256
  Rcp rcp = Rcp::kH200;         // table behind rcp~
  bool ftz = false;             // subnormal operands and results are signed zeros
  ScalarDiv scalar_div = ScalarDiv::kExact;
  DType16 amax_dtype = DType16::kF32;  // compressed-tensors: type of min/max and its arithmetic
  NegZero neg_zero = NegZero::kKeep;
  Ragged ragged = Ragged::kPad;
  bool int4_candidate = false;  // if4: INT4 elements instead of map-to-4, set by its contract alone
  std::uint32_t g_bits = 0;     // scale=given: binary32 bits of g, see OuterScale32
  bool finite_amax = false;     // an infinite amax is 0x7f7f0000, set by sglang-online alone
  bool has_amax = false;        // `amax` was given and replaces the measured tensor amax
  std::uint32_t amax_bits = 0;
  // Whether two candidates compete in each block.
  FP4SCOPE_HD constexpr bool is_adaptive() const {
    return select == Select::kMse || select == Select::kMae || select == Select::kAbsmax;
  }
  constexpr bool operator==(const Nvfp4Options&) const = default;
};

}  // namespace fp4scope
