// generate_ties_test.cc: tie-aligned tensors against the exact oracle: the share of elements whose
// scaled magnitude is a midpoint of the format's code table, and that nearly all others change
// their code within a few ulps.
#include "analysis/generate_ties.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "analysis/analyze.h"
#include "analysis/generate_file.h"
#include "sim/element.h"
#include "sim/error.h"
#include "tests/support/paths.h"

using namespace fp4scope;

namespace {

constexpr std::int64_t kRows = 32, kCols = 1024;

struct TieCase {
  const char* recipe;
  DType dtype;
  double ties;  // least share of exact ties
};

// Midpoints in the element's own units, from the formats' definitions.
std::vector<double> midpoints(const std::string& recipe) {
  std::vector<double> codes;
  if (recipe.starts_with("mxfp4") || recipe.starts_with("nvfp4")) {
    codes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};  // E2M1
  } else if (recipe.starts_with("hif4")) {
    for (int i = 0; i < 8; ++i) codes.push_back(i / 4.0);  // S1P2
  } else if (recipe.starts_with("int4")) {
    for (int i = 0; i < 8; ++i) codes.push_back(i);
  } else {  // E4M3
    for (int code = 0; code < 127; ++code) {
      const int field = code >> 3, fraction = code & 7;
      codes.push_back(field == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, field - 10));
    }
  }
  std::vector<double> middles;
  for (std::size_t i = 0; i + 1 < codes.size(); ++i)
    middles.push_back((codes[i] + codes[i + 1]) / 2);
  return middles;
}

struct Generated {
  std::vector<float> values;
  GeneratedTensor made;
};
Generated generate(const char* recipe, DType dtype, int threads = 2) {
  test::TempDir folder;
  GenerateOptions options;
  options.kind = GeneratedKind::kTieAligned;
  options.recipe = parse_recipe(recipe);
  options.dtype = dtype;
  options.shape = {kRows, kCols};
  options.seed = 5;
  options.threads = threads;
  Generated out;
  out.made = generate_file(folder.file("x.safetensors"), options).tensors[0];
  const auto source = open_source(folder.file("x.safetensors"));
  out.values.resize(kRows * kCols);
  source->read_f32(source->tensors()[0], 0, kRows, 0, kCols, out.values.data());
  return out;
}

float amax_of_range(const float* x, std::int64_t n) {
  float amax = 0;
  for (std::int64_t i = 0; i < n; ++i) amax = std::max(amax, std::abs(x[i]));
  return amax;
}

struct Quantized {
  std::vector<OuterScale32> outer;
  QuantizedTile tile;
};
Quantized by_oracle(const Recipe& recipe, const std::vector<float>& x, DType dtype) {
  Quantized out;
  const Tile tile{x.data(), nullptr, kRows,
                  kCols,    kCols,   dtype == DType::kBF16 ? SourceType::kBf16 : SourceType::kF32};
  for (std::int64_t r = 0; r < (recipe.scales_rows() ? kRows : 1); ++r) {
    const float amax = recipe.scales_rows() ? amax_of_range(x.data() + r * kCols, kCols)
                                            : amax_of_range(x.data(), kRows * kCols);
    out.outer.push_back(oracle_backend().outer_scale(recipe, std::bit_cast<std::uint32_t>(amax)));
  }
  oracle_backend().quantize(recipe, tile, out.outer, out.tile);
  return out;
}

double tie_share(const Recipe& recipe, const std::vector<double>& middles,
                 const std::vector<float>& x, DType dtype) {
  const Quantized q = by_oracle(recipe, x, dtype);
  const std::int64_t block = recipe.format.block;
  std::int64_t ties = 0;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kCols; ++c) {
      const std::int64_t b = r * q.tile.blocks_per_row + c / block;
      const double y = scaled_magnitude(
          recipe, q.outer[recipe.scales_rows() ? static_cast<std::size_t>(r) : 0],
          q.tile.scales.data() + b * recipe.format.scale_bytes,
          !q.tile.choices.empty() && q.tile.choices[static_cast<std::size_t>(b)] != 0,
          static_cast<int>(c % block), x[static_cast<std::size_t>(r * kCols + c)]);
      ties += std::find(middles.begin(), middles.end(), y) != middles.end();
    }
  }
  return static_cast<double>(ties) / (kRows * kCols);
}

// Share of the elements below the amax of their finest group whose code changes between `ulps`
// below and `ulps` above.
double edge_share(const Recipe& recipe, const std::vector<float>& x, DType dtype,
                  std::int64_t group, std::uint32_t ulps) {
  const std::uint32_t distance = dtype == DType::kBF16 ? ulps << 16 : ulps;
  std::vector<float> low = x, high = x;
  std::vector<std::size_t> moved;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto first = static_cast<std::int64_t>(i) / group * group;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x[i]);
    const float up = std::bit_cast<float>(bits + distance);
    if (x[i] == 0 || std::abs(up) > amax_of_range(x.data() + first, group)) continue;
    low[i] = std::bit_cast<float>(bits - distance);
    high[i] = up;
    moved.push_back(i);
  }
  const Quantized a = by_oracle(recipe, low, dtype), b = by_oracle(recipe, high, dtype);
  std::size_t differ = 0;
  for (const std::size_t i : moved) differ += a.tile.codes[i] != b.tile.codes[i];
  REQUIRE(moved.size() > x.size() / 2);
  return static_cast<double>(differ) / static_cast<double>(moved.size());
}

}  // namespace

