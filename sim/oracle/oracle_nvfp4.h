// oracle_nvfp4.h: NVFP4 and its siblings in the oracle, private to it: what each contract makes of
// the outer scale, a block and an element (spec/nvfp4.md 2 to 6, spec/more.md 3, 4, 6). Names as
// there: g encode scale of the tensor or row (s2, pts, a where a contract has a decode scale), gd
// its reciprocal, bmax largest magnitude of a block, sf block scale, q element, M ceiling of the
// block scale that the outer scale aims at.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle::nvfp4 {

inline float from_bits32(std::uint32_t bits) {
  return bit_cast<float>(bits);
}
inline std::uint32_t bits32(float v) {
  return bit_cast<std::uint32_t>(v);
}
float from_integer(std::uint32_t n);
float value32(MinifloatSpec spec, std::uint32_t code);
float magnitude_of(float v);
bool is_nan32(float v);
// fminf(v, limit) and fmaxf: a NaN gives the limit.
float min_number(float v, float limit);
float max_number(float v, float limit);
// torch.clamp: a NaN stays.
float clamp_torch(float v, float low, float high);

// binary32 arithmetic of a kernel. With `ftz` every subnormal operand and result is a signed zero
// (spec/nvfp4.md section 4); rcp~ flushes whatever the switch says (spec/scalars.md section 9).
struct Machine {
  bool ftz = false;
  const std::uint8_t* rcp_table = nullptr;  // null: correctly rounded

  float flushed(float v) const { return ftz ? flush_subnormal(v) : v; }
  float mul(float a, float b) const { return flushed(mul32(flushed(a), flushed(b))); }
  float div(float a, float b) const { return flushed(div32(flushed(a), flushed(b))); }
  float add(float a, float b) const { return flushed(add32(flushed(a), flushed(b))); }
  float sub(float a, float b) const { return flushed(sub32(flushed(a), flushed(b))); }
  float fma(float a, float b, float c) const {
    return flushed(fma32(flushed(a), flushed(b), flushed(c)));
  }
  float rcp(float v) const { return rcp_approx(v, rcp_table); }
  bool is_zero(float v) const { return (bits32(flushed(v)) & 0x7fffffffu) == 0; }
  bool less(float a, float b) const;  // false where one is NaN
};

// What competes in a block: the block maximum mapped to the largest element or to 4, and for if4
// the INT4 grid under the scale of the first.
enum class Grid { kTop, kFour, kInt4 };

// A recipe of the family with everything that does not depend on the data.
class Nvfp4Rules {
 public:
  explicit Nvfp4Rules(const Recipe& recipe, SourceType source = SourceType::kF32);

  const Recipe& recipe;
  const Nvfp4Options& options;
  Machine machine;
  MinifloatSpec element;
  MinifloatSpec scale;
  bool is_if4;
  DType16 input_type;  // of mlx-cpu's array arithmetic
  float top;           // largest element: 6; 7 for nvint4
  float mapped;        // q: what the static scale maps bmax to
  std::uint32_t m;
  float top_m;  // mapped * M: 6 * M, with static4 4 * M

  OuterScale32 outer(std::uint32_t amax_bits) const;

  // The block scale before its cast. `amax` is that of the tensor or row.
  float unrounded_scale(const OuterScale32& outer, float bmax, Grid grid) const;
  // Cast to a byte by the contract, with what it stores in place of zero.
  std::uint32_t scale_byte(float s) const;
  float scale_value(std::uint32_t byte) const;  // a NaN byte is NaN; the mark of if4 is ignored

  // What the elements of a block meet.
  struct Divisor {
    float factor;  // elements are multiplied with it, or divided by it
    bool divides;
    bool gives_zero;  // fouroversix: every element is 0
  };
  Divisor divisor(const OuterScale32& outer, float bmax, float s, float sf) const;

  // One element: the code, and the value v that the error formulas use (without any scale).
  struct Element {
    std::uint32_t code;
    float v;
  };
  // `random_byte` below 256: stochastic rounding with it. Throws RefusedInput where the contract
  // does not say what becomes of a NaN; `row` is that of the tile.
  Element encode(float x, const Divisor& divisor, Grid grid, std::uint32_t random_byte,
                 std::int64_t row) const;
  static constexpr std::uint32_t kNearest = 256;

  // 1/g as the contract's error formulas and inverses have it.
  float decode_scale(const OuterScale32& outer) const;
  // d = v - x of one element, in the units of the metric.
  float difference(const OuterScale32& outer, float sf, float v, float x, Grid grid) const;

  float decoded(const OuterScale32& outer, std::uint32_t byte, bool choice,
                std::uint32_t code) const;

 private:
  bool has_approximate_reciprocals() const;
  // tensor / python_number (spec/scalars.md section 8).
  float over_number(float a, float number) const;
  float encode_scale_of_tensor(float amax) const;
  float flashinfer_row_scale(float amax) const;
  [[noreturn]] void refuse_nan(std::int64_t row) const;
  Element encode_fouroversix(float y, Grid grid, std::int64_t row) const;
  Element encode_mlx_cpu(float x, float y, std::int64_t row) const;
};

}  // namespace fp4scope::oracle::nvfp4
