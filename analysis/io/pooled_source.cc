// pooled_source.cc: see pooled_source.h.
#include "analysis/io/pooled_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "analysis/io/file_identity.h"
#include "analysis/io/message.h"
#include "analysis/io/scratch.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

using Reader = std::shared_ptr<const TensorSource>;

bool same(const TensorInfo& a, const TensorInfo& b) {
  return a.name == b.name && a.file == b.file && a.dtype == b.dtype && a.shape == b.shape &&
         a.bytes == b.bytes;
}

}  // namespace

// The open readers, the one used last in front.
class SourcePool::State {
 public:
  State(OpenOptions options, std::size_t most) : options(std::move(options)), most_(most) {}

  const OpenOptions options;

  // The reader of `owner` if it is open.
  Reader find(const void* owner) {
    const std::lock_guard lock(mutex_);
    const auto found = at(owner);
    if (found == open_.end()) return nullptr;
    if (found != open_.begin()) std::rotate(open_.begin(), found, found + 1);
    return open_.front().reader;
  }
  // Keeps it, and lets go of those not used for longest. Readers in use live on until their read
  // ends.
  Reader keep(const void* owner, Reader reader) {
    std::deque<Open> closed;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    if (const auto found = at(owner); found != open_.end()) return found->reader;
    open_.push_front({owner, reader});
    while (open_.size() > most_) {
      closed.push_back(std::move(open_.back()));
      open_.pop_back();
    }
    return reader;
  }
  void forget(const void* owner) {
    Reader closed;
    const std::lock_guard lock(mutex_);
    const auto found = at(owner);
    if (found == open_.end()) return;
    closed = std::move(found->reader);
    open_.erase(found);
  }

 private:
  struct Open {
    const void* owner;
    Reader reader;
  };
  std::deque<Open>::iterator at(const void* owner) {
    return std::find_if(open_.begin(), open_.end(),
                        [&](const Open& open) { return open.owner == owner; });
  }

  const std::size_t most_;
  std::mutex mutex_;
  std::deque<Open> open_;
};

class PooledSource final : public TensorSource {
 public:
  PooledSource(std::string path, std::shared_ptr<SourcePool::State> pool)
      : path_(std::move(path)), pool_(std::move(pool)), identity_(identify_file(path_)) {
    const Reader reader = open_source(path_, pool_->options);
    info_ = reader->info();
    tensors_ = reader->tensors();
    metadata_ = reader->metadata();
    pool_->keep(this, reader);
  }
  ~PooledSource() override { pool_->forget(this); }

  const SourceInfo& info() const override { return info_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, float* out) const override {
    const Reader reader = open();
    reader->read_f32(theirs(*reader, tensor), row, rows, col, cols, out);
  }
  void read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, double* out) const override {
    const Reader reader = open();
    reader->read_f64(theirs(*reader, tensor), row, rows, col, cols, out);
  }
  void read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, void* out) const override {
    const Reader reader = open();
    reader->read_raw(theirs(*reader, tensor), row, rows, col, cols, out);
  }
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return metadata_;
  }

 private:
  Reader open() const {
    if (Reader reader = pool_->find(this)) return reader;
    // Other threads that want the same file wait; other files do not.
    const std::lock_guard lock(opening_);
    if (Reader reader = pool_->find(this)) return reader;
    if (!is_unchanged(identity_, identify_file(path_))) changed();
    Reader reader = open_source(path_, pool_->options);
    const auto& now = reader->tensors();
    if (!std::equal(now.begin(), now.end(), tensors_.begin(), tensors_.end(), same)) changed();
    return pool_->keep(this, std::move(reader));
  }
  [[noreturn]] void changed() const {
    throw Error(
        ErrorKind::kData,
        fmt::format("{} was changed, replaced or removed after its tensors were listed; run "
                    "again on files that stay as they are",
                    printable(path_)));
  }
  // The reader's own description of one of our tensors.
  const TensorInfo& theirs(const TensorSource& reader, const TensorInfo& tensor) const {
    const std::less<const TensorInfo*> before;
    const TensorInfo* const first = tensors_.data();
    if (tensors_.empty() || before(&tensor, first) || !before(&tensor, first + tensors_.size())) {
      return tensor;
    }
    return reader.tensors()[static_cast<std::size_t>(&tensor - first)];
  }

  std::string path_;
  std::shared_ptr<SourcePool::State> pool_;
  std::optional<FileIdentity> identity_;
  SourceInfo info_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  mutable std::mutex opening_;
};

SourcePool::SourcePool(OpenOptions options, std::size_t most)
    : state_(std::make_shared<State>(std::move(options), most)) {}
SourcePool::~SourcePool() = default;

std::unique_ptr<TensorSource> SourcePool::open(const std::string& path) {
  if (is_stream(path)) return open_source(path, state_->options);
  return std::make_unique<PooledSource>(path, state_);
}

}  // namespace fp4scope
