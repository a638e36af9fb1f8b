// resume.cc: see resume.h. POSIX.
#include "analysis/resume.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>

#include "analysis/io/message.h"
#include "analysis/io/posix_file.h"
#include "analysis/text_table.h"
#include "analysis/totals_record.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::string_view kAnyVersion = "fp4scope resume ";
constexpr std::string_view kMagic = "fp4scope resume 1\n";
constexpr std::int64_t kFrameHeader = 24;
constexpr auto kSyncEvery = std::chrono::seconds(1);

void put_u64(std::uint64_t value, std::string& out) {
  for (int i = 0; i < 8; ++i, value >>= 8) out += static_cast<char>(value & 0xFF);
}
std::uint64_t get_u64(std::string_view bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}
std::uint64_t hash_of(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string frame_of(const std::string& payload) {
  std::string frame;
  put_u64(payload.size(), frame);
  put_u64(hash_of(payload), frame);
  put_u64(hash_of(frame), frame);
  return frame + payload;
}

bool is_before(const timespec& a, const timespec& b) {
  return std::pair(a.tv_sec, a.tv_nsec) < std::pair(b.tv_sec, b.tv_nsec);
}

// What tells a tensor from every other one and from itself in a file that was written since; empty
// for what lies in no regular file.
std::string key_of(const TensorInfo& tensor, struct stat& status) {
  if (::stat(tensor.file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
  RecordWriter key;
  key.text(tensor.file);
  key.number(static_cast<std::uint64_t>(status.st_size));
  key.number(static_cast<std::uint64_t>(status.st_mtim.tv_sec));
  key.number(static_cast<std::uint64_t>(status.st_mtim.tv_nsec));
  // What replaced the file may have been given its times.
  key.number(static_cast<std::uint64_t>(status.st_dev));
  key.number(static_cast<std::uint64_t>(status.st_ino));
  key.text(tensor.name);
  key.text(shown_dtype(tensor));
  key.number(tensor.shape.size());
  for (const std::int64_t extent : tensor.shape) key.number(static_cast<std::uint64_t>(extent));
  return key.bytes();
}

std::string record_of(const std::string& key, const FinishedTensor& finished) {
  RecordWriter out;
  out.text(key);
  out.text(finished.hash);
  out.number(finished.totals.size());
  for (std::size_t i = 0; i < finished.totals.size(); ++i) {
    out.number(finished.recipe_index[i]);
    write_totals(finished.totals[i], out);
  }
  out.number(finished.errors.size());
  for (const ErrorRecord& error : finished.errors) {
    out.text(error.file);
    out.text(error.tensor);
    out.text(error.message);
    out.number(static_cast<std::uint64_t>(error.exit_code));
  }
  return out.bytes();
}

FinishedTensor read_record(const std::string& payload, std::size_t recipes,
                           const std::function<std::size_t(std::size_t)>& cells) {
  RecordReader in(payload);
  (void)in.text();  // the key
  FinishedTensor finished;
  finished.hash = in.text();
  const std::uint64_t results = in.number(recipes);
  for (std::size_t next = 0; finished.totals.size() < results;) {
    const auto index = static_cast<std::size_t>(in.number());
    if (index < next || index >= recipes) throw MalformedRecord();
    finished.recipe_index.push_back(index);
    finished.totals.push_back(read_totals(in, cells(index)));
    next = index + 1;
  }
  for (std::uint64_t left = in.number(recipes); left > 0; --left) {
    ErrorRecord error{in.text(), in.text(), in.text(), 0};
    error.exit_code = static_cast<int>(in.number(255));
    finished.errors.push_back(std::move(error));
  }
  in.expect_end();
  return finished;
}

std::string settings_text(const RunSettings& settings) {
  RecordWriter out;
  out.number(settings.size());
  for (const auto& [name, value] : settings) {
    out.text(name);
    out.text(value);
  }
  return out.bytes();
}

// Nothing for a payload that is something else.
std::optional<RunSettings> read_settings(const std::string& payload) {
  try {
    RecordReader in(payload);
    RunSettings settings;
    for (std::uint64_t left = in.number(payload.size()); left > 0; --left) {
      std::string name = in.text();
      settings.emplace_back(std::move(name), in.text());
    }
    in.expect_end();
    return settings;
  } catch (const MalformedRecord&) {
    return std::nullopt;
  }
}
std::optional<std::string> key_in(const std::string& payload) {
  try {
    return RecordReader(payload).text();
  } catch (const MalformedRecord&) {
    return std::nullopt;
  }
}

}  // namespace

void ResumeJournal::fail(const std::string& why) const {
  throw Error(ErrorKind::kData, fmt::format("--resume {}: {}", printable(path_), why));
}

ResumeJournal::ResumeJournal(std::string path, const RunSettings& settings, Notice notice)
    : path_(std::move(path)), notice_(std::move(notice)) {
  // The clock of the time stamps of files, which may be a few milliseconds behind the other one.
#ifdef CLOCK_REALTIME_COARSE
  ::clock_gettime(CLOCK_REALTIME_COARSE, &started_);
#else
  ::clock_gettime(CLOCK_REALTIME, &started_);
#endif
  try {
    open_locked();
    read_frames(settings);
    if (end_ == 0) begin(settings_text(settings));
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

ResumeJournal::~ResumeJournal() {
  if (fd_ < 0) return;
  if (records_.empty()) {
    remove();
    return;
  }
  sync();
  ::close(fd_);
}

bool ResumeJournal::is_left(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const bool is_held = try_lock(fd) == Lock::kHeldByOther;
  ::close(fd);
  return !is_held;
}

// The lock goes with the file, not with its name: the process that had it may have removed the name
// in the meantime.
void ResumeJournal::open_locked() {
  if (path_.find('\0') != std::string::npos) fail("the file name contains a NUL byte");
  for (;;) {
    // O_NONBLOCK: of a FIFO, which is refused.
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd_ < 0) fail(system_message(errno));
    struct stat status {};
    if (::fstat(fd_, &status) != 0) fail(system_message(errno));
    if (!S_ISREG(status.st_mode)) fail("it is no regular file");
    // A file system without locks is no reason to lose results.
    if (try_lock(fd_) == Lock::kHeldByOther) {
      fail("another process is working on this run; wait for it, or give another --out");
    }
    if (is_name_of(fd_, path_)) return;
    ::close(fd_);
  }
}

void ResumeJournal::begin(const std::string& settings) {
  const std::string text = std::string(kMagic) + frame_of(settings);
  if (::ftruncate(fd_, 0) != 0) fail(system_message(errno));
  if (const int error = write_at(fd_, 0, text); error != 0) {
    (void)::ftruncate(fd_, 0);
    fail("cannot write it: " + system_message(error));
  }
  end_ = std::ssize(text);
  (void)sync_file_data(fd_);
  sync_folder_of(path_);
}

void ResumeJournal::fail_if_other_settings(const RunSettings& then, const RunSettings& now) const {
  if (then == now) return;
  const auto value_of = [](const RunSettings& settings, const std::string& name) {
    const auto at = std::find_if(settings.begin(), settings.end(),
                                 [&](const auto& setting) { return setting.first == name; });
    return at == settings.end() ? std::string("nothing") : in_quotes(at->second);
  };
  std::vector<std::string> names, differences;
  for (const auto& [name, value] : now) names.push_back(name);
  for (const auto& [name, value] : then) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  for (const std::string& name : names) {
    const std::string before = value_of(then, name), after = value_of(now, name);
    if (before == after) continue;
    differences.push_back(fmt::format("{}: {} then, {} now", printable(name, 60), before, after));
  }
  // A damaged journal may hold any number of settings.
  constexpr std::size_t kMostShown = 5;
  if (differences.size() > kMostShown) {
    const std::size_t more = differences.size() - kMostShown;
    differences.resize(kMostShown);
    differences.push_back(fmt::format("and {} more", more));
  }
  // Long values are cut in a message, and may differ in what was cut.
  if (differences.empty()) differences.emplace_back("long lists of operands or options");
  throw Error(ErrorKind::kUsage,
              fmt::format("--resume: {} keeps a run with other settings ({}); give the settings of "
                          "then, delete the file, or run without --resume",
                          printable(path_), joined(differences, "; ")));
}

// Leaves end_ at 0 where nothing was begun.
void ResumeJournal::read_frames(const RunSettings& settings) {
  std::string magic(kMagic.size(), '\0');
  if (const int error = read_at(fd_, 0, magic); error != 0) fail(system_message(error));
  if (magic.size() < kMagic.size() && kMagic.starts_with(magic)) return;
  if (magic != kMagic) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("--resume: {} {}; delete the file, or run without --resume", printable(path_),
                    magic.starts_with(kAnyVersion) ? "was written by another version of fp4scope"
                                                   : "exists and is no journal of fp4scope"));
  }
  const auto damaged = [&](std::int64_t offset, const char* consequence) {
    notice_(fmt::format("{} is damaged at byte {}: {}", printable(path_), offset, consequence));
  };
  const std::int64_t first = std::ssize(kMagic);
  const Frame begun = frame_at(first);
  if (begun.state == Frame::kCut) return;
  const std::optional<RunSettings> then =
      begun.state == Frame::kWhole ? read_settings(begun.payload) : std::nullopt;
  if (!then) {
    damaged(first, "it is begun anew");
    return;
  }
  fail_if_other_settings(*then, settings);
  end_ = begun.place.offset + begun.place.bytes;
  for (;;) {
    const Frame frame = frame_at(end_);
    if (frame.state == Frame::kCut) break;
    if (frame.state == Frame::kLost) {
      damaged(end_, "what follows is computed again");
      break;
    }
    const std::optional<std::string> key =
        frame.state == Frame::kWhole ? key_in(frame.payload) : std::nullopt;
    if (key) {
      records_[*key] = frame.place;
    } else {
      damaged(end_, "one tensor is computed again");
    }
    end_ = frame.place.offset + frame.place.bytes;
  }
  if (::ftruncate(fd_, end_) != 0) fail(system_message(errno));
}

ResumeJournal::Frame ResumeJournal::frame_at(std::int64_t at) const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail(system_message(errno));
  std::string header(static_cast<std::size_t>(kFrameHeader), '\0');
  if (const int error = read_at(fd_, at, header); error != 0) fail(system_message(error));
  Frame frame;
  if (std::ssize(header) < kFrameHeader) return frame;
  const std::uint64_t bytes = get_u64(header, 0);
  if (get_u64(header, 16) != hash_of(std::string_view(header).substr(0, 16))) {
    frame.state = Frame::kLost;
    return frame;
  }
  const std::int64_t left = std::max<std::int64_t>(status.st_size - at - kFrameHeader, 0);
  if (bytes > static_cast<std::uint64_t>(left)) return frame;
  frame.place = {at + kFrameHeader, static_cast<std::int64_t>(bytes)};
  frame.payload.resize(static_cast<std::size_t>(bytes));
  if (const int error = read_at(fd_, frame.place.offset, frame.payload); error != 0) {
    fail(system_message(error));
  }
  if (std::ssize(frame.payload) == frame.place.bytes &&
      hash_of(frame.payload) == get_u64(header, 8)) {
    frame.state = Frame::kWhole;
  } else if (frame.place.bytes < left) {
    frame.state = Frame::kDamaged;
  }
  return frame;
}

