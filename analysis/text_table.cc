// text_table.cc: see text_table.h.
#include "analysis/text_table.h"

#include <algorithm>
#include <cstdint>

namespace fp4scope {
namespace {

// Characters of well-formed UTF-8, one column each; wide and combining characters are not treated.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string joined(const std::vector<std::string>& texts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) out += separator;
    out += texts[i];
  }
  return out;
}

std::string dimensions(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : shape) sizes.push_back(std::to_string(size));
  return shape.empty() ? "scalar" : joined(sizes, "x");
}

void TextTable::column(std::string_view heading, Align align) {
  headings_.emplace_back(heading);
  aligns_.push_back(align);
}
void TextTable::row(std::vector<std::string> cells) {
  cells.resize(headings_.size());
  lines_.push_back({Line::Kind::kCells, std::move(cells)});
}
void TextTable::rule() {
  lines_.push_back({Line::Kind::kRule, {}});
}
void TextTable::full_line(std::string text) {
  lines_.push_back({Line::Kind::kFull, {std::move(text)}});
}

std::string TextTable::str() const {
  std::vector<std::size_t> widths;
  for (const std::string& heading : headings_) widths.push_back(width(heading));
  for (const Line& line : lines_) {
    if (line.kind != Line::Kind::kCells) continue;
    for (std::size_t c = 0; c < line.cells.size(); ++c) {
      widths[c] = std::max(widths[c], width(line.cells[c]));
    }
  }
  std::size_t total = 0;
  for (const std::size_t w : widths) total += w + 2;
  std::string out;
  const auto emit_cells = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string padding(widths[c] - width(cells[c]), ' ');
      if (c > 0) line += "  ";
      line += aligns_[c] == Align::kRight ? padding + cells[c] : cells[c] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  if (std::any_of(headings_.begin(), headings_.end(), [](const auto& h) { return !h.empty(); })) {
    emit_cells(headings_);
  }
  for (const Line& line : lines_) {
    switch (line.kind) {
      case Line::Kind::kCells:
        emit_cells(line.cells);
        break;
      case Line::Kind::kRule:
        out += std::string(total > 2 ? total - 2 : 0, '-') + '\n';
        break;
      case Line::Kind::kFull:
        out += line.cells[0] + '\n';
        break;
    }
  }
  return out;
}

std::string wrapped(std::string_view lead, std::string_view text, std::size_t indent,
                    std::size_t width) {
  std::string out(lead);
  std::size_t column = out.size();
  if (column < indent) {
    out.append(indent - column, ' ');
    column = indent;
  }
  bool at_start = true;
  while (!text.empty()) {
    // The next piece that may not be broken, with the blank or '|' that ends it.
    const std::size_t end = std::min(text.find_first_of(" |"), text.size() - 1) + 1;
    const std::string_view piece = text.substr(0, end);
    text.remove_prefix(end);
    const std::size_t visible = piece.size() - (piece.back() == ' ' ? 1 : 0);
    if (!at_start && column + visible > width) {
      if (out.back() == ' ') out.pop_back();
      out += '\n';
      out.append(indent, ' ');
      column = indent;
    }
    out += piece;
    column += piece.size();
    at_start = false;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out + '\n';
}

}  // namespace fp4scope
