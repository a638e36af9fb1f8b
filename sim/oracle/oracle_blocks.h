// oracle_blocks.h: the block codecs of the oracle, private to it, one family per file. Each is
// written line by line from its document (spec/mx.md 2, spec/nvfp4.md 2 to 6, spec/hif4.md 2, 5 and
// 6, spec/more.md); a machine operation is an exact result followed by one explicit rounding.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "formats/contracts/options.h"
#include "formats/spec.h"
#include "sim/backend.h"
#include "sim/oracle/dyadic.h"

namespace fp4scope::oracle {

// Elements of a tile; +0 beyond its rows and columns (padding, spec/layouts.md section 3).
float element_at(const Tile& tile, std::int64_t row, std::int64_t col);
Number number_at(const Tile& tile, std::int64_t row, std::int64_t col);  // binary64 kept

// `support`: what the family cannot do. `outer`: second-level scale from an amax. `quantize`: a
// whole tile, `out` is resized. `decode`: one value; `scale` are the bytes of its block, `index`
// the element in the block.
struct OracleFamily {
  Support (*support)(const Recipe&);
  OuterScale32 (*outer)(const Recipe&, std::uint32_t amax_bits);
  void (*quantize)(const Recipe&, const Tile&, std::span<const OuterScale32>, QuantizedTile& out);
  float (*decode)(const Recipe&, const OuterScale32&, const std::uint8_t* scale, bool choice,
                  int index, std::uint32_t code);
};
OracleFamily mx_oracle();
OracleFamily nvfp4_oracle();
OracleFamily hif4_oracle();
OracleFamily int4_oracle();
OracleFamily fp8_oracle();
OracleFamily pass_oracle();

// rcp~ of spec/scalars.md section 9 from its closed form; `table` null: correctly rounded.
float rcp_approx(float v, const std::uint8_t* table);
// Flushes a subnormal to a signed zero.
float flush_subnormal(float v);
float add32(float a, float b);
float sub32(float a, float b);
// One rounding of a * b + c.
float fma32(float a, float b, float c);
// v rounded to `type` and widened again (BF16, FP16; nothing for F32).
float round_to_type(DType16 type, float v);

// The random byte of an element under recipe.sr, from a Philox of the oracle's own
// (spec/scalars.md 2.4).
std::uint32_t random_byte(const Recipe& recipe, const Tile& tile, std::int64_t row,
                          std::int64_t col);

// x after the random Hadamard transform of recipe.rht (spec/nvfp4.md 3.5); the tile itself without
// one. `storage` holds the values.
Tile transformed(const Recipe& recipe, const Tile& tile, std::vector<float>& storage);

}  // namespace fp4scope::oracle
