// cmd_gen.cc: synthetic tensors of a seed, the same bytes on every machine.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "analysis/generate_file.h"
#include "analysis/io/message.h"
#include "analysis/text_table.h"
#include "common.h"

namespace fp4scope::tools {
namespace {

struct GenOptions : CommonOptions {
  std::string out, dist = "normal", shape, dtype = "bf16", seed = "0", recipe = "nvfp4";
  GenerateOptions job;
};

// "96x512" -> {96, 512}
std::vector<std::int64_t> parse_shape(const std::string& text) {
  std::vector<std::int64_t> shape;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    std::int64_t extent = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, extent);
    if (error != std::errc{} || stop != text.data() + end || extent <= 0 || shape.size() == 4) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("--shape {}: expected 1 to 4 positive numbers with x between them, "
                              "as in 96x512",
                              text));
    }
    shape.push_back(extent);
    at = end + 1;
  }
  return shape;
}

DType parse_dtype(const std::string& text) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    if (text == dtype_name(dtype)) return dtype;
  }
  throw Error(ErrorKind::kUsage, fmt::format("--dtype {}: expected f64, f32, f16 or bf16", text));
}

// An option that the distribution does not read would be a wrong belief of the user.
struct OptionOwner {
  const char* option;
  GeneratedKind kind;
};
constexpr OptionOwner kOwners[] = {
    {"--df", GeneratedKind::kStudent},
    {"--profile", GeneratedKind::kOutlierChannels},
    {"--expected-max", GeneratedKind::kOutlierChannels},
    {"--outliers", GeneratedKind::kOutlierChannels},
    {"--outlier-factor", GeneratedKind::kOutlierChannels},
    {"--recipe", GeneratedKind::kTieAligned},
    {"--amax", GeneratedKind::kTieAligned},
    {"--rcp-table", GeneratedKind::kTieAligned},
    {"--format-file", GeneratedKind::kTieAligned},
};
void refuse_unread_options(const CLI::App& sub, const GenOptions& options) {
  const GeneratedKind kind = options.job.kind;
  for (const OptionOwner& owner : kOwners) {
    if (kind == owner.kind || sub.count(owner.option) == 0) continue;
    throw Error(ErrorKind::kUsage,
                fmt::format("{} belongs to --dist {}, found --dist {}", owner.option,
                            generated_name(owner.kind), generated_name(kind)));
  }
  const auto refuse_both = [&](const char* a, const char* b) {
    if (sub.count(a) == 0 || sub.count(b) == 0) return;
    throw Error(ErrorKind::kUsage, fmt::format("{} has no effect with {}", a, b));
  };
  refuse_both("--outliers", "--profile");
  refuse_both("--outlier-factor", "--profile");
  if (sub.count("--expected-max") != 0 && sub.count("--profile") == 0) {
    throw Error(ErrorKind::kUsage, "--expected-max has no effect without --profile");
  }
  if (kind == GeneratedKind::kTieAligned && sub.count("--scale") != 0) {
    throw Error(ErrorKind::kUsage,
                "--scale has no effect with --dist tie-aligned; --amax gives its size");
  }
  if (options.out.ends_with(".npy") && sub.count("--name") != 0) {
    throw Error(ErrorKind::kUsage,
                "--name has no effect on a npy file, which holds one tensor "
                "without a name");
  }
}

std::string as_text(const GenerateResult& result, const GenOptions& options) {
  TextTable table;
  table.column("tensor", Align::kLeft);
  table.column("dtype", Align::kLeft);
  table.column("shape", Align::kLeft);
  table.column("bytes", Align::kRight);
  table.column("xxh3", Align::kLeft);
  const bool has_ties = options.job.kind == GeneratedKind::kTieAligned;
  if (has_ties) table.column("ties", Align::kRight);
  for (const GeneratedTensor& tensor : result.tensors) {
    std::vector<std::string> cells = {tensor.name.empty() ? "-" : printable(tensor.name),
                                      std::string(dtype_name(tensor.dtype)),
                                      dimensions(tensor.shape), std::to_string(tensor.bytes),
                                      tensor.hash.empty() ? "-" : tensor.hash};
    if (has_ties) {
      cells.push_back(fmt::format("{:.2f}%", 100.0 * static_cast<double>(tensor.ties->ties) /
                                                 static_cast<double>(tensor.ties->elements)));
    }
    table.row(std::move(cells));
  }
  std::vector<std::string> parameters;
  for (const auto& [key, value] : result.parameters)
    parameters.push_back(fmt::format("{} {}", key, printable(value)));
  std::string text = table.str();
  text += wrapped("", joined(parameters, "; "), 0);
  for (const std::string& note : result.notes) text += fmt::format("note: {}\n", note);
  return text + fmt::format("wrote {}\n", printable(options.out));
}

