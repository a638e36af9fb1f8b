// verify_shapes_test.cc: verify over shapes and orders: ragged rows, 2-D blocks, rows and columns
// that were padded before they were quantized, axes, blocks across row ends, swizzled scales,
// threads, and warnings about goldens that say little.
#include <doctest/doctest.h>

#include <cmath>

#include "sim/error.h"
#include "tests/support/paths.h"
#include "tests/support/stored_case.h"

namespace fp4scope {
namespace {

using test::at;
using test::classes_text;
using test::has;
using test::job_of;
using test::poke;
using test::poke_code;
using test::some_values;
using test::stored_case;
using test::tensors_of;
using test::verified;

TEST_CASE("ragged rows: blocks end with their row, padding does not count") {
  const test::TempDir dir;
  const std::string path = dir.file("x.safetensors");
  // C23: row 0 all 0.01, row 1 all 100.
  std::vector<float> x(80, 0.01f);
  std::fill(x.begin() + 40, x.end(), 100.0f);
  for (const auto& [recipe, blocks] :
       {std::pair{"nvfp4", 6}, std::pair{"mxfp4", 4}, std::pair{"hif4", 2}, std::pair{"int4", 4}}) {
    auto tensors = tensors_of(stored_case(recipe, x, 2, 40));
    VerifyResult r = verified(path, tensors, job_of(path, recipe));
    CHECK(r.agrees());
    CHECK(r.elements == 80);
    CHECK(r.blocks == blocks);
    CHECK(r.scales == blocks);
    const std::int64_t per_row = blocks / 2, last = per_row - 1;
    const int was = tensors[1].data[at(20 + 19)] >> 4 & 0xF;
    poke_code(tensors, 1, 39, was ^ 1);
    r = verified(path, tensors, job_of(path, recipe));
    CHECK(r.elements_differing == 1);
    REQUIRE(r.first.size() == 1);
    CHECK((r.first[0].row == 1 && r.first[0].block == last));
    CHECK(r.first[0].elements.at(0) == 39 - r.first[0].col);
    CHECK(std::ssize(r.first[0].x) == 40 - r.first[0].col);
  }
}

TEST_CASE("the high nibble behind an odd row is padding") {
  const test::TempDir dir;
  const std::string path = dir.file("x.safetensors");
  auto tensors = tensors_of(stored_case("mxfp4", some_values(3 * 33), 3, 33));
  CHECK(verified(path, tensors, job_of(path, "mxfp4")).agrees());
  poke_code(tensors, 1, 33, 5);
  VerifyResult r = verified(path, tensors, job_of(path, "mxfp4"));
  CHECK(classes_text(r) == "padding 1");
  CHECK(r.padding_differing == 1);
  CHECK(r.elements_differing == 0);
  CHECK(!r.agrees());
  REQUIRE(!r.notes.empty());
  CHECK(has(r.notes[0], "byte 33"));  // 17 + 16
  VerifyOptions options;
  options.accept = parse_accept("padding");
  r = verified(path, tensors, job_of(path, "mxfp4"), options);
  CHECK(r.agrees());
  CHECK(r.accepted == 1);
}

TEST_CASE("2-D blocks: a scale on every row, or one per block") {
  const test::TempDir dir;
  const std::string path = dir.file("x.safetensors");
  const char* recipe = "nvfp4:block=2d";
  std::vector<float> x = some_values(40 * 48, 3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= i / 48 / 16 == 1 ? 4.0f : 1.0f;
  const auto c = stored_case(recipe, x, 40, 48);
  auto tensors = tensors_of(c);
  CHECK(verified(path, tensors, job_of(path, recipe)).agrees());
  auto changed = tensors;
  poke(changed, "scales", 17 * 3 + 2, c.q.tile.scales[17 * 3 + 2] - 1);
  VerifyResult r = verified(path, changed, job_of(path, recipe));
  CHECK(classes_text(r) == "scale_off_by_one 1");
  CHECK((r.first.at(0).row == 17 && r.first.at(0).block == 2));
  // One per block: [3, 3].
  std::string one;
  for (const std::int64_t row : {0, 16, 32}) {
    for (std::int64_t b = 0; b < 3; ++b) {
      one += static_cast<char>(c.q.tile.scales[at(row * 3 + b)]);
    }
  }
  test::tensor_named(tensors, "scales") = {"scales", "F8_E4M3", {3, 3}, one};
  VerifyCase job = job_of(path, recipe);
  job.layout = "blocks";
  r = verified(path, tensors, job);
  CHECK(r.agrees());
  poke(tensors, "scales", 4, one[4] - 1);
  r = verified(path, tensors, job);
  CHECK(!r.agrees());
  CHECK((r.first.at(0).row == 16 && r.first.at(0).block == 1));
  // verify.h: counted in stored scales. One of nine.
  CHECK(r.scales == 9);
  CHECK(r.scales_differing == 1);
  CHECK(classes_text(r) == "scale_off_by_one 1");
}

TEST_CASE("rows and columns padded before quantization") {
  // spec/layouts.md 2: fouroversix pads rows to 128 and K with zeros, so that a 16x16 block at the
  // edge covers real and padded rows; its scales are 128x4.
  const test::TempDir dir;
  const std::string path = dir.file("x.safetensors");
  constexpr std::int64_t kCount = 90, kWidth = 100, kRows = 128, kCols = 128;
  const std::vector<float> x = some_values(kCount * kWidth, 5);
  std::vector<float> padded(at(kRows * kCols), 0.0f);
  for (std::int64_t r = 0; r < kCount; ++r) {
    std::copy_n(x.begin() + r * kWidth, kWidth, padded.begin() + r * kCols);
  }
  for (const char* recipe : {"nvfp4:contract=fouroversix", "nvfp4:contract=fouroversix,block=2d",
                             "nvfp4:contract=fouroversix,select=mse"}) {
    const auto c = stored_case(recipe, padded, kRows, kCols);
    auto tensors = tensors_of(c, "low-first", "128x4");
    test::tensor_named(tensors, "x") = {"x", "F32", {kCount, kWidth}, test::bytes_of(x)};
    VerifyCase job = job_of(path, recipe);
    job.layout = "native";
    VerifyResult r = verified(path, tensors, job);
    CHECK_MESSAGE(r.agrees(), recipe, ": ", summary_of(r));
    CHECK(r.stored == StoredShape{kRows, kCols});
    CHECK(r.elements == kCount * kWidth);
    CHECK(r.blocks == kCount * 7);
    CHECK(r.layout == "128x4");
    // Beyond the rows, and beyond the columns: padding. Inside: an element.
    auto rows = tensors, cols = tensors, inside = tensors;
    poke_code(rows, 127, 3, 2);
    r = verified(path, rows, job);
    CHECK(classes_text(r) == "padding 1");
    CHECK(r.elements_differing == 0);
    CHECK(!r.agrees());
    poke_code(cols, 0, 101, 2);
    r = verified(path, cols, job);
    CHECK(classes_text(r) == "padding 1");
    VerifyOptions options;
    options.accept = parse_accept("padding");
    r = verified(path, cols, job, options);
    CHECK(r.agrees());
    CHECK(r.accepted == 1);
    const int was = c.q.tile.codes[at(89 * kCols + 99)];
    poke_code(inside, 89, 99, was ^ 1);
    r = verified(path, inside, job, options);
    CHECK(r.elements_differing == 1);
    CHECK(r.padding_differing == 0);
    CHECK((r.first.at(0).row == 89 && r.first.at(0).block == 6));
    CHECK(r.first.at(0).elements == std::vector<int>{3});
  }
}

TEST_CASE("blocks along another axis") {
  const test::TempDir dir;
  const std::string path = dir.file("x.safetensors");
  // [2, 64, 3] with blocks along axis 1: rows are the other two dimensions in order.
  const std::vector<float> x = some_values(2 * 64 * 3, 7);
  std::vector<float> moved;
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t k = 0; k < 3; ++k) {
      for (std::size_t j = 0; j < 64; ++j) moved.push_back(x[(i * 64 + j) * 3 + k]);
    }
  }
  auto tensors = tensors_of(stored_case("mxfp4", moved, 6, 64));
  test::tensor_named(tensors, "x") = {"x", "F32", {2, 64, 3}, test::bytes_of(x)};
  for (const int axis : {1, -2}) {
    VerifyCase job = job_of(path, "mxfp4");
    job.axis = axis;
    const VerifyResult r = verified(path, tensors, job);
    CHECK(r.agrees());
    CHECK(r.blocks == 12);
    CHECK(r.shape == std::vector<std::int64_t>{2, 64, 3});
  }
  VerifyCase job = job_of(path, "mxfp4");
  job.axis = 1;
  poke_code(tensors, 4, 40, (tensors[1].data[4 * 32 + 20] & 0xF) ^ 1);
  const VerifyResult r = verified(path, tensors, job);
  CHECK((r.first.at(0).row == 4 && r.first.at(0).block == 1));
  CHECK(has(r.first.at(0).command, "--axis"));
}

TEST_CASE("ragged=flat: blocks cross row ends") {
  // spec/layouts.md 3: 2x48, 0.01 in columns 32..47 of row 0, 100 in columns 0..15 of row 1; flat:
  // byte 131 and zeros for the 0.01. All else is 1.0: byte 125, 4 * 0.25.
  const test::TempDir dir;
  const std::string path = dir.file("x.safetensors");
  const char* recipe = "mxfp4:contract=pychop";
  std::vector<float> x(96, 1.0f), values(96, 1.0f);
  for (std::size_t i = 32; i < 64; ++i) {
    x[i] = i < 48 ? 0.01f : 100.0f;
    values[i] = i < 48 ? 0.0f : 96.0f;  // 100 / 16 = 6.25: 6
  }
  const std::string six(8, '\x66');
  const std::string codes = six + six + std::string(8, '\0') + std::string(8, '\x77') + six + six;
  const auto compared = [&](const std::vector<float>& v, const std::string& scales,
                            const char* parts) {
    return verified(path,
                    {{"x", "F32", {2, 48}, test::bytes_of(x)},
                     {"values", "F32", {2, 48}, test::bytes_of(v)},
                     {"codes", "U8", {48}, codes},
                     {"scales", "U8", {3}, scales}},
                    job_of(path, recipe, parts));
  };
  for (const char* parts : {"values", "codes scales", "codes scales values"}) {
    const VerifyResult r = compared(values, "\x7D\x83\x7D", parts);
    CHECK_MESSAGE(r.agrees(), parts, ": ", summary_of(r));
    CHECK(r.elements == 96);
    CHECK(r.blocks == 3);
  }
  VerifyResult r = compared(values, "\x7D\x82\x7D", "codes scales");
  CHECK(classes_text(r) == "scale_off_by_one 1");
  CHECK(r.first.at(0).block == 1);
  values[50] = 64.0f;  // row 1, column 2: element 18 of the second block, code 7 to 6
  r = compared(values, "\x7D\x83\x7D", "values");
  CHECK(classes_text(r) == "adjacent_code 1");
  CHECK(r.first.at(0).block == 1);
  CHECK(r.first.at(0).elements == std::vector<int>{18});
  // What blocks that end with their rows would give: byte 118, 0.01171875.
  for (std::size_t i = 32; i < 48; ++i) values[i] = 0.01171875f;
  values[50] = 96.0f;
  CHECK(compared(values, "\x7D\x83\x7D", "values").elements_differing == 16);
}

TEST_CASE("swizzled scales, and the order that would fit is named") {
  const test::TempDir dir;
  const std::string path = dir.file("x.safetensors");
  const auto c = stored_case("nvfp4", some_values(130 * 80, 11), 130, 80);
  for (const char* layout : {"128x4", "8x4", "te-padded", "deepgemm", "linear"}) {
    auto tensors = tensors_of(c, "low-first", layout);
    VerifyCase job = job_of(path, "nvfp4");
    job.layout = layout;
    VerifyResult r = verified(path, tensors, job);
    CHECK_MESSAGE(r.agrees(), layout);
    CHECK(r.layout == layout);
    // The scale of row 129, block 4.
    const std::int64_t place = test::scale_place(layout, 130, 5, 129, 4, 1, 0);
    poke(tensors, "scales", place, c.q.tile.scales[129 * 5 + 4] + 1);
    r = verified(path, tensors, job);
    CHECK(classes_text(r) == "scale_off_by_one 1");
    CHECK((r.first.at(0).row == 129 && r.first.at(0).block == 4));
  }
  // 1x4-block rows: 128x4 and te-padded have the same size for 128 rows of 4 blocks.
  const auto square = stored_case("nvfp4", some_values(128 * 64, 13), 128, 64);
  const auto tensors = tensors_of(square, "high-first", "128x4");
  const VerifyResult r = verified(path, tensors, job_of(path, "nvfp4"));
  CHECK(!r.agrees());
  CHECK(r.layout_found == "128x4");
  CHECK(r.nibbles_found == "high-first");
  CHECK(has(summary_of(r), "--layout 128x4"));
  CHECK(has(summary_of(r), "--nibbles high-first"));
  VerifyOptions options;
  options.probes_layouts = false;
  const VerifyResult quiet = verified(path, tensors, job_of(path, "nvfp4"), options);
  CHECK(quiet.layout_found.empty());
  CHECK(quiet.nibbles_found.empty());
}

TEST_CASE("first differing blocks come in row order from any number of threads") {
  const test::TempDir dir;
  const std::string path = dir.file("x.safetensors");
  // Several tiles of rows, and one row of several tiles.
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{5000, 512},
                                   std::pair<std::int64_t, std::int64_t>{2, 1 << 21}}) {
    const auto c = stored_case(*cpu_backends().back(), parse_recipe("mxfp4"),
                               some_values(rows * cols, 17), rows, cols);
    auto tensors = tensors_of(c);
    tensors.pop_back();  // values
    // Differences from the end to the front.
    std::vector<std::pair<std::int64_t, std::int64_t>> places;
    const std::int64_t blocks = cols / 32;
    for (std::int64_t i = 9; i-- > 0;) {
      places.emplace_back(i * (rows - 1) / 8, (i * 7919 + i * (blocks / 9)) % blocks);
    }
    for (const auto& [row, block] : places) {
      const int was = c.q.tile.scales[at(row * blocks + block)];
      poke(tensors, "scales", row * blocks + block, was + 1);
    }
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    test::write_tensors(path, tensors);
    for (const int threads : {1, 2, 3}) {
      VerifyOptions options;
      options.threads = threads;
      options.first = 4;
      options.probes_layouts = false;
      const VerifyResult r = verified(job_of(path, "mxfp4"), options);
      CHECK(r.scales_differing == std::ssize(places));
      CHECK(r.scales_one_above == std::ssize(places));
      CHECK(r.blocks_differing == std::ssize(places));
      REQUIRE(r.first.size() == 4);
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK(r.first[i].row == places[i].first);
        CHECK(r.first[i].block == places[i].second);
      }
    }
  }
}

