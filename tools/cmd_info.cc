// cmd_info.cc: what a container holds, from its header alone.
#include <fmt/format.h>

#include "analysis/input_notes.h"
#include "analysis/inputs.h"
#include "analysis/io/message.h"
#include "analysis/io/near_names.h"
#include "analysis/text_table.h"
#include "common.h"

namespace fp4scope::tools {
namespace {

struct InfoOptions : CommonOptions {
  std::vector<std::string> files;
};

struct Totals {
  std::int64_t tensors = 0, elements = 0, bytes = 0;
  void add(const TensorInfo& tensor) {
    ++tensors;
    elements += tensor.elements;
    bytes += tensor.bytes;
  }
  void add(const Totals& o) {
    tensors += o.tensors;
    elements += o.elements;
    bytes += o.bytes;
  }
  Json json() const { return {{"tensors", tensors}, {"elements", elements}, {"bytes", bytes}}; }
};

using Accepts = std::function<bool(const std::string&)>;

// What a run found; errors and skipped files do not end it.
struct Listing {
  Json results = Json::array();
  std::string text;  // one section per container
  std::vector<Report::Source> sources;
  std::vector<Json> metadata;  // of each source, an object of texts
  std::vector<ErrorRecord> errors, skipped;
  Totals totals;
};

// One container, or one tensor of it. False when a file of a directory does not hold it.
bool list_tensors(const InputFile& input, std::size_t number, const InfoOptions& options,
                  const Accepts& accepts, const NamePatterns& patterns, InputNotes& notes,
                  InputRepeats& repeats, Listing& out) {
  const auto source = open_source(input.file, options.open.in_parts());
  TextTable table;
  table.column("tensor", Align::kLeft);
  table.column("dtype", Align::kLeft);
  table.column("shape", Align::kLeft);
  table.column("elements", Align::kRight);
  table.column("bytes", Align::kRight);
  if (options.verbose) table.column("names say", Align::kLeft);
  Totals totals;
  Json results = Json::array();
  bool found = input.tensor.empty();
  bool has_derived = false, has_repeats = false;
  for (const TensorInfo& tensor : source->tensors()) {
    if (!input.tensor.empty() && tensor.name != input.tensor) continue;
    found = true;
    if (!accepts(tensor.name)) continue;
    notes.add_tensor(tensor);
    if (repeats.is_again(tensor, number)) {
      has_repeats = true;
      continue;
    }
    const std::string dtype = shown_dtype(tensor);
    results.push_back({{"file", tensor.file},
                       {"tensor", tensor.name},
                       {"dtype", dtype},
                       {"shape", tensor.shape},
                       {"elements", tensor.elements},
                       {"bytes", tensor.bytes}});
    const NameFields fields =
        patterns.fields({input.below, tensor.file, tensor.name}, &notes.pattern_use());
    add_fields(fields, results.back());
    // Parts of other tensors under their own names count only where they are asked for.
    if (tensor.derived && input.tensor.empty()) {
      results.back()["derived"] = has_derived = true;
      continue;
    }
    totals.add(tensor);
    std::vector<std::string> cells = {printable(tensor.name), dtype, dimensions(tensor.shape),
                                      std::to_string(tensor.elements),
                                      std::to_string(tensor.bytes)};
    if (options.verbose) cells.push_back(printable(name_fields_text(fields)));
    table.row(std::move(cells));
  }
  const std::size_t errors = out.errors.size();
  report_faults(source->info(), input.tensor, accepts, out.errors);
  if (!found && out.errors.size() > errors) return true;
  if (!found && input.in_directory) return false;
  if (!found) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: no tensor is named '{}'; found {}{}", input.file, input.tensor,
                            counted(source->tensors().size(), "tensor"),
                            near_names(source->tensors(), input.tensor)));
  }
  // A section of nothing new would only say so.
  if (has_repeats && results.empty()) return true;
  const SourceInfo& info = source->info();
  notes.add_file(input.file);
  out.sources.push_back({info.path, info.container, info.bytes});
  Json& metadata = out.metadata.emplace_back(Json::object());
  for (const auto& [key, value] : source->metadata()) metadata[key] = value;
  out.totals.add(totals);
  for (Json& row : results) out.results.push_back(std::move(row));
  table.rule();
  std::vector<std::string> sum = {counted(static_cast<std::size_t>(totals.tensors), "tensor"), "",
                                  "", std::to_string(totals.elements),
                                  std::to_string(totals.bytes)};
  if (options.verbose) sum.emplace_back();
  table.row(std::move(sum));
  if (!out.text.empty()) out.text += '\n';
  const std::size_t entries = metadata.size();
  out.text += fmt::format(
      "{} ({}, {} bytes{})\n{}", printable(info.path), info.container, info.bytes,
      entries == 0 ? "" : fmt::format(", {} metadata entr{}", entries, entries == 1 ? "y" : "ies"),
      table.str());
  if (has_derived) {
    out.text += "the blocks of FP4 tensors can also be named as NAME.codes and NAME.scales\n";
  }
  return true;
}

