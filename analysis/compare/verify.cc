// verify.cc: see verify.h. One pass over the tiles of the input, in parallel; counts are integers
// and the described blocks are the first in row order, so nothing depends on threads.
#include "analysis/compare/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/analyze.h"
#include "analysis/compare/verify_run.h"
#include "analysis/io/message.h"
#include "analysis/text_table.h"
#include "formats/lane.h"
#include "sim/error.h"
#include "sim/rcp_table.h"

namespace fp4scope {
namespace {

using verifying::Run;
using verifying::small_floats;
using verifying::Tally;
using verifying::Worker;

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

Recipe recipe_of(const VerifyCase& job, const VerifyOptions& options, SourceCache& sources) {
  Recipe recipe;
  try {
    recipe = parse_recipe(job.recipe, options.library);
  } catch (const Error&) {
    // A recipe with a scale from outside (scale=given), whose value is in a file.
    if (job.outer_scale.empty()) throw;
    const auto values =
        small_floats(sources.open(job.outer_scale, "--outer-scale"), "--outer-scale");
    if (values.size() != 1) throw;
    std::optional<Recipe> given;
    try {
      given =
          parse_recipe(fmt::format("{},g=0x{:08x}", job.recipe, bit_cast<std::uint32_t>(values[0])),
                       options.library);
    } catch (const Error&) {  // the first sentence is the better one
    }
    if (!given) throw;
    recipe = *std::move(given);
  }
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
    const bool is_four = tally.choice_seen[1];
    const char* choice = run.recipe.nvfp4.int4_candidate ? (is_four ? "INT4" : "E2M1")
                                                         : (is_four ? "map-to-4" : "map-to-6");
    result.warnings.push_back(
        fmt::format("every block is {}, so the choice is hardly tested", choice));
  }
  const bool has_g = run.recipe.family == Family::kNvfp4 && run.recipe.has_outer() &&
                     run.recipe.nvfp4.scale == OuterScale::kTensor;
  const std::uint32_t g = bit_cast<std::uint32_t>(run.outer[0].g);
  if (has_g && g != 0 && g < kInfBits && (g & 0x7fffffu) == 0) {
    result.warnings.push_back(
        fmt::format("the outer scale {:.9g} is a power of two, so orders of operations that differ "
                    "elsewhere agree here",
                    run.outer[0].g));
  }
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
  if (job.codes.empty() && job.scales.empty() && job.fake.empty() && !job.expects_refusal) {
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
  result.dtype = shown_dtype(*opened.tensor);
  result.shape = opened.tensor->shape;
  if (!job.stream.empty()) {
    if (!recipe.sr.enabled) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("--stream: recipe {} does not round stochastically", to_string(recipe)));
    }
    input.rename(job.stream);
  }
  if (recipe.sr.enabled) {
    result.notes.push_back(
        fmt::format("random bits are those of a tensor named {} (--stream)",
                    in_quotes(job.stream.empty() ? opened.tensor->name : job.stream)));
  }
  if (crosses_rows(recipe, input.tensor())) {
    input.flatten();
    result.notes.emplace_back(
        "blocks cross row ends (ragged=flat): row 0 is the flattened tensor, columns count in it");
  }
  if (options.hashes) {
    result.source_hash =
        source_hash(*opened.source, *opened.tensor, thread_count(options.threads), options.stop);
  }
  const StoredShape inside = input.inside();
  result.stored = inside;

  const bool has_codes = !job.codes.empty(), has_scales = !job.scales.empty();
  if (!has_codes && !job.nibbles.empty()) {
    throw Error(ErrorKind::kUsage, "--nibbles says how codes are packed, but there are no --codes");
  }
  if (!has_scales && !job.layout.empty()) {
    throw Error(ErrorKind::kUsage, "--layout says where scales are, but there are no --scales");
  }
  const CodePacking packing = parse_packing(job.nibbles, recipe);
  const ScaleStorage storage = parse_storage(job.layout, recipe);
  if (has_codes) result.nibbles = name_of(packing);
  if (has_scales) result.layout = name_of(storage);
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
  if (!job.choice.empty() && !(job.is_golden && !recipe.chooses())) {
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
  verifying::take_outer_scales(run, sources, result);

  if (inside.rows * inside.cols == 0) {
    result.warnings.emplace_back("the input is empty: nothing was compared");
  }
  result.elements = has_codes || fake ? inside.rows * inside.cols : 0;
  result.blocks = inside.rows * divide_up(inside.cols, recipe.format.block);
  if (scales) {
    // As they are stored.
    const std::int64_t rows =
        scales->are_shared() ? divide_up(inside.rows, recipe.format.block_rows) : inside.rows;
    result.scales = rows * divide_up(inside.cols, recipe.format.block);
  }
  if (job.expects_refusal) {
    result.refusal_missing = !verifying::is_refused(run);
    return result;
  }
  const int threads = thread_count(options.threads);
  std::vector<Worker> workers(static_cast<std::size_t>(threads));
  const auto grid = tile_grid(input.tensor().rows(), input.tensor().cols(), tile_steps(recipe));
  std::int64_t done = 0;
  const auto body = [&](std::int64_t i, int thread) {
    Worker& w = workers[static_cast<std::size_t>(thread)];
    const TileSpan& span = grid[static_cast<std::size_t>(i)];
    verifying::compare_tile(run, span, w);
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
  Tally all = verifying::merge(workers, options.first);
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
  if (codes) take_padding(codes->padding(options.stop), "codes", options.accept, result);
  if (scales) take_padding(scales->padding(options.stop), "scales", options.accept, result);
  if (!job.is_golden) add_warnings(run, all, result);
  if (!recipe.note.empty()) result.notes.emplace_back(recipe.note);
  if (const std::string table = rcp_table_note(recipe); !table.empty()) {
    result.notes.push_back(table);
  }
  if (options.probes_layouts && codes && result.elements_differing > 0) {
    result.nibbles_found = verifying::probe_nibbles(run, *code_bytes, packing, result.stored);
  }
  if (options.probes_layouts && scales && result.scales_differing > 0) {
    result.layout_found = verifying::probe_layout(run, *scale_bytes, storage, result.stored);
  }
  return result;
}

std::string summary_of(const VerifyResult& r) {
  if (r.inputs.expects_refusal && r.agrees()) return "the recipe refuses the input, as expected";
  if (r.agrees()) {
    return fmt::format("{} elements{} agree{}", r.elements,
                       r.scales > 0 ? fmt::format(" and {} scales", r.scales) : "",
                       r.accepted > 0 ? fmt::format(", {} differences accepted", r.accepted) : "");
  }
  if (r.refusal_missing) return "the recipe takes an input that it is expected to refuse";
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
