// common.h: what the verbs share: options, operands, standard output that cannot fail silently,
// progress, signals and the table of commands.
#pragma once
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
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

// Version and git revision of this build with the arguments as typed; set once by main.
const Provenance& provenance();
void set_provenance(int argc, char** argv);

// --- standard output and error ---
// Writes everything or throws Error(kData): a full disk or a closed pipe is no success.
void write_stdout(const std::string& text);
// "fp4scope: MESSAGE" on stderr; control characters are escaped.
void complain(const std::string& message);
void warn_of(const std::vector<std::string>& warnings);
// Complains of each error, unless both streams are one terminal and the table on stdout ends with
// the same messages. Returns the highest exit code, 0 without errors.
int complain_of(const std::vector<ErrorRecord>& errors, bool table_on_stdout);

// --- signals ---
// The first SIGINT, SIGTERM or SIGHUP asks the running analysis to stop; the second one removes
// unfinished output files and ends the process. SIGBUS, which an input file that is cut while it is
// mapped raises, becomes an error of the tensor that is being read. A closed pipe and a file size
// limit become write errors.
void install_signal_handlers();
const std::atomic<bool>& stop_requested();
// 128 + the number of the first signal that asked to stop, as shells expect it.
int stop_exit_code();

// Bar with ETA on stderr, only on a terminal, without --quiet and after the first second.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress() { clear(); }
  void update(std::int64_t done, std::int64_t total);
  // "looking at files: N", before there is a total.
  void looking(std::int64_t files);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool is_due() const;
  void draw(const std::string& line);

  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

// --- options that several verbs have ---
// With TMPDIR and the stop flag of the signal handlers.
OpenOptions tool_open_options();
struct CommonOptions {
  bool json = false, quiet = false, verbose = false;
  TensorFilter filter;
  int axis = -1;
  int threads = 0;
  std::string backend = "auto";
  OpenOptions open =
      tool_open_options();  // and of add_input_options(), complete when the command runs
  struct InputOptions {
    std::string dtype, shape, offset;
  } input;  // as typed
  std::vector<std::string> name_patterns;
  std::string rcp_table, format_file;  // files that recipes may need
};
void add_filter(CLI::App& app, TensorFilter& filter);
// --dtype, --shape, --offset, --follow-links: how files are read. Bad ones are Error(kUsage) before
// the command runs.
// The help lists integers among the types only where those are of use.
void add_input_options(CLI::App& app, CommonOptions& options, bool takes_integers = false);
void add_name_pattern(CLI::App& app, CommonOptions& options);
// The options that read a file in the same way; "" for none.
std::string input_options_text(const OpenOptions& options);
void add_arithmetic_options(CLI::App& app,
                            CommonOptions& options);  // axis, backend, threads, input options
void add_output_options(CLI::App& app, CommonOptions& options);  // json, quiet, verbose

inline constexpr const char* kOperandHelp =
    "FILE, DIRECTORY (with its subfolders), FILE:TENSOR, a pattern as 'dump/*.npy', or - for "
    "standard input";
// FILE, DIRECTORY or FILE:TENSOR; a pattern for FILE gives several (analysis/analyze.h), or one
// that does not exist when none matches: that is said where it is opened. Throws Error(kUsage) when
// nothing follows the colon.
std::vector<Operand> parse_operand(const std::string& text);
std::vector<Operand> parse_operands(const std::vector<std::string>& texts);
// --out PATH must not replace a file that the operands read: throws Error(kUsage).
void refuse_out_as_input(const std::string& path, const std::vector<Operand>& operands,
                         const OpenOptions& options);

// The same for the files of --rcp-table and --format-file.
void refuse_out_as_recipe_file(const std::string& path, const CommonOptions& options);

// Before hours of work: a directory that is missing or cannot be written is an error now. The probe
// file has a temporary name and is removed at once; an existing target stays as it is.
void check_writable(const std::string& path);
// The file appears whole or not at all.
void write_file(const std::string& path, const std::string& text);

// --memory 64M: bytes, or units of 1024^n. Throws Error(kUsage) below kMemoryPerThread.
void add_memory(CLI::App& app, std::string& text);
std::int64_t parse_memory(const std::string& text);

// --threads, or the cores of this machine.
int thread_count_of(const CommonOptions& options);

// Decimal or 0x..., up to 2^64 - 1; CLI11 would wrap negative numbers and clamp large ones.
std::uint64_t parse_seed(const std::string& text);

// "sources" of the JSON output.
Json sources_json(const std::vector<Report::Source>& sources);

// The files that recipes may need, --rcp-table and --format-file; null where not given.
struct RecipeFiles {
  std::shared_ptr<const RcpTable> rcp_table;
  std::shared_ptr<const FormatLibrary> library;
};
void add_recipe_files(CLI::App& app, CommonOptions& options);
RecipeFiles load_recipe_files(const CommonOptions& options);
// The options among these that `fp4scope explain` needs to see the same blocks; "" for none.
std::string explain_options(const CommonOptions& options);
// Parses recipes of the command line; --verbose prints their forms and why backends refuse them.
// Error(kUsage) for a file that none of them uses.
std::vector<Recipe> parse_recipe_options(const std::vector<std::string>& texts,
                                         const CommonOptions& options);

// --- verbs: each adds its subcommand; the callback leaves the exit code in `exit_code` ---
void add_bench(CLI::App& app, int& exit_code);
void add_formats(CLI::App& app, int& exit_code);
void add_info(CLI::App& app, int& exit_code);
void add_analyze(CLI::App& app, int& exit_code);
void add_agree(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_identify(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_golden(CLI::App& app, int& exit_code);
void add_gen(CLI::App& app, int& exit_code);
void add_quantize(CLI::App& app, int& exit_code);
void add_dequantize(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);

}  // namespace fp4scope::tools
