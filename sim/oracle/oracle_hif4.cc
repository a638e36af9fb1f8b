// oracle_hif4.cc: HiF4 and formats built like it (spec/hif4.md sections 2, 2.1, 2.3, 5 and 6;
// Algorithm 1 of arXiv 2602.11287): a scale per group and one-bit levels on cells below it.
// a: magnitudes; V: maximum of a cell; Vm: of the group; SF: scale factor; E: its value in the
// scale format; R: BF16 reciprocal of E; P, N: products of thresholds, elements. The recipe's
// format gives the element, the group sizes and the scale format. A 2-D group has square cells.
#include <algorithm>

#include "formats/hd.h"
#include "formats/scalars.h"
#include "sim/error.h"
#include "sim/oracle/exact_format.h"
#include "sim/oracle/oracle_blocks.h"

namespace fp4scope::oracle {
namespace {

float positive32(const Dyadic& v) {
  return round32({Number::Kind::kFinite, false, v});
}
float bf16_of_quotient(const Dyadic& num, const Dyadic& den) {
  return bit_cast<float>(round_quotient(kBfloat16, num, den) << 16);
}

// The cells of one level of a group: `across` x `down` cells of `width` x `height` elements.
struct Cells {
  int width, height, across, down;
  int count() const { return across * down; }
  std::size_t of(int row, int col) const {
    return static_cast<std::size_t>(row / height * across + col / width);
  }
};

struct Shape {
  int cols = 0, rows = 1;  // of a group
  MinifloatSpec element, scale;
  std::vector<Cells> micro;  // one-bit levels, outermost first
  bool is_named = false;     // hif4 itself: HiFX widths keep the scale constants of width 4

