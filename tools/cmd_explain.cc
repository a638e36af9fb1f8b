// cmd_explain.cc: one block, step by step.
#include <fmt/format.h>

#include "analysis/explain.h"
#include "common.h"

namespace fp4scope::tools {
namespace {

struct ExplainArguments : CommonOptions {
  std::string recipe, place, values, source_dtype = "f32", amax, outer_scale;
  bool has_values = false;
  int element = -1;
};

SourceType source_of(const std::string& name) {
  return name == "bf16" ? SourceType::kBf16 : name == "f16" ? SourceType::kF16 : SourceType::kF32;
}

Explanation explanation_of(const ExplainArguments& arguments, const Recipe& recipe) {
  OuterOverride given;
  if (!arguments.amax.empty()) given.amax = parse_number(arguments.amax, "--amax");
  if (!arguments.outer_scale.empty()) {
    given.outer_scale = parse_number(arguments.outer_scale, "--outer-scale");
  }
  if (arguments.has_values) {
    if (arguments.axis != -1 || !input_options_text(arguments.open).empty()) {
      throw Error(ErrorKind::kUsage,
                  "--axis, --dtype and --shape are about a tensor, found --values");
    }
    const SourceType source = source_of(arguments.source_dtype);
    return explain_values(recipe, parse_values(arguments.values, source), source, given);
  }
  ExplainOptions options;
  options.axis = arguments.axis;
  options.threads = arguments.threads;
  options.open = arguments.open;
  options.given = given;
  options.stop = &stop_requested();
  return explain_tensor(recipe, parse_block_place(arguments.place), options);
}

int run_explain(const ExplainArguments& arguments) {
  if (arguments.has_values != arguments.place.empty()) {
    throw Error(ErrorKind::kUsage,
                "explain wants either FILE:TENSOR@ROW,BLOCK or --values, see 'explain --help'");
  }
  const Recipe recipe = parse_recipe_options({arguments.recipe}, arguments)[0];
  const Explanation explanation = explanation_of(arguments, recipe);
  const int n = explanation.trace.block_size;
  if (arguments.element >= n) {
    throw Error(ErrorKind::kUsage, fmt::format("--element {}: the block has the elements 0 to {}",
                                               arguments.element, n - 1));
  }
  if (!arguments.json) {
    write_stdout(explanation_text(explanation, arguments.element));
    return 0;
  }
  Json out = json_envelope(provenance());
  out["results"].push_back(explanation_json(explanation));
  write_stdout(json_text(out));
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ExplainArguments>();
  CLI::App* sub = app.add_subcommand(
      "explain", "one block, step by step: scales with their roundings, candidates, codes, errors");
  sub->add_option("PLACE", arguments->place,
                  "FILE:TENSOR@ROW,BLOCK: row of the tensor as a matrix, block in that row");
  sub->add_option("-r,--recipe", arguments->recipe, "recipe, see 'fp4scope formats'")
      ->required()
      ->type_name("RECIPE");
  CLI::Option* values =
      sub->add_option(
             "--values", arguments->values,
             "elements instead of a tensor: numbers or binary32 patterns (0x40cd70a4) "
             "with commas, rows of a 2-D block with ';'; --values=-1,2 for a sign in front")
          ->type_name("LIST");
  sub->add_option("--source-dtype", arguments->source_dtype,
                  "type that --values are of, for contracts that round in the type of the input")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->needs(values)
      ->capture_default_str();
  sub->add_option("--amax", arguments->amax,
                  "maximum of the tensor (or row) behind the outer scale, instead of the measured "
                  "one; a number or a binary32 pattern")
      ->type_name("X");
  sub->add_option("--outer-scale", arguments->outer_scale,
                  "the outer scale itself, in the contract's convention")
      ->type_name("X");
  sub->add_option("--element", arguments->element,
                  "element whose steps are printed; default: the one with the largest error")
      ->check(CLI::Range(0, 1 << 20));
  sub->add_option("--axis", arguments->axis, "axis along which blocks run; negative: from the end")
      ->capture_default_str();
  sub->add_option("--threads", arguments->threads, "for the tensor maximum; 0: all cores")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  add_input_options(*sub, *arguments);
  add_recipe_files(*sub, *arguments);
  sub->add_flag("--json", arguments->json, "print JSON with the steps of every element");
  sub->footer(
      "Example:\n"
      "  fp4scope explain -r nvfp4:scale=none --values 6.42,0.27,-1.4,0.85\n"
      "  fp4scope explain data/sample/use_lite_slice.safetensors:layers.1.attn_out.W@3,7 "
      "-r nvfp4:select=mse");
  sub->callback([arguments, values, &exit_code] {
    arguments->has_values = values->count() > 0;
    exit_code = run_explain(*arguments);
  });
}

}  // namespace fp4scope::tools
