// mapped_source.cc: rectangles of tensors out of mapped files: contiguous rows, byte swapping,
// strided views gathered per tile, blocks decoded. Offsets are 64-bit throughout.
#include "analysis/io/mapped_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "analysis/io/byte_order.h"
#include "analysis/io/message.h"
#include "analysis/io/pytorch_dtypes.h"
#include "analysis/io/widen.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// Rows that a strided gather handles at a time: their cache lines in the output stay in L1.
constexpr std::int64_t kGatherRows = 64;
// A page fault maps up to this much around the address, which counts as touched.
constexpr std::int64_t kFaultAroundBytes = 64 * 1024;

std::string key_of(const TensorInfo& tensor) {
  return tensor.file + '\0' + tensor.name;
}

template <std::size_t Bytes>
void scatter_column(const unsigned char* column, const std::int64_t* row_offsets, std::int64_t rows,
                    std::int64_t out_stride, unsigned char* out) {
  constexpr auto kBytes = static_cast<std::int64_t>(Bytes);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(out + r * out_stride * kBytes, column + row_offsets[r] * kBytes, Bytes);
  }
}

}  // namespace

std::optional<std::int64_t> checked_product(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent == 0) {
      empty = true;
    } else if (extent < 0 || __builtin_mul_overflow(product, extent, &product)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : product;
}

std::optional<std::int64_t> strided_extent(const std::vector<std::int64_t>& shape,
                                           const std::vector<std::int64_t>& strides) {
  if (strides.size() != shape.size()) return std::nullopt;
  std::int64_t last = 0;
  bool empty = false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0 || strides[d] < 0) return std::nullopt;
    if (shape[d] == 0) empty = true;
    std::int64_t step = 0;
    if (shape[d] > 1 && (__builtin_mul_overflow(shape[d] - 1, strides[d], &step) ||
                         __builtin_add_overflow(last, step, &last))) {
      return std::nullopt;
    }
  }
  if (empty) return 0;
  if (__builtin_add_overflow(last, std::int64_t{1}, &last)) return std::nullopt;
  return last;
}

std::vector<std::int64_t> fortran_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides;
  std::int64_t stride = 1;
  for (const std::int64_t extent : shape) {
    strides.push_back(stride);
    stride *= std::max<std::int64_t>(extent, 1);
  }
  return strides;
}

namespace {

class WholeFile final : public ByteStore {
 public:
  explicit WholeFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  std::shared_ptr<const MappedFile> bytes() const override { return file_; }

 private:
  std::shared_ptr<const MappedFile> file_;
};

}  // namespace

std::size_t add_file(const std::shared_ptr<const MappedFile>& file, Contents& contents) {
  contents.files.push_back(std::make_shared<WholeFile>(file));
  contents.info.bytes += file->size();
  return contents.files.size() - 1;
}

MappedSource::MappedSource(Contents contents) : contents_(std::move(contents)) {
  for (std::size_t i = 0; i < contents_.tensors.size(); ++i) {
    index_.emplace(key_of(contents_.tensors[i]), i);
  }
}

MappedSource::Place MappedSource::prepare(const TensorInfo& tensor, const Rect& rect) const {
  const std::vector<TensorInfo>& all = contents_.tensors;
  std::size_t position = 0;
  const std::less<const TensorInfo*> before;
  if (!all.empty() && !before(&tensor, all.data()) && before(&tensor, all.data() + all.size())) {
    position = static_cast<std::size_t>(&tensor - all.data());
  } else {
    const auto found = index_.find(key_of(tensor));
    if (found == index_.end()) {
      throw Error(ErrorKind::kData, fmt::format("{} holds no tensor {}", printable(info().path),
                                                in_quotes(tensor.name)));
    }
    position = found->second;
  }
  const TensorInfo& known = all[position];
  check_rectangle(known, rect.row, rect.rows, rect.col, rect.cols);
  const Storage& storage = contents_.storage[position];
  if (storage.bits == 0) {
    const bool negated = known.dtype_text.ends_with(kNegatedView);
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: tensor {} has the {}dtype {}, which cannot be read{}{}",
                            printable(known.file), in_quotes(known.name),
                            known.known_dtype || negated ? "" : "unknown ",
                            in_quotes(known.dtype_text), known.known_dtype ? " as numbers" : "",
                            negated ? ": save x.resolve_neg() instead" : ""));
  }
  Place place{known, storage, contents_.files[storage.file]->bytes()};
  place.file->check();
  return place;
}

