// cmd_verify.cc: the regression oracle: foreign codes, scales and values against a recipe.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "analysis/compare/verify_cases.h"
#include "analysis/io/container_files.h"
#include "analysis/io/message.h"
#include "analysis/text_table.h"
#include "common.h"
#include "identify_text.h"

namespace fp4scope::tools {
namespace {

struct Options : CommonOptions {
  VerifyCase job;
  std::string accept, cases, golden, junit, out;
  std::size_t first = 3;
  bool suggest = false, explain = false;
};

constexpr SideNames kNames{"expected", "found"};

std::string classes_text(const VerifyResult& r) {
  std::string list;
  for (int i = 0; i < kDifferenceClasses; ++i) {
    const std::int64_t n = r.classes[static_cast<std::size_t>(i)];
    if (n == 0) continue;
    list += fmt::format("{}{}: {}", list.empty() ? "" : ", ",
                        meaning_of(static_cast<DifferenceClass>(i)), n);
  }
  return list.empty() ? "" : wrapped("classes:", list, 9);
}

std::string result_text(const VerifyResult& r) {
  std::string out = fmt::format("{}: {}\n", printable(r.name), r.agrees() ? "equal" : "DIFFERENT");
  out += fmt::format("  {} {} against {}, xxh3 {}\n", r.dtype, dimensions(r.shape), r.inputs.recipe,
                     r.source_hash);
  if (r.inputs.expects_refusal) return out + "  " + summary_of(r) + '\n';
  TextTable table;
  table.column("", Align::kLeft);
  table.column("differ", Align::kRight);
  table.column("of", Align::kRight);
  const auto line = [&](const char* name, std::int64_t n, std::int64_t of) {
    if (of > 0 || n > 0) table.row({name, std::to_string(n), of > 0 ? std::to_string(of) : ""});
  };
  line("  elements", r.elements_differing, r.elements);  // none: scales alone
  line("  scales", r.scales_differing, r.scales);
  line("  blocks", r.blocks_differing, r.blocks);
  line("  outer scales", r.outer_scales_differing, r.outer_scales);
  line("  choice bits", r.choices_differing, r.inputs.choice.empty() ? 0 : r.blocks);
  line("  padding", r.padding_differing, 0);
  out += table.str();
  if (r.accepted > 0) out += fmt::format("  {} differences accepted (--accept)\n", r.accepted);
  out += classes_text(r);
  if (!r.nibbles_found.empty()) {
    out += fmt::format("all codes agree when they are read with --nibbles {} instead of {}\n",
                       r.nibbles_found, r.nibbles);
  }
  if (!r.layout_found.empty()) {
    out += fmt::format("all scales agree when they are read with --layout {} instead of {}\n",
                       r.layout_found, r.layout);
  }
  for (const DifferingBlock& block : r.first) out += to_text(block, r.recipe, r.recipe, kNames);
  for (const std::string& warning : r.warnings) {
    out += wrapped("warning:", printable(warning), 9);
  }
  for (const std::string& note : r.notes) out += wrapped("note:", printable(note), 6);
  return out;
}

// What --suggest found for a case that differs.
struct Suggestion {
  std::optional<IdentifyResult> result;
  std::string error;
};
std::vector<Suggestion> suggestions_of(const std::vector<VerifyCase>& cases,
                                       const std::vector<VerifyOutcome>& outcomes,
                                       const VerifyOptions& options, SourceCache& sources) {
  std::vector<Suggestion> out(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!outcomes[i].result || outcomes[i].result->agrees()) continue;
    IdentifyOptions job;
    job.job = cases[i];
    job.job.layout.clear();
    job.job.nibbles.clear();
    job.more = {outcomes[i].result->recipe};
    job.verify = options;
    job.verify.progress = nullptr;
    try {
      out[i].result = identify(job, sources);
    } catch (const Error& e) {
      if (stop_requested()) throw;
      out[i].error = e.what();
    }
  }
  return out;
}

std::string as_text(const std::vector<VerifyOutcome>& outcomes,
                    const std::vector<Suggestion>& suggestions, bool verbose) {
  std::string out;
  std::size_t equal = 0, different = 0, errors = 0, warned = 0;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const VerifyOutcome& o = outcomes[i];
    if (o.error) {
      ++errors;
      if (outcomes.size() > 1) out += fmt::format("{}: ERROR\n", printable(o.name));
      continue;
    }
    warned += o.result->warnings.empty() ? 0 : 1;
    ++(o.result->agrees() ? equal : different);
    // Of many cases those that are equal are only counted.
    if (outcomes.size() == 1 || !o.result->agrees()) out += result_text(*o.result);
    if (verbose && outcomes.size() > 1 && o.result->agrees()) {
      for (const std::string& warning : o.result->warnings) {
        out += wrapped(fmt::format("{}: warning:", printable(o.name)), printable(warning), 4);
      }
    }
    if (suggestions.empty()) continue;
    if (suggestions[i].result) out += "identify: " + identify_text(*suggestions[i].result);
    if (!suggestions[i].error.empty()) {
      out += wrapped("identify:", printable(suggestions[i].error), 10);
    }
  }
  if (outcomes.size() == 1) return out;
  return out + fmt::format("{} cases: {} equal, {} different, {} errors; {} with warnings\n",
                           outcomes.size(), equal, different, errors, warned);
}

