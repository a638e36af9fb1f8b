// trace_numbers.cc: families whose blocks have one number as scale (INT4, FP8) or none (bf16), step
// by step.
#include <fmt/format.h>

#include "sim/cpu_runs.h"
#include "sim/rcp_table.h"
#include "sim/trace/trace_families.h"
#include "sim/trace/traced_steps.h"

namespace fp4scope {
namespace {

using L = TraceLane;
using S = Lane<1>;

RunMaximum block_maximum(const TraceJob& job) {
  RunMaximum m;
  for (std::int64_t r = 0; r < job.tile.rows; ++r) {
    include_run(m, job.tile.f32 + r * job.tile.stride, job.tile.cols);
  }
  return m;
}

// The stored bytes of a block scale, and the value that they stand for.
float store(const TraceJob& job, float scale, TracePhase& phase) {
  const BlockFormat& format = job.recipe.format;
  std::vector<std::uint8_t>& bytes = job.out.scale_bytes;
  bytes.resize(static_cast<std::size_t>(format.scale_bytes));
  store_scale(format, scale, bytes.data());
  const float loaded = load_scale(format, bytes.data());
  std::string hex;
  for (std::size_t i = bytes.size(); i-- > 0;) hex += fmt::format("{:02x}", bytes[i]);
  phase.steps.push_back(
      stated("stored scale", fmt::format("0x{} = {}", hex, float_text(loaded)), loaded));
  return loaded;
}

TracedFloat lut_value(const Lut& lut, std::uint32_t code) {
  return traced::decoded("entry", code, lut.count > 16 ? 8 : 4, lut.value[code]);
}

// What both families do per element: `scaled` of one input, `encode` of that, `decode` of a code.
template <class Scaled, class Encode, class Decode>
void trace_elements(const TraceJob& job, const Scaled& scaled, const Encode& encode_one,
                    const Decode& decode_one) {
  const std::vector<TracedFloat> x = job.traced_x(job.row);
  const std::vector<std::uint8_t> random = job.random();
  const Lut* lut = job.recipe.format.lut;
  for (int i = 0; i < job.block(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    std::uint32_t code = 0;
    add_element(
        job, i,
        [&] {
          const TracedFloat y = scaled(x[at]);
          code = lut != nullptr ? lut_encode(*lut, y)
                                : encode_one(y, random.empty() ? 0u : std::uint32_t{random[at]});
          return code;
        },
        [&] { return decode_one(code); });
  }
}

}  // namespace

void trace_int4(const TraceJob& job) {
  const Recipe& recipe = job.recipe;
  const BlockFormat& format = recipe.format;
  const Int4Options& o = recipe.int4;
  const float max = element_max(format);
  const float div = format.lut != nullptr ? max : int4_scale_div(o, format.element, max);
  const RunMaximum m = block_maximum(job);
  job.out.amax = bit_cast<float>(m.amax);
  add_phase(job.out, "group maximum amax").steps.push_back(amax_step(job, m.amax));
  TracePhase& phase =
      add_phase(job.out, "group scale", fmt::format("from amax / {}", float_text(div)));
  const Int4Scale<L> s = recorded(phase.steps, [&] {
    return int4_scale<L>({o, format.levels[0].kind, div}, TracedFloat{job.out.amax});
  });
  const float stored = store(job, s.stored, phase);
  phase.steps.push_back(stated("divisor of the elements", float_text(s.divisor), s.divisor));
  const Rounding rounding = recipe.sr.enabled ? Rounding::kStochastic : Rounding::kEven;
  const DType16 type = int4_quotient_type(o);
  trace_elements(
      job,
      [&](TracedFloat x) {
        if (format.lut != nullptr) return round_to_dtype<L>(type, x / s.divisor);
        return int4_scaled<L>(int4_step(o.order), type, format.element, x, s.divisor, s.stored);
      },
      [&](TracedFloat y, std::uint32_t random) {
        return encode<L>(format.element, rounding, y, random);
      },
      [&](std::uint32_t code) {
        if (format.lut != nullptr)
          return round_to_dtype<L>(o.dtype, lut_value(*format.lut, code) * TracedFloat{stored});
        return int4_decode<L>(o.dtype, format.element, code, TracedFloat{stored});
      });
}

void trace_fp8(const TraceJob& job) {
  const Recipe& recipe = job.recipe;
  const BlockFormat& format = recipe.format;
  const Fp8Options& o = recipe.fp8;
  const Fp8Rules rules{o, element_max(format),
                       o.div == Div::kTriton ? rcp_bytes(recipe, o.rcp) : nullptr};
  const bool is_outer = format.scale_bytes == 0;
  const RunMaximum m = block_maximum(job);
  const bool is_nan = m.has_nan() && fp8_propagates_nan(o.order);
  job.out.amax = bit_cast<float>(is_nan ? kQuietNanBits : m.amax);
  const float amax = is_outer ? job.outer.amax : job.out.amax;
  const char* level = !is_outer ? "block" : recipe.scales_rows() ? "row" : "tensor";
  if (is_outer) {
    add_phase(job.out, fmt::format("maximum of the {}", level))
        .steps.push_back(stated("amax", float_text(amax), amax));
  } else {
    add_phase(job.out, "block maximum amax")
        .steps.push_back(amax_step(job, bit_cast<std::uint32_t>(amax)));
  }
  TracePhase& phase =
      add_phase(job.out, fmt::format("scale of the {}", level),
                fmt::format("from amax and the largest element {}", float_text(rules.max)));
  const Fp8Scale<L> s =
      recorded(phase.steps, [&] { return fp8_scale<L>(rules, TracedFloat{amax}); });
  const bool divides = fp8_step(o) == Fp8Step::kDivide;
  phase.steps.push_back(stated(divides ? "divisor of the elements" : "factor of the elements",
                               float_text(s.factor), s.factor));
  float decode_scale = job.outer.g;
  if (is_outer) {
    const bool is_derived =
        bit_cast<std::uint32_t>(s.scale.v) == bit_cast<std::uint32_t>(decode_scale);
    phase.steps.push_back(stated(is_derived ? "decode scale" : "decode scale, given from outside",
                                 float_text(decode_scale), decode_scale));
  } else {
    decode_scale = store(job, s.scale, phase);
  }
  const Rounding rounding = recipe.sr.enabled ? Rounding::kStochastic : Rounding::kEven;
  trace_elements(
      job, [&](TracedFloat x) { return fp8_scaled<L>(fp8_step(o), o.dtype, x, s.factor); },
      [&](TracedFloat y, std::uint32_t random) {
        return fp8_element<L>(fp8_cast(o.order), format.element, rounding, y, random);
      },
      [&](std::uint32_t code) {
        if (format.lut != nullptr) return lut_value(*format.lut, code) * TracedFloat{decode_scale};
        return fp8_decode<L>(format.element, code, TracedFloat{decode_scale});
      });
}

void trace_pass(const TraceJob& job) {
  const RunMaximum m = block_maximum(job);
  job.out.amax = bit_cast<float>(m.amax);
  const std::vector<TracedFloat> x = job.traced_x(job.row);
  for (int i = 0; i < job.block(); ++i) {
    TracedFloat rounded{0.0f};
    const TracedFloat v = x[static_cast<std::size_t>(i)];
    add_element(
        job, i,
        [&] {
          rounded = round_to_bf16<L>(v);
          return bit_cast<std::uint32_t>(rounded.v) >> 16;
        },
        [&] { return rounded; });
    TracedElement& e = job.out.elements.back();
    e.scaled = v;
    e.tie = is_tie_of(kBF16, v.v);
  }
}

}  // namespace fp4scope
