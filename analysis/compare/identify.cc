// identify.cc: see identify.h. First every candidate on one band, then the exact ones on all bands
// and in full; where none is exact, the best ones are varied key by key until nothing gets better.
#include "analysis/compare/identify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "analysis/compare/candidates.h"
#include "analysis/compare/identify_sample.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr double kClose = 0.95;                    // shares from which a contract is worth varying
constexpr std::size_t kByTotal = 6, kByCodes = 3;  // candidates kept of a format and block
constexpr std::size_t kVaried = 18;                // whose keys are varied
constexpr std::size_t kReported = 4;               // of each order, checked in full for the report
constexpr int kRounds = 4;                         // keys that may differ from a candidate
constexpr std::size_t kMostListed = 24;            // contracts that explain everything
// Elements up to which further recipes of a contract are checked in full too.
constexpr std::int64_t kMostInFull = std::int64_t{1} << 23;

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

// How much a recipe leaves unexplained. First what has no name: an unrelated recipe may have all
// codes or all scales by chance, but its other differences are neither ties nor neighbours of
// scales.
std::array<double, 2> unexplained(const VerifyResult& check) {
  const auto share = [](std::int64_t n, std::int64_t of) {
    return of == 0 ? 0.0 : static_cast<double>(n) / static_cast<double>(of);
  };
  const auto of_class = [&](DifferenceClass c) {
    return check.classes[static_cast<std::size_t>(c)];
  };
  const std::int64_t codes = of_class(DifferenceClass::kAdjacentCode) +
                             of_class(DifferenceClass::kOtherCode) +
                             of_class(DifferenceClass::kValue);
  const std::int64_t scales =
      of_class(DifferenceClass::kOtherScale) + of_class(DifferenceClass::kNanScale);
  return {share(codes, check.elements) + share(scales, check.scales),
          share(check.elements_differing, check.elements) +
              share(check.scales_differing, check.scales) +
              share(check.choices_differing, check.blocks) +
              share(check.outer_scales_differing, check.outer_scales)};
}

std::string contract_of(const Recipe& recipe) {
  return std::string(recipe.format.name) + ":" + recipe.contract + ":" + recipe.shape;
}

class Search {
 public:
  Search(const IdentifyOptions& options, SourceCache& sources)
      : options_(options), sample_(options, sources), sources_(sources) {}

  IdentifyResult run() {
    const TensorInfo& input = sample_.input();
    result_.file = input.file;
    result_.tensor = input.name;
    result_.dtype = dtype_name(input.dtype);
    result_.shape = input.shape;
    result_.source_hash = sample_.source_hash();
    if (options_.format.empty())
      result_.casts = identify_casts(options_.job, sources_, options_.verify.stop);
    score_candidates();
    check_pending();
    // Where the sample misled, or no contract as it is explains everything.
    for (int round = 0; round < kRounds && result_.explaining.empty(); ++round) {
      if (!vary_best()) break;
      check_pending();
    }
    if (result_.explaining.empty()) {
      vary_geometries();
      check_pending();
    }
    if (!result_.explaining.empty()) {
      const std::size_t plain = result_.explaining.size();
      vary_other_contracts();
      check_pending();
      for (std::size_t i = plain; i < result_.explaining.size(); ++i) {
        result_.explaining[i].is_varied = true;
      }
    }
    result_.tried = std::ssize(seen_);
    if (ranked_.empty() && result_.explaining.empty() && result_.casts.empty()) {
      const bool has_order = !options_.job.layout.empty() || !options_.job.nibbles.empty();
      throw Error(
          ErrorKind::kData,
          fmt::format("no recipe{} has {} for an input of shape {}{}; are the operands in "
                      "their places?",
                      options_.format.empty() ? "" : " of " + options_.format, sample_.sizes_text(),
                      shape_text(input.shape), has_order ? " in the order that was given" : ""));
    }
    add_notes();
    result_.warnings = sample_.warnings();
    if (result_.explaining.empty()) {
      if (result_.casts.empty()) report_best();
    } else {
      find_settings_without_effect();
      separate_explaining(result_);
    }
    return std::move(result_);
  }

 private:
  bool is_stopped() const { return options_.verify.stop != nullptr && *options_.verify.stop; }
  void stop_if_asked() const {
    if (is_stopped()) throw Error(ErrorKind::kData, "interrupted");
  }

  // --- candidates on the sample ---