std::optional<FinishedTensor> ResumeJournal::find(
    const TensorInfo& tensor, std::size_t recipes,
    const std::function<std::size_t(std::size_t)>& cells) {
  struct stat status {};
  const std::string key = key_of(tensor, status);
  const auto found = records_.find(key);
  if (key.empty() || found == records_.end()) return std::nullopt;
  const Place place = found->second;
  const std::int64_t start = place.offset - kFrameHeader;
  try {
    const Frame frame = frame_at(start);
    if (frame.state == Frame::kWhole) return read_record(frame.payload, recipes, cells);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData) throw;
  }
  records_.erase(found);
  notice_(fmt::format("{} is damaged at byte {}: {} is computed again", printable(path_), start,
                      printable(tensor.file + ":" + tensor.name)));
  return std::nullopt;
}

void ResumeJournal::add(const TensorInfo& tensor, const FinishedTensor& finished) {
  if (!writable_) return;
  struct stat status {};
  const std::string key = key_of(tensor, status);
  // The time of the last change is also that of a rename, which may have put the file there.
  if (key.empty() || !is_before(status.st_ctim, started_)) return;
  const std::string text = record_of(key, finished);
  const std::int64_t start = end_;
  append(frame_of(text));
  if (writable_) records_[key] = {start + kFrameHeader, std::ssize(text)};
}

void ResumeJournal::append(const std::string& frame) {
  if (const int error = write_at(fd_, end_, frame); error != 0) {
    // A part of a frame would only be cut off by the next run.
    (void)::ftruncate(fd_, end_);
    give_up(error);
    return;
  }
  end_ += std::ssize(frame);
  unsynced_ = true;
  if (std::chrono::steady_clock::now() - synced_ >= kSyncEvery) sync();
}

void ResumeJournal::sync() {
  if (!unsynced_) return;
  unsynced_ = false;
  if (const int error = sync_file_data(fd_); error != 0) give_up(error);
  synced_ = std::chrono::steady_clock::now();
}

void ResumeJournal::give_up(int error_number) {
  writable_ = false;
  notice_(
      fmt::format("cannot write {}: {}; the run goes on, but what it finishes from here on is "
                  "not kept for --resume",
                  printable(path_), system_message(error_number)));
}

void ResumeJournal::remove() {
  if (fd_ < 0) return;
  (void)::unlink(path_.c_str());
  sync_folder_of(path_);
  ::close(fd_);
  fd_ = -1;
}

}  // namespace fp4scope
