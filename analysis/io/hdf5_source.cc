// hdf5_source.cc: see hdf5_source.h. Datasets are listed once; rectangles come piece by piece
// through the window of Hdf5Process.
#include "analysis/io/hdf5_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_map>

#include "analysis/io/byte_order.h"
#include "analysis/io/hdf5_process.h"
#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "analysis/io/scratch.h"
#include "analysis/io/widen.h"

namespace fp4scope {
namespace {

// What reads of a dataset may unpack beyond its size and what they give, before it is unpacked into
// a scratch file instead: reading along another axis, or in bands of chunks larger than the cache,
// would otherwise unpack every chunk again and again.
constexpr std::int64_t kMostWaste = std::int64_t{64} << 20;

struct Rect {
  std::int64_t row, rows, col, cols;
};

class Hdf5Source final : public TensorSource {
 public:
  Hdf5Source(const std::string& path, const std::shared_ptr<MappedFile>& file,
             const OpenOptions& options);

  const SourceInfo& info() const override { return info_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, float* out) const override;
  void read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, double* out) const override;
  void read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, void* out) const override;
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return metadata_;
  }

 private:
  // A dataset with `shape` cut into the tensor's and the array type's part.
  struct Stored {
    Hdf5Dataset dataset;
    std::int64_t row_length = 1;  // of the dataset: its last dimension
    std::int64_t inner_rows = 1;  // rows of the tensor in one element of the dataset
    std::int64_t inner = 1;       // elements of the tensor in one element of the dataset
  };
  // `count` elements in little-endian order, at row `row` and column `col` of the rectangle.
  using Sink = std::function<void(std::int64_t row, std::int64_t col, std::int64_t count,
                                  const unsigned char* elements)>;

  std::size_t index_of(const TensorInfo& tensor) const;
  void read(std::size_t index, const Rect& rect, const Sink& sink) const;
  Hdf5Work read_plain(const Stored& stored, const Rect& rect, const Sink& sink) const;
  void read_arrays(const Stored& stored, const Rect& rect, const Sink& sink) const;
  Hdf5Work fetch(const Stored& stored, const Rect& rect,
                 const std::function<void(const unsigned char*)>& use) const;
  // A dataset in a scratch file, row-major and little-endian.
  struct Copy {
    std::int64_t wasted = 0;  // bytes unpacked beyond those that reads gave
    bool refused = false;
    std::shared_ptr<const MappedFile> bytes;
  };
  std::shared_ptr<const MappedFile> copy_of(std::size_t index) const;
  void read_copy(std::size_t index, const MappedFile& copy, const Rect& rect,
                 const Sink& sink) const;
  void count_waste(std::size_t index, const Hdf5Work& work, std::int64_t given) const;
  std::shared_ptr<const MappedFile> unpack(std::size_t index, std::int64_t columns) const;

  SourceInfo info_;
  std::shared_ptr<MappedFile> file_;
  std::unique_ptr<Hdf5Process> library_;
  std::vector<TensorInfo> tensors_;
  std::vector<Stored> stored_;                                 // parallel to tensors_
  std::unordered_map<std::string, std::size_t> index_;         // by name
  std::vector<std::pair<std::string, std::string>> metadata_;  // empty
  const OpenOptions options_;
  mutable std::mutex copies_mutex_;
  mutable std::unordered_map<std::size_t, Copy> copies_;  // by index; one of them has bytes
  mutable std::mutex crashes_mutex_;
  mutable std::unordered_map<std::size_t, std::string> crashes_;  // by index: the sentence
};

ErrorKind kind_of(Hdf5Status refusal) {
  return refusal == Hdf5Status::kUnsupported ? ErrorKind::kUnsupported : ErrorKind::kData;
}