  // Scores a recipe once and files it: exact ones wait for their check in full.
  std::optional<Scored> consider(const Recipe& recipe) {
    stop_if_asked();
    // A block of twice the row is the block of the row with more padding.
    if (recipe.family == Family::kMx && recipe.format.block > 32 &&
        sample_.input().cols() <= recipe.format.block / 2) {
      return std::nullopt;
    }
    if (!seen_.insert(to_full_string(recipe)).second) return std::nullopt;
    Scored s{recipe, sample_.score(recipe, is_refined_)};
    if (!s.score.fits) return std::nullopt;
    if (s.score.is_exact()) s.score = sample_.score(recipe, true);
    rank(s);
    if (s.score.is_exact()) pending_.push_back(s);
    const auto [best, is_new] = best_of_contract_.try_emplace(contract_of(recipe), s);
    if (!is_new && s.score.total() > best->second.score.total()) best->second = s;
    return s;
  }

  static bool is_better(const Scored& a, const Scored& b) {
    if (a.score.total() != b.score.total()) return a.score.total() > b.score.total();
    return is_simpler(a.recipe, b.recipe);
  }
  static bool has_better_codes(const Scored& a, const Scored& b) {
    if (a.score.codes != b.score.codes) return a.score.codes > b.score.codes;
    return is_better(a, b);
  }
  // The best of every geometry, so that none crowds out the others; a few more by their codes,
  // which stay right where every scale is off by one.
  void rank(const Scored& s) {
    const std::string text = to_full_string(s.recipe);
    std::erase_if(ranked_, [&](const Scored& r) { return to_full_string(r.recipe) == text; });
    ranked_.insert(std::upper_bound(ranked_.begin(), ranked_.end(), s, is_better), s);
    const auto is_alike = [&](const Scored& r) {
      return r.recipe.format.name == s.recipe.format.name &&
             r.recipe.format.block == s.recipe.format.block;
    };
    std::vector<const Scored*> alike;
    for (const Scored& r : ranked_) {
      if (is_alike(r)) alike.push_back(&r);
    }
    if (alike.size() <= kByTotal) return;
    std::set<std::string> kept;
    for (std::size_t i = 0; i < kByTotal; ++i) kept.insert(to_full_string(alike[i]->recipe));
    std::stable_sort(alike.begin(), alike.end(),
                     [](const Scored* a, const Scored* b) { return has_better_codes(*a, *b); });
    for (std::size_t i = 0; i < kByCodes; ++i) kept.insert(to_full_string(alike[i]->recipe));
    std::erase_if(ranked_, [&](const Scored& r) {
      return is_alike(r) && !kept.contains(to_full_string(r.recipe));
    });
  }
  // The first `n`, few of one geometry, and the first `m` by their codes.
  std::vector<Scored> best_ranked(std::size_t n, std::size_t m) const {
    std::vector<Scored> out;
    std::map<std::string, std::size_t> of_geometry;
    for (const Scored& s : ranked_) {
      const std::string geometry =
          fmt::format("{} {}", s.recipe.format.name, s.recipe.format.block);
      if (out.size() < n && ++of_geometry[geometry] <= kByCodes) out.push_back(s);
    }
    std::vector<Scored> by_codes = ranked_;
    std::stable_sort(by_codes.begin(), by_codes.end(), has_better_codes);
    for (std::size_t i = 0; i < m && i < by_codes.size(); ++i) {
      const std::string text = to_full_string(by_codes[i].recipe);
      const auto same = [&](const Scored& s) { return to_full_string(s.recipe) == text; };
      if (std::none_of(out.begin(), out.end(), same)) out.push_back(by_codes[i]);
    }
    return out;
  }

  void score_candidates() {
    const auto take = [&](const Recipe& recipe) {
      if (options_.format.empty() || recipe.format.name == options_.format) consider(recipe);
    };
    for (const Recipe& recipe : options_.more) {
      if (recipe.rht.size == 0) {
        take(recipe);
        continue;
      }
      // The sample is not transformed: such a recipe is checked in full at once.
      if (!options_.format.empty() && recipe.format.name != options_.format) continue;
      if (!seen_.insert(to_full_string(recipe)).second) continue;
      SampleScore score;
      score.packings = sample_.wanted_packings(recipe);
      score.storages = sample_.wanted_storages(recipe);
      if (auto e = explained(recipe, score)) {
        if (e->check.agrees()) {
          done_.emplace(contract_of(recipe), result_.explaining.size());
          result_.explaining.push_back(*std::move(e));
        } else {
          transformed_.push_back(*std::move(e));
        }
      }
    }
    for (const Recipe& recipe : candidate_recipes()) take(recipe);
  }

