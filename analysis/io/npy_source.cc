// npy_source.cc: NumPy's npy format, versions 1 to 3 (numpy.lib.format; spec/layouts.md section 6):
// magic, version, header length (2 bytes in version 1, else 4), a Python dict literal with exactly
// descr, fortran_order and shape, then the elements up to the end of the file.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::size_t kMaxRank = 64;
constexpr std::int64_t kMagicBytes = 6;

struct NpyHeader {
  std::string descr;  // of a structured dtype "|V" and its bytes, "|O" when it holds objects
  bool structured = false;
  bool fortran = false;
  std::vector<std::int64_t> shape;
};

// A descr such as "<f4", ">U3", "|O" or "<M8[ns]".
struct Descr {
  char kind = 0;
  bool big_endian = false;
  std::int64_t bytes = 0;  // of an element; 0 for an object, which is pickled
};

std::optional<Descr> read_descr(std::string_view text) {
  Descr descr;
  if (text.size() < 2 || std::string_view("<>|=").find(text[0]) == std::string_view::npos) {
    return std::nullopt;
  }
  descr.big_endian = text[0] == '>';
  descr.kind = text[1];
  text.remove_prefix(2);
  if (descr.kind == 'O') return text.empty() || text == "8" ? std::optional(descr) : std::nullopt;
  // numpy itself keeps the size of an element in 31 bits.
  constexpr std::int64_t kMostBytes = std::numeric_limits<std::int32_t>::max();
  std::size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    descr.bytes = 10 * descr.bytes + (text[digits] - '0');
    if (descr.bytes > kMostBytes) return std::nullopt;
  }
  const std::string_view unit = text.substr(digits);
  const bool is_time = descr.kind == 'M' || descr.kind == 'm';
  const bool unit_fits = unit.empty() || (is_time && unit.starts_with('[') && unit.ends_with(']'));
  if (digits == 0 || !unit_fits ||
      std::string_view("biufcSaUVMm").find(descr.kind) == std::string_view::npos) {
    return std::nullopt;
  }
  if (descr.kind == 'U') descr.bytes *= 4;
  if (descr.bytes > kMostBytes) return std::nullopt;
  if (descr.bytes == 1) descr.big_endian = false;
  return descr;
}

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
        header.structured = peek() == '[';
        header.descr = header.structured ? structured_descr() : string("descr");
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
    if (!has_descr) fail("has no descr, expected descr, fortran_order and shape");
    if (!has_order) fail("has no fortran_order, expected descr, fortran_order and shape");
    if (!has_shape) fail("has no shape, expected descr, fortran_order and shape");
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
  // "[('a', '<f4'), ('b', [...], (2,))]", whose bytes numpy lays out without gaps.
  std::string structured_descr() {
    bool objects = false;
    const std::int64_t bytes = fields_bytes(0, objects);
    return objects ? "|O" : fmt::format("|V{}", bytes);
  }
  std::int64_t fields_bytes(int depth, bool& objects) {
    constexpr int kMostDepth = 16;
    if (depth == kMostDepth) fail("has a structured dtype that is nested too deeply");
    const auto too_large = [&] { fail("has a structured dtype whose size exceeds 63 bits"); };
    std::int64_t total = 0;
    expect('[');
    while (!accept(']')) {
      expect('(');
      if (accept('(')) {  // title and name
        (void)string("a title");
        expect(',');
        (void)string("a name");
        expect(')');
      } else {
        (void)string("a name");
      }
      expect(',');
      std::int64_t bytes = 0;
      if (peek() == '[') {
        bytes = fields_bytes(depth + 1, objects);
      } else {
        const std::string descr = string("a dtype");
        const std::optional<Descr> field = read_descr(descr);
        if (!field)
          fail(fmt::format("has the unknown dtype {} in a structured one", in_quotes(descr)));
        bytes = field->bytes;
        objects = objects || field->kind == 'O';
      }
      if (accept(',') && peek() == '(') {
        const std::optional<std::int64_t> count = checked_product(tuple());
        if (!count || __builtin_mul_overflow(bytes, *count, &bytes)) too_large();
        (void)accept(',');
      }
      expect(')');
      if (__builtin_add_overflow(total, bytes, &total)) too_large();
      if (!accept(',') && peek() != ']') fail_here("',' or ']'");
    }
    return total;
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
  std::int64_t bytes = 0;
  bool known = true;
  bool readable = true;
  bool big_endian = false;
  bool no_order = false;  // whatever the descr says
};

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw Error(ErrorKind::kUnsupported, fmt::format("{}: {}", printable(file), what));
}

// The type that a hint gives to elements of which only the size is known; kOther: none.
DType hinted_dtype(std::int64_t bytes, const std::string& hint) {
  if (bytes == 2 && hint == "bf16") return DType::kBF16;
  if (bytes == 1 && hint == "e4m3") return DType::kF8E4M3;
  if (bytes == 1 && hint == "e5m2") return DType::kF8E5M2;
  if (bytes == 1 && hint == "e8m0") return DType::kF8E8M0;
  if (bytes == 1 && hint == "raw") return DType::kU8;
  return DType::kOther;
}

bool is_integer(const Descr& descr) {
  return ((descr.kind == 'i' || descr.kind == 'u') &&
          (descr.bytes == 1 || descr.bytes == 2 || descr.bytes == 4 || descr.bytes == 8)) ||
         (descr.kind == 'b' && descr.bytes == 1);
}
// The descr says how many bytes an element has, but not what they mean.
bool wants_hint(const Descr& descr) {
  return (descr.kind == 'V' && (descr.bytes == 1 || descr.bytes == 2)) ||
         (descr.kind == 'f' && descr.bytes == 1);
}

