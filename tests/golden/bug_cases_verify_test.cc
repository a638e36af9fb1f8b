// bug_cases_verify_test.cc: the cases of ../shared/cases/bugs.md on signs, code books, layouts and
// sizes (C20 to C25), through verify and identify as a user runs them; inputs and answers are those
// of that file. Layouts and readers alone are in the other bug_cases_*_test.cc.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cmath>

#include "sim/error.h"
#include "tests/golden/dump.h"

namespace fp4scope {
namespace {

using test::at;
using test::classes_text;
using test::dump;
using test::Dump;
using test::explains;
using test::FileTensor;
using test::has;
using test::job_of;
using test::padded;
using test::stored_case;
using test::tensors_of;
using test::verified;

TEST_CASE("C20 signs of zero are a class of their own") {
  const Dump d;
  const std::vector<float> x = padded({-0.0f, 1, -0.0f, 2, -0.1f, 6}, 32);
  const char* recipe = "mxfp4:contract=ocp-floor-rne";
  CHECK(d.verify(dump(x, {8, 2, 8, 4, 8, 7}, "\x7F"), recipe).agrees());
  const auto dropped = dump(x, {0, 2, 0, 4, 0, 7}, "\x7F");
  CHECK(classes_text(d.verify(dropped, recipe)) == "sign_of_zero 3");
  VerifyOptions options;
  options.accept = parse_accept("sign-of-zero");
  test::write_tensors(d.path(), dropped);
  const VerifyResult r = verified(job_of(d.path(), recipe), options);
  CHECK(r.agrees());
  CHECK(r.accepted == 3);
  // An input -0 dropped, a negative underflow kept: that of compressed-tensors, by name.
  const auto half = dump(x, {0, 2, 0, 4, 8, 7}, "\x7F");
  for (const ExplainingRecipe& e : d.identify(half, "mxfp4").explaining) {
    CHECK_MESSAGE(has(to_full_string(e.recipe), "zero-sign=drop-input"), to_full_string(e.recipe));
  }
}

TEST_CASE("C21 a code book with 0.0625 in place of 0.5, and one of HiF4") {
  const Dump d;
  std::vector<float> x(32, 0.0f), values(32, 0.0f);
  const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (std::size_t i = 0; i < 16; ++i) x[i] = i < 8 ? e2m1[i] : -e2m1[i - 8];
  x[8] = -0.0f;
  const char* recipe = "mxfp4:contract=ocp-floor-rne";
  values = x;
  const auto with = [&](const std::vector<float>& v) {
    return d.verify(
        {{"x", "F32", {1, 32}, test::bytes_of(x)}, {"values", "F32", {1, 32}, test::bytes_of(v)}},
        recipe, "values");
  };
  CHECK(with(values).agrees());
  values[1] = 0.0625f;
  values[9] = -0.0625f;
  VerifyResult r = with(values);
  CHECK(classes_text(r) == "other_value 2");
  CHECK(r.first.at(0).elements == std::vector<int>{1, 9});
  for (std::size_t i = 0; i < 16; ++i) values[i] = std::copysign(0.25f * float(i % 8), x[i]);
  r = with(values);
  CHECK(r.elements_differing == 14);  // all but the zeros
}

TEST_CASE("C22 every row count: the swizzle that was written is found and named") {
  const Dump d;
  std::int64_t found = 0;
  for (const std::int64_t rows : {1, 31, 32, 33, 127, 128, 129, 257}) {
    for (const std::int64_t blocks : {1, 3, 4, 5, 90}) {
      // Amax of block (r, c) such that its byte is that of the case, in a range that exists.
      std::vector<float> x(at(rows * blocks * 32), 0.0f);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < blocks; ++c) {
          const int byte = static_cast<int>((7 * r + c) % 251 + 1);
          x[at((r * blocks + c) * 32)] = std::ldexp(1.0f, byte - 127);
        }
      }
      const char* recipe = "mxfp4:contract=ocp-floor-rne";
      const auto c =
          stored_case(*cpu_backends().back(), parse_recipe(recipe), x, rows, blocks * 32);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto want = static_cast<int>((7 * r) % 251 + 1);
        CHECK(c.q.tile.scales[at(r * blocks)] == std::max(0, want - 2));
      }
      auto tensors = tensors_of(c, "low-first", "128x4");
      tensors.pop_back();
      CHECK(d.verify(tensors, recipe, "codes scales", "128x4").agrees());
      // Swizzled for another number of rows or columns is not the same.
      const std::int64_t size = test::scale_entries_of("128x4", rows, blocks).value();
      if (size == rows * blocks && rows > 1) {
        const VerifyResult r = d.verify(tensors, recipe);  // read as linear
        CHECK(!r.agrees());
        CHECK(r.layout_found == "128x4");
        CHECK(has(summary_of(r), "agree with --layout 128x4"));
        ++found;
      } else if (size != rows * blocks) {
        try {
          d.verify(tensors, recipe);
          FAIL_CHECK("read as linear");
        } catch (const Error& e) {
          CHECK(has(e.what(), "128x4"));
          ++found;
        }
      }
    }
  }
  CHECK(found == 40);
}