Hdf5Source::Hdf5Source(const std::string& path, const std::shared_ptr<MappedFile>& file,
                       const OpenOptions& options)
    : info_{path, "hdf5", file->size()},
      file_(file),
      library_(std::make_unique<Hdf5Process>(file, options.stop)),
      options_(options) {
  for (Hdf5Dataset& dataset : library_->list()) {
    TensorInfo tensor;
    tensor.name = dataset.name;
    tensor.dtype = dataset.dtype;
    tensor.dtype_text = dataset.dtype_text;
    tensor.known_dtype = dataset.known_dtype;
    if (dataset.refusal != Hdf5Status::kOk && !dataset.known_dtype) {
      tensor.damage = dataset.reason;
      tensor.damage_kind = kind_of(dataset.refusal);
    }
    tensor.shape = dataset.shape;
    tensor.elements = checked_product(dataset.shape).value_or(0);
    tensor.bytes = tensor.elements * dataset.bytes;
    tensor.file = path;

    Stored stored;
    const std::size_t own = dataset.shape.size() - static_cast<std::size_t>(dataset.array_rank);
    if (own > 0) stored.row_length = dataset.shape[own - 1];
    for (std::size_t d = own; d < dataset.shape.size(); ++d) {
      if (d + 1 < dataset.shape.size()) stored.inner_rows *= dataset.shape[d];
      stored.inner *= dataset.shape[d];
    }
    stored.dataset = std::move(dataset);
    index_.emplace(tensor.name, tensors_.size());
    tensors_.push_back(std::move(tensor));
    stored_.push_back(std::move(stored));
  }
}

std::size_t Hdf5Source::index_of(const TensorInfo& tensor) const {
  const std::less<const TensorInfo*> before;
  if (!tensors_.empty() && !before(&tensor, tensors_.data()) &&
      before(&tensor, tensors_.data() + tensors_.size())) {
    return static_cast<std::size_t>(&tensor - tensors_.data());
  }
  const auto found = index_.find(tensor.name);
  if (found == index_.end()) {
    throw Error(ErrorKind::kData, fmt::format("{} holds no tensor {}", printable(info_.path),
                                              in_quotes(tensor.name)));
  }
  return found->second;
}

Hdf5Work Hdf5Source::fetch(const Stored& stored, const Rect& rect,
                           const std::function<void(const unsigned char*)>& use) const {
  const std::int64_t elements = rect.rows * rect.cols * stored.inner;
  Hdf5Request request;
  request.row = rect.row;
  request.rows = rect.rows;
  request.col = rect.col;
  request.cols = rect.cols;
  return library_->read(stored.dataset.name, request, elements * stored.dataset.bytes,
                        [&](unsigned char* data) {
                          swap_bytes(data, elements, stored.dataset.swapped);
                          use(data);
                        });
}

Hdf5Work Hdf5Source::read_plain(const Stored& stored, const Rect& rect, const Sink& sink) const {
  Hdf5Work work;
  const std::int64_t fits = kHdf5Window / stored.dataset.bytes;
  const std::int64_t cols_at_once = std::min(rect.cols, fits);
  const std::int64_t rows_at_once = cols_at_once < rect.cols ? 1 : fits / rect.cols;
  for (std::int64_t r = 0; r < rect.rows; r += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, rect.rows - r);
    for (std::int64_t c = 0; c < rect.cols; c += cols_at_once) {
      const std::int64_t cols = std::min(cols_at_once, rect.cols - c);
      const Hdf5Work now = fetch(stored, {rect.row + r, rows, rect.col + c, cols},
                                 [&](const unsigned char* data) { sink(r, c, rows * cols, data); });
      work.unpacked += now.unpacked;
      work.columns = now.columns;
    }
  }
  return work;
}

std::shared_ptr<const MappedFile> Hdf5Source::copy_of(std::size_t index) const {
  const std::lock_guard lock(copies_mutex_);
  const auto found = copies_.find(index);
  return found == copies_.end() ? nullptr : found->second.bytes;
}

