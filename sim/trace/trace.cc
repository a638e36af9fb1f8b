// trace.cc: see trace.h.
#include "sim/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/error.h"
#include "sim/quantized_tensor.h"
#include "sim/trace/trace_families.h"
#include "sim/transforms.h"

namespace fp4scope {

std::vector<float> TraceJob::x(std::int64_t r) const {
  std::vector<float> values(static_cast<std::size_t>(block()), 0.0f);
  std::copy_n(tile.f32 + r * tile.stride, tile.cols, values.begin());
  return values;
}
std::vector<TracedFloat> TraceJob::traced_x(std::int64_t r) const {
  const std::vector<float> values = x(r);
  return {values.begin(), values.end()};
}
std::vector<std::uint8_t> TraceJob::random() const {
  if (!recipe.sr.enabled) return {};
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(block()), 0);
  random_bytes(recipe, tile, row, 0, tile.cols, bytes.data());
  return bytes;
}

TracePhase& add_phase(BlockTrace& trace, std::string title, std::string formula) {
  trace.phases.push_back({std::move(title), std::move(formula), {}});
  return trace.phases.back();
}
TraceStep stated(std::string what, std::string expression, float value) {
  TraceStep step;
  step.what = std::move(what);
  step.expression = std::move(expression);
  step.value = value;
  step.bits = bit_cast<std::uint32_t>(value);
  return step;
}
TraceStep stated(std::string what, std::string expression) {
  TraceStep step = stated(std::move(what), std::move(expression), 0.0f);
  step.is_number = false;
  return step;
}
TraceStep amax_step(const TraceJob& job, std::uint32_t bits) {
  const float amax = bit_cast<float>(bits);
  std::string place = "no element but zeros and NaN";
  for (std::int64_t r = 0; bits != 0 && r < job.tile.rows; ++r) {
    const float* x = job.tile.f32 + r * job.tile.stride;
    const float* at = std::find_if(x, x + job.tile.cols, [&](float v) {
      return (bit_cast<std::uint32_t>(v) & kMagnitudeMask) == bits;
    });
    if (at == x + job.tile.cols) continue;
    place = fmt::format("element {}", at - x);
    if (job.tile.rows > 1) place += fmt::format(" of row {} of the block", r);
    break;
  }
  if (amax != amax) place = "there is a NaN";
  return stated("largest magnitude", fmt::format("{}: {}", place, float_text(amax)), amax);
}

