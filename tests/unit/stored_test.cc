// stored_test.cc: stored codes and scales read back in logical order, padding included
// (analysis/compare/stored.h). Where a byte belongs comes from tests/support/stored_files.h, which
// states the formulas of ../shared/spec/layouts.md once more, and from data/golden/layouts.
#include "analysis/compare/stored.h"

#include <algorithm>
#include <set>

#include "sim/error.h"
#include "tests/support/stored_files.h"
#include "tests/support/vectors.h"

namespace fp4scope {
namespace {

using test::Bytes;

constexpr std::int64_t kRows[] = {1, 31, 32, 33, 127, 128, 129, 257};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Bytes in memory as a tensor [n] of U8.
class MemorySource final : public TensorSource {
 public:
  explicit MemorySource(Bytes bytes) : bytes_(std::move(bytes)), tensors_(1) {
    TensorInfo& t = tensors_[0];
    t.name.assign(1, 't');
    t.dtype = DType::kU8;
    t.dtype_text = std::string("U8");
    t.elements = t.bytes = std::ssize(bytes_);
    t.shape = {t.bytes};
    t.file = std::string("memory");
  }
  Bytes& bytes() { return bytes_; }
  TensorInfo& tensor() { return tensors_[0]; }
  TensorBytes all() const { return {*this, tensors_[0]}; }

  const SourceInfo& info() const override { return info_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read_f32(const TensorInfo&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                float*) const override {
    FAIL("bytes are no numbers");
  }
  void read_f64(const TensorInfo&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                double*) const override {
    FAIL("bytes are no numbers");
  }
  void read_raw(const TensorInfo& t, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, void* out) const override {
    REQUIRE((row >= 0 && rows >= 0 && col >= 0 && cols >= 0 && row + rows <= t.rows() &&
             col + cols <= t.cols()));
    auto* to = static_cast<std::uint8_t*>(out);
    for (std::int64_t r = row; r < row + rows; ++r) {
      to = std::copy_n(bytes_.data() + r * t.cols() + col, cols, to);
    }
  }
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return metadata_;
  }

