// common.cc: see common.h.
#include "common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "analysis/io/container_files.h"
#include "analysis/io/message.h"
#include "analysis/io/mmap.h"
#include "analysis/io/scratch.h"
#include "analysis/io/sinks.h"
#include "sim/format_file.h"
#include "sim/rcp_table.h"
#include "version.h"

namespace fp4scope::tools {
namespace {

Provenance g_provenance;
std::atomic<bool> g_stop{false};
std::atomic<int> g_stop_signal{SIGINT};
// Both are used in a signal handler.
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

extern "C" void handle_stop(int signal) {
  if (g_stop.exchange(true)) {
    remove_unfinished_files();
    _exit(128 + signal);
  }
  g_stop_signal.store(signal);
}

// A page of an input file that cannot be read becomes an error of its tensor; anything else that
// raises SIGBUS ends the process. Only async-signal-safe calls: no allocation, no formatting.
extern "C" void handle_bus_error(int, siginfo_t* info, void*) {
  // Sent by another process, the signal has no address.
  if (info->si_code > 0 && absorb_bus_error(info->si_addr)) return;
  static std::atomic_flag reported = ATOMIC_FLAG_INIT;
  // Other threads wait here for the end of the process.
  while (reported.test_and_set()) ::pause();
  constexpr std::string_view kLine =
      "fp4scope: an input file was cut short or could not be read while it was being read\n";
  (void)!::write(STDERR_FILENO, kLine.data(), kLine.size());
  remove_unfinished_files();
  _exit(kExitData);
}

// Returns errno, or 0. Partial writes go on, signals do not interrupt.
int write_all(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}

}  // namespace

const Provenance& provenance() {
  return g_provenance;
}
void set_provenance(int argc, char** argv) {
  g_provenance = {FP4SCOPE_VERSION, FP4SCOPE_GIT, {}};
  for (int i = 1; i < argc; ++i) g_provenance.command.emplace_back(argv[i]);
}

void write_stdout(const std::string& text) {
  if (const int error = write_all(STDOUT_FILENO, text); error != 0) {
    throw Error(
        ErrorKind::kData,
        fmt::format("cannot write the whole result to standard output: {}", system_message(error)));
  }
}

void complain(const std::string& message) {
  // Nothing is left to report to when stderr fails as well.
  (void)write_all(STDERR_FILENO, fmt::format("fp4scope: {}\n", printable(message)));
}

void warn_of(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) complain("warning: " + warning);
}

int complain_of(const std::vector<ErrorRecord>& errors, bool table_on_stdout) {
  const bool shown =
      table_on_stdout && ::isatty(STDOUT_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0;
  int exit_code = 0;
  for (const ErrorRecord& error : errors) {
    if (!shown) complain(error.message);
    exit_code = std::max(exit_code, error.exit_code);
  }
  return exit_code;
}

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = handle_stop;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // nohup has it ignored, and so it stays.
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  struct sigaction bus {};
  bus.sa_sigaction = handle_bus_error;
  bus.sa_flags = SA_SIGINFO;
  sigemptyset(&bus.sa_mask);
  sigaction(SIGBUS, &bus, nullptr);
  // Writes report EPIPE and EFBIG instead.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}
const std::atomic<bool>& stop_requested() {
  return g_stop;
}
int stop_exit_code() {
  return 128 + g_stop_signal.load();
}

OpenOptions tool_open_options() {
  OpenOptions options;
  const char* folder = std::getenv("TMPDIR");
  if (folder != nullptr && *folder != '\0') options.scratch_folder = folder;
  options.stop = &g_stop;
  return options;
}

Progress::Progress(bool quiet) : enabled_(!quiet && ::isatty(STDERR_FILENO) != 0) {}

bool Progress::is_due() const {
  const auto now = Clock::now();
  return enabled_ && now - start_ >= std::chrono::seconds(1) &&
         (!drawn_ || now - last_ >= std::chrono::milliseconds(100));
}

void Progress::draw(const std::string& line) {
  // \033[K clears the rest of the line.
  (void)write_all(STDERR_FILENO, fmt::format("\r{}\033[K", line));
  drawn_ = true;
  last_ = Clock::now();
}

void Progress::looking(std::int64_t files) {
  if (is_due()) draw(fmt::format("looking at files: {}", files));
}

void Progress::update(std::int64_t done, std::int64_t total) {
  using std::chrono::duration;
  if (done <= 0 || total <= 0 || !is_due()) return;
  constexpr int kWidth = 40;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const double elapsed = duration<double>(Clock::now() - start_).count();
  const int filled = static_cast<int>(share * kWidth);
  draw(fmt::format("[{:#<{}}{:.<{}}] {:3.0f}%  {:.0f} s left", "", filled, "", kWidth - filled,
                   share * 100, elapsed * (1 - share) / share));
}

void Progress::clear() {
  if (drawn_) (void)write_all(STDERR_FILENO, "\r\033[K");
  drawn_ = false;
}

void add_filter(CLI::App& app, TensorFilter& filter) {
  app.add_option("--include", filter.include,
                 "only tensors whose name contains a match of this regular expression (repeatable)")
      ->type_name("REGEX")
      ->allow_extra_args(false);
  app.add_option("--exclude", filter.exclude, "leave out tensors whose name contains a match")
      ->type_name("REGEX")
      ->allow_extra_args(false);
}

void add_arithmetic_options(CLI::App& app, CommonOptions& options) {
  app.add_option("--axis", options.axis, "axis along which blocks run; negative: from the end")
      ->capture_default_str();
  app.add_option("--backend", options.backend, "a name listed by 'fp4scope formats', or auto")
      ->capture_default_str();
  app.add_option("--threads", options.threads, "0: all cores")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  add_input_options(app, options);
}

void add_output_options(CLI::App& app, CommonOptions& options) {
  app.add_flag("--json", options.json, "print JSON instead of the table");
  app.add_flag("--quiet", options.quiet, "no progress bar");
  app.add_flag("--verbose", options.verbose,
               "say on stderr what each recipe means and why backends refuse it");
}

std::vector<Operand> parse_operand(const std::string& text) {
  std::vector<Operand> operands;
  try {
    operands = expand_operand(text);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kUsage) throw;
    return {{text, ""}};
  }
  if (text.ends_with(':') && operands.front().tensor.empty() && operands.front().file != text) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}: the tensor name after the colon is empty, expected FILE:TENSOR or "
                            "FILE alone",
                            text));
  }
  return operands;
}

