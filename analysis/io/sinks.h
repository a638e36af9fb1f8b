// sinks.h: files appear whole or not at all: everything is written to a temporary name beside the
// target, synced and renamed. A failed write (full disk) removes the temporary file and throws.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/io/tensor_source.h"

namespace fp4scope {

class AtomicFile {
 public:
  // Throws Error(kData) when it cannot be created. Temporary files that killed processes left for
  // the same target are removed.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // removes the temporary file if not committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, std::size_t bytes);  // throws Error(kData) naming the path
  void write_at(std::int64_t offset, const void* data, std::size_t bytes);
  void commit();  // flush, fsync, rename over the target, fsync the directory

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
// Removes the temporary files of all AtomicFiles that are open; async-signal-safe, for the handler
// of Ctrl-C in tools/.
void remove_unfinished_files() noexcept;

// safetensors with all shapes known in advance; data may arrive in any order and in pieces.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
  };
  SafetensorsWriter(const std::string& path, const std::vector<Entry>& entries,
                    const std::vector<std::pair<std::string, std::string>>& metadata);
  ~SafetensorsWriter();
  // Writes `bytes` of entry `index` starting at byte `offset` of its data.
  void write(std::size_t index, std::int64_t offset, const void* data, std::size_t bytes);
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fp4scope
