// render.h: a finished Report as text for a person, CSV or JSON (keys: design/product.md). The
// renderers iterate columns() and compute no figure. No clock time, host name or path that the user
// did not type appears in any of them.
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

// Shortest decimal form that reads back as the same double; ".0" is appended to integers. Must be
// finite.
std::string shortest(double value);

}  // namespace fp4scope