 private:
  Bytes bytes_;
  SourceInfo info_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

// Deterministic bytes below `limit`, none of them 0 where `nonzero`.
Bytes some_bytes(std::int64_t n, int limit, bool nonzero, std::uint32_t seed) {
  Bytes out;
  std::uint32_t state = seed * 2654435761u + 1u;
  for (std::int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    const int low = nonzero ? 1 : 0;
    out.push_back(static_cast<std::uint8_t>(low + static_cast<int>(state >> 16) % (limit - low)));
  }
  return out;
}

template <class F>
std::string refusal(F&& f, ErrorKind kind = ErrorKind::kData) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    const std::string text = error.what();
    CHECK(text.find('\n') == std::string::npos);
    return text;
  }
  FAIL("nothing was refused");
  return {};
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Spans that split [rows, cols] at the given row step and at every `chunk` columns.
std::vector<TileSpan> split(std::int64_t rows, std::int64_t cols, std::int64_t row_step,
                            std::int64_t col_step) {
  std::vector<TileSpan> spans;
  for (std::int64_t r = 0; r < rows; r += row_step) {
    for (std::int64_t c = 0; c < cols; c += col_step) {
      spans.push_back({r, std::min(row_step, rows - r), c, std::min(col_step, cols - c)});
    }
  }
  return spans;
}

struct CodeCase {
  const char* recipe;
  int codes;
  std::vector<const char*> orders;
};
const std::vector<CodeCase>& code_cases() {
  static const std::vector<CodeCase> kCases = {
      {"mxfp4", 16, {"low-first", "high-first", "split8", "split16", "bytes"}},
      {"nvfp4", 16, {"low-first", "high-first", "split8", "split16", "bytes"}},
      {"hif4", 16, {"low-first", "high-first", "split8", "split16", "bytes"}},
      {"int4", 16, {"low-first", "high-first", "split8", "split16", "bytes", "ct"}},
      {"mxfp8e4m3", 256, {"bytes"}},
      {"mxfp6e3m2", 64, {"bytes"}}};
  return kCases;
}

TEST_CASE("codes of every packing and shape, whole and by tiles") {
  std::int64_t compared = 0, differing = 0;
  for (const CodeCase& c : code_cases()) {
    const Recipe recipe = parse_recipe(c.recipe);
    const std::int64_t block = recipe.format.block;
    for (const char* order : c.orders) {
      const CodePacking packing = parse_packing(order, recipe);
      CHECK(name_of(packing) == order);
      for (const std::int64_t rows : kRows) {
        for (const std::int64_t cols : {1, 2, 15, 16, 17, 31, 33, 63, 64, 127, 128, 129, 257}) {
          const Bytes codes = some_bytes(rows * cols, c.codes, false, 7u);
          const MemorySource source(test::packed_codes(order, rows, cols, codes, cols));
          CHECK(packed_bytes(packing, recipe, cols) == test::row_bytes_of(order, cols));
          const StoredShape shape =
              shape_of_codes(source.tensors()[0], recipe, packing, rows, cols);
          CHECK(shape == StoredShape{rows, cols});
          const StoredCodes stored(source.all(), recipe, packing, shape);
          for (const auto& [row_step, col_step] :
               {std::pair{rows, cols}, std::pair{std::int64_t{5}, std::int64_t{128}}}) {
            for (const TileSpan& span : split(rows, cols, row_step, col_step)) {
              const std::int64_t padded = test::ceil_div(span.cols, block) * block;
              Bytes read(at(span.rows * padded), 0xAA);
              stored.read(span, padded, read.data());
              for (std::int64_t r = 0; r < span.rows; ++r) {
                for (std::int64_t k = 0; k < padded; ++k) {
                  const int want =
                      k < span.cols ? codes[at((span.row + r) * cols + span.col + k)] : 0;
                  ++compared;
                  differing += read[at(r * padded + k)] != want;
                }
              }
            }
          }
          CHECK(stored.padding().count == 0);
        }
      }
    }
  }
  std::printf("stored codes: %lld compared, %lld differ\n", static_cast<long long>(compared),
              static_cast<long long>(differing));
  CHECK(compared > 1000000);
  CHECK(differing == 0);
}

TEST_CASE("BF16 codes are two bytes, little endian") {
  const Recipe recipe = parse_recipe("bf16");
  const Bytes data = {0x80, 0x3F, 0x00, 0xC0, 0x01, 0x02};
  const MemorySource source(data);
  const StoredShape shape = shape_of_codes(source.tensors()[0], recipe, CodePacking::kBytes, 1, 3);
  const StoredCodes stored(source.all(), recipe, CodePacking::kBytes, shape);
  Bytes read(128, 0xAA);
  stored.read({0, 1, 0, 3}, 64, read.data());
  CHECK(Bytes(read.begin(), read.begin() + 6) == data);
  CHECK(std::all_of(read.begin() + 6, read.end(), [](auto b) { return b == 0; }));
}

TEST_CASE("every nibble behind a row is padding and no other one") {
  std::int64_t faults = 0;
  for (const char* order : {"low-first", "high-first", "split8", "split16", "ct"}) {
    const Recipe recipe = parse_recipe("int4");
    const CodePacking packing = parse_packing(order, recipe);
    for (const std::int64_t cols : {1, 7, 16, 17, 31, 32, 33, 65}) {
      constexpr std::int64_t kCount = 3;
      // Codes whose stored nibble is not 0, so that padding could be confused with them.
      const Bytes codes = some_bytes(kCount * cols, 8, true, 3u);
      MemorySource source(test::packed_codes(order, kCount, cols, codes, cols));
      const std::int64_t width = test::row_bytes_of(order, cols);
      const StoredCodes stored(source.all(), recipe, packing, {kCount, cols});
      REQUIRE(stored.padding().count == 0);
      CHECK(stored.padding().first_byte == -1);
      std::int64_t nibbles = 0, first = -1;
      for (std::int64_t r = 0; r < kCount; ++r) {
        const std::int64_t unit = test::unit_of_order(order);
        for (std::int64_t i = cols; i < test::ceil_div(cols, unit) * unit; ++i) {
          const test::CodePlace place = test::code_place(order, i);
          std::uint8_t& byte = source.bytes()[at(r * width + place.byte)];
          const std::uint8_t before = byte;
          byte = static_cast<std::uint8_t>(byte | 1 << place.shift);
          const PaddingFault one = stored.padding();
          CHECK(one.count == 1);
          CHECK(one.first_byte == r * width + place.byte);
          byte = before;
          ++nibbles;
          first = first < 0 ? r * width + place.byte : std::min(first, r * width + place.byte);
        }
      }
      CHECK(nibbles == 2 * kCount * width - kCount * cols);
      // All of them at once.
      for (std::int64_t r = 0; r < kCount; ++r) {
        const std::int64_t unit = test::unit_of_order(order);
        for (std::int64_t i = cols; i < test::ceil_div(cols, unit) * unit; ++i) {
          const test::CodePlace place = test::code_place(order, i);
          source.bytes()[at(r * width + place.byte)] |=
              static_cast<std::uint8_t>(0xF << place.shift);
        }
      }
      CHECK(stored.padding().count == nibbles);
      CHECK(stored.padding().first_byte == first);
      // What is in the padding changes no code.
      const std::int64_t block = recipe.format.block;
      const std::int64_t padded = test::ceil_div(cols, block) * block;
      Bytes read(at(kCount * padded), 0xAA);
      stored.read({0, kCount, 0, cols}, padded, read.data());
      for (std::int64_t r = 0; r < kCount; ++r) {
        for (std::int64_t c = 0; c < padded; ++c) {
          CHECK(read[at(r * padded + c)] == (c < cols ? codes[at(r * cols + c)] : 0));
        }
      }
      faults += nibbles;
    }
  }
  std::printf("padding nibbles set one by one: %lld\n", static_cast<long long>(faults));
  CHECK(faults > 500);
}

TEST_CASE("a byte that is no code is refused with its row") {
  for (const auto& [name, first_bad] : {std::pair{"mxfp4", 16}, std::pair{"mxfp6e2m3", 64}}) {
    const Recipe recipe = parse_recipe(name);
    Bytes codes(3 * 32, 1);
    codes[2 * 32 + 5] = static_cast<std::uint8_t>(first_bad);
    const MemorySource source(codes);
    const StoredCodes stored(source.all(), recipe, CodePacking::kBytes, {3, 32});
    Bytes read(3 * 32);
    const std::string text = refusal([&] { stored.read({0, 3, 0, 32}, 32, read.data()); });
    CHECK(has(text, "row 2"));
    stored.read({0, 2, 0, 32}, 32, read.data());  // the good rows
  }
}

struct ScaleCase {
  const char* recipe;
  std::int64_t bytes;
  std::vector<const char*> orders;
};
const std::vector<ScaleCase>& scale_cases() {
  const static std::vector<ScaleCase> kCases = {
      {"mxfp4", 1, {"linear", "128x4", "8x4", "te-padded", "deepgemm", "trtllm-page"}},
      {"nvfp4", 1, {"linear", "128x4", "8x4", "te-padded", "deepgemm", "trtllm-page"}},
      {"int4", 2, {"linear", "m-major"}},
      {"fp8", 4, {"linear", "m-major"}},
      {"hif4", 4, {"linear", "msb", "a6"}}};
  return kCases;
}

TEST_CASE("scales of every storage and shape, whole and by tiles") {
  std::int64_t compared = 0, differing = 0, cases = 0;
  for (const ScaleCase& c : scale_cases()) {
    const Recipe recipe = parse_recipe(c.recipe);
    REQUIRE(recipe.format.scale_bytes == c.bytes);
    const std::int64_t block = recipe.format.block;
    for (const char* order : c.orders) {
      const ScaleStorage storage = parse_storage(order, recipe);
      CHECK(name_of(storage) == order);
      for (const std::int64_t rows : {1, 16, 31, 32, 33, 127, 128, 129, 257}) {
        for (const std::int64_t blocks : {1, 3, 4, 5, 8, 90}) {
          const auto entries = test::scale_entries_of(order, rows, blocks);
          const auto size = scale_bytes(storage, recipe, rows, blocks);
          REQUIRE(size.has_value() == entries.has_value());
          if (!entries) continue;
          ++cases;
          CHECK(*size == *entries * c.bytes);
          const Bytes scales = some_bytes(rows * blocks * c.bytes, 255, true, 11u);
          // A ragged last block has a scale too; padding is poisoned and never read.
          const std::int64_t cols = blocks * block - (blocks > 1 ? 3 : 0);
          const MemorySource source(
              test::stored_scales(order, rows, blocks, c.bytes, scales, 0xFF));
          const StoredScales stored(source.all(), recipe, storage, {rows, cols});
          const std::int64_t col_step = std::max<std::int64_t>(128, block);
          for (const auto& [row_step, step] :
               {std::pair{rows, cols}, std::pair{std::int64_t{7}, col_step}}) {
            for (const TileSpan& span : split(rows, cols, row_step, step)) {
              const std::int64_t count = test::ceil_div(span.cols, block), first = span.col / block;
              Bytes read(at(span.rows * count * c.bytes), 0);
              stored.read(span, read.data());
              for (std::int64_t r = 0; r < span.rows; ++r) {
                for (std::int64_t k = 0; k < count * c.bytes; ++k) {
                  ++compared;
                  differing += read[at(r * count * c.bytes + k)] !=
                               scales[at(((span.row + r) * blocks + first) * c.bytes + k)];
                }
              }
            }
          }
        }
      }
    }
  }
  std::printf("stored scales: %lld cases, %lld bytes compared, %lld differ\n",
              static_cast<long long>(cases), static_cast<long long>(compared),
              static_cast<long long>(differing));
  CHECK(cases > 500);
  CHECK(differing == 0);
}

TEST_CASE("one entry per 2-D block is read on each of its rows") {
  const Recipe recipe = parse_recipe("nvfp4:block=2d");
  REQUIRE(recipe.format.block_rows == 16);
  for (const std::int64_t rows : {1, 16, 17, 40}) {
    constexpr std::int64_t kBlocks = 3;
    const Bytes scales = some_bytes(test::ceil_div(rows, 16) * kBlocks, 127, true, 5u);
    const MemorySource source(scales);
    CHECK(scale_bytes(ScaleStorage::kBlocks, recipe, rows, kBlocks) == std::ssize(scales));
    const StoredScales stored(source.all(), recipe, parse_storage("blocks", recipe), {rows, 48});
    Bytes read(at(rows * kBlocks));
    stored.read({0, rows, 0, 48}, read.data());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < kBlocks; ++c) {
        CHECK(read[at(r * kBlocks + c)] == scales[at(r / 16 * kBlocks + c)]);
      }
    }
  }
}