TEST_CASE("C23 padding bytes 0xFF change nothing but are reported") {
  const Dump d;
  constexpr std::int64_t kWidth = 1504;  // 47 scales, stored as 48
  const std::vector<float> x = test::some_values(3 * kWidth, 31);
  const auto c = stored_case("mxfp4", x, 3, kWidth);
  for (const char* layout : {"128x4", "8x4", "te-padded", "deepgemm"}) {
    auto tensors = tensors_of(c, "low-first", layout);
    const VerifyResult clean = d.verify(tensors, "mxfp4", "codes scales", layout);
    CHECK(clean.agrees());
    CHECK(clean.notes.empty());
    const test::Bytes bytes = test::stored_scales(layout, 3, 47, 1, c.q.tile.scales, 0xFF);
    test::data_named(tensors, "scales") = test::data_of(bytes);
    const VerifyResult r = d.verify(tensors, "mxfp4", "codes scales", layout);
    const std::int64_t padding = std::ssize(bytes) - 3 * 47;
    CHECK(classes_text(r) == "padding " + std::to_string(padding));
    CHECK(r.scales_differing == 0);
    CHECK(r.elements_differing == 0);
    CHECK(r.first.empty());
    VerifyOptions options;
    options.accept = parse_accept("padding");
    VerifyCase job = job_of(d.path(), "mxfp4");
    job.layout = layout;
    CHECK(verified(job, options).agrees());
    // identify does not count padding.
    const IdentifyResult result = d.identify(tensors, "mxfp4");
    CHECK_MESSAGE(explains(result, "mxfp4"), layout);
  }
}

TEST_CASE("C24 logical and packed widths of F4") {
  const Dump d;
  const std::vector<float> x = test::some_values(64, 33);
  const auto c = stored_case("mxfp4", x, 2, 32);
  auto tensors = tensors_of(c);
  FileTensor& codes = test::tensor_named(tensors, "codes");
  codes.dtype = "F4";
  codes.shape = {2, 32};
  FileTensor& scales = test::tensor_named(tensors, "scales");
  scales.dtype = "F8_E8M0";
  scales.shape = {2, 1};
  CHECK(d.verify(tensors, "mxfp4").agrees());
  const auto refusal = [&](const std::vector<FileTensor>& changed) -> std::string {
    try {
      d.verify(changed, "mxfp4");
    } catch (const Error& e) {
      CHECK(e.exit_code() == 3);
      CHECK(!has(e.what(), "\n"));
      return e.what();
    }
    FAIL("nothing was refused");
    return "";
  };
  // The packed width in the header: 2 rows of 16 elements are 16 bytes.
  auto narrow = tensors;
  test::tensor_named(narrow, "codes").shape = {2, 16};
  test::data_named(narrow, "codes").resize(16);
  CHECK(has(refusal(narrow), "[2, 16]"));
  // Data of 32 bytes with that header is no safetensors file.
  auto wrong = tensors;
  test::tensor_named(wrong, "codes").shape = {2, 16};
  CHECK(!refusal(wrong).empty());
  // The logical width where bytes are meant: U8 [2, 96] for rows of 48 bytes.
  auto wide = tensors_of(stored_case("mxfp4", test::some_values(2 * 96, 35), 2, 96), "bytes");
  CHECK(has(refusal(wide), "[2, 96]"));
  // [2, 3]: no row of whole bytes.
  std::vector<FileTensor> odd = {{"x", "F32", {2, 3}, test::bytes_of(std::vector<float>(6, 1.0f))},
                                 {"codes", "F4", {2, 3}, std::string(3, '\x66')},
                                 {"scales", "U8", {2, 1}, "\x7D\x7D"}};
  CHECK(!refusal(odd).empty());
  // [3, 2]: three rows of one byte. 1.0 under 2^-2: 4, code 6.
  odd[0] = {"x", "F32", {3, 2}, test::bytes_of(std::vector<float>(6, 1.0f))};
  odd[1].shape = {3, 2};
  odd[2] = {"scales", "U8", {3, 1}, "\x7D\x7D\x7D"};
  CHECK(d.verify(odd, "mxfp4:contract=ocp-floor-rne").agrees());
}

