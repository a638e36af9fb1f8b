// fake_quantize_test.cc: what only fake_quantize() can do: blocks that cross row ends (ragged=flat,
// spec/layouts.md section 3) and NaN elements that stay NaN (spec/mx.md 3, spec/hif4.md 5); and the
// Hadamard transform through quantize() (spec/nvfp4.md 3.5, nvfp4/rht16.json).
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "sim/error.h"
#include "sim/quantized_tensor.h"
#include "tests/support/backends.h"
#include "tests/support/vectors.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TensorView view_of(const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
  TensorView view;
  view.f32 = x.data();
  view.rows = rows;
  view.cols = cols;
  view.stride = cols;
  return view;
}
std::vector<const Backend*> all_for(const Recipe& recipe) {
  std::vector<const Backend*> list = backends_for(recipe);
  if (oracle_backend().supports(recipe).ok) list.push_back(&oracle_backend());
  return list;
}
// NaN equals NaN; -0 and +0 differ.
std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float v : values) bits.push_back(v != v ? kQuietNanBits : bit_cast<std::uint32_t>(v));
  return bits;
}
// 2x48: 0.01 at the end of row 0 and 100 at the start of row 1.
std::vector<float> example() {
  std::vector<float> x(96);
  for (std::size_t i = 32; i < 48; ++i) x[i] = 0.01f;
  for (std::size_t i = 48; i < 64; ++i) x[i] = 100.0f;
  return x;
}
ErrorKind refused_kind(const std::vector<float>& x, std::int64_t rows, std::int64_t cols,
                       const Recipe& recipe, std::string& message) {
  try {
    (void)quantize(view_of(x, rows, cols), recipe, *cpu_backends().back());
  } catch (const Error& error) {
    message = error.what();
    return error.kind();
  }
  FAIL("accepted ", to_string(recipe));
  return ErrorKind::kUsage;
}

}  // namespace

TEST_CASE(
    "a NaN reaches the maximum of a row or tensor in the FP8 contracts of torch, and no other") {
  // spec/more.md 2.1: torch's maximum propagates NaN: the scale is NaN, and so is every element.
  std::vector<float> x(64, 1.0f);
  x[5] = kNan;
  for (const Backend* backend : backends_and_oracle()) {
    for (const char* text : {"fp8:contract=torchao-affine", "fp8:contract=deepgemm,gran=row",
                             "fp8:contract=hf-block,gran=tensor"}) {
      CAPTURE(text);
      const Recipe recipe = parse_recipe(text);
      const QuantizedTensor q = quantize(view_of(x, 1, 64), recipe, *backend);
      CHECK(std::isnan(q.outer.at(0).g));
      for (const std::uint8_t code : q.codes) CHECK(code == 0x7f);
    }
    // A second row without NaN has its own maximum.
    std::vector<float> two(x);
    two.insert(two.end(), 64, 448.0f);
    const QuantizedTensor rows = quantize(
        view_of(two, 2, 64), parse_recipe("fp8:contract=torchao-affine,gran=row"), *backend);
    CHECK(std::isnan(rows.outer.at(0).g));
    CHECK(rows.outer.at(1).g == 1.0f);
    const QuantizedTensor te =
        quantize(view_of(x, 1, 64), parse_recipe("fp8:contract=te,gran=row"), *backend);
    CHECK(te.outer.at(0).amax == 1.0f);
    CHECK(te.codes.at(5) == 0x7f);
    CHECK(te.codes.at(6) == 0x7e);
  }
}

TEST_CASE("flat blocks cross row ends: the example of the specification") {
  const std::vector<float> x = example();
  // The byte of 0.01 and that of 100: floor(log2(100)) - 2 = 4, rceil: 100/6 = 16.67 -> 2^5.
  const std::pair<const char*, std::uint8_t> contracts[] = {{"ocp-floor-rne", 131},
                                                            {"torchao-rceil", 132}};
  for (const auto& [contract, byte] : contracts) {
    const std::string start = std::string("mxfp4:contract=") + contract;
    const Recipe pad = parse_recipe(start), flat = parse_recipe(start + ",ragged=flat");
    REQUIRE(all_for(flat).size() >= 2);  // reference and oracle
    for (const Backend* backend : all_for(flat)) {
      CAPTURE(start);
      CAPTURE(name_of(*backend));
      const std::vector<float> padded = fake_quantize(view_of(x, 2, 48), pad, *backend);
      const std::vector<float> crossed = fake_quantize(view_of(x, 2, 48), flat, *backend);
      for (std::size_t i = 32; i < 48; ++i) {
        CHECK(padded[i] == 0.01171875f);
        CHECK(bit_cast<std::uint32_t>(crossed[i]) == 0u);
      }
      // 100/16 = 6.25 becomes 6, 100/32 = 3.125 becomes 3.
      for (std::size_t i = 48; i < 64; ++i) CHECK(crossed[i] == 96.0f);
      CHECK(quantize(view_of(x, 2, 48), pad, *backend).scales[0].bytes[1] == 118);
      CHECK(quantize(view_of(x, 1, 96), flat, *backend).scales[0].bytes ==
            std::vector<std::uint8_t>{0, byte, 0});
    }
  }
}