std::string as_text(const Listing& listing) {
  std::string text = listing.text;
  if (listing.sources.size() > 1) {
    text += fmt::format("\ntotal: {}, {} elements, {} bytes\n",
                        counted(static_cast<std::size_t>(listing.totals.tensors), "tensor"),
                        listing.totals.elements, listing.totals.bytes);
  }
  const auto append = [&](const char* heading, const std::vector<ErrorRecord>& records) {
    if (records.empty()) return;
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", heading);
    for (const ErrorRecord& record : records) {
      text += fmt::format("  {}\n", printable(record.message));
    }
  };
  append("skipped", listing.skipped);
  append("errors", listing.errors);
  return text;
}

std::string as_json(const Listing& listing) {
  Json out = json_envelope(provenance());
  out["results"] = listing.results;
  for (const ErrorRecord& error : listing.errors) out["errors"].push_back(to_json(error));
  out["skipped"] = Json::array();
  for (const ErrorRecord& file : listing.skipped) {
    out["skipped"].push_back({{"file", file.file}, {"message", file.message}});
  }
  out["sources"] = sources_json(listing.sources);
  for (std::size_t i = 0; i < listing.metadata.size(); ++i) {
    out["sources"][i]["metadata"] = listing.metadata[i];
  }
  out["totals"] = listing.totals.json();
  return json_text(out);
}

int run_info(const InfoOptions& options) {
  std::vector<bool> included;
  const Accepts accepts = options.filter.compile(&included);
  const NamePatterns patterns(options.name_patterns);
  (void)parse_operands(options.files);
  InputFiles inputs = find_inputs(options.files, options.open);
  Listing listing;
  listing.errors = inputs.errors;
  listing.skipped = inputs.skipped;
  std::vector<bool> found(options.files.size());
  InputNotes notes(options.open);
  Progress progress(options.quiet);
  std::int64_t looked_at = 0;
  for (const InputFile& input : inputs.files) {
    progress.looking(looked_at);
    const auto number = static_cast<std::size_t>(looked_at++);
    try {
      if (list_tensors(input, number, options, accepts, patterns, notes, inputs.repeats, listing)) {
        input.mark(found);
      }
    } catch (const Error& error) {
      listing.errors.push_back({input.file, input.tensor, error.what(), error.exit_code()});
    }
  }
  progress.clear();
  report_missing_tensors(inputs, found, options.files, listing.errors);
  if (const std::string note = inputs.repeats.sentence(); !note.empty()) warn_of({note});
  warn_of(notes.sentences(patterns, !listing.errors.empty()));
  if (!options.filter.is_empty() && listing.results.empty() && listing.errors.empty()) {
    throw Error(ErrorKind::kUsage,
                no_tensor_passes(options.filter.unused(included), paths_of(listing.sources)));
  }
  const int exit_code = complain_of(listing.errors, !options.json);
  write_stdout(options.json ? as_json(listing) : as_text(listing));
  return exit_code;
}

}  // namespace

void add_info(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App* sub = app.add_subcommand("info", "names, dtypes, shapes and bytes, header only");
  sub->add_option("FILE", options->files, kOperandHelp)->required();
  add_filter(*sub, options->filter);
  add_input_options(*sub, *options, true);
  add_name_pattern(*sub, *options);
  sub->add_flag("--json", options->json, "print JSON instead of the table");
  sub->add_flag("--verbose", options->verbose,
                "also show the layer, step, rank, expert and role that the names give");
  sub->footer("Example:\n  fp4scope info data/sample/use_lite_slice.safetensors --exclude f32");
  sub->callback([options, &exit_code] { exit_code = run_info(*options); });
}

}  // namespace fp4scope::tools
