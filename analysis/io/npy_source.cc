// npy_source.cc: NumPy's npy format, versions 1 to 3 (numpy.lib.format; spec/layouts.md section 6):
// magic, version, header length (2 bytes in version 1, else 4), a Python dict literal with exactly
// descr, fortran_order and shape, then the elements up to the end of the file.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::size_t kMaxRank = 64;
constexpr std::int64_t kMagicBytes = 6;

struct NpyHeader {
  std::string descr;
  bool fortran = false;
  std::vector<std::int64_t> shape;
};

// Reads the dict literal; nothing else of Python's syntax is understood.
class LiteralReader {
 public:
  LiteralReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  NpyHeader read() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    const auto once = [&](bool& seen, const std::string& key) {
      if (seen) fail(fmt::format("has the key {} twice", in_quotes(key)));
      seen = true;
    };
    expect('{');
    while (!accept('}')) {
      const std::string key = string("a key");
      expect(':');
      if (key == "descr") {
        once(has_descr, key);
        if (peek() == '[') {
          throw Error(ErrorKind::kUnsupported,
                      fmt::format("{}: the npy file holds a structured dtype, expected plain "
                                  "numbers",
                                  printable(file_)));
        }
        header.descr = string("descr");
      } else if (key == "fortran_order") {
        once(has_order, key);
        header.fortran = boolean();
      } else if (key == "shape") {
        once(has_shape, key);
        header.shape = tuple();
      } else {
        fail(fmt::format("has the unknown key {}, expected descr, fortran_order and shape",
                         in_quotes(key)));
      }
      if (!accept(',') && peek() != '}') fail_here("',' or '}'");
    }
    if (!has_descr) fail("has no descr");
    if (!has_order) fail("has no fortran_order");
    if (!has_shape) fail("has no shape");
    if (peek() != '\0' || at_ < text_.size()) fail_here("the end of the header");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kData, fmt::format("{}: the npy header {}", printable(file_), what));
  }
  [[noreturn]] void fail_here(const std::string& expected) const {
    fail(fmt::format("is malformed at byte {}, expected {}, found {}", at_, expected,
                     at_ < text_.size() ? in_quotes(text_.substr(at_), 20) : "the end"));
  }
  // Next character that is no blank; NUL at the end (and for a NUL byte, which fits nowhere).
  char peek() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail_here(fmt::format("'{}'", c));
  }
  std::string string(const char* what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail_here(fmt::format("{} in quotes", what));
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail_here("a closed string");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    if (value.size() > 200 || value.find('\\') != std::string_view::npos) {
      fail_here("a short string without escapes");
    }
    at_ = end + 1;
    return std::string(value);
  }
  bool boolean() {
    (void)peek();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return word == "True";
      }
    }
    fail_here("True or False");
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> shape;
    expect('(');
    while (!accept(')')) {
      if (shape.size() == kMaxRank) {
        fail(fmt::format("has a shape of more than {} dimensions", kMaxRank));
      }
      shape.push_back(integer());
      const bool comma = accept(',');
      // "(3)" is a number in Python, not a tuple.
      if (!comma && (peek() != ')' || shape.size() == 1)) fail_here("',' in the shape");
    }
    return shape;
  }
  std::int64_t integer() {
    if (peek() < '0' || peek() > '9') fail_here("an integer from 0 to 2^63-1 in the shape");
    std::int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value)) {
        fail("has an extent above 2^63-1 in its shape");
      }
      ++at_;
    }
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
    return value;
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
};

struct NpyDType {
  DType dtype = DType::kOther;
  int bytes = 0;
  bool big_endian = false;
};

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw Error(ErrorKind::kUnsupported, fmt::format("{}: {}", printable(file), what));
}

// Types with a descr that says how many bytes an element has but not what they mean.
DType hinted_dtype(const std::string& file, const std::string& descr, int bytes,
                   const std::string& hint) {
  const char* choices = bytes == 2 ? "bf16 or raw" : "e4m3, e5m2, e8m0 or raw";
  if (hint.empty()) {
    refuse(file, fmt::format(
                     "descr {} does not say what the elements are; give the dtype (--dtype) as {}",
                     in_quotes(descr), choices));
  }
  if (bytes == 2 && hint == "bf16") return DType::kBF16;
  if (bytes == 1 && hint == "e4m3") return DType::kF8E4M3;
  if (bytes == 1 && hint == "e5m2") return DType::kF8E5M2;
  if (bytes == 1 && hint == "e8m0") return DType::kF8E8M0;
  if (hint == "raw") return bytes == 1 ? DType::kU8 : DType::kOther;
  refuse(file,
         fmt::format("descr {} has elements of {} byte{}, which cannot be {}; give the dtype "
                     "(--dtype) as {}",
                     in_quotes(descr), bytes, bytes == 1 ? "" : "s", in_quotes(hint), choices));
}