  int size() const { return cols * rows; }
  int levels() const { return static_cast<int>(micro.size()); }
  Dyadic element_max() const { return value(element, element.max_finite_code()).magnitude; }
  std::uint32_t nan_byte() const { return scale.magnitude_mask(); }
};

Shape shape_of(const Recipe& recipe) {
  const BlockFormat& format = recipe.format;
  Shape shape;
  shape.cols = format.block;
  shape.rows = format.block_rows;
  shape.element = format.element;
  shape.scale = format.levels[0].spec;
  shape.is_named = recipe.shape.empty();
  for (int i = 1; i < format.num_levels; ++i) {
    const int group = format.levels[static_cast<std::size_t>(i)].group;
    const int height = shape.rows == 1 ? 1 : group;
    shape.micro.push_back({group, height, shape.cols / group, shape.rows / height});
  }
  return shape;
}

// One input element after the input cast and the rule for non-finite values.
struct Element {
  Dyadic magnitude;
  bool negative = false;  // the sign of the code as far as the input decides it
  std::uint32_t random = 0;
};

struct Group {
  std::uint32_t scale = 0;
  std::vector<std::vector<std::uint32_t>> bits;  // of each level, by cell
  std::vector<std::uint32_t> codes;
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

// SF of Algorithm 1, or of the two level-1 searches.
float scale_factor(const Hif4Options& options, const Shape& shape, const Dyadic& vm) {
  const float amax = positive32(vm);  // exact: a binary32 magnitude
  const Dyadic one = Dyadic::pow2(0);
  const Dyadic fmax = shape.is_named ? Dyadic(7, -2) : shape.element_max();
  switch (options.search) {
    case Hif4Search::kLevel1:
      return round_bf16(div32(amax, positive32(fmax)));
    case Hif4Search::kLevel1_3p5:
      return round_bf16(div32(amax, positive32(fmax.scaled(1))));
    case Hif4Search::kGreedy:
    case Hif4Search::kMse:
      break;
  }
  // BF16(1/7) = 0x3e12 for HiF4.
  return round_bf16(mul32(amax, bf16_of_quotient(one, fmax.scaled(shape.levels()))));
}

// The smallest scale code that is not zero; E6M2 has no zero.
std::uint32_t smallest_scale(const Shape& shape) {
  return shape.scale.has_subnormals ? 1 : 0;
}

std::uint32_t scale_code(const Hif4Options& options, const Shape& shape, float sf) {
  const Number v = exact(sf);
  const std::uint32_t top = shape.scale.max_finite_code(), bottom = smallest_scale(shape);
  const Dyadic largest = value(shape.scale, top).magnitude;
  // From the midpoint of the largest scale and the missing next one on: 1.625 * 2^15 for E6M2.
  const Dyadic below = value(shape.scale, top - 1).magnitude;
  const Dyadic bound = largest + (largest - below).scaled(-1);
  if (options.overflow == Hif4Overflow::kNan && (!v.is_finite() || v.magnitude >= bound)) {
    return shape.nan_byte();
  }
  if (!v.is_finite()) return top;
  const Dyadic smallest = value(shape.scale, bottom).magnitude;
  if (v.magnitude < smallest) return options.zero == Hif4Zero::kFf ? shape.nan_byte() : bottom;
  return nearest(shape.scale, v.magnitude, options.e6m2);
}

float reciprocal(const Shape& shape, std::uint32_t scale) {
  return bf16_of_quotient(Dyadic::pow2(0), value(shape.scale, scale).magnitude);
}

// Code of an element: N shifted by its level bits, then cast to the element format, saturating.
std::uint32_t element_code(const Hif4Options& options, const Shape& shape, bool stochastic_rounding,
                           const Element& a, const Dyadic& r, int shift) {
  // Stochastic rounding takes a binary32 number, so that elem=exact is fp32 there.
  const bool to_fp32 = stochastic_rounding && options.elem == Hif4Product::kExact;
  Number n;
  n.magnitude = product(to_fp32 ? Hif4Product::kFp32 : options.elem, a.magnitude, r).scaled(-shift);
  n.negative = a.negative;
  if (!stochastic_rounding) return cast_saturating(shape.element, n, options.ties);
  const std::uint32_t magnitude = stochastic(shape.element, positive32(n.magnitude), a.random);
  Number chosen = value(shape.element, magnitude);
  chosen.negative = a.negative;
  return cast_saturating(shape.element, chosen, Rounding::kEven);
}

// The level bits that lie above an element, added up; `levels`: of so many outermost levels.
int shift_at(const Shape& shape, const Group& group, int row, int col, int levels) {
  int shift = 0;
  for (int l = 0; l < levels; ++l) {
    const auto at = static_cast<std::size_t>(l);
    shift += static_cast<int>(group.bits[at][shape.micro[at].of(row, col)]);
  }
  return shift;
}

// Level bits by the thresholds of Algorithm 1, outermost level first: the bit of a level with r
// levels below it is set from 2^(emax + 1 + r) on, after the shift by the levels above it.
void greedy_bits(const Hif4Options& options, const Shape& shape, const std::vector<Element>& a,
                 const Dyadic& r, Group& group) {
  for (int l = 0; l < shape.levels(); ++l) {
    const Cells& cells = shape.micro[static_cast<std::size_t>(l)];
    const int below = shape.levels() - 1 - l;
    const Dyadic threshold = Dyadic::pow2(shape.element.max_exponent() + 1 + below);
    for (int cell = 0; cell < cells.count(); ++cell) {
      const int top = cell / cells.across * cells.height, left = cell % cells.across * cells.width;
      Dyadic v;
      for (int row = top; row < top + cells.height; ++row) {
        for (int col = left; col < left + cells.width; ++col) {
          v = std::max(v, a[static_cast<std::size_t>(row * shape.cols + col)].magnitude);
        }
      }
      const Dyadic p = product(options.thr, v, r).scaled(-shift_at(shape, group, top, left, l));
      group.bits[static_cast<std::size_t>(l)][static_cast<std::size_t>(cell)] =
          p >= threshold ? 1 : 0;
    }
  }
}

// search=mse, fp4scope's own: for a given scale, the level bits and codes of least squared error,
// binary32 sums in element order, then in cell order; a tie takes bit 0.
class BitSearch {
 public:
  BitSearch(const Hif4Options& options, const Shape& shape, bool stochastic_rounding,
            const std::vector<Element>& a, std::uint32_t scale)
      : options_(options),
        shape_(shape),
        stochastic_(stochastic_rounding),
        a_(a),
        scale_(value(shape.scale, scale).magnitude),
        r_(exact(reciprocal(shape, scale)).magnitude) {}