std::string as_json(const GenerateResult& result, const GenOptions& options) {
  Json out = json_envelope(provenance());
  out["fp4scope"]["threads"] = result.threads;
  for (const GeneratedTensor& tensor : result.tensors) {
    Json row = {
        {"file", options.out},   {"tensor", tensor.name},       {"dtype", dtype_name(tensor.dtype)},
        {"shape", tensor.shape}, {"elements", tensor.elements}, {"bytes", tensor.bytes}};
    row["xxh3"] = tensor.hash.empty() ? Json() : Json(tensor.hash);
    if (tensor.ties) row["ties"] = tensor.ties->ties;
    out["results"].push_back(std::move(row));
  }
  out["parameters"] = Json::object();
  for (const auto& [key, value] : result.parameters) out["parameters"][key] = value;
  out["notes"] = result.notes;
  out["out"] = options.out;
  return json_text(out);
}

int run_gen(const CLI::App& sub, GenOptions& options) {
  GenerateOptions& job = options.job;
  job.kind = parse_generated(options.dist);
  job.shape = parse_shape(options.shape);
  job.dtype = parse_dtype(options.dtype);
  job.seed = parse_seed(options.seed);
  refuse_unread_options(sub, options);
  if (job.kind == GeneratedKind::kTieAligned) {
    job.recipe = parse_recipe_options({options.recipe}, options)[0];
  }
  refuse_out_as_recipe_file(options.out, options);
  job.threads = options.threads;
  job.stop = &stop_requested();
  Progress progress(options.quiet);
  job.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  const GenerateResult result = generate_file(options.out, job);
  progress.clear();
  write_stdout(options.json ? as_json(result, options) : as_text(result, options));
  return 0;
}

void add_shape_options(CLI::App& sub, GenOptions& options) {
  sub.add_option("OUT", options.out, "file to write, .safetensors or .npy")->required();
  sub.add_option("--dist", options.dist,
                 "normal (0, 1), laplace (b = 1), student-t, lognormal (random sign times "
                 "exp(normal)), uniform on (-1, 1), outlier-channels, tie-aligned")
      ->capture_default_str();
  sub.add_option("--shape", options.shape, "rows x columns, 1 to 4 dimensions, as in 96x512")
      ->required();
  sub.add_option("--dtype", options.dtype, "f64, f32, f16 or bf16")->capture_default_str();
  sub.add_option("--seed", options.seed, "0 to 2^64 - 1, or 0x...")->capture_default_str();
  sub.add_option("--scale", options.job.scale, "factor on every value, the sigma of normal")
      ->capture_default_str();
  sub.add_option("--name", options.job.names,
                 "tensor name, repeatable: each gets numbers of its own from the seed")
      ->allow_extra_args(false)
      ->capture_default_str();
  sub.add_option("--df", options.job.df, "degrees of freedom of student-t, 1 to 100")
      ->capture_default_str();
  sub.add_option("--threads", options.threads, "0: all cores")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

void add_pattern_options(CLI::App& sub, GenOptions& options) {
  sub.add_option("--profile", options.job.profile,
                 "outlier-channels: amax per column of a real tensor; x = normal * amax / E")
      ->type_name("FILE:TENSOR");
  sub.add_option("--expected-max", options.job.expected_max,
                 "E; default: the mean largest |x| of as many normal numbers as there are rows")
      ->check(CLI::PositiveNumber);
  sub.add_option("--outliers", options.job.outliers,
                 "outlier-channels without a profile: share of the columns, at least one")
      ->capture_default_str();
  sub.add_option("--outlier-factor", options.job.outlier_factor, "factor of those columns")
      ->capture_default_str();
  sub.add_option("-r,--recipe", options.recipe, "tie-aligned: the recipe whose ties are aimed at")
      ->type_name("RECIPE")
      ->capture_default_str();
  sub.add_option("--amax", options.job.amax,
                 "tie-aligned: largest |x|; default: one that makes outer scales powers of two")
      ->check(CLI::PositiveNumber);
}

}  // namespace

void add_gen(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<GenOptions>();
  CLI::App* sub =
      app.add_subcommand("gen", "synthetic tensors of a seed: the same bytes on every machine");
  add_shape_options(*sub, *options);
  add_pattern_options(*sub, *options);
  add_recipe_files(*sub, *options);
  add_output_options(*sub, *options);
  sub->footer(
      "Example:\n"
      "  fp4scope gen normal.safetensors --dist normal --shape 96x512 --dtype bf16 --seed 1\n"
      "  fp4scope gen ties.safetensors --dist tie-aligned -r mxfp4 --shape 96x512\n"
      "  fp4scope analyze ties.safetensors -r mxfp4");
  sub->callback([sub, options, &exit_code] { exit_code = run_gen(*sub, *options); });
}

}  // namespace fp4scope::tools
