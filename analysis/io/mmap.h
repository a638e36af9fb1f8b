// mmap.h: a regular file mapped read-only. Pages are given back to the page cache now and then, so
// that the resident size of the process stays small however large the file is.
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
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  const unsigned char* data() const { return data_; }
  std::string_view text(std::int64_t offset, std::int64_t bytes) const;

  // Throws Error(kData) when the file is now shorter than when it was opened. Best effort: a file
  // that is cut between this check and the access raises SIGBUS, as does an I/O error of the disk;
  // mapped_file_at() tells a handler which file it was.
  void check_length() const;
  // Counts bytes of pages that were touched; after every 128 MiB the resident pages are dropped
  // (they stay in the page cache). Thread-safe.
  void note_read(std::int64_t bytes) const;

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
  const unsigned char* data_ = nullptr;
  mutable std::atomic<std::int64_t> touched_{0};
};

// The path of the mapped file that holds `address`, or nullptr. Async-signal-safe, for a SIGBUS
// handler in tools/: the error of a file that is cut while it is mapped.
const char* mapped_file_at(const void* address) noexcept;

}  // namespace fp4scope
