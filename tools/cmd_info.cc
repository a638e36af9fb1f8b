// cmd_info.cc: what a container holds, from its header alone.
#include <fmt/format.h>

#include <map>

#include "analysis/io/message.h"
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
  Json json() const { return {{"tensors", tensors}, {"elements", elements}, {"bytes", bytes}}; }
};

using Accepts = std::function<bool(const std::string&)>;

// One FILE or FILE:TENSOR.
void list_tensors(const std::string& operand_text, const InfoOptions& options,
                  const Accepts& accepts, Totals& all, Json& out, std::string& text) {
  const Operand operand = split_operand(operand_text);
  const auto source = open_source(operand.file, {options.dtype_hint});
  TextTable table;
  table.column("tensor", Align::kLeft);
  table.column("dtype", Align::kLeft);
  table.column("shape", Align::kLeft);
  table.column("elements", Align::kRight);
  table.column("bytes", Align::kRight);
  Totals totals;
  bool found = operand.tensor.empty();
  for (const TensorInfo& tensor : source->tensors()) {
    if (!operand.tensor.empty() && tensor.name != operand.tensor) continue;
    found = true;
    if (!accepts(tensor.name)) continue;
    totals.add(tensor);
    all.add(tensor);
    const std::string dtype =
        tensor.dtype == DType::kOther ? tensor.dtype_text : std::string(dtype_name(tensor.dtype));
    out["results"].push_back({{"file", tensor.file},
                              {"tensor", tensor.name},
                              {"dtype", dtype},
                              {"shape", tensor.shape},
                              {"elements", tensor.elements},
                              {"bytes", tensor.bytes}});
    table.row({printable(tensor.name), printable(dtype), dimensions(tensor.shape),
               std::to_string(tensor.elements), std::to_string(tensor.bytes)});
  }
  if (!found) {
    throw Error(ErrorKind::kData, fmt::format("{}: there is no tensor '{}' in this file",
                                              operand.file, operand.tensor));
  }
  const SourceInfo& info = source->info();
  out["sources"].push_back(
      {{"file", info.path}, {"container", info.container}, {"bytes", info.bytes}});
  table.rule();
  table.row({fmt::format("{} tensor{}", totals.tensors, totals.tensors == 1 ? "" : "s"), "", "",
             std::to_string(totals.elements), std::to_string(totals.bytes)});
  text += fmt::format("{} ({}, {} bytes)\n{}", printable(info.path), info.container, info.bytes,
                      table.str());
}

int run_info(const InfoOptions& options) {
  const Accepts accepts = options.filter.compile();
  Json out = json_envelope(provenance());
  out["sources"] = Json::array();
  std::string text;
  Totals all;
  int exit_code = 0;
  for (const std::string& file : options.files) {
    if (!text.empty()) text += '\n';
    try {
      list_tensors(file, options, accepts, all, out, text);
    } catch (const Error& error) {
      complain(error.what());
      out["errors"].push_back(to_json(ErrorRecord{file, "", error.what(), error.exit_code()}));
      exit_code = std::max(exit_code, error.exit_code());
    }
  }
  out["totals"] = all.json();
  if (options.files.size() > 1) {
    text += fmt::format("\ntotal: {} tensors, {} elements, {} bytes\n", all.tensors, all.elements,
                        all.bytes);
  }
  write_stdout(options.json ? json_text(out) : text);
  return exit_code;
}

}  // namespace

void add_info(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App* sub = app.add_subcommand("info", "names, dtypes, shapes and bytes, header only");
  sub->add_option("FILE", options->files, "FILE, DIRECTORY or FILE:TENSOR")->required();
  add_filter(*sub, options->filter);
  sub->add_flag("--json", options->json, "print JSON instead of the table");
  sub->footer("Example:\n  fp4scope info data/sample/use_lite_slice.safetensors --exclude f32");
  sub->callback([options, &exit_code] { exit_code = run_info(*options); });
}

}  // namespace fp4scope::tools
