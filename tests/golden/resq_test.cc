// resq_test.cc: the residual scheme of spec/resq.md on a [4,128] BF16 tensor against
// data/golden/hif4/resq.json, on every CPU backend of this machine and the exact oracle: Q(X), the
// residual X - Q(X), its quantization with scales of its own, and the masks of the structured
// patterns.
#include <string>

#include "sim/layouts/sparse_mask.h"
#include "tests/support/backends.h"
#include "tests/support/quantized.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::bf16_floats;
using test::Diff;
using test::load_golden;
using test::quantized;

constexpr std::int64_t kRows = 4, kCols = 128;

void compare(Diff& diff, const std::vector<float>& got, const std::vector<float>& want,
             const std::string& where) {
  REQUIRE(want.size() == kRows * kCols);
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    diff.compare_float(bit_cast<std::uint32_t>(got[i]), bit_cast<std::uint32_t>(want[i]),
                       where + " element " + std::to_string(i));
  }
}

TEST_CASE("Q(X), X - Q(X) and Q(X - Q(X)) equal resq.json") {
  const auto json = load_golden("hif4/resq.json");
  REQUIRE((json["rows"] == kRows && json["cols"] == kCols));
  const std::vector<float> x = bf16_floats(json["x_bf16"]);
  for (const Backend* backend : test::backends_and_oracle()) {
    Diff main(test::name_of(*backend) + " hif4/resq.json Q(X)"),
        residual(test::name_of(*backend) + " hif4/resq.json residual"),
        again(test::name_of(*backend) + " hif4/resq.json Q(residual)");
    for (const auto& format : json["formats"]) {
      const std::string text = format["format"];
      const Recipe recipe = parse_recipe(text);
      const std::vector<float> q = quantized(*backend, recipe, x, kRows, kCols).values;
      compare(main, q, bf16_floats(format["q_bf16"]), text);
      std::vector<float> d(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) d[i] = x[i] - q[i];  // exact (resq.md section 1)
      const std::vector<float> recorded = bf16_floats(format["residual_bf16"]);
      compare(residual, d, recorded, text);
      compare(again, quantized(*backend, recipe, recorded, kRows, kCols).values,
              bf16_floats(format["q_residual_bf16"]), text);
    }
    for (const Diff* diff : {&main, &residual, &again}) {
      diff->check();
      CHECK(diff->compared() == 4 * 512);  // gcc, amct, a6, ocp-floor-rne
    }
  }
}

TEST_CASE("masks of 2of4 and 4of8-pairs equal resq.json") {
  const auto json = load_golden("hif4/resq.json");
  Diff diff("hif4/resq.json masks");
  int masks = 0, channel = 0;
  for (const auto& format : json["formats"]) {
    for (const auto& m : format["masks"]) {
      const std::string text = m["recipe"];
      const auto has = [&](const char* key) { return text.find(key) != std::string::npos; };
      if (has("sparsity=channel")) {  // no pattern of the layouts
        ++channel;
        continue;
      }
      const auto pattern = has("sparsity=2of4") ? SparsePattern::k2of4 : SparsePattern::k4of8Pairs;
      REQUIRE((pattern == SparsePattern::k2of4 || has("sparsity=4of8-pairs")));
      REQUIRE((has("key=d") || has("key=q")));
      REQUIRE((has("tie=low") || has("tie=high")));
      std::vector<std::uint8_t> mask(kRows * kCols);
      keep_largest(pattern, has("tie=low") ? MaskTie::kLow : MaskTie::kHigh, Ragged::kError, kRows,
                   kCols, bf16_floats(format[has("key=d") ? "residual_bf16" : "q_residual_bf16"]),
                   mask);
      const std::string want = m["mask"];
      REQUIRE(want.size() == mask.size());
      for (std::size_t i = 0; i < mask.size(); ++i) {
        diff.compare(mask[i], want[i] == '1' ? 1u : 0u, text + " element " + std::to_string(i));
      }
      ++masks;
    }
  }
  diff.check();
  CHECK(masks == 16);
  CHECK(channel == 4);
}

}  // namespace
}  // namespace fp4scope