  // Error of the area below the cell at (top, left) of level `level` - 1, the group for level 0;
  // its bits and codes go to `group`.
  float best(int level, int top, int left, int height, int width, int shift, Group& group) const {
    float error = 0;
    if (level == shape_.levels()) {
      for (int row = top; row < top + height; ++row) {
        for (int col = left; col < left + width; ++col) {
          error = add32(error, square_error(row, col, shift, group));
        }
      }
      return error;
    }
    const auto at = static_cast<std::size_t>(level);
    const Cells& cells = shape_.micro[at];
    for (int row = top; row < top + height; row += cells.height) {
      for (int col = left; col < left + width; col += cells.width) {
        Group one = group;
        const float error0 = best(level + 1, row, col, cells.height, cells.width, shift, group);
        const float error1 = best(level + 1, row, col, cells.height, cells.width, shift + 1, one);
        const bool set = exact_less(error1, error0);
        if (set) group = one;
        group.bits[at][cells.of(row, col)] = set ? 1 : 0;
        error = add32(error, set ? error1 : error0);
      }
    }
    return error;
  }

  static bool exact_less(float a, float b) {  // sums of squares: never negative
    const Number x = exact(a), y = exact(b);
    if (x.is_nan() || y.is_nan() || x.is_infinite()) return false;
    return y.is_infinite() || x.magnitude < y.magnitude;
  }

 private:
  float square_error(int row, int col, int shift, Group& group) const {
    const auto i = static_cast<std::size_t>(row * shape_.cols + col);
    group.codes[i] = element_code(options_, shape_, stochastic_, a_[i], r_, shift);
    const Dyadic q = value(shape_.element, group.codes[i]).magnitude;
    const float d = sub32(positive32(scale_.scaled(shift) * q), positive32(a_[i].magnitude));
    return mul32(d, d);
  }

