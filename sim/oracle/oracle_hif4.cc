// oracle_hif4.cc: HiF4 groups of 64 (spec/hif4.md sections 2, 2.1, 5 and 6; Algorithm 1 of arXiv
// 2602.11287). V16, V8, Vm: maxima over 4, 8 and 64 magnitudes; SF: scale factor; E: its E6M2
// value; R: BF16 reciprocal of E; e8, e16: level-2 and level-3 bits; P, N: products of thresholds,
// elements.
#include <algorithm>
#include <array>

#include "formats/hd.h"
#include "formats/scalars.h"
#include "sim/error.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle {
namespace {

constexpr std::uint32_t kNanByte = 0xff;

float positive32(const Dyadic& v) {
  return round32({Number::Kind::kFinite, false, v});
}

// One input element after the input cast and the rule for non-finite values.
struct Element {
  Dyadic magnitude;
  bool sign_of_code;  // bit 3 of the code (for width 4) as far as the input decides it
};

Dyadic product(Hif4Product precision, const Dyadic& a, const Dyadic& b) {
  const Dyadic p = a * b;
  switch (precision) {
    case Hif4Product::kExact:
      return p;
    case Hif4Product::kFp32:
      return exact(positive32(p)).magnitude;
    case Hif4Product::kBf16:
      return exact(round_bf16(positive32(p))).magnitude;
  }
  return p;
}

// round(v) to an integer, half away from zero or half to even; v >= 0.
Integer round_integer(const Dyadic& v, Rounding ties) {
  const Dyadic one = Dyadic::pow2(0);
  Integer n = floor_quotient(v, one);
  const auto side = (v - Dyadic(n, 0)) <=> Dyadic::pow2(-1);
  bool up = side > 0;
  if (side == 0) up = ties == Rounding::kAway || (ties == Rounding::kEven && bit_test(n, 0));
  if (ties == Rounding::kTrunc) up = false;
  if (up) ++n;
  return n;
}

// SF of Algorithm 1, or of the two level-1 searches.
float scale_factor(Hif4Search search, const Dyadic& vm) {
  const float amax = positive32(vm);  // exact: a binary32 magnitude
  switch (search) {
    case Hif4Search::kGreedy:  // BF16(1/7) = 0x3e12
      return round_bf16(mul32(amax, bit_cast<float>(0x3e120000u)));
    case Hif4Search::kLevel1:
      return round_bf16(div32(amax, bit_cast<float>(0x3fe00000u)));
    case Hif4Search::kLevel1_3p5:
      return round_bf16(div32(amax, bit_cast<float>(0x40600000u)));
    case Hif4Search::kMse:
      break;
  }
  return amax;
}

std::uint32_t scale_code(const Hif4Options& options, float sf) {
  const Number v = exact(sf);
  const Dyadic smallest = Dyadic::pow2(-48);
  const Dyadic overflow_bound(13, 12);  // 1.625 * 2^15
  if (options.overflow == Hif4Overflow::kNan && (!v.is_finite() || v.magnitude >= overflow_bound)) {
    return kNanByte;
  }
  if (!v.is_finite()) return 0xfe;
  if (options.zero == Hif4Zero::kFf && v.magnitude < smallest) return kNanByte;
  return nearest(kE6M2, v.magnitude, options.e6m2);  // clamps to [2^-48, 49152]
}

struct Hif4Group {
  std::uint32_t e6m2 = 0;
  std::array<std::uint32_t, 8> e8{};
  std::array<std::uint32_t, 16> e16{};
  std::array<std::uint32_t, 64> codes{};
  bool refused = false;  // nonfinite=error met a NaN or an infinity
};

Hif4Group encode_hif4(const Hif4Options& options, std::span<const float, 64> x) {
  Hif4Group group;
  const std::uint32_t sign_bit = 1u << (options.width - 1);
  const std::uint32_t largest_code = sign_bit - 1u;
  std::array<Element, 64> a;
  bool bad_group = false;
  for (std::size_t i = 0; i < 64; ++i) {
    const float narrowed = options.cast == Hif4Cast::kBf16 ? round_bf16(x[i]) : x[i];
    Number v = exact(narrowed);
    if (!v.is_finite()) {
      group.refused |= options.nonfinite == Hif4Nonfinite::kError;
      bad_group |= options.nonfinite == Hif4Nonfinite::kGroupNan;
      if (v.is_infinite() && options.nonfinite == Hif4Nonfinite::kSaturate) {
        v = exact(bit_cast<float>(v.negative ? 0xff7fffffu : 0x7f7fffffu));
      } else {
        v = Number{};  // +0
      }
    }
    a[i].magnitude = v.magnitude;
    // A negative value that underflows keeps its sign; an input -0 by option.
    a[i].sign_of_code = v.negative && !(v.is_zero() && options.neg_zero == NegZero::kDrop);
  }
  if (group.refused) return group;

  std::array<Dyadic, 16> v16;
  std::array<Dyadic, 8> v8;
  Dyadic vm;
  for (std::size_t i = 0; i < 64; ++i) v16[i / 4] = std::max(v16[i / 4], a[i].magnitude);
  for (std::size_t k = 0; k < 16; ++k) v8[k / 2] = std::max(v8[k / 2], v16[k]);
  for (std::size_t j = 0; j < 8; ++j) vm = std::max(vm, v8[j]);

  group.e6m2 = scale_code(options, scale_factor(options.search, vm));
  if (group.e6m2 == kNanByte) {
    for (std::size_t i = 0; i < 64; ++i) group.codes[i] = a[i].sign_of_code ? sign_bit : 0u;
    return group;
  }
  const Dyadic r = exact(reciprocal_e6m2(group.e6m2)).magnitude;
  if (options.search == Hif4Search::kGreedy) {
    for (std::size_t j = 0; j < 8; ++j) {
      group.e8[j] = product(options.thr, v8[j], r) >= Dyadic::pow2(2) ? 1 : 0;
    }
    for (std::size_t k = 0; k < 16; ++k) {
      const Dyadic p = product(options.thr, v16[k], r).scaled(-static_cast<int>(group.e8[k / 2]));
      group.e16[k] = p >= Dyadic::pow2(1) ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < 64; ++i) {
    const int shift = static_cast<int>(group.e8[i / 8] + group.e16[i / 4]);
    const Dyadic n = product(options.elem, a[i].magnitude, r).scaled(-shift);
    // The step of the element is 2^-(width - 2): 0.25 for width 4.
    const Integer q = round_integer(n.scaled(static_cast<int>(options.width) - 2), options.ties);
    const std::uint32_t magnitude = std::min(q, Integer(largest_code)).convert_to<std::uint32_t>();
    group.codes[i] = magnitude | (a[i].sign_of_code ? sign_bit : 0u);
  }
  if (bad_group) group.e6m2 = kNanByte;
  return group;
}

float decode_hif4(std::uint32_t width, std::uint32_t e6m2, std::uint32_t e8, std::uint32_t e16,
                  std::uint32_t code) {
  Number v = value(kE6M2, e6m2);
  const std::uint32_t sign_bit = 1u << (width - 1);
  v.negative = (code & sign_bit) != 0;
  if (v.is_finite()) {
    const Dyadic q(Integer(code & (sign_bit - 1u)), 2 - static_cast<int>(width));
    v.magnitude = v.magnitude.scaled(static_cast<int>(e8 + e16)) * q;
  }
  return round32(v);
}

void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32>,
              QuantizedTile& out) {
  resize(out, recipe, tile.rows, tile.cols);
  std::array<float, 64> x;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    for (std::int64_t b = 0; b < out.blocks_per_row; ++b) {
      for (int i = 0; i < 64; ++i) {
        x[static_cast<std::size_t>(i)] = element_at(tile, row, b * 64 + i);
      }
      const Hif4Group group = encode_hif4(recipe.hif4, x);
      if (group.refused) {
        throw RefusedInput(row, "NaN or Inf, which the recipe refuses (nonfinite=error)");
      }
      std::array<std::uint32_t, 4> bytes{group.e6m2, 0, 0, 0};
      for (std::size_t j = 0; j < 8; ++j) bytes[1] |= group.e8[j] << j;
      for (std::size_t k = 0; k < 16; ++k) bytes[2 + k / 8] |= group.e16[k] << (k % 8);
      for (std::size_t i = 0; i < 4; ++i) {
        out.scales[static_cast<std::size_t>((row * out.blocks_per_row + b) * 4) + i] =
            static_cast<std::uint8_t>(bytes[i]);
      }
      for (std::size_t i = 0; i < 64; ++i) {
        out.codes[static_cast<std::size_t>(row * out.padded_cols + b * 64) + i] =
            static_cast<std::uint8_t>(group.codes[i]);
      }
    }
  }
}

float decode(const Recipe& recipe, const OuterScale32&, const std::uint8_t* scale, bool, int i,
             std::uint32_t code) {
  const std::uint32_t e8 = scale[1] >> (i / 8) & 1u;
  const std::uint32_t e16 = scale[2 + i / 32] >> (i / 4 % 8) & 1u;
  return decode_hif4(recipe.hif4.width, scale[0], e8, e16, code);
}

OuterScale32 outer(const Recipe&, std::uint32_t amax_bits) {
  return {bit_cast<float>(amax_bits), 1.0f};
}

}  // namespace

OracleFamily hif4_oracle() {
  return {[](const Recipe&) { return Support{}; }, outer, quantize, decode};
}

}  // namespace fp4scope::oracle
