// distributions_test.cc: published error figures on synthetic tensors: the Gaussian figure of the
// HiF4 paper (spec/numbers.md 1.1 and 1.2) and the table of distributions (spec/numbers.md 2,
// design/data.md section 4). The random numbers are our own (analysis/generate.h, seed below), so
// each figure is compared within a tolerance that covers the spread between seeds. The sums are
// made here in binary64 and not by the code of the report.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "analysis/generate.h"
#include "formats/hd.h"
#include "sim/backend.h"
#include "sim/recipe.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"

using namespace fp4scope;

namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::size_t kPaperElements = std::size_t{1} << 20;  // 1024 x 1024
constexpr std::size_t kTableElements = std::size_t{1} << 22;  // 2048 x 2048

struct Figures {
  double relative_mse = 0;     // sum (x - Q(x))^2 / sum x^2
  double sqnr_db = 0;          // its inverse in dB
  double underflow_share = 0;  // nonzero elements that decode to zero, over nonzero elements
  double nonzero_rate = 0;     // decoded values other than zero, over all
};

Figures measure(const std::string& recipe_text, const std::vector<float>& x, std::int64_t cols) {
  const Recipe recipe = parse_recipe(recipe_text);
  const Backend& backend = *test::backends_for(recipe).front();  // all give the same bits
  const std::int64_t rows = std::ssize(x) / cols;
  const std::vector<OuterScale32> outer =
      test::measured_scales(backend, recipe, {x.data(), nullptr, rows, cols, cols});

  constexpr std::int64_t kTileRows = 64;
  double error = 0, signal = 0;
  std::int64_t nonzero_in = 0, nonzero_out = 0, underflow = 0;
  for (std::int64_t row = 0; row < rows; row += kTileRows) {
    const float* first = x.data() + row * cols;
    const std::int64_t tile_rows = std::min(kTileRows, rows - row);
    const std::vector<float> decoded =
        test::quantized(backend, recipe, {first, nullptr, tile_rows, cols, cols}, outer).values;
    for (std::int64_t i = 0; i < tile_rows * cols; ++i) {
      const double in = first[i], out = decoded[static_cast<std::size_t>(i)];
      error += (in - out) * (in - out);
      signal += in * in;
      nonzero_in += in != 0;
      nonzero_out += out != 0;
      underflow += in != 0 && out == 0;
    }
  }
  Figures f;
  f.relative_mse = error / signal;
  f.sqnr_db = -10 * std::log10(f.relative_mse);
  f.underflow_share = static_cast<double>(underflow) / static_cast<double>(nonzero_in);
  f.nonzero_rate = static_cast<double>(nonzero_out) / static_cast<double>(x.size());
  return f;
}

void round_to_bf16(std::vector<float>& values) {
  for (float& v : values) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(v);
    v = bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
  }
}

bool within(double got, double want, double relative) {
  return std::abs(got - want) <= relative * want;
}

const char* const kHif4Gcc = "hif4:contract=gcc";
const char* const kDirect = "nvfp4:contract=te,scale=none";
const char* const kTensor = "nvfp4:contract=te,scale=tensor";
const char* const kFloor = "mxfp4:contract=ocp-floor-rne";
const char* const kRceil = "mxfp4:contract=torchao-rceil";
const char* const kEven = "mxfp4:contract=torchao-even";

}  // namespace

TEST_CASE("Gaussian matrices of the HiF4 paper: HiF4 : NVFP4 : MXFP4 = 1 : 1.31 : 1.89") {
  // numbers.md 1.1: N(0, sigma), sigma = 0.01 * 2^x, x = 0..17, binary32 values as drawn. Between
  // seeds 1, 2 and 3 the ratios of the averages moved by 0.002, single matrices by 1 %.
  double hif4 = 0, direct = 0, tensor = 0, floor = 0, rceil = 0;
  std::vector<double> direct_ratio;
  for (int x = 0; x < 18; ++x) {
    std::vector<float> values(kPaperElements);
    generate(Distribution::kNormal, kSeed, static_cast<std::int64_t>(x * kPaperElements),
             0.01f * static_cast<float>(1 << x), values);
    const double own = measure(kHif4Gcc, values, 1024).relative_mse;
    const double without_outer = measure(kDirect, values, 1024).relative_mse;
    hif4 += own / 18;
    if (x >= 3 && x <= 16) direct += without_outer / 14;  // as the authors' script averages
    tensor += measure(kTensor, values, 1024).relative_mse / 18;
    floor += measure(kFloor, values, 1024).relative_mse / 18;
    rceil += measure(kRceil, values, 1024).relative_mse / 18;
    direct_ratio.push_back(without_outer / own);
  }
  std::printf(
      "HiF4 %.3fe-3; NVFP4 direct %.4f, with tensor scale %.4f; MXFP4 floor %.4f, "
      "rceil %.4f times that\n",
      1e3 * hif4, direct / hif4, tensor / hif4, floor / hif4, rceil / hif4);
  // Published 1.32 and 1.89, measured by an independent model 1.314-1.315 and 1.889-1.891.
  CHECK(std::abs(direct / hif4 - 1.314) < 0.01);
  CHECK(std::abs(tensor / hif4 - 1.314) < 0.01);
  CHECK(std::abs(floor / hif4 - 1.890) < 0.01);
  CHECK(within(hif4, 6.88e-3, 0.01));
  CHECK(within(tensor, 9.04e-3, 0.01));
  CHECK(within(floor, 13.0e-3, 0.01));
  // "With a ceil(amax/6) scale MXFP4 would be at 2.04": what shows that the paper used floor.
  CHECK(std::abs(rceil / hif4 - 2.04) < 0.015);
  // Without an outer scale the E4M3 scale underflows at the small end and saturates at the top.
  const std::pair<int, double> spikes[] = {{0, 2.30}, {1, 1.54}, {2, 1.35}, {17, 2.64}};
  for (const auto& [x, want] : spikes) {
    CAPTURE(x);
    CHECK(within(direct_ratio[static_cast<std::size_t>(x)], want, 0.03));
  }
}

