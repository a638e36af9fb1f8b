// trace_families.h: the block that a family traces, and what the traces share. Private to
// sim/trace. A family fills phases, candidates, levels, elements, scale bytes and the choice;
// trace.cc does the rest and compares with the backend.
#pragma once
#include <initializer_list>
#include <string>
#include <vector>

#include "sim/trace/traced_lane.h"

namespace fp4scope {

// The rows of the tile that share the scales of the block, cut to the block; row 0 of `tile` is the
// first of them. Padding is added by x().
struct TraceJob {
  const Recipe& recipe;
  const Tile& tile;  // [rows of the block, valid columns]
  std::int64_t row;  // of `tile`: the traced one
  OuterScale32 outer;
  BlockTrace& out;

  int block() const { return recipe.format.block; }
  // A row of the block, padded with +0.
  std::vector<float> x(std::int64_t r) const;
  std::vector<TracedFloat> traced_x(std::int64_t r) const;
  // Random bytes of the traced row, 0 for padding; empty without stochastic rounding.
  std::vector<std::uint8_t> random() const;
};

void trace_mx(const TraceJob& job);
void trace_nvfp4(const TraceJob& job);
void trace_hif4(const TraceJob& job);
void trace_int4(const TraceJob& job);
void trace_fp8(const TraceJob& job);
void trace_pass(const TraceJob& job);

// --- pieces ---

TracePhase& add_phase(BlockTrace& trace, std::string title, std::string formula = "");
// A step that states a fact: a rule in words with what it gives.
TraceStep stated(std::string what, std::string expression, float value);
TraceStep stated(std::string what, std::string expression);  // without a number
// "the largest of ... is |-1.4|, element 2 of row 0": where the maximum of the block is. `bits` are
// those of the magnitude.
TraceStep amax_step(const TraceJob& job, std::uint32_t bits);

// Runs body(), whose steps go into `steps`.
template <class Body>
auto recorded(std::vector<TraceStep>& steps, const Body& body) {
  const Recording recording(steps);
  return body();
}

// The element of the traced row: encode() gives its code, decode() its value, both over TraceLane.
// What the last cast got becomes `scaled`.
template <class Encode, class Decode>
void add_element(const TraceJob& job, int index, const Encode& encode, const Decode& decode) {
  TracedElement element;
  element.index = index;
  element.code = recorded(element.steps, encode);
  // The value that an encoder takes along for an error sum: it comes again below.
  if (!element.steps.empty() && element.steps.back().kind == StepKind::kDecode) {
    element.steps.pop_back();
  }
  for (const TraceStep& step : element.steps) {
    if (step.kind != StepKind::kCast) continue;
    element.scaled = step.a;
    element.tie = step.is_tie;
    element.saturated = step.is_saturated;
  }
  element.value = recorded(element.steps, decode);
  job.out.elements.push_back(std::move(element));
}

}  // namespace fp4scope
