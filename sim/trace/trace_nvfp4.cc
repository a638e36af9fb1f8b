// trace_nvfp4.cc: NVFP4, if4, nvint4 and user-defined formats of that shape, step by step.
#include <fmt/format.h>

#include "sim/nvfp4_panels.h"
#include "sim/trace/trace_families.h"

namespace fp4scope {
namespace {

using L = TraceLane;
using Order = Nvfp4Order;

// The rules in the symbols of formats/codecs/nvfp4_contracts.h, for the reader alone.
struct Formula {
  Order order;
  const char* scale;
  const char* adaptive;  // the scale under an adaptive choice where it differs
  const char* inverse;
};
constexpr Formula kFormulas[] = {
    {Order::kTe, "bmax * (g * 1/FMAX)", "(bmax / 6) * g, map-to-4: * 1.5", "1 / (sf * (1/g))"},
    {Order::kTeFast, "bmax * (g * 1/FMAX)", "(bmax / 6) * g, map-to-4: * 1.5",
     "static: BF16(g / sf); adaptive: 1 / (sf * (1/g))"},
    {Order::kFlashinfer, "bmax * (g * 1/FMAX)", "(bmax / 6) * g, map-to-4: * 1.5",
     "1 / (sf * (1/g))"},
    {Order::kFlashinferFast, "g * (bmax * rcp~(FMAX))", "g * (bmax * rcp~(6)), map-to-4: * 1.5",
     "rcp~(sf * rcp~(g))"},
    {Order::kTrtllm, "g * (bmax * rcp~(FMAX))", nullptr, "rcp~(sf * rcp~(g))"},
    {Order::kVllm, "g * (bmax * rcp~(FMAX))", nullptr, "rcp~(sf * rcp~(g))"},
    {Order::kFouroversix, "(bmax / FMAX) * g", "(bmax / 6) * g, map-to-4: * 1.5",
     "1 / ((1/g) * sf)"},
    {Order::kFouroversixCuda, "(bmax / FMAX) * g", "(bmax / 6) * g, map-to-4: * 1.5",
     "1 / (sf * (1/g))"},
    {Order::kModelopt, "bmax / (FMAX * g), g the decode scale", nullptr,
     "elements are divided by sf * g"},
    {Order::kModeloptStatic, "(bmax / FMAX) * M / (amax / FMAX)", nullptr,
     "elements are divided by sf * g"},
    {Order::kCompressedTensors, "g * dt(dt(bmax) / FMAX)", nullptr,
     "elements are divided by sf / g"},
    {Order::kTorchao, "(bmax / FMAX) / g, g the decode scale", nullptr, "(1/g) / sf"},
    {Order::kMlxMetal, "(bmax / FMAX) * g", nullptr, "g / sf"},
    {Order::kMlxCuda, "(bmax / FMAX) * g", nullptr, "g / sf"},
    {Order::kMlxCpu, "dt(bmax / FMAX)", nullptr, "elements are divided by sf"},
    {Order::kOnednn, "bmax / FMAX, at least 1/8", nullptr, "1 / sf"},
    {Order::kMslk, "(bmax / FMAX) * g", nullptr, "g / sf"},
    {Order::kMslkE8m0, "power of two near (bmax / 4) * g", nullptr, "g / sf"},
    {Order::kFlashinferKv, "rcp~(g) * (bmax * rcp~(FMAX))", nullptr, "rcp~(sf * g)"},
};
const Formula& formula_of(Order order) {
  for (const Formula& f : kFormulas) {
    if (f.order == order) return f;
  }
  return kFormulas[0];
}
std::string scale_formula(const Nvfp4Options& o) {
  const Formula& f = formula_of(o.order);
  const char* text = o.is_adaptive() && f.adaptive != nullptr ? f.adaptive : f.scale;
  return fmt::format("s = {}", text);
}

// nvfp4_row() derives two numbers; an order that does not use one of them shows neither its steps.
bool uses_inverse(const Nvfp4Rules& r) {
  switch (r.options.order) {
    case Order::kModelopt:
    case Order::kModeloptStatic:
      return true;  // its one number is k
    case Order::kCompressedTensors:
    case Order::kMlxMetal:
    case Order::kMlxCuda:
    case Order::kMlxCpu:
    case Order::kOnednn:
    case Order::kMslk:
    case Order::kMslkE8m0:
      return false;
    default:
      return true;
  }
}
bool uses_k(const Nvfp4Rules& r) {
  const Order order = r.options.order;
  if (nvfp4_is_te(order) || order == Order::kFlashinfer) return !r.options.is_adaptive();
  return order != Order::kFouroversix && order != Order::kFouroversixCuda &&
         order != Order::kTorchao;
}

struct Context {
  const TraceJob& job;
  Nvfp4Rules rules;
  Nvfp4Row row;
  int n;
  BlockTrace& out;
  Nvfp4Outer outer() const { return {job.outer.amax, job.outer.g}; }
};

void trace_outer(const Context& c) {
  const Nvfp4Options& o = c.rules.options;
  const OuterScale32& outer = c.job.outer;
  const char* level = o.scale == OuterScale::kRow ? "row" : "tensor";
  if (o.scale == OuterScale::kNone) {
    add_phase(c.out, "outer scale").steps.push_back(stated("scale=none", "g = 1", outer.g));
  } else {
    TracePhase& phase = add_phase(c.out, fmt::format("outer scale g of the {}", level));
    const auto amax_bits = bit_cast<std::uint32_t>(outer.amax);
    std::vector<TraceStep> steps;
    const Nvfp4Outer derived = recorded(steps, [&] { return nvfp4_outer<L>(c.rules, amax_bits); });
    if (o.scale == OuterScale::kGiven) {
      phase.steps.push_back(
          stated("scale=given", fmt::format("g = {}", float_text(outer.g)), outer.g));
    } else {
      phase.steps.push_back(
          stated(fmt::format("amax of the {}", level), float_text(outer.amax), outer.amax));
      phase.steps.insert(phase.steps.end(), steps.begin(), steps.end());
      const bool is_derived =
          bit_cast<std::uint32_t>(derived.g) == bit_cast<std::uint32_t>(outer.g);
      if (!is_derived) phase.steps.resize(1);
      phase.steps.push_back(
          stated(is_derived ? "g" : "g, given from outside", float_text(outer.g), outer.g));
    }
  }
  std::vector<TraceStep> steps;
  recorded(steps, [&] { return nvfp4_row<L>(c.rules, c.outer()); });
  if (!uses_k(c.rules)) {
    for (std::size_t i = steps.size(); i-- > 0;) {
      const bool is_start = steps[i].op == '/' && steps[i].b == c.rules.element_max;
      if (!is_start) continue;
      steps.resize(i);
      break;
    }
  }
  if (!uses_inverse(c.rules) || steps.empty()) return;
  add_phase(c.out, "derived from g once").steps = std::move(steps);
}

struct Candidate {
  Nvfp4Candidate<L> c;
  float s = 0;
};
Candidate trace_scale(const Context& c, TracedFloat bmax, bool four, const std::string& name) {
  const std::string suffix = name.empty() ? "" : ", " + name;
  Candidate out;
  std::vector<TraceStep> steps;
  const TracedFloat s =
      recorded(steps, [&] { return nvfp4_scale_value<L>(c.rules, c.row, bmax, four); });
  out.s = s;
  out.c.scale = recorded(steps, [&] { return nvfp4_scale_code<L>(c.rules, s); });
  steps.push_back(
      stated("sf",
             fmt::format("{} = {}", code_text(out.c.scale, c.rules.scale.storage_bits()),
                         float_text(decode<Lane<1>>(c.rules.scale, out.c.scale))),
             decode<Lane<1>>(c.rules.scale, out.c.scale)));
  add_phase(c.out, "block scale" + suffix, scale_formula(c.rules.options)).steps = std::move(steps);
  steps.clear();
  out.c.inverse =
      recorded(steps, [&] { return nvfp4_inverse<L>(c.rules, c.row, out.c.scale, bmax, s); });
  const bool divides = nvfp4_divides(c.rules.options.order);
  steps.push_back(stated(divides ? "divisor of the elements" : "factor of the elements",
                         float_text(out.c.inverse), out.c.inverse));
  add_phase(c.out, (divides ? "divisor" : "inverse") + suffix,
            formula_of(c.rules.options.order).inverse)
      .steps = std::move(steps);
  return out;
}

// A candidate on every row of the block; what the traced row gives is kept.
TracedCandidate trace_try(const Context& c, const Nvfp4Candidate<L>& candidate, bool integer,
                          const char* name) {
  TracedCandidate t;
  t.name = name;
  t.scale = candidate.scale;
  t.scale_value = decode<Lane<1>>(c.rules.scale, candidate.scale);
  const bool is_2d = c.job.recipe.is_2d();
  const int rows = is_2d ? c.n : 1;  // rows beyond the tensor are +0 and take part
  std::vector<TracedFloat> errors;
  for (int i = 0; i < rows; ++i) {
    const std::int64_t r = is_2d ? i : c.job.row;
    const std::vector<TracedFloat> x =
        r < c.job.tile.rows ? c.job.traced_x(r)
                            : std::vector<TracedFloat>(static_cast<std::size_t>(c.n), 0.0f);
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(c.n));
    std::uint32_t ignored = 0;
    std::vector<TraceStep> steps;
    errors.push_back(recorded(steps, [&] {
      return nvfp4_try<L>(c.rules, c.row, c.n, candidate, integer, x.data(), codes.data(), ignored);
    }));
    if (r != c.job.row) continue;
    t.steps = std::move(steps);
    t.codes = std::move(codes);
    for (int k = 0; k < c.n; ++k) {
      const TracedFloat v = x[static_cast<std::size_t>(k)];
      const TracedFloat q =
          nvfp4_element<L>(c.rules, v, candidate.inverse, integer, nullptr, ignored).value;
      t.differences.push_back(
          nvfp4_difference<L>(c.rules, c.row, v, q, TracedFloat{t.scale_value}, integer));
    }
  }
  t.error = errors[0];
  if (!is_2d) return t;
  for (const TracedFloat e : errors) t.row_errors.push_back(e);
  t.error = recorded(
      t.steps, [&] { return nvfp4_panels::over_rows<L>(c.rules.options, errors.data(), rows); });
  return t;
}

std::string decision(const Nvfp4Choice<Lane<1>>& c, const TracedCandidate& four,
                     const TracedCandidate& six) {
  if (c.is_zero != 0) return "a zero block: zero bytes, nothing is compared";
  const std::string errors =
      fmt::format("{} {}, {} {}", four.name, float_text(c.error4), six.name, float_text(c.error6));
  if (c.is_four != 0) return errors + ": the first is smaller";
  return errors + (c.error4 == c.error6  ? ": a tie takes the second"
                   : c.error4 > c.error6 ? ": the second is smaller"
                                         : ": a NaN takes the second");
}

// What the elements of the block are encoded with.
struct Chosen {
  TracedFloat inverse;
  bool integer = false, is_zero = false;
};

Chosen trace_adaptive(const Context& c, TracedFloat bmax) {
  const bool integer = c.rules.options.int4_candidate;
  const char* names[2] = {integer ? "INT4" : "map-to-4", integer ? "E2M1" : "map-to-6"};
  const Candidate four = trace_scale(c, bmax, true, names[0]);
  const Candidate six = trace_scale(c, bmax, false, names[1]);
  TracedCandidate t4 = trace_try(c, four.c, integer, names[0]);
  TracedCandidate t6 = trace_try(c, six.c, false, names[1]);
  // The decision itself, by the text that makes it.
  Nvfp4Choice<Lane<1>> choice = nvfp4_candidates<Lane<1>>(c.rules, c.row, bmax.v);
  choice.error4 = t4.error;
  choice.error6 = t6.error;
  nvfp4_decide<Lane<1>>(choice);
  const bool is_four = choice.is_four != 0;
  t4.error = choice.error4;
  t6.error = choice.error6;
  t4.chosen = is_four;
  t6.chosen = !is_four;
  const std::uint32_t scale = nvfp4_chosen_scale<Lane<1>>(c.rules, choice);
  TracePhase& phase = add_phase(c.out, "choice");
  phase.steps.push_back(stated("errors", decision(choice, t4, t6)));
  phase.steps.push_back(
      stated("scale byte", code_text(scale, 8),
             decode<Lane<1>>(c.rules.scale, scale & c.rules.scale.magnitude_mask())));
  c.out.scale_bytes = {static_cast<std::uint8_t>(scale)};
  c.out.choice = is_four ? 1 : 0;
  c.out.candidates = {std::move(t4), std::move(t6)};
  return {is_four ? four.c.inverse : six.c.inverse, is_four && integer, choice.is_zero != 0};
}

void trace_elements(const Context& c, const Chosen& chosen) {
  const std::vector<TracedFloat> x = c.job.traced_x(c.job.row);
  const std::vector<std::uint8_t> random = c.job.random();
  const std::uint32_t scale = c.out.scale_bytes[0];
  const bool has_factor = nvfp4_has_factor(c.rules.options.order);
  TracedFloat factor{0.0f};
  if (has_factor) {
    TracePhase& phase = add_phase(c.out, "decode factor", "value = code * f");
    factor =
        recorded(phase.steps, [&] { return nvfp4_decode_factor<L>(c.rules, c.outer(), scale); });
  }
  for (int i = 0; i < c.n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::uint8_t* byte = random.empty() ? nullptr : random.data() + i;
    std::uint32_t ignored = 0, code = 0;
    const auto encode_one = [&] {
      code = nvfp4_element<L>(c.rules, x[at], chosen.inverse, chosen.integer, byte, ignored).code;
      if (chosen.is_zero) {
        traced::statement("zero block", "every code is 0");
        code = 0;
      }
      return code;
    };
    const auto decode_one = [&]() -> TracedFloat {
      if (has_factor) return nvfp4_decode_element<L>(c.rules, code) * factor;
      return nvfp4_decode_chain<L>(c.rules, c.outer(), scale, code);
    };
    add_element(c.job, i, encode_one, decode_one);
  }
}

}  // namespace

