// trace_hif4.cc: HiF4, HiFX and user-defined formats with one-bit levels, step by step (Algorithm 1
// of arXiv 2602.11287 and the variants of formats/codecs/hif4.h).
#include <fmt/format.h>

#include "sim/cpu_hif4.h"
#include "sim/trace/trace_families.h"

namespace fp4scope {
namespace {

using L = TraceLane;
using S = Lane<1>;

Hif4Shape shape_of(const Recipe& recipe) {
  const BlockFormat& format = recipe.format;
  if (recipe.shape.empty()) return hif4_shape(format.element);
  Hif4Shape shape;
  shape.element = format.element;
  shape.scale = format.levels[0].spec;
  shape.block = format.block;
  shape.outer = format.num_levels == 3 ? format.levels[1].group : 0;
  shape.inner = format.levels[static_cast<std::size_t>(format.num_levels - 1)].group;
  shape.factor = hif4_factor(format.element, shape.levels());
  return shape;
}

// A group on its way, element arrays of the traced row. Maxima are plain numbers: nothing is
// rounded in them.
struct Group {
  const TraceJob& job;
  Hif4Options options;
  Hif4Shape shape;
  std::vector<TracedFloat> a;
  std::vector<std::uint32_t> sign;
  std::vector<TracedFloat> outer_max, inner_max;  // of the elements under each bit
  float vm = 0;
  std::uint32_t nonfinite = 0;              // of all rows that share the scale
  std::vector<std::uint32_t> outer, inner;  // level bits as computed
  std::vector<TracedFloat> shift;
};

std::vector<float> magnitudes(const Group& g, std::int64_t r, std::vector<std::uint32_t>& sign,
                              std::uint32_t& nonfinite) {
  const std::vector<float> x = g.job.x(r);
  std::vector<float> a(x.size());
  sign.resize(x.size());
  nonfinite |= hif4_magnitudes<S>(g.options, g.shape.block, x.data(), a.data(), sign.data());
  return a;
}

void measure_row(Group& g) {
  const std::vector<float> a = magnitudes(g, g.job.row, g.sign, g.nonfinite);
  g.a.assign(a.begin(), a.end());
  std::vector<float> inner(static_cast<std::size_t>(g.shape.inner_bits())),
      outer(static_cast<std::size_t>(g.shape.outer_bits()));
  hif4_maxima<S>(g.shape.inner_bits(), g.shape.inner, a.data(), inner.data());
  hif4_maxima<S>(g.shape.outer_bits(), g.shape.outer / g.shape.inner, inner.data(), outer.data());
  hif4_maxima<S>(1, g.shape.inner_bits(), inner.data(), &g.vm);
  g.inner_max.assign(inner.begin(), inner.end());
  g.outer_max.assign(outer.begin(), outer.end());
}

// geometry=64x64: maxima over 4x4, 8x8 and 64x64.
void measure_square(Group& g) {
  Hif4Square<S> square{};
  for (std::int64_t r = 0; r < g.job.tile.rows; ++r) {
    float x[64];
    const std::vector<float> values = g.job.x(r);
    std::copy(values.begin(), values.end(), x);
    hif4_measure_row<S>(g.options, static_cast<int>(r), x, square);
  }
  std::uint32_t ignored = 0;
  const std::vector<float> a = magnitudes(g, g.job.row, g.sign, ignored);
  g.a.assign(a.begin(), a.end());
  g.nonfinite = square.refused;
  const std::int64_t four = g.job.row / 4, eight = four / 2 * 2;
  g.inner_max.assign(square.v16[four], square.v16[four] + 16);
  for (int j = 0; j < 8; ++j) {
    float largest = 0;
    for (const std::int64_t i : {eight, eight + 1}) {
      largest = max_of(largest, max_of(square.v16[i][2 * j], square.v16[i][2 * j + 1]));
    }
    g.outer_max.push_back(largest);
  }
  for (const auto& row : square.v16) {
    for (const float v : row) g.vm = max_of(g.vm, v);
  }
}

Hif4Scale<L> trace_scale(const Group& g) {
  const bool is_level1 =
      g.options.search == Hif4Search::kLevel1 || g.options.search == Hif4Search::kLevel1_3p5;
  TracePhase& phase = add_phase(
      g.job.out, fmt::format("group scale E ({})", spec_text(g.shape.scale)),
      is_level1 ? "SF = BF16(Vm / constant), E = SF rounded, R = BF16(1/E)"
                : fmt::format("SF = BF16(Vm * {}), E = SF rounded, R = BF16(1/E)",
                              g.shape.has_e6m2() ? "BF16(1/7)" : float_text(g.shape.factor)));
  const Hif4Scale<L> scale =
      recorded(phase.steps, [&] { return hif4_scale<L>(g.options, g.shape, TracedFloat{g.vm}); });
  phase.steps.push_back(stated("E",
                               fmt::format("{} = {}", code_text(scale.code, 8),
                                           float_text(decode<S>(g.shape.scale, scale.code))),
                               decode<S>(g.shape.scale, scale.code)));
  if (scale.is_nan != 0) {
    phase.steps.push_back(stated("range policy", "the NaN code is stored, magnitudes are zero",
                                 bit_cast<float>(kQuietNanBits)));
  }
  return scale;
}

void trace_level_bits(Group& g, const Hif4Scale<L>& scale) {
  const auto inner_bits = static_cast<std::size_t>(g.shape.inner_bits());
  g.outer.resize(static_cast<std::size_t>(g.shape.outer_bits()));
  g.inner.resize(inner_bits);
  g.shift.resize(inner_bits);
  const bool is_greedy = g.options.search == Hif4Search::kGreedy;
  TracePhase& phase =
      add_phase(g.job.out, "level bits",
                !is_greedy ? "all level bits are 0"
                : g.shape.outer != 0
                    ? fmt::format("outer bit: max * R >= {}; inner bit: max * R / 2^outer >= {}",
                                  float_text(g.shape.outer_threshold()),
                                  float_text(g.shape.inner_threshold()))
                    : fmt::format("bit: max * R >= {}", float_text(g.shape.inner_threshold())));
  {
    const Recording recording(phase.steps, Recording::Selects::kHidden);
    hif4_level_bits<L>(g.options, g.shape, scale.r, g.outer_max.data(), g.inner_max.data(),
                       g.outer.data(), g.inner.data(), g.shift.data());
  }
}

// search=mse: the five candidates are searched by the codec; what is shown are the errors of the
// winner under each sum of level bits.
void trace_search(Group& g, Hif4Scale<L>& scale) {
  std::vector<float> a(g.a.begin(), g.a.end());
  Hif4Choice<S> best{};
  hif4_search_mse<S>(g.options, g.shape.element, scale.code, a.data(), best);
  TracePhase& phase = add_phase(
      g.job.out, "search=mse",
      "five scale codes around that of Algorithm 1, each with its best level bits; the lowest sum "
      "of squared errors wins, ties take the lower code and bit 0");
  phase.steps.push_back(
      stated("scale code",
             fmt::format("Algorithm 1 {}, chosen {} = {}", code_text(scale.code, 8),
                         code_text(best.code, 8), float_text(decode<S>(kE6M2, best.code))),
             decode<S>(kE6M2, best.code)));
  scale.code = best.code;
  scale.r = recorded(phase.steps, [&] { return e6m2_reciprocal<L>(best.code); });
  g.outer.assign(best.e8, best.e8 + 8);
  g.inner.assign(best.e16, best.e16 + 16);
  for (std::size_t k = 0; k < 16; ++k) {
    g.shift.push_back(pow2(-static_cast<int>(g.outer[k / 2] + g.inner[k])));
  }
}

void add_levels(const Group& g, const Hif4Scale<L>& scale) {
  const bool is_greedy = g.options.search == Hif4Search::kGreedy;
  const bool is_searched = g.options.search == Hif4Search::kMse;
  const float r = scale.r;
  for (std::size_t k = 0; k < g.inner.size(); ++k) {
    TracedLevel level;
    level.count = g.shape.inner;
    level.first = static_cast<int>(k) * g.shape.inner;
    level.has_outer = g.shape.outer != 0;
    level.is_tested = is_greedy;
    level.outer_count = g.shape.outer;
    float half = 1.0f;
    if (level.has_outer) {
      const auto j = static_cast<std::size_t>(level.first / g.shape.outer);
      level.outer_max = g.outer_max[j];
      level.outer_bit = g.outer[j];
      if (is_greedy) level.outer_product = hif4_product<S>(g.options.thr, level.outer_max, r);
      if (level.outer_bit != 0) half = 0.5f;
    }
    level.inner_max = g.inner_max[k];
    level.inner_bit = g.inner[k];
    if (is_greedy) level.inner_product = hif4_product<S>(g.options.thr, level.inner_max, r) * half;
    if (is_searched) {
      const std::vector<float> a(g.a.begin() + level.first, g.a.begin() + level.first + 4);
      for (int s = 0; s < 3; ++s) {
        level.errors.push_back(hif4_error_of_four<S>(g.options, g.shape.element, a.data(), r,
                                                     decode<S>(kE6M2, scale.code), s));
      }
    }
    g.job.out.levels.push_back(std::move(level));
  }
}

// Scale byte, then the bits of each level in whole bytes, LSB first.
void store_scale(const Group& g, const Hif4Scale<L>& scale) {
  const Hif4Scale<S> stored{scale.code, scale.r, scale.is_nan};
  std::vector<std::uint8_t>& out = g.job.out.scale_bytes;
  out.push_back(
      static_cast<std::uint8_t>(hif4_stored_scale<S>(g.options, g.shape, stored, g.nonfinite)));
  for (const std::vector<std::uint32_t>* bits : {&g.outer, &g.inner}) {
    const std::size_t first = out.size();
    out.resize(first + (bits->size() + 7) / 8, 0);
    for (std::size_t i = 0; i < bits->size() && scale.is_nan == 0; ++i) {
      out[first + i / 8] |= static_cast<std::uint8_t>((*bits)[i] << (i % 8));
    }
  }
}

void trace_elements(const Group& g, const Hif4Scale<L>& scale) {
  const std::vector<std::uint8_t> random = g.job.random();
  const bool is_named = g.job.recipe.shape.empty();
  const std::vector<std::uint8_t>& s = g.job.out.scale_bytes;
  const auto bit = [&](std::size_t first, int i) {
    return static_cast<std::uint32_t>(s[first + static_cast<std::size_t>(i / 8)] >> (i % 8) & 1);
  };
  const std::size_t inner_at = 1 + static_cast<std::size_t>(g.shape.outer_bits() + 7) / 8;
  for (int i = 0; i < g.shape.block; ++i) {
    const auto at = static_cast<std::size_t>(i);
    std::uint32_t code = 0;
    const std::uint32_t byte = random.empty() ? 0u : random[at];
    const auto encode_one = [&] {
      hif4_codes<L>(g.options, g.shape.element, 1, 1, scale, &g.a[at], &g.sign[at],
                    &g.shift[at / static_cast<std::size_t>(g.shape.inner)],
                    random.empty() ? nullptr : &byte, &code);
      return code;
    };
    const auto decode_one = [&]() -> TracedFloat {
      if (is_named) {
        const std::uint32_t level3 = s[2] | static_cast<std::uint32_t>(s[3]) << 8;
        return hif4_decode<L>(g.shape.element, code, hif4_decode_scale<L>(s[0], s[1], level3, i));
      }
      const std::uint32_t outer = g.shape.outer != 0 ? bit(1, i / g.shape.outer) : 0u;
      const std::uint32_t inner = bit(inner_at, i / g.shape.inner);
      return hif4_decode_any<L>(g.shape, code, s[0], static_cast<int>(outer + inner));
    };
    add_element(g.job, i, encode_one, decode_one);
  }
}

}  // namespace

void trace_hif4(const TraceJob& job) {
  Group g{job, codec_options(job.recipe), shape_of(job.recipe), {}, {}, {}, {}, 0, 0, {}, {}, {}};
  const bool is_square = g.options.geometry == Hif4Geometry::k64x64;
  is_square ? measure_square(g) : measure_row(g);
  if (g.options.cast == Hif4Cast::kBf16) {
    job.out.notes.emplace_back("Every element is first rounded to BF16 (cast=bf16).");
  }
  if (g.nonfinite != 0) {
    job.out.notes.emplace_back(
        "The group holds NaN or Inf: see nonfinite in the recipe for what they count as.");
  }
  job.out.amax = g.vm;
  const std::uint32_t bits = bit_cast<std::uint32_t>(g.vm);
  add_phase(job.out, "group maximum Vm").steps.push_back(amax_step(job, bits));
  Hif4Scale<L> scale = trace_scale(g);
  if (g.options.search == Hif4Search::kMse && !is_square && !job.recipe.sr.enabled) {
    trace_search(g, scale);
  } else {
    trace_level_bits(g, scale);
  }
  add_levels(g, scale);
  store_scale(g, scale);
  trace_elements(g, scale);
}

}  // namespace fp4scope
