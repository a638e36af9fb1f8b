// render_text.cc: the report for a person. Which figures appear is the choice of columns(): those
// with a label. A tensor's name has a line of its own above its rows, so that it is never
// shortened.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "analysis/io/message.h"
#include "analysis/render.h"
#include "analysis/text_table.h"

namespace fp4scope {
namespace {

std::string percent(double share) {
  const double value = share * 100;
  if (value > 0 && value < 0.005) return "<0.01%";
  if (share < 1 && value >= 99.995) return ">99.99%";  // not everything
  return fmt::format("{:.2f}%", value);
}

std::string cell(const Column& column, const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "yes" : "no";
  if (const auto* text = std::get_if<std::string>(&value)) return printable(*text);
  if (const auto* count = std::get_if<std::int64_t>(&value)) {
    return column.kind == FigureKind::kShare ? percent(static_cast<double>(*count))
                                             : std::to_string(*count);
  }
  const auto* figure = std::get_if<double>(&value);
  if (figure == nullptr || !std::isfinite(*figure)) return "-";
  if (column.kind == FigureKind::kShare) return percent(*figure);
  // Decibels and bits are read as such; everything else as a magnitude.
  if (column.key.ends_with("_db") || column.key.ends_with("_bits")) {
    return fmt::format("{:.2f}", *figure);
  }
  return fmt::format("{:.4g}", *figure);
}

// Distinct texts in order of first use, numbered from 1.
class Footnotes {
 public:
  std::string mark(const std::vector<std::string>& notes) {
    std::string out;
    for (const std::string& note : notes) {
      auto at = std::find(notes_.begin(), notes_.end(), note);
      if (at == notes_.end()) at = notes_.insert(at, note);
      out += fmt::format("[{}]", at - notes_.begin() + 1);
    }
    return out;
  }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::vector<std::string> notes_;
};

void add_row(const Row& row, Footnotes& footnotes, TextTable& table) {
  std::vector<std::string> cells = {"  " + printable(row.recipe)};
  for (std::size_t i = 0; i < columns().size(); ++i) {
    if (columns()[i].label.empty()) continue;
    cells.push_back(i < row.figures.size() ? cell(columns()[i], row.figures[i]) : "-");
  }
  cells.push_back(footnotes.mark(row.notes));
  table.row(std::move(cells));
}

// A heading above the rows that share it.
void add_rows(const std::vector<Row>& rows, const std::function<std::string(const Row&)>& heading,
              Footnotes& footnotes, TextTable& table) {
  std::string previous;
  for (const Row& row : rows) {
    std::string text = heading(row);
    if (text != previous) table.full_line(text);
    previous = std::move(text);
    add_row(row, footnotes, table);
  }
}

std::string tensor_heading(const Row& row, bool several_files) {
  return fmt::format("{}{}, {} {}{}", several_files ? printable(row.file) + ":" : "",
                     printable(row.tensor), row.dtype, dimensions(row.shape),
                     row.source_hash.empty() ? "" : ", xxh3 " + row.source_hash);
}
std::string aggregate_heading(const Row& row) {
  return fmt::format("{}, {} tensor{}", row.group.empty() ? "all" : printable(row.group),
                     row.tensors, row.tensors == 1 ? "" : "s");
}

// Each recipe once, with every default spelled out and the backend that ran it.
std::string recipe_lines(const Report& report) {
  std::string out;
  std::vector<std::string> seen;
  for (const Row& row : report.results) {
    const std::string line =
        fmt::format("  {} = {} [{}]\n", printable(row.recipe), row.recipe_full, row.backend);
    if (std::find(seen.begin(), seen.end(), line) != seen.end()) continue;
    seen.push_back(line);
    out += line;
  }
  return out.empty() ? out : "recipes\n" + out;
}

}  // namespace

std::string render_text(const Report& report, const Provenance& provenance) {
  TextTable table;
  Footnotes footnotes;
  table.column("  recipe", Align::kLeft);
  for (const Column& column : columns()) {
    if (!column.label.empty()) table.column(column.label, Align::kRight);
  }
  table.column("", Align::kLeft);
  const bool several_files = report.sources.size() > 1;
  add_rows(
      report.results, [&](const Row& row) { return tensor_heading(row, several_files); }, footnotes,
      table);
  if (!report.aggregates.empty()) table.rule();
  add_rows(report.aggregates, aggregate_heading, footnotes, table);

  std::string out;
  if (!table.empty()) out += table.str() + '\n';
  int number = 0;
  for (const std::string& note : footnotes.notes()) {
    out += fmt::format("[{}] {}\n", ++number, printable(note));
  }
  if (number > 0) out += '\n';
  out += recipe_lines(report);
  if (!report.sources.empty()) out += "sources\n";
  for (const Report::Source& source : report.sources) {
    out += fmt::format("  {} ({}, {} bytes)\n", printable(source.path), source.container,
                       source.bytes);
  }
  out += fmt::format("fp4scope {} ({}), {} thread{}\n", provenance.version, provenance.git,
                     report.threads, report.threads == 1 ? "" : "s");
  if (report.interrupted) out += "interrupted: tensors that were not finished are missing\n";
  if (!report.skipped.empty()) out += "\nskipped\n";
  for (const ErrorRecord& tensor : report.skipped) {
    out += fmt::format("  {}\n", printable(tensor.message));
  }
  if (!report.errors.empty()) out += "\nerrors\n";
  for (const ErrorRecord& error : report.errors) {
    out += fmt::format("  {}\n", printable(error.message));
  }
  return out;
}

}  // namespace fp4scope
