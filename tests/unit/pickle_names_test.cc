// pickle_names_test.cc: which globals serve only to run code, and the texts of pickles.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "analysis/io/pickle_refused.h"
#include "analysis/io/pickle_text.h"

using namespace fp4scope;
using namespace std::string_view_literals;

namespace {

struct Global {
  std::string_view module, name;
};

}  // namespace

TEST_CASE("what serves to run code is known by name, what honest files name is not") {
  const Global refused[] = {
      {"os", "system"},
      {"os.path", "join"},
      {"posix", "system"},
      {"nt", "system"},
      {"sys", "exit"},
      {"subprocess", "Popen"},
      {"subprocess", "check_output"},
      {"builtins", "eval"},
      {"builtins", "exec"},
      {"builtins", "compile"},
      {"builtins", "open"},
      {"builtins", "__import__"},
      {"builtins", "input"},
      {"builtins", "breakpoint"},
      {"__builtin__", "eval"},
      {"__builtin__", "execfile"},
      {"__builtin__", "file"},
      {"importlib", "import_module"},
      {"importlib.util", "module_from_spec"},
      {"runpy", "run_path"},
      {"shutil", "rmtree"},
      {"socket", "socket"},
      {"ctypes", "CDLL"},
      {"pty", "spawn"},
      {"code", "InteractiveInterpreter"},
      {"pickle", "loads"},
      {"_pickle", "loads"},
      {"marshal", "loads"},
      {"torch", "load"},
      {"torch.serialization", "load"},
      {"torch", "serialization.load"},
      {"torch.hub", "load"},
      {"torch", "hub.load"},
      {"webbrowser", "open"},
      {"io", "open"},
      {"types", "CodeType"},
      {"operator", "methodcaller"},
      {"numpy", "load"},
      {"torch._utils", "os.system"},
      {"anything", "x.__globals__"},
  };
  for (const auto& [module, name] : refused) {
    CAPTURE(std::string(module) + "." + std::string(name));
    CHECK(runs_code(module, name));
  }
  const Global harmless[] = {
      {"builtins", "getattr"},
      {"builtins", "set"},
      {"builtins", "slice"},
      {"__builtin__", "object"},
      {"builtins", "evaluate"},
      {"torch", "FloatStorage"},
      {"torch", "float32"},
      {"torch", "loader"},
      {"torch._utils", "_rebuild_tensor_v2"},
      {"torch.serialization", "_get_layout"},
      {"torch.nn.modules.linear", "Linear"},
      {"collections", "OrderedDict"},
      {"copyreg", "_reconstructor"},
      {"functools", "partial"},
      {"numpy", "loadtxt"},
      {"numpy._core.multiarray", "_reconstruct"},
      {"_codecs", "encode"},
      {"osmodule", "system"},
      {"my.os", "system"},
      {"code.models", "Net"},
      {"argparse", "Namespace"},
      {"pathlib", "PosixPath"},
  };
  for (const auto& [module, name] : harmless) {
    CAPTURE(std::string(module) + "." + std::string(name));
    CHECK_FALSE(runs_code(module, name));
  }
}

TEST_CASE("texts: UTF-8 as RFC 3629 has it, floats as Python prints them") {
  CHECK(is_utf8(""));
  CHECK(is_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82"));
  for (const std::string_view bad :
       {"\xff"sv, "\xc3"sv, "\xc0\x80"sv, "\xe0\x80\x80"sv, "\xed\xa0\x80"sv, "\xf4\x90\x80\x80"sv,
        "\x80"sv, "\xf0\x8f\xbf\xbf"sv}) {
    CHECK_FALSE(is_utf8(bad));
  }
  std::string_view text = "\xc3\xa9z";
  CHECK(take_utf8(text) == 0xE9u);
  CHECK(take_utf8(text) == 0x7Au);
  CHECK_FALSE(take_utf8(text).has_value());
  CHECK(python_float(0.5) == "0.5");
  CHECK(python_float(1) == "1.0");
  CHECK(python_float(-0.0) == "-0.0");
  CHECK(python_float(1e16) == "1e+16");
  CHECK(python_float(123456789012345680.0) == "1.2345678901234568e+17");
}