NpyDType parse_descr(const std::string& file, const std::string& descr, const std::string& hint) {
  const auto unknown = [&]() {
    refuse(file, fmt::format("unknown npy dtype {}, expected f2, f4, f8, an integer type, or V2, "
                             "V1, f1 with a dtype given",
                             in_quotes(descr)));
  };
  if (descr.size() < 3 || std::string_view("<>|=").find(descr[0]) == std::string_view::npos) {
    unknown();
  }
  const char kind = descr[1];
  int bytes = 0;
  for (const char c : std::string_view(descr).substr(2)) {
    if (c < '0' || c > '9' || bytes > 99) unknown();
    bytes = 10 * bytes + (c - '0');
  }
  NpyDType type;
  type.bytes = bytes;
  type.big_endian = descr[0] == '>' && bytes > 1;
  const auto one_of = [&](std::initializer_list<int> sizes) {
    return std::find(sizes.begin(), sizes.end(), bytes) != sizes.end();
  };
  if (kind == 'f' && bytes == 2) {
    type.dtype = DType::kF16;
  } else if (kind == 'f' && bytes == 4) {
    type.dtype = DType::kF32;
  } else if (kind == 'f' && bytes == 8) {
    type.dtype = DType::kF64;
  } else if ((kind == 'V' && one_of({1, 2})) || (kind == 'f' && bytes == 1)) {
    type.dtype = hinted_dtype(file, descr, bytes, hint);
  } else if (kind == 'u' && bytes == 1) {
    type.dtype = DType::kU8;
  } else if (kind == 'i' && bytes == 1) {
    type.dtype = DType::kI8;
  } else if (!((kind == 'b' && bytes == 1) ||
               ((kind == 'i' || kind == 'u') && one_of({2, 4, 8})))) {
    unknown();
  }
  return type;
}

}  // namespace

std::int64_t npy_header_end(std::string_view start, std::int64_t size, const std::string& path) {
  const auto byte = [&](std::int64_t i) {
    return static_cast<unsigned char>(start[static_cast<std::size_t>(i)]);
  };
  const auto too_short = [&]() -> Error {
    return {ErrorKind::kData,
            fmt::format("{}: the npy file has {} bytes, too few for its header (truncated?)",
                        printable(path), size)};
  };
  if (std::ssize(start) < kMagicBytes + 4) throw too_short();
  const int major = byte(kMagicBytes), minor = byte(kMagicBytes + 1);
  if (major < 1 || major > 3 || minor != 0) {
    throw Error(ErrorKind::kData, fmt::format("{}: npy version {}.{}, expected 1.0, 2.0 or 3.0",
                                              printable(path), major, minor));
  }
  const int length_bytes = major == 1 ? 2 : 4;
  const std::int64_t header_start = kMagicBytes + 2 + length_bytes;
  if (std::ssize(start) < header_start) throw too_short();
  std::int64_t header_bytes = 0;
  for (int i = length_bytes; i-- > 0;) {
    header_bytes = header_bytes << 8 | byte(kMagicBytes + 2 + i);
  }
  if (header_bytes > size - header_start) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: the npy header claims {} bytes, but only {} follow (truncated?)",
                            printable(path), header_bytes, size - header_start));
  }
  return header_start + header_bytes;
}

void append_npy_array(std::string_view start, std::int64_t size, TensorInfo tensor, Storage storage,
                      const std::string& dtype_hint, Contents& contents) {
  const std::string& path = tensor.file;
  const std::int64_t data_start = npy_header_end(start, size, path);
  const std::int64_t header_start =
      kMagicBytes + 2 + (static_cast<unsigned char>(start[kMagicBytes]) == 1 ? 2 : 4);
  const NpyHeader header =
      LiteralReader(start.substr(static_cast<std::size_t>(header_start),
                                 static_cast<std::size_t>(data_start - header_start)),
                    path)
          .read();
  const NpyDType type = parse_descr(path, header.descr, dtype_hint);

  const std::optional<std::int64_t> elements = checked_product(header.shape);
  std::int64_t bytes = 0;
  // The bits of a tensor have to be countable in 64 bits as well.
  if (!elements || __builtin_mul_overflow(*elements, std::int64_t{64}, &bytes)) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: the npy shape {} has a size that exceeds 64 bits", printable(path),
                            shape_text(header.shape)));
  }
  bytes = *elements * type.bytes;
  const std::int64_t rest = size - data_start;
  if (bytes != rest) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: npy shape {} of {} needs {} bytes of data, found {}{}",
                            printable(path), shape_text(header.shape), in_quotes(header.descr),
                            bytes, rest, rest < bytes ? " (truncated?)" : ""));
  }

  tensor.dtype = type.dtype;
  tensor.dtype_text = header.descr;
  tensor.shape = header.shape;
  tensor.elements = *elements;
  tensor.bytes = bytes;
  storage.offset += data_start;
  storage.bits = 8 * type.bytes;
  if (header.fortran && header.shape.size() > 1) storage.strides = fortran_strides(header.shape);
  storage.big_endian = type.big_endian;
  contents.tensors.push_back(std::move(tensor));
  contents.storage.push_back(std::move(storage));
}

void append_npy(const std::shared_ptr<MappedFile>& file, const std::string& dtype_hint,
                Contents& contents) {
  TensorInfo tensor;
  tensor.name = std::filesystem::path(file->path()).stem().string();
  tensor.file = file->path();
  Storage storage;
  storage.file = add_file(file, contents);
  append_npy_array(file->text(0, file->size()), file->size(), std::move(tensor), storage,
                   dtype_hint, contents);
}

}  // namespace fp4scope
