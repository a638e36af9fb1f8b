// read_everything.cc: see read_everything.h.
#include "tests/fuzz/read_everything.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope::fuzz {
namespace {

constexpr std::int64_t kMostPerTensor = 1 << 20;
constexpr std::int64_t kMostPerSource = 4 << 20;
// A file may list a million names; reading the same few ways again shows nothing new.
constexpr std::size_t kMostTensors = 64;

struct Rect {
  std::int64_t row, rows, col, cols;
};

// The three readers with one signature. The buffer has exactly the size that the interface
// promises to fill, so that the sanitizer sees a byte beyond it.
enum class Reader { kRaw, kF32, kF64 };

void call(const TensorSource& source, const TensorInfo& tensor, Reader reader, const Rect& rect,
          unsigned char* out) {
  switch (reader) {
    case Reader::kRaw:
      source.read_raw(tensor, rect.row, rect.rows, rect.col, rect.cols, out);
      break;
    case Reader::kF32:
      source.read_f32(tensor, rect.row, rect.rows, rect.col, rect.cols,
                      reinterpret_cast<float*>(out));
      break;
    case Reader::kF64:
      source.read_f64(tensor, rect.row, rect.rows, rect.col, rect.cols,
                      reinterpret_cast<double*>(out));
      break;
  }
}

// Bits of one element in the buffer.
std::int64_t element_bits(const TensorInfo& tensor, Reader reader) {
  if (reader == Reader::kF32) return 32;
  if (reader == Reader::kF64) return 64;
  if (tensor.dtype != DType::kOther) return 8 * dtype_bytes(tensor.dtype);
  return tensor.elements == 0 ? 0 : tensor.bytes * 8 / tensor.elements;
}

using Buffer = std::vector<unsigned char>;

Buffer buffer_for(const Rect& rect, std::int64_t bits) {
  return Buffer(static_cast<std::size_t>((rect.rows * rect.cols * bits + 7) / 8), 0xA5);
}

// Pieces of `whole` in rectangles of at most 7 x 7 pieces, none of a round size.
void compare_pieces(const TensorSource& source, const TensorInfo& tensor, Reader reader,
                    const Buffer& whole) {
  const std::int64_t bits = element_bits(tensor, reader);
  if (bits % 8 != 0) return;  // rectangles of packed elements have rules of their own
  if (whole.empty()) return;  // an empty tensor may have 2^63 - 1 rows
  const std::int64_t bytes = bits / 8;
  const std::int64_t row_step = std::max<std::int64_t>(3, tensor.rows() / 6 | 1);
  const std::int64_t col_step = std::max<std::int64_t>(5, tensor.cols() / 6 | 1);
  for (std::int64_t row = 0; row < tensor.rows(); row += row_step) {
    for (std::int64_t col = 0; col < tensor.cols(); col += col_step) {
      const Rect rect{row, std::min(row_step, tensor.rows() - row), col,
                      std::min(col_step, tensor.cols() - col)};
      Buffer piece = buffer_for(rect, bits);
      call(source, tensor, reader, rect, piece.data());
      for (std::int64_t r = 0; r < rect.rows; ++r) {
        const std::int64_t from = ((row + r) * tensor.cols() + col) * bytes;
        require(std::memcmp(piece.data() + r * rect.cols * bytes, whole.data() + from,
                            static_cast<std::size_t>(rect.cols * bytes)) == 0,
                "a piece of a tensor differs from the same place of the whole");
      }
    }
  }
}

// The first, the last and a middle rectangle of a tensor that is too large to be read whole.
void read_corners(const TensorSource& source, const TensorInfo& tensor, Reader reader) {
  const std::int64_t rows = std::min<std::int64_t>(tensor.rows(), 7);
  const std::int64_t cols = std::min<std::int64_t>(tensor.cols(), 64);
  const Rect rects[] = {{0, rows, 0, cols},
                        {tensor.rows() - rows, rows, tensor.cols() - cols, cols},
                        {tensor.rows() / 2, 1, tensor.cols() / 2 / 64 * 64,
                         std::min(cols, tensor.cols() - tensor.cols() / 2 / 64 * 64)}};
  for (const Rect& rect : rects) {
    Buffer buffer = buffer_for(rect, element_bits(tensor, reader));
    call(source, tensor, reader, rect, buffer.data());
  }
}

void check_info(const TensorInfo& tensor) {
  const auto product = checked_product(tensor.shape);
  require(product.has_value(), "a tensor is listed whose elements cannot be counted");
  require(*product == tensor.elements, "the elements are not the product of the shape");
  require(tensor.bytes >= 0, "a tensor has a negative size");
  std::int64_t elements = 0;
  require(!__builtin_mul_overflow(tensor.rows(), tensor.cols(), &elements) &&
              elements == tensor.elements,
          "rows times columns are not the elements");
  (void)in_quotes(tensor.name);
  (void)shape_text(tensor.shape);
  (void)dtype_label(tensor);
  (void)shown_dtype(tensor);
}

// Both widened forms are exact, so they agree wherever both exist.
void check_widened(const TensorInfo& tensor, const Buffer& f32, const Buffer& f64) {
  for (std::int64_t i = 0; i < tensor.elements; ++i) {
    float narrow = 0;
    double wide = 0;
    std::memcpy(&narrow, f32.data() + 4 * i, 4);
    std::memcpy(&wide, f64.data() + 8 * i, 8);
    const bool both_nan = narrow != narrow && wide != wide;
    require(both_nan || static_cast<double>(narrow) == wide, "read_f32 and read_f64 differ");
  }
}

void read_tensor(const TensorSource& source, const TensorInfo& tensor) {
  const Rect all{0, tensor.rows(), 0, tensor.cols()};
  Buffer buffers[3];
  bool read[3] = {};
  for (const Reader reader : {Reader::kRaw, Reader::kF32, Reader::kF64}) {
    const auto at = static_cast<std::size_t>(reader);
    const std::int64_t bits = element_bits(tensor, reader);
    std::int64_t total = 0;
    const bool small =
        !__builtin_mul_overflow(tensor.elements, bits, &total) && total <= 8 * kMostPerTensor;
    read[at] = accepts([&] {
      if (!small) {
        read_corners(source, tensor, reader);
        return;
      }
      buffers[at] = buffer_for(all, bits);
      call(source, tensor, reader, all, buffers[at].data());
      compare_pieces(source, tensor, reader, buffers[at]);
    });
    if (!small) read[at] = false;
    Buffer one(64);
    require(!accepts([&] {
      call(source, tensor, reader, {0, 1, tensor.cols(), 1}, one.data());
    }),
            "a column behind the last one was read");
    require(!accepts([&] {
      call(source, tensor, reader, {tensor.rows(), 1, 0, 1}, one.data());
    }),
            "a row behind the last one was read");
  }
  if (read[1] && read[2]) check_widened(tensor, buffers[1], buffers[2]);
}

}  // namespace

