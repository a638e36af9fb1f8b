// identify_sample.cc: see identify_sample.h.
#include "analysis/compare/identify_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "analysis/analyze.h"
#include "analysis/compare/classify.h"
#include "analysis/compare/compare.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::int64_t kBandRows = 128;
constexpr std::int64_t kBandCols = 1024;  // of wider tensors, a multiple of every common block
constexpr std::int64_t kMostBands = 4;

std::vector<float> floats_of(const SourceCache::Opened& opened) {
  const TensorInfo& t = *opened.tensor;
  std::vector<float> values(static_cast<std::size_t>(t.elements));
  opened.source->read_f32(t, 0, t.rows(), 0, t.cols(), values.data());
  return values;
}

// Bands of whole 2-D blocks, spread over the tensor.
std::vector<TileSpan> spread_bands(StoredShape shape) {
  const std::int64_t bands = divide_up(shape.rows, kBandRows);
  const std::int64_t chunks = divide_up(shape.cols, kBandCols);
  const std::int64_t count = std::min(kMostBands, bands * chunks);
  std::vector<TileSpan> spans;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t band = count > 1 ? i * (bands - 1) / (count - 1) : 0;
    const std::int64_t chunk = count > 1 ? (count - 1 - i) * (chunks - 1) / (count - 1) : 0;
    const TileSpan span{band * kBandRows, std::min(kBandRows, shape.rows - band * kBandRows),
                        chunk * kBandCols, std::min(kBandCols, shape.cols - chunk * kBandCols)};
    const auto same = [&](const TileSpan& s) { return s.row == span.row && s.col == span.col; };
    if (std::none_of(spans.begin(), spans.end(), same)) spans.push_back(span);
  }
  return spans;
}

double share(std::int64_t equal, std::int64_t of) {
  return of == 0 ? 1.0 : static_cast<double>(equal) / static_cast<double>(of);
}

// Equal entries of `width` bytes.
std::int64_t equal_entries(const std::uint8_t* a, const std::uint8_t* b, std::int64_t entries,
                           std::int64_t width) {
  if (std::memcmp(a, b, static_cast<std::size_t>(entries * width)) == 0) return entries;
  std::int64_t equal = 0;
  for (std::int64_t i = 0; i < entries; ++i) {
    equal += std::memcmp(a + i * width, b + i * width, static_cast<std::size_t>(width)) == 0;
  }
  return equal;
}

}  // namespace

IdentifySample::IdentifySample(const IdentifyOptions& options, SourceCache& sources)
    : options_(options), input_(sources.open(options.job.input, "--input")) {
  const VerifyCase& job = options.job;
  if (job.codes.empty() && job.scales.empty() && job.fake.empty()) {
    throw Error(ErrorKind::kUsage,
                "nothing to identify: expected --codes, --scales, --fake or several of them");
  }
  if (!job.codes.empty()) codes_ = sources.open(job.codes, "--codes");
  if (!job.scales.empty()) scales_ = sources.open(job.scales, "--scales");
  if (!job.fake.empty()) fake_ = sources.open(job.fake, "--fake");
  if (!job.choice.empty()) choice_ = sources.open(job.choice, "--choice");
  if (!job.outer_scale.empty()) outer_ = floats_of(sources.open(job.outer_scale, "--outer-scale"));
  if (!job.amax.empty()) amax_values_ = floats_of(sources.open(job.amax, "--amax"));
  if (fake_ && fake_->tensor->shape != input_.tensor->shape) {
    throw Error(
        ErrorKind::kData,
        fmt::format("--fake {}: expected the shape of the input {}, found {}", printable(job.fake),
                    shape_text(input_.tensor->shape), shape_text(fake_->tensor->shape)));
  }
  const PreparedInput input(*input_.source, *input_.tensor, job.axis);
  if (input_.tensor->elements == 0) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: tensor {} is empty, there is nothing to identify",
                            printable(input_.tensor->file), in_quotes(input_.tensor->name)));
  }
  (void)shaped(input.inside());
}

IdentifySample::Shaped& IdentifySample::shaped(StoredShape shape) {
  Shaped& s = shapes_[{shape.rows, shape.cols}];
  if (s.input) return s;
  s.shape = shape;
  s.input = std::make_unique<PreparedInput>(*input_.source, *input_.tensor, options_.job.axis);
  s.input->pad(shape);
  for (const TileSpan& span : spread_bands(shape)) {
    s.bands.push_back({span, {}});
    s.bands.back().buffer.read(s.input->source(), s.input->tensor(), span);
  }
  return s;
}

