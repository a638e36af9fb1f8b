// Blocks step by step (sim/trace): the result is that of the exact oracle for every contract and
// option on hard blocks, the steps are what they say, and the specification's worked examples come
// out with the numbers that it prints.
#include "sim/trace/trace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "tests/cross/hard_tile.h"
#include "tests/cross/recipes.h"
#include "tests/support/floats.h"

using namespace fp4scope;
using namespace fp4scope::test;

namespace {

std::uint32_t bits_of(float v) {
  return bit_cast<std::uint32_t>(v);
}

// Every list of steps of a trace.
std::vector<const std::vector<TraceStep>*> all_steps(const BlockTrace& t) {
  std::vector<const std::vector<TraceStep>*> lists;
  for (const TracePhase& phase : t.phases) lists.push_back(&phase.steps);
  for (const TracedCandidate& candidate : t.candidates) lists.push_back(&candidate.steps);
  for (const TracedElement& element : t.elements) lists.push_back(&element.steps);
  return lists;
}

// The operations, computed once more in plain binary32. Returns how many there are.
std::int64_t check_operations(const BlockTrace& t) {
  std::int64_t operations = 0;
  for (const std::vector<TraceStep>* steps : all_steps(t)) {
    for (const TraceStep& step : *steps) {
      CHECK(step.bits == bits_of(step.value));
      if (step.kind != StepKind::kOperation) continue;
      ++operations;
      volatile float a = step.a, b = step.b;
      float want = 0;
      switch (step.op) {
        case '+':
          want = a + b;
          break;
        case '-':
          want = a - b;
          break;
        case '*':
          want = a * b;
          break;
        case '/':
          want = a / b;
          break;
        default:
          FAIL_CHECK("unknown operation " << step.op);
      }
      CHECK_MESSAGE(same_float(step.value, want), step.expression);
    }
  }
  return operations;
}

struct Counts {
  std::int64_t blocks = 0, refused = 0, operations = 0;
};

void compare_with(const Quantized& want, const Recipe& recipe, const BlockTrace& t) {
  const QuantizedTile& w = want.tile;
  const std::int64_t row = t.row, width = recipe.code_bytes();
  REQUIRE(std::ssize(t.elements) == w.padded_cols);
  for (std::size_t i = 0; i < t.elements.size(); ++i) {
    const std::uint8_t* at =
        w.codes.data() + (row * w.padded_cols + static_cast<std::int64_t>(i)) * width;
    const std::uint32_t code = width == 2 ? at[0] | static_cast<std::uint32_t>(at[1]) << 8 : at[0];
    CHECK(t.elements[i].code == code);
    if (recipe.keeps_nan_elements() && t.elements[i].input != t.elements[i].input) continue;
    CHECK(same_float(t.elements[i].value, want.values[static_cast<std::size_t>(row * w.cols) + i]));
  }
  const std::int64_t bytes = recipe.format.scale_bytes;
  REQUIRE(std::ssize(t.scale_bytes) == bytes);
  for (std::int64_t i = 0; i < bytes; ++i) {
    CHECK(t.scale_bytes[static_cast<std::size_t>(i)] ==
          w.scales[static_cast<std::size_t>(row * bytes + i)]);
  }
  REQUIRE(t.choice.has_value() == recipe.chooses());
  if (!recipe.chooses()) return;
  const auto at = static_cast<std::size_t>(row);
  CHECK(*t.choice == w.choices[at]);
  CHECK(same_float(t.candidates[0].error, w.errors[2 * at]));
  CHECK(same_float(t.candidates[1].error, w.errors[2 * at + 1]));
}

void check_block(const Recipe& recipe, const HardTile& one, Counts& counts) {
  std::optional<Quantized> want;
  std::int64_t refused_row = -1;
  try {
    want = quantized(oracle_backend(), recipe, one.tile, one.outer);
  } catch (const RefusedInput& refusal) {
    refused_row = refusal.row();
  }
  try {
    const BlockTrace t =
        trace_block(recipe, one.tile, one.outer, one.tile.rows > 5 ? 5 : one.tile.rows - 1, 0);
    REQUIRE(want.has_value());
    ++counts.blocks;
    compare_with(*want, recipe, t);
    counts.operations += check_operations(t);
  } catch (const RefusedInput& refusal) {
    ++counts.refused;
    CHECK(refusal.row() == refused_row);
  }
}

void check(const std::vector<std::string>& recipes, int rounds) {
  Counts total;
  for (const std::string& text : recipes) {
    CAPTURE(text);
    const Recipe recipe = parse_recipe(text);
    for (const bool binary64 : {false, true}) {
      if (binary64 && !recipe.casts_f64_directly()) continue;
      BlockSource source(seed_of(text) + (binary64 ? 3 : 2));
      Counts counts;
      for (int k = 0; k < rounds * kKinds; ++k) {
        const std::int64_t rows = recipe.format.block_rows;
        const HardTile hard =
            hard_tile(source, recipe, static_cast<Kind>(k % kKinds), rows, binary64);
        check_block(recipe, one_block(recipe, hard, 0, 1), counts);
      }
      CHECK(counts.blocks > 0);
      total.blocks += counts.blocks;
      total.refused += counts.refused;
      total.operations += counts.operations;
    }
  }
  std::printf("%lld recipes, %lld blocks traced, %lld refused, %lld operations recomputed\n",
              static_cast<long long>(std::ssize(recipes)), static_cast<long long>(total.blocks),
              static_cast<long long>(total.refused), static_cast<long long>(total.operations));
  CHECK(total.operations > 0);
}

BlockTrace trace_values(const std::string& text, std::vector<float> x,
                        std::optional<float> amax = std::nullopt) {
  const Recipe recipe = parse_recipe(text);
  x.resize(static_cast<std::size_t>(recipe.format.block));
  const auto cols = static_cast<std::int64_t>(x.size());
  const float measured = bit_cast<float>(largest_magnitude(x.data(), cols));
  const OuterScale32 outer = oracle_backend().outer_scale(recipe, bits_of(amax.value_or(measured)));
  return trace_block(recipe, Tile{x.data(), nullptr, 1, cols, cols}, {&outer, 1}, 0, 0);
}
std::vector<std::uint32_t> codes_of(const BlockTrace& t, std::size_t n) {
  std::vector<std::uint32_t> codes;
  for (std::size_t i = 0; i < n; ++i) codes.push_back(t.elements[i].code);
  return codes;
}
const TracePhase& phase_of(const BlockTrace& t, const std::string& title) {
  for (const TracePhase& phase : t.phases) {
    if (phase.title == title) return phase;
  }
  FAIL("no phase " << title);
  return t.phases.front();
}
// The operations of a phase as "op" and result bits, in order.
struct Operation {
  char op;
  std::uint32_t result;
  bool operator==(const Operation&) const = default;
};
std::vector<Operation> operations_of(const TracePhase& phase) {
  std::vector<Operation> out;
  for (const TraceStep& step : phase.steps) {
    if (step.kind == StepKind::kOperation) out.push_back({step.op, step.bits});
  }
  return out;
}
const TraceStep& cast_of(const std::vector<TraceStep>& steps) {
  const auto at = std::find_if(steps.begin(), steps.end(),
                               [](const TraceStep& s) { return s.kind == StepKind::kCast; });
  REQUIRE(at != steps.end());
  return *at;
}
using Codes = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("the trace equals the exact oracle on hard blocks of every contract") {
  check(contract_recipes(), 2);
}

TEST_CASE("the trace equals the exact oracle under every option") {
  check(option_recipes(), 1);
}

TEST_CASE("spec/nvfp4.md 8: te multiplies g by 1/6 first, so that 21.000002 goes up") {
  // a = 1.20703125, amax_g = 25.75
  const float a = 1.20703125f, g = 2688.0f / 25.75f, sixth = 1.0f / 6.0f;
  const BlockTrace t = trace_values("nvfp4:contract=te", {a}, 25.75f);
  CHECK(bits_of(t.outer.g) == bits_of(g));
  const float k = g * sixth;
  CHECK(operations_of(phase_of(t, "outer scale g of the tensor")) ==
        std::vector<Operation>{{'/', bits_of(g)}});
  CHECK(operations_of(phase_of(t, "derived from g once")) ==
        std::vector<Operation>{{'/', bits_of(1.0f / g)}, {'/', bits_of(sixth)}, {'*', bits_of(k)}});
  const TracePhase& scale = phase_of(t, "block scale");
  CHECK(operations_of(scale) == std::vector<Operation>{{'*', bits_of(a * k)}});
  const TraceStep& cast = cast_of(scale.steps);
  CHECK(cast.a == 21.000002f);
  CHECK(cast.code == 0x5bu);
  CHECK(cast.value == 22.0f);
  CHECK_FALSE(cast.is_tie);
  CHECK(t.scale_bytes == std::vector<std::uint8_t>{0x5b});
}

TEST_CASE("spec/nvfp4.md 8: (a/6)*g is a tie that goes to 0x5a") {
  const float a = 1.20703125f, g = 2688.0f / 25.75f;
  const BlockTrace t = trace_values("nvfp4:contract=te,select=mse,e4m3max=448", {a}, 25.75f);
  const TracePhase& six = phase_of(t, "block scale, map-to-6");
  CHECK(operations_of(six) ==
        std::vector<Operation>{{'/', bits_of(a / 6.0f)}, {'*', bits_of(21.0f)}});
  CHECK(cast_of(six.steps).is_tie);
  CHECK(cast_of(six.steps).code == 0x5au);
  const TracePhase& four = phase_of(t, "block scale, map-to-4");
  CHECK(operations_of(four).back() == Operation{'*', bits_of(21.0f * 1.5f)});
  CHECK(bits_of(a / 6.0f * g) == bits_of(21.0f));
}

TEST_CASE("spec/nvfp4.md 8: elements are divided by the rounded scale") {
  const BlockTrace t = trace_values("nvfp4:scale=none", {6.42f, 0.27f, -1.4f, 0.85f});
  const TraceStep& cast = cast_of(phase_of(t, "block scale").steps);
  CHECK(cast.a == 6.42f * (1.0f / 6.0f));
  CHECK(cast.code == 0x39u);
  CHECK(cast.value == 1.125f);
  CHECK(codes_of(t, 5) == Codes{7, 0, 10, 2, 0});
  const float values[] = {6.75f, 0.0f, -1.125f, 1.125f, 0.0f};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(t.elements[i].value == values[i]);
    CHECK(t.elements[i].error == static_cast<double>(values[i]) - t.elements[i].input);
  }
  CHECK(t.elements[0].scaled == 6.42f * (1.0f / 1.125f));
  CHECK(t.packed_codes == std::vector<std::uint8_t>{0x07, 0x2a, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("spec/nvfp4.md 8: a saturated scale and a saturated element") {
  const BlockTrace t = trace_values("nvfp4:scale=none", {5000.0f, 2500.0f, -1250.0f});
  CHECK(t.scale_bytes == std::vector<std::uint8_t>{0x7e});
  CHECK(codes_of(t, 3) == Codes{7, 7, 13});
  CHECK(cast_of(phase_of(t, "block scale").steps).expression.ends_with(", saturated"));
  CHECK(cast_of(t.elements[0].steps).expression.ends_with(", saturated"));
  CHECK_FALSE(cast_of(t.elements[1].steps).expression.ends_with(", saturated"));
}

TEST_CASE("spec/nvfp4.md 8: mae and mse disagree about [24, 20, 8, 8, 8]") {
  const std::vector<float> x{24, 20, 8, 8, 8};
  const BlockTrace mae = trace_values("nvfp4:scale=none,select=mae", x);
  REQUIRE(mae.candidates.size() == 2);
  CHECK(mae.candidates[0].name == "map-to-4");
  CHECK(mae.candidates[0].error == 5.0f);
  CHECK(mae.candidates[1].error == 4.0f);
  CHECK(mae.candidates[1].chosen);
  CHECK(mae.choice == 0);
  CHECK(mae.scale_bytes == std::vector<std::uint8_t>{0x48});
  const BlockTrace mse = trace_values("nvfp4:scale=none,select=mse", x);
  CHECK(mse.candidates[0].error == 7.0f);
  CHECK(mse.candidates[1].error == 16.0f);
  CHECK(mse.candidates[0].chosen);
  CHECK(mse.choice == 1);
  CHECK(mse.scale_bytes == std::vector<std::uint8_t>{0x4c});
  // Map-to-4 has the errors 2, 1, 1, 1, map-to-6 has 4, 0, 0, 0.
  std::vector<float> four, six;
  for (std::size_t i = 1; i < 5; ++i) {
    four.push_back(std::fabs(mse.candidates[0].differences[i]));
    six.push_back(std::fabs(mse.candidates[1].differences[i]));
  }
  CHECK(four == std::vector<float>{2, 1, 1, 1});
  CHECK(six == std::vector<float>{4, 0, 0, 0});
}

TEST_CASE("spec/mx.md 5: the rule decides whether 0.3 underflows") {
  const std::vector<float> x{7.0f, 0.3f, -0.3f, 5.5f};
  const BlockTrace floor = trace_values("mxfp4:contract=torchao-floor", x);
  CHECK(floor.scale_bytes == std::vector<std::uint8_t>{127});
  CHECK(codes_of(floor, 4) == Codes{7, 1, 9, 7});
  for (const char* rule : {"torchao-even", "torchao-ceil", "torchao-rceil"}) {
    CAPTURE(rule);
    const BlockTrace t = trace_values(std::string("mxfp4:contract=") + rule, x);
    CHECK(t.scale_bytes == std::vector<std::uint8_t>{128});
    CHECK(codes_of(t, 4) == Codes{6, 0, 8, 5});
    CHECK(t.elements[0].tie);  // 3.5
    CHECK(t.elements[0].scaled == 3.5f);
    CHECK(t.elements[0].value == 8.0f);
    CHECK_FALSE(t.elements[1].tie);
  }
}

TEST_CASE("spec/mx.md 5: rceil looks at 6.01171875 / 6 = 1 + 2^-9") {
  const BlockTrace t = trace_values("mxfp4:contract=torchao-rceil,scale-arith=div",
                                    {6.01171875f, 0.5f, -0.5f, 1.5f});
  const TracePhase& scale = phase_of(t, "block scale (E8M0 byte)");
  CHECK(operations_of(scale) == std::vector<Operation>{{'/', bits_of(6.01171875f / 6.0f)}});
  CHECK(cast_of(scale.steps).code == 128u);
  CHECK(codes_of(t, 4) == Codes{5, 0, 8, 2});
}

TEST_CASE("spec/mx.md 5: the binary32 logarithm of microx-torch is one too high at 2^34 - ulp") {
  const BlockTrace t =
      trace_values("mxfp4:contract=microx-torch", {bit_cast<float>(0x507fffffu), 0x1p31f});
  CHECK(t.scale_bytes == std::vector<std::uint8_t>{159});
  CHECK(t.elements[0].value == 4 * 0x1p32f);
  CHECK(t.elements[1].value == 0.5f * 0x1p32f);
  const auto& steps = phase_of(t, "block scale (E8M0 byte)").steps;
  CHECK(std::any_of(steps.begin(), steps.end(), [](const TraceStep& s) {
    return s.what == "floor of the binary32 log2" && s.value == 34.0f;
  }));
}

TEST_CASE("spec/hif4.md 7: 64 times 2.0") {
  for (const char* contract : {"gcc", "amct", "a6"}) {
    CAPTURE(contract);
    const BlockTrace t =
        trace_values(std::string("hif4:contract=") + contract, std::vector<float>(64, 2.0f));
    CHECK(t.scale_bytes == std::vector<std::uint8_t>{0xb9, 0xff, 0xff, 0xff});
    for (const TracedElement& e : t.elements) {
      CHECK(e.code == 6u);
      CHECK(e.value == 1.875f);
    }
    // SF = BF16(2 * BF16(1/7)) = 2 * 0x3e12.
    const TracePhase& scale = phase_of(t, "group scale E (E6M2)");
    CHECK(operations_of(scale) == std::vector<Operation>{{'*', 0x3e920000u}});
    CHECK(cast_of(scale.steps).code == 0xb9u);
  }
}

TEST_CASE("spec/hif4.md 7: ramp") {
  std::vector<float> x;
  for (int i = 0; i < 64; ++i) x.push_back(static_cast<float>(i - 32) / 8.0f);
  const BlockTrace t = trace_values("hif4", x);
  CHECK(t.scale_bytes == std::vector<std::uint8_t>{0xbd, 0xc3, 0x3f, 0xec});
  const std::string nibbles = "eeeeedddddcccccbeeeddccceedcbaa901223456344455666777444555556666";
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(t.elements[i].code ==
          static_cast<std::uint32_t>(std::stoi(nibbles.substr(i, 1), nullptr, 16)));
  }
}

TEST_CASE("spec/hif4.md 7: thresholds are inclusive, and differ between contracts") {
  std::vector<float> x(64, 0.0f);
  x[0] = 12.25f, x[8] = 7, x[9] = 3.5f, x[12] = 1, x[16] = 3.5f, x[20] = 3.484375f,
  x[24] = 6.96875f;
  struct Case {
    const char* recipe;
    const char* e8;
    const char* e16;
  };
  for (const Case& c : {Case{"hif4:contract=gcc", "10000000", "1010001000000000"},
                        Case{"hif4:contract=amct", "10000000", "1010001000000000"},
                        Case{"hif4:contract=a6", "11000000", "1010101000000000"}}) {
    CAPTURE(c.recipe);
    const BlockTrace t = trace_values(c.recipe, x);
    CHECK(t.scale_bytes[0] == 0xc3u);
    REQUIRE(t.levels.size() == 16);
    std::string e8, e16;
    for (std::size_t k = 0; k < 16; ++k) {
      const TracedLevel& level = t.levels[k];
      if (k % 2 == 0) e8 += level.outer_bit != 0 ? '1' : '0';
      e16 += level.inner_bit != 0 ? '1' : '0';
      CHECK((level.outer_product >= 4.0f) == (level.outer_bit != 0));
      CHECK((level.inner_product >= 2.0f) == (level.inner_bit != 0));
    }
    CHECK(e8 == c.e8);
    CHECK(e16 == c.e16);
  }
}

TEST_CASE("a block inside a tensor has its own outer scale, columns and padding") {
  const Recipe recipe = parse_recipe("nvfp4:scale=row");
  std::vector<float> x(3 * 40);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3.0f;
  const Tile tile{x.data(), nullptr, 3, 40, 40};
  const std::vector<OuterScale32> outer = measured_scales(oracle_backend(), recipe, tile);
  const Quantized want = quantized(oracle_backend(), recipe, tile, outer);
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t b = 0; b < 3; ++b) {
      const BlockTrace t = trace_block(recipe, tile, outer, row, b);
      CHECK(t.first_col == 16 * b);
      CHECK(t.valid == (b == 2 ? 8 : 16));
      CHECK(t.elements[8].is_padding == (b == 2));
      CHECK(t.packed_codes.size() == static_cast<std::size_t>(t.valid / 2));
      CHECK(t.scale_bytes[0] == want.tile.scales[static_cast<std::size_t>(3 * row + b)]);
      for (int i = 0; i < t.valid; ++i) {
        const auto at = static_cast<std::size_t>(row * 40 + 16 * b + i);
        CHECK(t.elements[static_cast<std::size_t>(i)].input == static_cast<double>(x[at]));
        CHECK(t.elements[static_cast<std::size_t>(i)].value == want.values[at]);
      }
    }
  }
  CHECK_THROWS_AS(trace_block(recipe, tile, outer, 3, 0), Error);
  CHECK_THROWS_AS(trace_block(recipe, tile, outer, 0, 3), Error);
}

