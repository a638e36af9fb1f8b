// common.h: what the verbs share: options, standard output that cannot fail silently, progress,
// Ctrl-C and the table of commands.
#pragma once
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/json_text.h"
#include "sim/error.h"

namespace fp4scope::tools {

// Exit codes that are no Error kind: sim/error.h has 2 to 4.
inline constexpr int kExitThreshold = 1;
inline constexpr int kExitData = 3;
inline constexpr int kExitUnsupported = 4;
inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells expect it

// Version and git revision of this build with the arguments as typed; set once by main.
const Provenance& provenance();
void set_provenance(int argc, char** argv);

// --- standard output and error ---
// Writes everything or throws Error(kData): a full disk or a closed pipe is no success.
void write_stdout(const std::string& text);
// "fp4scope: MESSAGE" on stderr; control characters are escaped.
void complain(const std::string& message);

// --- Ctrl-C ---
// The first SIGINT or SIGTERM asks the running analysis to stop; the second one removes unfinished
// output files and ends the process. A closed pipe and a file size limit become write errors.
void install_signal_handlers();
const std::atomic<bool>& stop_requested();

// Bar with ETA on stderr, only on a terminal, without --quiet and after the first second.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress() { clear(); }
  void update(std::int64_t done, std::int64_t total);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

// --- options that several verbs have ---
struct CommonOptions {
  bool json = false, quiet = false, verbose = false;
  TensorFilter filter;
  int axis = -1;
  int threads = 0;
  std::string backend = "auto", dtype_hint;
};
void add_filter(CLI::App& app, TensorFilter& filter);
void add_arithmetic_options(CLI::App& app,
                            CommonOptions& options);             // axis, backend, threads, dtype
void add_output_options(CLI::App& app, CommonOptions& options);  // json, quiet, verbose

// Parses a recipe of the command line; --verbose prints its forms and why backends refuse it.
Recipe parse_recipe_option(const std::string& text, bool verbose);

// --- verbs: each adds its subcommand; the callback leaves the exit code in `exit_code` ---
void add_formats(CLI::App& app, int& exit_code);
void add_info(CLI::App& app, int& exit_code);
void add_analyze(CLI::App& app, int& exit_code);
void add_quantize(CLI::App& app, int& exit_code);
void add_dequantize(CLI::App& app, int& exit_code);

}  // namespace fp4scope::tools
