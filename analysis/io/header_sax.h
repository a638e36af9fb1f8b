// header_sax.h: base of the SAX readers of JSON headers. It maps the many callbacks of the JSON
// library to the few that matter and can skip a value of any nesting. Callbacks throw Error to
// stop.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace fp4scope {

class HeaderSax {
 public:
  virtual ~HeaderSax() = default;

  virtual bool scalar(const char* what) = 0;  // "null", "a boolean", "a negative number", ...
  virtual bool number_unsigned(std::uint64_t value) = 0;
  virtual bool string(std::string& value) = 0;
  virtual bool start_object() = 0;
  virtual bool end_object() = 0;
  virtual bool start_array() = 0;
  virtual bool end_array() = 0;
  virtual bool key(std::string& name) = 0;
  virtual bool malformed(std::size_t position) = 0;

  bool skipping() const { return skip_depth_ > 0; }
  void skip() { skip_depth_ = 1; }
  // For the adapter: one level down or up inside a skipped value.
  void nest(int step) { skip_depth_ += step; }

 private:
  std::int64_t skip_depth_ = 0;
};

// For messages, with the position that malformed() gets: "byte 21 behind "{"dtype":"F32",}"".
std::string json_place(std::string_view text, std::size_t position);

// `text` has to be one JSON value, blanks around it allowed. Throws what the callbacks throw.
void parse_json_header(std::string_view text, HeaderSax& sax);

}  // namespace fp4scope