  // Changes single keys of the best candidates. False: nothing came in among them.
  bool vary_best() {
    const std::vector<Scored> best = best_ranked(kVaried, kByCodes);
    const auto texts = [](const std::vector<Scored>& list) {
      std::vector<std::string> out;
      for (const Scored& s : list) out.push_back(to_full_string(s.recipe));
      return out;
    };
    for (const Scored& s : best) {
      for (const Variation& v : variations_of(s.recipe)) consider(v.recipe);
    }
    return !pending_.empty() || texts(best) != texts(best_ranked(kVaried, kByCodes));
  }

  // The best of every format and block, where others crowded it out.
  void vary_geometries() {
    std::set<std::string> geometries;
    const std::vector<Scored> best = ranked_;
    for (const Scored& s : best) {
      const std::string geometry =
          fmt::format("{} {}", s.recipe.format.name, s.recipe.format.block);
      if (!geometries.insert(geometry).second) continue;
      for (const Variation& v : variations_of(s.recipe)) consider(v.recipe);
    }
  }

  // Contracts that come close with a setting that no candidate has.
  void vary_other_contracts() {
    for (int round = 0; round < 2; ++round) {
      const auto close = best_of_contract_;
      for (const auto& [contract, s] : close) {
        const SampleScore& score = s.score;
        const double least = std::min({score.codes, score.scales, score.values, score.choices});
        if (done_.contains(contract) || score.is_exact() || least < kClose) continue;
        for (const Variation& v : variations_of(s.recipe)) consider(v.recipe);
      }
    }
  }

  // --- checks in full ---

  // Nothing where the comparison itself fails.
  std::optional<ExplainingRecipe> explanation_of(const Recipe& recipe, CodePacking packing,
                                                 ScaleStorage storage) const {
    ExplainingRecipe e;
    e.recipe = recipe;
    e.nibbles = name_of(packing);
    e.layout = name_of(storage);
    const VerifyCase& given = options_.job;
    e.differs_from_native = (!given.codes.empty() && packing != parse_packing("native", recipe)) ||
                            (!given.scales.empty() && storage != parse_storage("native", recipe));
    VerifyCase job = given;
    job.recipe = to_string(recipe);
    job.nibbles = job.codes.empty() ? "" : e.nibbles;
    job.layout = job.scales.empty() ? "" : e.layout;
    // fouroversix stores an amax of 1 beside formats without an outer scale.
    if (!recipe.has_outer()) job.amax.clear();
    VerifyOptions options = options_.verify;
    options.accept.padding = true;
    options.probes_layouts = false;
    options.explains = false;
    options.hashes = false;
    options.first = 1;  // the block that a misled sample lacks
    try {
      e.check = verify(job, options, sources_);
    } catch (const Error&) {
      if (is_stopped()) throw;
      return std::nullopt;
    }
    return e;
  }

  // Under the first orders that agree, or the first ones of all.
  std::optional<ExplainingRecipe> explained(const Recipe& recipe, const SampleScore& score) const {
    std::optional<ExplainingRecipe> first;
    for (const ScaleStorage storage : score.storages) {
      for (const CodePacking packing : score.packings) {
        stop_if_asked();
        auto e = explanation_of(recipe, packing, storage);
        if (e && e->check.agrees()) {
          take_other_orders(recipe, score, packing, storage, *e);
          return e;
        }
        if (!first) first = std::move(e);
      }
    }
    return first;
  }

  // Orders that read these bytes alike.
  void take_other_orders(const Recipe& recipe, const SampleScore& score, CodePacking packing,
                         ScaleStorage storage, ExplainingRecipe& e) const {
    if (recipe.rht.size != 0) return;  // the sample says nothing about it
    const auto agrees = [&](CodePacking p, ScaleStorage s) {
      if (!checks_in_full()) return true;
      const auto other = explanation_of(recipe, p, s);
      return other && other->check.agrees();
    };
    for (const CodePacking p : score.packings) {
      if (p != packing && agrees(p, storage)) e.other_nibbles.emplace_back(name_of(p));
    }
    for (const ScaleStorage s : score.storages) {
      if (s != storage && agrees(packing, s)) e.other_layouts.emplace_back(name_of(s));
    }
  }

  // Whether further recipes of a contract are checked on all of the tensor: no work of minutes.
  bool checks_in_full() const {
    return !sample_.is_whole() && sample_.input().elements <= kMostInFull;
  }
  bool explains_all(const Scored& s) const {
    if (!checks_in_full()) return true;
    const auto e = explanation_of(s.recipe, s.score.packings.front(), s.score.storages.front());
    return e && e->check.agrees();
  }

