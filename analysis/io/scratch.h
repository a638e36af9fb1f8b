// scratch.h: bytes that have to be read more than once but lie in no file that can be mapped (a
// pipe, a compressed member of an archive) go into a file without a name, which disappears with its
// last descriptor, also when the process is killed.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "analysis/io/mmap.h"

namespace fp4scope {

class ScratchFile {
 public:
  // `folder` is where it lies, `what` is what messages call its content. Throws Error(kData).
  ScratchFile(std::string folder, std::string what);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  // Throws Error(kData): a full disk, with the folder and what to do.
  void write(const void* data, std::size_t bytes);
  std::int64_t size() const { return size_; }
  // For bytes that do not come in order: room for so many, all of which are then written. Throws as
  // write() does.
  void reserve(std::int64_t bytes);
  void write_at(std::int64_t offset, const void* data, std::size_t bytes);
  // The bytes written so far, at least one; `path` is what messages call the file.
  std::shared_ptr<MappedFile> finish(const std::string& path);

 private:
  [[noreturn]] void fail(int error_number) const;
  std::string folder_, what_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

// Whether a file of `bytes` that only saves time may lie in `folder`: it takes at most half of what
// is free there once `given_back` bytes are, and at most 256 MiB where files lie in memory (tmpfs).
bool has_scratch_room(const std::string& folder, std::int64_t bytes, std::int64_t given_back);
// Everything that comes out of a FIFO, pipe or socket ("-": standard input) until it ends; it waits
// for a writer as long as none comes. A regular file behind "-" is mapped as it is. Throws
// Error(kData) for terminals and devices, when nothing comes, when the folder is full, and
// "interrupted" soon after `stop` is set (null: never).
std::shared_ptr<MappedFile> spool_stream(const std::string& path, const std::string& folder,
                                         const std::atomic<bool>* stop);
// Whether `path` is "-" or something that can be read only once: not a second time to look at it.
bool is_stream(const std::string& path);

}  // namespace fp4scope
