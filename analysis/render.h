// render.h: a finished Report as text for a person, CSV, JSON or HDF5 (keys: design/product.md).
// The renderers iterate columns() and compute no figure. No clock time, host name or path that the
// user did not type appears in any of them.
#pragma once
#include <string>
#include <vector>

#include "analysis/report.h"

namespace fp4scope {

// What a program says about itself in its reports.
struct Provenance {
  std::string version, git;
  std::vector<std::string> command;  // the arguments as typed
};

// Aligned table, then the footnotes, full recipes, sources, version and errors.
std::string render_text(const Report& report, const Provenance& provenance);
// RFC 4180 with one header line; one row per (tensor, recipe). Aggregates are in the JSON only.
std::string render_csv(const Report& report, const Provenance& provenance);
std::string render_json(const Report& report, const Provenance& provenance);
// The bytes of an HDF5 file (any version since 1.8 reads it), the same for the same report. Its
// names are the JSON keys, and nothing is lost:
//   /                    attributes layout_version (1), interrupted
//   /fp4scope            attributes version, git, command (array), threads
//   /results/0000 ...    one group per row, /aggregates/0000 likewise:
//     attributes         what the row is of, notes (array), and one per figure. Counts are int64,
//                        figures float64, flags h5py's bool; an undefined figure has a null data
//                        space (h5py.Empty), where JSON has null
//     code_histogram, scale_histogram [n], amax_exponents [n, 2], as far as the row has them
//     percentiles/       attribute sample; absolute_error, relative_error [n, 2]: percent and
//     value,
//                        NaN for an undefined one
//     maps/              attributes grid_rows, grid_cols, rows_per_cell, cols_per_cell; elements,
//                        underflow, saturated, squared_error, scale_code_sum, blocks [rows, cols]
//   /errors/0000, /skipped/0000, /sources/0000 ...   attributes
// Texts are variable-length UTF-8; only one that holds a NUL byte has a fixed length. Throws
// Error(kData) when the library cannot, as for lack of memory.
std::string render_hdf5(const Report& report, const Provenance& provenance);

// Shortest decimal form that reads back as the same double; ".0" is appended to integers. Must be
// finite.
std::string shortest(double value);

}  // namespace fp4scope