const AmaxResult& IdentifySample::amax_of(Shaped& s) {
  if (!s.amax) {
    s.amax = measure_amax(s.input->source(), s.input->tensor(), true,
                          thread_count(options_.verify.threads), options_.verify.stop);
    if (!s.amax->complete) throw Error(ErrorKind::kData, "interrupted");
  }
  return *s.amax;
}

const IdentifySample::Reading& IdentifySample::codes_of(const Recipe& recipe, CodePacking packing,
                                                        Shaped& s) {
  const std::string key =
      fmt::format("{} {} {} {} {}", name_of(packing), recipe.format.element.storage_bits(),
                  recipe.code_bytes(), s.shape.rows, s.shape.cols);
  const auto [entry, is_new] = code_readings_.try_emplace(key);
  Reading& reading = entry->second;
  if (!is_new) return reading;
  try {
    const StoredCodes codes(TensorBytes(*codes_->source, *codes_->tensor), recipe, packing,
                            s.shape);
    for (const Band& band : s.bands) {
      reading.bands.emplace_back(
          static_cast<std::size_t>(band.span.elements() * recipe.code_bytes()));
      codes.read(band.span, band.span.cols, reading.bands.back().data());
    }
    reading.fits = true;
  } catch (const Error&) {  // bytes that are no codes of such elements
  }
  return reading;
}

const IdentifySample::Reading& IdentifySample::scales_of(const Recipe& recipe, ScaleStorage storage,
                                                         Shaped& s) {
  const std::string key =
      fmt::format("{} {} {} {} {} {}", name_of(storage), recipe.format.block,
                  recipe.format.scale_bytes, recipe.format.block_rows, s.shape.rows, s.shape.cols);
  const auto [entry, is_new] = scale_readings_.try_emplace(key);
  Reading& reading = entry->second;
  if (!is_new) return reading;
  const std::int64_t blocks = divide_up(s.shape.cols, recipe.format.block);
  if (scale_bytes(storage, recipe, s.shape.rows, blocks) != scales_->tensor->bytes) return reading;
  try {
    const StoredScales scales(TensorBytes(*scales_->source, *scales_->tensor), recipe, storage,
                              s.shape);
    for (const Band& band : s.bands) {
      if (band.span.col % recipe.format.block != 0) return reading;
      reading.bands.emplace_back(
          static_cast<std::size_t>(band.span.rows * divide_up(band.span.cols, recipe.format.block) *
                                   recipe.format.scale_bytes));
      scales.read(band.span, reading.bands.back().data());
    }
  } catch (const Error&) {  // a shape that shows another order
    reading.bands.clear();
    return reading;
  }
  reading.fits = true;
  return reading;
}

std::vector<CodePacking> IdentifySample::wanted_packings(const Recipe& recipe) const {
  if (options_.job.nibbles.empty()) return packings_of(recipe);
  try {
    return {parse_packing(options_.job.nibbles, recipe)};
  } catch (const Error&) {
    return {};
  }
}
std::vector<ScaleStorage> IdentifySample::wanted_storages(const Recipe& recipe) const {
  if (options_.job.layout.empty()) return storages_of(recipe);
  try {
    return {parse_storage(options_.job.layout, recipe)};
  } catch (const Error&) {
    return {};
  }
}

// The recipe's own outer scales; a given one takes their place where it differs. False: the number
// of given ones is not that of the recipe.
bool IdentifySample::take_outer(const Recipe& recipe, const Backend& backend, Shaped& s,
                                std::vector<OuterScale32>& outer, SampleScore& score) {
  const bool has_given = !outer_.empty() || !amax_values_.empty();
  if (!recipe.has_outer()) {
    outer = outer_scales(backend, recipe, {});
    // A stored amax of 1 belongs to formats without an outer scale too (fouroversix).
    const bool is_one = outer_.empty() && amax_values_.size() == 1 && amax_values_[0] == 1.0f;
    return !has_given || is_one;
  }
  const bool measures = recipe.needs_amax() || has_given;
  outer = outer_scales(backend, recipe, measures ? amax_of(s) : AmaxResult{});
  const auto rows = static_cast<std::size_t>(
      PreparedInput(*input_.source, *input_.tensor, options_.job.axis).inside().rows);
  const auto fits = [&](const std::vector<float>& values) {
    return values.empty() || values.size() == (recipe.scales_rows() ? rows : 1) ||
           values.size() == outer.size();
  };
  if (!fits(outer_) || !fits(amax_values_)) return false;
  std::int64_t equal = 0, compared = 0;
  for (std::size_t i = 0; i < amax_values_.size(); ++i) {
    const bool same = same_pattern(amax_values_[i], outer[i].amax);
    if (!same) outer[i] = backend.outer_scale(recipe, bit_cast<std::uint32_t>(amax_values_[i]));
    equal += same ? 1 : 0;
    ++compared;
  }
  for (std::size_t i = 0; i < outer_.size(); ++i) {
    const bool same = same_pattern(outer_[i], outer[i].g);
    outer[i].g = outer_[i];
    equal += same ? 1 : 0;
    ++compared;
  }
  score.outer = share(equal, compared);
  return true;
}