// A file of `bytes` zeros behind `header`, with no blocks on the disk; false where there is no
// room.
bool write_sparse(const std::string& path, const std::string& header, std::int64_t bytes) {
  test::write_file(path, header);
  return ::truncate(path.c_str(), std::ssize(header) + bytes) == 0;
}
void poke_file(const std::string& path, std::int64_t offset, std::string_view bytes) {
  const int file = ::open(path.c_str(), O_WRONLY);
  REQUIRE(file >= 0);
  const auto n = ::pwrite(file, bytes.data(), bytes.size(), offset);
  ::close(file);
  REQUIRE(n == std::ssize(bytes));
}

TEST_CASE("C25 element 2147483648 is row 65536: MX block 67108864, byte 1073741824 of the codes") {
  // [65537, 32768] of F8_E4M3 (one byte each), zeros but for the last row; a zero block of
  // ocp-floor-rne has the byte 0 and codes 0, so that the planes are sparse too.
  constexpr std::int64_t kCount = 65537, kWidth = 32768, kElements = kCount * kWidth;
  const test::TempDir dir;
  const auto header = [](const char* dtype, std::int64_t cols, std::int64_t bytes) {
    const std::string json = std::string("{\"t\":{\"dtype\":\"") + dtype + "\",\"shape\":[65537," +
                             std::to_string(cols) + "],\"data_offsets\":[0," +
                             std::to_string(bytes) + "]}}";
    return test::safetensors_bytes(json, "");
  };
  const std::string x = dir.file("x.safetensors"), codes = dir.file("codes.safetensors"),
                    scales = dir.file("scales.safetensors");
  const std::string hx = header("F8_E4M3", kWidth, kElements),
                    hc = header("U8", kWidth / 2, kElements / 2),
                    hs = header("U8", kWidth / 32, kElements / 32);
  if (!write_sparse(x, hx, kElements) || !write_sparse(codes, hc, kElements / 2) ||
      !write_sparse(scales, hs, kElements / 32)) {
    test::skip("no sparse files of 3 GiB in the temporary folder");
    return;
  }
  // 6.0 (E4M3 0x4C) in element 2147483648: byte 127, code 7, of which the dump has 6.
  poke_file(x, std::ssize(hx) + 2147483648, "\x4C");
  poke_file(scales, std::ssize(hs) + 67108864, "\x7F");
  VerifyCase job;
  job.recipe = "mxfp4:contract=ocp-floor-rne";
  job.input = x;
  job.codes = codes;
  job.scales = scales;
  // Two differences: everything else of the four billion bytes is equal.
  poke_file(codes, std::ssize(hc) + 1073741824, "\x06");
  poke_file(scales, std::ssize(hs) + 67108864 + 1023, "\x01");
  const VerifyResult r = verified(job);
  CHECK(r.elements == kElements);
  CHECK(r.blocks == kElements / 32);
  CHECK(r.blocks_differing == 2);
  CHECK(r.elements_differing == 1);
  CHECK(r.scales_differing == 1);
  REQUIRE(r.first.size() == 2);
  CHECK((r.first[0].row == 65536 && r.first[0].block == 0 && r.first[0].col == 0));
  CHECK(r.first[0].elements == std::vector<int>{0});
  CHECK((r.first[1].row == 65536 && r.first[1].block == 1023 && r.first[1].col == 32736));
}

}  // namespace
}  // namespace fp4scope
