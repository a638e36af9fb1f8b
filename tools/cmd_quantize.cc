// cmd_quantize.cc: quantize and dequantize, whole files to and from fp4scope's own layout.
#include <fmt/format.h>

#include "analysis/io/message.h"
#include "analysis/text_table.h"
#include "common.h"
#include "sim/format_file.h"
#include "sim/rcp_table.h"

namespace fp4scope::tools {
namespace {

struct ConvertOptions : CommonOptions {
  std::string in, out, recipe;
};

std::string as_text(const QuantizeResult& result, const std::string& out_path,
                    const Recipe* recipe) {
  TextTable table;
  table.column("tensor", Align::kLeft);
  table.column("dtype", Align::kLeft);
  table.column("shape", Align::kLeft);
  table.column("bytes in", Align::kRight);
  table.column("bytes out", Align::kRight);
  std::int64_t bytes_in = 0, bytes_out = 0;
  for (const QuantizedTensorInfo& tensor : result.tensors) {
    bytes_in += tensor.bytes_in;
    bytes_out += tensor.bytes_out;
    table.row({printable(tensor.tensor), tensor.dtype, dimensions(tensor.shape),
               std::to_string(tensor.bytes_in), std::to_string(tensor.bytes_out)});
  }
  table.rule();
  table.row(
      {fmt::format("{} tensor{}", result.tensors.size(), result.tensors.size() == 1 ? "" : "s"), "",
       "", std::to_string(bytes_in), std::to_string(bytes_out)});
  std::string text = table.str();
  for (const std::string& skipped : result.skipped) {
    text += fmt::format("skipped: {}\n", printable(skipped));
  }
  for (const std::string& note : result.notes) text += fmt::format("note: {}\n", printable(note));
  if (recipe != nullptr) text += fmt::format("{} = {}\n", recipe->text, to_full_string(*recipe));
  return text + fmt::format("wrote {}\n", printable(out_path));
}

std::string as_json(const QuantizeResult& result, const ConvertOptions& options,
                    const Recipe* recipe) {
  Json out = json_envelope(provenance());
  out["fp4scope"]["threads"] = result.threads;
  for (const QuantizedTensorInfo& tensor : result.tensors) {
    Json row = {{"file", tensor.file},          {"tensor", tensor.tensor},
                {"dtype", tensor.dtype},        {"shape", tensor.shape},
                {"elements", tensor.elements},  {"bytes_in", tensor.bytes_in},
                {"bytes_out", tensor.bytes_out}};
    row["backend"] = result.backend;
    if (recipe != nullptr) {
      row["recipe"] = recipe->text;
      row["recipe_full"] = to_full_string(*recipe);
    }
    out["results"].push_back(std::move(row));
  }
  out["skipped"] = result.skipped;
  out["notes"] = result.notes;
  out["sources"] = sources_json(result.sources);
  out["out"] = options.out;
  return json_text(out);
}

using Convert = QuantizeResult (*)(const std::string&, const std::string&, const QuantizeOptions&);

int run_convert(const ConvertOptions& options, Convert convert) {
  QuantizeOptions job;
  const bool has_recipe = !options.recipe.empty();
  if (has_recipe) {
    job.recipe = parse_recipe_options({options.recipe}, options)[0];
  } else {  // the recipe is in the file
    const RecipeFiles files = load_recipe_files(options);
    job.library = files.library;
    job.user_rcp = files.rcp_table;
  }
  (void)parse_operand(options.in);
  if (!options.out.ends_with(".safetensors")) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}: the name of the output has to end in .safetensors, the one "
                            "container that this command writes",
                            options.out));
  }
  refuse_out_as_recipe_file(options.out, options);
  job.filter = options.filter;
  job.axis = options.axis;
  job.backend = options.backend;
  job.threads = options.threads;
  job.open = options.open;
  job.stop = &stop_requested();
  const QuantizeResult result = convert(options.in, options.out, job);
  const Recipe* recipe = has_recipe ? &job.recipe : nullptr;
  write_stdout(options.json ? as_json(result, options, recipe)
                            : as_text(result, options.out, recipe));
  return 0;
}

}  // namespace

void add_quantize(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* sub = app.add_subcommand(
      "quantize", "packed codes and scales of a whole file, in fp4scope's own layout");
  sub->add_option("IN", options->in, "FILE, DIRECTORY or FILE:TENSOR")->required();
  sub->add_option("OUT", options->out, "file to write, .safetensors")->required();
  sub->add_option("-r,--recipe", options->recipe, "recipe, see 'fp4scope formats'")
      ->required()
      ->type_name("RECIPE");
  add_recipe_files(*sub, *options);
  add_filter(*sub, options->filter);
  add_arithmetic_options(*sub, *options);
  add_output_options(*sub, *options);
  sub->footer(
      "Where files of a DIRECTORY hold tensors of the same name, the output names each PATH:NAME.\n"
      "Example:\n  fp4scope quantize data/sample/use_lite_slice.safetensors packed.safetensors "
      "-r nvfp4");
  sub->callback([options, &exit_code] { exit_code = run_convert(*options, quantize_file); });
}

void add_dequantize(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* sub =
      app.add_subcommand("dequantize", "the reverse: binary32 values from fp4scope's own layout");
  sub->add_option("IN", options->in, "file written by quantize")->required();
  sub->add_option("OUT", options->out, "file to write, .safetensors")->required();
  add_recipe_files(*sub, *options);
  add_filter(*sub, options->filter);
  sub->add_option("--backend", options->backend, "a name listed by 'fp4scope formats', or auto")
      ->capture_default_str();
  sub->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, 4096));
  add_output_options(*sub, *options);
  sub->footer(
      "Example:\n"
      "  fp4scope quantize data/sample/use_lite_slice.safetensors packed.safetensors -r nvfp4\n"
      "  fp4scope dequantize packed.safetensors values.safetensors");
  sub->callback([options, &exit_code] { exit_code = run_convert(*options, dequantize_file); });
}

}  // namespace fp4scope::tools
