// paths.h: where tests find committed data and, where it exists, the shared folder beside the
// repository.
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

// True when ../shared/`name` exists. Otherwise prints the line that marks the ctest entry as
// skipped.
inline bool have_shared(const std::string& name) {
  if (std::filesystem::exists(shared_dir() / name)) return true;
  std::printf("SKIPPED: ../shared/%s is not there\n", name.c_str());
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
