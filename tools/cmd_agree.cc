// cmd_agree.cc: two recipes on the same tensors.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/compare/agree.h"
#include "analysis/io/message.h"
#include "analysis/text_table.h"
#include "common.h"
#include "threshold.h"

namespace fp4scope::tools {
namespace {

struct Options : CommonOptions {
  std::string a, b, out;
  std::vector<std::string> files;
  std::size_t first = 3;
  std::string memory = "1G";
  std::vector<std::string> fail_if;
};

std::string percent(std::optional<double> share) {
  return share ? fmt::format("{:.6f} %", *share * 100) : "not comparable";
}

struct Shares {
  std::optional<double> scales, choices, codes, values;
};
Shares shares_of(const AgreeCounts& c, const AgreeRow& row) {
  Shares s;
  if (row.has_scales) s.scales = agreement(c.scales_differing, c.blocks);
  if (row.has_choices) s.choices = agreement(c.choices_differing, c.live_blocks);
  if (row.has_codes) s.codes = agreement(c.codes_differing, c.elements);
  if (row.has_values) s.values = agreement(c.values_differing, c.elements);
  return s;
}

std::string counts_text(const AgreeCounts& c, const AgreeRow& row) {
  const Shares share = shares_of(c, row);
  TextTable table;
  table.column("", Align::kLeft);
  table.column("equal", Align::kRight);
  table.column("differ", Align::kRight);
  table.column("of", Align::kRight);
  const auto line = [&](const char* name, std::optional<double> s, std::int64_t differing,
                        std::int64_t of) {
    table.row({name, percent(s), s ? std::to_string(differing) : "", s ? std::to_string(of) : ""});
  };
  line("scales", share.scales, c.scales_differing, c.blocks);
  if (row.has_ties) line("4/6 choices", share.choices, c.choices_differing, c.live_blocks);
  line("codes", share.codes, c.codes_differing, c.elements);
  line("values", share.values, c.values_differing, c.elements);
  if (c.outer_scales > 0) {
    line("outer scales", agreement(c.outer_scales_differing, c.outer_scales),
         c.outer_scales_differing, c.outer_scales);
  }
  std::string out = table.str();
  if (row.has_ties) {
    out += fmt::format("blocks with amax > 0: {}; exact ties {}, near ties {}\n", c.live_blocks,
                       c.ties, c.near_ties);
  }
  if (row.has_choices) {
    out += fmt::format(
        "choices that differ: {} at exact ties, {} at near ties, {} elsewhere\n",
        c.choices_differing_at_ties, c.choices_differing_at_near_ties,
        c.choices_differing - c.choices_differing_at_ties - c.choices_differing_at_near_ties);
    TextTable confusion;
    confusion.column("", Align::kLeft);
    confusion.column("B map-to-6", Align::kRight);
    confusion.column("B map-to-4", Align::kRight);
    for (int four = 0; four < 2; ++four) {
      confusion.row({four != 0 ? "A map-to-4" : "A map-to-6",
                     std::to_string(c.choice_table[four][0]),
                     std::to_string(c.choice_table[four][1])});
    }
    out += confusion.str();
  }
  // The most frequent pairs of codes that differ.
  std::vector<std::pair<std::int64_t, std::pair<std::uint32_t, std::uint32_t>>> pairs;
  for (const auto& [codes, n] : c.code_table) pairs.push_back({n, codes});
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  if (!pairs.empty()) {
    constexpr std::size_t kMost = 8;
    std::string list;
    for (std::size_t i = 0; i < pairs.size() && i < kMost; ++i) {
      list += fmt::format("{}{:x}>{:x} {}", i == 0 ? "" : ", ", pairs[i].second.first,
                          pairs[i].second.second, pairs[i].first);
    }
    if (pairs.size() > kMost) list += fmt::format(" and {} more pairs", pairs.size() - kMost);
    out += wrapped("codes A>B:", list, 11);
  }
  return out;
}

std::string as_text(const AgreeResult& result, const AgreeOptions& options) {
  std::string out =
      fmt::format("A = {}\n  = {}\nB = {}\n  = {}\n", options.a.text, to_full_string(options.a),
                  options.b.text, to_full_string(options.b));
  const bool several = std::any_of(result.rows.begin(), result.rows.end(), [&](const auto& row) {
    return row.file != result.rows.front().file;
  });
  for (const AgreeRow& row : result.rows) {
    const std::string place = several ? row.file + ":" + row.tensor : row.tensor;
    out += fmt::format("\n{}, {} {}, xxh3 {}\n", printable(place), row.dtype, dimensions(row.shape),
                       row.source_hash);
    out += counts_text(row.counts, row);
    if (!row.first.empty()) out += "first differing blocks, A then B\n";
    for (const DifferingBlock& block : row.first) {
      out += to_text(block, row.a, row.b, {"A", "B"});
    }
    for (const std::string& note : row.notes) out += wrapped("note:", printable(note), 6);
  }
  if (result.total && !result.rows.empty()) {
    out += fmt::format("\nall, {} tensors\n", result.rows.size()) +
           counts_text(*result.total, result.rows.front());
  }
  for (const ErrorRecord& skipped : result.skipped) {
    out += fmt::format("skipped: {}\n", printable(skipped.message));
  }
  return out;
}

Json share_json(std::optional<double> share) {
  return share ? Json(*share) : Json(nullptr);
}

Json counts_json(const AgreeCounts& c, const AgreeRow& row) {
  const Shares share = shares_of(c, row);
  Json out = {{"elements", c.elements},
              {"blocks", c.blocks},
              {"blocks_differing", c.blocks_differing},
              {"scale_agreement", share_json(share.scales)},
              {"choice_agreement", share_json(share.choices)},
              {"code_agreement", share_json(share.codes)},
              {"value_agreement", share_json(share.values)}};
  const auto count = [&](const char* key, bool has, std::int64_t n) {
    out[key] = has ? Json(n) : Json(nullptr);
  };
  count("scales_differing", row.has_scales, c.scales_differing);
  count("choices_differing", row.has_choices, c.choices_differing);
  count("codes_differing", row.has_codes, c.codes_differing);
  count("values_differing", row.has_values, c.values_differing);
  count("outer_scales_differing", c.outer_scales > 0, c.outer_scales_differing);
  count("live_blocks", row.has_ties, c.live_blocks);
  count("ties", row.has_ties, c.ties);
  count("near_ties", row.has_ties, c.near_ties);
  if (row.has_choices) {
    out["choices_differing_at_ties"] = c.choices_differing_at_ties;
    out["choices_differing_at_near_ties"] = c.choices_differing_at_near_ties;
    out["choice_table"] = {{"a6_b6", c.choice_table[0][0]},
                           {"a6_b4", c.choice_table[0][1]},
                           {"a4_b6", c.choice_table[1][0]},
                           {"a4_b4", c.choice_table[1][1]}};
  }
  if (row.has_codes) {
    out["code_table"] = Json::array();
    for (const auto& [codes, n] : c.code_table) {
      out["code_table"].push_back({{"a", codes.first}, {"b", codes.second}, {"elements", n}});
    }
  }
  return out;
}

std::string as_json(const AgreeResult& result, const AgreeOptions& options) {
  Json out = json_envelope(provenance());
  out["fp4scope"]["threads"] = result.threads;
  for (const AgreeRow& row : result.rows) {
    Json entry = {{"file", row.file},
                  {"tensor", row.tensor},
                  {"dtype", row.dtype},
                  {"shape", row.shape},
                  {"source_hash", row.source_hash},
                  {"recipe_a", row.a.text},
                  {"recipe_a_full", to_full_string(row.a)},
                  {"recipe_b", row.b.text},
                  {"recipe_b_full", to_full_string(row.b)},
                  {"backend_a", row.backend_a},
                  {"backend_b", row.backend_b}};
    add_fields(row.fields, entry);
    entry.update(counts_json(row.counts, row));
    entry["first"] = Json::array();
    for (const DifferingBlock& block : row.first) {
      entry["first"].push_back(to_json(block, row.a, row.b, {"a", "b"}));
    }
    entry["notes"] = row.notes;
    out["results"].push_back(std::move(entry));
  }
  if (result.total) {
    Json total = {{"tensors", result.rows.size()},
                  {"recipe_a", options.a.text},
                  {"recipe_b", options.b.text}};
    total.update(counts_json(*result.total, result.rows.front()));
    out["aggregates"].push_back(std::move(total));
  }
  for (const ErrorRecord& error : result.errors) out["errors"].push_back(to_json(error));
  for (const ErrorRecord& skipped : result.skipped) out["skipped"].push_back(to_json(skipped));
  out["sources"] = sources_json(result.sources);
  return json_text(out);
}

const std::vector<std::string> kMetrics = {
    "scale_agreement",  "choice_agreement",      "code_agreement",    "value_agreement",
    "blocks_differing", "scales_differing",      "choices_differing", "codes_differing",
    "values_differing", "outer_scales_differing"};

// Says which rows break which limit. A gate fails closed: an undefined figure breaks it.
bool check_thresholds(const AgreeResult& result, const std::vector<Threshold>& thresholds) {
  bool failed = false;
  for (const Threshold& threshold : thresholds) {
    for (const AgreeRow& row : result.rows) {
      const Json value = counts_json(row.counts, row)[threshold.metric];
      if (value.is_number() && !threshold.holds(value.get<double>())) continue;
      // Nothing there to be different: an empty tensor, or choices without a live block.
      const bool is_empty =
          row.counts.elements == 0 || (threshold.metric == "choice_agreement" && row.has_choices);
      if (!value.is_number() && is_empty) continue;
      failed = true;
      const std::string place =
          fmt::format("for {}:{}", printable(row.file), printable(row.tensor));
      complain(value.is_number() ? fmt::format("{} holds {}: {} is {}", threshold.text, place,
                                               threshold.metric, value.dump())
                                 : fmt::format("{} is undefined {}", threshold.metric, place));
    }
  }
  return failed;
}

int run_agree(const Options& options) {
  // Everything that was typed is checked before any work.
  std::vector<Threshold> thresholds;
  for (const std::string& text : options.fail_if) {
    thresholds.push_back(parse_threshold(text, kMetrics));
  }
  const std::vector<Recipe> recipes = parse_recipe_options({options.a, options.b}, options);
  const std::vector<Operand> operands = parse_operands(options.files);
  if (!options.out.empty()) {
    if (!options.out.ends_with(".json")) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("--out {}: expected a name that ends with .json", options.out));
    }
    refuse_out_as_input(options.out, operands, options.open);
    refuse_out_as_recipe_file(options.out, options);
    check_writable(options.out);
  }
  Progress progress(options.quiet);
  AgreeOptions job;
  job.a = recipes[0];
  job.b = recipes[1];
  job.filter = options.filter;
  job.axis = options.axis;
  job.backend = options.backend;
  job.threads = options.threads;
  job.memory_bytes = parse_memory(options.memory);
  job.first = options.first;
  job.open = options.open;
  job.explain_options = explain_options(options);
  job.stop = &stop_requested();
  job.name_patterns = options.name_patterns;
  job.looking = [&](std::int64_t files) { progress.looking(files); };
  job.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  const AgreeResult result = agree(options.files, job);
  progress.clear();
  warn_of(result.warnings);
  int exit_code = complain_of(result.errors, false);
  if (!options.out.empty() && !result.interrupted) {
    try {
      write_file(options.out, as_json(result, job));
    } catch (const Error& error) {  // the table on stdout is not lost
      complain(error.what());
      exit_code = std::max(exit_code, error.exit_code());
    }
  }
  write_stdout(options.json ? as_json(result, job) : as_text(result, job));
  if (result.interrupted) {
    complain("interrupted; the tensors above were finished");
    return stop_exit_code();
  }
  if (check_thresholds(result, thresholds)) exit_code = std::max(exit_code, kExitThreshold);
  return exit_code;
}

}  // namespace

