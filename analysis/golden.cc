// golden.cc: the cases of a golden file (golden.h). Writing: golden_write.cc.
#include "analysis/golden.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/analyze.h"
#include "analysis/compare/catalog.h"
#include "analysis/compare/separate.h"
#include "analysis/quantize_layout.h"
#include "analysis/tiles.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

class Maker {
 public:
  Maker(const Recipe& recipe, const GoldenOptions& options)
      : options_(options),
        production_(choose_backend("auto", recipe)),
        has_oracle_(options.with_oracle && oracle_backend().supports(recipe).ok),
        counter_(recipe) {
    golden_.recipe = recipe;
    golden_.source = options.source;
    golden_.seed = options.seed;
    golden_.made_by =
        has_oracle_ ? "made by the exact backend (oracle); a production backend agrees in every bit"
                    : "made by a production backend: the exact backend does not have this recipe";
  }

  Golden run() {
    for (Probe& probe : probes_of(golden_.recipe, options_.source)) add(std::move(probe));
    require_results();
    separate_from_catalog();
    golden_.coverage = counter_.result();
    return std::move(golden_);
  }

 private:
  void add(Probe probe) {
    const Recipe& recipe = golden_.recipe;
    probe.tensor_id = stream_of(probe.name + ".x");  // as it is called in the file
    const Outcome fast = outcome_of(production_, recipe, probe);
    if (has_oracle_) {
      const Outcome exact = outcome_of(oracle_backend(), recipe, probe);
      const auto difference = first_difference(recipe, exact, recipe, fast);
      if (difference || exact.tile.choices != fast.tile.choices) {
        throw Error(
            ErrorKind::kUnsupported,
            fmt::format("recipe {}: the exact backend and {} disagree on case {}, row {}, "
                        "block {} ({}), so no golden can be made",
                        to_string(recipe), production_.name(), probe.name,
                        difference ? difference->row : 0, difference ? difference->block : 0,
                        difference ? difference->what : "choice"));
      }
    }
    counter_.add(probe, fast);
    golden_.cases.push_back(packed(std::move(probe), fast));
    outcomes_.push_back(fast);
  }

  void require_results() const {
    const auto is_refused = [](const GoldenCase& c) { return !c.refusal.empty(); };
    if (!std::all_of(golden_.cases.begin(), golden_.cases.end(), is_refused)) return;
    throw Error(ErrorKind::kUnsupported,
                fmt::format("recipe {} refuses every input that a golden has: {}",
                            to_string(golden_.recipe), golden_.cases.front().refusal));
  }

  GoldenCase packed(Probe probe, const Outcome& outcome) const {
    const Recipe& recipe = golden_.recipe;
    GoldenCase c;
    static_cast<Probe&>(c) = std::move(probe);
    c.refusal = outcome.refusal;
    c.has_codes = outcome.has_codes;
    if (outcome.is_refused()) return c;
    c.values = outcome.values;
    if (!c.has_codes) return c;
    const Planes planes = planes_of(recipe, c.rows, c.cols);
    c.codes.resize(static_cast<std::size_t>(c.rows * planes.code_cols));
    for (std::int64_t r = 0; r < c.rows; ++r) {
      pack_codes(recipe,
                 outcome.tile.codes.data() + r * outcome.tile.padded_cols * recipe.code_bytes(),
                 c.cols, c.codes.data() + r * planes.code_cols);
    }
    c.scales = outcome.tile.scales;
    c.choice = outcome.tile.choices;
    for (std::int64_t i = 0; i < planes.outer_entries; ++i) {
      c.amax.push_back(outcome.outer[static_cast<std::size_t>(i)].amax);
      c.outer_scale.push_back(outcome.outer[static_cast<std::size_t>(i)].g);
    }
    return c;
  }

  // Whether a case from `first` on tells `other` apart.
  bool tells_apart(const Recipe& other, std::size_t first) const {
    const Backend& backend = choose_backend("auto", other);
    for (std::size_t i = first; i < golden_.cases.size(); ++i) {
      const Outcome on_other = outcome_of(backend, other, golden_.cases[i]);
      if (first_difference(golden_.recipe, outcomes_[i], other, on_other)) return true;
    }
    return false;
  }

  void separate_from_catalog() {
    const Recipe& recipe = golden_.recipe;
    const std::string own = to_full_string(recipe);
    std::vector<Recipe> rest;
    for (const Recipe& other : contract_catalog()) {
      if (!shape_difference(recipe, other).empty() || to_full_string(other) == own) continue;
      if (tells_apart(other, 0)) {
        ++golden_.separated;
      } else {
        rest.push_back(other);
      }
    }
    if (rest.empty()) return;
    SeparateOptions search;
    search.blocks = options_.search_blocks;
    search.seed = options_.seed;
    search.source = options_.source;
    const auto found = separate_all(recipe, rest, search);
    const std::size_t first = golden_.cases.size();
    for (std::size_t i = 0; i < rest.size(); ++i) {
      if (!found[i]) {
        golden_.equal.push_back(to_string(rest[i]));
        continue;
      }
      ++golden_.separated;
      if (tells_apart(rest[i], first)) continue;
      Probe probe;
      static_cast<SmallTensor&>(probe) = *found[i];
      probe.name = fmt::format("separator-{}", golden_.cases.size() - first + 1);
      probe.what = fmt::format("tells {} apart: {}", to_string(rest[i]), found[i]->what);
      add(std::move(probe));
    }
  }

  GoldenOptions options_;
  const Backend& production_;
  bool has_oracle_;
  Golden golden_;
  CoverageCounter counter_;
  std::vector<Outcome> outcomes_;
};

}  // namespace

Golden make_golden(const Recipe& recipe, const GoldenOptions& options) {
  return Maker(recipe, options).run();
}

}  // namespace fp4scope
