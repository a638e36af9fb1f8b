// memory.cc: see memory.h.
#include "analysis/bench/memory.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "sim/error.h"
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace fp4scope {

BenchBuffer::BenchBuffer(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
  void* memory =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorKind::kData, "bench needs " + std::to_string(bytes) +
                                      " bytes of memory in one piece; give fewer --elements");
  }
  data_ = static_cast<unsigned char*>(memory);
  (void)::madvise(memory, bytes_, MADV_HUGEPAGE);
  std::memset(data_, 0, bytes_);
}
BenchBuffer::~BenchBuffer() {
  ::munmap(data_, bytes_);
}

namespace {

std::uint64_t read_words(const void* from, std::int64_t bytes) {
  const auto* words = static_cast<const std::uint64_t*>(from);
  std::uint64_t all[4] = {};
  for (std::int64_t i = 0; i < bytes / 8; i += 4) {
    for (int k = 0; k < 4; ++k) all[k] |= words[i + k];
  }
  return all[0] | all[1] | all[2] | all[3];
}

#ifdef __x86_64__
// As kernels do: the loads of one step and, ahead of them, the lines that come next. Without the
// second, one core waits for memory instead of being limited by it.
constexpr std::int64_t kAhead = 2048;

[[gnu::target("avx512f")]] std::uint64_t read_avx512(const void* from, std::int64_t bytes) {
  const auto* at = static_cast<const char*>(from);
  __m512i all[4] = {};
  for (const char* end = at + bytes; at < end; at += 256) {
    for (int k = 0; k < 4; ++k) {
      _mm_prefetch(at + kAhead + 64 * k, _MM_HINT_T0);
      all[k] = _mm512_or_si512(all[k], _mm512_loadu_si512(at + 64 * k));
    }
  }
  alignas(64) std::uint64_t words[8];
  _mm512_store_si512(
      words, _mm512_or_si512(_mm512_or_si512(all[0], all[1]), _mm512_or_si512(all[2], all[3])));
  std::uint64_t any = 0;
  for (const std::uint64_t word : words) any |= word;
  return any;
}
[[gnu::target("avx2")]] std::uint64_t read_avx2(const void* from, std::int64_t bytes) {
  const auto* at = static_cast<const char*>(from);
  __m256i all[4] = {};
  for (const char* end = at + bytes; at < end; at += 128) {
    for (int k = 0; k < 4; ++k) {
      if (k % 2 == 0) _mm_prefetch(at + kAhead + 32 * k, _MM_HINT_T0);
      all[k] = _mm256_or_si256(all[k],
                               _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32 * k)));
    }
  }
  alignas(32) std::uint64_t words[4];
  _mm256_store_si256(
      reinterpret_cast<__m256i*>(words),
      _mm256_or_si256(_mm256_or_si256(all[0], all[1]), _mm256_or_si256(all[2], all[3])));
  return words[0] | words[1] | words[2] | words[3];
}
[[gnu::target("avx512f")]] void stream_avx512(void* to, const void* from, std::int64_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* at = static_cast<const char*>(from);
  for (std::int64_t i = 0; i < bytes; i += 256) {
    for (int k = 0; k < 256; k += 64) {
      _mm_prefetch(at + i + kAhead + k, _MM_HINT_T0);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i + k), _mm512_loadu_si512(at + i + k));
    }
  }
  _mm_sfence();
}
[[gnu::target("avx2")]] void stream_avx2(void* to, const void* from, std::int64_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* at = static_cast<const char*>(from);
  for (std::int64_t i = 0; i < bytes; i += 128) {
    for (int k = 0; k < 128; k += 32) {
      if (k % 64 == 0) _mm_prefetch(at + i + kAhead + k, _MM_HINT_T0);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i + k),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + i + k)));
    }
  }
  _mm_sfence();
}
#endif

}  // namespace

std::uint64_t read_memory(const void* from, std::int64_t bytes) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return read_avx512(from, bytes);
  if (__builtin_cpu_supports("avx2")) return read_avx2(from, bytes);
#endif
  return read_words(from, bytes);
}
void stream_memory(void* to, const void* from, std::int64_t bytes) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return stream_avx512(to, from, bytes);
  if (__builtin_cpu_supports("avx2")) return stream_avx2(to, from, bytes);
#endif
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

InstructionCounter::InstructionCounter() {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
  attributes.disabled = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  fd_ = static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
}
InstructionCounter::~InstructionCounter() {
  if (fd_ >= 0) ::close(fd_);
}
void InstructionCounter::start() {
  if (fd_ < 0) return;
  ::ioctl(fd_, PERF_EVENT_IOC_RESET, 0);
  ::ioctl(fd_, PERF_EVENT_IOC_ENABLE, 0);
}
std::int64_t InstructionCounter::stop() {
  std::int64_t count = 0;
  if (fd_ < 0) return 0;
  ::ioctl(fd_, PERF_EVENT_IOC_DISABLE, 0);
  return ::read(fd_, &count, sizeof count) == sizeof count ? count : 0;
}

}  // namespace fp4scope
