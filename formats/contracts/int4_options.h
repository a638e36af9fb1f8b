// int4_options.h: INT4 group quantization (keys and contracts: spec/more.md section 1).
#pragma once
#include "formats/contracts/common_options.h"

namespace fp4scope {

// One value per row of spec/more.md 1.1.
enum class Int4Order : std::uint8_t {
  kCtRtn,
  kSkyrl,
  kMilesTrain,
  kMilesExport,
  kRtpLlm,
  kRtpLlmCt,  // skyrl, then the stored scale is cast to E4M3
};
struct Int4Options {
  Int4Order order = Int4Order::kCtRtn;
  std::uint32_t group = 32;
  std::uint32_t scale_div_x2 = 15;  // twice the divisor of amax: 15 (7.5) or 14 (7)
  int qmin = -8;                    // -8 or -7; the largest code is 7
  ScalarDiv scalar_div = ScalarDiv::kExact;
  DType16 dtype = DType16::kBf16;  // of the weight: dt() of spec/more.md
  Ragged ragged = Ragged::kPad;
  constexpr bool operator==(const Int4Options&) const = default;
};

}  // namespace fp4scope