void MappedSource::gather(const Place& place, const Rect& rect, unsigned char* out) {
  const TensorInfo& tensor = place.tensor;
  const Storage& storage = place.storage;
  if (rect.rows == 0 || rect.cols == 0) return;
  if (storage.bits % 8 != 0 &&
      (rect.col * storage.bits % 8 != 0 || rect.cols * storage.bits % 8 != 0)) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: columns {} to {} of tensor {} do not start and end at whole bytes "
                            "of {}",
                            printable(tensor.file), rect.col, rect.col + rect.cols,
                            in_quotes(tensor.name), tensor.dtype_text));
  }
  if (storage.codec != nullptr) {
    gather_blocks(place, rect, out);
  } else if (!storage.strides.empty()) {
    gather_strided(place, rect, out);
  } else {
    gather_rows(place, rect, out);
  }
  if (storage.big_endian) swap_bytes(out, rect.rows * rect.cols, storage.bits / 8);
}

void MappedSource::gather_rows(const Place& place, const Rect& rect, unsigned char* out) {
  const int bits = place.storage.bits;
  const std::int64_t row_length = place.tensor.cols();
  const std::int64_t run = rect.cols * bits / 8;
  if (rect.cols == row_length) {
    std::memcpy(out, place.data() + rect.row * row_length * bits / 8,
                static_cast<std::size_t>(run * rect.rows));
    place.file->note_read(run * rect.rows);
    return;
  }
  for (std::int64_t r = 0; r < rect.rows; ++r) {
    const std::int64_t element = (rect.row + r) * row_length + rect.col;
    std::memcpy(out + r * run, place.data() + element * bits / 8, static_cast<std::size_t>(run));
  }
  place.file->note_read(rect.rows * std::min(run + 4096, row_length * bits / 8));
}

void MappedSource::gather_strided(const Place& place, const Rect& rect, unsigned char* out) {
  const std::vector<std::int64_t>& shape = place.tensor.shape;
  const std::vector<std::int64_t>& strides = place.storage.strides;
  const int bytes = place.storage.bits / 8;
  const std::size_t leading = shape.size() - 1;  // dimensions that form the flattened row
  const std::int64_t column_stride = strides.back();
  std::vector<std::int64_t> row_offsets(static_cast<std::size_t>(std::min(kGatherRows, rect.rows)));
  for (std::int64_t block = 0; block < rect.rows; block += kGatherRows) {
    const std::int64_t rows = std::min(kGatherRows, rect.rows - block);
    for (std::int64_t r = 0; r < rows; ++r) {
      // The flattened row counts its dimensions with the last one fastest.
      std::int64_t rest = rect.row + block + r;
      std::int64_t offset = 0;
      for (std::size_t d = leading; d-- > 0;) {
        offset += rest % shape[d] * strides[d];
        rest /= shape[d];
      }
      row_offsets[static_cast<std::size_t>(r)] = offset;
    }
    unsigned char* to = out + block * rect.cols * bytes;
    if (column_stride == 1) {
      const auto run = static_cast<std::size_t>(rect.cols * bytes);
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t element = row_offsets[static_cast<std::size_t>(r)] + rect.col;
        std::memcpy(to + r * rect.cols * bytes, place.data() + element * bytes, run);
      }
      place.file->note_read(rows * (rect.cols * bytes + kFaultAroundBytes));
      continue;
    }
    for (std::int64_t c = 0; c < rect.cols; ++c, to += bytes) {
      const unsigned char* column = place.data() + (rect.col + c) * column_stride * bytes;
      switch (bytes) {
        case 1:
          scatter_column<1>(column, row_offsets.data(), rows, rect.cols, to);
          break;
        case 2:
          scatter_column<2>(column, row_offsets.data(), rows, rect.cols, to);
          break;
        case 4:
          scatter_column<4>(column, row_offsets.data(), rows, rect.cols, to);
          break;
        case 8:
          scatter_column<8>(column, row_offsets.data(), rows, rect.cols, to);
          break;
        default:
          for (std::int64_t r = 0; r < rows; ++r) {
            std::memcpy(to + r * rect.cols * bytes,
                        column + row_offsets[static_cast<std::size_t>(r)] * bytes,
                        static_cast<std::size_t>(bytes));
          }
      }
      place.file->note_read(std::min(rows * bytes + kFaultAroundBytes, column_stride * bytes));
    }
  }
}