std::optional<SampleScore> IdentifySample::score_shape(const Recipe& recipe, Shaped& s,
                                                       const std::vector<CodePacking>& packings,
                                                       bool whole) {
  SampleScore score;
  // Every backend has the same bits; the slow ones are for the check in full.
  const Backend& backend = choose_backend("auto", recipe);
  std::vector<const Reading*> codes, scales;
  std::vector<CodePacking> fitting_packings;
  std::vector<ScaleStorage> fitting_storages;
  if (codes_) {
    for (const CodePacking packing : packings) {
      const Reading& reading = codes_of(recipe, packing, s);
      if (!reading.fits) continue;
      codes.push_back(&reading);
      fitting_packings.push_back(packing);
    }
    if (codes.empty()) return std::nullopt;
  }
  if (scales_) {
    if (recipe.format.scale_bytes == 0) return std::nullopt;
    for (const ScaleStorage storage : wanted_storages(recipe)) {
      // Without anything to pad it is linear, byte for byte.
      if (storage == ScaleStorage::kTePadded && s.shape.rows % 128 == 0 &&
          divide_up(s.shape.cols, recipe.format.block) % 4 == 0 && options_.job.layout.empty()) {
        continue;
      }
      const Reading& reading = scales_of(recipe, storage, s);
      if (!reading.fits) continue;
      scales.push_back(&reading);
      fitting_storages.push_back(storage);
    }
    if (scales.empty()) return std::nullopt;
  }
  const std::int64_t blocks = divide_up(s.shape.cols, recipe.format.block);
  if (choice_ && (!recipe.chooses() || choice_->tensor->bytes != s.shape.rows * blocks)) {
    return std::nullopt;
  }
  std::vector<OuterScale32> outer;
  if (!take_outer(recipe, backend, s, outer, score)) return std::nullopt;

  std::vector<std::int64_t> equal_codes(codes.size()), equal_scales(scales.size());
  std::int64_t all_codes = 0, all_scales = 0, equal_values = 0, all_values = 0;
  std::int64_t equal_choices = 0, all_choices = 0;
  const std::size_t bands = whole ? s.bands.size() : 1;
  for (std::size_t k = 0; k < bands; ++k) {
    const Band& band = s.bands[k];
    if (band.span.col % recipe.format.block != 0) continue;
    const auto of_tile = outer_of_tile(outer, recipe, band.span);
    try {
      backend.quantize(recipe, band.buffer.tile, of_tile, quantized_);
    } catch (const Error&) {  // refused input, or a shape that its source does not run
      return std::nullopt;
    }
    const std::int64_t width = recipe.code_bytes();
    all_codes += codes_ ? band.span.elements() : 0;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::uint8_t* stored = codes[i]->bands[k].data();
      for (std::int64_t r = 0; r < band.span.rows; ++r) {
        equal_codes[i] +=
            equal_entries(quantized_.codes.data() + r * quantized_.padded_cols * width,
                          stored + r * band.span.cols * width, band.span.cols, width);
      }
    }
    const std::int64_t entries = band.span.rows * quantized_.blocks_per_row;
    all_scales += scales_ ? entries : 0;
    for (std::size_t i = 0; i < scales.size(); ++i) {
      equal_scales[i] += equal_entries(quantized_.scales.data(), scales[i]->bands[k].data(),
                                       entries, recipe.format.scale_bytes);
    }
    if (choice_) {
      const TensorBytes bytes(*choice_->source, *choice_->tensor);
      std::vector<std::uint8_t> stored(static_cast<std::size_t>(entries));
      for (std::int64_t r = 0; r < band.span.rows; ++r) {
        bytes.read((band.span.row + r) * blocks + band.span.col / recipe.format.block,
                   quantized_.blocks_per_row, stored.data() + r * quantized_.blocks_per_row);
      }
      equal_choices += equal_entries(quantized_.choices.data(), stored.data(), entries, 1);
      all_choices += entries;
    }
    if (!fake_) continue;
    auto& fake = fake_bands_[s.shape.rows * (s.shape.cols + 1)];
    if (fake.empty()) {
      PreparedInput view(*fake_->source, *fake_->tensor, options_.job.axis);
      view.pad(s.shape);
      for (const Band& b : s.bands) {
        TileBuffer buffer;
        buffer.read(view.source(), view.tensor(), b.span);
        fake.push_back(std::move(buffer.f32));
      }
    }
    values_.resize(static_cast<std::size_t>(band.span.elements()));
    backend.dequantize(recipe, quantized_, of_tile, values_.data(), band.span.cols);
    keep_nan_elements(recipe, band.buffer.tile, values_.data());
    const DType dtype = fake_->tensor->dtype;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      equal_values += same_pattern(rounded_to(dtype, values_[i]), fake[k][i]) ? 1 : 0;
    }
    all_values += band.span.elements();
  }
  score.fits = true;
  const auto most = [](const auto& equal, std::int64_t all, const auto& orders, auto& best,
                       double& best_share) {
    const auto largest = equal.empty() ? 0 : *std::max_element(equal.begin(), equal.end());
    for (std::size_t i = 0; i < equal.size(); ++i) {
      if (equal[i] == largest) best.push_back(orders[i]);
    }
    if (!equal.empty()) best_share = share(largest, all);
  };
  most(equal_codes, all_codes, fitting_packings, score.packings, score.codes);
  most(equal_scales, all_scales, fitting_storages, score.storages, score.scales);
  if (score.packings.empty()) score.packings = {packings_of(recipe).front()};
  if (score.storages.empty()) score.storages = {storages_of(recipe).front()};
  score.values = share(equal_values, all_values);
  score.choices = share(equal_choices, all_choices);
  return score;
}

