// oracle_blocks.h: the block codecs of the oracle, one block at a time. Each is written line by
// line from its document (spec/mx.md 2, spec/nvfp4.md 3, spec/hif4.md 2, 5 and 6); a machine
// operation is an exact result followed by one explicit rounding.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/contracts/options.h"
#include "formats/spec.h"
#include "sim/backend.h"
#include "sim/oracle/dyadic.h"

namespace fp4scope::oracle {

// --- MX ---
struct MxBlock {
  std::uint32_t byte = 0;
  std::vector<std::uint32_t> codes;
};
// `binary64`: the values come from binary64 and are cast directly (spec/scalars.md section 7).
MxBlock encode_mx(const MxOptions& options, MinifloatSpec element, std::span<const Number> x,
                  bool binary64);
float decode_mx(MinifloatSpec element, std::uint32_t byte, std::uint32_t code);

// --- NVFP4, contract te ---
OuterScale32 outer_te(const Nvfp4Options& options, std::uint32_t amax_bits);
// Scale byte of the magnitudes of one block, 1x16 or 16x16; NaN is ignored.
std::uint32_t scale_byte_te(float encode_scale, std::span<const float> block);
std::uint32_t encode_te(const Nvfp4Options& options, float encode_scale, std::uint32_t byte,
                        float x);
float decode_te(const Nvfp4Options& options, const OuterScale32& outer, std::uint32_t byte,
                std::uint32_t code);

// --- HiF4 ---
struct Hif4Group {
  std::uint32_t e6m2 = 0;
  std::array<std::uint32_t, 8> e8{};
  std::array<std::uint32_t, 16> e16{};
  std::array<std::uint32_t, 64> codes{};
  bool refused = false;  // nonfinite=error met a NaN or an infinity
};
Hif4Group encode_hif4(const Hif4Options& options, std::span<const float, 64> x);
float decode_hif4(std::uint32_t width, std::uint32_t e6m2, std::uint32_t e8, std::uint32_t e16,
                  std::uint32_t code);

}  // namespace fp4scope::oracle