  // One entry per contract and format: the simplest recipe that explains everything. A block that a
  // check finds outside the sample joins it, and what still waits is scored again.
  void check_pending() {
    while (!pending_.empty()) {
      const auto next = std::min_element(
          pending_.begin(), pending_.end(),
          [](const Scored& a, const Scored& b) { return is_simpler(a.recipe, b.recipe); });
      const Scored s = *next;
      pending_.erase(next);
      if (const auto found = done_.find(contract_of(s.recipe)); found != done_.end()) {
        if (explains_all(s)) result_.explaining[found->second].also.push_back(to_string(s.recipe));
        continue;
      }
      if (result_.explaining.size() == kMostListed) {
        ++not_listed_;
        continue;
      }
      auto e = explained(s.recipe, s.score);
      if (e && e->check.agrees()) {
        done_.emplace(contract_of(s.recipe), result_.explaining.size());
        result_.explaining.push_back(*std::move(e));
        continue;
      }
      if (!e || e->check.first.empty()) continue;
      const DifferingBlock& block = e->check.first.front();
      if (sample_.add_band(block.row, block.col)) score_again();
      rank({s.recipe, sample_.score(s.recipe, true)});
    }
  }
  void score_again() {
    is_refined_ = true;
    std::vector<Scored> all;
    std::swap(all, pending_);
    for (Scored& s : ranked_) s.score = sample_.score(s.recipe, true);
    std::stable_sort(ranked_.begin(), ranked_.end(), is_better);
    for (Scored& s : all) {
      s.score = sample_.score(s.recipe, true);
      if (s.score.is_exact()) {
        pending_.push_back(s);
      } else {
        rank(s);
      }
    }
  }

  // --- the answer ---

  void add_notes() {
    if (not_listed_ > 0) {
      result_.notes.push_back(
          fmt::format("{} more recipes explain the sample and are not listed", not_listed_));
    }
    result_.on_sample = !sample_.is_whole() && !checks_in_full();
  }

  void report_best() {
    result_.best = std::move(transformed_);
    const std::vector<Scored> chosen = best_ranked(kReported, kReported);
    for (const Scored& s : chosen) {
      const SampleScore score = sample_.score(s.recipe, true);
      if (!score.fits) continue;
      if (auto e = explanation_of(s.recipe, score.packings.front(), score.storages.front())) {
        result_.best.push_back(*std::move(e));
      }
    }
    std::stable_sort(result_.best.begin(), result_.best.end(),
                     [](const ExplainingRecipe& a, const ExplainingRecipe& b) {
                       return unexplained(a.check) < unexplained(b.check);
                     });
    if (result_.best.size() > options_.best) result_.best.resize(options_.best);
  }

  // Single changes of an explaining recipe that explain everything as well, by key.
  void find_settings_without_effect() {
    for (ExplainingRecipe& e : result_.explaining) {
      // The sample is not transformed; of varied contracts the one setting is enough.
      if (e.recipe.rht.size != 0 || e.is_varied) continue;
      std::vector<std::pair<std::string, std::string>> by_key;
      for (const Variation& v : variations_of(e.recipe)) {
        stop_if_asked();
        const Scored s{v.recipe, sample_.score(v.recipe, true)};
        if (!s.score.is_exact() || !explains_all(s)) continue;
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
      if (others.size() == options_.separations || result.explaining[i].is_varied) break;
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
    const auto plain = std::count_if(result.explaining.begin(), result.explaining.end(),
                                     [](const ExplainingRecipe& e) { return !e.is_varied; });
    if (plain - 1 > std::ssize(others)) {
      result.notes.push_back(
          fmt::format("{} more contracts were not told apart", plain - 1 - std::ssize(others)));
    }
  }

  const IdentifyOptions& options_;
  IdentifySample sample_;
  SourceCache& sources_;
  IdentifyResult result_;
  bool is_refined_ = false;     // bands were added: candidates are scored on all of them
  std::set<std::string> seen_;  // full texts
  std::vector<Scored> ranked_;  // best first
  std::vector<ExplainingRecipe> transformed_;  // recipes with rht that do not explain everything
  std::vector<Scored> pending_;                // exact on the sample, to be checked in full
  std::map<std::string, Scored> best_of_contract_;
  std::map<std::string, std::size_t> done_;  // contract -> entry of explaining
  std::int64_t not_listed_ = 0;
};

}  // namespace

IdentifyResult identify(const IdentifyOptions& options, SourceCache& sources) {
  return Search(options, sources).run();
}

}  // namespace fp4scope
