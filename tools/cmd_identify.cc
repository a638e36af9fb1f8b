// cmd_identify.cc: whose rule made these bytes.
#include <fmt/format.h>

#include "analysis/compare/identify.h"
#include "common.h"
#include "identify_text.h"

namespace fp4scope::tools {
namespace {

struct Options : CommonOptions {
  IdentifyOptions job;
  std::vector<std::string> recipes;
};

void require_known_orders(const VerifyCase& job) {
  const auto known = [](const auto& parse) {
    for (const FormatRow& row : all_formats()) {
      for (const bool is_2d : {false, true}) {
        Recipe recipe;
        try {
          recipe = parse_recipe(std::string(row.format.name) + (is_2d ? ":block=2d" : ""));
          parse(recipe);
          return true;
        } catch (const Error&) {
        }
      }
    }
    return false;
  };
  if (!job.nibbles.empty() &&
      !known([&](const Recipe& recipe) { (void)parse_packing(job.nibbles, recipe); })) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--nibbles {}: expected low-first, high-first, split8, split16, ct, "
                            "bytes or native",
                            job.nibbles));
  }
  if (!job.layout.empty() &&
      !known([&](const Recipe& recipe) { (void)parse_storage(job.layout, recipe); })) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--layout {}: expected linear, 128x4, 8x4, te-padded, deepgemm, "
                            "m-major, trtllm-page, blocks, msb, a6 or native",
                            job.layout));
  }
}

int run_identify(Options& options) {
  IdentifyOptions& run = options.job;
  run.job.axis = options.axis;
  run.verify.backend = options.backend;
  run.verify.threads = options.threads;
  run.verify.open = options.open;
  run.verify.stop = &stop_requested();
  if (!run.format.empty()) {
    bool known = false;
    std::string names;
    for (const FormatRow& row : all_formats()) {
      known |= row.format.name == run.format;
      names += (names.empty() ? "" : ", ") + std::string(row.format.name);
    }
    if (!known) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("--format {}: the formats are {}", run.format, names));
    }
  }
  if (!options.recipes.empty()) {
    run.more = parse_recipe_options(options.recipes, options);
    const RecipeFiles files = load_recipe_files(options);
    run.verify.library = files.library;
    run.verify.user_rcp = files.rcp_table;
  }
  // A name that no recipe knows would only look like bytes of another size.
  require_known_orders(run.job);
  Progress progress(options.quiet);
  run.verify.progress = [&](std::int64_t done, std::int64_t total) {
    progress.update(done, total);
  };
  SourceCache sources(options.open);
  const IdentifyResult result = identify(run, sources);
  progress.clear();
  if (options.json) {
    Json out = json_envelope(provenance());
    out["fp4scope"]["threads"] = thread_count_of(options);
    out["results"].push_back(identify_json(result));
    out["sources"] = sources_json(sources.sources());
    write_stdout(json_text(out));
  } else {
    write_stdout(identify_text(result));
  }
  return result.explaining.empty() && result.casts.empty() ? kExitThreshold : 0;
}

}  // namespace

void add_identify(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "identify", "which contract, layout and nibble order produced these bytes");
  VerifyCase& job = options->job.job;
  const auto operand = [&](const char* name, std::string& to, const char* meaning) {
    return sub->add_option(name, to, meaning)->type_name("FILE:TENSOR");
  };
  operand("--input", job.input, "what was quantized")->required();
  operand("--codes", job.codes, "packed codes");
  operand("--scales", job.scales, "block scales");
  operand("--fake", job.fake, "decoded values instead of, or beside, codes and scales");
  operand("--outer-scale", job.outer_scale, "outer scale: one, or one per row");
  operand("--amax", job.amax, "its amax, where that was stored");
  operand("--choice", job.choice, "4/6 choices, a byte per block, 1 = map-to-4");
  sub->add_option("--layout", job.layout, "order of the scales, when it is known (see verify)")
      ->type_name("NAME");
  sub->add_option("--nibbles", job.nibbles, "order of the codes, when it is known (see verify)")
      ->type_name("NAME");
  sub->add_option("--format", options->job.format, "only recipes of this format")
      ->type_name("FORMAT");
  sub->add_option("-r,--recipe", options->recipes,
                  "try this recipe too, as one of a format of your own; repeatable")
      ->type_name("RECIPE")
      ->allow_extra_args(false);
  sub->add_option("--best", options->job.best, "candidates to show where none explains everything")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  add_recipe_files(*sub, *options);
  add_arithmetic_options(*sub, *options);
  add_output_options(*sub, *options);
  sub->footer(
      "Exit code 0: some recipe explains every byte; 1: none does, and what the best candidates\n"
      "leave unexplained is shown. Padding of layouts does not count.\n"
      "Example:\n"
      "  fp4scope quantize data/sample/use_lite_slice.safetensors packed.safetensors -r nvfp4\n"
      "  fp4scope identify --input data/sample/use_lite_slice.safetensors:layers.1.attn_out.X \\\n"
      "    --codes packed.safetensors:layers.1.attn_out.X.codes \\\n"
      "    --scales packed.safetensors:layers.1.attn_out.X.scales");
  sub->callback([options, &exit_code] { exit_code = run_identify(*options); });
}

}  // namespace fp4scope::tools
