// paths.h: where tests find committed data and, where it exists, the shared folder beside the
// repository, and how a test case says that it cannot run.
#pragma once
#include <cstdio>
#include <filesystem>
#include <string>

namespace fp4scope::test {

inline std::filesystem::path source_dir() {
  return FP4SCOPE_SOURCE_DIR;
}
inline std::filesystem::path data_dir() {
  return source_dir() / "data";
}
inline std::filesystem::path shared_dir() {
  return source_dir().parent_path() / "shared";
}

// Whether some test case of this program could not run. The main of doctest_main.cc then returns
// kSkippedExitCode, unless a check failed.
inline bool any_skipped = false;
inline constexpr int kSkippedExitCode = 77;  // SKIP_RETURN_CODE in tests/CMakeLists.txt

// A test case that cannot run says why and returns.
inline void skip(const std::string& reason) {
  any_skipped = true;
  std::printf("SKIPPED: %s\n", reason.c_str());
}
// True when ../shared/`name` exists; otherwise the test case is skipped.
inline bool have_shared(const std::string& name) {
  if (std::filesystem::exists(shared_dir() / name)) return true;
  skip("../shared/" + name + " is not there");
  return false;
}

// A fresh folder for the files of one test, removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fp4scope-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw std::filesystem::filesystem_error("cannot create a temporary folder",
                                              std::error_code(errno, std::generic_category()));
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace fp4scope::test
