// mmap.cc: see mmap.h. POSIX only.
#include "analysis/io/mmap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "analysis/io/file_identity.h"
#include "analysis/io/message.h"
#include "sim/error.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FP4SCOPE_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define FP4SCOPE_ADDRESS_SANITIZER
#endif
#ifdef FP4SCOPE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace fp4scope {
namespace {

// In sanitizer builds, reads between the end of the file and the end of its last page are errors,
// which the hardware does not see.
#ifdef FP4SCOPE_ADDRESS_SANITIZER
std::size_t rest_of_page(std::int64_t size) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (page - static_cast<std::size_t>(size) % page) % page;
}
void forbid_tail(const unsigned char* data, std::int64_t size) {
  __asan_poison_memory_region(data + size, rest_of_page(size));
}
void allow_tail(const unsigned char* data, std::int64_t size) {
  __asan_unpoison_memory_region(data, static_cast<std::size_t>(size) + rest_of_page(size));
}
#else
void forbid_tail(const unsigned char* /*data*/, std::int64_t /*size*/) {}
void allow_tail(const unsigned char* /*data*/, std::int64_t /*size*/) {}
#endif

constexpr std::int64_t kDropAfterBytes = std::int64_t{128} << 20;

// Open mappings, for mapped_file_at(). A set of more shards than slots only loses the name.
constexpr std::size_t kSlots = 4096;
std::atomic<const MappedFile*> open_mappings[kSlots];

void remember(const MappedFile* file) {
  for (auto& slot : open_mappings) {
    const MappedFile* expected = nullptr;
    if (slot.compare_exchange_strong(expected, file)) return;
  }
}
void forget(const MappedFile* file) {
  for (auto& slot : open_mappings) {
    const MappedFile* expected = file;
    if (slot.compare_exchange_strong(expected, nullptr)) return;
  }
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  if (path.find('\0') != std::string::npos) fail("the file name contains a NUL byte");
  // O_NONBLOCK: opening a FIFO without a writer would otherwise wait for one.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail(system_message(errno));
  map();
}

MappedFile::MappedFile(int fd, const std::string& path, bool is_own)
    : path_(path), fd_(fd), is_own_(is_own) {
  map();
}

void MappedFile::fail(const std::string& why) {
  if (fd_ >= 0) ::close(fd_);
  throw Error(ErrorKind::kData, fmt::format("cannot read {}: {}", printable(path_), why));
}

void MappedFile::map() {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail(system_message(errno));
  if (S_ISDIR(status.st_mode)) fail("it is a directory, expected a file");
  if (!S_ISREG(status.st_mode)) fail("it is a pipe, socket or device, expected a regular file");
  if (status.st_size == 0) fail("the file is empty");
  size_ = status.st_size;
  seconds_ = status.st_mtim.tv_sec;
  nanoseconds_ = status.st_mtim.tv_nsec;
  void* map = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_PRIVATE, fd_, 0);
  if (map == MAP_FAILED) fail("cannot map the file: " + system_message(errno));
  data_ = static_cast<const unsigned char*>(map);
  forbid_tail(data_, size_);
  // Tiles are read front to back; a failing hint changes nothing but speed.
  (void)::madvise(map, static_cast<std::size_t>(size_), MADV_SEQUENTIAL);
  remember(this);
}

MappedFile::~MappedFile() {
  forget(this);
  if (data_ != nullptr) {
    allow_tail(data_, size_);
    ::munmap(const_cast<unsigned char*>(data_), static_cast<std::size_t>(size_));
  }
  if (fd_ >= 0) ::close(fd_);
}

std::string_view MappedFile::text(std::int64_t offset, std::int64_t bytes) const {
  return {reinterpret_cast<const char*>(data_) + offset, static_cast<std::size_t>(bytes)};
}

void MappedFile::check() const {
  if (unreadable_.load()) {
    throw Error(ErrorKind::kData, fmt::format("{} was cut short or could not be read while it was "
                                              "being read",
                                              printable(path_)));
  }
  struct stat status {};
  if (::fstat(fd_, &status) != 0) {
    throw Error(ErrorKind::kData,
                fmt::format("cannot read {}: {}", printable(path_), system_message(errno)));
  }
  if (status.st_size < size_) {
    throw Error(ErrorKind::kData,
                fmt::format("{} was cut from {} to {} bytes while it was being read",
                            printable(path_), size_, status.st_size));
  }
  // Not the time of status changes: a file that is renamed or deleted can be read to its end.
  const bool has_time = is_own_ || is_same_time(seconds_, nanoseconds_, status.st_mtim.tv_sec,
                                                status.st_mtim.tv_nsec);
  if (status.st_size != size_ || !has_time) {
    throw Error(ErrorKind::kData, fmt::format("{} was written to or touched while it was being "
                                              "read; run again when nobody does that",
                                              printable(path_)));
  }
}

void MappedFile::note_read(std::int64_t bytes) const {
  const std::int64_t before = touched_.fetch_add(bytes, std::memory_order_relaxed);
  if (before / kDropAfterBytes == (before + bytes) / kDropAfterBytes) return;
  // The mapping is clean, so this loses nothing: another thread that is reading faults the page in
  // again.
  (void)::madvise(const_cast<unsigned char*>(data_), static_cast<std::size_t>(size_),
                  MADV_DONTNEED);
}

bool absorb_bus_error(void* address) noexcept {
  const auto* byte = static_cast<const unsigned char*>(address);
  for (const auto& slot : open_mappings) {
    const MappedFile* file = slot.load();
    if (file == nullptr || byte < file->data() || byte - file->data() >= file->size()) continue;
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the start of the page of an address.
    void* start = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) / page * page);
    file->unreadable_.store(true);
    return ::mmap(start, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
           MAP_FAILED;
  }
  return false;
}

}  // namespace fp4scope
