// verify.cc: see verify.h. One pass over the tiles of the input, in parallel; counts are integers
// and the described blocks are the first in row order, so nothing depends on threads.
#include "analysis/compare/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "analysis/analyze.h"
#include "analysis/compare/classify.h"
#include "analysis/compare/prepared.h"
#include "analysis/io/message.h"
#include "analysis/text_table.h"
#include "formats/rounding.h"
#include "sim/error.h"
#include "sim/rcp_table.h"

namespace fp4scope {
namespace {

struct ClassRow {
  std::string_view name, meaning;
};
constexpr ClassRow kClasses[kDifferenceClasses] = {
    {"sign_of_zero", "sign of zero"},
    {"nan_code", "code of a NaN"},
    {"tie", "exact tie rounded the other way"},
    {"adjacent_code", "neighbouring code"},
    {"other_code", "another code"},
    {"follows_scale", "code that follows the other scale"},
    {"other_value", "another value"},
    {"scale_off_by_one", "scale off by one"},
    {"choice_flipped", "4/6 choice flipped"},
    {"level_bits", "level bits"},
    {"nan_scale", "NaN scale"},
    {"other_scale", "another scale"},
    {"choice_bit", "choice bit"},
    {"outer_scale", "outer scale or amax"},
    {"padding", "padding"}};

// What a thread gathers.
struct Tally {
  VerifyResult counts;
  std::vector<DifferingBlock> first;
  // For the warnings.
  bool has_code = false, has_scale = false, scale_varies = false;
  bool choice_seen[2] = {false, false};
  std::vector<std::uint8_t> scale;
};

struct Run {
  const VerifyCase& job;
  const VerifyOptions& options;
  const Recipe& recipe;
  const Backend& backend;
  const PreparedInput& input;
  const StoredCodes* codes = nullptr;
  const StoredScales* scales = nullptr;
  const TensorBytes* choice = nullptr;
  const PreparedInput* fake = nullptr;
  std::vector<OuterScale32> outer;
  // The recipe's own where others were given; empty: none were, or they are equal.
  std::vector<OuterScale32> own_outer;
  std::string explain_options;
};

struct Worker {
  TileBuffer buffer;
  QuantizedTile expected, found;
  std::vector<float> values, fake;
  std::vector<std::uint8_t> choices;
  Tally tally;
};

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

// Decoded values as the stored dtype of the fake-quantized tensor holds them.
void decode_tile(const Run& run, const TileSpan& span, std::span<const OuterScale32> outer,
                 Worker& w) {
  w.values.resize(static_cast<std::size_t>(span.elements()));
  run.backend.dequantize(run.recipe, w.expected, outer, w.values.data(), span.cols);
  const DType dtype = run.fake == nullptr ? DType::kF32 : run.fake->tensor().dtype;
  if (dtype == DType::kBF16) {
    for (float& v : w.values) v = round_to_bf16<Lane<1>>(v);
  } else if (dtype == DType::kF16) {
    for (float& v : w.values) v = round_to_f16<Lane<1>>(v);
  }
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
  std::transform(wide.begin(), wide.end(), w.fake.begin(),
                 [](double v) { return static_cast<float>(v); });
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
  counts.blocks_differing += v.differs() ? 1 : 0;
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
  const FoundTile found{&w.found, choices, has_values ? w.fake.data() : nullptr};
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
        std::string more = run.explain_options;
        if (run.outer.size() > 1 || !run.job.outer_scale.empty()) {
          const auto k = run.outer.size() > 1 ? static_cast<std::size_t>(d.row) : 0;
          more += fmt::format("{}--outer-scale 0x{:08x}", more.empty() ? "" : " ",
                              bit_cast<std::uint32_t>(run.outer[k].g));
        }
        d.command = explain_command(run.recipe, run.job.input, d.row, d.block, more);
      }
      w.tally.first.push_back(std::move(d));
    }
  }
}

// --- other orders of the same bytes ---