void trace_nvfp4(const TraceJob& job) {
  Nvfp4Rules rules = nvfp4_rules_of(job.recipe);
  rules.dtype = job.tile.source == SourceType::kBf16  ? DType16::kBf16
                : job.tile.source == SourceType::kF16 ? DType16::kF16
                                                      : DType16::kF32;
  const Nvfp4Outer outer{job.outer.amax, job.outer.g};
  const Context c{job, rules, nvfp4_row(rules, outer), job.block(), job.out};
  trace_outer(c);
  std::uint32_t amax = 0;
  for (std::int64_t r = 0; r < job.tile.rows; ++r) {
    const std::vector<float> x = job.x(r);
    amax = max_of(amax, nvfp4_block_amax<Lane<1>>(x.data(), c.n));
  }
  const TracedFloat bmax = bit_cast<float>(amax);
  job.out.amax = bmax;
  add_phase(job.out, "block maximum bmax").steps.push_back(amax_step(job, amax));
  if (rules.options.is_adaptive()) {
    trace_elements(c, trace_adaptive(c, bmax));
    return;
  }
  const Candidate one = trace_scale(c, bmax, false, "");
  job.out.scale_bytes = {static_cast<std::uint8_t>(one.c.scale)};
  trace_elements(c, {one.c.inverse});
}

}  // namespace fp4scope
