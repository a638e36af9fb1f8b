// mmap.h: a regular file mapped read-only. Pages are given back to the page cache now and then, so
// that the resident size of the process stays small however large the file is. A page that cannot
// be read (a cut file, a failing disk) ends the read of one tensor, not the process.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace fp4scope {

class MappedFile {
 public:
  // Throws Error(kData) when the file is missing, unreadable, empty or not a regular file.
  explicit MappedFile(const std::string& path);
  // Takes over an open regular file; `path` is what messages call it. `is_own`: this program wrote
  // it and nobody else can write to it, so that the time of its last change says nothing.
  MappedFile(int fd, const std::string& path, bool is_own = false);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  const unsigned char* data() const { return data_; }
  std::string_view text(std::int64_t offset, std::int64_t bytes) const;

  // Throws Error(kData) when the size of the file or the time of its last change is no longer what
  // it was when it was opened, or when a page could not be read since. To be called before a read
  // and, as the access itself shows what the disk can still deliver, after it. Times are as exact
  // as the file system keeps them, some milliseconds on Linux, and compared with is_same_time()
  // (file_identity.h); writes through another mapping become known when the system sets the time.
  void check() const;
  // Counts bytes of pages that were touched; after every 128 MiB the resident pages are dropped
  // (they stay in the page cache). Thread-safe.
  void note_read(std::int64_t bytes) const;

 private:
  friend bool absorb_bus_error(void* address) noexcept;
  void map();
  [[noreturn]] void fail(const std::string& why);

  std::string path_;
  int fd_ = -1;
  bool is_own_ = false;
  std::int64_t size_ = 0;
  std::int64_t seconds_ = 0, nanoseconds_ = 0;  // time of the last change of the content
  const unsigned char* data_ = nullptr;
  mutable std::atomic<std::int64_t> touched_{0};
  mutable std::atomic<bool> unreadable_{false};
};

// For a SIGBUS handler in tools/: puts a page of zeros where a mapped file could not be read, and
// marks the file, so that check() throws. False when `address` lies in no mapped file.
// Async-signal- safe on Linux: mmap is a plain system call.
bool absorb_bus_error(void* address) noexcept;

}  // namespace fp4scope