Json result_json(const VerifyResult& r) {
  Json classes = Json::object();
  for (int i = 0; i < kDifferenceClasses; ++i) {
    const std::int64_t n = r.classes[static_cast<std::size_t>(i)];
    if (n != 0) classes[std::string(name_of(static_cast<DifferenceClass>(i)))] = n;
  }
  // The order of bytes is a class of its own: all of one plane is explained by another order.
  if (!r.nibbles_found.empty()) classes["nibble_order"] = r.elements_differing;
  if (!r.layout_found.empty()) classes["layout"] = r.scales_differing;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  Json out = {{"name", r.name},
              {"file", r.file},
              {"tensor", r.tensor},
              {"dtype", r.dtype},
              {"shape", r.shape},
              {"source_hash", r.source_hash},
              {"recipe", r.inputs.recipe},
              {"recipe_full", to_full_string(r.recipe)},
              {"backend", r.backend},
              {"codes", text_or_null(r.inputs.codes)},
              {"scales_from", text_or_null(r.inputs.scales)},
              {"fake", text_or_null(r.inputs.fake)},
              {"nibbles", text_or_null(r.nibbles)},
              {"layout", text_or_null(r.layout)},
              {"stored_shape", {r.stored.rows, r.stored.cols}},
              {"equal", r.agrees()},
              {"elements", r.elements},
              {"elements_differing", r.elements_differing},
              {"scales", r.scales},
              {"scales_differing", r.scales_differing},
              {"blocks", r.blocks},
              {"blocks_differing", r.blocks_differing},
              {"outer_scales", r.outer_scales},
              {"outer_scales_differing", r.outer_scales_differing},
              {"choices_differing", r.choices_differing},
              {"padding_differing", r.padding_differing},
              {"accepted", r.accepted},
              {"classes", std::move(classes)},
              {"nibbles_found", text_or_null(r.nibbles_found)},
              {"layout_found", text_or_null(r.layout_found)},
              {"summary", summary_of(r)}};
  add_name_fields(r.file, r.tensor, out);
  out["first"] = Json::array();
  for (const DifferingBlock& block : r.first) {
    out["first"].push_back(to_json(block, r.recipe, r.recipe, kNames));
  }
  out["warnings"] = r.warnings;
  out["notes"] = r.notes;
  return out;
}

std::string as_json(const std::vector<VerifyOutcome>& outcomes,
                    const std::vector<Suggestion>& suggestions, const SourceCache& sources,
                    int threads) {
  Json out = json_envelope(provenance());
  out["fp4scope"]["threads"] = threads;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const VerifyOutcome& o = outcomes[i];
    if (o.result) out["results"].push_back(result_json(*o.result));
    if (o.result && !suggestions.empty() && suggestions[i].result) {
      out["results"].back()["suggestion"] = identify_json(*suggestions[i].result);
    }
    if (!o.error) continue;
    Json error = to_json(*o.error);
    error["name"] = o.name;
    out["errors"].push_back(std::move(error));
  }
  out["sources"] = sources_json(sources.sources());
  return json_text(out);
}

std::vector<VerifyCase> cases_of(const Options& options, SourceCache& sources) {
  const int ways = (options.job.input.empty() ? 0 : 1) + (options.cases.empty() ? 0 : 1) +
                   (options.golden.empty() ? 0 : 1);
  if (ways != 1) {
    throw Error(ErrorKind::kUsage, "expected one of --input, --cases and --golden");
  }
  if (!options.cases.empty()) return read_cases(options.cases, options.job);
  const VerifyCase& job = options.job;
  for (const std::string& operand : {job.codes, job.scales, job.fake, job.choice, job.outer_scale,
                                     job.amax, job.layout, job.nibbles}) {
    if (!options.golden.empty() && !operand.empty()) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("--golden has its own operands and orders, found {} beside it", operand));
    }
  }
  if (!options.golden.empty() && options.axis != -1) {
    throw Error(ErrorKind::kUsage, "--golden and --axis do not go together");
  }
  if (!options.golden.empty()) return golden_cases(options.golden, options.job, sources);
  if (options.job.recipe.empty()) {
    throw Error(ErrorKind::kUsage, "expected a recipe (-r RECIPE)");
  }
  return {options.job};
}

