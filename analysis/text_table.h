// text_table.h: aligned columns for people, shared by the report and the small verbs of tools/.
// Cells are printed as they are: names from files go through printable() (io/message.h) first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fp4scope {

// The texts with `separator` between them.
std::string joined(const std::vector<std::string>& texts, std::string_view separator);

// "256x512"; "scalar" for a 0-d tensor.
std::string dimensions(const std::vector<std::int64_t>& shape);

enum class Align { kLeft, kRight };

class TextTable {
 public:
  void column(std::string_view heading, Align align);
  // One cell per column; missing cells at the end are empty.
  void row(std::vector<std::string> cells);
  void rule();                       // a line of dashes
  void full_line(std::string text);  // runs across all columns and does not widen them
  bool empty() const { return lines_.empty(); }
  // Two spaces between columns, no spaces at line ends.
  std::string str() const;

 private:
  struct Line {
    enum class Kind { kCells, kRule, kFull } kind;
    std::vector<std::string> cells;
  };
  std::vector<std::string> headings_;
  std::vector<Align> aligns_;
  std::vector<Line> lines_;
};

// `lead`, padded to `indent` columns, then `text` in lines of at most `width` bytes, the later ones
// indented alike; ends with a newline. Breaks at blanks, and after '|' of lists without blanks.
std::string wrapped(std::string_view lead, std::string_view text, std::size_t indent,
                    std::size_t width = 79);

}  // namespace fp4scope