TEST_CASE("every padding entry of a storage is found with its offset, no scale is one") {
  std::int64_t single = 0;
  for (const ScaleCase& c : scale_cases()) {
    const Recipe recipe = parse_recipe(c.recipe);
    for (const char* order : c.orders) {
      const ScaleStorage storage = parse_storage(order, recipe);
      for (const std::int64_t rows : {1, 3, 33, 129}) {
        for (const std::int64_t blocks : {1, 3, 4, 5}) {
          if (!test::scale_entries_of(order, rows, blocks)) continue;
          const std::int64_t cols = blocks * recipe.format.block;
          const Bytes scales = some_bytes(rows * blocks * c.bytes, 255, true, 13u);
          MemorySource source(test::stored_scales(order, rows, blocks, c.bytes, scales));
          const StoredScales stored(source.all(), recipe, storage, {rows, cols});
          CHECK(stored.padding().count == 0);
          std::set<std::int64_t> used;
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t k = 0; k < blocks; ++k) {
              used.insert(test::scale_place(order, rows, blocks, r, k, c.bytes, 0) / c.bytes);
            }
          }
          std::vector<std::int64_t> padding;
          for (std::int64_t e = 0; e < std::ssize(source.bytes()) / c.bytes; ++e) {
            if (std::string_view(order) != "a6" && !used.contains(e)) padding.push_back(e);
          }
          for (std::size_t i = 0; i < padding.size(); i += std::max<std::size_t>(1, i / 16)) {
            for (const std::int64_t b : {std::int64_t{0}, c.bytes - 1}) {
              std::uint8_t& byte = source.bytes()[at(padding[i] * c.bytes + b)];
              REQUIRE(byte == 0);
              byte = 0x80;
              const PaddingFault fault = stored.padding();
              CHECK(fault.count == 1);
              CHECK_MESSAGE(fault.first_byte == padding[i] * c.bytes, order);
              byte = 0;
              ++single;
            }
          }
          if (padding.empty()) continue;
          for (const std::int64_t e : padding) source.bytes()[at(e * c.bytes)] = 0xFF;
          CHECK(stored.padding().count == std::ssize(padding));
          CHECK(stored.padding().first_byte == padding.front() * c.bytes);
        }
      }
    }
  }
  std::printf("padding entries of scales set one by one: %lld\n", static_cast<long long>(single));
  CHECK(single > 1000);
}

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
  const std::string path = dir.file("x.safetensors");
  test::write_tensors(path, {{"x", "F32", {kCount, kWidth}, test::bytes_of(values)},
                             {"d", "F64", {kCount, kWidth}, test::bytes_of(wide)}});
  const auto source = open_source(path);
  for (const StoredShape shape :
       {StoredShape{3, 5}, StoredShape{4, 5}, StoredShape{3, 8}, StoredShape{6, 9}}) {
    const PaddedView view(*source, source->tensors()[0], shape);
    const PaddedView view64(*source, source->tensors()[1], shape);
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
        for (std::int64_t i = 0; i < rows * cols; ++i) {
          const std::int64_t r = row + i / cols, c = col + i % cols;
          const float want = r < kCount && c < kWidth ? values[at(r * kWidth + c)] : 0.0f;
          CHECK(f[at(i)] == want);
          CHECK(d[at(i)] == double{want});
          ++compared;
        }
      }
    }
    CHECK(compared > 40);
  }
}

}  // namespace
}  // namespace fp4scope
