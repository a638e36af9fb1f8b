// verify_tiles.cc: the tiles of a run of verify: expected against found, block by block.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "analysis/compare/classify.h"
#include "analysis/compare/verify_run.h"
#include "analysis/explain.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope::verifying {

void quantize_tile(const Run& run, const TileSpan& span, std::span<const OuterScale32> outer,
                   Worker& w) {
  w.buffer.read(run.input.source(), run.input.tensor(), span, &run.recipe);
  w.expected.wants_errors = run.recipe.chooses();
  try {
    run.backend.quantize(run.recipe, w.buffer.tile, outer, w.expected);
  } catch (const RefusedInput& e) {
    // A given scale that is wrong may leave elements without a code; that it is wrong is counted
    // already.
    if (!run.own_outer.empty()) {
      run.backend.quantize(run.recipe, w.buffer.tile,
                           outer_of_tile(run.own_outer, run.recipe, span), w.expected);
      return;
    }
    throw Error(e.kind(),
                fmt::format("{}: tensor {}: row {}: {}", printable(run.input.tensor().file),
                            in_quotes(run.input.tensor().name), span.row + e.row(), e.what()));
  }
}

namespace {

// Decoded values as the stored dtype of the fake-quantized tensor holds them.
void decode_tile(const Run& run, const TileSpan& span, std::span<const OuterScale32> outer,
                 Worker& w) {
  w.values.resize(static_cast<std::size_t>(span.elements()));
  run.backend.dequantize(run.recipe, w.expected, outer, w.values.data(), span.cols);
  keep_nan_elements(run.recipe, w.buffer.tile, w.values.data());
  for (float& v : w.values) v = rounded_to(run.fake->tensor().dtype, v);
}

void read_fake(const Run& run, const TileSpan& span, Worker& w) {
  w.fake.resize(static_cast<std::size_t>(span.elements()));
  const TensorInfo& tensor = run.fake->tensor();
  if (tensor.dtype != DType::kF64) {
    run.fake->source().read_f32(tensor, span.row, span.rows, span.col, span.cols, w.fake.data());
    return;
  }
  std::vector<double> wide(w.fake.size());
  run.fake->source().read_f64(tensor, span.row, span.rows, span.col, span.cols, wide.data());
  // A value that is no binary32 number equals no decoded value: of its two neighbours the one that
  // was not expected stands for it.
  for (std::size_t i = 0; i < wide.size(); ++i) {
    float v = static_cast<float>(wide[i]);
    if (double{v} != wide[i] && wide[i] == wide[i] && v == w.values[i]) {
      v = std::nextafter(v, wide[i] > double{v} ? std::numeric_limits<float>::infinity()
                                                : -std::numeric_limits<float>::infinity());
    }
    w.fake[i] = v;
  }
}

void note_variety(const Run& run, const QuantizedTile& found, const std::uint8_t* choices,
                  Tally& tally) {
  if (run.codes != nullptr && !tally.has_code) {
    tally.has_code = std::any_of(found.codes.begin(), found.codes.end(), [&](std::uint8_t c) {
      return !is_zero_code(run.recipe.format.element, c);
    });
  }
  const auto bytes = static_cast<std::size_t>(run.recipe.format.scale_bytes);
  if (run.scales != nullptr && bytes > 0 && !tally.scale_varies) {
    for (std::size_t at = 0; at + bytes <= found.scales.size(); at += bytes) {
      const auto* scale = found.scales.data() + at;
      if (!tally.has_scale) tally.scale.assign(scale, scale + bytes);
      tally.has_scale = true;
      tally.scale_varies |= !std::equal(scale, scale + bytes, tally.scale.begin());
    }
  }
  for (std::int64_t i = 0; choices != nullptr && i < found.rows * found.blocks_per_row; ++i) {
    tally.choice_seen[choices[i] != 0 ? 1 : 0] = true;
  }
}

// Whether anything in the row differs, in a few runs of memory.
bool row_differs(const Run& run, const Worker& w, std::int64_t r, bool has_values) {
  const QuantizedTile &e = w.expected, &f = w.found;
  const auto same = [&](const auto& a, const auto& b, std::int64_t width, std::int64_t used) {
    return std::memcmp(a.data() + r * width, b.data() + r * width,
                       static_cast<std::size_t>(used) * sizeof(a[0])) == 0;
  };
  const std::int64_t code_bytes = run.recipe.code_bytes();
  if (run.codes != nullptr &&
      !same(e.codes, f.codes, e.padded_cols * code_bytes, e.cols * code_bytes)) {
    return true;
  }
  const std::int64_t scales = e.blocks_per_row * run.recipe.format.scale_bytes;
  if (run.scales != nullptr && !same(e.scales, f.scales, scales, scales)) return true;
  if (run.choice != nullptr && !same(e.choices, w.choices, e.blocks_per_row, e.blocks_per_row)) {
    return true;
  }
  return has_values && !same(w.values, w.fake, e.cols, e.cols);
}

void add(const BlockVerdict& v, VerifyResult& counts) {
  counts.elements_differing += v.elements;
  counts.scales_differing += v.scales;
  counts.choices_differing += v.choices;
  counts.padding_differing += v.padding;
  counts.accepted += v.accepted;
  counts.scales_one_above += v.one_above;
  counts.blocks_differing += v.elements + v.scales + v.choices > 0 ? 1 : 0;  // of the input
  for (std::size_t i = 0; i < v.classes.size(); ++i) counts.classes[i] += v.classes[i];
}

void read_found(const Run& run, const TileSpan& span, Worker& w) {
  QuantizedTile& found = w.found;
  resize(found, run.recipe, span.rows, span.cols);
  if (run.codes != nullptr) {
    run.codes->read(span, found.padded_cols, found.codes.data());
  } else {
    found.codes.clear();
  }
  if (run.scales != nullptr) {
    run.scales->read(span, found.scales.data());
  } else {
    found.scales.clear();
  }
  found.choices.clear();
  if (run.choice != nullptr) {
    w.choices.resize(static_cast<std::size_t>(span.rows * found.blocks_per_row));
    const std::int64_t blocks = divide_up(run.input.tensor().cols(), run.recipe.format.block);
    for (std::int64_t r = 0; r < span.rows; ++r) {
      run.choice->read((span.row + r) * blocks + span.col / run.recipe.format.block,
                       found.blocks_per_row, w.choices.data() + r * found.blocks_per_row);
    }
  }
}

}  // namespace