TEST_CASE("share of values that stay nonzero for N(0, 1.75)") {
  // numbers.md 1.2, given with one decimal.
  std::vector<float> values(kTableElements);
  generate(Distribution::kNormal, kSeed, 0, 1.75f, values);
  const std::pair<const char*, double> rows[] = {{kHif4Gcc, 90.4}, {kTensor, 93.2}, {kFloor, 91.5}};
  for (const auto& [recipe, percent] : rows) {
    CAPTURE(recipe);
    CHECK(std::abs(100 * measure(recipe, values, 2048).nonzero_rate - percent) < 0.1);
  }
}

TEST_CASE("the error of MXFP4 is log-periodic in sigma, those of HiF4 and NVFP4 are flat") {
  // numbers.md 2, last paragraph: floor 12.80 to 13.94e-3 over one octave, mean 13.36e-3; HiF4 6.86
  // to 6.92e-3; NVFP4 9.07e-3. One draw of 2^20 values under 16 scales.
  std::vector<float> draw(kPaperElements), values(kPaperElements);
  generate(Distribution::kNormal, kSeed, 0, 1.0f, draw);
  struct Range {
    const char* recipe;
    double low, high, mean;  // x 1e3
  };
  const Range ranges[] = {
      {kFloor, 12.80, 13.94, 13.36}, {kHif4Gcc, 6.86, 6.92, 6.89}, {kTensor, 9.07, 9.07, 9.07}};
  for (const Range& range : ranges) {
    CAPTURE(range.recipe);
    double low = 1, high = 0, mean = 0;
    for (int step = 0; step < 16; ++step) {
      const float sigma = static_cast<float>(std::exp2(step / 16.0));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = draw[i] * sigma;
      const double mse = measure(range.recipe, values, 1024).relative_mse;
      low = std::min(low, mse);
      high = std::max(high, mse);
      mean += mse / 16;
    }
    std::printf("%s: %.2f to %.2f, mean %.2f e-3\n", range.recipe, 1e3 * low, 1e3 * high,
                1e3 * mean);
    CHECK(within(1e3 * low, range.low, 0.01));
    CHECK(within(1e3 * high, range.high, 0.01));
    CHECK(within(1e3 * mean, range.mean, 0.01));
  }
}

