// sinks.cc: AtomicFile. The temporary file lies beside the target, so that the final rename stays
// inside one file system. Open temporary files are listed in a fixed table that a signal handler
// can walk.
#include "analysis/io/sinks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "analysis/io/message.h"
#include "analysis/io/posix_file.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

namespace fs = std::filesystem;

// One unfinished file. `state` guards `path`: only kListed entries are looked at by the handler.
struct Slot {
  static constexpr int kFree = 0, kFilling = 1, kListed = 2;
  std::atomic<int> state{kFree};
  std::array<char, 4096> path{};
};
static_assert(std::atomic<int>::is_always_lock_free);
std::array<Slot, 64> g_slots;

Slot* list_unfinished(const std::string& path) {
  for (Slot& slot : g_slots) {
    int expected = Slot::kFree;
    if (path.size() < slot.path.size() &&
        slot.state.compare_exchange_strong(expected, Slot::kFilling)) {
      std::memcpy(slot.path.data(), path.c_str(), path.size() + 1);
      slot.state.store(Slot::kListed);
      return &slot;
    }
  }
  return nullptr;
}

// Whether `name` is one that a temporary file of `stem` has: STEM.PROCESS-NUMBER.tmp.
bool is_temporary_of(const std::string& stem, std::string_view name) {
  const std::string start = stem + ".";
  constexpr std::string_view kEnd = ".tmp";
  if (!name.starts_with(start) || !name.ends_with(kEnd)) return false;
  name.remove_prefix(start.size());
  if (name.size() <= kEnd.size()) return false;
  name.remove_suffix(kEnd.size());
  const std::size_t dash = name.find('-');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return dash != std::string_view::npos && is_number(name.substr(0, dash)) &&
         is_number(name.substr(dash + 1));
}

// A killed process leaves its temporary file, the next writer of the same target removes it: nobody
// holds its lock any more. Process ids would not tell, on a shared disk or in a container.
void remove_stale_files(const fs::path& folder, const std::string& stem) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (!is_temporary_of(stem, entries->path().filename().string())) continue;
    const int fd = ::open(entries->path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    struct stat status {};
    if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && try_lock(fd) == Lock::kTaken) {
      ::unlink(entries->path().c_str());
    }
    ::close(fd);
  }
}

// The lock lasts as long as the file is open. False when another process took the file for stale in
// the moment between its creation and its lock.
bool lock_new_file(int fd, const std::string& path) {
  const Lock lock = try_lock(fd);
  // Without locks on this file system nobody removes anything.
  return lock == Lock::kNone || (lock == Lock::kTaken && is_name_of(fd, path));
}

[[noreturn]] void fail(const std::string& target, const std::string& why) {
  throw Error(ErrorKind::kData, fmt::format("cannot write {}: {}", printable(target), why));
}

}  // namespace

void remove_unfinished_files() noexcept {
  const int saved = errno;
  for (Slot& slot : g_slots) {
    if (slot.state.load() == Slot::kListed) (void)::unlink(slot.path.data());
  }
  errno = saved;
}

struct AtomicFile::Impl {
  std::string target;     // as given, for messages
  std::string path;       // where the file goes: absolute, a symbolic link followed
  std::string temporary;  // beside it
  int fd = -1;
  Slot* slot = nullptr;
  std::int64_t position = 0;  // of write()
  std::atomic<bool> failed{false};

  ~Impl() { discard(); }
  void discard() {
    if (fd >= 0) ::close(fd);
    fd = -1;
    if (!temporary.empty()) ::unlink(temporary.c_str());
    temporary.clear();
    release();
  }
  void release() {
    if (slot != nullptr) slot->state.store(Slot::kFree);
    slot = nullptr;
  }
  [[noreturn]] void give_up(int error_number) {
    discard();
    fail(target, system_message(error_number));
  }
};

AtomicFile::AtomicFile(const std::string& path) : impl_(std::make_unique<Impl>()) {
  Impl& file = *impl_;
  file.target = path;
  if (path.empty()) fail("the output", "the file name is empty");
  if (path.find('\0') != std::string::npos) fail(path, "the file name contains a NUL byte");
  struct stat status {};
  mode_t mode = 0666;
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists) {
    if (S_ISDIR(status.st_mode)) fail(path, "it is a directory, expected a file name");
    if (!S_ISREG(status.st_mode)) {
      fail(path, "it is a pipe, socket or device, expected a regular file or a new name");
    }
    // A rename would replace a write-protected file without asking.
    if (::access(path.c_str(), W_OK) != 0) fail(path, system_message(errno));
    mode = status.st_mode & 07777;
  } else if (errno != ENOENT) {
    fail(path, system_message(errno));
  }
  std::error_code error;
  fs::path resolved = exists ? fs::canonical(path, error) : fs::absolute(path, error);
  if (error) fail(path, error.message());
  file.path = resolved.string();
  const fs::path folder = resolved.parent_path();
  if (resolved.filename().empty() || !fs::is_directory(folder, error)) {
    fail(path, fmt::format("there is no directory {}", printable(folder.string())));
  }
  static std::atomic<unsigned> counter{0};
  constexpr std::size_t kLongestStem = 200;  // leaves room for the ending within 255 bytes
  const std::string stem = resolved.filename().string().substr(0, kLongestStem);
  remove_stale_files(folder, stem);
  constexpr int kAttempts = 100;  // names in use, as by a process of the same id elsewhere
  for (int attempt = 0; file.fd < 0; ++attempt) {
    const std::string name = fmt::format("{}.{}-{}.tmp", stem, ::getpid(), counter++);
    const std::string temporary = (folder / name).string();
    file.fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0666);
    if (file.fd >= 0 && lock_new_file(file.fd, temporary)) {
      file.temporary = temporary;
    } else if (file.fd >= 0 && attempt < kAttempts) {
      ::close(std::exchange(file.fd, -1));
    } else if (errno != EEXIST || attempt == kAttempts) {
      fail(path, system_message(errno));
    }
  }
  file.slot = list_unfinished(file.temporary);
  if (file.slot == nullptr) {
    file.discard();
    fail(path, "too many output files are open");
  }
  if (exists) (void)::fchmod(file.fd, mode);  // keep the permissions of a replaced file
}

AtomicFile::~AtomicFile() = default;

void AtomicFile::write(const void* data, std::size_t bytes) {
  write_at(impl_->position, data, bytes);
  impl_->position += static_cast<std::int64_t>(bytes);
}

void AtomicFile::write_at(std::int64_t offset, const void* data, std::size_t bytes) {
  Impl& file = *impl_;
  if (file.fd < 0 || file.failed) fail(file.target, "an earlier write failed, or it is committed");
  const std::string_view text(static_cast<const char*>(data), bytes);
  if (const int error = fp4scope::write_at(file.fd, offset, text); error != 0) {
    // The descriptor stays open until the object goes: other threads may be writing.
    if (!file.failed.exchange(true)) ::unlink(file.temporary.c_str());
    fail(file.target, system_message(error));
  }
}

void AtomicFile::commit() {
  Impl& file = *impl_;
  if (file.fd < 0 || file.failed) fail(file.target, "an earlier write failed, or it is committed");
  if (const int error = sync_file(file.fd); error != 0) file.give_up(error);
  const int fd = file.fd;
  file.fd = -1;
  // Interrupted, it is closed all the same.
  if (::close(fd) != 0 && errno != EINTR) file.give_up(errno);
  if (::rename(file.temporary.c_str(), file.path.c_str()) != 0) file.give_up(errno);
  file.temporary.clear();
  file.release();
  sync_folder_of(file.path);
}

}  // namespace fp4scope
