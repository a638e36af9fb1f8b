// cmd_golden.cc: test vectors of a recipe for other repositories.
#include <fmt/format.h>

#include <map>

#include "analysis/golden.h"
#include "analysis/io/message.h"
#include "analysis/text_table.h"
#include "common.h"
#include "sim/rcp_table.h"

namespace fp4scope::tools {
namespace {

struct GoldenCommand : CommonOptions {
  std::string out, recipe, source = "f32";
  std::string seed = "0";
};

const std::map<std::string, SourceType> kSources = {
    {"f32", SourceType::kF32}, {"bf16", SourceType::kBf16}, {"f16", SourceType::kF16}};

std::string of_all(int hit, int all, const char* what) {
  return fmt::format("{} of {} {}", hit, all, what);
}

std::string scales_text(const Coverage& c) {
  if (c.scales_all > 0) {
    std::string text = of_all(c.scales_hit, c.scales_all, "codes of the scale type");
    if (!c.scales_missing.empty()) text += "; no input gave " + c.scales_missing;
    return text;
  }
  if (c.scales_hit == 0) return "none per block";
  return fmt::format("{} different ones", c.scales_hit);
}

// The figures of a golden by name, for both forms of output.
std::vector<std::pair<std::string, std::string>> lines_of(const Golden& golden) {
  const Coverage& c = golden.coverage;
  std::int64_t refused = 0, values_only = 0;
  for (const GoldenCase& one : golden.cases) {
    refused += one.refusal.empty() ? 0 : 1;
    values_only += one.has_codes || !one.refusal.empty() ? 0 : 1;
  }
  std::vector<std::pair<std::string, std::string>> lines;
  std::string cases = fmt::format("{}", golden.cases.size());
  if (refused > 0) cases += fmt::format(", of which the recipe refuses {}", refused);
  if (values_only > 0) cases += fmt::format(", {} with values and no codes", values_only);
  lines.emplace_back("cases", cases);
  lines.emplace_back("blocks", fmt::format("{}, {} elements", c.blocks, c.elements));
  lines.emplace_back("scales", scales_text(c));
  if (c.ties_all > 0)
    lines.emplace_back("ties", of_all(c.ties_hit, c.ties_all, "pairs of adjacent codes"));
  if (c.level_bits_all > 0)
    lines.emplace_back("level bits", of_all(c.level_bits_hit, c.level_bits_all, "set and clear"));
  if (golden.recipe.chooses())
    lines.emplace_back("choices",
                       golden.recipe.nvfp4.int4_candidate
                           ? fmt::format("{} E2M1, {} INT4", c.choices[0], c.choices[1])
                           : fmt::format("{} map-to-6, {} map-to-4", c.choices[0], c.choices[1]));
  lines.emplace_back("told apart", fmt::format("from {} other recipes with codes and scales of "
                                               "this shape",
                                               golden.separated));
  lines.emplace_back("equal so far", golden.equal.empty() ? "none" : joined(golden.equal, "; "));
  lines.emplace_back("bytes", golden.made_by);
  return lines;
}

std::string as_text(const Golden& golden, const std::string& out, std::int64_t bytes) {
  std::string text;
  for (const auto& [name, value] : lines_of(golden))
    text += wrapped(fmt::format("{:<14}", name), value, 14);
  if (const std::string table = rcp_table_note(golden.recipe); !table.empty())
    text += wrapped("note: ", table, 6);
  text += fmt::format("{} = {}\n", golden.recipe.text, to_full_string(golden.recipe));
  return text + fmt::format("wrote {}, {} bytes\n", printable(out), bytes);
}

std::string as_json(const Golden& golden, const GoldenCommand& command, std::int64_t bytes) {
  const Coverage& c = golden.coverage;
  Json row = {{"recipe", golden.recipe.text}, {"recipe_full", to_full_string(golden.recipe)},
              {"dtype", command.source},      {"seed", parse_seed(command.seed)},
              {"cases", golden.cases.size()}, {"blocks", c.blocks},
              {"elements", c.elements},       {"scale_codes", c.scales_hit}};
  if (c.scales_all > 0) {
    row["scale_codes_of_the_type"] = c.scales_all;
    row["scale_codes_not_reached"] = c.scales_missing;
  }
  row["ties"] = c.ties_hit;
  row["ties_of_the_element"] = c.ties_all;
  row["separated_from"] = golden.separated;
  row["not_separated_from"] = golden.equal;
  row["made_by"] = golden.made_by;
  row["bytes"] = bytes;
  Json out = json_envelope(provenance());
  out["results"].push_back(std::move(row));
  out["out"] = command.out;
  return json_text(out);
}

int run_golden(const GoldenCommand& command) {
  const Recipe recipe = parse_recipe_options({command.recipe}, command)[0];
  GoldenOptions options;
  options.source = kSources.at(command.source);
  options.seed = parse_seed(command.seed);
  // A wrong ending is found before the work.
  require_golden_ending(command.out);
  refuse_out_as_recipe_file(command.out, command);
  const Golden golden = make_golden(recipe, options);
  if (stop_requested()) throw Error(ErrorKind::kData, "interrupted");
  const std::int64_t bytes = write_golden(golden, command.out);
  write_stdout(command.json ? as_json(golden, command, bytes)
                            : as_text(golden, command.out, bytes));
  return 0;
}

}  // namespace

void add_golden(CLI::App& app, int& exit_code) {
  auto command = std::make_shared<GoldenCommand>();
  CLI::App* sub = app.add_subcommand(
      "golden", "test vectors of a recipe: every tie, scale code and special value");
  sub->add_option("OUT", command->out,
                  "file to write, .safetensors or .json: per case NAME.x, NAME.codes, NAME.scales, "
                  "NAME.values and what else 'quantize' stores; JSON has them as hexadecimal rows, "
                  "8 digits per binary32, 4 per BF16 or FP16, 2 per byte")
      ->required();
  sub->add_option("-r,--recipe", command->recipe, "recipe, see 'fp4scope formats'")
      ->required()
      ->type_name("RECIPE");
  sub->add_option("--dtype", command->source, "type of the inputs: f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  sub->add_option("--seed", command->seed,
                  "of the random search for inputs that tell the recipe from others")
      ->capture_default_str();
  add_recipe_files(*sub, *command);
  add_output_options(*sub, *command);
  sub->footer("Example:\n  fp4scope golden -r nvfp4:select=mse nvfp4_mse.safetensors");
  sub->callback([command, &exit_code] { exit_code = run_golden(*command); });
}

}  // namespace fp4scope::tools
