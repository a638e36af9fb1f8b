// scratch.cc: see scratch.h. POSIX, with O_TMPFILE where the file system has it.
#include "analysis/io/scratch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "analysis/io/message.h"
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
  throw Error(ErrorKind::kData,
              fmt::format("cannot unpack {} into a scratch file in {}: {} (TMPDIR names another "
                          "folder)",
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

std::shared_ptr<MappedFile> ScratchFile::finish(const std::string& path) {
  return std::make_shared<MappedFile>(std::exchange(fd_, -1), path);
}

bool is_stream(const std::string& path) {
  if (path == "-") return true;
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) &&
         !S_ISDIR(status.st_mode) && !S_ISBLK(status.st_mode);
}

std::shared_ptr<MappedFile> spool_stream(const std::string& path, const std::string& folder) {
  const bool standard_input = path == "-";
  const std::string name = standard_input ? "standard input" : path;
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::kData, fmt::format("cannot read {}: {}", printable(name), why));
  };
  if (standard_input && ::isatty(STDIN_FILENO) != 0) {
    fail("it is a terminal, expected a file or pipe");
  }
  const int fd = standard_input ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(system_message(errno));
  ScratchFile scratch(folder, name);
  std::vector<unsigned char> buffer(std::size_t{1} << 20);
  int error_number = 0;
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error_number = errno;
    if (got <= 0) break;
    try {
      scratch.write(buffer.data(), static_cast<std::size_t>(got));
    } catch (const Error&) {
      if (!standard_input) ::close(fd);
      throw;
    }
  }
  if (!standard_input) ::close(fd);
  if (error_number != 0) fail(system_message(error_number));
  if (scratch.size() == 0) fail("nothing came out of it");
  return scratch.finish(name);
}

}  // namespace fp4scope