TEST_CASE("flat is the tensor as one row, with a stride, in binary64 and with whole blocks") {
  std::vector<float> x(5 * 24);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = (i % 3 == 0 ? -1.0f : 1.0f) * static_cast<float>(i * i + 1) / 7.0f;
  }
  const Recipe flat = parse_recipe("mxfp4:contract=ocp-floor-rne,ragged=flat");
  const Recipe pad = parse_recipe("mxfp4:contract=ocp-floor-rne");
  for (const Backend* backend : all_for(flat)) {
    CAPTURE(name_of(*backend));
    const std::vector<float> one_row = fake_quantize(view_of(x, 1, 120), pad, *backend);
    const std::vector<float> crossed = fake_quantize(view_of(x, 5, 24), flat, *backend);
    CHECK(bits_of(crossed) == bits_of(one_row));
    CHECK(bits_of(crossed) != bits_of(fake_quantize(view_of(x, 5, 24), pad, *backend)));

    std::vector<float> wide(5 * 31, kNan);
    std::vector<double> doubles(5 * 31, kNan);
    for (std::size_t r = 0; r < 5; ++r) {
      for (std::size_t c = 0; c < 24; ++c) {
        wide[r * 31 + c] = x[r * 24 + c];
        doubles[r * 31 + c] = static_cast<double>(x[r * 24 + c]);
      }
    }
    TensorView strided = view_of(wide, 5, 24);
    strided.stride = 31;
    CHECK(bits_of(fake_quantize(strided, flat, *backend)) == bits_of(one_row));
    strided.f64 = doubles.data();
    strided.source = SourceType::kF64;
    CHECK(bits_of(fake_quantize(strided, flat, *backend)) == bits_of(one_row));

    // A row of whole blocks crosses nothing.
    CHECK(bits_of(fake_quantize(view_of(x, 1, 96), flat, *backend)) ==
          bits_of(fake_quantize(view_of(x, 1, 96), pad, *backend)));
    CHECK(fake_quantize(view_of(x, 0, 24), flat, *backend).empty());
  }
}

TEST_CASE("pychop is flat by default and refuses what its source leaves open") {
  const Recipe recipe = parse_recipe("mxfp4:contract=pychop");
  std::vector<float> x(96, 0.25f);
  for (std::size_t i = 32; i < 48; ++i) x[i] = 0.01f;
  for (std::size_t i = 48; i < 64; ++i) x[i] = 100.0f;
  for (const Backend* backend : all_for(recipe)) {
    CAPTURE(name_of(*backend));
    const std::vector<float> y = fake_quantize(view_of(x, 2, 48), recipe, *backend);
    CHECK(y[40] == 0.0f);
    CHECK(y[50] == 96.0f);
    CHECK(y[0] == 0.25f);
    CHECK_THROWS_AS((void)fake_quantize(view_of(example(), 2, 48), recipe, *backend),
                    RefusedInput);  // a zero block
  }
}

TEST_CASE("a quantized tensor holds no blocks that cross rows and no NaN without a code") {
  std::string message;
  const std::vector<float> x = example();
  CHECK(refused_kind(x, 2, 48, parse_recipe("mxfp4:ragged=flat"), message) ==
        ErrorKind::kUnsupported);
  CHECK(message ==
        "recipe mxfp4:ragged=flat: blocks would cross row ends, which a quantized tensor "
        "cannot hold");
  CHECK(refused_kind(x, 3, 32, parse_recipe("mxfp4:nan=pass"), message) == ErrorKind::kUnsupported);
  CHECK(message == "recipe mxfp4:nan=pass: NaN elements have values but no codes");
  CHECK(refused_kind(x, 1, 96, parse_recipe("hif4:nonfinite=element"), message) ==
        ErrorKind::kUnsupported);
  CHECK(refused_kind(x, 2, 48, parse_recipe("mxfp4:ragged=error"), message) == ErrorKind::kData);
  CHECK(message ==
        "recipe mxfp4:ragged=error: expected rows of a multiple of 32 elements, found 48");
  CHECK_THROWS_AS((void)fake_quantize(view_of(x, 2, 48), parse_recipe("mxfp4:ragged=error"),
                                      *cpu_backends().back()),
                  Error);
}