// The first order, other than the one in use, under which everything is as expected.
template <class Order, class Make, class Same>
std::string probe(const Run& run, const std::vector<Order>& orders, Order used, const Make& make,
                  const Same& same) {
  using Reader = typename std::invoke_result_t<Make, Order>::value_type;
  struct Candidate {
    Order order;
    std::shared_ptr<const Reader> reader;  // has no assignment
  };
  std::vector<Candidate> left;
  for (const Order order : orders) {
    if (order == used) continue;
    try {
      if (auto reader = make(order)) left.push_back({order, std::make_shared<Reader>(*reader)});
    } catch (const Error&) {  // another size
    }
  }
  Worker w;
  const auto grid =
      tile_grid(run.input.tensor().rows(), run.input.tensor().cols(), tile_steps(run.recipe));
  for (const TileSpan& span : grid) {
    if (left.empty()) break;
    const auto outer = outer_of_tile(run.outer, run.recipe, span);
    quantize_tile(run, span, outer, w);
    std::erase_if(left, [&](const Candidate& c) {
      try {
        return !same(*c.reader, span, w);
      } catch (const Error&) {  // bytes that are no codes
        return true;
      }
    });
  }
  return left.empty() ? "" : std::string(name_of(left.front().order));
}

std::string probe_nibbles(const Run& run, const TensorBytes& bytes, CodePacking used,
                          StoredShape shape) {
  const auto make = [&](CodePacking packing) -> std::optional<StoredCodes> {
    if (packed_bytes(packing, run.recipe, shape.cols) * shape.rows != bytes.size()) return {};
    return StoredCodes(bytes, run.recipe, packing, shape);
  };
  const auto same = [&](const StoredCodes& codes, const TileSpan& span, Worker& w) {
    resize(w.found, run.recipe, span.rows, span.cols);
    codes.read(span, w.found.padded_cols, w.found.codes.data());
    const std::int64_t width = run.recipe.code_bytes();
    for (std::int64_t r = 0; r < span.rows; ++r) {
      const std::int64_t at = r * w.found.padded_cols * width;
      if (std::memcmp(w.found.codes.data() + at, w.expected.codes.data() + at,
                      static_cast<std::size_t>(span.cols * width)) != 0) {
        return false;
      }
    }
    return true;
  };
  return probe(run, packings_of(run.recipe), used, make, same);
}

std::string probe_layout(const Run& run, const TensorBytes& bytes, ScaleStorage used,
                         StoredShape shape) {
  const auto make = [&](ScaleStorage storage) -> std::optional<StoredScales> {
    return StoredScales(bytes, run.recipe, storage, shape);
  };
  const auto same = [&](const StoredScales& scales, const TileSpan& span, Worker& w) {
    resize(w.found, run.recipe, span.rows, span.cols);
    scales.read(span, w.found.scales.data());
    return w.found.scales == w.expected.scales;
  };
  return probe(run, storages_of(run.recipe), used, make, same);
}

// --- the parts of a case ---

std::vector<float> small_floats(const SourceCache::Opened& opened, std::string_view option) {
  const TensorInfo& t = *opened.tensor;
  if (!is_real(t.dtype)) {
    throw Error(ErrorKind::kData, fmt::format("{}: tensor {} is {}, expected F32", option,
                                              in_quotes(t.name), dtype_label(t)));
  }
  std::vector<float> values(static_cast<std::size_t>(t.elements));
  if (t.dtype == DType::kF64) {
    std::vector<double> wide(values.size());
    opened.source->read_f64(t, 0, t.rows(), 0, t.cols(), wide.data());
    std::transform(wide.begin(), wide.end(), values.begin(),
                   [](double v) { return static_cast<float>(v); });
  } else {
    opened.source->read_f32(t, 0, t.rows(), 0, t.cols(), values.data());
  }
  return values;
}

bool same_pattern(float a, float b) {
  return bit_cast<std::uint32_t>(a) == bit_cast<std::uint32_t>(b) || (a != a && b != b);
}

