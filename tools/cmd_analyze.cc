// cmd_analyze.cc: the main job. A finished result is never lost: an output file that cannot be
// written does not keep the table from stdout, nor the other way round.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "analysis/input_notes.h"
#include "analysis/inputs.h"
#include "analysis/resume.h"
#include "analysis/text_table.h"
#include "common.h"
#include "threshold.h"

namespace fp4scope::tools {
namespace {

std::vector<std::string> metric_names() {
  std::vector<std::string> keys;
  for (const Column& column : columns()) keys.emplace_back(column.key);
  return keys;
}

// Flags count as 0 and 1; null and text have no number.
std::optional<double> number(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1.0 : 0.0;
  if (const auto* count = std::get_if<std::int64_t>(&value)) return static_cast<double>(*count);
  if (const auto* figure = std::get_if<double>(&value)) return *figure;
  return std::nullopt;
}

// Where an undefined figure hides no loss: nothing was there, or nothing was lost.
bool lossless(const Row& row) {
  return number(row.figure("elements")) == 0 || number(row.figure("exact")) == 1;
}

// Says which rows break which limit; true when any does. A gate fails closed: a figure that is
// undefined, as of a tensor of NaNs, says nothing about the limit.
bool check_thresholds(const Report& report, const std::vector<Threshold>& thresholds) {
  bool failed = false;
  for (const Threshold& threshold : thresholds) {
    for (const Row& row : report.results) {
      const auto column = static_cast<std::size_t>(column_index(threshold.metric));
      const auto value = number(row.figures.at(column));
      const std::string_view key = columns()[column].key;
      if (value ? !threshold.holds(*value) : lossless(row)) continue;
      failed = true;
      const std::string place = fmt::format("for {}:{} with {}", row.file, row.tensor, row.recipe);
      complain(value ? fmt::format("{} holds {}: {} is {}", threshold.text, place, key, *value)
                     : fmt::format("{} is undefined {}", key, place));
    }
  }
  return failed;
}

// --out FILE
struct Output {
  std::string path;
  std::string (*render)(const Report&, const Provenance&);
};

Output parse_output(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".json") return {path, render_json};
  if (ending == ".csv") return {path, render_csv};
  if (ending == ".h5" || ending == ".hdf5") return {path, render_hdf5};
  if (ending == ".html") {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("--out {}: this version cannot write {} reports yet; use .json, .csv or "
                    ".h5",
                    path, ending));
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("--out {}: the ending must be .json, .csv or .h5", path));
}

void write_output(const Output& output, const Report& report) {
  write_file(output.path, output.render(report, provenance()));
}

struct AnalyzeArguments : CommonOptions {
  std::vector<std::string> files, recipes, out, fail_if, group_by, group_fields;
  std::string memory = "1G", percentiles = "sample";
  std::int64_t map_size = 0;
  bool csv = false, resume = false;
};

std::string journal_path(const std::string& out) {
  return out + ".resume";
}

// --resume keeps what is finished beside the first --out, until every output is written.
std::unique_ptr<ResumeJournal> open_journal(const AnalyzeArguments& arguments,
                                            const std::vector<Operand>& operands,
                                            const AnalyzeOptions& options, Progress& progress) {
  if (!arguments.resume) return nullptr;
  if (arguments.out.empty()) {
    throw Error(ErrorKind::kUsage,
                "--resume needs --out FILE, beside which it keeps what is finished");
  }
  const std::string path = journal_path(arguments.out.front());
  refuse_out_as_input(path, operands, arguments.open);
  refuse_out_as_recipe_file(path, arguments);
  const std::string program = fmt::format("{} ({})", provenance().version, provenance().git);
  return std::make_unique<ResumeJournal>(path, run_settings(program, arguments.files, options),
                                         [&progress](const std::string& text) {
                                           progress.clear();
                                           complain(text);
                                         });
}

// What becomes of the journal at the end of a run.
void close_journal(ResumeJournal* journal, bool all_written) {
  if (journal == nullptr) return;
  if (all_written) {
    journal->remove();
  } else if (journal->size() > 0) {
    complain(fmt::format("{} keeps the {} finished tensors: the same command goes on from there",
                         journal->path(), journal->size()));
  }
}