bool is_refused(const Run& run) {
  Worker w;
  for (const TileSpan& span :
       tile_grid(run.input.tensor().rows(), run.input.tensor().cols(), tile_steps(run.recipe))) {
    if (run.options.stop != nullptr && *run.options.stop) {
      throw Error(ErrorKind::kData, "interrupted");
    }
    w.buffer.read(run.input.source(), run.input.tensor(), span, &run.recipe);
    try {
      run.backend.quantize(run.recipe, w.buffer.tile, outer_of_tile(run.outer, run.recipe, span),
                           w.expected);
    } catch (const RefusedInput&) {
      return true;
    }
  }
  return false;
}

void compare_tile(const Run& run, const TileSpan& span, Worker& w) {
  const auto outer = outer_of_tile(run.outer, run.recipe, span);
  quantize_tile(run, span, outer, w);
  const bool has_values = run.fake != nullptr;
  if (has_values) {
    decode_tile(run, span, outer, w);
    read_fake(run, span, w);
  }
  read_found(run, span, w);
  const std::uint8_t* choices = run.choice == nullptr ? nullptr : w.choices.data();
  note_variety(run, w.found,
               choices == nullptr && run.recipe.chooses() && run.codes != nullptr
                   ? w.expected.choices.data()
                   : choices,
               w.tally);
  const Side expected{run.recipe, w.expected, has_values ? w.values.data() : nullptr, outer};
  FoundTile found{&w.found, choices, has_values ? w.fake.data() : nullptr};
  if (has_values) found.dtype = run.fake->tensor().dtype;
  found.scales_are_shared = run.scales != nullptr && run.scales->are_shared();
  const BlockClassifier classifier(run.recipe, run.backend, run.options.accept, run.input.inside());
  std::size_t described = 0;
  for (std::int64_t r = 0; r < span.rows; ++r) {
    if (!row_differs(run, w, r, has_values)) continue;
    for (std::int64_t b = 0; b < w.expected.blocks_per_row; ++b) {
      const BlockVerdict v = classifier.classify(w.buffer.tile, span, expected, found, r, b);
      add(v, w.tally.counts);
      if (!v.differs() || described >= run.options.first) continue;
      ++described;
      const Side theirs{run.recipe, w.found, found.values, outer};
      DifferingBlock d = differing_block(w.buffer.tile, expected, theirs, r, b, span.row,
                                         span.col / run.recipe.format.block);
      d.what = v.what();
      const StoredShape inside = run.input.inside();
      if (d.row < inside.rows && d.col < inside.cols) {
        // What the block was compared under, where it is not what explain would measure.
        std::string more = run.explain_options;
        if (!run.job.outer_scale.empty() || !run.job.amax.empty()) {
          const OuterScale32 of_row = outer_of_row(run.recipe, outer, r);
          if (run.recipe.needs_amax() && of_row.amax >= 0 && !std::signbit(of_row.amax)) {
            more += fmt::format("{}--amax 0x{:08x}", more.empty() ? "" : " ",
                                bit_cast<std::uint32_t>(of_row.amax));
          }
          const bool is_one =
              run.recipe.family == Family::kNvfp4 && run.recipe.nvfp4.scale == OuterScale::kNone;
          if (!is_one)
            more += fmt::format("{}--outer-scale 0x{:08x}", more.empty() ? "" : " ",
                                bit_cast<std::uint32_t>(of_row.g));
        }
        d.command = explain_command(run.recipe, run.job.input, d.row, d.block, more);
      }
      if (run.options.explains) {
        Explanation place;
        place.file = run.input.tensor().file;
        place.tensor = run.input.tensor().name;
        place.dtype = dtype_name(run.input.tensor().dtype);
        place.shape = run.input.tensor().shape;
        place.row = d.row;
        place.block = d.block;
        place.first_col = d.col;
        d.explanation =
            explanation_text(explain_block(run.recipe, w.buffer.tile, outer, r, b, place));
      }
      w.tally.first.push_back(std::move(d));
    }
  }
  keep_first(w.tally.first, run.options.first);
}

Tally merge(const std::vector<Worker>& workers, std::size_t first) {
  Tally all;
  for (const Worker& w : workers) {
    const Tally& t = w.tally;
    VerifyResult& to = all.counts;
    const VerifyResult& from = t.counts;
    to.elements_differing += from.elements_differing;
    to.scales_differing += from.scales_differing;
    to.choices_differing += from.choices_differing;
    to.padding_differing += from.padding_differing;
    to.accepted += from.accepted;
    to.scales_one_above += from.scales_one_above;
    to.blocks_differing += from.blocks_differing;
    for (std::size_t i = 0; i < to.classes.size(); ++i) to.classes[i] += from.classes[i];
    all.first.insert(all.first.end(), t.first.begin(), t.first.end());
    all.has_code |= t.has_code;
    all.scale_varies |= t.scale_varies || (all.has_scale && t.has_scale && all.scale != t.scale);
    if (t.has_scale) all.scale = t.scale;
    all.has_scale |= t.has_scale;
    all.choice_seen[0] |= t.choice_seen[0];
    all.choice_seen[1] |= t.choice_seen[1];
  }
  keep_first(all.first, first);
  return all;
}

}  // namespace fp4scope::verifying