// The recipe's own outer scales, and the given ones in their place. A given one that is not the
// recipe's is a difference of its own: blocks are compared under it, so that a wrong last place is
// not reported as a thousand wrong codes.
void replace_outer_scales(Run& run, SourceCache& sources, std::vector<OuterScale32>& own,
                          VerifyResult& result) {
  const Recipe& recipe = run.recipe;
  const VerifyCase& job = run.job;
  const bool has_given = !job.outer_scale.empty() || !job.amax.empty();
  if (has_given && !recipe.has_outer()) {
    throw Error(ErrorKind::kUsage, fmt::format("{}: recipe {} has no outer scale",
                                               job.outer_scale.empty() ? "--amax" : "--outer-scale",
                                               to_string(recipe)));
  }
  AmaxResult amax;
  if (recipe.needs_amax() || has_given) {
    amax = measure_amax(run.input.source(), run.input.tensor(), recipe.scales_rows(),
                        thread_count(run.options.threads), run.options.stop, &recipe);
    if (!amax.complete) throw Error(ErrorKind::kData, "interrupted");
  }
  run.outer = outer_scales(run.backend, recipe, amax);
  own = run.outer;
  if (!has_given) return;
  const StoredShape inside = run.input.inside();
  const auto read = [&](const std::string& operand, std::string_view option) {
    const std::vector<float> values = small_floats(sources.open(operand, option), option);
    const std::size_t want = recipe.scales_rows() ? static_cast<std::size_t>(inside.rows) : 1;
    if (values.size() != want && values.size() != run.outer.size()) {
      throw Error(ErrorKind::kData,
                  fmt::format("{} {} holds {} values, expected {} for recipe {}", option,
                              printable(operand), values.size(), want, to_string(recipe)));
    }
    return values;
  };
  const auto differ = [&](std::size_t n) {
    result.outer_scales_differing += static_cast<std::int64_t>(n);
    result.classes[static_cast<std::size_t>(DifferenceClass::kOuterScale)] +=
        static_cast<std::int64_t>(n);
  };
  if (!job.amax.empty()) {
    const std::vector<float> values = read(job.amax, "--amax");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool same = same_pattern(values[i], own[i].amax);
      differ(same ? 0 : 1);
      if (!same) {
        run.outer[i] = run.backend.outer_scale(recipe, bit_cast<std::uint32_t>(values[i]));
        if (result.notes.size() < 3) {
          result.notes.push_back(fmt::format(
              "the amax given{} is {:.9g} (0x{:08x}), that of the input {:.9g} (0x{:08x}); blocks "
              "are compared under the given one",
              recipe.scales_rows() ? fmt::format(" for row {}", i) : "", values[i],
              bit_cast<std::uint32_t>(values[i]), own[i].amax,
              bit_cast<std::uint32_t>(own[i].amax)));
        }
      }
    }
    result.outer_scales += static_cast<std::int64_t>(values.size());
  }
  if (job.outer_scale.empty()) return;
  const std::vector<float> values = read(job.outer_scale, "--outer-scale");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool same = same_pattern(values[i], run.outer[i].g);
    differ(same ? 0 : 1);
    if (!same && result.notes.size() < 3) {
      result.notes.push_back(fmt::format(
          "the outer scale given{} is {:.9g} (0x{:08x}), the recipe's is {:.9g} (0x{:08x}); blocks "
          "are compared under the given one",
          recipe.scales_rows() ? fmt::format(" for row {}", i) : "", values[i],
          bit_cast<std::uint32_t>(values[i]), run.outer[i].g,
          bit_cast<std::uint32_t>(run.outer[i].g)));
    }
    run.outer[i].g = values[i];
  }
  result.outer_scales += static_cast<std::int64_t>(values.size());
}

void take_outer_scales(Run& run, SourceCache& sources, VerifyResult& result) {
  std::vector<OuterScale32> own;
  replace_outer_scales(run, sources, own, result);
  if (result.outer_scales_differing > 0) run.own_outer = std::move(own);
}

