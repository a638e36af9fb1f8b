// verify_outer.cc: outer scales of a run of verify: the recipe's own and those that were given.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/compare/compare.h"
#include "analysis/compare/verify_run.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope::verifying {

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
    for (std::size_t i = 0; i < wide.size(); ++i) {
      values[i] = static_cast<float>(wide[i]);
      if (double{values[i]} != wide[i] && wide[i] == wide[i]) {
        throw Error(ErrorKind::kData,
                    fmt::format("{}: tensor {} holds {} at {}, expected binary32 numbers", option,
                                in_quotes(t.name), wide[i], i));
      }
    }
  } else {
    opened.source->read_f32(t, 0, t.rows(), 0, t.cols(), values.data());
  }
  return values;
}

namespace {

// The recipe's own outer scales, and the given ones in their place. A given one that is not the
// recipe's is a difference of its own: blocks are compared under it, so that a wrong last place is
// not reported as a thousand wrong codes.
void replace_outer_scales(Run& run, SourceCache& sources, std::vector<OuterScale32>& own,
                          VerifyResult& result) {
  const Recipe& recipe = run.recipe;
  const VerifyCase& job = run.job;
  const bool has_given = !job.outer_scale.empty() || !job.amax.empty();
  if (has_given && !recipe.has_outer() && job.is_golden) {  // of another recipe
    run.outer = outer_scales(run.backend, recipe, {});
    own = run.outer;
    return;
  }
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
    if (values.size() != want && values.size() != run.outer.size() && job.is_golden) {
      ++result.outer_scales_differing;
      ++result.classes[static_cast<std::size_t>(DifferenceClass::kOuterScale)];
      return std::vector<float>{};
    }
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

}  // namespace

void take_outer_scales(Run& run, SourceCache& sources, VerifyResult& result) {
  std::vector<OuterScale32> own;
  replace_outer_scales(run, sources, own, result);
  if (result.outer_scales_differing > 0) run.own_outer = std::move(own);
}

}  // namespace fp4scope::verifying
