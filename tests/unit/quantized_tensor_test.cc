// quantized_tensor_test.cc: packing and planes of whole tensors. Bytes are written out by hand from
// the worked examples of spec/nvfp4.md 8, spec/mx.md 5 and spec/hif4.md 7.
#include "sim/quantized_tensor.h"

#include <doctest/doctest.h>

#include "sim/error.h"
#include "tests/support/backends.h"

namespace fp4scope {
namespace {

using Bytes = std::vector<std::uint8_t>;

TensorView view_of(const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
  TensorView view;
  view.f32 = x.data();
  view.rows = rows;
  view.cols = cols;
  view.stride = cols;
  return view;
}

TEST_CASE("NVFP4 packs element 0 into the low nibble and has one scale plane") {
  // spec/nvfp4.md 8: codes 7, 0, 10, 2 and scale 0x39; a ragged row of 18 has a second block.
  std::vector<float> x(18);
  x[0] = 6.42f, x[1] = 0.27f, x[2] = -1.4f, x[3] = 0.85f;
  const Recipe recipe = parse_recipe("nvfp4:scale=none");
  for (const Backend* backend : test::available_backends()) {
    const QuantizedTensor q = quantize(view_of(x, 1, 18), recipe, *backend);
    CHECK(q.code_bytes_per_row == 9);
    CHECK(Bytes(q.codes.begin(), q.codes.begin() + 3) == Bytes{0x07, 0x2a, 0x00});
    REQUIRE(q.scales.size() == 1);
    CHECK(q.scales[0].bytes == Bytes{0x39, 0x00});
    CHECK(q.code(0, 2) == 10);
    const std::vector<float> v = dequantize(q, *backend);
    CHECK(v[0] == 6.75f);
    CHECK(v[1] == 0.0f);
    CHECK(v[2] == -1.125f);
    CHECK(v[3] == 1.125f);
  }
}

TEST_CASE("an odd row length leaves the last high nibble zero") {
  const std::vector<float> x = {7.0f, 0.3f, -0.3f, 5.5f, 7.0f};  // spec/mx.md 5, floor: 7 1 9 7
  const QuantizedTensor q = quantize(view_of(x, 1, 5), parse_recipe("mxfp4:contract=ocp-floor-rne"),
                                     *cpu_backends().back());
  CHECK(q.codes == Bytes{0x17, 0x79, 0x07});
  CHECK(q.scales[0].bytes == Bytes{127});
}

TEST_CASE("HiF4 has three planes: E6M2, level-2 bits, level-3 bits") {
  // spec/hif4.md 7: the ramp x_i = (i-32)/8 has the word ec3fc3bd.
  std::vector<float> x(64);
  for (std::size_t i = 0; i < 64; ++i) x[i] = (static_cast<float>(i) - 32.0f) / 8.0f;
  const QuantizedTensor q =
      quantize(view_of(x, 1, 64), parse_recipe("hif4"), *cpu_backends().back());
  REQUIRE(q.scales.size() == 3);
  CHECK(q.scales[0].bytes == Bytes{0xbd});
  CHECK(q.scales[1].bytes == Bytes{0xc3});
  CHECK(q.scales[2].bytes == Bytes{0x3f, 0xec});
  CHECK(q.scales[2].bytes_per_block == 2);
  // nibbles eeeeeddddd...: elements 0 and 1 are 0xe.
  CHECK(q.codes[0] == 0xee);
}

TEST_CASE("eight-bit elements take a byte each and row scales one outer scale per row") {
  const std::vector<float> x = {500.0f, 470.0f, 1.0f, 0.0f};  // spec/mx.md 5
  const QuantizedTensor fp8 = quantize(
      view_of(x, 1, 4), parse_recipe("mxfp8e4m3:contract=torchao-floor"), *cpu_backends().back());
  CHECK(fp8.codes == Bytes{0x7e, 0x7e, 0x38, 0x00});
  const QuantizedTensor rows =
      quantize(view_of(x, 2, 2), parse_recipe("nvfp4:scale=row"), *cpu_backends().back());
  REQUIRE(rows.outer.size() == 2);
  CHECK(rows.outer[0].amax == 500.0f);
  CHECK(rows.outer[1].amax == 1.0f);
  CHECK(rows.outer[1].g == 2688.0f);
}

TEST_CASE("refusals name what was expected") {
  const std::vector<float> x(40, 1.0f);
  CHECK_THROWS_WITH_AS(
      quantize(view_of(x, 1, 40), parse_recipe("nvfp4:ragged=error"), *cpu_backends().back()),
      doctest::Contains("expected rows of a multiple of 16 elements, found 40"), Error);
  // A caller that passes the wrong number of outer scales is told, not read past the end.
  QuantizedTile tile;
  const OuterScale32 one[] = {{}};
  CHECK_THROWS_WITH_AS(cpu_backends().back()->quantize(parse_recipe("nvfp4:scale=row"),
                                                       view_of(x, 2, 20), one, tile),
                       doctest::Contains("expected 2 outer scales, found 1"), Error);
}

}  // namespace
}  // namespace fp4scope
