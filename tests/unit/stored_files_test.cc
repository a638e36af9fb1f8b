// stored_files_test.cc: shapes and sizes of stored codes and scales, what is said about those that
// do not fit, recorded vectors of data/golden/layouts, the dtypes of real files, and padded inputs.
#include "tests/support/stored_files.h"

#include <algorithm>

#include "analysis/compare/padded_view.h"
#include "analysis/compare/stored.h"
#include "tests/support/vectors.h"
#include "tests/unit/stored_support.h"

namespace fp4scope {
namespace {

using test::at;
using test::Bytes;
using test::has;
using test::MemorySource;
using test::refusal;
using test::some_bytes;

TEST_CASE("codes of padded shapes: rows to 128, columns to 128") {
  const Recipe recipe = parse_recipe("nvfp4");
  const auto shape_with = [&](std::int64_t bytes, std::vector<std::int64_t> shape) {
    MemorySource source(Bytes(at(bytes), 0));
    source.tensor().shape = std::move(shape);
    return shape_of_codes(source.tensor(), recipe, CodePacking::kLowFirst, 96, 200);
  };
  CHECK(shape_with(96 * 100, {96, 100}) == StoredShape{96, 200});
  CHECK(shape_with(96 * 100, {9600}) == StoredShape{96, 200});
  CHECK(shape_with(96 * 100, {4, 24, 100}) == StoredShape{96, 200});
  CHECK(shape_with(128 * 100, {128, 100}) == StoredShape{128, 200});
  CHECK(shape_with(96 * 128, {96, 128}) == StoredShape{96, 256});
  CHECK(shape_with(128 * 128, {128, 128}) == StoredShape{128, 256});
  CHECK(shape_with(128 * 128, {16384}) == StoredShape{128, 256});
  // gpt-oss: [rows, groups, 8 bytes]; K padded to blocks.
  CHECK(shape_with(96 * 104, {96, 13, 8}) == StoredShape{96, 208});
  for (const auto& [bytes, shape] :
       {std::pair{std::int64_t{96 * 99}, std::vector<std::int64_t>{96, 99}},
        std::pair{std::int64_t{96 * 100}, std::vector<std::int64_t>{100, 96}},
        std::pair{std::int64_t{95 * 100}, std::vector<std::int64_t>{95, 100}},
        std::pair{std::int64_t{0}, std::vector<std::int64_t>{0, 100}}}) {
    const std::string text = refusal([&, b = bytes, s = shape] { shape_with(b, s); });
    CHECK(has(text, "memory"));
    CHECK(has(text, "\"t\""));
    CHECK(has(text, "96, 200"));
    CHECK(has(text, "low-first"));
  }
}

TEST_CASE("scales of another size: one sentence that names the orders that fit") {
  const Recipe recipe = parse_recipe("nvfp4");
  struct Case {
    const char* asked;
    const char* stored;
  };
  for (const Case& c : {Case{"linear", "128x4"}, Case{"128x4", "linear"}, Case{"8x4", "128x4"},
                        Case{"deepgemm", "128x4"}, Case{"linear", "deepgemm"}}) {
    const std::int64_t rows = 33, blocks = 5;
    const std::int64_t size = test::scale_entries_of(c.stored, rows, blocks).value();
    const MemorySource source(Bytes(at(size), 1));
    const std::string text = refusal([&] {
      const StoredScales scales(source.all(), recipe, parse_storage(c.asked, recipe),
                                {rows, blocks * 16});
    });
    CHECK(has(text, c.asked));
    // Every order of that size is named, none of another size.
    const std::size_t names = text.find("--layout");
    REQUIRE(names != std::string::npos);
    const std::string tail = text.substr(names);
    for (const char* order : {"linear", "128x4", "8x4", "te-padded", "deepgemm", "trtllm-page"}) {
      const bool fits = test::scale_entries_of(order, rows, blocks) == size;
      CHECK_MESSAGE((has(" " + tail + " ", std::string(" ") + order + " ") == fits), text);
    }
  }
  // Nothing fits: no order is named.
  const MemorySource source(Bytes(7, 1));
  const std::string text = refusal([&] {
    const StoredScales scales(source.all(), recipe, ScaleStorage::kLinear, {33, 80});
  });
  CHECK(!has(text, "--layout"));
  CHECK(has(text, "165"));  // 33 * 5
}

TEST_CASE("options name orders, and a wrong one is answered with the legal ones") {
  const Recipe mx = parse_recipe("mxfp4"), hif4 = parse_recipe("hif4"), int4 = parse_recipe("int4");
  CHECK(parse_packing("", mx) == CodePacking::kLowFirst);
  CHECK(parse_packing("native", mx) == CodePacking::kLowFirst);
  CHECK(parse_packing("native", parse_recipe("mxfp4:contract=ggml-cpu")) == CodePacking::kSplit16);
  CHECK(parse_packing("", parse_recipe("mxfp8e4m3")) == CodePacking::kBytes);
  CHECK(parse_storage("", mx) == ScaleStorage::kLinear);
  CHECK(parse_storage("native", parse_recipe("hif4:contract=amct")) == ScaleStorage::kHif4Msb);
  CHECK(parse_storage("native", parse_recipe("nvfp4:contract=fouroversix")) ==
        ScaleStorage::k128x4);
  CHECK(parse_storage("native", parse_recipe("nvint4:contract=fouroversix")) ==
        ScaleStorage::kLinear);
  CHECK(has(refusal([&] { parse_packing("ct", mx); }, ErrorKind::kUsage), "low-first"));
  CHECK(parse_packing("ct", int4) == CodePacking::kCt);
  CHECK(has(refusal([&] { parse_storage("128x4", hif4); }, ErrorKind::kUsage), "msb"));
  CHECK(has(refusal([&] { parse_storage("m-major", mx); }, ErrorKind::kUsage), "128x4"));
  CHECK(has(refusal([&] { parse_storage("blocks", mx); }, ErrorKind::kUsage), "128x4"));
}

// --- recorded vectors ---

Bytes hex_bytes(const std::string& text, std::size_t digits = 2) {
  Bytes out;
  for (const std::uint32_t word : test::hex_words(text, digits)) {
    out.push_back(static_cast<std::uint8_t>(word));
  }
  return out;
}

TEST_CASE("recorded nibble orders are read back") {
  const auto recorded = test::load_golden("layouts/nibbles_and_ragged.json").at("nibbles");
  const Bytes codes = hex_bytes(recorded.at("codes"), 1);
  const Recipe recipe = parse_recipe("mxfp4");
  for (const char* order : {"low-first", "high-first", "split8", "split16"}) {
    const MemorySource source(hex_bytes(recorded.at(std::string("nibbles=") + order)));
    const std::int64_t cols = std::ssize(codes);
    const StoredCodes stored(source.all(), recipe, parse_packing(order, recipe), {1, cols});
    Bytes read(at(cols));
    stored.read({0, 1, 0, cols}, cols, read.data());
    CHECK(read == codes);
  }
}

TEST_CASE("recorded offsets of swizzled scales") {
  const auto recorded = test::load_golden("layouts/scale_swizzle.json");
  const Recipe recipe = parse_recipe("nvfp4");
  std::int64_t compared = 0;
  for (const auto& c : recorded.at("cases")) {
    const std::int64_t rows = c.at("rows"), blocks = c.at("cols");
    CHECK(scale_bytes(ScaleStorage::k128x4, recipe, rows, blocks) ==
          c.at("bytes_128x4").get<std::int64_t>());
    for (const auto& [key, storage] :
         {std::pair{"at_128x4", ScaleStorage::k128x4}, std::pair{"at_8x4", ScaleStorage::k8x4}}) {
      if (!c.contains(key)) continue;
      MemorySource source(Bytes(at(*scale_bytes(storage, recipe, rows, blocks)), 0));
      const StoredScales stored(source.all(), recipe, storage, {rows, blocks * 16});
      for (const auto& place : c.at(key)) {
        const std::int64_t r = place[0], col = place[1], offset = place[2];
        source.bytes()[at(offset)] = 0x5A;
        std::uint8_t read = 0;
        stored.read({r, 1, col * 16, 16}, &read);
        CHECK(read == 0x5A);
        source.bytes()[at(offset)] = 0;
        ++compared;
      }
    }
  }
  CHECK(compared > 40);
}

TEST_CASE("recorded HiF4 carriers are read as the same words") {
  const auto recorded = test::load_golden("layouts/hif4_carriers.json");
  const Recipe recipe = parse_recipe("hif4");
  const test::TempDir dir;
  for (const auto& c : recorded.at("cases")) {
    const Bytes word = hex_bytes(c.at("pto_bytes"));
    const std::uint32_t bits = test::hex_bits(c.at("f32_carrier_bits"));
    const auto read = [&](const char* dtype, const std::string& data, std::int64_t elements,
                          ScaleStorage storage) {
      const std::string path = dir.file("s.safetensors");
      test::write_tensors(path, {{"s", dtype, {1, elements}, data}});
      const auto source = open_source(path);
      const StoredScales scales(TensorBytes(*source, source->tensors()[0]), recipe, storage,
                                {1, 64});
      Bytes out(4);
      scales.read({0, 1, 0, 64}, out.data());
      return out;
    };
    const std::string carrier = test::little_endian(bits, 4);
    CHECK(read("U8", test::data_of(word), 4, ScaleStorage::kLinear) == word);
    CHECK(read("U32", carrier, 1, ScaleStorage::kLinear) == word);
    CHECK(read("F32", carrier, 1, ScaleStorage::kLinear) == word);
    CHECK(read("U8", test::data_of(hex_bytes(c.at("amct_bytes"))), 4, ScaleStorage::kHif4Msb) ==
          word);
  }
  // A cell of 16 rows and one group.
  const auto& cell = recorded.at("a6_cell");
  const Bytes bytes = hex_bytes(cell.at("bytes"));
  REQUIRE(bytes.size() == 64);
  const MemorySource source(bytes);
  const StoredScales scales(source.all(), recipe, ScaleStorage::kHif4A6, {16, 64});
  Bytes read(64);
  scales.read({0, 16, 0, 64}, read.data());
  for (std::size_t r = 0; r < 16; ++r) {
    CHECK(Bytes(read.begin() + static_cast<long>(4 * r),
                read.begin() + static_cast<long>(4 * r + 4)) ==
          Bytes{bytes[2 * r], bytes[2 * r + 1], bytes[32 + 2 * r], bytes[33 + 2 * r]});
  }
}

// --- dtypes of files ---

TEST_CASE("bytes of every dtype, any offset and length") {
  const test::TempDir dir;
  struct Case {
    const char* dtype;
    std::vector<std::int64_t> shape;
    std::int64_t bytes;
  };
  const Case cases[] = {{"U8", {4, 6}, 24},    {"I8", {4, 6}, 24},       {"F8_E4M3", {2, 3, 4}, 24},
                        {"F8_E8M0", {24}, 24}, {"F8_E5M2", {24, 1}, 24}, {"I32", {3, 2}, 24},
                        {"U32", {6}, 24},      {"F32", {2, 3}, 24},      {"BF16", {4, 3}, 24},
                        {"F64", {3, 1}, 24},   {"I64", {3}, 24},         {"F4", {3, 16}, 24},
                        {"F4", {12, 4}, 24},   {"F4", {24, 2}, 24},      {"F4", {48}, 24}};
  const Bytes data = some_bytes(24, 256, false, 17u);
  for (const Case& c : cases) {
    const std::string path = dir.file("x.safetensors");
    test::write_tensors(path, {{"x", c.dtype, c.shape, test::data_of(data)}});
    const auto source = open_source(path);
    const TensorBytes bytes(*source, source->tensors()[0]);
    CHECK(bytes.size() == c.bytes);
    for (std::int64_t first = 0; first <= 24; ++first) {
      for (std::int64_t count = 0; first + count <= 24; ++count) {
        Bytes read(at(count) + 1, 0xEE);
        bytes.read(first, count, read.data());
        CHECK_MESSAGE(std::equal(read.begin(), read.end() - 1, data.begin() + first), c.dtype);
        CHECK(read.back() == 0xEE);
      }
    }
  }
}

TEST_CASE("F4 tensors have logical shapes: [2,32] is 32 bytes, 16 per row") {
  const test::TempDir dir;
  const Recipe recipe = parse_recipe("mxfp4");
  const Bytes codes = some_bytes(64, 16, false, 23u);
  const std::string path = dir.file("x.safetensors");
  test::write_tensors(
      path, {{"c", "F4", {2, 32}, test::data_of(test::packed_codes("low-first", 2, 32, codes, 32))},
             {"s", "F8_E8M0", {2, 1}, "\x7F\x80"}});
  const auto source = open_source(path);
  const TensorInfo& c = source->tensors()[0];
  CHECK(c.bytes == 32);
  CHECK(shape_of_codes(c, recipe, CodePacking::kLowFirst, 2, 32) == StoredShape{2, 32});
  const StoredCodes stored(TensorBytes(*source, c), recipe, CodePacking::kLowFirst, {2, 32});
  Bytes read(64);
  stored.read({0, 2, 0, 32}, 32, read.data());
  CHECK(read == codes);
  const StoredScales scales(TensorBytes(*source, source->tensors()[1]), recipe,
                            ScaleStorage::kLinear, {2, 32});
  Bytes two(2);
  scales.read({0, 2, 0, 32}, two.data());
  CHECK(two == Bytes{0x7F, 0x80});
  // The packed width where the logical one was meant: 16 columns of F4 are 8 bytes.
  test::write_tensors(path, {{"c", "F4", {2, 16}, std::string(16, '\0')}});
  const auto wrong = open_source(path);
  CHECK(has(
      refusal([&] { shape_of_codes(wrong->tensors()[0], recipe, CodePacking::kLowFirst, 2, 32); }),
      "F4"));
}

TEST_CASE("DeepGEMM words: I32 [column words, rows padded to 4]") {
  const test::TempDir dir;
  const Recipe recipe = parse_recipe("mxfp4");
  constexpr std::int64_t kCount = 5, kBlocks = 6;
  const Bytes scales = some_bytes(kCount * kBlocks, 255, true, 29u);
  // Word (r, w) holds the groups 4w..4w+3, first in bits 7:0.
  std::vector<std::uint32_t> words(2 * 8, 0);
  for (std::int64_t r = 0; r < kCount; ++r) {
    for (std::int64_t c = 0; c < kBlocks; ++c) {
      words[at(c / 4 * 8 + r)] |= std::uint32_t{scales[at(r * kBlocks + c)]} << (8 * (c % 4));
    }
  }
  for (const char* dtype : {"I32", "U32"}) {
    const std::string path = dir.file("s.safetensors");
    test::write_tensors(path, {{"s", dtype, {2, 8}, test::bytes_of(words)}});
    const auto source = open_source(path);
    const StoredScales stored(TensorBytes(*source, source->tensors()[0]), recipe,
                              ScaleStorage::kDeepGemm, {kCount, kBlocks * 32});
    Bytes read(at(kCount * kBlocks));
    stored.read({0, kCount, 0, kBlocks * 32}, read.data());
    CHECK(read == scales);
    CHECK(stored.padding().count == 0);
  }
}

TEST_CASE("ct words: int32 word m holds elements 8m to 8m+7 as q + 8") {
  const test::TempDir dir;
  const Recipe recipe = parse_recipe("int4");
  constexpr std::int64_t kCount = 3, kWidth = 64;
  const Bytes codes = some_bytes(kCount * kWidth, 16, false, 31u);
  std::vector<std::uint32_t> words(kCount * kWidth / 8, 0);
  for (std::int64_t i = 0; i < kCount * kWidth; ++i) {
    const int q = codes[at(i)] < 8 ? codes[at(i)] : codes[at(i)] - 16;
    words[at(i / 8)] |= static_cast<std::uint32_t>(q + 8) << (4 * (i % 8));
  }
  const std::string path = dir.file("c.safetensors");
  test::write_tensors(path, {{"c", "I32", {kCount, kWidth / 8}, test::bytes_of(words)}});
  const auto source = open_source(path);
  const TensorInfo& tensor = source->tensors()[0];
  const CodePacking packing = parse_packing("ct", recipe);
  const StoredShape shape = shape_of_codes(tensor, recipe, packing, kCount, kWidth);
  CHECK(shape == StoredShape{kCount, kWidth});
  const StoredCodes stored(TensorBytes(*source, tensor), recipe, packing, shape);
  Bytes read(at(kCount * kWidth));
  stored.read({0, kCount, 0, kWidth}, kWidth, read.data());
  CHECK(read == codes);
}

// --- padded input ---

TEST_CASE("a padded view has the input's values inside and zeros outside") {
  const test::TempDir dir;
  constexpr std::int64_t kCount = 3, kWidth = 5;
  std::vector<float> values;
  for (int i = 0; i < kCount * kWidth; ++i) values.push_back(static_cast<float>(i) - 7.5f);
  std::vector<double> wide(values.begin(), values.end());
  std::vector<std::uint16_t> upper;  // all of them are BF16 values
  for (const float v : values) {
    upper.push_back(static_cast<std::uint16_t>(bit_cast<std::uint32_t>(v) >> 16));
  }
  const std::string path = dir.file("x.safetensors");
  test::write_tensors(path, {{"x", "F32", {kCount, kWidth}, test::bytes_of(values)},
                             {"d", "F64", {kCount, kWidth}, test::bytes_of(wide)},
                             {"h", "BF16", {kCount, kWidth}, test::bytes_of(upper)}});
  const auto source = open_source(path);
  for (const StoredShape shape :
       {StoredShape{3, 5}, StoredShape{4, 5}, StoredShape{3, 8}, StoredShape{6, 9}}) {
    const PaddedView view(*source, source->tensors()[0], shape);
    const PaddedView view64(*source, source->tensors()[1], shape);
    const PaddedView view16(*source, source->tensors()[2], shape);
    const TensorInfo& t = view.tensors()[0];
    REQUIRE(view.tensors().size() == 1);
    CHECK(t.rows() == shape.rows);
    CHECK(t.cols() == shape.cols);
    CHECK(t.elements == shape.rows * shape.cols);
    std::int64_t compared = 0;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t col = 0; col < shape.cols; ++col) {
        const std::int64_t rows = shape.rows - row, cols = shape.cols - col;
        std::vector<float> f(at(rows * cols), -1.0f);
        std::vector<double> d(at(rows * cols), -1.0);
        view.read_f32(t, row, rows, col, cols, f.data());
        view64.read_f64(view64.tensors()[0], row, rows, col, cols, d.data());
        std::vector<float> raw(at(rows * cols), -1.0f);
        std::vector<double> raw64(at(rows * cols), -1.0);
        std::vector<std::uint16_t> raw16(at(rows * cols), 1);
        view.read_raw(t, row, rows, col, cols, raw.data());
        view64.read_raw(view64.tensors()[0], row, rows, col, cols, raw64.data());
        view16.read_raw(view16.tensors()[0], row, rows, col, cols, raw16.data());
        for (std::int64_t i = 0; i < rows * cols; ++i) {
          const std::int64_t r = row + i / cols, c = col + i % cols;
          const float want = r < kCount && c < kWidth ? values[at(r * kWidth + c)] : 0.0f;
          CHECK(f[at(i)] == want);
          CHECK(d[at(i)] == double{want});
          CHECK(raw[at(i)] == want);
          CHECK(raw64[at(i)] == double{want});
          CHECK(raw16[at(i)] == bit_cast<std::uint32_t>(want) >> 16);
          ++compared;
        }
      }
    }
    CHECK(compared > 40);
  }
}

}  // namespace
}  // namespace fp4scope