TEST_CASE("NaN elements stay NaN and change nothing else") {
  struct Policy {
    const char* recipe;
    std::int64_t cols;
  };
  const Policy policies[] = {{"mxfp4:nan=pass", 96},
                             {"mxfp4:contract=quark-even", 96},
                             {"mxfp8e4m3:contract=quark-even", 96},
                             {"mxfp4:contract=pychop", 24},
                             {"hif4:nonfinite=element", 96},
                             {"hif4:nonfinite=element", 80}};
  for (const Policy& policy : policies) {
    const Recipe recipe = parse_recipe(policy.recipe);
    CAPTURE(policy.recipe);
    CHECK(recipe.keeps_nan_elements());
    std::vector<float> x(960), cleared;
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 8.0f;
    cleared = x;
    for (const std::size_t i : {0u, 5u, 95u, 100u, 959u}) {
      x[i] = i == 5 ? -kNan : kNan;
      cleared[i] = 0.0f;
    }
    const std::int64_t rows = 960 / policy.cols;
    REQUIRE(all_for(recipe).size() >= 1);
    for (const Backend* backend : all_for(recipe)) {
      CAPTURE(name_of(*backend));
      const std::vector<float> y = fake_quantize(view_of(x, rows, policy.cols), recipe, *backend);
      std::vector<float> want =
          fake_quantize(view_of(cleared, rows, policy.cols), recipe, *backend);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (x[i] != x[i]) want[i] = kNan;
      CHECK(bits_of(y) == bits_of(want));
    }
  }
  CHECK(!parse_recipe("mxfp4").keeps_nan_elements());
  CHECK(!parse_recipe("hif4").keeps_nan_elements());
  CHECK(!parse_recipe("nvfp4").keeps_nan_elements());
}

TEST_CASE("nonfinite=element: infinities become the largest value of the format") {
  // spec/hif4.md 5: SF = 49152, the element becomes +-344064.
  const Recipe recipe = parse_recipe("hif4:nonfinite=element");
  std::vector<float> x(64, 1.0f);
  x[3] = kInfinity, x[60] = -kInfinity, x[61] = kNan;
  for (const Backend* backend : all_for(recipe)) {
    CAPTURE(name_of(*backend));
    const std::vector<float> y = fake_quantize(view_of(x, 1, 64), recipe, *backend);
    CHECK(y[3] == 344064.0f);
    CHECK(y[60] == -344064.0f);
    CHECK(y[61] != y[61]);
    CHECK(y[0] == 0.0f);
  }
}

TEST_CASE("quantize with rht=16 quantizes the recorded transforms") {
  const auto json = load_golden("nvfp4/rht16.json");
  const auto values = [&](const char* key) {
    std::vector<float> out;
    for (const std::uint32_t w : hex_words(json.at(key), 4))
      out.push_back(bit_cast<float>(w << 16));
    return out;
  };
  const std::vector<float> x = values("x_bf16");
  REQUIRE(x.size() == 64 * 16);
  const std::pair<const char*, const char*> signs[] = {{"fixed", "y_bf16"},
                                                       {"none", "y_nosign_bf16"}};
  for (const auto& [sign, key] : signs) {
    const std::vector<float> y = values(key);
    // Recipes whose outer scale comes from the maximum after the transform, and without one.
    for (const std::string start : {"nvfp4:", "nvfp4:scale=none,", "mxfp4:", "hif4:"}) {
      const Recipe plain = parse_recipe(start + "ragged=pad");
      const Recipe recipe = parse_recipe(start + "rht=16,rht-signs=" + sign);
      CAPTURE(to_string(recipe));
      for (const Backend* backend : all_for(recipe)) {
        CAPTURE(name_of(*backend));
        TensorView in = view_of(x, 4, 256), out = view_of(y, 4, 256);
        in.source = out.source = SourceType::kBf16;
        const QuantizedTensor got = quantize(in, recipe, *backend);
        const QuantizedTensor want = quantize(out, plain, *backend);
        CHECK(got.codes == want.codes);
        REQUIRE(got.scales.size() == want.scales.size());
        for (std::size_t i = 0; i < got.scales.size(); ++i)
          CHECK(got.scales[i].bytes == want.scales[i].bytes);
        REQUIRE(got.outer.size() == want.outer.size());
        for (std::size_t i = 0; i < got.outer.size(); ++i)
          CHECK(bits_of({got.outer[i].amax, got.outer[i].g}) ==
                bits_of({want.outer[i].amax, want.outer[i].g}));
        CHECK(got.codes != quantize(in, plain, *backend).codes);
        CHECK(bits_of(fake_quantize(in, recipe, *backend)) == bits_of(dequantize(got, *backend)));
      }
    }
  }
}

TEST_CASE("the transform needs whole groups in every mode") {
  const std::vector<float> x = example();
  for (const char* text : {"nvfp4:rht=32", "mxfp4:rht=32,ragged=flat", "mxfp4:rht=32"}) {
    CAPTURE(text);
    const Recipe recipe = parse_recipe(text);
    CHECK_THROWS_AS((void)fake_quantize(view_of(x, 2, 48), recipe, *cpu_backends().back()), Error);
  }
  // 48 = 3 * 16: groups of 16 end with the row, as they do in the tensor as one row.
  const Recipe flat = parse_recipe("mxfp4:rht=16,ragged=flat");
  const Recipe pad = parse_recipe("mxfp4:rht=16");
  for (const Backend* backend : all_for(flat)) {
    CHECK(bits_of(fake_quantize(view_of(x, 2, 48), flat, *backend)) ==
          bits_of(fake_quantize(view_of(x, 1, 96), pad, *backend)));
  }
}