TEST_CASE("table of distributions: relative MSE, SQNR and underflow of five recipes") {
  struct Cell {
    double mse, sqnr_db, underflow;  // relative MSE x 1e3, dB, percent
  };
  // Tolerances, from 16 seeds (64 for t3) of 2048 x 2048 values. SQNR moved by at most 0.03 dB for
  // normal, Laplace, t5 and uniform, and by 0.06 dB for the log-normal; its underflow moved by 0.2
  // points, elsewhere by 0.1 and the table has one decimal. Under t3 the fourth moment is infinite:
  // a few elements carry a good part of the signal and of the error, and SQNR moved by 0.3 dB
  // (HiF4), 0.55 to 0.6 dB (MXFP4) and 0.7 dB (NVFP4). The published draw was not a typical one
  // (NVFP4 21.19 dB where 63 of our 64 seeds have 20.83 to 20.97), hence 0.4 dB.
  struct Row {
    Distribution distribution;
    bool bf16;
    double sqnr_tolerance, underflow_tolerance;
    Cell want[5];
  };
  // Two things about the published table, found by comparing all cells:
  // - Its "ceil" is the smallest scale that avoids saturation, ceil(log2(amax / 6)), which is
  //   scale-rule=rceil. scale-rule=ceil (E - emax + (M != 0)) wastes a binade for significands in
  //   (1, 1.5] and gives 20.7e-3 on N(0,1).
  // - Its U(-1,1) is as drawn, not rounded to BF16: see the next test.
  const char* const recipes[5] = {kFloor, kRceil, kEven, kTensor, kHif4Gcc};
  const Row rows[] = {
      {Distribution::kNormal,
       true,
       0.05,
       0.2,
       {{13.23, 18.78, 8.8},
        {13.33, 18.75, 10.7},
        {12.52, 19.02, 9.7},
        {9.05, 20.43, 6.8},
        {6.88, 21.63, 9.7}}},
      {Distribution::kLaplace,
       true,
       0.05,
       0.2,
       {{16.08, 17.94, 16.4},
        {17.49, 17.57, 21.3},
        {15.36, 18.14, 18.6},
        {8.58, 20.66, 12.8},
        {7.96, 20.99, 15.8}}},
      {Distribution::kStudent5,
       true,
       0.05,
       0.2,
       {{15.92, 17.98, 12.1},
        {17.63, 17.54, 16.2},
        {15.33, 18.14, 13.8},
        {8.54, 20.69, 9.2},
        {7.73, 21.12, 11.8}}},
      {Distribution::kStudent3,
       true,
       0.4,
       0.3,
       {{20.34, 16.92, 16.8},
        {21.70, 16.63, 22.0},
        {18.48, 17.33, 19.1},
        {7.61, 21.19, 12.1},
        {8.19, 20.87, 15.0}}},
      {Distribution::kUniform,
       false,
       0.05,
       0.2,
       {{20.76, 16.83, 3.1},
        {9.76, 20.11, 6.3},
        {9.75, 20.11, 6.2},
        {10.33, 19.86, 3.9},
        {5.11, 22.91, 6.4}}},
      {Distribution::kLogNormal,
       true,
       0.1,
       0.3,
       {{22.03, 16.57, 17.3},
        {25.54, 15.93, 24.6},
        {21.47, 16.68, 20.5},
        {8.60, 20.66, 10.4},
        {9.77, 20.10, 13.8}}},
  };
  std::vector<float> values(kTableElements);
  for (const Row& row : rows) {
    const std::string name(distribution_name(row.distribution));
    CAPTURE(name);
    generate(row.distribution, kSeed, 0, 1.0f, values);
    if (row.bf16) round_to_bf16(values);
    double got_mse[5];
    std::printf("%-9s", name.c_str());
    for (int i = 0; i < 5; ++i) {
      CAPTURE(recipes[i]);
      const Figures got = measure(recipes[i], values, 2048);
      std::printf("  %5.2f (%.2f, %.1f)", 1e3 * got.relative_mse, got.sqnr_db,
                  100 * got.underflow_share);
      const Cell& want = row.want[i];
      CHECK(std::abs(got.sqnr_db - want.sqnr_db) < row.sqnr_tolerance);
      CHECK(within(1e3 * got.relative_mse, want.mse, std::pow(10, row.sqnr_tolerance / 10) - 1));
      CHECK(std::abs(100 * got.underflow_share - want.underflow) < row.underflow_tolerance);
      got_mse[i] = got.relative_mse;
    }
    std::printf("\n");
    // What the table is for, whatever the draw: under these two heavy tails the 16-element blocks
    // of NVFP4 beat the 64-element groups of HiF4; in the other rows it is the other way round.
    const bool heavy =
        row.distribution == Distribution::kStudent3 || row.distribution == Distribution::kLogNormal;
    CHECK((got_mse[3] < got_mse[4]) == heavy);
  }
}

TEST_CASE("rounding U(-1,1) to BF16 first changes MXFP4 floor as the arithmetic says") {
  // Without rounding the block maximum lies in [1/2, 1) in all but 2^-32 of the blocks, so the
  // scale is 2^-3, and the share below its tie 2^-5 is 3.125 %, the 3.1 of the table. With rounding
  // to BF16 a value above 1 - 2^-9 becomes 1.0; that happens in 1 - (1 - 2^-9)^32 = 6.06 % of the
  // blocks, whose scale is then 2^-2 and whose underflow doubles: 3.125 * 1.0606 = 3.314 %.
  std::vector<float> values(kTableElements);
  generate(Distribution::kUniform, kSeed, 0, 1.0f, values);
  CHECK(std::abs(100 * measure(kFloor, values, 2048).underflow_share - 3.125) < 0.04);
  round_to_bf16(values);
  CHECK(std::abs(100 * measure(kFloor, values, 2048).underflow_share - 3.314) < 0.04);
}