std::vector<Operand> parse_operands(const std::vector<std::string>& texts) {
  std::vector<Operand> operands;
  for (const std::string& text : texts) {
    for (Operand& operand : parse_operand(text)) operands.push_back(std::move(operand));
  }
  return operands;
}

void refuse_out_as_input(const std::string& path, const std::vector<Operand>& operands,
                         const OpenOptions& options) {
  const auto refuse_one_of = [&](const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      std::error_code ignored;
      if (std::filesystem::equivalent(path, file, ignored)) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("--out {} would replace the input file {}", path, file));
      }
    }
  };
  // A file that does not exist replaces none.
  if (std::error_code ignored; !std::filesystem::exists(path, ignored)) return;
  const auto readable = [](const auto& list) -> std::vector<std::string> {
    try {
      return list();
    } catch (const Error&) {
      return {};  // the analysis reports it
    }
  };
  for (const Operand& operand : operands) {
    // A bad file of a directory does not hide the others.
    for (const std::string& file : find_containers(operand.file, options.follow_links).files) {
      refuse_one_of({file});
      if (is_stream(file)) continue;  // what is read here would be missing later
      refuse_one_of(readable([&] { return source_files(*open_source(file, options.in_parts())); }));
    }
  }
}

void refuse_out_as_recipe_file(const std::string& path, const CommonOptions& options) {
  for (const auto& [option, file] : {std::pair{"--rcp-table", options.rcp_table},
                                     std::pair{"--format-file", options.format_file}}) {
    std::error_code ignored;
    if (!file.empty() && std::filesystem::equivalent(path, file, ignored)) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("the output {} would replace the file of {}", path, option));
    }
  }
}

void check_writable(const std::string& path) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorKind::kData, fmt::format("--out {}: this is a directory", path));
  }
  AtomicFile probe(path);
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void add_memory(CLI::App& app, std::string& text) {
  app.add_option("--memory", text,
                 fmt::format("upper limit, with K, M or G (1024-based); {}M or more for each "
                             "thread, else fewer run",
                             kMemoryPerThread >> 20))
      ->type_name("SIZE")
      ->capture_default_str();
}

