// mapped_source.cc: rectangles of tensors out of mapped files: contiguous rows, byte swapping,
// Fortran order gathered per tile, and exact widening. Offsets are 64-bit throughout.
#include "analysis/io/mapped_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "analysis/io/message.h"
#include "analysis/io/widen.h"
#include "formats/minifloat.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

// Rows that a Fortran gather handles at a time: their cache lines in the output stay in L1.
constexpr std::int64_t kGatherRows = 64;
// A page fault maps up to this much around the address, which counts as touched.
constexpr std::int64_t kFaultAroundBytes = 64 * 1024;

std::string key_of(const TensorInfo& tensor) {
  return tensor.file + '\0' + tensor.name;
}

template <std::size_t Bytes>
void swap_elements(unsigned char* data, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::reverse(data + i * static_cast<std::int64_t>(Bytes),
                 data + (i + 1) * static_cast<std::int64_t>(Bytes));
  }
}

void swap_bytes(unsigned char* data, std::int64_t count, int bytes) {
  if (bytes == 2) swap_elements<2>(data, count);
  if (bytes == 4) swap_elements<4>(data, count);
  if (bytes == 8) swap_elements<8>(data, count);
  if (bytes == 16) swap_elements<16>(data, count);
}

template <float (*Widen)(std::uint16_t)>
void widen_run(const unsigned char* in, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, in + 2 * i, 2);
    out[i] = Widen(bits);
  }
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

MappedSource::MappedSource(Contents contents) : contents_(std::move(contents)) {
  for (std::size_t i = 0; i < contents_.tensors.size(); ++i) {
    index_.emplace(key_of(contents_.tensors[i]), i);
  }
}

std::size_t MappedSource::prepare(const TensorInfo& tensor, const Rect& rect) const {
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
  const bool inside = rect.row >= 0 && rect.rows >= 0 && rect.col >= 0 && rect.cols >= 0 &&
                      rect.rows <= known.rows() && rect.row <= known.rows() - rect.rows &&
                      rect.cols <= known.cols() && rect.col <= known.cols() - rect.cols;
  if (!inside) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: tensor {} has {} rows and {} columns, found a request for {} rows "
                            "from {} and {} columns from {}",
                            printable(known.file), in_quotes(known.name), known.rows(),
                            known.cols(), rect.rows, rect.row, rect.cols, rect.col));
  }
  contents_.files[contents_.storage[position].file]->check_length();
  return position;
}

void MappedSource::gather(std::size_t index, const Rect& rect, unsigned char* out) const {
  const TensorInfo& tensor = contents_.tensors[index];
  const Storage& storage = contents_.storage[index];
  if (storage.bits == 0) {
    throw Error(
        ErrorKind::kUnsupported,
        fmt::format("{}: tensor {} has the unknown dtype {}, which cannot be read",
                    printable(tensor.file), in_quotes(tensor.name), in_quotes(tensor.dtype_text)));
  }
  if (rect.rows == 0 || rect.cols == 0) return;
  const std::int64_t row_length = tensor.cols();
  if (storage.bits % 8 != 0 &&
      (rect.col * storage.bits % 8 != 0 || rect.cols * storage.bits % 8 != 0)) {
    throw Error(ErrorKind::kUnsupported,
                fmt::format("{}: columns {} to {} of tensor {} do not start and end at whole bytes "
                            "of {}",
                            printable(tensor.file), rect.col, rect.col + rect.cols,
                            in_quotes(tensor.name), tensor.dtype_text));
  }
  if (storage.fortran && tensor.shape.size() > 1) {
    gather_fortran(index, rect, out);
  } else {
    const MappedFile& file = *contents_.files[storage.file];
    const unsigned char* data = file.data() + storage.offset;
    const std::int64_t run = rect.cols * storage.bits / 8;
    if (rect.cols == row_length) {
      std::memcpy(out, data + rect.row * row_length * storage.bits / 8,
                  static_cast<std::size_t>(run * rect.rows));
      file.note_read(run * rect.rows);
    } else {
      for (std::int64_t r = 0; r < rect.rows; ++r) {
        const std::int64_t element = (rect.row + r) * row_length + rect.col;
        std::memcpy(out + r * run, data + element * storage.bits / 8,
                    static_cast<std::size_t>(run));
      }
      file.note_read(rect.rows * std::min(run + 4096, row_length * storage.bits / 8));
    }
  }
  if (storage.big_endian) swap_bytes(out, rect.rows * rect.cols, storage.bits / 8);
}