int run_analyze(AnalyzeArguments& arguments) {
  if (arguments.json && arguments.csv) {
    throw Error(ErrorKind::kUsage,
                "--json and --csv both want standard output; write one with --out FILE");
  }
  if (arguments.recipes.empty()) arguments.recipes = {"mxfp4", "nvfp4", "hif4"};

  AnalyzeOptions options;
  options.recipes = parse_recipe_options(arguments.recipes, arguments);
  std::vector<Threshold> thresholds;
  for (const std::string& text : arguments.fail_if) {
    thresholds.push_back(parse_threshold(text, metric_names()));
  }
  options.memory_bytes = parse_memory(arguments.memory);
  const std::vector<Operand> operands = parse_operands(arguments.files);
  std::vector<Output> outputs;
  std::set<std::string> paths;
  for (const std::string& path : arguments.out) {
    outputs.push_back(parse_output(path));
    if (!paths.insert(path).second) {
      throw Error(ErrorKind::kUsage, fmt::format("--out {}: given twice", path));
    }
    refuse_out_as_input(path, operands, arguments.open);
    refuse_out_as_recipe_file(path, arguments);
    check_writable(outputs.back().path);
  }

  Progress progress(arguments.quiet);
  options.filter = arguments.filter;
  options.axis = arguments.axis;
  options.backend = arguments.backend;
  options.threads = arguments.threads;
  options.full_percentiles = arguments.percentiles == "full";
  options.map_size = arguments.map_size;
  options.group_by = arguments.group_by;
  options.group_fields = arguments.group_fields;
  options.name_patterns = arguments.name_patterns;
  options.open = arguments.open;
  options.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  options.looking = [&](std::int64_t files) { progress.looking(files); };
  options.stop = &stop_requested();
  const auto journal = open_journal(arguments, operands, options, progress);
  options.journal = journal.get();
  const Report report = analyze(arguments.files, options);
  progress.clear();
  warn_of(report.warnings);
  // A gate over nothing would pass.
  if (report.results.empty() && report.errors.empty() && !report.interrupted) {
    if (!report.skipped.empty()) {
      throw Error(ErrorKind::kUnsupported, report.skipped.front().message);
    }
    const bool filtered = !options.filter.is_empty();
    throw Error(filtered ? ErrorKind::kUsage : ErrorKind::kData,
                filtered ? no_tensor_passes(report.unused_includes, paths_of(report.sources))
                         : "the input holds no tensor that could be analyzed");
  }

  int exit_code = complain_of(report.errors, !arguments.json && !arguments.csv);
  const auto failed = [&](int code) { exit_code = std::max(exit_code, code); };
  bool all_written = !report.interrupted;
  for (const Output& output : outputs) {
    if (report.interrupted) {
      complain(fmt::format("{}: not written, the run was interrupted", output.path));
      continue;
    }
    try {
      write_output(output, report);
    } catch (const Error& error) {
      complain(error.what());
      failed(error.exit_code());
      all_written = false;
    }
  }
  try {
    write_stdout(arguments.json  ? render_json(report, provenance())
                 : arguments.csv ? render_csv(report, provenance())
                                 : render_text(report, provenance()));
  } catch (const Error& error) {
    complain(error.what());
    failed(error.exit_code());
    all_written = false;
  }
  close_journal(journal.get(), all_written);
  const std::string left = arguments.out.empty() ? "" : journal_path(arguments.out.front());
  if (journal == nullptr && all_written && !left.empty() && ResumeJournal::is_left(left)) {
    complain(
        fmt::format("warning: {} of an earlier run with --resume is still there, and this run did "
                    "not use it; --resume with its settings goes on from there",
                    left));
  }
  if (check_thresholds(report, thresholds)) failed(kExitThreshold);
  return report.interrupted ? stop_exit_code() : exit_code;
}

}  // namespace

void add_analyze(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<AnalyzeArguments>();
  CLI::App* sub = app.add_subcommand(
      "analyze", "error, underflow, saturation and scale use of every tensor under every recipe");
  sub->add_option("FILE", arguments->files, kOperandHelp)->required();
  sub->add_option("-r,--recipe", arguments->recipes,
                  "repeatable; default: mxfp4, nvfp4 and hif4; see 'fp4scope formats'")
      ->type_name("RECIPE")
      ->allow_extra_args(false);
  add_filter(*sub, arguments->filter);
  add_recipe_files(*sub, *arguments);
  add_arithmetic_options(*sub, *arguments);
  add_memory(*sub, arguments->memory);
  sub->add_option("--percentiles", arguments->percentiles,
                  "of every 16th strip of 64 blocks, or of all elements")
      ->check(CLI::IsMember({"sample", "full"}))
      ->capture_default_str();
  sub->add_option(
         "--map-size", arguments->map_size,
         "largest number of map cells along a side; 0: no maps; maps appear in JSON and HDF5")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{4096}))
      ->capture_default_str();
  sub->add_option("--group-by", arguments->group_by,
                  "also aggregate by the first capture (or match) of this regular expression")
      ->type_name("REGEX")
      ->allow_extra_args(false);
  sub->add_option("--group-fields", arguments->group_fields,
                  "also aggregate by what file and tensor names say: layer, step, rank, expert, "
                  "role, several by commas; repeatable")
      ->type_name("FIELDS")
      ->allow_extra_args(false);
  add_name_pattern(*sub, *arguments);
  sub->add_option(
         "--fail-if", arguments->fail_if,
         "exit with code 1 when METRIC>VALUE (or >= < <=) holds for any row, or when "
         "METRIC is undefined (null) for a row that is neither exact nor empty; repeatable")
      ->type_name("CONDITION")
      ->allow_extra_args(false);
  sub->add_option("--out", arguments->out, "also write FILE.json, FILE.csv or FILE.h5; repeatable")
      ->type_name("FILE")
      ->allow_extra_args(false);
  sub->add_flag("--resume", arguments->resume,
                "keep what is finished in OUT.resume, beside the first --out, and go on from there "
                "when an earlier run of this command was killed");
  sub->add_flag("--csv", arguments->csv, "print CSV instead of the table");
  add_output_options(*sub, *arguments);
  std::string metrics = "Metrics (JSON keys, CSV columns, --fail-if):\n";
  metrics +=
      "  (xxh3 and source_hash are the XXH3-64 of the hashes of the tensor's tiles, in order: the\n"
      "  same for the same tensor in every file and run, but not what xxhsum prints of its "
      "bytes.)\n";
  for (const Column& column : columns()) {
    metrics += fmt::format("  {:<22} {}\n", column.key, column.meaning);
  }
  sub->footer(metrics +
              "\nExample:\n  fp4scope analyze data/sample/use_lite_slice.safetensors "
              "-r mxfp4 -r nvfp4 -r hif4 --out report.json");
  sub->callback([arguments, &exit_code] { exit_code = run_analyze(*arguments); });
}

}  // namespace fp4scope::tools