TEST_CASE("2-D blocks at the end of a tensor have fewer rows and columns") {
  for (const char* text : {"nvfp4:block=2d", "nvfp4:block=2d,select=mse",
                           "nvfp4:contract=fouroversix,block=2d,select=mae", "hif4:geometry=64x64",
                           "mxfp4:contract=fos-static6,block=2d", "fp8:gran=128x128"}) {
    CAPTURE(text);
    const Recipe recipe = parse_recipe(text);
    const std::int64_t n = recipe.format.block, band = recipe.format.block_rows;
    const std::int64_t rows = band + 5, cols = n + 9;
    std::vector<float> x(static_cast<std::size_t>(rows * cols));
    BlockSource source(seed_of(text));
    for (float& v : x) v = (static_cast<float>(source.below(2001)) - 1000.0f) / 64.0f;
    const Tile tile{x.data(), nullptr, rows, cols, cols};
    const std::vector<OuterScale32> outer = measured_scales(oracle_backend(), recipe, tile);
    const Quantized want = quantized(oracle_backend(), recipe, tile, outer);
    const QuantizedTile& w = want.tile;
    for (const std::int64_t row : {std::int64_t{0}, band - 1, band, rows - 1}) {
      for (const std::int64_t b : {0, 1}) {
        const BlockTrace t = trace_block(recipe, tile, outer, row, b);
        CHECK(t.block_rows == (row < band ? band : 5));
        CHECK(t.valid == (b == 0 ? n : 9));
        for (std::int64_t i = 0; i < n; ++i) {
          const TracedElement& e = t.elements[static_cast<std::size_t>(i)];
          CHECK(e.row == row);
          CHECK(e.code == w.codes[static_cast<std::size_t>(row * w.padded_cols + b * n + i)]);
          if (i >= t.valid) continue;
          const auto at = static_cast<std::size_t>(row * cols + b * n + i);
          CHECK(e.input == static_cast<double>(x[at]));
          CHECK(same_float(e.value, want.values[at]));
        }
        for (std::size_t i = 0; i < t.scale_bytes.size(); ++i) {
          CHECK(
              t.scale_bytes[i] ==
              w.scales[static_cast<std::size_t>(row * w.blocks_per_row + b) * t.scale_bytes.size() +
                       i]);
        }
        if (recipe.chooses()) {
          CHECK(*t.choice == w.choices[static_cast<std::size_t>(row * w.blocks_per_row + b)]);
          CHECK(t.candidates[0].row_errors.size() == static_cast<std::size_t>(n));
        }
      }
    }
  }
}

