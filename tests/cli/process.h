// process.h: runs the built program as a user's shell would, and collects what it says.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/paths.h"

namespace fp4scope::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}
inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Result {
  int code = -1;  // exit code, or -signal
  std::string out, err;
};

// Where standard output goes instead of a file that is read back.
enum class Stdout { kCaptured, kFull, kClosedPipe, kClosed };

struct Setup {
  Stdout out = Stdout::kCaptured;
  rlim_t file_limit = RLIM_INFINITY;          // bytes; a write beyond fails, as on a full disk
  std::function<void(pid_t)> meanwhile = {};  // called while the program runs
};

// Runs `fp4scope ARGS...` from the root of the repository, so that data/sample has a short name.
inline Result run(const std::vector<std::string>& args, const Setup& setup = {}) {
  TempDir folder;
  const std::string out_path = folder.file("stdout"), err_path = folder.file("stderr");
  std::vector<char*> argv;
  std::string program = FP4SCOPE_BINARY;
  argv.push_back(program.data());
  std::vector<std::string> copies = args;
  for (std::string& arg : copies) argv.push_back(arg.data());
  argv.push_back(nullptr);
  int pipe_ends[2] = {-1, -1};
  if (setup.out == Stdout::kClosedPipe) {
    if (::pipe(pipe_ends) != 0) return {};
    ::close(pipe_ends[0]);  // before the program starts, which may be done sooner than this process
  }

  const pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) {
    if (::chdir(source_dir().c_str()) != 0) ::_exit(99);
    const int err = ::open(err_path.c_str(), O_WRONLY | O_CREAT, 0600);
    int out = -1;
    switch (setup.out) {
      case Stdout::kCaptured:
        out = ::open(out_path.c_str(), O_WRONLY | O_CREAT, 0600);
        break;
      case Stdout::kFull:
        out = ::open("/dev/full", O_WRONLY);
        break;
      case Stdout::kClosedPipe:
        out = pipe_ends[1];
        break;
      case Stdout::kClosed:
        break;
    }
    ::dup2(err, 2);
    if (out >= 0) {
      ::dup2(out, 1);
    } else {
      ::close(1);
    }
    if (setup.file_limit != RLIM_INFINITY) {
      const rlimit limit{setup.file_limit, setup.file_limit};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ::execv(argv[0], argv.data());
    ::_exit(99);
  }
  if (pipe_ends[1] >= 0) ::close(pipe_ends[1]);
  if (setup.meanwhile) setup.meanwhile(child);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(out_path),
          read_file(err_path)};
}

inline const std::string kSample = "data/sample/use_lite_slice.safetensors";

// A npy file of binary32 zeros that takes no space on the disk.
inline void write_sparse_npy(const std::filesystem::path& path, std::int64_t rows,
                             std::int64_t cols) {
  std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) +
                     ", " + std::to_string(cols) + "), }";
  dict.resize(117, ' ');  // 10 bytes of magic and length, then a header that fills 128 bytes
  dict += '\n';
  write_file(path, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict);
  std::filesystem::resize_file(path, 128 + static_cast<std::uintmax_t>(rows * cols * 4));
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

}  // namespace fp4scope::test