Recipe recipe_of(const VerifyCase& job, const VerifyOptions& options, SourceCache& sources) {
  std::string text = job.recipe;
  const auto has = [&](const char* key) { return text.find(key) != std::string::npos; };
  // A recipe with a scale from outside, whose value is in a file.
  if (has("scale=given") && !has(",g=") && !job.outer_scale.empty()) {
    const auto values =
        small_floats(sources.open(job.outer_scale, "--outer-scale"), "--outer-scale");
    if (values.size() == 1) text += fmt::format(",g=0x{:08x}", bit_cast<std::uint32_t>(values[0]));
  }
  Recipe recipe = parse_recipe(text, options.library);
  recipe.text = job.recipe;
  if (rcp_of(recipe) == Rcp::kUser) {
    if (options.user_rcp == nullptr) {
      throw Error(ErrorKind::kUsage, fmt::format("recipe \"{}\": rcp=user needs a table "
                                                 "(--rcp-table FILE)",
                                                 job.recipe));
    }
    recipe.user_rcp = options.user_rcp;
  }
  return recipe;
}

void take_padding(const PaddingFault& fault, const char* what, const AcceptedDifferences& accept,
                  VerifyResult& result) {
  if (fault.count == 0) return;
  result.notes.push_back(fmt::format(
      "{} entries of the padding of the {} are not zero, the first at byte {}; they are "
      "never read{}",
      fault.count, what, fault.first_byte,
      accept.padding ? "" : " (--accept padding ignores them)"));
  if (accept.padding) {
    result.accepted += fault.count;
    return;
  }
  result.padding_differing += fault.count;
  result.classes[static_cast<std::size_t>(DifferenceClass::kPadding)] += fault.count;
}

void add_warnings(const Run& run, const Tally& tally, VerifyResult& result) {
  if (result.blocks < 2) return;
  if (run.codes != nullptr && !tally.has_code) {
    result.warnings.emplace_back("every stored code is zero, so elements are hardly tested");
  }
  if (run.scales != nullptr && tally.has_scale && !tally.scale_varies) {
    result.warnings.push_back(
        fmt::format("every stored scale is {}, so scale rules are hardly "
                    "tested",
                    scale_text(run.recipe, tally.scale)));
  }
  if (run.recipe.chooses() && tally.choice_seen[0] != tally.choice_seen[1]) {
    result.warnings.push_back(fmt::format("every block is {}, so the choice is hardly tested",
                                          tally.choice_seen[1] ? "map-to-4" : "map-to-6"));
  }
  const bool has_g = run.recipe.family == Family::kNvfp4 && run.recipe.has_outer() &&
                     run.recipe.nvfp4.scale == OuterScale::kTensor;
  if (has_g && (bit_cast<std::uint32_t>(run.outer[0].g) & 0x7fffffu) == 0) {
    result.warnings.push_back(
        fmt::format("the outer scale {:.9g} is a power of two, so orders of operations that differ "
                    "elsewhere agree here",
                    run.outer[0].g));
  }
}

Tally merge(std::vector<Worker>& workers, std::size_t first) {
  Tally all;
  for (Worker& w : workers) {
    Tally& t = w.tally;
    VerifyResult &to = all.counts, &from = t.counts;
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
  std::sort(all.first.begin(), all.first.end(), [](const auto& a, const auto& b) {
    return a.row != b.row ? a.row < b.row : a.block < b.block;
  });
  if (all.first.size() > first) all.first.resize(first);
  return all;
}

}  // namespace

std::string_view name_of(DifferenceClass c) {
  return kClasses[static_cast<std::size_t>(c)].name;
}
std::string_view meaning_of(DifferenceClass c) {
  return kClasses[static_cast<std::size_t>(c)].meaning;
}

AcceptedDifferences parse_accept(const std::string& text) {
  AcceptedDifferences accept;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, comma - at);
    if (word == "sign-of-zero") {
      accept.sign_of_zero = true;
    } else if (word == "nan-code") {
      accept.nan_code = true;
    } else if (word == "padding") {
      accept.padding = true;
    } else {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("--accept {}: expected sign-of-zero, nan-code or padding, separated by "
                      "commas",
                      word));
    }
    at = comma + 1;
  }
  return accept;
}

