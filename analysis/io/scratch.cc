// scratch.cc: see scratch.h. POSIX, with O_TMPFILE where the file system has it.
#include "analysis/io/scratch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "analysis/io/message.h"
#include "analysis/io/posix_file.h"
#include "sim/error.h"

namespace fp4scope {

ScratchFile::ScratchFile(std::string folder, std::string what)
    : folder_(std::move(folder)), what_(std::move(what)) {
  fd_ = ::open(folder_.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string name = folder_ + "/fp4scope-XXXXXX";
    fd_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd_ >= 0) ::unlink(name.c_str());
  }
  if (fd_ < 0) fail(errno);
}

ScratchFile::~ScratchFile() {
  if (fd_ >= 0) ::close(fd_);
}

void ScratchFile::fail(int error_number) const {
  throw Error(
      ErrorKind::kData,
      fmt::format("cannot keep {} in a scratch file in {}: {} (TMPDIR names another folder)",
                  printable(what_), printable(folder_), system_message(error_number)));
}

void ScratchFile::write(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;
  while (bytes > 0) {
    const ssize_t written = ::write(fd_, from, std::min(bytes, kMostAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(written < 0 ? errno : EIO);
    from += written;
    size_ += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void ScratchFile::reserve(std::int64_t bytes) {
  int failed;
  do {
    failed = ::fallocate(fd_, 0, 0, bytes);
  } while (failed != 0 && errno == EINTR);
  // A file system that cannot reserve says so when it is full.
  if (failed != 0 && errno != EOPNOTSUPP && errno != ENOSYS) fail(errno);
  if (failed != 0 && ::ftruncate(fd_, bytes) != 0) fail(errno);
  size_ = bytes;
}

void ScratchFile::write_at(std::int64_t offset, const void* data, std::size_t bytes) {
  const int failed =
      fp4scope::write_at(fd_, offset, std::string_view(static_cast<const char*>(data), bytes));
  if (failed != 0) fail(failed);
}

std::shared_ptr<MappedFile> ScratchFile::finish(const std::string& path) {
  return std::make_shared<MappedFile>(std::exchange(fd_, -1), path, true);
}

bool has_scratch_room(const std::string& folder, std::int64_t bytes, std::int64_t given_back) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0 || status.f_bsize <= 0) return false;
  constexpr std::int64_t kMostInMemory = std::int64_t{256} << 20;
  const auto type = static_cast<std::uint32_t>(status.f_type);
  if ((type == TMPFS_MAGIC || type == RAMFS_MAGIC) && bytes > kMostInMemory) return false;
  const auto unit = static_cast<std::uint64_t>(status.f_bsize);
  const std::uint64_t free = status.f_bavail + static_cast<std::uint64_t>(given_back) / unit;
  return static_cast<std::uint64_t>(bytes) / unit < free / 2;
}

bool is_stream(const std::string& path) {
  if (path == "-") return true;
  if (path.find('\0') != std::string::npos) return false;  // stat() would see another name
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) &&
         !S_ISDIR(status.st_mode) && !S_ISBLK(status.st_mode);
}

namespace {

// How long a signal that asks to stop may wait while nothing comes.
constexpr int kPollMilliseconds = 100;

// A descriptor of which this file is the owner.
struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd;
};

// Until there is something to read or the writer has gone. A FIFO that no writer has opened yet is
// neither, while read() would call it ended.
void wait_for_data(int fd, const std::atomic<bool>* stop) {
  for (;;) {
    if (stop != nullptr && *stop) throw Error(ErrorKind::kData, "interrupted");
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, kPollMilliseconds) > 0) return;
  }
}

}  // namespace

std::shared_ptr<MappedFile> spool_stream(const std::string& path, const std::string& folder,
                                         const std::atomic<bool>* stop) {
  const bool standard_input = path == "-";
  const std::string name = standard_input ? "standard input" : path;
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::kData, fmt::format("cannot read {}: {}", printable(name), why));
  };
  // O_NONBLOCK: opening a FIFO waits for its writer, without an eye on `stop`.
  const Descriptor in(standard_input ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                     : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (in.fd < 0) fail(system_message(errno));
  struct stat status {};
  if (::fstat(in.fd, &status) != 0) fail(system_message(errno));
  // Devices such as /dev/zero have no end.
  if (::isatty(in.fd) != 0) fail("it is a terminal, expected a file or pipe");
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) {
    fail("it is a device, expected a file or pipe");
  }
  if (S_ISDIR(status.st_mode)) fail("it is a directory, expected a file or pipe");
  if (S_ISREG(status.st_mode) && ::lseek(in.fd, 0, SEEK_CUR) == 0) {
    // A redirected file needs no copy.
    const int copy = ::fcntl(in.fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) fail(system_message(errno));
    return std::make_shared<MappedFile>(copy, name);
  }
  ScratchFile scratch(folder, name);
  std::vector<unsigned char> buffer(std::size_t{1} << 18);
  for (;;) {
    wait_for_data(in.fd, stop);
    const ssize_t got = ::read(in.fd, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) fail(system_message(errno));
    if (got == 0) break;
    scratch.write(buffer.data(), static_cast<std::size_t>(got));
  }
  if (scratch.size() == 0) fail("nothing came out of it");
  return scratch.finish(name);
}

}  // namespace fp4scope
