// figures.h: from merged totals to reported figures.
#pragma once
#include <vector>

#include "analysis/metrics/totals.h"
#include "analysis/report.h"

namespace fp4scope {

// Values parallel to columns().
std::vector<Value> make_figures(const Totals& totals);
Percentiles make_percentiles(const Totals& totals);
// Fills histograms, figures and percentiles of a row.
void fill_row(Row& row, const Totals& totals);

// log2 of a positive finite double from additions, multiplications and one division, so that the
// same bits come out of every C library.
double fixed_log2(double x);

}  // namespace fp4scope