void Hdf5Source::read_copy(std::size_t index, const MappedFile& copy, const Rect& rect,
                           const Sink& sink) const {
  const std::int64_t bytes = stored_[index].dataset.bytes, cols = tensors_[index].cols();
  copy.check();
  for (std::int64_t r = 0; r < rect.rows; ++r) {
    sink(r, 0, rect.cols, copy.data() + ((rect.row + r) * cols + rect.col) * bytes);
  }
  copy.note_read(rect.rows * std::min(rect.cols * bytes + 4096, cols * bytes));
  copy.check();
}

void Hdf5Source::count_waste(std::size_t index, const Hdf5Work& work, std::int64_t given) const {
  // Whoever else wants to read waits for the copy.
  const std::lock_guard lock(copies_mutex_);
  Copy& copy = copies_[index];
  copy.wasted = std::max<std::int64_t>(copy.wasted + work.unpacked - given, 0);
  const bool is_due = copy.wasted - kMostWaste > tensors_[index].bytes;
  if (!is_due || copy.refused || copy.bytes || work.columns == 0) return;
  std::int64_t given_back = 0;
  for (const auto& [other, old] : copies_) given_back += old.bytes ? old.bytes->size() : 0;
  if (!has_scratch_room(options_.scratch_folder, tensors_[index].bytes, given_back)) {
    copy.refused = true;  // it goes on as slowly as before, and the other copy stays
    return;
  }
  for (auto& [other, old] : copies_) old.bytes.reset();
  copy.wasted = 0;
  try {
    copy.bytes = unpack(index, work.columns);
  } catch (const Hdf5Crash&) {
    throw;
  } catch (const Error&) {
    if (options_.stop != nullptr && *options_.stop) throw;
    copy.refused = true;
  }
}

std::shared_ptr<const MappedFile> Hdf5Source::unpack(std::size_t index,
                                                     std::int64_t columns) const {
  const TensorInfo& tensor = tensors_[index];
  const std::int64_t bytes = stored_[index].dataset.bytes, cols = tensor.cols();
  const std::string name =
      fmt::format("tensor {} of {}", in_quotes(tensor.name), printable(tensor.file));
  ScratchFile scratch(options_.scratch_folder, name);
  scratch.reserve(tensor.bytes);
  for (std::int64_t first = 0; first < cols; first += columns) {
    const std::int64_t width = std::min(columns, cols - first);
    const auto write = [&](std::int64_t row, std::int64_t col, std::int64_t count,
                           const unsigned char* elements) {
      // Whole rows of the rectangle, or a piece of one.
      const std::int64_t run = std::min(count, width == cols ? count : width);
      for (std::int64_t done = 0; done < count; done += run, ++row) {
        scratch.write_at((row * cols + first + col) * bytes, elements + done * bytes,
                         static_cast<std::size_t>(run * bytes));
      }
    };
    read_plain(stored_[index], {0, tensor.rows(), first, width}, write);
  }
  return scratch.finish(name);
}

// Whole elements of the dataset, each of which holds rows of the tensor.
void Hdf5Source::read_arrays(const Stored& stored, const Rect& rect, const Sink& sink) const {
  const std::int64_t bytes = stored.dataset.bytes, cols = stored.dataset.shape.back();
  const std::int64_t fits = std::max<std::int64_t>(kHdf5Window / (stored.inner * bytes), 1);
  const std::int64_t end = (rect.row + rect.rows - 1) / stored.inner_rows + 1;
  for (std::int64_t element = rect.row / stored.inner_rows; element < end;) {
    const std::int64_t at = element % stored.row_length;
    const std::int64_t count = std::min({stored.row_length - at, end - element, fits});
    fetch(stored, {element / stored.row_length, 1, at, count}, [&](const unsigned char* data) {
      const std::int64_t first = element * stored.inner_rows;
      const std::int64_t from = std::max(first, rect.row);
      const std::int64_t to = std::min(first + count * stored.inner_rows, rect.row + rect.rows);
      for (std::int64_t row = from; row < to; ++row) {
        sink(row - rect.row, 0, rect.cols, data + ((row - first) * cols + rect.col) * bytes);
      }
    });
    element += count;
  }
}