TEST_CASE("shares of exact ties under the exact oracle") {
  for (const TieCase& c : {
           TieCase{"mxfp4", DType::kF32, 0.45},
           TieCase{"mxfp4", DType::kBF16, 0.45},
           TieCase{"mxfp4:contract=ocp-floor-rne", DType::kBF16, 0.45},
           TieCase{"mxfp8e4m3", DType::kF32, 0.45},
           TieCase{"nvfp4", DType::kF32, 0.4},
           TieCase{"nvfp4", DType::kBF16, 0.33},
           TieCase{"nvfp4:contract=flashinfer", DType::kF32, 0.4},
           TieCase{"nvfp4:scale=row", DType::kF32, 0.4},
           TieCase{"nvfp4:scale=none", DType::kF32, 0.4},
           TieCase{"nvfp4:block=2d", DType::kF32, 0.4},
           TieCase{"nvfp4:select=mse", DType::kF32, 0.06},
           TieCase{"hif4", DType::kF32, 0.3},
           TieCase{"hif4", DType::kBF16, 0.3},
           TieCase{"int4", DType::kF32, 0.45},
           TieCase{"int4", DType::kBF16, 0.4},
           TieCase{"fp8", DType::kF32, 0.45},
           TieCase{"fp8", DType::kBF16, 0.33},
           TieCase{"fp8:contract=deepgemm", DType::kBF16, 0.45},
       }) {
    CAPTURE(std::string(c.recipe));
    CAPTURE(dtype_name(c.dtype));
    const Recipe recipe = parse_recipe(c.recipe);
    const Generated x = generate(c.recipe, c.dtype);
    const double share = tie_share(recipe, midpoints(c.recipe), x.values, c.dtype);
    CHECK(share > c.ties);
    // What the program prints is what the oracle finds.
    CHECK(static_cast<double>(x.made.ties->ties) / (kRows * kCols) == share);
    CHECK(x.made.ties->elements == kRows * kCols);
  }
}

TEST_CASE("nearly every element below an anchor changes its code within a few ulps") {
  struct EdgeCase {
    const char* recipe;
    DType dtype;
    std::int64_t group;
    std::uint32_t ulps;  // where products are rounded, several values are scaled to one tie
    double share;
  };
  for (const EdgeCase& c : {
           EdgeCase{"mxfp4", DType::kF32, 32, 4, 0.99},
           EdgeCase{"mxfp4", DType::kBF16, 32, 2, 0.99},
           EdgeCase{"nvfp4", DType::kF32, 16, 4, 0.99},
           EdgeCase{"nvfp4", DType::kBF16, 16, 2, 0.99},
           EdgeCase{"hif4", DType::kF32, 4, 4, 0.99},
           EdgeCase{"hif4", DType::kBF16, 4, 2, 0.99},
           EdgeCase{"fp8", DType::kF32, 128, 4, 0.99},
           EdgeCase{"fp8:contract=deepgemm", DType::kF32, 128, 4, 0.99},
       }) {
    CAPTURE(std::string(c.recipe));
    CAPTURE(dtype_name(c.dtype));
    const Generated x = generate(c.recipe, c.dtype);
    CHECK(edge_share(parse_recipe(c.recipe), x.values, c.dtype, c.group, c.ulps) > c.share);
  }
}

TEST_CASE("the amax is the first element and nothing is above it") {
  for (const char* recipe : {"nvfp4", "nvfp4:scale=row", "mxfp4", "hif4", "fp8"}) {
    CAPTURE(recipe);
    const Generated x = generate(recipe, DType::kF32);
    const float amax = std::abs(x.values[0]);
    CHECK(amax_of_range(x.values.data(), kRows * kCols) == amax);
    if (std::string(recipe) != "nvfp4:scale=row") continue;
    for (std::int64_t r = 0; r < kRows; ++r)
      CHECK(std::abs(x.values[static_cast<std::size_t>(r * kCols)]) == amax);
  }
  // 5.25 makes g = 448 * 6 / amax the power of two 512.
  CHECK(std::abs(generate("nvfp4", DType::kF32).values[0]) == 5.25f);
}

TEST_CASE("all signs, several scales and all midpoints of a format occur") {
  const Generated x = generate("nvfp4", DType::kF32);
  const Quantized q = by_oracle(parse_recipe("nvfp4"), x.values, DType::kF32);
  std::vector<int> codes(16), scales(256);
  for (const std::uint8_t code : q.tile.codes) ++codes[code];
  for (const std::uint8_t scale : q.tile.scales) ++scales[scale];
  for (int code = 0; code < 16; ++code) CHECK(codes[static_cast<std::size_t>(code)] > 100);
  CHECK(std::count_if(scales.begin(), scales.end(), [](int n) { return n > 0; }) > 20);
}

TEST_CASE("recipes without ties and values beyond the dtype are refused") {
  const auto message = [](const char* recipe, DType dtype, float amax) -> std::string {
    try {
      const TieAligned ties(parse_recipe(recipe), dtype, 64, {1}, amax);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kUsage);
      return error.what();
    }
    return "accepted";
  };
  CHECK(message("nvfp4", DType::kBF16, 6.0f) == "accepted");
  CHECK(message("mxfp4:round=sr", DType::kF32, 0).find("has no ties") != std::string::npos);
  CHECK(message("nvfp4:rht=16", DType::kF32, 0).find("Hadamard") != std::string::npos);
  CHECK(message("if4", DType::kF32, 0).find("two kinds") != std::string::npos);
  CHECK(message("custom:lut:nf4/64:bf16", DType::kF32, 0).find("table") != std::string::npos);
  CHECK(message("nvfp4", DType::kBF16, 5.1f).find("found 5.1") != std::string::npos);
  CHECK(message("nvfp4", DType::kF32, 1e6f).find("2^10") != std::string::npos);
}
