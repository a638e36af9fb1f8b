// resume.h: the journal of `analyze --resume`. What is finished of a long run over many tensors is
// kept beside the output, tensor by tensor, so that the same command goes on after a kill, a crash
// or a full disk and ends with the report that an uninterrupted run writes, byte for byte.
//
// A line that names the file, then frames: the length of the payload, its XXH3-64, the XXH3-64 of
// these sixteen bytes (little-endian, 8 bytes each) and the payload. The first payload holds the
// settings of the run, each other one a finished tensor. A frame that is cut short at the end was
// being written when the process ended; it is cut off.
#pragma once
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/finished_tensor.h"

namespace fp4scope {

// What decides the figures or the report, by name: a journal of other settings is refused with the
// names of those that differ.
using RunSettings = std::vector<std::pair<std::string, std::string>>;
// `program`: version and revision. Throws Error(kUsage) for recipes that no backend can do.
RunSettings run_settings(const std::string& program, const std::vector<std::string>& operands,
                         const AnalyzeOptions& options);

class ResumeJournal {
 public:
  // Called with one sentence for what a user must know and what does not end the run.
  using Notice = std::function<void(const std::string&)>;
  // Begins the journal, or goes on with the one of an earlier run. Throws Error(kUsage) when it
  // belongs to other settings, to another version or to a process that is running, or when the file
  // is no journal; Error(kData) when it cannot be read or written.
  ResumeJournal(std::string path, const RunSettings& settings, Notice notice);
  // Whether a file of that name is there that no run is working on.
  static bool is_left(const std::string& path);
  // The file stays, for the next run, if a tensor is in it.
  ~ResumeJournal();
  ResumeJournal(const ResumeJournal&) = delete;
  ResumeJournal& operator=(const ResumeJournal&) = delete;

  // What an earlier run found, if the file of the tensor still has the size and time of
  // modification that it had. `cells(recipe index)` bounds the maps. Damage is noticed, and the
  // tensor then is as good as not finished.
  std::optional<FinishedTensor> find(const TensorInfo& tensor, std::size_t recipes,
                                     const std::function<std::size_t(std::size_t)>& cells);
  // Keeps a tensor whose file has not changed since this journal was opened; of others (and of
  // pipes) nobody knows which bytes were read. Synced to the disk at most once a second. A journal
  // that cannot be written is noticed once; the run goes on without.
  void add(const TensorInfo& tensor, const FinishedTensor& finished);
  // The tensors in it.
  std::size_t size() const { return records_.size(); }
  const std::string& path() const { return path_; }
  // When every output is written.
  void remove();

 private:
  struct Place {
    std::int64_t offset, bytes;  // of a payload
  };
  struct Frame {
    // kCut: the file ends before it is whole. kLost: where it ends is unknown. kDamaged: the
    // payload is not what was written.
    enum State { kCut, kLost, kDamaged, kWhole };
    State state = kCut;
    Place place{0, 0};
    std::string payload;
  };
  void open_locked();
  void begin(const std::string& settings);
  void read_frames(const RunSettings& settings);
  Frame frame_at(std::int64_t at) const;
  void append(const std::string& frame);
  void sync();
  void give_up(int error_number);
  [[noreturn]] void fail(const std::string& why) const;
  void fail_if_other_settings(const RunSettings& then, const RunSettings& now) const;

  std::string path_;
  Notice notice_;
  int fd_ = -1;
  bool writable_ = true;
  bool unsynced_ = false;
  std::int64_t end_ = 0;  // of the last whole frame
  timespec started_{};
  std::chrono::steady_clock::time_point synced_ = std::chrono::steady_clock::now();
  std::unordered_map<std::string, Place> records_;  // by file, size, time, name, dtype and shape
};

}  // namespace fp4scope
