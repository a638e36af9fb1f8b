// memory.h: buffers for measurements, and loops that do nothing but move memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace fp4scope {

// Memory on huge pages where the system has them, written once. Throws Error(kData).
class BenchBuffer {
 public:
  explicit BenchBuffer(std::int64_t bytes);
  ~BenchBuffer();
  BenchBuffer(const BenchBuffer&) = delete;
  BenchBuffer& operator=(const BenchBuffer&) = delete;
  unsigned char* data() { return data_; }
  const unsigned char* data() const { return data_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  unsigned char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Both with the widest vectors of this processor; `bytes` is a multiple of 256.
std::uint64_t read_memory(const void* from, std::int64_t bytes);     // the OR of all words
void stream_memory(void* to, const void* from, std::int64_t bytes);  // non-temporal stores

// Instructions of the calling thread between start() and stop(), where the system counts them.
class InstructionCounter {
 public:
  InstructionCounter();
  ~InstructionCounter();
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;
  bool available() const { return fd_ >= 0; }
  void start();
  std::int64_t stop();

 private:
  int fd_ = -1;
};

}  // namespace fp4scope