DType dtype_of(const Descr& descr, const std::string& hint) {
  if (wants_hint(descr)) return hinted_dtype(descr.bytes, hint);
  if (descr.kind == 'f' && descr.bytes == 2) return DType::kF16;
  if (descr.kind == 'f' && descr.bytes == 4) return DType::kF32;
  if (descr.kind == 'f' && descr.bytes == 8) return DType::kF64;
  if (descr.kind == 'u' && descr.bytes == 1) return DType::kU8;
  if (descr.kind == 'i' && descr.bytes == 1) return DType::kI8;
  return DType::kOther;
}

// An npy file that holds no numbers is of no use.
void refuse_other(const std::string& file, const std::string& text,
                  const std::optional<Descr>& descr, const std::string& hint) {
  if (descr && wants_hint(*descr)) {
    if (hinted_dtype(descr->bytes, hint) != DType::kOther || hint == "raw") return;
    const char* choices = descr->bytes == 2 ? "bf16 or raw" : "e4m3, e5m2, e8m0 or raw";
    if (hint.empty()) {
      refuse(file, fmt::format("descr {} does not say what the elements are; give the dtype "
                               "(--dtype) as {}",
                               in_quotes(text), choices));
    }
    refuse(file, fmt::format("descr {} has elements of {} byte{}, which cannot be {}; give the "
                             "dtype (--dtype) as {}",
                             in_quotes(text), descr->bytes, descr->bytes == 1 ? "" : "s",
                             in_quotes(hint), choices));
  }
  if (descr && (is_integer(*descr) || dtype_of(*descr, hint) != DType::kOther)) return;
  if (descr && descr->kind == 'O') {
    refuse(file,
           fmt::format("npy dtype {} stands for pickled Python objects, which are never loaded; "
                       "expected numbers",
                       in_quotes(text)));
  }
  const auto is_kind = [&](std::string_view kinds) {
    return descr && kinds.find(descr->kind) != std::string_view::npos;
  };
  const auto refuse_as = [&](const char* what) {
    refuse(file,
           fmt::format("npy dtype {} stands for {}, expected real numbers", in_quotes(text), what));
  };
  if (is_kind("c")) refuse_as("complex numbers");
  if (is_kind("USa")) refuse_as("text");
  if (is_kind("Mm")) refuse_as("points or spans of time");
  refuse(file, fmt::format("unknown npy dtype {}, expected f2, f4, f8, an integer type, or V2, V1, "
                           "f1 with a dtype given",
                           in_quotes(text)));
}

NpyDType parse_descr(const std::string& file, const NpyHeader& header, const std::string& hint,
                     NpyOther others) {
  const std::optional<Descr> descr = read_descr(header.descr);
  if (others == NpyOther::kRefuse) {
    if (header.structured)
      refuse(file, "the npy file holds a structured dtype, expected plain numbers");
    refuse_other(file, header.descr, descr, hint);
  }
  NpyDType type;
  type.known = descr.has_value();
  type.readable = descr.has_value() && descr->bytes > 0;
  if (!type.readable) return type;
  type.dtype = dtype_of(*descr, hint);
  type.bytes = descr->bytes;
  type.no_order = descr->kind == 'S' || descr->kind == 'V';
  type.big_endian = descr->big_endian && !type.no_order;
  // Whose units are not the elements.
  if (type.big_endian && (descr->kind == 'U' || descr->kind == 'c')) type.readable = false;
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
                      const std::string& dtype_hint, NpyOther others, Contents& contents) {
  const std::string& path = tensor.file;
  const std::int64_t data_start = npy_header_end(start, size, path);
  const std::int64_t header_start =
      kMagicBytes + 2 + (static_cast<unsigned char>(start[kMagicBytes]) == 1 ? 2 : 4);
  const NpyHeader header =
      LiteralReader(start.substr(static_cast<std::size_t>(header_start),
                                 static_cast<std::size_t>(data_start - header_start)),
                    path)
          .read();
  const NpyDType type = parse_descr(path, header, dtype_hint, others);

  const std::optional<std::int64_t> elements = checked_product(header.shape);
  std::int64_t bytes = 0, bits = 0;
  // The bits of a tensor have to be countable in 64 bits as well.
  if (!elements ||
      __builtin_mul_overflow(*elements, std::max<std::int64_t>(8 * type.bytes, 64), &bits)) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: the npy shape {} has a size that exceeds 64 bits", printable(path),
                            shape_text(header.shape)));
  }
  bytes = *elements * type.bytes;
  const std::int64_t rest = size - data_start;
  // What is pickled or unknown has any number of bytes.
  if (type.bytes == 0) bytes = rest;
  if (bytes != rest) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: npy shape {} of {} needs {} bytes of data, found {}{}",
                            printable(path), shape_text(header.shape), in_quotes(header.descr),
                            bytes, rest, rest < bytes ? " (truncated?)" : ""));
  }

  tensor.dtype = type.dtype;
  tensor.dtype_text = header.descr;
  // As numpy spells it: single bytes have no order.
  if (type.no_order) tensor.dtype_text[0] = '|';
  tensor.known_dtype = type.known;
  tensor.shape = header.shape;
  tensor.elements = *elements;
  tensor.bytes = bytes;
  storage.offset += data_start;
  // 2^31 and more bits are no element that anybody reads.
  const bool fits = type.bytes <= std::numeric_limits<int>::max() / 8;
  storage.bits = type.readable && fits ? static_cast<int>(8 * type.bytes) : 0;
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
                   dtype_hint, NpyOther::kRefuse, contents);
}

}  // namespace fp4scope