std::shared_ptr<MappedFile> file_in_memory(std::string_view bytes, const std::string& name) {
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0) throw std::runtime_error("memfd_create failed");
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0) throw std::runtime_error("writing to memory failed");
    done += static_cast<std::size_t>(n);
  }
  return std::make_shared<MappedFile>(fd, name);
}

void read_everything(const TensorSource& source) {
  for (const auto& [key, value] : source.metadata()) {
    (void)in_quotes(key);
    (void)printable(value);
  }
  (void)printable(source.info().container);
  const std::vector<TensorInfo>& tensors = source.tensors();
  std::int64_t left = kMostPerSource;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_info(tensors[i]);
    if (i >= kMostTensors || left <= 0) continue;
    read_tensor(source, tensors[i]);
    left -= std::min({tensors[i].elements, tensors[i].bytes, left}) + 1;
  }
}

void open_and_read(
    std::string_view bytes,
    const std::function<void(const std::shared_ptr<MappedFile>&, Contents&)>& append) {
  if (bytes.empty()) return;  // MappedFile refuses an empty file before any parser
  const std::shared_ptr<MappedFile> file = file_in_memory(bytes, "FILE");
  (void)accepts([&] {
    Contents contents;
    contents.info.path = "FILE";
    append(file, contents);
    require(contents.tensors.size() == contents.storage.size(),
            "tensors and their places are not parallel");
    read_everything(MappedSource(std::move(contents)));
  });
}

}  // namespace fp4scope::fuzz
