// pickle_refused.cc: the table. A list of what is known to run code can never be complete; it makes
// the sentence better, and safety does not rest on it, since nothing is imported or called at all.
// Left out on purpose, because honest files name them: builtins.getattr (Transformer Engine's
// tensors), functools.partial, copyreg._reconstructor, pathlib classes, argparse.Namespace.
#include "analysis/io/pickle_refused.h"

#include <algorithm>
#include <string>

namespace fp4scope {
namespace {

// A module with all that is below it, or one name in a module.
constexpr std::string_view kRefused[] = {
    "os",
    "posix",
    "nt",
    "sys",
    "subprocess",
    "_posixsubprocess",
    "asyncio.subprocess",
    "commands.getoutput",
    "commands.getstatusoutput",
    "popen2",
    "pty",
    "shutil",
    "socket",
    "_socket",
    "socketserver",
    "ssl",
    "ftplib",
    "smtplib",
    "telnetlib",
    "http.client",
    "urllib",
    "urllib2",
    "requests.api",
    "requests.get",
    "requests.post",
    "webbrowser",
    "ctypes",
    "_ctypes",
    "cffi",
    "importlib",
    "_frozen_importlib",
    "imp",
    "pkgutil",
    "zipimport",
    "runpy",
    "pip",
    "ensurepip",
    "pickle",
    "_pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill.load",
    "dill.loads",
    "dill._dill.load",
    "dill._dill.loads",
    "cloudpickle.load",
    "cloudpickle.loads",
    "joblib.load",
    "code.interact",
    "code.InteractiveConsole",
    "code.InteractiveInterpreter",
    "codeop",
    "pdb",
    "bdb",
    "timeit",
    "cProfile",
    "profile.run",
    "profile.runctx",
    "trace.Trace",
    "doctest",
    "pydoc",
    "idlelib",
    "lib2to3",
    "distutils",
    "setuptools",
    "multiprocessing.util.spawnv_passfds",
    "platform.popen",
    "io.open",
    "io.open_code",
    "_io.open",
    "_io.open_code",
    "io.FileIO",
    "_io.FileIO",
    "codecs.open",
    "_thread.start_new_thread",
    "types.CodeType",
    "types.FunctionType",
    "operator.methodcaller",
    "_operator.methodcaller",
    "numpy.load",
    "numpy.fromfile",
    "numpy.testing._private.utils.runstring",
    "numpy.f2py",
    "pandas.read_pickle",
    "torch.load",
    "torch.serialization",
    "torch.hub",
    "torch.package",
    "torch.jit.load",
    "torch.utils.cpp_extension",
    "torch.utils.collect_env",
    "torch.storage._load_from_bytes",
    "torch._inductor.codecache",
    "torch.ops.load_library",
    "torch.classes.load_library",
};
// Of builtins, __builtin__ (Python 2) and __builtins__.
constexpr std::string_view kRefusedBuiltins[] = {
    "eval", "exec",       "execfile", "compile", "open",    "file",   "__import__", "input",
    "quit", "breakpoint", "exit",     "reload",  "globals", "locals", "raw_input",  "help",
};
// Exceptions: torch.layout objects are pickled as a call of it.
constexpr std::string_view kHarmless[] = {"torch.serialization._get_layout"};
// As a part of a dotted name, which STACK_GLOBAL follows attribute by attribute.
constexpr std::string_view kRefusedParts[] = {
    "os", "posix", "sys", "subprocess", "builtins", "__builtins__", "__globals__", "__import__",
};

bool contains(const auto& table, std::string_view text) {
  return std::find(std::begin(table), std::end(table), text) != std::end(table);
}

bool is_builtins(std::string_view module) {
  return module == "builtins" || module == "__builtin__" || module == "__builtins__";
}

}  // namespace

bool runs_code(std::string_view module, std::string_view name) {
  const std::string whole = std::string(module) + "." + std::string(name);
  if (contains(kHarmless, whole)) return false;
  if (is_builtins(module) && contains(kRefusedBuiltins, name.substr(0, name.find('.')))) {
    return true;
  }
  for (const std::string_view refused : kRefused) {
    if (whole.starts_with(refused) &&
        (whole.size() == refused.size() || whole[refused.size()] == '.')) {
      return true;
    }
  }
  if (name.find('.') == std::string_view::npos) return false;
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t end = std::min(name.find('.', start), name.size());
    if (contains(kRefusedParts, name.substr(start, end - start))) return true;
    start = end + 1;
  }
  return false;
}

}  // namespace fp4scope