VerifyResult verify(const VerifyCase& job, const VerifyOptions& options, SourceCache& sources) {
  if (job.codes.empty() && job.scales.empty() && job.fake.empty()) {
    throw Error(ErrorKind::kUsage,
                "nothing to compare: expected --codes, --scales, --fake or several of them");
  }
  VerifyResult result;
  result.inputs = job;
  result.name = job.name.empty() ? job.input : job.name;
  result.recipe = recipe_of(job, options, sources);
  const Recipe& recipe = result.recipe;
  const Backend& backend = choose_backend(options.backend, recipe);
  result.backend = backend.name();
  const auto opened = sources.open(job.input, "--input");
  PreparedInput input(*opened.source, *opened.tensor, job.axis);
  refuse_shape(recipe, input.tensor());
  result.file = opened.tensor->file;
  result.tensor = opened.tensor->name;
  result.dtype = dtype_name(opened.tensor->dtype);
  result.shape = opened.tensor->shape;
  if (crosses_rows(recipe, input.tensor())) input.flatten();
  const StoredShape inside = input.inside();
  result.stored = inside;

  const bool has_codes = !job.codes.empty(), has_scales = !job.scales.empty();
  if ((has_codes || has_scales) && recipe.keeps_nan_elements()) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("recipe {} has values but no codes for NaN elements; compare values "
                            "with --fake",
                            to_string(recipe)));
  }
  const CodePacking packing = parse_packing(job.nibbles, recipe);
  const ScaleStorage storage = parse_storage(job.layout, recipe);
  result.nibbles = name_of(packing);
  result.layout = name_of(storage);
  std::optional<TensorBytes> code_bytes, scale_bytes, choice_bytes;
  std::optional<StoredCodes> codes;
  std::optional<StoredScales> scales;
  if (has_codes) {
    const auto file = sources.open(job.codes, "--codes");
    result.stored = shape_of_codes(*file.tensor, recipe, packing, inside.rows, inside.cols);
    code_bytes.emplace(*file.source, *file.tensor);
    codes.emplace(*code_bytes, recipe, packing, result.stored);
    input.pad(result.stored);
  }
  if (has_scales) {
    if (recipe.format.scale_bytes == 0) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("--scales: recipe {} has no block scales{}", to_string(recipe),
                              recipe.has_outer() ? "; its scale is --outer-scale" : ""));
    }
    const auto file = sources.open(job.scales, "--scales");
    scale_bytes.emplace(*file.source, *file.tensor);
    scales.emplace(*scale_bytes, recipe, storage, result.stored);
  }
  Run run{job,
          options,
          recipe,
          backend,
          input,
          codes ? &*codes : nullptr,
          scales ? &*scales : nullptr,
          nullptr,
          nullptr,
          {},
          {},
          options.explain_options};
  if (job.axis != -1) {
    run.explain_options +=
        fmt::format("{}--axis={}", run.explain_options.empty() ? "" : " ", job.axis);
  }
  if (!job.choice.empty()) {
    if (!recipe.chooses()) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("--choice: recipe {} does not choose", to_string(recipe)));
    }
    const auto file = sources.open(job.choice, "--choice");
    choice_bytes.emplace(*file.source, *file.tensor);
    const std::int64_t want =
        result.stored.rows * divide_up(result.stored.cols, recipe.format.block);
    if (choice_bytes->size() != want) {
      throw Error(ErrorKind::kData, fmt::format("--choice {}: expected {} bytes, found {}",
                                                printable(job.choice), want, choice_bytes->size()));
    }
    run.choice = &*choice_bytes;
  }
  std::optional<PreparedInput> fake;
  if (!job.fake.empty()) {
    const auto file = sources.open(job.fake, "--fake");
    if (file.tensor->shape != opened.tensor->shape) {
      throw Error(ErrorKind::kData,
                  fmt::format("--fake {}: expected the shape of the input {}, found {}",
                              printable(job.fake), shape_text(opened.tensor->shape),
                              shape_text(file.tensor->shape)));
    }
    fake.emplace(*file.source, *file.tensor, job.axis);
    if (crosses_rows(recipe, fake->tensor())) fake->flatten();
    fake->pad(result.stored);
    run.fake = &*fake;
    if (file.tensor->dtype == DType::kBF16 || file.tensor->dtype == DType::kF16) {
      result.notes.push_back(fmt::format("decoded values are rounded to {}, the dtype of --fake",
                                         dtype_name(file.tensor->dtype)));
    }
  }
  take_outer_scales(run, sources, result);

  result.elements = inside.rows * inside.cols;
  result.blocks = inside.rows * divide_up(inside.cols, recipe.format.block);
  result.scales = has_scales ? result.blocks : 0;
  const int threads = thread_count(options.threads);
  std::vector<Worker> workers(static_cast<std::size_t>(threads));
  const auto grid = tile_grid(input.tensor().rows(), input.tensor().cols(), tile_steps(recipe));
  std::int64_t done = 0;
  const auto body = [&](std::int64_t i, int thread) {
    Worker& w = workers[static_cast<std::size_t>(thread)];
    const TileSpan& span = grid[static_cast<std::size_t>(i)];
    compare_tile(run, span, w);
    if (!options.progress) return;
#pragma omp critical(fp4scope_verify_progress)
    {
      done += span.elements();
      options.progress(done, input.tensor().rows() * input.tensor().cols());
    }
  };
  if (!for_each_tile(std::ssize(grid), threads, options.stop, body)) {
    throw Error(ErrorKind::kData, "interrupted");
  }
  Tally all = merge(workers, options.first);
  result.elements_differing = all.counts.elements_differing;
  result.scales_differing = all.counts.scales_differing;
  result.choices_differing = all.counts.choices_differing;
  result.padding_differing = all.counts.padding_differing;
  result.blocks_differing = all.counts.blocks_differing;
  result.accepted = all.counts.accepted;
  result.scales_one_above = all.counts.scales_one_above;
  for (std::size_t i = 0; i < result.classes.size(); ++i) {
    result.classes[i] += all.counts.classes[i];
  }
  result.first = std::move(all.first);
  if (codes) take_padding(codes->padding(), "codes", options.accept, result);
  if (scales) take_padding(scales->padding(), "scales", options.accept, result);
  add_warnings(run, all, result);
  if (!recipe.note.empty()) result.notes.emplace_back(recipe.note);
  if (const std::string table = rcp_table_note(recipe); !table.empty()) {
    result.notes.push_back(table);
  }
  if (options.probes_layouts && codes && result.elements_differing > 0) {
    result.nibbles_found = probe_nibbles(run, *code_bytes, packing, result.stored);
  }
  if (options.probes_layouts && scales && result.scales_differing > 0) {
    result.layout_found = probe_layout(run, *scale_bytes, storage, result.stored);
  }
  return result;
}

