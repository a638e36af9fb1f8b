// raw_source.cc: elements without a header (numpy.ndarray.tofile and the like), whose dtype, shape
// and place in the file the user gives.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::size_t kMaxRank = 64;
constexpr std::int64_t kInferred = -1;

[[noreturn]] void refuse(ErrorKind kind, const std::string& path, const std::string& what) {
  throw Error(kind, fmt::format("{}: {}", printable(path), what));
}

// The shape with its inferred extent, for `rest` bytes.
std::vector<std::int64_t> whole_shape(const std::string& path, const RawLayout& layout,
                                      std::int64_t rest) {
  std::vector<std::int64_t> shape = layout.shape;
  const auto bad_shape = [&](const char* why) {
    refuse(ErrorKind::kUsage, path,
           fmt::format("the shape {} given for a raw file {}", shape_text(layout.shape), why));
  };
  if (shape.size() > kMaxRank) bad_shape("has more than 64 dimensions");
  const auto unknown = std::find(shape.begin(), shape.end(), kInferred);
  if (unknown != shape.end()) *unknown = 1;
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent < 0; })) {
    bad_shape("has a negative extent, expected 0 or more and at most one -1");
  }
  const std::optional<std::int64_t> elements = checked_product(shape);
  std::int64_t bytes = 0;
  // The bits of a tensor have to be countable in 64 bits as well.
  if (!elements || __builtin_mul_overflow(*elements, std::int64_t{64}, &bytes)) {
    bad_shape("has a size that exceeds 64 bits");
  }
  if (unknown == shape.end()) return shape;
  bytes = *elements * dtype_bytes(layout.dtype);
  if (bytes == 0) bad_shape("leaves -1 open, since another extent is 0");
  if (rest % bytes != 0) {
    refuse(ErrorKind::kData, path,
           fmt::format(
               "{} bytes from byte {} do not fill the shape {} of {}, expected a multiple of "
               "the {} bytes that -1 = 1 takes",
               rest, layout.offset, shape_text(layout.shape), dtype_name(layout.dtype), bytes));
  }
  *unknown = rest / bytes;
  return shape;
}

}  // namespace

void append_raw(const std::shared_ptr<MappedFile>& file, const RawLayout& layout,
                Contents& contents) {
  const std::string& path = file->path();
  const std::int64_t element_bytes = dtype_bytes(layout.dtype);
  if (element_bytes == 0) {
    refuse(ErrorKind::kUsage, path, "a raw file needs a dtype whose elements have whole bytes");
  }
  if (layout.offset < 0) {
    refuse(ErrorKind::kUsage, path,
           fmt::format("the offset {} of a raw file is negative", layout.offset));
  }
  if (layout.offset > file->size()) {
    refuse(ErrorKind::kData, path,
           fmt::format("the offset {} lies behind the end of the file, which has {} bytes",
                       layout.offset, file->size()));
  }
  const std::int64_t rest = file->size() - layout.offset;
  TensorInfo tensor;
  tensor.name = std::filesystem::path(path).stem().string();
  tensor.dtype = layout.dtype;
  tensor.dtype_text = std::string(dtype_name(layout.dtype));
  tensor.shape = whole_shape(path, layout, rest);
  tensor.elements = *checked_product(tensor.shape);
  tensor.bytes = tensor.elements * element_bytes;
  tensor.file = path;
  if (tensor.bytes > rest || (layout.ends_file && tensor.bytes < rest)) {
    refuse(
        ErrorKind::kData, path,
        fmt::format(
            "the shape {} of {} needs {} bytes from byte {}, found {}{}", shape_text(tensor.shape),
            tensor.dtype_text, tensor.bytes, layout.offset, rest,
            tensor.bytes > rest ? " (truncated?)" : "; give an offset to read a part of the file"));
  }
  Storage storage;
  storage.file = add_file(file, contents);
  storage.offset = layout.offset;
  storage.bits = static_cast<int>(8 * element_bytes);
  contents.tensors.push_back(std::move(tensor));
  contents.storage.push_back(std::move(storage));
}

}  // namespace fp4scope