void MappedSource::gather_blocks(const Place& place, const Rect& rect, unsigned char* out) {
  const BlockCodec& codec = *place.storage.codec;
  const std::int64_t row_bytes = place.tensor.cols() / codec.elements * codec.bytes;
  std::array<unsigned char, 8 * kMostBlockElements> decoded;
  for (std::int64_t r = 0; r < rect.rows; ++r) {
    const unsigned char* row = place.data() + (rect.row + r) * row_bytes;
    for (std::int64_t c = rect.col; c < rect.col + rect.cols;) {
      const std::int64_t first = c % codec.elements;
      const std::int64_t count = std::min(codec.elements - first, rect.col + rect.cols - c);
      codec.decode(row + c / codec.elements * codec.bytes, decoded.data());
      const auto bytes = static_cast<std::size_t>(count * codec.out_bytes);
      std::memcpy(out, decoded.data() + first * codec.out_bytes, bytes);
      out += bytes;
      c += count;
    }
  }
  place.file->note_read(rect.rows * std::min(row_bytes, rect.cols * codec.bytes + 4096));
}

MappedSource::Rect MappedSource::work_of(const Rect& rect) {
  if (rect.rows > 0 && rect.cols > 0) return rect;
  return {rect.row, 0, rect.col, 0};
}

void MappedSource::widen_rows(const Place& place, const Rect& rect, float* out) {
  const TensorInfo& tensor = place.tensor;
  const Storage& storage = place.storage;
  if (tensor.dtype == DType::kF32) {
    gather(place, rect, reinterpret_cast<unsigned char*>(out));
    return;
  }
  const auto count = static_cast<std::size_t>(rect.rows * rect.cols);
  const bool two_bytes = tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16;
  // Straight from the file, without a copy.
  if (two_bytes && storage.strides.empty() && !storage.big_endian && storage.codec == nullptr) {
    for (std::int64_t r = 0; r < rect.rows; ++r) {
      widen_elements(tensor, place.data() + 2 * ((rect.row + r) * tensor.cols() + rect.col),
                     static_cast<std::size_t>(rect.cols), out + r * rect.cols);
    }
    place.file->note_read(2 * rect.rows * rect.cols);
    return;
  }
  require_widenable(tensor);
  std::vector<unsigned char> stored(count * static_cast<std::size_t>(dtype_bytes(tensor.dtype)));
  gather(place, rect, stored.data());
  widen_elements(tensor, stored.data(), count, out);
}

void MappedSource::read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                            std::int64_t col, std::int64_t cols, void* out) const {
  const Rect rect{row, rows, col, cols};
  const Place place = prepare(tensor, rect);
  gather(place, rect, static_cast<unsigned char*>(out));
  place.file->check();
}

void MappedSource::read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                            std::int64_t col, std::int64_t cols, float* out) const {
  const Rect rect{row, rows, col, cols};
  const Place place = prepare(tensor, rect);
  widen_rows(place, work_of(rect), out);
  place.file->check();
}

void MappedSource::read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                            std::int64_t col, std::int64_t cols, double* out) const {
  const Place place = prepare(tensor, Rect{row, rows, col, cols});
  const Rect rect = work_of(Rect{row, rows, col, cols});
  if (place.tensor.dtype == DType::kF64) {
    gather(place, rect, reinterpret_cast<unsigned char*>(out));
  } else {
    // Row by row, so that the intermediate stays small.
    std::vector<float> narrow(static_cast<std::size_t>(rect.cols));
    widen_rows(place, Rect{row, 0, col, 0}, narrow.data());  // refuses what has no values
    for (std::int64_t r = 0; r < rect.rows; ++r) {
      widen_rows(place, Rect{row + r, 1, col, cols}, narrow.data());
      std::copy(narrow.begin(), narrow.end(), out + r * cols);
    }
  }
  place.file->check();
}

}  // namespace fp4scope