TEST_CASE("warnings for goldens that say little, none for a good one") {
  const test::TempDir dir;
  const std::string path = dir.file("x.safetensors");
  const auto warnings = [&](const std::string& recipe, const std::vector<float>& x) {
    const auto c = stored_case(recipe, x, 4, std::ssize(x) / 4);
    const VerifyResult r = verified(path, tensors_of(c), job_of(path, recipe));
    CHECK(r.agrees());
    std::string text;
    for (const std::string& w : r.warnings) text += w + "\n";
    return text;
  };
  std::vector<float> good = some_values(4 * 256, 19);
  for (std::size_t i = 0; i < good.size(); ++i)
    good[i] *= 1.0f + 0.37f * static_cast<float>(i / 64);
  CHECK(warnings("nvfp4", good).empty());
  CHECK(warnings("nvfp4:select=mse", good).empty());
  CHECK(warnings("mxfp4", good).empty());
  CHECK(warnings("hif4", good).empty());
  const std::string zeros = warnings("nvfp4", std::vector<float>(4 * 64, 0.0f));
  CHECK(has(zeros, "every stored code is zero"));
  CHECK(has(zeros, "every stored scale is"));
  // One value of both signs everywhere: one scale, but codes that are not zero.
  const std::string flat = warnings("mxfp4", std::vector<float>(4 * 64, 1.5f));
  CHECK(has(flat, "every stored scale is"));
  CHECK(!has(flat, "every stored code"));
  // amax 10.5 = 2688 / 256: g is a power of two.
  std::vector<float> round = good;
  for (float& v : round) v = std::fmin(std::fmax(v, -10.0f), 10.0f);
  round[7] = 10.5f;
  CHECK(has(warnings("nvfp4", round), "power of two"));
  // Codes on the map-to-6 grid: nothing to choose.
  std::vector<float> six(4 * 64);
  for (std::size_t i = 0; i < six.size(); ++i) {
    six[i] = i % 16 == 0 ? 6.0f : (i % 3 == 0 ? 4.0f : 0.5f);
    six[i] *= i / 16 % 2 == 0 ? 1.0f : 2.0f;
  }
  CHECK(has(warnings("nvfp4:select=mse,scale=none", six), "map-to-6"));
}

}  // namespace
}  // namespace fp4scope