SampleScore IdentifySample::score(const Recipe& recipe, bool whole) {
  SampleScore best;
  const PreparedInput input(*input_.source, *input_.tensor, options_.job.axis);
  const StoredShape inside = input.inside();
  if (crosses_rows(recipe, input.tensor())) return best;  // verify can check such a recipe
  try {
    refuse_shape(recipe, input.tensor());
  } catch (const Error&) {
    return best;
  }
  // Orders that read the codes with the same shape belong together.
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<CodePacking>> by_shape;
  if (codes_) {
    for (const CodePacking packing : wanted_packings(recipe)) {
      try {
        const StoredShape shape =
            shape_of_codes(*codes_->tensor, recipe, packing, inside.rows, inside.cols);
        by_shape[{shape.rows, shape.cols}].push_back(packing);
      } catch (const Error&) {  // another number of bytes
      }
    }
  } else {
    by_shape[{inside.rows, inside.cols}] = {};
  }
  for (const auto& [shape, packings] : by_shape) {
    const auto found = score_shape(recipe, shaped({shape.first, shape.second}), packings, whole);
    if (found && (!best.fits || found->total() > best.total())) best = *found;
  }
  return best;
}

bool IdentifySample::add_band(std::int64_t row, std::int64_t col) {
  bool is_new = false;
  for (auto& [key, s] : shapes_) {
    const std::int64_t r = row / kBandRows * kBandRows, c = col / kBandCols * kBandCols;
    if (r >= s.shape.rows || c >= s.shape.cols) continue;
    const auto same = [&](const Band& b) { return b.span.row == r && b.span.col == c; };
    if (std::any_of(s.bands.begin(), s.bands.end(), same)) continue;
    is_new = true;
    s.bands.push_back(
        {{r, std::min(kBandRows, s.shape.rows - r), c, std::min(kBandCols, s.shape.cols - c)}, {}});
    s.bands.back().buffer.read(s.input->source(), s.input->tensor(), s.bands.back().span);
  }
  if (is_new) {
    code_readings_.clear();
    scale_readings_.clear();
    fake_bands_.clear();
  }
  return is_new;
}

bool IdentifySample::is_whole() const {
  return std::all_of(shapes_.begin(), shapes_.end(), [](const auto& entry) {
    const Shaped& s = entry.second;
    std::int64_t elements = 0;
    for (const Band& band : s.bands) elements += band.span.elements();
    return elements == s.shape.rows * s.shape.cols;
  });
}

std::string IdentifySample::sizes_text() const {
  std::string out;
  const auto add = [&](const auto& opened, const char* what) {
    if (!opened) return;
    out += fmt::format("{}{} bytes of {}", out.empty() ? "" : " and ", opened->tensor->bytes, what);
  };
  add(codes_, "codes");
  add(scales_, "scales");
  add(choice_, "choices");
  return out.empty() ? "such values" : out;
}

std::string IdentifySample::source_hash() const {
  return fp4scope::source_hash(*input_.source, *input_.tensor,
                               thread_count(options_.verify.threads), options_.verify.stop);
}

std::vector<std::string> IdentifySample::warnings() const {
  std::vector<std::string> out;
  const Shaped& s = shapes_.begin()->second;
  bool varies = false;
  for (const Band& band : s.bands) {
    for (const float v : band.buffer.f32) varies |= !same_pattern(v, s.bands[0].buffer.f32[0]);
  }
  if (!varies) out.emplace_back("every element of the sample of the input is equal");
  return out;
}

}  // namespace fp4scope