std::int64_t parse_memory(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage, fmt::format("--memory '{}': {}; the least is {}M", text, why,
                                               kMemoryPerThread >> 20));
  };
  constexpr std::string_view kUnits = "KMGT";
  std::int64_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, bytes);
  if (error == std::errc::result_out_of_range) refuse("this exceeds 64 bits");
  std::string unit(rest, end);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (unit.ends_with('B')) unit.pop_back();
  if (unit.size() == 2 && unit[1] == 'I') unit.pop_back();
  const std::size_t power = unit.empty() ? 0 : kUnits.find(unit) + 1;
  if (error != std::errc{} || unit.size() > 1 || power > kUnits.size()) {
    refuse("expected a whole number with K, M, G, T or nothing behind it (1024-based)");
  }
  for (std::size_t i = 0; i < power; ++i) {
    if (__builtin_mul_overflow(bytes, std::int64_t{1024}, &bytes)) refuse("this exceeds 64 bits");
  }
  if (bytes < kMemoryPerThread) refuse("one thread needs more");
  return bytes;
}

int thread_count_of(const CommonOptions& options) {
  return options.threads > 0 ? options.threads
                             : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::uint64_t parse_seed(const std::string& text) {
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  const char *first = text.data() + (is_hex ? 2 : 0), *last = text.data() + text.size();
  std::uint64_t seed = 0;
  const auto [stop, error] = std::from_chars(first, last, seed, is_hex ? 16 : 10);
  if (error == std::errc{} && stop == last) return seed;
  throw Error(ErrorKind::kUsage,
              fmt::format("--seed {}: expected a number from 0 to 2^64 - 1", text));
}

Json sources_json(const std::vector<Report::Source>& sources) {
  Json out = Json::array();
  for (const Report::Source& source : sources) {
    out.push_back(
        {{"file", source.path}, {"container", source.container}, {"bytes", source.bytes}});
  }
  return out;
}

void add_recipe_files(CLI::App& app, CommonOptions& options) {
  app.add_option("--rcp-table", options.rcp_table,
                 "reciprocal table of recipes with rcp=user, 2097152 bytes, plain or xz")
      ->type_name("FILE");
  app.add_option("--format-file", options.format_file,
                 "TOML file with elements, tables and formats for custom: recipes")
      ->type_name("FILE");
}

RecipeFiles load_recipe_files(const CommonOptions& options) {
  RecipeFiles files;
  if (!options.format_file.empty()) files.library = load_format_file(options.format_file);
  if (!options.rcp_table.empty()) files.rcp_table = load_rcp_table(options.rcp_table);
  return files;
}

std::string explain_options(const CommonOptions& options) {
  std::string out;
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty())
      out += fmt::format("{}{} {}", out.empty() ? "" : " ", option, shell_word(value));
  };
  if (options.axis != -1) out = fmt::format("--axis={}", options.axis);
  if (const std::string input = input_options_text(options.open); !input.empty()) {
    out += (out.empty() ? "" : " ") + input;
  }
  add("--rcp-table", options.rcp_table);
  add("--format-file", options.format_file);
  return out;
}

namespace {

Recipe parse_recipe_option(const std::string& text, const CommonOptions& options,
                           const RecipeFiles& files) {
  Recipe recipe = parse_recipe(text, files.library);
  if (rcp_of(recipe) == Rcp::kUser) {
    if (files.rcp_table == nullptr) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("recipe \"{}\": rcp=user needs a table (--rcp-table FILE)", text));
    }
    recipe.user_rcp = files.rcp_table;
  }
  if (options.verbose) {
    complain(fmt::format("recipe {} is {}, in full {}", text, to_string(recipe),
                         to_full_string(recipe)));
    std::vector<const Backend*> backends(cpu_backends().begin(), cpu_backends().end());
    backends.push_back(&oracle_backend());
    for (const Backend* backend : backends) {
      Support support = backend->available();
      if (support.ok) support = backend->supports(recipe);
      if (!support.ok) {
        complain(fmt::format("backend {} cannot do {}: {}", backend->name(), text, support.reason));
      }
    }
  }
  return recipe;
}

}  // namespace

std::vector<Recipe> parse_recipe_options(const std::vector<std::string>& texts,
                                         const CommonOptions& options) {
  const RecipeFiles files = load_recipe_files(options);
  std::vector<Recipe> recipes;
  bool uses_table = false, uses_library = false;
  for (const std::string& text : texts) {
    recipes.push_back(parse_recipe_option(text, options, files));
    uses_table |= recipes.back().user_rcp != nullptr;
    uses_library |= recipes.back().library != nullptr;
  }
  if (files.rcp_table && !uses_table) {
    throw Error(ErrorKind::kUsage, fmt::format("--rcp-table {}: no recipe uses it; say rcp=user in "
                                               "a recipe with an approximate reciprocal",
                                               options.rcp_table));
  }
  if (files.library && !uses_library) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--format-file {}: no recipe uses a name of it (custom:NAME)",
                            options.format_file));
  }
  return recipes;
}

}  // namespace fp4scope::tools