void Hdf5Source::read(std::size_t index, const Rect& rect, const Sink& sink) const {
  const TensorInfo& tensor = tensors_[index];
  const Stored& stored = stored_[index];
  const Hdf5Dataset& dataset = stored.dataset;
  if (dataset.refusal != Hdf5Status::kOk) {
    throw Error(kind_of(dataset.refusal),
                fmt::format("{}: tensor {} {}", printable(tensor.file), in_quotes(tensor.name),
                            printable(dataset.reason)));
  }
  if (dataset.bytes == 0) {
    throw Error(
        ErrorKind::kUnsupported,
        fmt::format("{}: tensor {} has the dtype {}, which cannot be read", printable(tensor.file),
                    in_quotes(tensor.name), in_quotes(tensor.dtype_text)));
  }
  check_rectangle(tensor, rect.row, rect.rows, rect.col, rect.cols);
  file_->check();
  {
    const std::lock_guard lock(crashes_mutex_);
    if (const auto crash = crashes_.find(index); crash != crashes_.end()) {
      throw Error(ErrorKind::kData, crash->second);
    }
  }
  if (rect.rows == 0 || rect.cols == 0) return;
  try {
    if (dataset.array_rank > 0) {
      read_arrays(stored, rect, sink);
    } else if (const auto copy = copy_of(index)) {
      read_copy(index, *copy, rect, sink);
    } else {
      const Hdf5Work work = read_plain(stored, rect, sink);
      count_waste(index, work, rect.rows * rect.cols * dataset.bytes);
    }
  } catch (const Hdf5Crash& crash) {
    const std::lock_guard lock(crashes_mutex_);
    crashes_.emplace(index, crash.what());
    throw;
  }
  file_->check();
}

void Hdf5Source::read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                          std::int64_t col, std::int64_t cols, void* out) const {
  const std::size_t index = index_of(tensor);
  const std::int64_t bytes = stored_[index].dataset.bytes;
  read(index, {row, rows, col, cols},
       [&](std::int64_t r, std::int64_t c, std::int64_t count, const unsigned char* data) {
         std::memcpy(static_cast<unsigned char*>(out) + (r * cols + c) * bytes, data,
                     static_cast<std::size_t>(count * bytes));
       });
}

void Hdf5Source::read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                          std::int64_t col, std::int64_t cols, float* out) const {
  const std::size_t index = index_of(tensor);
  require_widenable(tensors_[index]);
  read(index, {row, rows, col, cols},
       [&](std::int64_t r, std::int64_t c, std::int64_t count, const unsigned char* data) {
         widen_elements(tensors_[index], data, static_cast<std::size_t>(count), out + r * cols + c);
       });
}

void Hdf5Source::read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                          std::int64_t col, std::int64_t cols, double* out) const {
  const std::size_t index = index_of(tensor);
  if (tensors_[index].dtype == DType::kF64) {
    read_raw(tensor, row, rows, col, cols, out);
    return;
  }
  require_widenable(tensors_[index]);
  std::vector<float> narrow;
  read(index, {row, rows, col, cols},
       [&](std::int64_t r, std::int64_t c, std::int64_t count, const unsigned char* data) {
         narrow.resize(static_cast<std::size_t>(count));
         widen_elements(tensors_[index], data, narrow.size(), narrow.data());
         std::copy(narrow.begin(), narrow.end(), out + r * cols + c);
       });
}

}  // namespace

std::unique_ptr<TensorSource> open_hdf5(const std::string& path,
                                        const std::shared_ptr<MappedFile>& file,
                                        const OpenOptions& options) {
  auto source = std::make_unique<Hdf5Source>(path, file, options);
  file->check();
  return source;
}

}  // namespace fp4scope
