// cmd_bench.cc: how fast the kernels are here, as ratios to what memory allows in the same run.
#include <fmt/format.h>

#include <thread>

#include "analysis/bench/bench.h"
#include "analysis/text_table.h"
#include "common.h"

namespace fp4scope::tools {
namespace {

struct Arguments {
  BenchOptions bench;
  bool json = false, quiet = false;
};

// Bytes of input per second; BenchRow::bytes counts what is written, too.
double input_rate(const BenchRow& row) {
  return static_cast<double>(row.elements) * (row.dtype == "f32" ? 4 : 2) / row.seconds;
}

std::string as_text(const BenchResult& result) {
  std::string text = fmt::format("{}, {} elements, median of {}\n\n", result.processor,
                                 result.elements, result.repeats);
  TextTable bounds;
  bounds.column("memory", Align::kLeft);
  for (const char* title : {"threads", "GB/s", "least", "most"})
    bounds.column(title, Align::kRight);
  for (const BenchBound& b : result.bounds) {
    bounds.row({b.name, fmt::format("{}", b.threads),
                fmt::format("{:.1f}", b.bytes_per_second / 1e9),
                fmt::format("{:.1f}", b.least / 1e9), fmt::format("{:.1f}", b.most / 1e9)});
  }
  text += bounds.str() + "\n";
  TextTable table;
  for (const char* title : {"work", "dtype", "mode", "backend"}) table.column(title, Align::kLeft);
  for (const char* title : {"threads", "Gelem/s", "GB/s in", "ratio"}) {
    table.column(title, Align::kRight);
  }
  table.column("to", Align::kLeft);
  table.column("instr/elem", Align::kRight);
  for (const BenchRow& r : result.rows) {
    const double rate = static_cast<double>(r.elements) / r.seconds;
    table.row(
        {r.work, r.dtype, r.mode, r.backend, fmt::format("{}", r.threads),
         fmt::format("{:.2f}", rate / 1e9), fmt::format("{:.1f}", input_rate(r) / 1e9),
         fmt::format("{:.3f}", r.ratio), r.bound,
         r.instructions_per_element ? fmt::format("{:.1f}", *r.instructions_per_element) : "-"});
  }
  text += table.str() +
          "\nratio: bytes read (and written, where there is output) per second to those of the "
          "memory row\n";
  if (result.peers.empty()) return text;
  TextTable peers;
  for (const char* title : {"peer", "work", "backend"}) peers.column(title, Align::kLeft);
  for (const char* title : {"threads", "times as fast"}) peers.column(title, Align::kRight);
  for (const BenchPeer& p : result.peers) {
    peers.row({p.peer, p.work, p.backend, fmt::format("{}", p.threads),
               fmt::format("{:.1f}", p.times_as_fast)});
  }
  return text + "\n" + peers.str();
}

std::string as_json(const BenchResult& result) {
  Json out = json_envelope(provenance());
  out["processor"] = result.processor;
  out["elements"] = result.elements;
  out["repeats"] = result.repeats;
  out["bounds"] = Json::array();
  for (const BenchBound& b : result.bounds) {
    out["bounds"].push_back({{"name", b.name},
                             {"threads", b.threads},
                             {"gb_s", b.bytes_per_second / 1e9},
                             {"least", b.least / 1e9},
                             {"most", b.most / 1e9}});
  }
  out["results"] = Json::array();
  for (const BenchRow& r : result.rows) {
    const double rate = static_cast<double>(r.elements) / r.seconds;
    Json row = {{"work", r.work},
                {"recipe", nullptr},
                {"dtype", r.dtype},
                {"mode", r.mode},
                {"backend", r.backend},
                {"threads", r.threads},
                {"elements", r.elements},
                {"seconds", r.seconds},
                {"least", r.least},
                {"most", r.most},
                {"gelem_s", rate / 1e9},
                {"bytes", r.bytes},
                {"gb_s", r.bytes / r.seconds / 1e9},
                {"input_gb_s", input_rate(r) / 1e9},
                {"bound", r.bound},
                {"bound_gb_s", r.bound_bytes_per_second / 1e9},
                {"ratio", r.ratio}};
    if (!r.recipe.empty()) row["recipe"] = r.recipe;
    row["instructions_per_element"] = nullptr;
    if (r.instructions_per_element) row["instructions_per_element"] = *r.instructions_per_element;
    out["results"].push_back(std::move(row));
  }
  out["peers"] = Json::array();
  for (const BenchPeer& p : result.peers) {
    out["peers"].push_back({{"peer", p.peer},
                            {"work", p.work},
                            {"backend", p.backend},
                            {"threads", p.threads},
                            {"times_as_fast", p.times_as_fast}});
  }
  return json_text(out);
}

int run(Arguments& arguments) {
  Progress progress(arguments.quiet);
  BenchOptions& options = arguments.bench;
  options.stop = &stop_requested();
  options.scratch_folder = tool_open_options().scratch_folder;
  options.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  const BenchResult result = run_bench(options);
  progress.clear();
  if (result.interrupted) return stop_exit_code();
  write_stdout(arguments.json ? as_json(result) : as_text(result));
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  BenchOptions& bench = arguments->bench;
  const unsigned cores = std::thread::hardware_concurrency();
  if (cores < 2) bench.threads = {1};
  CLI::App* sub = app.add_subcommand(
      "bench", "speed of the kernels, as ratios to this machine's memory in the same run");
  sub->add_option("-r,--recipe", bench.recipes, "recipes; default: the hot ones")
      ->allow_extra_args(false)
      ->type_name("RECIPE");
  sub->add_option("--dtype", bench.dtypes, "of f32, bf16, f16")->delimiter(',');
  const CLI::Option* mode =
      sub->add_option("--mode", bench.modes,
                      "of stats, pack (codes and scales), fake (decoded values), all")
          ->delimiter(',');
  sub->add_option("--backend", bench.backends, "names listed by 'fp4scope formats'")
      ->delimiter(',');
  sub->add_option("--threads", bench.threads, "numbers of threads")->delimiter(',');
  sub->add_option("--elements", bench.elements, "of the tensor");
  sub->add_option("--repeat", bench.repeats, "repetitions; the median counts");
  sub->add_option("--analyze", bench.analyze_bytes,
                  "also analyze() of a warm BF16 file of so many bytes, written to TMPDIR");
  sub->add_option("--ggml", bench.ggml_library,
                  "shared library of tools/ggml_peer.sh, whose quantizers are measured, too")
      ->type_name("FILE");
  sub->add_flag("--json", arguments->json, "print JSON instead of the table");
  sub->add_flag("--quiet", arguments->quiet, "no progress bar");
  sub->footer("Example:\n  fp4scope bench -r nvfp4 -r hif4 --dtype bf16 --mode stats");
  sub->callback([arguments, mode, &exit_code] {
    arguments->bench.modes_are_given = mode->count() > 0;
    exit_code = run(*arguments);
  });
}

}  // namespace fp4scope::tools
