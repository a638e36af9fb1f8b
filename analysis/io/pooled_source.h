// pooled_source.h: more files than a process may have open. Each is listed once; its reader is
// closed when others are needed and opened again when the file's turn comes.
#pragma once
#include <memory>
#include <string>

#include "analysis/io/tensor_source.h"

namespace fp4scope {

class SourcePool {
 public:
  // At most `most` readers, 1 or more, stay open between reads.
  explicit SourcePool(OpenOptions options = {}, std::size_t most = 24);
  ~SourcePool();
  SourcePool(const SourcePool&) = delete;
  SourcePool& operator=(const SourcePool&) = delete;

  // As open_source(), whose errors it throws. Reads of what it returns are thread-safe, also beside
  // those of others of the pool, and may outlive the pool. A read throws Error(kData) when the
  // file had to be opened again and is no longer what was listed. Streams stay open: they cannot be
  // read again.
  std::unique_ptr<TensorSource> open(const std::string& path);

 private:
  friend class PooledSource;
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace fp4scope
