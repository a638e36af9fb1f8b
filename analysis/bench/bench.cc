// bench.cc: see bench.h.
#include "analysis/bench/bench.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>

#include "analysis/bench/memory.h"
#include "analysis/bench/work.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

using namespace bench;

double seconds_now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double median_of(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

// What the system can give without swapping; 0 where it does not say.
std::int64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:") return kibibytes * 1024;
  }
  return 0;
}

// Before a page of it is touched.
void check_memory(std::int64_t bytes) {
  const std::int64_t available = available_memory();
  if (available == 0 || bytes <= available) return;
  throw Error(ErrorKind::kData, "bench needs " + std::to_string(bytes) + " bytes of memory, " +
                                    std::to_string(available) +
                                    " are available; give fewer --elements");
}

void check(const BenchOptions& options) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorKind::kUsage, what); };
  if (options.elements < kCols * kTileRows || options.elements % (kCols * kTileRows) != 0) {
    refuse("--elements: expected a multiple of " + std::to_string(kCols * kTileRows) + ", found " +
           std::to_string(options.elements));
  }
  const auto check_names = [&](const char* option, const std::vector<std::string>& names,
                               const std::vector<std::string_view>& known, const char* list) {
    for (const std::string& name : names) {
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        refuse(std::string(option) + ": expected " + list + ", found " + printable(name));
      }
    }
  };
  // A file has whole rows, and at least one.
  if (options.analyze_bytes != 0 && options.analyze_bytes < 2 * kCols) {
    refuse("--analyze: expected 0 or at least " + std::to_string(2 * kCols) + " bytes, found " +
           std::to_string(options.analyze_bytes));
  }
  if (options.elements > kMostElements) {
    refuse("--elements: expected at most " + std::to_string(kMostElements) + ", found " +
           std::to_string(options.elements));
  }
  check_names("--dtype", options.dtypes, {"f32", "bf16", "f16"}, "f32, bf16 or f16");
  check_names("--mode", options.modes, {"stats", "pack", "fake", "all"},
              "stats, pack, fake or all");
  if (options.repeats < 1 || options.repeats > 100000) refuse("--repeat: expected 1 to 100000");
  if (options.threads.empty()) refuse("--threads: expected at least one number");
  for (const int threads : options.threads) {
    if (threads < 1 || threads > 1024) refuse("--threads: expected 1 to 1024");
  }
}

// A measurement with its repetitions.
struct Item {
  BenchRow row;
  const Work* work = nullptr;
  std::vector<double> times, instructions;
};
struct Bound {
  BenchBound row;
  std::vector<double> rates;
};

// Bytes moved.
double move_memory(const Bound& bound, Buffers& buffers, std::int64_t n) {
  const std::int64_t piece = 4 * n / bound.row.threads / 256 * 256;
#pragma omp parallel num_threads(bound.row.threads)
  {
    const std::int64_t at = piece * omp_get_thread_num();
    if (bound.row.name == "read") {
      volatile std::uint64_t all = read_memory(buffers.f32.data() + at, piece);
      (void)all;
    } else if (bound.row.name == "copy") {
      std::memcpy(buffers.values.data() + at, buffers.f32.data() + at,
                  static_cast<std::size_t>(piece));
    } else {
      stream_memory(buffers.values.data() + at, buffers.f32.data() + at, piece);
    }
  }
  return static_cast<double>(piece * bound.row.threads * (bound.row.name == "read" ? 1 : 2));
}

void measure_bounds(std::vector<Bound>& bounds, Buffers& buffers, std::int64_t n, bool counts) {
  for (Bound& bound : bounds) {
    const double begin = seconds_now();
    const double bytes = move_memory(bound, buffers, n);
    if (counts) bound.rates.push_back(bytes / (seconds_now() - begin));
  }
}

