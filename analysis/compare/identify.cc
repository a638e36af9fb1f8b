// identify.cc: see identify.h. First every candidate on one band, then the exact ones on all bands
// and in full; where none is exact, the best ones are varied key by key until nothing gets better.
#include "analysis/compare/identify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/compare/candidates.h"
#include "analysis/compare/identify_sample.h"
#include "analysis/text_table.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::size_t kVaried = 12;      // candidates whose keys are varied
constexpr int kRounds = 4;               // keys that may differ from a candidate
constexpr std::size_t kMostListed = 24;  // contracts that explain everything

struct Scored {
  Recipe recipe;
  SampleScore score;
};

// Fewer keys away from a contract first, then shorter texts: the contract of a format itself before
// others.
bool is_simpler(const Recipe& a, const Recipe& b) {
  const std::string x = to_string(a), y = to_string(b);
  const auto keys = [](const std::string& t) {
    return std::count(t.begin(), t.end(), '=') - (t.find("contract=") != std::string::npos ? 1 : 0);
  };
  if (keys(x) != keys(y)) return keys(x) < keys(y);
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

class Search {
 public:
  Search(const IdentifyOptions& options, SourceCache& sources)
      : options_(options), sample_(options, sources), sources_(sources) {}

  IdentifyResult run() {
    IdentifyResult result;
    const TensorInfo& input = sample_.input();
    result.file = input.file;
    result.tensor = input.name;
    result.dtype = dtype_name(input.dtype);
    result.shape = input.shape;
    result.warnings = sample_.warnings();
    result.casts = identify_casts(options_.job, sources_);
    std::vector<Scored> exact = score_candidates();
    vary_best(exact);
    result.tried = std::ssize(seen_);
    if (ranked_.empty() && result.casts.empty()) {
      throw Error(ErrorKind::kData,
                  "no known format has codes and scales of these sizes for an input of this shape");
    }
    check_in_full(exact, result);
    if (result.explaining.empty()) {
      if (result.casts.empty()) report_best(result);
    } else {
      find_settings_without_effect(result);
      separate_explaining(result);
    }
    return result;
  }

 private:
  void stop_if_asked() const {
    if (options_.verify.stop != nullptr && *options_.verify.stop) {
      throw Error(ErrorKind::kData, "interrupted");
    }
  }

  // Scores a recipe once; exact ones on the whole sample.
  std::optional<Scored> consider(const Recipe& recipe) {
    stop_if_asked();
    if (!seen_.insert(to_full_string(recipe)).second) return std::nullopt;
    Scored s{recipe, sample_.score(recipe, false)};
    if (!s.score.fits) return std::nullopt;
    if (s.score.is_exact()) s.score = sample_.score(recipe, true);
    return s;
  }

  void rank(const Scored& s) {
    ranked_.push_back(s);
    std::stable_sort(ranked_.begin(), ranked_.end(), [](const Scored& a, const Scored& b) {
      if (a.score.total() != b.score.total()) return a.score.total() > b.score.total();
      return is_simpler(a.recipe, b.recipe);
    });
    if (ranked_.size() > kVaried) ranked_.resize(kVaried);
  }

  std::vector<Scored> score_candidates() {
    std::vector<Scored> exact;
    const auto take = [&](const Recipe& recipe) {
      if (!options_.format.empty() && recipe.format.name != options_.format) return;
      if (const auto s = consider(recipe)) {
        rank(*s);
        if (s->score.is_exact()) exact.push_back(*s);
      }
    };
    for (const Recipe& recipe : options_.more) take(recipe);
    for (const Recipe& recipe : candidate_recipes()) take(recipe);
    return exact;
  }

  // Changes single keys of the best candidates, and of what that gave, as long as it helps.
  void vary_best(std::vector<Scored>& exact) {
    for (int round = 0; round < kRounds && exact.empty(); ++round) {
      const std::vector<Scored> best = ranked_;
      const double before = best.empty() ? 0 : best.front().score.total();
      for (const Scored& s : best) {
        for (const Variation& v : variations_of(s.recipe)) {
          const auto varied = consider(v.recipe);
          if (!varied) continue;
          rank(*varied);
          if (varied->score.is_exact()) exact.push_back(*varied);
        }
      }
      if (ranked_.empty() || ranked_.front().score.total() == before) break;
    }
  }

  ExplainingRecipe explanation_of(const Scored& s) const {
    ExplainingRecipe e;
    e.recipe = s.recipe;
    e.nibbles = name_of(s.score.packing);
    e.layout = name_of(s.score.storage);
    const CodePacking native = parse_packing("native", s.recipe);
    const ScaleStorage native_scales = parse_storage("native", s.recipe);
    e.differs_from_native = (!options_.job.codes.empty() && s.score.packing != native) ||
                            (!options_.job.scales.empty() && s.score.storage != native_scales);
    VerifyCase job = options_.job;
    job.recipe = to_string(s.recipe);
    job.nibbles = e.nibbles;
    job.layout = e.layout;
    // fouroversix stores an amax of 1 beside formats without an outer scale.
    if (!s.recipe.has_outer()) job.amax.clear();
    VerifyOptions options = options_.verify;
    options.accept.padding = true;
    options.probes_layouts = false;
    e.check = verify(job, options, sources_);
    return e;
  }

  // One entry per contract and format: the simplest recipe that explains everything.
  void check_in_full(std::vector<Scored>& exact, IdentifyResult& result) {
    std::stable_sort(exact.begin(), exact.end(), [](const Scored& a, const Scored& b) {
      return is_simpler(a.recipe, b.recipe);
    });
    std::map<std::string, std::size_t> done;  // contract -> entry
    for (const Scored& s : exact) {
      const std::string contract =
          std::string(s.recipe.format.name) + ":" + s.recipe.contract + ":" + s.recipe.shape;
      if (const auto found = done.find(contract); found != done.end()) {
        result.explaining[found->second].also.push_back(to_string(s.recipe));
        continue;
      }
      if (result.explaining.size() == kMostListed) break;
      ExplainingRecipe e = explanation_of(s);
      if (!e.check.agrees()) {
        rank({s.recipe, sample_.score(s.recipe, true)});
        continue;
      }
      done.emplace(contract, result.explaining.size());
      result.explaining.push_back(std::move(e));
    }
  }

  void report_best(IdentifyResult& result) {
    for (const Scored& s : ranked_) {
      if (result.best.size() == options_.best) break;
      result.best.push_back(explanation_of({s.recipe, sample_.score(s.recipe, true)}));
    }
    std::stable_sort(result.best.begin(), result.best.end(),
                     [](const ExplainingRecipe& a, const ExplainingRecipe& b) {
                       return a.check.blocks_differing < b.check.blocks_differing;
                     });
  }

  // Single changes of an explaining recipe that explain everything as well, by key.
  void find_settings_without_effect(IdentifyResult& result) {
    for (ExplainingRecipe& e : result.explaining) {
      std::vector<std::pair<std::string, std::string>> by_key;
      for (const Variation& v : variations_of(e.recipe)) {
        stop_if_asked();
        if (!sample_.score(v.recipe, true).is_exact()) continue;
        const std::size_t equals = v.setting.find('=');
        const std::string key = v.setting.substr(0, equals), value = v.setting.substr(equals + 1);
        if (!by_key.empty() && by_key.back().first == key) {
          by_key.back().second += "|" + value;
        } else {
          by_key.emplace_back(key, value);
        }
      }
      for (const auto& [key, values] : by_key) e.without_effect.push_back(key + "=" + values);
    }
  }

  void separate_explaining(IdentifyResult& result) {
    std::vector<Recipe> others;
    for (std::size_t i = 1; i < result.explaining.size(); ++i) {
      if (others.size() == options_.separations) break;
      others.push_back(result.explaining[i].recipe);
    }
    if (others.empty()) return;
    stop_if_asked();
    const Recipe& first = result.explaining.front().recipe;
    SeparateOptions options;
    options.blocks = options_.separation_blocks;
    options.source = sample_.input().dtype == DType::kBF16  ? SourceType::kBf16
                     : sample_.input().dtype == DType::kF16 ? SourceType::kF16
                                                            : SourceType::kF32;
    // Only what was stored here can tell them apart.
    const VerifyCase& job = options_.job;
    options.planes = {!job.outer_scale.empty() || !job.amax.empty(), !job.scales.empty(),
                      !job.codes.empty(), !job.fake.empty()};
    const auto found = separate_all(first, others, options);
    for (std::size_t i = 0; i < others.size(); ++i) {
      result.separations.push_back({to_string(first), to_string(others[i]), found[i]});
    }
    if (result.explaining.size() - 1 > others.size()) {
      result.notes.push_back(fmt::format("{} more explaining recipes were not told apart",
                                         result.explaining.size() - 1 - others.size()));
    }
  }

  const IdentifyOptions& options_;
  IdentifySample sample_;
  SourceCache& sources_;
  std::set<std::string> seen_;  // full texts
  std::vector<Scored> ranked_;  // best first
};

}  // namespace

