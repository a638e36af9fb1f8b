// classify.cc: see classify.h. Elements below a scale that differs are measured against the code
// that the recipe's element rule has under the scale that was found, so that one wrong scale is not
// reported as sixteen wrong codes.
#include "analysis/compare/classify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "analysis/compare/compare.h"
#include "formats/amax.h"
#include "formats/minifloat.h"
#include "formats/rounding.h"
#include "sim/candidates.h"
#include "sim/element.h"

namespace fp4scope {
namespace {

constexpr int kMostElements = 256;  // of a block

std::uint64_t little_endian(const std::uint8_t* bytes, std::int64_t n) {
  std::uint64_t value = 0;
  for (std::int64_t i = n; i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

std::uint32_t code_of_ordinal(const MinifloatSpec& element, int ordinal) {
  if (element.is_twos_complement()) {
    return static_cast<std::uint32_t>(ordinal) & (element.code_count() - 1u);
  }
  const auto magnitude = static_cast<std::uint32_t>(std::abs(ordinal));
  return ordinal < 0 ? magnitude | element.sign_mask() : magnitude;
}

// Whether a code is beyond the element, or one of the two is a NaN code.
bool is_unordered(const Recipe& recipe, const MinifloatSpec& element, std::uint32_t expected,
                  std::uint32_t found) {
  if (recipe.code_bytes() == 1 && found >= element.code_count()) return true;
  if (element.is_twos_complement() || recipe.format.lut != nullptr) return false;
  const float e = decode<Lane<1>>(element, expected), f = decode<Lane<1>>(element, found);
  return (e != e) != (f != f);
}

bool is_nan(double v) {
  return v != v;
}
// Whether a scale byte is the NaN code of its type.
bool is_nan_scale(const Recipe& recipe, const std::uint8_t* scale) {
  const BlockFormat& format = recipe.format;
  for (int i = 0; i < format.num_levels; ++i) {
    const ScaleLevel& level = format.levels[static_cast<std::size_t>(i)];
    if (level.group == 0) continue;
    if (level.kind == ScaleKind::kE8m0) return scale[0] == 255;
    if (level.kind == ScaleKind::kMinifloat) {
      return is_nan(decode<Lane<1>>(level.spec, scale[0] & (level.spec.code_count() - 1u)));
    }
  }
  return false;
}

}  // namespace

float rounded_to(DType dtype, float v) {
  if (dtype == DType::kBF16) return round_to_bf16<Lane<1>>(v);
  if (dtype == DType::kF16) return round_to_f16<Lane<1>>(v);
  return v;
}

// One block of one row, gathered.
struct BlockClassifier::Block {
  const Tile& x;
  const Side& expected;
  const FoundTile& found;
  std::int64_t row, block;  // of the tile
  std::int64_t first;       // column in the tile
  int n;                    // elements inside the tile
  int inside;               // elements inside the input
  OuterScale32 outer;
  std::int64_t at;  // index of the block in the tile
  bool scale_differs = false;
  const std::uint8_t *scale = nullptr, *found_scale = nullptr;
  bool choice = false;
  // The other candidate of a recipe that chooses.
  bool has_other = false;
  std::uint8_t other_scale = 0;
  std::uint8_t other_codes[kMostElements] = {};

  float value(int i) const { return x.f32[row * x.stride + first + i]; }
  double wide(int i) const {
    const std::int64_t k = row * x.stride + first + i;
    return x.f64 != nullptr ? x.f64[k] : double{x.f32[k]};
  }
  std::uint32_t code(const QuantizedTile& tile, int i) const {
    const int width = expected.recipe.code_bytes();
    const std::uint8_t* c = tile.codes.data() + (row * tile.padded_cols + first + i) * width;
    return width == 1 ? c[0] : c[0] | static_cast<std::uint32_t>(c[1]) << 8;
  }
  SourceBlock source() const {
    SourceBlock s;
    s.n = n;
    if (x.f64 != nullptr) {
      s.f64 = x.f64 + row * x.stride + first;
    } else {
      s.f32 = x.f32 + row * x.stride + first;
    }
    return s;
  }
};

namespace {

// The block with the other choice.
template <class Block>
void take_other_candidate(const Recipe& recipe, Block& b) {
  const std::int64_t n = recipe.format.block, height = recipe.format.block_rows;
  std::uint32_t amax = 0;
  const std::int64_t top = b.row / height * height;
  for (std::int64_t r = top; r < std::min(b.x.rows, top + height); ++r) {
    amax = std::max(amax, amax_bits(b.x.f32 + r * b.x.stride + b.first, b.n));
  }
  float x[kMostElements] = {};
  for (int i = 0; i < b.n; ++i) x[i] = b.value(i);
  if (n > kMostElements) return;
  b.other_scale = candidate_of_block(recipe, b.outer, amax, !b.choice, x, b.other_codes);
  b.has_other = true;
}

}  // namespace

std::string BlockVerdict::what() const {
  std::string out;
  const auto add = [&](int i) {
    const int n = classes[static_cast<std::size_t>(i)];
    if (n == 0) return;
    const auto c = static_cast<DifferenceClass>(i);
    out += out.empty() ? "" : ", ";
    out += n == 1 ? std::string(meaning_of(c)) : fmt::format("{} x {}", n, meaning_of(c));
  };
  // The scale first: it explains its elements.
  const int first_scale = static_cast<int>(DifferenceClass::kScaleOffByOne);
  for (int i = first_scale; i < kDifferenceClasses; ++i) add(i);
  for (int i = 0; i < first_scale; ++i) add(i);
  return out;
}

void BlockClassifier::count(DifferenceClass c, bool is_inside, BlockVerdict& verdict) const {
  const bool is_accepted = (c == DifferenceClass::kSignOfZero && accept_.sign_of_zero) ||
                           (c == DifferenceClass::kNanCode && accept_.nan_code) ||
                           (!is_inside && accept_.padding);
  if (is_accepted) {
    ++verdict.accepted;
    return;
  }
  if (!is_inside) {
    ++verdict.padding;
    ++verdict.classes[static_cast<std::size_t>(DifferenceClass::kPadding)];
    return;
  }
  ++verdict.classes[static_cast<std::size_t>(c)];
}

DifferenceClass BlockClassifier::class_of_scale(const Block& b) const {
  const std::int64_t bytes = recipe_.format.scale_bytes;
  if (b.has_other && b.found_scale[0] == b.other_scale) return DifferenceClass::kChoiceFlipped;
  if (is_nan_scale(recipe_, b.scale) != is_nan_scale(recipe_, b.found_scale)) {
    return DifferenceClass::kNanScale;
  }
  if (recipe_.family == Family::kHif4) {
    if (b.scale[0] == b.found_scale[0]) return DifferenceClass::kLevelBits;
    return std::abs(b.scale[0] - b.found_scale[0]) == 1 ? DifferenceClass::kScaleOffByOne
                                                        : DifferenceClass::kOtherScale;
  }
  const std::uint64_t e = little_endian(b.scale, bytes), f = little_endian(b.found_scale, bytes);
  return std::max(e, f) - std::min(e, f) == 1 ? DifferenceClass::kScaleOffByOne
                                              : DifferenceClass::kOtherScale;
}

bool BlockClassifier::is_other_candidate(const Block& b) const {
  return b.has_other && b.found_scale != nullptr && b.found_scale[0] == b.other_scale &&
         b.scale_differs;
}

std::optional<std::uint32_t> BlockClassifier::code_under_found(const Block& b, int i) const {
  if (is_other_candidate(b)) return b.other_codes[i];
  const double x = b.wide(i);
  if (recipe_.format.lut != nullptr || recipe_.sr.enabled || !std::isfinite(x) ||
      (b.choice && recipe_.nvfp4.int4_candidate)) {
    return std::nullopt;
  }
  const double y = scaled_magnitude(recipe_, b.outer, b.found_scale, b.choice, i, x, b.source());
  const float magnitude = static_cast<float>(y);
  if (is_nan(magnitude)) return std::nullopt;
  return encode<Lane<1>>(recipe_.format.element, recipe_.element_ties(),
                         std::signbit(x) ? -magnitude : magnitude);
}

DifferenceClass BlockClassifier::class_of_code(const Block& b, int i,
                                               std::uint32_t expected) const {
  const MinifloatSpec element = element_of(recipe_, is_other_candidate(b) ? !b.choice : b.choice);
  const std::uint32_t found = b.code(*b.found.tile, i);
  if (found == expected) return DifferenceClass::kFollowsScale;
  if (is_unordered(recipe_, element, expected, found)) {
    return is_nan(b.wide(i)) ? DifferenceClass::kNanCode : DifferenceClass::kOtherCode;
  }
  if (is_nan(b.wide(i))) return DifferenceClass::kNanCode;
  const int e = ordinal_of_code(element, expected), f = ordinal_of_code(element, found);
  if (e == 0 && f == 0) return DifferenceClass::kSignOfZero;
  if (std::abs(e - f) != 1) return DifferenceClass::kOtherCode;
  const bool is_int4 = element.is_twos_complement() && recipe_.nvfp4.int4_candidate;
  if (recipe_.format.lut == nullptr && !is_int4 && std::isfinite(b.wide(i))) {
    const std::uint8_t* scale = b.scale_differs ? b.found_scale : b.scale;
    const bool choice = is_other_candidate(b) ? !b.choice : b.choice;
    const double y = scaled_magnitude(recipe_, b.outer, scale, choice, i, b.wide(i), b.source());
    const double between = std::abs(double{decode<Lane<1>>(element, expected)}) +
                           std::abs(double{decode<Lane<1>>(element, found)});
    if (2 * y == between) return DifferenceClass::kTie;
  }
  return DifferenceClass::kAdjacentCode;
}

void BlockClassifier::classify_codes(const Block& b, BlockVerdict& verdict) const {
  for (int i = 0; i < b.n; ++i) {
    const std::uint32_t expected = b.code(b.expected.tile, i);
    if (b.code(*b.found.tile, i) == expected) continue;
    const bool is_inside = i < b.inside;
    const DifferenceClass c =
        class_of_code(b, i, b.scale_differs ? code_under_found(b, i).value_or(expected) : expected);
    const int before = verdict.accepted;
    count(c, is_inside, verdict);
    if (is_inside && verdict.accepted == before) ++verdict.elements;
  }
}

void BlockClassifier::classify_values(const Block& b, BlockVerdict& verdict) const {
  const auto want = [&](int i) { return b.expected.values[b.row * b.x.cols + b.first + i]; };
  const auto got = [&](int i) { return b.found.values[b.row * b.x.cols + b.first + i]; };
  int differing = 0;
  for (int i = 0; i < b.n; ++i) differing += same_pattern(want(i), got(i)) ? 0 : 1;
  if (differing == 0) return;

  // The block with other codes under the same scale, or with the other candidate.
  const auto decoded = [&](const std::uint8_t* scale, bool choice, const auto& code_of) {
    QuantizedTile one;
    resize(one, recipe_, 1, recipe_.format.block);
    for (int i = 0; i < b.n; ++i) {
      const std::uint32_t code = code_of(i);
      one.codes[static_cast<std::size_t>(i * recipe_.code_bytes())] =
          static_cast<std::uint8_t>(code);
      if (recipe_.code_bytes() == 2) {
        one.codes[static_cast<std::size_t>(2 * i + 1)] = static_cast<std::uint8_t>(code >> 8);
      }
    }
    if (scale != nullptr) std::copy_n(scale, recipe_.format.scale_bytes, one.scales.begin());
    if (!one.choices.empty()) one.choices[0] = choice ? 1 : 0;
    std::vector<float> values(static_cast<std::size_t>(recipe_.format.block));
    backend_.dequantize(recipe_, one, {&b.outer, 1}, values.data(), recipe_.format.block);
    for (float& v : values) v = rounded_to(b.found.dtype, v);
    return values;
  };
  bool is_other = b.has_other;
  if (b.has_other) {
    const std::vector<float> other =
        decoded(&b.other_scale, !b.choice, [&](int i) { return std::uint32_t{b.other_codes[i]}; });
    for (int i = 0; i < b.n; ++i) {
      is_other = is_other && same_pattern(other[static_cast<std::size_t>(i)], got(i));
    }
  }
  const MinifloatSpec element = element_of(recipe_, b.choice);
  std::vector<float> above, below;
  if (!is_other && recipe_.code_bytes() == 1 && recipe_.format.lut == nullptr) {
    const auto moved = [&](int by) {
      return decoded(b.scale, b.choice, [&](int i) {
        const int largest =
            static_cast<int>(element.is_twos_complement() ? element.code_count() / 2 - 1
                                                          : element.max_finite_code());
        const int ordinal = ordinal_of_code(element, b.code(b.expected.tile, i)) + by;
        return code_of_ordinal(element, std::clamp(ordinal, -largest, largest));
      });
    };
    above = moved(1);
    below = moved(-1);
  }
  if (is_other) count(DifferenceClass::kChoiceFlipped, true, verdict);
  for (int i = 0; i < b.n; ++i) {
    if (same_pattern(want(i), got(i))) continue;
    DifferenceClass c = DifferenceClass::kValue;
    const auto k = static_cast<std::size_t>(i);
    if (is_nan(b.wide(i))) {
      c = DifferenceClass::kNanCode;
    } else if (want(i) == 0 && got(i) == 0) {
      c = DifferenceClass::kSignOfZero;
    } else if (is_other) {
      c = DifferenceClass::kFollowsScale;
    } else if (!above.empty() &&
               (same_pattern(above[k], got(i)) || same_pattern(below[k], got(i)))) {
      c = DifferenceClass::kAdjacentCode;
    }
    const int before = verdict.accepted;
    count(c, i < b.inside, verdict);
    if (i < b.inside && verdict.accepted == before) ++verdict.elements;
  }
}

BlockVerdict BlockClassifier::classify(const Tile& x, const TileSpan& span, const Side& expected,
                                       const FoundTile& found, std::int64_t row,
                                       std::int64_t block) const {
  BlockVerdict verdict;
  const std::int64_t first = block * recipe_.format.block;
  const auto n = static_cast<int>(std::min<std::int64_t>(recipe_.format.block, x.cols - first));
  const std::int64_t left = inside_.cols - (span.col + first);
  const bool row_is_inside = span.row + row < inside_.rows;
  Block b{x,
          expected,
          found,
          row,
          block,
          first,
          n,
          row_is_inside ? static_cast<int>(std::clamp<std::int64_t>(left, 0, n)) : 0,
          outer_of_row(recipe_, expected.outer, row),
          row * expected.tile.blocks_per_row + block};
  const auto bytes = static_cast<std::int64_t>(recipe_.format.scale_bytes);
  if (bytes > 0) b.scale = expected.tile.scales.data() + b.at * bytes;
  if (recipe_.chooses()) b.choice = expected.tile.choices[static_cast<std::size_t>(b.at)] != 0;
  if (recipe_.chooses()) take_other_candidate(recipe_, b);
  const bool is_inside = b.inside > 0;
  if (found.tile != nullptr && !found.tile->scales.empty()) {
    b.found_scale = found.tile->scales.data() + b.at * bytes;
    b.scale_differs = !std::equal(b.scale, b.scale + bytes, b.found_scale);
    if (b.scale_differs &&
        !(found.scales_are_shared && (span.row + row) % recipe_.format.block_rows != 0)) {
      const DifferenceClass c = class_of_scale(b);
      count(c, is_inside, verdict);
      if (is_inside) verdict.scales = 1;
      if (is_inside && c == DifferenceClass::kScaleOffByOne) {
        const std::int64_t n = recipe_.family == Family::kHif4 ? 1 : bytes;
        verdict.one_above = little_endian(b.found_scale, n) > little_endian(b.scale, n) ? 1 : 0;
      }
    }
  }
  if (found.choices != nullptr) {
    // The byte: anything but 0 and 1 is no choice.
    if (found.choices[b.at] != (b.choice ? 1 : 0)) {
      count(DifferenceClass::kChoiceBit, is_inside, verdict);
      if (is_inside) verdict.choices = 1;
    }
  }
  if (found.tile != nullptr && !found.tile->codes.empty()) classify_codes(b, verdict);
  if (found.values != nullptr) classify_values(b, verdict);
  return verdict;
}

}  // namespace fp4scope