void measure(Item& item, Buffers& buffers, InstructionCounter& counter, bool counts) {
  counter.start();
  const double begin = seconds_now();
  item.work->run(buffers, item.row.threads);
  const double seconds = seconds_now() - begin;
  const std::int64_t instructions = counter.stop();
  if (!counts) return;
  item.times.push_back(seconds);
  // The counter sees the calling thread alone.
  if (counter.available() && item.row.threads == 1) {
    item.instructions.push_back(static_cast<double>(instructions) /
                                static_cast<double>(item.row.elements));
  }
}

void summarize(std::vector<Bound>& bounds, std::vector<Item>& items, BenchResult& result) {
  for (Bound& bound : bounds) {
    bound.row.bytes_per_second = median_of(bound.rates);
    bound.row.least = *std::min_element(bound.rates.begin(), bound.rates.end());
    bound.row.most = *std::max_element(bound.rates.begin(), bound.rates.end());
    result.bounds.push_back(bound.row);
  }
  for (Item& item : items) {
    item.row.seconds = median_of(item.times);
    item.row.least = *std::min_element(item.times.begin(), item.times.end());
    item.row.most = *std::max_element(item.times.begin(), item.times.end());
    for (const BenchBound& bound : result.bounds) {
      if (bound.name != item.row.bound || bound.threads != item.row.threads) continue;
      item.row.bound_bytes_per_second = bound.bytes_per_second;
      item.row.ratio = item.row.bytes / item.row.seconds / bound.bytes_per_second;
    }
    if (!item.instructions.empty()) {
      item.row.instructions_per_element = median_of(item.instructions);
    }
    result.rows.push_back(item.row);
  }
}

// How much faster the packed output of our recipes is than that of a peer of the same format.
void compare_with_peers(BenchResult& result) {
  for (const BenchRow& peer : result.rows) {
    if (peer.backend != "ggml") continue;
    const std::string format = peer.work.substr(peer.work.find(' ') + 1);
    for (const BenchRow& row : result.rows) {
      const bool same = row.work.starts_with(format) && row.dtype == peer.dtype &&
                        row.mode == peer.mode && row.threads == peer.threads;
      if (same)
        result.peers.push_back(
            {peer.work, row.work, row.backend, row.threads, peer.seconds / row.seconds});
    }
  }
}

}  // namespace

BenchResult run_bench(const BenchOptions& options) {
  check(options);
  const std::int64_t n = options.elements;
  std::vector<Work> works = kernel_works(options);
  for (const auto& more : {analyze_works(options), ggml_works(options)}) {
    works.insert(works.end(), more.begin(), more.end());
  }
  std::vector<Item> items;
  std::int64_t packed_bytes = 64, scale_bytes = 64;
  for (const Work& work : works) {
    packed_bytes = std::max(packed_bytes, work.packed_bytes);
    scale_bytes = std::max(scale_bytes, work.scale_bytes);
    for (const int threads : options.threads) {
      items.push_back({work.row, &work, {}, {}});
      items.back().row.threads = threads;
    }
  }
  std::vector<Bound> bounds;
  for (const int threads : options.threads) {
    for (const char* name : {"read", "copy", "stream"}) bounds.push_back({{name, threads}, {}});
  }
  check_memory(Buffers::bytes(n) + packed_bytes + scale_bytes);
  Buffers buffers(n, packed_bytes, scale_bytes);
  BenchResult result;
  result.processor = processor_name();
  result.elements = n;
  result.repeats = options.repeats;
  InstructionCounter counter;
  std::int64_t done = 0;
  const std::int64_t total = (options.repeats + 1) * std::ssize(items);
  // Once more than asked for, first, for what happens only once.
  for (int repeat = -1; repeat < options.repeats; ++repeat) {
    const bool counts = repeat >= 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      // Long lists take minutes, in which the machine may change.
      if (i % 32 == 0) measure_bounds(bounds, buffers, n, counts);
      if (options.stop != nullptr && *options.stop) {
        result.interrupted = true;
        return result;
      }
      measure(items[i], buffers, counter, counts);
      if (options.progress) options.progress(++done, total);
    }
  }
  summarize(bounds, items, result);
  compare_with_peers(result);
  return result;
}

}  // namespace fp4scope
