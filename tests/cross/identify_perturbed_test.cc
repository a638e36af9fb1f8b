// identify_perturbed_test.cc: outputs that were changed on purpose in one way: identify finds the
// order of codes and scales that was used, and where no recipe fits, the best candidate is the one
// that made the bytes and the remainder is what was changed, with its count.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>

#include "analysis/compare/identify.h"
#include "sim/error.h"
#include "tests/support/explains.h"
#include "tests/support/paths.h"
#include "tests/support/stored_case.h"

namespace fp4scope {
namespace {

using test::at;
using test::Bytes;
using test::FileTensor;
using test::has;
using test::stored_case;
using test::StoredCase;
using test::tensors_of;

// Rows that are no multiple of 128 (or 16), 5 groups of 64, 10 blocks of 32.
constexpr std::int64_t kRows = 130, kCols = 320;

std::vector<float> real_tensor(std::int64_t rows = kRows, std::int64_t cols = kCols) {
  const auto source =
      open_source((test::data_dir() / "sample/use_lite_slice.safetensors").string());
  std::vector<float> x(at(rows * cols));
  for (const TensorInfo& t : source->tensors()) {
    if (t.name == "layers.1.attn_out.W") source->read_f32(t, 0, rows, 64, cols, x.data());
  }
  return x;
}
StoredCase real_case(const char* recipe) {
  return stored_case(recipe, real_tensor(), kRows, kCols, SourceType::kBf16);
}

struct Runner {
  test::TempDir dir;
  IdentifyResult operator()(const std::vector<FileTensor>& tensors, const Recipe& recipe,
                            bool with_outer = false) const {
    const std::string path = dir.file("x.safetensors");
    test::write_tensors(path, tensors);
    std::string parts = "codes";
    if (recipe.format.scale_bytes > 0) parts += " scales";
    if (with_outer) parts += " outer";
    IdentifyOptions options;
    options.job = test::job_of(path, "", parts);
    options.separations = 0;
    options.best = 3;
    SourceCache sources;
    return identify(options, sources);
  }
};

// The exact backend makes the same codes and scales of x with `other`.
bool makes_the_same(const Recipe& other, const StoredCase& c) {
  const StoredCase theirs = stored_case(oracle_backend(), other, c.x, c.rows, c.cols, c.source);
  return theirs.q.tile.codes == c.q.tile.codes && theirs.q.tile.scales == c.q.tile.scales;
}
const ExplainingRecipe* entry_of(const IdentifyResult& result, const Recipe& recipe) {
  for (const ExplainingRecipe& e : result.explaining) {
    if (test::explains(e, recipe)) return &e;
  }
  return nullptr;
}
// No recipe fits; the best candidate made the bytes before they were changed.
std::string remainder(const IdentifyResult& result, const StoredCase& c) {
  for (const ExplainingRecipe& e : result.explaining) {
    FAIL_CHECK(to_string(e.recipe), " explains changed bytes of ", c.recipe.text);
  }
  REQUIRE(!result.best.empty());
  const ExplainingRecipe& best = result.best.front();
  CHECK_MESSAGE(makes_the_same(best.recipe, c), c.recipe.text, ": best is ",
                to_string(best.recipe));
  return remainder_of(best.check);
}
std::string part(const char* what, std::int64_t n, std::int64_t of, const char* unit) {
  return std::string(what) + " in " + std::to_string(n) + " of " + std::to_string(of) + " " + unit;
}

TEST_CASE("the order of the nibbles is found") {
  const Runner run;
  for (const char* recipe :
       {"mxfp4:contract=ocp-floor-rne", "nvfp4", "nvfp4:contract=modelopt", "hif4", "int4"}) {
    const StoredCase c = real_case(recipe);
    for (const char* order : {"low-first", "high-first", "split8", "split16", "bytes", "ct"}) {
      const bool is_ct = std::string(order) == "ct";
      if (is_ct && c.recipe.family != Family::kInt4) continue;
      const IdentifyResult result = run(tensors_of(c, order), c.recipe);
      const ExplainingRecipe* e = entry_of(result, c.recipe);
      REQUIRE_MESSAGE(e != nullptr, recipe, " ", order);
      CHECK(e->nibbles == order);
      CHECK(e->layout == "linear");
    }
  }
}

TEST_CASE("the order of the scales is found, rows no multiple of 128") {
  const Runner run;
  for (const char* recipe : {"mxfp4", "mxfp8e4m3", "nvfp4", "nvfp4:contract=torchao",
                             "nvfp4:select=mse", "nvfp4:contract=fouroversix,select=mae"}) {
    const StoredCase c = real_case(recipe);
    for (const char* layout : {"linear", "128x4", "8x4", "te-padded", "deepgemm"}) {
      const IdentifyResult result = run(tensors_of(c, "", layout), c.recipe);
      const ExplainingRecipe* e = entry_of(result, c.recipe);
      REQUIRE_MESSAGE(e != nullptr, recipe, " ", layout);
      CHECK(e->layout == layout);
      const bool is_native = parse_storage("native", e->recipe) == parse_storage(layout, e->recipe);
      CHECK(e->differs_from_native == !is_native);
    }
  }
  // Both at once.
  const StoredCase c = real_case("nvfp4");
  const IdentifyResult result = run(tensors_of(c, "split16", "128x4"), c.recipe);
  const ExplainingRecipe* e = entry_of(result, c.recipe);
  REQUIRE(e != nullptr);
  CHECK((e->nibbles == "split16" && e->layout == "128x4"));
  // Binary32 scales, M-major.
  const StoredCase fp8 = real_case("fp8");
  const IdentifyResult words = run(tensors_of(fp8, "", "m-major"), fp8.recipe);
  e = entry_of(words, fp8.recipe);
  REQUIRE(e != nullptr);
  CHECK(e->layout == "m-major");
}

TEST_CASE("HiF4 level bits of AMCT and cells of the A6 are found") {
  const Runner run;
  for (const char* recipe : {"hif4", "hif4:contract=amct", "hif4:contract=a6"}) {
    const StoredCase c = stored_case(recipe, real_tensor(144), 144, kCols, SourceType::kBf16);
    for (const char* layout : {"linear", "msb", "a6"}) {
      const IdentifyResult result = run(tensors_of(c, "", layout), c.recipe);
      const ExplainingRecipe* e = entry_of(result, c.recipe);
      REQUIRE_MESSAGE(e != nullptr, recipe, " ", layout);
      CHECK(e->layout == layout);
    }
  }
}

// Scale byte 0 of a block moved by `by`; skips the step to the NaN code. Returns the number moved.
std::int64_t move_scales(std::vector<FileTensor>& tensors, const StoredCase& c, int by,
                         std::int64_t every) {
  std::string& scales = test::data_named(tensors, "scales");
  const std::int64_t bytes = c.recipe.format.scale_bytes;
  const int nan = c.recipe.family == Family::kNvfp4 ? 0x7F : 0xFF;
  std::int64_t moved = 0;
  for (std::int64_t i = 0; i * bytes < std::ssize(scales); i += every) {
    const int byte = static_cast<unsigned char>(scales[at(i * bytes)]) + by;
    if (byte == nan || byte < 0) continue;
    scales[at(i * bytes)] = static_cast<char>(byte);
    ++moved;
  }
  return moved;
}

TEST_CASE("scales one code off, everywhere and in some blocks") {
  const Runner run;
  for (const char* recipe :
       {"mxfp4", "mxfp4:contract=ocp-floor-rne", "mxfp8e4m3", "nvfp4", "nvfp4:contract=modelopt",
        "nvfp4:contract=torchao", "nvfp4:scale=row", "hif4", "hif4:contract=a6"}) {
    const StoredCase c = real_case(recipe);
    const std::int64_t blocks = kRows * c.blocks();
    for (const int by : {1, -1}) {
      for (const std::int64_t every : {1, 7, 500}) {
        auto tensors = tensors_of(c);
        const std::int64_t n = move_scales(tensors, c, by, every);
        REQUIRE(n > 0);
        const std::string text = remainder(run(tensors, c.recipe), c);
        const std::string want = part("scale off by one", n, blocks, "blocks") +
                                 " (found one above " + std::to_string(by > 0 ? n : 0) +
                                 ", one below " + std::to_string(by > 0 ? 0 : n) + ")";
        CHECK_MESSAGE(text == want, recipe, " by ", by, " every ", every);
      }
    }
  }
}

TEST_CASE("scales of integers and FP8 one unit in the last place off") {
  const Runner run;
  for (const char* recipe : {"int4", "fp8"}) {
    const StoredCase c = real_case(recipe);
    auto tensors = tensors_of(c);
    std::string& scales = test::data_named(tensors, "scales");
    const std::int64_t bytes = c.recipe.format.scale_bytes;
    std::int64_t n = 0, above = 0;
    for (std::int64_t i = 0; i * bytes < std::ssize(scales); i += 11) {
      char& low = scales[at(i * bytes)];
      above += (low & 1) == 0 ? 1 : 0;
      low = static_cast<char>(low ^ 1);
      ++n;
    }
    const std::string text = remainder(run(tensors, c.recipe), c);
    CHECK_MESSAGE(text == part("scale off by one", n, kRows * c.blocks(), "blocks") +
                              " (found one above " + std::to_string(above) + ", one below " +
                              std::to_string(n - above) + ")",
                  recipe);
  }
}

TEST_CASE("4/6 choices flipped in k blocks") {
  const Runner run;
  for (const auto& [recipe, other] :
       {std::pair{"nvfp4:select=mse", "nvfp4:select=mae"},
        std::pair{"nvfp4:contract=fouroversix,select=mae", "nvfp4:contract=fouroversix,select=mse"},
        std::pair{"nvfp4:contract=flashinfer,select=mse",
                  "nvfp4:contract=flashinfer,select=mae"}}) {
    // Where the two norms disagree, each has the other's second candidate.
    const StoredCase c = real_case(recipe), o = real_case(other);
    auto tensors = tensors_of(c);
    const std::int64_t blocks = kRows * c.blocks();
    std::int64_t disagree = 0, flipped = 0, codes = 0;
    for (std::int64_t i = 0; i < blocks; ++i) {
      if (c.q.tile.choices[at(i)] == o.q.tile.choices[at(i)]) continue;
      if (disagree++ % 8 != 0) continue;
      ++flipped;
      test::poke(tensors, "scales", i, o.q.tile.scales[at(i)]);
      for (std::int64_t k = 0; k < 16; ++k) {
        const std::int64_t from = i * 16 + k;  // no padding: 320 = 20 blocks
        codes += c.q.tile.codes[at(from)] != o.q.tile.codes[at(from)] ? 1 : 0;
        test::poke_code(tensors, from / kCols, from % kCols, o.q.tile.codes[at(from)]);
      }
    }
    REQUIRE(flipped > 3);
    const std::string text = remainder(run(tensors, c.recipe), c);
    CHECK_MESSAGE(
        text == part("code that follows the other scale", codes, kRows * kCols, "elements") + "; " +
                    part("4/6 choice flipped", flipped, blocks, "blocks"),
        recipe);
  }
}

TEST_CASE("some signs of zero, one code, several codes") {
  const Runner run;
  for (const char* recipe : {"mxfp4", "nvfp4", "nvfp4:select=mse", "hif4"}) {
    const StoredCase c = real_case(recipe);
    auto tensors = tensors_of(c);
    std::int64_t zeros = 0, changed = 0;
    for (std::int64_t i = 0; i < kRows * kCols; ++i) {
      if (c.q.tile.codes[at(i)] != 8 || zeros++ % 3 != 0) continue;
      test::poke_code(tensors, i / kCols, i % kCols, 0);
      ++changed;
    }
    REQUIRE((changed > 3 && changed < zeros));
    CHECK(remainder(run(tensors, c.recipe), c) ==
          part("sign of zero", changed, kRows * kCols, "elements"));
    for (const std::int64_t n : {1, 5}) {
      tensors = tensors_of(c);
      for (std::int64_t i = 0; i < n; ++i) {
        // 3 to 5, no neighbour and no tie. One per row.
        std::int64_t col = 0;
        const std::int64_t row = 128 - 20 * i;
        while (c.q.tile.codes[at(row * kCols + col)] != 3) ++col;
        REQUIRE(col < kCols);
        test::poke_code(tensors, row, col, 5);
      }
      CHECK(remainder(run(tensors, c.recipe), c) ==
            part("another code", n, kRows * kCols, "elements"));
    }
  }
}

TEST_CASE("an outer scale one unit in the last place off, used for every block") {
  const Runner run;
  for (const char* recipe : {"nvfp4", "nvfp4:contract=modelopt", "nvfp4:contract=torchao"}) {
    for (const int by : {-3, -1, 1, 3}) {
      StoredCase c = real_case(recipe);
      const auto bits = bit_cast<std::uint32_t>(c.q.outer[0].g) + static_cast<std::uint32_t>(by);
      const std::vector<OuterScale32> outer = {{c.q.outer[0].amax, bit_cast<float>(bits)}};
      Tile tile{c.x.data(), nullptr, kRows, kCols, kCols};
      tile.source = c.source;
      c.q = test::quantized(oracle_backend(), c.recipe, tile, outer);
      const IdentifyResult result = run(tensors_of(c), c.recipe, true);
      // Another rule for g may give this value: then it makes all the bytes by itself.
      for (const ExplainingRecipe& e : result.explaining) {
        const StoredCase theirs =
            stored_case(oracle_backend(), e.recipe, c.x, kRows, kCols, c.source);
        CHECK_MESSAGE(bit_cast<std::uint32_t>(theirs.q.outer[0].g) == bits, recipe, " by ", by,
                      ": ", to_string(e.recipe));
        CHECK(makes_the_same(e.recipe, c));
      }
      if (!result.explaining.empty()) continue;
      REQUIRE(!result.best.empty());
      CHECK_MESSAGE(
          remainder_of(result.best[0].check) == part("outer scale or amax", 1, 1, "outer scales"),
          recipe, " by ", by, ": ", to_string(result.best[0].recipe));
    }
  }
}

// Blocks whose scaled values are the ties of E2M1, under several scales.
std::vector<float> ties_tensor(std::int64_t rows, std::int64_t cols, std::int64_t block) {
  const float points[] = {0.25f, -0.75f, 1.25f, -1.75f, 2.5f, -3.5f, 5.0f, -0.25f,
                          0.75f, -1.25f, 1.75f, -2.5f,  3.5f, -5.0f, 1.0f};
  std::vector<float> x(at(rows * cols));
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    const float scale = std::ldexp(1.0f, static_cast<int>(i / block * 5 % 7) - 3);
    x[at(i)] = scale * (i % block == 0 ? 6.0f : points[(i + i / block) % 15]);
  }
  return x;
}

TEST_CASE("ties away from zero: by a recipe that has the rule, else as ties") {
  const Runner run;
  constexpr std::int64_t kTieRows = 8, kTieCols = 128;
  // MX has a key for it.
  for (const char* ties : {"away", "zero", "even"}) {
    const StoredCase c = stored_case(std::string("mxfp4:contract=ocp-floor-rne,ties=") + ties,
                                     ties_tensor(kTieRows, kTieCols, 32), kTieRows, kTieCols);
    const IdentifyResult result = run(tensors_of(c), c.recipe);
    CHECK_MESSAGE(test::explains(result, c.recipe), ties);
    for (const ExplainingRecipe& e : result.explaining) {
      CHECK_MESSAGE(makes_the_same(e.recipe, c), to_string(e.recipe));
      const std::string full = to_full_string(e.recipe);
      if (std::string(ties) != "zero" && e.recipe.family == Family::kMx) {
        CHECK_MESSAGE(has(full, std::string("ties=") + ties), full);
      }
    }
  }
  // NVFP4 has none. g = 1, scales are powers of two, so that ties stay ties.
  const StoredCase c =
      stored_case("nvfp4:scale=none", ties_tensor(kTieRows, kTieCols, 16), kTieRows, kTieCols);
  auto tensors = tensors_of(c);
  std::int64_t ties = 0;
  for (std::int64_t i = 0; i < kTieRows * kTieCols; ++i) {
    const float scale = std::ldexp(1.0f, static_cast<int>(i / 16 * 5 % 7) - 3);
    const float y = std::fabs(c.x[at(i)]) / scale;
    // To even: 0.25, 1.25, 2.5 and 5 go down; away they go up.
    const int down = y == 0.25f ? 0 : y == 1.25f ? 2 : y == 2.5f ? 4 : y == 5.0f ? 6 : -1;
    if (down < 0) continue;
    REQUIRE((c.q.tile.codes[at(i)] & 7) == down);
    test::poke_code(tensors, i / kTieCols, i % kTieCols, c.q.tile.codes[at(i)] + 1);
    ++ties;
  }
  CHECK(ties > 100);
  CHECK(remainder(run(tensors, c.recipe), c) ==
        part("exact tie rounded the other way", ties, kTieRows * kTieCols, "elements"));
}

TEST_CASE("what is said to explain everything does so beyond any sample") {
  // Rows of values on the grid and two ties in one of them: a sample that does not meet it cannot
  // tell the rules for ties apart. 2.5 is 2 to even and 3 away; 3.5 is 4 to even and 3 toward zero.
  const Runner run;
  constexpr std::int64_t kTall = 640, kNarrow = 32;
  std::vector<float> x(at(kTall * kNarrow));
  const float grid[] = {0.5f, -1, 1.5f, 2, -3, 4};
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    x[at(i)] = i % 32 == 0 ? 6.0f : grid[i * 7 % 6];
    x[at(i)] *= std::ldexp(1.0f, static_cast<int>(i / 32 % 5));
  }
  for (const std::int64_t row : {400}) {
    std::vector<float> one = x;
    const float last[] = {6.0f, 2.5f, 3.5f};
    for (std::int64_t c = 0; c < kNarrow; ++c) {
      one[at(row * kNarrow + c)] = c < 3 ? last[c] : 1.0f;
    }
    for (const char* recipe :
         {"mxfp4:contract=ocp-floor-rne", "mxfp4:contract=ocp-floor-rne,ties=away"}) {
      const StoredCase c = stored_case(*cpu_backends().back(), parse_recipe(recipe), one, kTall,
                                       kNarrow, SourceType::kF32);
      const IdentifyResult result = run(tensors_of(c), c.recipe);
      CHECK_MESSAGE(test::explains(result, c.recipe), recipe);
      std::string wrong;
      for (const ExplainingRecipe& e : result.explaining) {
        std::vector<std::string> texts = e.also;
        texts.push_back(to_string(e.recipe));
        for (const std::string& text : texts) {
          const StoredCase theirs = stored_case(*cpu_backends().back(), parse_recipe(text), one,
                                                kTall, kNarrow, SourceType::kF32);
          if (theirs.q.tile.codes != c.q.tile.codes) wrong += text + "\n";
        }
        // The ties make every other rule for ties a setting with effect.
        for (const std::string& setting : e.without_effect) {
          if (setting.starts_with("ties=")) wrong += to_string(e.recipe) + ": " + setting + "\n";
        }
      }
      CHECK_MESSAGE(wrong.empty(), recipe, ", tie in row ", row, ", explained in error by\n",
                    wrong.substr(0, 400));
    }
  }
}

TEST_CASE("bytes of no known format are refused, unrelated bytes are explained by nothing") {
  const Runner run;
  const StoredCase c = real_case("nvfp4");
  auto tensors = tensors_of(c);
  test::tensor_named(tensors, "codes").shape = {kRows, 7};
  test::data_named(tensors, "codes").resize(at(kRows * 7));
  CHECK_THROWS_AS(run(tensors, c.recipe), Error);
  // Codes of the negated tensor.
  tensors = tensors_of(c);
  for (char& byte : test::data_named(tensors, "codes")) byte = static_cast<char>(byte ^ 0x88);
  const IdentifyResult result = run(tensors, c.recipe);
  CHECK(result.explaining.empty());
  CHECK(!result.best.empty());
}

}  // namespace
}  // namespace fp4scope