IdentifyResult identify(const IdentifyOptions& options, SourceCache& sources) {
  return Search(options, sources).run();
}

std::string remainder_of(const VerifyResult& r) {
  std::vector<std::string> parts;
  for (int i = 0; i < kDifferenceClasses; ++i) {
    const std::int64_t n = r.classes[static_cast<std::size_t>(i)];
    if (n == 0) continue;
    const auto c = static_cast<DifferenceClass>(i);
    const bool of_scales = c == DifferenceClass::kScaleOffByOne ||
                           c == DifferenceClass::kOtherScale ||
                           c == DifferenceClass::kChoiceFlipped ||
                           c == DifferenceClass::kLevelBits || c == DifferenceClass::kNanScale;
    const std::int64_t of = of_scales                           ? r.blocks
                            : c == DifferenceClass::kOuterScale ? r.outer_scales
                                                                : r.elements;
    std::string text = fmt::format("{} in {} of {} {}", meaning_of(c), n, of,
                                   of_scales                           ? "blocks"
                                   : c == DifferenceClass::kOuterScale ? "outer scales"
                                                                       : "elements");
    if (c == DifferenceClass::kScaleOffByOne) {
      text += fmt::format(" (found one above {}, one below {})", r.scales_one_above,
                          n - r.scales_one_above);
    }
    parts.push_back(std::move(text));
  }
  return joined(parts, "; ");
}

}  // namespace fp4scope
