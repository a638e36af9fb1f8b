// file_identity.cc: see file_identity.h.
#include "analysis/io/file_identity.h"

#include <sys/stat.h>

namespace fp4scope {

std::optional<FileIdentity> identify_file(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return std::nullopt;
  return FileIdentity{s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
}

bool is_unchanged(const std::optional<FileIdentity>& before,
                  const std::optional<FileIdentity>& now) {
  return before && now && before->device == now->device && before->inode == now->inode &&
         before->size == now->size &&
         is_same_time(before->seconds, before->nanoseconds, now->seconds, now->nanoseconds);
}

bool is_same_time(std::int64_t seconds_before, std::int64_t nanoseconds_before,
                  std::int64_t seconds_now, std::int64_t nanoseconds_now) {
  if (seconds_now != seconds_before) return false;
  // Nothing cut off, 100 ns (CIFS), microseconds, milliseconds, seconds.
  for (const std::int64_t unit : {1, 100, 1'000, 1'000'000, 1'000'000'000}) {
    if (nanoseconds_now == nanoseconds_before / unit * unit) return true;
  }
  return false;
}

}  // namespace fp4scope
