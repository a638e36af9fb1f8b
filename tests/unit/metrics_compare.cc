// metrics_compare.cc: a row of a report against the figures of metrics_reference.h, and two rows
// against each other. Error figures and counts are compared exactly, logarithms within 1e-12.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "tests/unit/metrics_reference.h"

namespace fp4scope::test {
namespace {

std::string text_of(const Value& v) {
  char buffer[64];
  if (std::holds_alternative<std::monostate>(v)) return "null";
  if (const bool* b = std::get_if<bool>(&v)) return *b ? "true" : "false";
  if (const std::int64_t* i = std::get_if<std::int64_t>(&v)) return std::to_string(*i);
  if (const std::string* s = std::get_if<std::string>(&v)) return *s;
  std::snprintf(buffer, sizeof buffer, "%a (%.17g)", std::get<double>(v), std::get<double>(v));
  return buffer;
}

// tolerance 0: the same bits, except that +0 and -0 are one number.
bool same(const Value& got, const Value& want, double tolerance) {
  if (got.index() != want.index()) return false;
  const double* g = std::get_if<double>(&got);
  if (g == nullptr) return got == want;
  const double w = std::get<double>(want);
  return *g == w || std::fabs(*g - w) <= tolerance * std::fabs(w);
}

double entropy(const std::vector<std::int64_t>& histogram) {
  double total = 0, bits = 0;
  for (const std::int64_t c : histogram) total += static_cast<double>(c);
  for (const std::int64_t c : histogram) {
    if (c > 0) {
      const double p = static_cast<double>(c) / total;
      bits -= p * std::log2(p);
    }
  }
  return bits;
}

template <class T>
std::string list_text(const std::vector<T>& v) {
  std::string out = "[";
  for (std::size_t i = 0; i < v.size() && i < 40; ++i) out += std::to_string(v[i]) + " ";
  return out + "]";
}

// The histograms of a report may be longer than the last code that can occur.
bool same_histogram(std::vector<std::int64_t> got, std::vector<std::int64_t> want) {
  const std::size_t n = std::max(got.size(), want.size());
  got.resize(n);
  want.resize(n);
  return got == want;
}

// `edge` must be the lower edge of a bin of relative width 2^-5 at most that holds `exact`: a
// binary32 number with five fraction bits. One binary32 rounding of `exact` is allowed for.
bool in_bin(double edge, double exact) {
  const float e = static_cast<float>(edge);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(e);
  if (e != edge || (bits & 0x3FFFFu) != 0) return false;
  const double next = std::bit_cast<float>(bits + 0x40000u);
  return edge <= exact * (1 + 0x1p-23) && exact * (1 - 0x1p-23) < next;
}

void compare_percentiles(const std::vector<std::pair<double, Value>>& got,
                         const std::vector<double>& sorted, const char* what,
                         std::vector<std::string>& out) {
  if (got.empty()) out.push_back(std::string(what) + ": no percentiles");
  for (const auto& [percent, value] : got) {
    const std::string name = std::string(what) + " p" + std::to_string(percent);
    if (sorted.empty()) {
      if (!std::holds_alternative<std::monostate>(value))
        out.push_back(name + ": got " + text_of(value) + ", want null");
      continue;
    }
    // Nearest rank ceil(N * percent / 100) in integers: percents have at most one decimal.
    const auto count = static_cast<std::int64_t>(sorted.size());
    const std::int64_t rank = (count * std::llround(percent * 10) + 999) / 1000;
    const double exact = sorted[static_cast<std::size_t>(std::max<std::int64_t>(rank, 1)) - 1];
    const double* edge = std::get_if<double>(&value);
    if (edge == nullptr || !in_bin(*edge, exact))
      out.push_back(name + ": got " + text_of(value) + ", want the bin of " + text_of(exact));
  }
}

}  // namespace

std::vector<std::string> differences(const Row& row, const Expected& e) {
  std::vector<std::string> out;
  const Value null;
  const auto check = [&](const char* key, const Value& want, double tolerance = 0) {
    const Value& got = row.figure(key);
    if (!same(got, want, tolerance))
      out.push_back(std::string(key) + ": got " + text_of(got) + ", want " + text_of(want));
  };
  const auto count = [&](const char* key) { return e.counts.at(key); };
  const auto ratio = [&](std::int64_t a, std::int64_t b) {
    return b == 0 ? Value{} : Value{static_cast<double>(a) / static_cast<double>(b)};
  };
  for (const auto& [key, want] : e.counts) {
    check(key.c_str(), want);
  }
  check("saturated_share", ratio(count("saturated"), e.finite));
  check("underflow_share", ratio(count("underflow"), count("nonzero")));
  check("underflow_share_all", ratio(count("underflow"), count("elements")));

  const double n = static_cast<double>(e.counted);
  const bool any = e.counted > 0, exact = e.inexact == 0;
  const double mse = e.sums.dd / n, power = e.sums.xx / n;
  check("amax", e.finite > 0 ? Value{e.amax} : null);
  check("mse", any ? Value{mse} : null);
  check("mae", any ? Value{e.sums.ad / n} : null);
  check("bias", any ? Value{e.sums.d / n} : null);
  check("max_abs_err", any ? Value{e.max_abs_err} : null);
  check("exact", any ? Value{exact} : null);
  const bool signal = any && power > 0;
  // The ratio of the means is that of the sums, with one rounding.
  check("nmse", signal ? Value{e.sums.dd / e.sums.xx} : null);
  check("cosine", signal && e.sums.vv > 0
                      ? Value{e.sums.vx / (std::sqrt(e.sums.xx) * std::sqrt(e.sums.vv))}
                      : null);
  check("sqnr_db", signal && !exact ? Value{10 * std::log10(power / mse)} : null, 1e-12);
  check("effective_bits", signal && !exact ? Value{0.5 * std::log2(power / mse)} : null, 1e-12);
  // Block sums of squares are binary32, hence the tolerance.
  check("crest_mean",
        e.nonzero_blocks > 0 ? Value{e.sums.crest / static_cast<double>(e.nonzero_blocks)} : null,
        1e-6);
  check("crest_max", e.nonzero_blocks > 0 ? Value{e.crest_max} : null, 1e-6);
  const bool elements = count("elements") > 0;
  const auto close_entropy = [&](const char* key, const std::vector<std::int64_t>& histogram) {
    const Value& got = row.figure(key);
    const double* g = std::get_if<double>(&got);
    const double want = entropy(histogram);
    if (elements ? g == nullptr || std::fabs(*g - want) > 1e-12 * std::max(1.0, want)
                 : g != nullptr)
      out.push_back(std::string(key) + ": got " + text_of(got) + ", want " + text_of(want));
  };
  close_entropy("code_entropy", e.codes);
  close_entropy("scale_entropy", e.scales);
  check("level2_share", ratio(e.level2_set, e.level2_bits));
  check("level3_share", ratio(e.level3_set, e.level3_bits));

  if (!same_histogram(row.code_histogram, e.codes))
    out.push_back("code_histogram: got " + list_text(row.code_histogram) + ", want " +
                  list_text(e.codes));
  if (!same_histogram(row.scale_histogram, e.scales)) out.push_back("scale_histogram differs");
  const std::vector<std::pair<int, std::int64_t>> exponents(e.amax_exponents.begin(),
                                                            e.amax_exponents.end());
  if (row.amax_exponents != exponents) {
    std::string text = "amax_exponents: got";
    const auto append = [&text](const std::vector<std::pair<int, std::int64_t>>& list) {
      for (const auto& [exponent, blocks] : list) {
        text.append(" ").append(std::to_string(exponent));
        text.append(":").append(std::to_string(blocks));
      }
    };
    append(row.amax_exponents);
    text += ", want";
    append(exponents);
    out.push_back(text);
  }
  compare_percentiles(row.percentiles.absolute_error, e.absolute_sample, "absolute error", out);
  compare_percentiles(row.percentiles.relative_error, e.relative_sample, "relative error", out);
  return out;
}

std::vector<std::string> map_differences(const Maps& m, const Expected& e) {
  std::vector<std::string> out;
  if (m.grid_rows <= 0 || m.rows_per_cell <= 0 || m.cols_per_cell <= 0) return {"no map"};
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  if (m.cols_per_cell % e.block != 0) out.push_back("cell width is no multiple of the block");
  if (m.grid_rows != ceil_div(e.rows, m.rows_per_cell) ||
      m.grid_cols != ceil_div(e.cols, m.cols_per_cell))
    return {"the grid does not cover the tensor"};
  const auto cells = static_cast<std::size_t>(m.grid_rows * m.grid_cols);
  std::vector<std::int64_t> elements(cells), underflow(cells), saturated(cells), scale(cells),
      blocks(cells);
  std::vector<double> squared(cells);
  for (std::int64_t r = 0; r < e.rows; ++r) {
    const auto cell_of = [&](std::int64_t c) {
      return static_cast<std::size_t>(r / m.rows_per_cell * m.grid_cols + c / m.cols_per_cell);
    };
    for (std::int64_t c = 0; c < e.cols; ++c) {
      const auto i = static_cast<std::size_t>(r * e.cols + c);
      elements[cell_of(c)] += e.finite_at[i];
      underflow[cell_of(c)] += e.underflow_at[i];
      saturated[cell_of(c)] += e.saturated_at[i];
    }
    for (std::int64_t b = 0; b < e.blocks_per_row; ++b) {
      const auto i = static_cast<std::size_t>(r * e.blocks_per_row + b);
      squared[cell_of(b * e.block)] += e.block_dd[i];
      scale[cell_of(b * e.block)] += e.block_scale[i];
      ++blocks[cell_of(b * e.block)];
    }
  }
  const auto check = [&](const char* what, const std::vector<std::int64_t>& got,
                         const std::vector<std::int64_t>& want) {
    if (got != want)
      out.push_back(std::string("map ") + what + ": got " + list_text(got) + ", want " +
                    list_text(want));
  };
  check("elements", m.elements, elements);
  check("underflow", m.underflow, underflow);
  check("saturated", m.saturated, saturated);
  check("scale_code_sum", m.scale_code_sum, scale);
  check("blocks", m.blocks, blocks);
  if (m.squared_error.size() != cells) {
    out.push_back("map squared_error: wrong size");
  } else {
    for (std::size_t i = 0; i < cells; ++i) {
      if (std::fabs(m.squared_error[i] - squared[i]) > 1e-12 * squared[i])
        out.push_back("map squared_error of cell " + std::to_string(i) + ": got " +
                      text_of(m.squared_error[i]) + ", want " + text_of(squared[i]));
    }
  }
  return out;
}

std::vector<std::string> row_differences(const Row& a, const Row& b) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < columns().size(); ++i) {
    if (a.figures[i] != b.figures[i])
      out.push_back(std::string(columns()[i].key) + ": " + text_of(a.figures[i]) + " and " +
                    text_of(b.figures[i]));
  }
  const auto check = [&](const char* what, bool equal) {
    if (!equal) out.push_back(std::string(what) + " differs");
  };
  check("tensor", a.tensor == b.tensor);
  check("shape", a.shape == b.shape);
  check("source_hash", a.source_hash == b.source_hash);
  check("recipe_full", a.recipe_full == b.recipe_full);
  check("notes", a.notes == b.notes);
  check("code_histogram", a.code_histogram == b.code_histogram);
  check("scale_histogram", a.scale_histogram == b.scale_histogram);
  check("amax_exponents", a.amax_exponents == b.amax_exponents);
  check("absolute percentiles", a.percentiles.absolute_error == b.percentiles.absolute_error);
  check("relative percentiles", a.percentiles.relative_error == b.percentiles.relative_error);
  check("sample", a.percentiles.sample == b.percentiles.sample);
  check("map grid", a.maps.grid_rows == b.maps.grid_rows && a.maps.grid_cols == b.maps.grid_cols);
  check("map elements", a.maps.elements == b.maps.elements);
  check("map underflow", a.maps.underflow == b.maps.underflow);
  check("map saturated", a.maps.saturated == b.maps.saturated);
  check("map squared_error", a.maps.squared_error == b.maps.squared_error);
  check("map scale_code_sum", a.maps.scale_code_sum == b.maps.scale_code_sum);
  check("map blocks", a.maps.blocks == b.maps.blocks);
  return out;
}

std::string join(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += "\n    " + line;
  return out;
}

}  // namespace fp4scope::test