  const Hif4Options& options_;
  const Shape& shape_;
  bool stochastic_;
  const std::vector<Element>& a_;
  Dyadic scale_, r_;
};

Group empty_group(const Shape& shape, std::uint32_t scale) {
  Group group;
  group.scale = scale;
  for (const Cells& cells : shape.micro) {
    group.bits.emplace_back(static_cast<std::size_t>(cells.count()), 0u);
  }
  group.codes.assign(static_cast<std::size_t>(shape.size()), 0u);
  return group;
}

// Scale codes from two below the greedy one to two above it, ascending; the lowest of equals.
Group search_mse(const Hif4Options& options, const Shape& shape, bool stochastic_rounding,
                 const std::vector<Element>& a, std::uint32_t greedy) {
  const std::uint32_t bottom = smallest_scale(shape), top = shape.scale.max_finite_code();
  const std::uint32_t first = greedy < bottom + 2 ? bottom : greedy - 2;
  const std::uint32_t last = std::min(greedy + 2, top);
  Group best;
  float least = 0;
  for (std::uint32_t scale = first; scale <= last; ++scale) {
    Group group = empty_group(shape, scale);
    const BitSearch search(options, shape, stochastic_rounding, a, scale);
    const float error = search.best(0, 0, 0, shape.rows, shape.cols, 0, group);
    if (scale == first || BitSearch::exact_less(error, least)) {
      best = std::move(group);
      least = error;
    }
  }
  return best;
}

Group encode(const Hif4Options& options, const Shape& shape, bool stochastic_rounding,
             const std::vector<Element>& a) {
  Dyadic vm;
  for (const Element& element : a) vm = std::max(vm, element.magnitude);
  Group group = empty_group(shape, scale_code(options, shape, scale_factor(options, shape, vm)));
  if (group.scale == shape.nan_byte()) {  // zero=ff or overflow=nan: no level bits, zero codes
    for (std::size_t i = 0; i < a.size(); ++i) {
      const bool sign = a[i].negative && !shape.element.is_twos_complement();
      group.codes[i] = sign ? shape.element.sign_mask() : 0u;
    }
    return group;
  }
  if (options.search == Hif4Search::kMse) {
    return search_mse(options, shape, stochastic_rounding, a, group.scale);
  }
  const Dyadic r = exact(reciprocal(shape, group.scale)).magnitude;
  if (options.search == Hif4Search::kGreedy) greedy_bits(options, shape, a, r, group);
  for (int row = 0; row < shape.rows; ++row) {
    for (int col = 0; col < shape.cols; ++col) {
      const auto i = static_cast<std::size_t>(row * shape.cols + col);
      const int shift = shift_at(shape, group, row, col, shape.levels());
      group.codes[i] = element_code(options, shape, stochastic_rounding, a[i], r, shift);
    }
  }
  return group;
}

// The input cast, then the rule for NaN and infinity (section 5). `bad`: the group becomes NaN.
Element take(const Hif4Options& options, float x, std::int64_t row, bool& bad) {
  Number v = exact(options.cast == Hif4Cast::kBf16 ? round_bf16(x) : x);
  if (!v.is_finite()) {
    switch (options.nonfinite) {
      case Hif4Nonfinite::kError:
        throw RefusedInput(row, "NaN or Inf found, which the recipe refuses (nonfinite=error)");
      case Hif4Nonfinite::kGroupNan:
        bad = true;
        v = Number{};
        break;
      case Hif4Nonfinite::kElement:
      case Hif4Nonfinite::kSaturate:
        v = v.is_nan() ? Number{} : exact(bit_cast<float>(v.negative ? 0xff7fffffu : 0x7f7fffffu));
        break;
    }
  }
  Element element;
  element.magnitude = v.magnitude;
  // A negative value that underflows keeps its sign; an input -0 by option.
  element.negative = v.negative && !(v.is_zero() && options.neg_zero == NegZero::kDrop);
  return element;
}

void quantize(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32>,
              QuantizedTile& out) {
  resize(out, recipe, tile.rows, tile.cols);
  const Shape shape = shape_of(recipe);
  const bool sr = recipe.sr.enabled || recipe.hif4.ties == Rounding::kStochastic;
  const int scale_bytes = recipe.format.scale_bytes;
  std::vector<Element> a(static_cast<std::size_t>(shape.size()));
  for (std::int64_t top = 0; top < tile.rows; top += shape.rows) {
    for (std::int64_t b = 0; b < out.blocks_per_row; ++b) {
      bool bad = false;
      for (int i = 0; i < shape.size(); ++i) {
        const std::int64_t row = top + i / shape.cols, col = b * shape.cols + i % shape.cols;
        Element& element = a[static_cast<std::size_t>(i)];
        element = take(recipe.hif4, element_at(tile, row, col), row, bad);
        if (sr && row < tile.rows && col < tile.cols)
          element.random = random_byte(recipe, tile, row, col);
      }
      Group group = encode(recipe.hif4, shape, sr, a);
      if (bad) group.scale = shape.nan_byte();
      for (int r = 0; r < shape.rows && top + r < tile.rows; ++r) {
        std::uint8_t* bytes =
            out.scales.data() + ((top + r) * out.blocks_per_row + b) * scale_bytes;
        *bytes++ = static_cast<std::uint8_t>(group.scale);
        // Each row stores the bits that apply to it, lowest bit first, whole bytes per level.
        for (std::size_t l = 0; l < shape.micro.size(); ++l) {
          const Cells& cells = shape.micro[l];
          for (int k = 0; k < cells.across; ++k) {
            if (k % 8 == 0) bytes[k / 8] = 0;
            const std::uint32_t bit = group.bits[l][cells.of(r, k * cells.width)];
            bytes[k / 8] = static_cast<std::uint8_t>(bytes[k / 8] | bit << (k % 8));
          }
          bytes += (cells.across + 7) / 8;
        }
        for (int i = 0; i < shape.cols; ++i) {
          out.codes[static_cast<std::size_t>((top + r) * out.padded_cols + b * shape.cols + i)] =
              static_cast<std::uint8_t>(group.codes[static_cast<std::size_t>(r * shape.cols + i)]);
        }
      }
    }
  }
}

float decode(const Recipe& recipe, const OuterScale32&, const std::uint8_t* bytes, bool, int index,
             std::uint32_t code) {
  const Shape shape = shape_of(recipe);
  const Number scale = value(shape.scale, *bytes++);
  int shift = 0;
  for (const Cells& cells : shape.micro) {
    const int k = index / cells.width;
    shift += bytes[k / 8] >> (k % 8) & 1;
    bytes += (cells.across + 7) / 8;
  }
  Number v = value(shape.element, code);
  if (!scale.is_finite()) {
    v.kind = Number::Kind::kNan;
  } else if (v.is_finite()) {
    v.magnitude = v.magnitude * scale.magnitude.scaled(shift);
  }
  return round32(v);
}

OuterScale32 outer(const Recipe&, std::uint32_t amax_bits) {
  return {bit_cast<float>(amax_bits), 1.0f};
}

Support support(const Recipe& recipe) {
  const BlockFormat& format = recipe.format;
  if (format.lut != nullptr) return {false, "the exact oracle has no elements from a table here"};
  if (format.num_levels < 1 || format.levels[0].kind != ScaleKind::kMinifloat) {
    return {false, "the exact oracle takes a minifloat scale above the one-bit levels"};
  }
  return {};
}

}  // namespace

OracleFamily hif4_oracle() {
  return {support, outer, quantize, decode};
}

}  // namespace fp4scope::oracle