namespace {

bool same(float a, float b) {
  return bit_cast<std::uint32_t>(a) == bit_cast<std::uint32_t>(b) || (a != a && b != b);
}

// The block and the rows that share its scales, as a tile of its own at its place in the tensor.
Tile tile_of_block(const Recipe& recipe, const Tile& tile, std::int64_t row, std::int64_t block) {
  const std::int64_t band = recipe.format.block_rows, n = recipe.format.block;
  const std::int64_t first_row = row / band * band, first_col = block * n;
  Tile out = tile;
  out.rows = std::min(band, tile.rows - first_row);
  out.cols = std::min(n, tile.cols - first_col);
  out.f32 += first_row * tile.stride + first_col;
  if (out.f64 != nullptr) out.f64 += first_row * tile.stride + first_col;
  out.first_row += first_row;
  out.first_col += first_col;
  if (out.tensor_cols == 0) out.tensor_cols = tile.cols;
  return out;
}

const Backend& reference() {
  return *cpu_backends().back();
}

struct Expected {
  QuantizedTile tile;
  std::vector<float> values;
};
Expected quantized_by_reference(const Recipe& recipe, const Tile& tile,
                                std::span<const OuterScale32> outer, std::int64_t first_row) {
  Expected e;
  e.tile.wants_errors = recipe.chooses();
  try {
    reference().quantize(recipe, tile, outer, e.tile);
  } catch (const RefusedInput& refused) {
    throw RefusedInput(first_row + refused.row(), refused.what());
  }
  e.values.resize(static_cast<std::size_t>(tile.rows * tile.cols));
  reference().dequantize(recipe, e.tile, outer, e.values.data(), tile.cols);
  return e;
}

void trace_family(const TraceJob& job) {
  switch (job.recipe.family) {
    case Family::kMx:
      return trace_mx(job);
    case Family::kNvfp4:
      return trace_nvfp4(job);
    case Family::kHif4:
      return trace_hif4(job);
    case Family::kInt4:
      return trace_int4(job);
    case Family::kFp8:
      return trace_fp8(job);
    case Family::kPass:
      return trace_pass(job);
  }
}

// What of the trace is not what the backend says; empty when all of it is.
std::string difference(const Recipe& recipe, const BlockTrace& t, const Expected& e,
                       std::int64_t row) {
  const std::int64_t width = recipe.code_bytes();
  const std::uint8_t* codes = e.tile.codes.data() + row * e.tile.padded_cols * width;
  if (t.elements.size() != static_cast<std::size_t>(e.tile.padded_cols)) return "elements";
  for (std::size_t i = 0; i < t.elements.size(); ++i) {
    std::uint32_t code = codes[i * static_cast<std::size_t>(width)];
    if (width == 2) code |= static_cast<std::uint32_t>(codes[2 * i + 1]) << 8;
    if (code != t.elements[i].code) return fmt::format("code of element {}", i);
    if (i >= static_cast<std::size_t>(e.tile.cols)) continue;
    const float value = e.values[static_cast<std::size_t>(row * e.tile.cols) + i];
    if (!same(value, t.elements[i].value)) return fmt::format("value of element {}", i);
  }
  const auto bytes = static_cast<std::size_t>(recipe.format.scale_bytes);
  const std::uint8_t* scales = e.tile.scales.data() + static_cast<std::size_t>(row) * bytes;
  if (t.scale_bytes.size() != bytes || !std::equal(scales, scales + bytes, t.scale_bytes.begin()))
    return "scale";
  if (!recipe.chooses()) return "";
  if (t.candidates.size() != 2 || t.choice != e.tile.choices[static_cast<std::size_t>(row)])
    return "choice";
  for (std::size_t i = 0; i < 2; ++i) {
    if (!same(t.candidates[i].error, e.tile.errors[static_cast<std::size_t>(2 * row) + i]))
      return "error of " + t.candidates[i].name;
  }
  return "";
}

void finish_elements(const Recipe& recipe, const Tile& tile, std::int64_t row, BlockTrace& t) {
  for (std::size_t i = 0; i < t.elements.size(); ++i) {
    TracedElement& e = t.elements[i];
    const std::int64_t at = row * tile.stride + static_cast<std::int64_t>(i);
    e.row = t.row;
    e.is_padding = static_cast<std::int64_t>(i) >= tile.cols;
    if (e.is_padding) continue;
    const bool is_binary64 = tile.f64 != nullptr && recipe.casts_f64_directly();
    e.input = is_binary64 ? tile.f64[at] : static_cast<double>(tile.f32[at]);
    if (recipe.keeps_nan_elements() && e.input != e.input) e.value = tile.f32[at];
    e.error = static_cast<double>(e.value) - e.input;
  }
}

void add_packed_codes(const Recipe& recipe, const Expected& e, std::int64_t row, BlockTrace& t) {
  t.packed_codes.resize(static_cast<std::size_t>(packed_code_bytes(recipe, e.tile.cols)));
  pack_codes(recipe, e.tile.codes.data() + row * e.tile.padded_cols * recipe.code_bytes(),
             e.tile.cols, t.packed_codes.data());
}

void add_notes(const Recipe& recipe, BlockTrace& t) {
  if (recipe.rht.size != 0) {
    t.notes.push_back(fmt::format(
        "The inputs are those after the random Hadamard transform of {} elements (rht={}).",
        recipe.rht.size, recipe.rht.size));
  }
  if (recipe.sr.enabled) {
    t.notes.emplace_back(
        "Stochastic rounding: the random bytes belong to the place of the element in the tensor.");
  }
  if (recipe.keeps_nan_elements()) {
    t.notes.emplace_back("NaN elements stay NaN in the values whatever their codes are.");
  }
}

}  // namespace

BlockTrace trace_block(const Recipe& recipe, const Tile& tile, std::span<const OuterScale32> outer,
                       std::int64_t row, std::int64_t block) {
  require_outer(recipe, tile.rows, outer.size());
  const std::int64_t n = recipe.format.block, band = recipe.format.block_rows;
  if (row < 0 || row >= tile.rows || block < 0 || block * n >= tile.cols) {
    throw Error(ErrorKind::kUsage,
                fmt::format("there is no block {} in row {} of a tile of {} x {} elements", block,
                            row, tile.rows, tile.cols));
  }
  const Tile piece = tile_of_block(recipe, tile, row, block);
  const std::int64_t first_row = row / band * band;
  std::vector<OuterScale32> scales(outer.begin(), outer.end());
  if (recipe.scales_rows()) {
    scales.assign(outer.begin() + first_row, outer.begin() + first_row + piece.rows);
  }
  const Expected expected = quantized_by_reference(recipe, piece, scales, first_row);

  BlockTrace t;
  t.row = row;
  t.block = block;
  t.first_col = block * n;
  t.block_size = static_cast<int>(n);
  t.valid = static_cast<int>(piece.cols);
  t.block_rows = piece.rows;
  t.has_outer = recipe.has_outer();
  t.outer = outer_of_row(recipe, outer, row);
  add_notes(recipe, t);
  trace_family({recipe, piece, row - first_row, t.outer, t});
  if (const std::string what = difference(recipe, t, expected, row - first_row); !what.empty()) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("internal error: the explanation of {} and the backend reference "
                            "disagree about the {} in row {}, block {}",
                            to_string(recipe), what, row, block));
  }
  finish_elements(recipe, piece, row - first_row, t);
  add_packed_codes(recipe, expected, row - first_row, t);
  return t;
}

}  // namespace fp4scope
