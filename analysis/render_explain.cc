// render_explain.cc: an Explanation as text of at most 79 columns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/explain.h"
#include "analysis/io/message.h"
#include "analysis/text_table.h"

namespace fp4scope {
namespace {

constexpr std::size_t kWidth = 79;

// --- text ---

// Lines of at most kWidth bytes, broken after blanks and commas, and anywhere in longer words; the
// later ones indented.
std::string folded(std::string_view text, std::size_t indent) {
  std::string out;
  std::size_t column = 0;
  while (!text.empty()) {
    std::size_t end = std::min(text.find_first_of(" ,"), text.size() - 1) + 1;
    end = std::min(end, kWidth - indent);
    const std::string_view piece = text.substr(0, end);
    text.remove_prefix(end);
    const std::size_t visible = piece.size() - (piece.back() == ' ' ? 1 : 0);
    if (column + visible > kWidth) {
      while (out.back() == ' ') out.pop_back();
      out += '\n';
      out.append(indent, ' ');
      column = indent;
    }
    out += piece;
    column += piece.size();
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out + '\n';
}

// The shortest form where it has at most `most` characters, otherwise as many digits as fit with a
// sign and an exponent; JSON and the steps have all.
std::string cell(double v, std::size_t most) {
  const std::string exact = std::isnan(v) ? "nan" : fmt::format("{}", v);
  return exact.size() <= most ? exact : fmt::format("{:.{}g}", v, most - 6);
}
std::string cell(float v, std::size_t most) {
  const std::string exact = float_text(v);
  return exact.size() <= most ? exact : fmt::format("{:.{}g}", v, most - 6);
}

std::size_t longest_line(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    longest = std::max(longest, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}
// table(most) with the most digits that fit into the width.
template <class Table>
std::string fitted(const Table& table) {
  std::string out;
  for (std::size_t most = 14; most >= 9; --most) {
    out = table(most);
    if (longest_line(out) <= kWidth) break;
  }
  return out;
}

// An input is binary32 unless the source is binary64.
bool is_binary32(double v) {
  return static_cast<double>(static_cast<float>(v)) == v;
}
std::string input_cell(double v, std::size_t most) {
  return is_binary32(v) ? cell(static_cast<float>(v), most) : cell(v, most);
}

// First of the elements at the end of the block that are all like the last one; a run of less than
// three is none.
std::size_t repeated_from(const BlockTrace& t) {
  const std::size_t n = t.elements.size();
  const TracedElement& last = t.elements.back();
  std::size_t first = n - 1;
  const auto is_like_last = [&](std::size_t i) {
    const TracedElement& e = t.elements[i];
    const auto is_alike = [&](const TracedCandidate& c) {
      return c.codes[i] == c.codes.back() && bit_cast<std::uint32_t>(c.differences[i]) ==
                                                 bit_cast<std::uint32_t>(c.differences.back());
    };
    return bit_cast<std::uint64_t>(e.input) == bit_cast<std::uint64_t>(last.input) &&
           bit_cast<std::uint32_t>(e.scaled) == bit_cast<std::uint32_t>(last.scaled) &&
           bit_cast<std::uint32_t>(e.value) == bit_cast<std::uint32_t>(last.value) &&
           e.code == last.code && e.is_padding == last.is_padding &&
           std::all_of(t.candidates.begin(), t.candidates.end(), is_alike);
  };
  while (first > 0 && is_like_last(first - 1)) --first;
  return n - first < 3 ? n : first;
}
// "5", or "4-15" for the elements from `repeated` on.
std::string index_text(std::size_t i, std::size_t repeated, std::size_t n) {
  return i < repeated ? std::to_string(i) : fmt::format("{}-{}", i, n - 1);
}

std::string step_text(const TraceStep& step) {
  return step.what.empty() ? step.expression : step.what + ": " + step.expression;
}
// Bits of numbers; a code is in the expression of its cast.
std::string step_bits(const TraceStep& step) {
  const bool has_bits = step.is_number && step.kind != StepKind::kCast;
  return has_bits ? bits_text(step.value) : "";
}
std::string steps_text(const std::vector<TraceStep>& steps) {
  constexpr std::size_t kIndent = 4, kBits = 2 + 10;
  std::size_t longest = 0;
  for (const TraceStep& step : steps) {
    const std::size_t width = step_text(step).size();
    const bool has_place = !step_bits(step).empty() && kIndent + width + kBits <= kWidth;
    if (has_place) longest = std::max(longest, width);
  }
  std::string out;
  for (const TraceStep& step : steps) {
    std::string line = std::string(kIndent, ' ') + step_text(step);
    const std::string bits = step_bits(step);
    if (!bits.empty() && line.size() + kBits > kWidth) {
      out += folded(fmt::format("{}  {}", line, bits), kIndent + 2);
      continue;
    }
    if (!bits.empty()) line.append(kIndent + longest - (line.size()), ' ');
    out += folded(bits.empty() ? line : line + "  " + bits, kIndent + 2);
  }
  return out;
}

std::string phase_text(const TracePhase& phase, bool with_steps) {
  std::string out = folded(phase.title, 2);
  if (!phase.formula.empty()) out += folded("  " + phase.formula, 4);
  return with_steps ? out + steps_text(phase.steps) : out;
}

std::string binary_text(std::uint32_t code, int bits) {
  return fmt::format("{:0{}b}", code, bits);
}

std::string head_text(const Explanation& e) {
  std::string out = e.recipe.text;
  if (e.file.empty()) {
    out += fmt::format(" on values given as {}", e.dtype);
  } else {
    out += fmt::format(" on {}:{}", printable(e.file), printable(e.tensor));
  }
  out = folded(out, 2);
  const BlockTrace& t = e.trace;
  std::string place;
  if (!e.file.empty()) {
    place = fmt::format("{} {}, ", e.dtype, dimensions(e.shape));
  }
  place += fmt::format("row {}, block {} (columns {} to {})", e.row, e.block, e.first_col,
                       e.first_col + t.valid - 1);
  if (t.block_rows > 1) {
    place += fmt::format(", one of {} rows under the same scale", t.block_rows);
  }
  out += folded(place, 2);
  out += folded("in full: " + to_full_string(e.recipe), 2);
  for (const std::string& note : e.notes) out += folded("note: " + note, 2);
  for (const std::string& note : t.notes) out += folded("note: " + note, 2);
  if (!e.recipe.note.empty()) out += folded("note: " + std::string(e.recipe.note), 2);
  return out;
}

std::string level_table(const BlockTrace& t, std::size_t most) {
  TextTable table;
  const bool has_outer = t.levels[0].has_outer, is_tested = t.levels[0].is_tested;
  table.column("  elements", Align::kLeft);
  if (has_outer) {
    table.column("max", Align::kRight);
    if (is_tested) table.column("* R", Align::kRight);
    table.column("bit", Align::kRight);
  }
  table.column("max", Align::kRight);
  if (is_tested) table.column(has_outer ? "* R / 2^bit" : "* R", Align::kRight);
  table.column("bit", Align::kRight);
  for (std::size_t s = 0; s < t.levels[0].errors.size(); ++s) {
    table.column(fmt::format("error {}", s), Align::kRight);
  }
  for (const TracedLevel& level : t.levels) {
    std::vector<std::string> cells;
    cells.push_back(fmt::format("  {}-{}", level.first, level.first + level.count - 1));
    if (has_outer) {
      // A bit of the outer level once, on its first line.
      const bool is_new = level.first % level.outer_count == 0;
      cells.push_back(is_new ? cell(level.outer_max, most) : "");
      if (is_tested) cells.push_back(is_new ? cell(level.outer_product, most) : "");
      cells.push_back(is_new ? std::to_string(level.outer_bit) : "");
    }
    cells.push_back(cell(level.inner_max, most));
    if (is_tested) cells.push_back(cell(level.inner_product, most));
    cells.push_back(std::to_string(level.inner_bit));
    for (const float error : level.errors) cells.push_back(cell(error, most));
    table.row(std::move(cells));
  }
  return table.str();
}
std::string levels_text(const BlockTrace& t) {
  std::string out = fitted([&](std::size_t most) { return level_table(t, most); });
  if (!t.levels[0].errors.empty()) {
    out += "  error s: squared error of the elements under E * 2^s\n";
  }
  return out;
}

std::string candidate_table(const BlockTrace& t, std::size_t most) {
  TextTable table;
  table.column("    i", Align::kRight);
  table.column("input", Align::kRight);
  for (const TracedCandidate& c : t.candidates) {
    table.column(c.name, Align::kRight);
    table.column("difference", Align::kRight);
  }
  const std::size_t n = t.elements.size(), repeated = repeated_from(t);
  for (std::size_t i = 0; i < std::min(n, repeated + 1); ++i) {
    std::vector<std::string> cells{index_text(i, repeated, n),
                                   input_cell(t.elements[i].input, most)};
    for (const TracedCandidate& c : t.candidates) {
      cells.push_back(binary_text(c.codes[i], 4));
      cells.push_back(cell(c.differences[i], most));
    }
    table.row(std::move(cells));
  }
  return table.str();
}
std::string candidates_text(const BlockTrace& t) {
  std::string out = "\nboth candidates\n";
  out += fitted([&](std::size_t most) { return candidate_table(t, most); });
  for (const TracedCandidate& c : t.candidates) {
    out += folded(fmt::format("    {}: scale {} = {}, error {} ({}){}", c.name,
                              code_text(c.scale, 8), float_text(c.scale_value), float_text(c.error),
                              bits_text(c.error), c.chosen ? ", chosen" : ""),
                  6);
    if (c.row_errors.empty()) continue;
    std::string rows = fmt::format("      errors of the {} rows:", c.row_errors.size());
    for (const float error : c.row_errors) rows += fmt::format(" {}", cell(error, 11));
    out += folded(rows, 8);
  }
  return out + '\n';
}

std::string mark_of(const TracedElement& e) {
  if (e.is_padding) return "pad";
  if (e.saturated) return "sat";
  return e.tie ? "tie" : "";
}

std::string element_table(const Explanation& e, std::size_t most) {
  const BlockTrace& t = e.trace;
  const int bits = e.recipe.family == Family::kPass ? 16 : e.recipe.format.element.storage_bits();
  const bool is_wide = bits > 8;  // what the cast gets is the input then
  TextTable table;
  table.column("i", Align::kRight);
  table.column("input", Align::kRight);
  if (!is_wide) table.column("scaled", Align::kRight);
  table.column("code", Align::kLeft);
  table.column("binary", Align::kLeft);
  table.column("value", Align::kRight);
  table.column("error", Align::kRight);
  table.column("", Align::kLeft);
  const std::size_t n = t.elements.size(), repeated = repeated_from(t);
  for (std::size_t i = 0; i < std::min(n, repeated + 1); ++i) {
    const TracedElement& element = t.elements[i];
    std::vector<std::string> cells{index_text(i, repeated, n), input_cell(element.input, most)};
    if (!is_wide) cells.push_back(cell(element.scaled, most));
    cells.push_back(code_text(element.code, bits));
    cells.push_back(binary_text(element.code, bits));
    cells.push_back(cell(element.value, most));
    cells.push_back(fmt::format("{:.3g}", element.error));
    cells.push_back(mark_of(element));
    table.row(std::move(cells));
  }
  return table.str();
}

// Index of the element with the largest error.
int worst_element(const BlockTrace& t) {
  int worst = 0;
  double largest = -1;
  for (const TracedElement& e : t.elements) {
    const double error = std::isnan(e.error) ? HUGE_VAL : std::fabs(e.error);
    if (e.is_padding || !(error > largest)) continue;
    worst = e.index;
    largest = error;
  }
  return worst;
}

std::string stored_text(const BlockTrace& t) {
  std::string scales = "  scale bytes:", codes = "  codes:";
  for (const std::uint8_t byte : t.scale_bytes) scales += fmt::format(" {:02x}", byte);
  for (const std::uint8_t byte : t.packed_codes) codes += fmt::format(" {:02x}", byte);
  if (t.scale_bytes.empty()) scales += " none";
  const bool has_nibbles = static_cast<int>(t.packed_codes.size()) < t.valid;
  return "\nstored\n" + folded(scales, 4) +
         folded(codes + (has_nibbles ? " (low nibble first)" : ""), 4);
}

}  // namespace

std::string explanation_text(const Explanation& e, int element) {
  const BlockTrace& t = e.trace;
  std::string out = head_text(e) + (t.phases.empty() ? "" : "\n");
  for (const TracePhase& phase : t.phases) {
    const bool is_levels = phase.title == "level bits" || phase.title == "search=mse";
    // The table of levels has the products.
    out += phase_text(phase, phase.title != "level bits");
    if (is_levels && !t.levels.empty()) out += levels_text(t);
    if (phase.title == "choice" && !t.candidates.empty()) out += candidates_text(t);
  }
  out += "\nelements\n";
  out += fitted([&](std::size_t most) { return element_table(e, most); });
  const bool is_chosen = element >= 0 && element < static_cast<int>(t.elements.size());
  const int shown = is_chosen ? element : worst_element(t);
  out += fmt::format("\nelement {}{}, step by step\n", shown,
                     is_chosen ? "" : ", which has the largest error");
  out += steps_text(t.elements[static_cast<std::size_t>(shown)].steps);
  return out + stored_text(t);
}

}  // namespace fp4scope
