// gguf_cursor.cc: see gguf_cursor.h.
#include "analysis/io/gguf_cursor.h"

#include <fmt/format.h>

#include <array>
#include <bit>

#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::size_t kMostText = 64 * 1024;
constexpr std::size_t kMostElementText = 60;
constexpr std::size_t kMostArrayText = 1000;
constexpr std::uint64_t kMostShown = 8;  // elements of each level of an array
constexpr int kMostNested = 4;

struct ValueType {
  const char* name;
  int bytes;  // 0: of no fixed size
};
constexpr ValueType kTypes[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
                                {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0}, {"array", 0},
                                {"u64", 8}, {"i64", 8}, {"f64", 8}};
enum : std::uint32_t {
  kI8 = 1,
  kI16 = 3,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kI64 = 11,
  kF64 = 12
};

std::uint32_t read_type(GgufCursor& cursor, const char* whose) {
  const std::int64_t at = cursor.at();
  const auto type = static_cast<std::uint32_t>(cursor.number(4));
  if (type >= std::size(kTypes)) {
    cursor.fail(fmt::format("has {} {} at byte {}, expected 0 to {}", whose, type, at,
                            std::size(kTypes) - 1));
  }
  return type;
}

std::string number_text(std::uint32_t type, std::uint64_t bits) {
  switch (type) {
    case kI8:
      return fmt::format("{}", static_cast<std::int8_t>(bits));
    case kI16:
      return fmt::format("{}", static_cast<std::int16_t>(bits));
    case kI32:
      return fmt::format("{}", static_cast<std::int32_t>(bits));
    case kI64:
      return fmt::format("{}", static_cast<std::int64_t>(bits));
    case kF32:
      return fmt::format("{}", std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    case kF64:
      return fmt::format("{}", std::bit_cast<double>(bits));
    case kBool:
      return bits != 0 ? "true" : "false";
    default:
      return fmt::format("{}", bits);
  }
}

// Reads an array behind its type.
class ArrayReader {
 public:
  explicit ArrayReader(GgufCursor& cursor) : cursor_(cursor) {}

  std::string read() {
    const Header header = read_header();
    std::string elements;
    read_elements(header, 1, &elements);
    return fmt::format("{}[{}]:{}{}", kTypes[header.type].name, header.count,
                       elements.empty() ? "" : " ", elements);
  }

 private:
  struct Header {
    std::uint32_t type;
    std::uint64_t count;
  };

  Header read_header() {
    const std::uint32_t type = read_type(cursor_, "an array of type");
    const std::int64_t at = cursor_.at();
    const std::uint64_t count = cursor_.number(8);
    // Strings take their length at least, arrays their type and count.
    const int least = kTypes[type].bytes != 0 ? kTypes[type].bytes : type == kString ? 8 : 12;
    if (count > static_cast<std::uint64_t>(cursor_.remaining() / least)) {
      cursor_.fail(
          fmt::format("claims {} elements of {} at byte {}, but only {} bytes follow "
                      "(truncated?)",
                      count, kTypes[type].name, at, cursor_.remaining()));
    }
    return {type, count};
  }

  // Appends the first elements to `text`; null: only skips them. The depth of the recursion is
  // bounded by a constant, not by the file.
  void read_elements(const Header& header, int depth, std::string* text) {
    if (header.type == kArray && depth == kMostNested) {
      cursor_.fail(fmt::format("has arrays nested more than {} deep", kMostNested));
    }
    const int bytes = kTypes[header.type].bytes;
    std::uint64_t shown = 0;
    for (std::uint64_t i = 0; i < header.count; ++i) {
      const bool show = text != nullptr && i < kMostShown && text->size() < kMostArrayText;
      if (show && i > 0) *text += ", ";
      if (header.type == kArray) {
        const Header inner = read_header();
        if (show) *text += '[';
        read_elements(inner, depth + 1, show ? text : nullptr);
        if (show) *text += ']';
      } else if (header.type == kString) {
        const std::string_view value = cursor_.string("a string");
        if (show) *text += in_quotes(value, kMostElementText);
      } else if (show) {
        *text += number_text(header.type, cursor_.number(bytes));
      } else {  // all the others at once
        cursor_.skip(static_cast<std::int64_t>(header.count - i) * bytes);
        break;
      }
      if (show) ++shown;
    }
    if (text != nullptr && shown < header.count) *text += shown > 0 ? ", ..." : "...";
  }

  GgufCursor& cursor_;
};

}  // namespace

const char* gguf_value_type_name(std::uint32_t type) {
  return kTypes[type].name;
}

void GgufCursor::fail(const std::string& what) const {
  throw Error(ErrorKind::kData,
              fmt::format("{}: {} of the GGUF file {}", printable(file_), inside_, what));
}

void GgufCursor::skip(std::int64_t bytes) {
  if (bytes > remaining()) {
    fail(fmt::format("needs {} bytes at byte {}, but only {} follow (truncated?)", bytes, at_,
                     remaining()));
  }
  at_ += bytes;
}

std::uint64_t GgufCursor::number(int bytes) {
  const auto start = static_cast<std::size_t>(at_);
  skip(bytes);
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    const auto at = start + static_cast<std::size_t>(big_ ? i : bytes - 1 - i);
    value = value << 8 | static_cast<unsigned char>(bytes_[at]);
  }
  return value;
}

std::string_view GgufCursor::string(const char* what, std::uint64_t most) {
  const std::int64_t at = at_;
  const std::uint64_t length = number(8);
  if (length > static_cast<std::uint64_t>(remaining())) {
    fail(fmt::format("has {} of {} bytes at byte {}, but only {} follow (truncated?)", what, length,
                     at, remaining()));
  }
  if (length > most) {
    fail(fmt::format("has {} of {} bytes at byte {}, at most {} are allowed", what, length, at,
                     most));
  }
  const std::string_view value =
      bytes_.substr(static_cast<std::size_t>(at_), static_cast<std::size_t>(length));
  at_ += static_cast<std::int64_t>(length);
  return value;
}

GgufValue read_gguf_value(GgufCursor& cursor) {
  GgufValue value;
  value.type = read_type(cursor, "the value type");
  if (value.type == kString) {
    const std::string_view text = cursor.string("a string");
    value.text = text.substr(0, kMostText);
    if (text.size() > kMostText) value.text += fmt::format("... ({} bytes)", text.size());
  } else if (value.type == kArray) {
    value.text = ArrayReader(cursor).read();
  } else {
    value.number = cursor.number(kTypes[value.type].bytes);
    value.text = number_text(value.type, value.number);
  }
  return value;
}

}  // namespace fp4scope