// Says what the recipes mean (--verbose), and refuses files that none of them uses. Recipes that
// cannot be parsed are errors of their cases.
void check_recipes(const std::vector<VerifyCase>& cases, const CommonOptions& options,
                   const RecipeFiles& files) {
  std::set<std::string> texts;
  bool uses_table = files.rcp_table == nullptr, uses_library = files.library == nullptr;
  for (const VerifyCase& job : cases) {
    if (!texts.insert(job.recipe).second) continue;
    try {
      const Recipe recipe = parse_recipe(job.recipe, files.library);
      uses_table |= rcp_of(recipe) == Rcp::kUser;
      uses_library |= recipe.library != nullptr;
      if (options.verbose) {
        complain(fmt::format("recipe {} is {}, in full {}", job.recipe, to_string(recipe),
                             to_full_string(recipe)));
      }
    } catch (const Error&) {
      // Perhaps one whose scale is in a file: its case will say what it is.
      uses_table = uses_library = true;
    }
  }
  if (!uses_table) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--rcp-table {}: no recipe uses it (rcp=user)", options.rcp_table));
  }
  if (!uses_library) {
    throw Error(ErrorKind::kUsage, fmt::format("--format-file {}: no recipe uses a name of it "
                                               "(custom:NAME)",
                                               options.format_file));
  }
}

// Output files are no inputs, differ from each other and can be written.
void check_outputs(const std::vector<VerifyCase>& cases, const Options& options) {
  if (options.junit.empty() && options.out.empty()) return;
  if (!options.out.empty() && !options.out.ends_with(".json")) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--out {}: expected a name that ends with .json", options.out));
  }
  std::error_code unknown;
  if (options.junit == options.out ||
      (!options.junit.empty() && !options.out.empty() &&
       std::filesystem::weakly_canonical(options.junit, unknown) ==
           std::filesystem::weakly_canonical(options.out, unknown))) {
    throw Error(ErrorKind::kUsage, fmt::format("--junit and --out both name {}", options.out));
  }
  std::set<std::string> files;
  for (const VerifyCase& job : cases) {
    for (const std::string& operand :
         {job.input, job.codes, job.scales, job.fake, job.choice, job.outer_scale, job.amax}) {
      // Names of files may hold colons; every prefix is looked at.
      for (std::size_t colon = operand.find(':'); colon != std::string::npos;
           colon = operand.find(':', colon + 1)) {
        files.insert(operand.substr(0, colon));
      }
      files.insert(operand);
    }
  }
  for (const std::string& file :
       {options.cases, options.golden, options.rcp_table, options.format_file}) {
    files.insert(file);
  }
  files.erase("");
  for (const auto& [option, path] :
       {std::pair{"--junit", options.junit}, std::pair{"--out", options.out}}) {
    if (path.empty()) continue;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      check_writable(path);
      continue;
    }
    for (const std::string& file : files) {
      std::vector<std::string> parts = find_containers(file, options.open.follow_links).files;
      for (const std::string& part : std::vector<std::string>(parts)) {
        if (!is_index_name(part)) continue;
        try {
          OpenOptions plain;
          plain.follow_links = options.open.follow_links;
          for (std::string& shard : source_files(*open_source(part, plain.in_parts()))) {
            parts.push_back(std::move(shard));
          }
        } catch (const Error&) {  // reported where it is read
        }
      }
      for (const std::string& part : parts) {
        if (std::filesystem::equivalent(path, part, ignored)) {
          throw Error(ErrorKind::kUsage,
                      fmt::format("{} {} would replace the input file {}", option, path, part));
        }
      }
    }
    check_writable(path);
  }
}

