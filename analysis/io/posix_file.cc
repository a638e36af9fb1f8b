// posix_file.cc: see posix_file.h.
#include "analysis/io/posix_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace fp4scope {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

// The result of a call that is made again while signals interrupt it.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

int read_at(int fd, std::int64_t offset, std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = uninterrupted([&] {
      return ::pread(fd, bytes.data() + done, std::min(bytes.size() - done, kMostAtOnce),
                     offset + static_cast<std::int64_t>(done));
    });
    if (got < 0) return errno;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return 0;
}

int write_at(int fd, std::int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = uninterrupted(
        [&] { return ::pwrite(fd, bytes.data(), std::min(bytes.size(), kMostAtOnce), offset); });
    if (written <= 0) return written < 0 ? errno : EIO;
    offset += written;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

int sync_file(int fd) {
  return uninterrupted([&] { return ::fsync(fd); }) != 0 ? errno : 0;
}
int sync_file_data(int fd) {
  return uninterrupted([&] { return ::fdatasync(fd); }) != 0 ? errno : 0;
}

void sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);
  ::close(fd);
}

Lock try_lock(int fd) {
  if (uninterrupted([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) == 0) return Lock::kTaken;
  return errno == EWOULDBLOCK ? Lock::kHeldByOther : Lock::kNone;
}

bool is_name_of(int fd, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace fp4scope
