// cmd_analyze.cc: the main job. A finished result is never lost: an output file that cannot be
// written does not keep the table from stdout, nor the other way round.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "analysis/io/sinks.h"
#include "analysis/text_table.h"
#include "common.h"

namespace fp4scope::tools {
namespace {

// --fail-if 'METRIC>VALUE'
struct Threshold {
  enum class Op { kGreater, kGreaterEqual, kLess, kLessEqual };
  std::string text;
  int column = -1;
  Op op = Op::kGreater;
  double limit = 0;

  bool exceeded_by(double value) const {
    switch (op) {
      case Op::kGreater:
        return value > limit;
      case Op::kGreaterEqual:
        return value >= limit;
      case Op::kLess:
        return value < limit;
      case Op::kLessEqual:
        return value <= limit;
    }
    return false;
  }
};

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

Threshold parse_threshold(const std::string& text) {
  Threshold out;
  out.text = text;
  const auto at = text.find_first_of("<>");
  if (at == std::string::npos) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--fail-if '{}': expected METRIC>VALUE with one of > >= < <=", text));
  }
  const bool or_equal = at + 1 < text.size() && text[at + 1] == '=';
  if (text[at] == '>') {
    out.op = or_equal ? Threshold::Op::kGreaterEqual : Threshold::Op::kGreater;
  } else {
    out.op = or_equal ? Threshold::Op::kLessEqual : Threshold::Op::kLess;
  }
  const std::string_view metric = trimmed(std::string_view(text).substr(0, at));
  const std::string_view value = trimmed(std::string_view(text).substr(at + (or_equal ? 2 : 1)));
  out.column = column_index(metric);
  if (out.column < 0) {
    std::vector<std::string> keys;
    for (const Column& column : columns()) keys.emplace_back(column.key);
    throw Error(ErrorKind::kUsage,
                fmt::format("--fail-if '{}': there is no metric '{}'; known are {}", text, metric,
                            joined(keys, ", ")));
  }
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out.limit);
  if (error != std::errc{} || end != value.data() + value.size() || std::isnan(out.limit)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--fail-if '{}': '{}' is not a number", text, value));
  }
  return out;
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
      const auto column = static_cast<std::size_t>(threshold.column);
      const auto value = number(row.figures.at(column));
      const std::string_view key = columns()[column].key;
      if (value ? !threshold.exceeded_by(*value) : lossless(row)) continue;
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
  if (ending == ".h5" || ending == ".html") {
    throw Error(ErrorKind::kUsage,
                fmt::format("--out {}: this version cannot write {} reports yet; use .json or .csv",
                            path, ending));
  }
  throw Error(ErrorKind::kUsage, fmt::format("--out {}: the ending must be .json or .csv", path));
}

// Before hours of work: a directory that is missing or cannot be written is an error now. The probe
// file has a temporary name and is removed at once; an existing target stays as it is.
void check_writable(const Output& output) {
  if (std::error_code ignored; std::filesystem::is_directory(output.path, ignored)) {
    throw Error(ErrorKind::kData, fmt::format("--out {}: this is a directory", output.path));
  }
  AtomicFile probe(output.path);
}

void write_output(const Output& output, const Report& report) {
  const std::string text = output.render(report, provenance());
  AtomicFile file(output.path);
  file.write(text.data(), text.size());
  file.commit();
}

// --memory 64M: bytes, or units of 1024^n.
std::int64_t parse_memory(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage, fmt::format("--memory '{}': {}; the least is {}M", text, why,
                                               kMemoryPerThread >> 20));
  };
  constexpr std::string_view kUnits = "KMGT";
  std::int64_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, bytes);
  if (error == std::errc::result_out_of_range) refuse("this exceeds 64 bits");
  std::string unit(rest, end);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (unit.ends_with('B')) unit.pop_back();
  if (unit.size() == 2 && unit[1] == 'I') unit.pop_back();
  const std::size_t power = unit.empty() ? 0 : kUnits.find(unit) + 1;
  if (error != std::errc{} || unit.size() > 1 || power > kUnits.size()) {
    refuse("expected a whole number with K, M, G, T or nothing behind it (1024-based)");
  }
  for (std::size_t i = 0; i < power; ++i) {
    if (__builtin_mul_overflow(bytes, std::int64_t{1024}, &bytes)) refuse("this exceeds 64 bits");
  }
  if (bytes < kMemoryPerThread) refuse("one thread needs more");
  return bytes;
}

struct AnalyzeArguments : CommonOptions {
  std::vector<std::string> files, recipes, out, fail_if, group_by;
  std::string memory = "1G", percentiles = "sample";
  std::int64_t map_size = 0;
  bool csv = false;
};