void add_agree(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "agree", "two recipes on the same tensors: equal scales, 4/6 choices, codes and values");
  sub->add_option("A", options->a, "first recipe")->required()->type_name("RECIPE");
  sub->add_option("B", options->b, "second recipe")->required()->type_name("RECIPE");
  sub->add_option("FILE", options->files, kOperandHelp)->required();
  sub->add_option("--first", options->first, "differing blocks to show per tensor")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  sub->add_option(
         "--fail-if", options->fail_if,
         "exit with code 1 when a condition holds for any row, as choice_agreement<0.9999, or "
         "its figure is undefined; repeatable")
      ->type_name("CONDITION")
      ->allow_extra_args(false);
  sub->add_option("--out", options->out, "write the JSON report to this file")->type_name("FILE");
  add_memory(*sub, options->memory);
  add_recipe_files(*sub, *options);
  add_filter(*sub, options->filter);
  add_name_pattern(*sub, *options);
  add_arithmetic_options(*sub, *options);
  add_output_options(*sub, *options);
  sub->footer(
      "Blocks are those of A; a 2-D block counts once for each of its rows. Ties: the errors of\n"
      "map-to-4 and map-to-6 are equal in at least one recipe; near ties: they differ by at most\n"
      "2^-20 of the larger one. Both are counted over blocks with amax > 0, as choices are.\n"
      "Example:\n  fp4scope agree nvfp4:select=mae nvfp4:select=mae,metric=fast "
      "data/sample/use_lite_slice.safetensors");
  sub->callback([options, &exit_code] { exit_code = run_agree(*options); });
}

}  // namespace fp4scope::tools