void MappedSource::gather_fortran(std::size_t index, const Rect& rect, unsigned char* out) const {
  const TensorInfo& tensor = contents_.tensors[index];
  const Storage& storage = contents_.storage[index];
  const MappedFile& file = *contents_.files[storage.file];
  const unsigned char* data = file.data() + storage.offset;
  const int bytes = storage.bits / 8;
  const std::size_t leading = tensor.shape.size() - 1;  // dimensions that form the flattened row
  const std::int64_t column_stride = tensor.rows();     // elements from one column to the next
  std::vector<std::int64_t> row_offsets(static_cast<std::size_t>(std::min(kGatherRows, rect.rows)));
  for (std::int64_t block = 0; block < rect.rows; block += kGatherRows) {
    const std::int64_t rows = std::min(kGatherRows, rect.rows - block);
    for (std::int64_t r = 0; r < rows; ++r) {
      // The flattened row counts its dimensions with the last one fastest, the file with the first.
      std::int64_t rest = rect.row + block + r;
      std::int64_t offset = 0;
      for (std::size_t d = leading; d-- > 0;) {
        std::int64_t stride = 1;
        for (std::size_t e = 0; e < d; ++e) stride *= tensor.shape[e];
        offset += rest % tensor.shape[d] * stride;
        rest /= tensor.shape[d];
      }
      row_offsets[static_cast<std::size_t>(r)] = offset;
    }
    for (std::int64_t c = 0; c < rect.cols; ++c) {
      const unsigned char* column = data + (rect.col + c) * column_stride * bytes;
      unsigned char* to = out + (block * rect.cols + c) * bytes;
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
      file.note_read(std::min(rows * bytes + kFaultAroundBytes, column_stride * bytes));
    }
  }
}

void MappedSource::widen_rows(std::size_t index, const Rect& rect, float* out) const {
  const TensorInfo& tensor = contents_.tensors[index];
  const Storage& storage = contents_.storage[index];
  if (tensor.dtype == DType::kF32) {
    gather(index, rect, reinterpret_cast<unsigned char*>(out));
    return;
  }
  if (tensor.dtype == DType::kF8E4M3 || tensor.dtype == DType::kF8E5M2) {
    const MinifloatSpec& spec = tensor.dtype == DType::kF8E4M3 ? kE4M3 : kE5M2;
    std::array<float, 256> values;
    for (std::uint32_t code = 0; code < 256; ++code) values[code] = decode<Lane<1>>(spec, code);
    std::vector<unsigned char> stored(static_cast<std::size_t>(rect.rows * rect.cols));
    gather(index, rect, stored.data());
    std::transform(stored.begin(), stored.end(), out,
                   [&](unsigned char code) { return values[code]; });
    return;
  }
  if (tensor.dtype != DType::kF16 && tensor.dtype != DType::kBF16) {
    throw Error(
        ErrorKind::kUnsupported,
        fmt::format("{}: tensor {} is {}, expected F32, F16, BF16 or FP8", printable(tensor.file),
                    in_quotes(tensor.name), printable(tensor.dtype_text)));
  }
  const auto widen = tensor.dtype == DType::kF16 ? widen_run<widen_f16> : widen_run<widen_bf16>;
  if (storage.fortran || storage.big_endian) {
    std::vector<unsigned char> stored(static_cast<std::size_t>(2 * rect.rows * rect.cols));
    gather(index, rect, stored.data());
    widen(stored.data(), rect.rows * rect.cols, out);
    return;
  }
  const MappedFile& file = *contents_.files[storage.file];
  const unsigned char* data = file.data() + storage.offset;
  if (rect.cols == tensor.cols()) {
    widen(data + 2 * rect.row * rect.cols, rect.rows * rect.cols, out);
  } else {
    for (std::int64_t r = 0; r < rect.rows; ++r) {
      widen(data + 2 * ((rect.row + r) * tensor.cols() + rect.col), rect.cols, out + r * rect.cols);
    }
  }
  file.note_read(2 * rect.rows * rect.cols);
}

void MappedSource::read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                            std::int64_t col, std::int64_t cols, void* out) const {
  const Rect rect{row, rows, col, cols};
  gather(prepare(tensor, rect), rect, static_cast<unsigned char*>(out));
}

void MappedSource::read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                            std::int64_t col, std::int64_t cols, float* out) const {
  const Rect rect{row, rows, col, cols};
  widen_rows(prepare(tensor, rect), rect, out);
}

void MappedSource::read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                            std::int64_t col, std::int64_t cols, double* out) const {
  const Rect rect{row, rows, col, cols};
  const std::size_t index = prepare(tensor, rect);
  if (contents_.tensors[index].dtype == DType::kF64) {
    gather(index, rect, reinterpret_cast<unsigned char*>(out));
    return;
  }
  // Row by row, so that the intermediate stays small.
  std::vector<float> narrow(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    widen_rows(index, Rect{row + r, 1, col, cols}, narrow.data());
    std::copy(narrow.begin(), narrow.end(), out + r * cols);
  }
}

}  // namespace fp4scope
