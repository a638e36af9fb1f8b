// file_identity.cc: see file_identity.h.
#include "analysis/io/file_identity.h"

#include <sys/stat.h>

namespace fp4scope {

std::optional<FileIdentity> identify_file(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return std::nullopt;
  return FileIdentity{s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
}

}  // namespace fp4scope