int run_verify(Options& options) {
  VerifyOptions run;
  run.backend = options.backend;
  run.threads = options.threads;
  run.accept = parse_accept(options.accept);
  run.first = options.first;
  run.explains = options.explain;
  run.open = options.open;
  const RecipeFiles files = load_recipe_files(options);
  run.library = files.library;
  run.user_rcp = files.rcp_table;
  options.job.axis = options.axis;
  CommonOptions without_axis = options;  // verify adds the axis of each case
  without_axis.axis = -1;
  run.explain_options = explain_options(without_axis);
  run.stop = &stop_requested();
  Progress progress(options.quiet);
  run.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };

  SourceCache sources(options.open);
  const std::vector<VerifyCase> cases = cases_of(options, sources);
  // One mistake in the recipe of a golden is one sentence.
  if (!options.golden.empty()) (void)parse_recipe(cases.front().recipe, files.library);
  check_recipes(cases, options, files);
  check_outputs(cases, options);
  const std::vector<VerifyOutcome> outcomes = verify_all(cases, run, sources);
  progress.clear();
  const std::vector<Suggestion> suggestions =
      options.suggest ? suggestions_of(cases, outcomes, run, sources) : std::vector<Suggestion>{};

  int exit_code = 0;
  const auto failed = [&](int code) { exit_code = std::max(exit_code, code); };
  const auto write = [&](const std::string& path, const std::string& text) {
    try {
      write_file(path, text);
    } catch (const Error& error) {  // the other results are not lost
      complain(error.what());
      failed(error.exit_code());
    }
  };
  if (!options.junit.empty()) write(options.junit, junit_xml(outcomes));
  if (!options.out.empty())
    write(options.out, as_json(outcomes, suggestions, sources, thread_count_of(options)));
  for (const VerifyOutcome& o : outcomes) {
    if (o.error) {
      complain(outcomes.size() > 1 ? o.name + ": " + o.error->message : o.error->message);
      failed(o.error->exit_code);
    } else if (!o.result->agrees()) {
      failed(kExitThreshold);
    }
  }
  write_stdout(options.json ? as_json(outcomes, suggestions, sources, thread_count_of(options))
                            : as_text(outcomes, suggestions, options.verbose));
  return exit_code;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "verify", "bit comparison of another program's codes and scales with a recipe");
  VerifyCase& job = options->job;
  const auto operand = [&](const char* name, std::string& to, const char* meaning) {
    sub->add_option(name, to, meaning)->type_name("FILE:TENSOR");
  };
  sub->add_option("-r,--recipe", job.recipe, "recipe, see 'fp4scope formats'")->type_name("RECIPE");
  operand("--input", job.input, "what was quantized");
  operand("--codes", job.codes, "packed codes");
  operand("--scales", job.scales, "block scales");
  operand("--fake", job.fake, "decoded values instead of, or beside, codes and scales");
  operand("--outer-scale", job.outer_scale,
          "outer scale in the contract's convention: one, or one per row");
  operand("--amax", job.amax, "its amax, where that was stored");
  operand("--choice", job.choice, "4/6 choices, a byte per block, 1 = map-to-4");
  sub->add_option("--layout", job.layout,
                  "order of the scales: linear, 128x4, 8x4, te-padded, deepgemm, m-major, "
                  "trtllm-page, blocks (one per 2-D block); HiF4: msb, a6; or native, that of the "
                  "contract")
      ->type_name("NAME");
  sub->add_option("--nibbles", job.nibbles,
                  "order of the codes: low-first, high-first, split8, split16, bytes (one code "
                  "each), ct (int4); or native")
      ->type_name("NAME");
  sub->add_option("--stream", job.stream,
                  "round=sr: the random bits of a tensor of this name (default: the input's own "
                  "name, which quantize goes by too)")
      ->type_name("NAME");
  sub->add_option("--accept", options->accept,
                  "differences that do not count: sign-of-zero, nan-code, padding, by commas")
      ->type_name("LIST");
  sub->add_option("--first", options->first, "differing blocks to show per case")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  sub->add_flag("--explain", options->explain,
                "print how the recipe comes to each of these blocks, step by step");
  sub->add_option("--cases", options->cases,
                  "many cases: a JSON object per line with the keys name, recipe, input, codes, "
                  "scales, choice, fake, outer_scale, amax, layout, nibbles, stream, axis; files "
                  "relative to the list; what a line does not say is what the options here say")
      ->type_name("FILE");
  sub->add_option("--golden", options->golden,
                  "every case of a safetensors file written by 'fp4scope golden'; -r is its recipe "
                  "by default")
      ->type_name("FILE");
  sub->add_flag("--suggest", options->suggest,
                "where they differ, say which recipe the bytes follow (see identify)");
  sub->add_option("--junit", options->junit, "write JUnit XML to this file")->type_name("FILE");
  sub->add_option("--out", options->out, "write the JSON report to this file")->type_name("FILE");
  add_recipe_files(*sub, *options);
  add_arithmetic_options(*sub, *options);
  add_output_options(*sub, *options);
  sub->footer(
      "Exit code 0: everything is equal or accepted; 1: a difference; 2 to 4: it could not be\n"
      "compared. The default order is fp4scope's own (low nibble first, linear scales).\n"
      "Example:\n"
      "  fp4scope quantize data/sample/use_lite_slice.safetensors packed.safetensors -r nvfp4\n"
      "  fp4scope verify -r nvfp4 --input data/sample/use_lite_slice.safetensors:"
      "layers.1.attn_out.X \\\n"
      "    --codes packed.safetensors:layers.1.attn_out.X.codes \\\n"
      "    --scales packed.safetensors:layers.1.attn_out.X.scales");
  sub->callback([options, &exit_code] { exit_code = run_verify(*options); });
}

}  // namespace fp4scope::tools
