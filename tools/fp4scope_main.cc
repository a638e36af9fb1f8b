// fp4scope_main.cc: the command line. The one place that catches: every Error becomes one sentence
// on stderr and its exit code (design/product.md, "What every command has in common").
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <new>

#include "analysis/text_table.h"
#include "common.h"
#include "float_environment.h"

namespace fp4scope::tools {
namespace {

// A file opened later must not get the number of a closed standard stream and receive its text.
// Read-only, so that writing to it still fails.
void reserve_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1) (void)!::open("/dev/null", O_RDONLY);
  }
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

int run(int argc, char** argv) {
  CLI::App app{"Bit-accurate emulator and analysis toolkit for 4-bit block formats", "fp4scope"};
  int exit_code = 0;
  app.set_version_flag("--version",
                       fmt::format("fp4scope {} ({})", provenance().version, provenance().git));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 a threshold was exceeded, 2 wrong usage, 3 bad or unreadable data,\n"
      "4 not supported here, 128+N stopped by signal N. Every COMMAND --help ends with an example\n"
      "on the tensors in data/.");
  add_formats(app, exit_code);
  add_info(app, exit_code);
  add_analyze(app, exit_code);
  add_agree(app, exit_code);
  add_verify(app, exit_code);
  add_identify(app, exit_code);
  add_explain(app, exit_code);
  add_golden(app, exit_code);
  add_gen(app, exit_code);
  add_bench(app, exit_code);
  add_quantize(app, exit_code);
  add_dequantize(app, exit_code);

  const std::vector<std::string> names = command_names(app);
  const std::string first = argc < 2 ? "" : argv[1];
  if (!first.starts_with('-') && std::find(names.begin(), names.end(), first) == names.end()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}; the commands are {}, and 'fp4scope --help' explains them",
                            argc < 2 ? "no command given" : "unknown command '" + first + "'",
                            joined(names, ", ")));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    // The innermost command that was named prints its own help.
    const CLI::App* shown = &app;
    for (auto subs = shown->get_subcommands(); !subs.empty(); subs = shown->get_subcommands()) {
      shown = subs.front();
    }
    write_stdout(shown->help());
  } catch (const CLI::CallForVersion& version) {
    write_stdout(fmt::format("{}\n", version.what()));
  } catch (const CLI::ParseError& error) {
    std::string where = "fp4scope";
    for (const CLI::App* sub : app.get_subcommands()) where += " " + sub->get_name();
    throw Error(ErrorKind::kUsage, fmt::format("{}; see '{} --help'", error.what(), where));
  }
  return exit_code;
}

}  // namespace
}  // namespace fp4scope::tools

int main(int argc, char** argv) {
  using namespace fp4scope;
  tools::reserve_standard_streams();
  tools::set_provenance(argc, argv);
  try {
    if (const std::string fault = float_environment_fault(); !fault.empty()) {
      throw Error(
          ErrorKind::kUnsupported,
          "the floating-point environment of this process cannot give exact bits: " + fault);
    }
    tools::install_signal_handlers();
    const int exit_code = tools::run(argc, argv);
    // A stop is recorded as an error of the input that was being read.
    return exit_code != 0 && tools::stop_requested() ? tools::stop_exit_code() : exit_code;
  } catch (const Error& error) {
    tools::complain(error.what());
    return tools::stop_requested() ? tools::stop_exit_code() : error.exit_code();
  } catch (const std::bad_alloc&) {
    tools::complain("not enough memory for this input");
    return tools::kExitUnsupported;
  } catch (const std::exception& error) {
    tools::complain(fmt::format("internal error: {}", error.what()));
    return tools::kExitUnsupported;
  }
}