int run_analyze(AnalyzeArguments& arguments) {
  if (arguments.json && arguments.csv) {
    throw Error(ErrorKind::kUsage,
                "--json and --csv both want standard output; write one with --out FILE");
  }
  if (arguments.recipes.empty()) arguments.recipes = {"mxfp4", "nvfp4", "hif4"};

  AnalyzeOptions options;
  options.recipes = parse_recipe_options(arguments.recipes, arguments);
  std::vector<Threshold> thresholds;
  for (const std::string& text : arguments.fail_if) thresholds.push_back(parse_threshold(text));
  options.memory_bytes = parse_memory(arguments.memory);
  std::vector<Operand> operands;
  for (const std::string& file : arguments.files) operands.push_back(parse_operand(file));
  std::vector<Output> outputs;
  std::set<std::string> paths;
  for (const std::string& path : arguments.out) {
    outputs.push_back(parse_output(path));
    if (!paths.insert(path).second) {
      throw Error(ErrorKind::kUsage, fmt::format("--out {}: given twice", path));
    }
    refuse_out_as_input(path, operands, arguments.dtype_hint);
    check_writable(outputs.back());
  }

  Progress progress(arguments.quiet);
  options.filter = arguments.filter;
  options.axis = arguments.axis;
  options.backend = arguments.backend;
  options.threads = arguments.threads;
  options.full_percentiles = arguments.percentiles == "full";
  options.map_size = arguments.map_size;
  options.group_by = arguments.group_by;
  options.dtype_hint = arguments.dtype_hint;
  options.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  options.stop = &stop_requested();
  const Report report = analyze(arguments.files, options);
  progress.clear();
  // A gate over nothing would pass.
  if (report.results.empty() && report.errors.empty() && !report.interrupted) {
    if (!report.skipped.empty()) {
      throw Error(ErrorKind::kUnsupported, report.skipped.front().message);
    }
    const bool filtered = !options.filter.include.empty() || !options.filter.exclude.empty();
    throw Error(filtered ? ErrorKind::kUsage : ErrorKind::kData,
                filtered ? "no tensor of the input passes --include and --exclude"
                         : "the input holds no tensor that could be analyzed");
  }

  int exit_code = complain_of(report.errors, !arguments.json && !arguments.csv);
  const auto failed = [&](int code) { exit_code = std::max(exit_code, code); };
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
    }
  }
  write_stdout(arguments.json  ? render_json(report, provenance())
               : arguments.csv ? render_csv(report, provenance())
                               : render_text(report, provenance()));
  if (check_thresholds(report, thresholds)) failed(kExitThreshold);
  return report.interrupted ? stop_exit_code() : exit_code;
}

}  // namespace

void add_analyze(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<AnalyzeArguments>();
  CLI::App* sub = app.add_subcommand(
      "analyze", "error, underflow, saturation and scale use of every tensor under every recipe");
  sub->add_option("FILE", arguments->files, "FILE, DIRECTORY or FILE:TENSOR")->required();
  sub->add_option("-r,--recipe", arguments->recipes,
                  "repeatable; default: mxfp4, nvfp4 and hif4; see 'fp4scope formats'")
      ->type_name("RECIPE")
      ->allow_extra_args(false);
  add_filter(*sub, arguments->filter);
  add_recipe_files(*sub, *arguments);
  add_arithmetic_options(*sub, *arguments);
  sub->add_option("--memory", arguments->memory,
                  fmt::format("upper limit, with K, M or G (1024-based); {}M or more for each "
                              "thread, else fewer run",
                              kMemoryPerThread >> 20))
      ->type_name("SIZE")
      ->capture_default_str();
  sub->add_option("--percentiles", arguments->percentiles,
                  "of every 16th strip of 64 blocks, or of all elements")
      ->check(CLI::IsMember({"sample", "full"}))
      ->capture_default_str();
  sub->add_option("--map-size", arguments->map_size,
                  "largest number of map cells along a side; 0: no maps; maps appear in JSON")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{4096}))
      ->capture_default_str();
  sub->add_option("--group-by", arguments->group_by,
                  "also aggregate by the first capture (or match) of this regular expression")
      ->type_name("REGEX")
      ->allow_extra_args(false);
  sub->add_option(
         "--fail-if", arguments->fail_if,
         "exit with code 1 when METRIC>VALUE (or >= < <=) holds for any row, or when "
         "METRIC is undefined (null) for a row that is neither exact nor empty; repeatable")
      ->type_name("CONDITION")
      ->allow_extra_args(false);
  sub->add_option("--out", arguments->out, "also write FILE.json or FILE.csv; repeatable")
      ->type_name("FILE")
      ->allow_extra_args(false);
  sub->add_flag("--csv", arguments->csv, "print CSV instead of the table");
  add_output_options(*sub, *arguments);
  std::string metrics = "Metrics (JSON keys, CSV columns, --fail-if):\n";
  for (const Column& column : columns()) {
    metrics += fmt::format("  {:<22} {}\n", column.key, column.meaning);
  }
  sub->footer(metrics +
              "\nExample:\n  fp4scope analyze data/sample/use_lite_slice.safetensors "
              "-r mxfp4 -r nvfp4 -r hif4 --out report.json");
  sub->callback([arguments, &exit_code] { exit_code = run_analyze(*arguments); });
}

}  // namespace fp4scope::tools