TEST_CASE("ties and saturation are those of a grid that is searched, not computed") {
  struct Case {
    const char* recipe;
    std::vector<float> x;
    std::vector<const char*> marks;  // t: tie, s: saturated, -: neither
  };
  // 7 would go to 8, the even neighbour, on a grid that has it.
  for (const Case& c : std::vector<Case>{
           {"mxfp4:contract=torchao-floor",
            {6, 0.25f, 2.5f, 5, 3.5f, 0.3f},
            {"-", "t", "t", "t", "t", "-"}},
           {"mxfp4:contract=torchao-floor", {7.5f, 7, -6.9f, 6.5f}, {"s", "s", "-", "-"}},
           {"mxint8:int8-grid=symmetric",
            {1.0f, 0x1p-7f, 3 * 0x1p-7f, 0x1p-8f},
            {"-", "t", "t", "-"}},
           {"bf16", {1.00390625f, 1.0f, 1.001f}, {"t", "-", "-"}}}) {
    CAPTURE(c.recipe);
    const BlockTrace t = trace_values(c.recipe, c.x);
    for (std::size_t i = 0; i < c.x.size(); ++i) {
      CAPTURE(i);
      CHECK(t.elements[i].tie == (c.marks[i][0] == 't'));
      CHECK(t.elements[i].saturated == (c.marks[i][0] == 's'));
    }
  }
}

TEST_CASE("stochastic rounding draws the bytes of the block's place in the tensor") {
  const Recipe recipe = parse_recipe("nvfp4:round=sr,seed=11");
  std::vector<float> x(2 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.1f * static_cast<float>(i % 29);
  const Tile tile{x.data(), nullptr, 2, 64, 64};
  const std::vector<OuterScale32> outer = measured_scales(oracle_backend(), recipe, tile);
  const Quantized want = quantized(oracle_backend(), recipe, tile, outer);
  for (std::int64_t b = 0; b < 4; ++b) {
    const BlockTrace t = trace_block(recipe, tile, outer, 1, b);
    for (std::size_t i = 0; i < 16; ++i) {
      CHECK(t.elements[i].code == want.tile.codes[64 + static_cast<std::size_t>(16 * b) + i]);
    }
  }
}