std::string summary_of(const VerifyResult& r) {
  if (r.agrees()) {
    return fmt::format("{} elements{} agree{}", r.elements,
                       r.scales > 0 ? fmt::format(" and {} scales", r.scales) : "",
                       r.accepted > 0 ? fmt::format(", {} differences accepted", r.accepted) : "");
  }
  std::vector<std::string> parts;
  const auto part = [&](std::int64_t n, std::int64_t of, const char* what) {
    if (n > 0 && of > 0) parts.push_back(fmt::format("{} of {} {}", n, of, what));
    if (n > 0 && of <= 0) parts.push_back(fmt::format("{} {}", n, what));
  };
  part(r.elements_differing, r.elements, "elements");
  part(r.scales_differing, r.scales, "scales");
  part(r.choices_differing, r.blocks, "choice bits");
  part(r.outer_scales_differing, r.outer_scales, "outer scales");
  part(r.padding_differing, 0, "entries of padding");
  std::string text = joined(parts, ", ") + " differ";
  if (!r.nibbles_found.empty()) {
    text += fmt::format("; all codes agree with --nibbles {}", r.nibbles_found);
  }
  if (!r.layout_found.empty()) {
    text += fmt::format("; all scales agree with --layout {}", r.layout_found);
  }
  if (!r.first.empty()) {
    const DifferingBlock& b = r.first.front();
    text += fmt::format("; first at row {}, block {}", b.row, b.block);
    if (!b.elements.empty()) {
      text +=
          fmt::format(" (element {}, column {})", b.elements.front(), b.col + b.elements.front());
    }
    if (!b.what.empty()) text += ": " + b.what;
  }
  return text;
}

}  // namespace fp4scope
