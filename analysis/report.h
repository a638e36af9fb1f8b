// report.h: what a finished analysis holds, as plain data. Renderers (render.h) turn it into text,
// CSV or JSON; no figure is computed there. Keys are those of the JSON output and never renamed.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fp4scope {

// An undefined figure is std::monostate and prints as null.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

// What the names of file and tensor say about a tensor (name_pattern.h), in this order: an integer
// where the name has one, else text; monostate where it says nothing.
inline constexpr std::array<std::string_view, 5> kNameFields = {"layer", "step", "rank", "expert",
                                                                "role"};
using NameFields = std::array<Value, kNameFields.size()>;

// Integer counts and error sums per cell of a grid laid over a tensor: cell (r, c) covers
// `rows_per_cell` rows and `cols_per_cell` columns (a multiple of the block).
struct Maps {
  std::int64_t grid_rows = 0, grid_cols = 0;
  std::int64_t rows_per_cell = 0, cols_per_cell = 0;
  std::vector<std::int64_t> elements;        // finite elements
  std::vector<std::int64_t> underflow;       // counts
  std::vector<std::int64_t> saturated;       // counts
  std::vector<double> squared_error;         // sums
  std::vector<std::int64_t> scale_code_sum;  // sum of the block scale bytes
  std::vector<std::int64_t> blocks;
};

struct Percentiles {
  // (percent, value); the value is the lower edge of a histogram bin 2^-5 wide, relative to it.
  std::vector<std::pair<double, Value>> absolute_error, relative_error;
  std::string sample;  // "every 16th strip of 64 blocks of each tile", "all elements"
};

// One (tensor, recipe) pair, or an aggregate over several tensors.
struct Row {
  std::string file, tensor, dtype;
  std::vector<std::int64_t> shape;
  NameFields fields;             // aggregates of --group-fields: what their tensors share
  std::string source_hash;       // XXH3-64 of the tensor's bytes, hex, tile by tile
  std::string recipe;            // as typed
  std::string recipe_canonical;  // shortest equal form
  std::string recipe_full;       // every key spelled out
  std::string backend;
  std::vector<std::string> notes;
  std::string group;         // aggregates of a group: its name, "" for all tensors
  std::int64_t tensors = 1;  // aggregates: how many tensors were merged

  // Scalar figures in the order of columns(); parallel to it.
  std::vector<Value> figures;
  const Value& figure(std::string_view key) const;  // throws std::out_of_range on an unknown key

  std::vector<std::int64_t> code_histogram;   // by element code
  std::vector<std::int64_t> scale_histogram;  // by scale byte (HiF4: the E6M2 byte)
  // Counts of blocks by floor(log2(amax)): (exponent, count), ascending; zero blocks apart.
  std::vector<std::pair<int, std::int64_t>> amax_exponents;
  Percentiles percentiles;
  Maps maps;  // grid_rows == 0 when not asked for
};

enum class FigureKind { kCount, kFigure, kShare, kFlag };
struct Column {
  std::string_view key;    // JSON and CSV
  std::string_view label;  // heading of the text table; empty: not in the default table
  FigureKind kind;
  std::string_view meaning;  // one sentence, for --help and the README
};
// Declared once, in analysis/metrics/columns.cc.
std::span<const Column> columns();
// Index of a key, or -1.
int column_index(std::string_view key);

struct ErrorRecord {
  std::string file, tensor, message;
  int exit_code = 3;
};

struct Report {
  std::vector<Row> results;     // tensors in input order, recipes in command-line order within each
  std::vector<Row> aggregates;  // per recipe over all tensors, then per group
  std::vector<ErrorRecord> errors;
  std::vector<ErrorRecord>
      skipped;  // tensors that hold no real numbers, with the reason; exit code 0
  struct Source {
    std::string path, container;
    std::int64_t bytes = 0;
  };
  std::vector<Source> sources;
  std::vector<std::string> unused_includes = {};  // patterns of --include that match no tensor name
  std::vector<std::string> warnings;  // sentences about options and operands, for stderr alone
  int threads = 1;                    // that ran: --memory may allow fewer than asked for
  bool interrupted = false;
};

}  // namespace fp4scope
