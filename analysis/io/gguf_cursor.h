// gguf_cursor.h: bounded reading of the header of a GGUF file in its byte order, and the text of a
// metadata value. Throw Error(kData) with the place, what was read there and what the file has.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace fp4scope {

// Names and keys may be as long as the specification lets keys be.
inline constexpr std::uint64_t kMostGgufName = 65535;

class GgufCursor {
 public:
  // Both have to outlive the cursor.
  GgufCursor(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}
  void set_big_endian(bool big) { big_ = big; }
  // What the following reads belong to, for messages: "tensor 3 of 7".
  void enter(std::string what) { inside_ = std::move(what); }

  std::int64_t at() const { return at_; }
  std::int64_t remaining() const { return static_cast<std::int64_t>(bytes_.size()) - at_; }
  // An unsigned integer of 1, 2, 4 or 8 bytes.
  std::uint64_t number(int bytes);
  // A 64-bit length and that many bytes, which are not copied.
  std::string_view string(const char* what, std::uint64_t most = UINT64_MAX);
  void skip(std::int64_t bytes);
  // "FILE: INSIDE WHAT"
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string_view bytes_;
  const std::string& file_;
  std::string inside_ = "the header";
  std::int64_t at_ = 0;
  bool big_ = false;
};

struct GgufValue {
  std::uint32_t type = 0;
  std::uint64_t number = 0;  // the stored bits of a plain number or bool
  std::string text;
};
inline constexpr std::uint32_t kGgufU32 = 4;
const char* gguf_value_type_name(std::uint32_t type);  // "u8", ..., "array"

// Reads a value with its type. Texts: numbers in decimal, true and false, strings as they are (cut
// after 64 KiB), arrays as TYPE[COUNT] and their first elements: `i32[5]: 1, 2, 3, 4, 5`,
// `string[2]: "a", "b"`, `array[2]: [1, 2], [3]`. Arrays may be nested four deep.
GgufValue read_gguf_value(GgufCursor& cursor);

}  // namespace fp4scope
