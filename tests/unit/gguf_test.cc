// gguf_test.cc: GGUF files of both versions and byte orders, every value type of the metadata, and
// blocks whose values were worked out by hand from ggml's dequantize_row_* (ggml d99724f). That
// files of the gguf package have the values which that package finds is in
// containers_expected_test.cc.
#include <doctest/doctest.h>

#include <bit>
#include <map>

#include "analysis/io/tensor_source.h"
#include "sim/error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/paths.h"

using namespace fp4scope;
using test::GgufBytes;
using test::TempDir;

namespace {

class Opened {
 public:
  explicit Opened(const std::string& bytes) {
    test::write_file(dir_.file("x.gguf"), bytes);
    source_ = open_source(dir_.file("x.gguf"));
  }
  explicit Opened(const std::filesystem::path& path) : source_(open_source(path.string())) {}

  const TensorSource& operator*() const { return *source_; }
  const TensorSource* operator->() const { return source_.get(); }
  const TensorInfo& tensor(const std::string& name) const {
    for (const TensorInfo& tensor : source_->tensors()) {
      if (tensor.name == name) return tensor;
    }
    throw std::runtime_error("no tensor " + name);
  }
  bool has(const std::string& name) const {
    for (const TensorInfo& tensor : source_->tensors()) {
      if (tensor.name == name) return true;
    }
    return false;
  }
  std::vector<float> floats(const std::string& name) const {
    const TensorInfo& t = tensor(name);
    std::vector<float> values(static_cast<std::size_t>(t.elements));
    source_->read_f32(t, 0, t.rows(), 0, t.cols(), values.data());
    return values;
  }
  std::vector<std::uint8_t> bytes(const std::string& name) const {
    const TensorInfo& t = tensor(name);
    std::vector<std::uint8_t> values(static_cast<std::size_t>(t.elements));
    source_->read_raw(t, 0, t.rows(), 0, t.cols(), values.data());
    return values;
  }

 private:
  TempDir dir_;
  std::unique_ptr<TensorSource> source_;
};

std::string f16(std::uint16_t bits, bool big) {
  return GgufBytes(big).number(bits, 2);
}
// 16 bytes with the given first and last one, zeros between them.
std::string nibbles(int first, int last) {
  return static_cast<char>(first) + std::string(14, '\0') + static_cast<char>(last);
}

}  // namespace

TEST_CASE("both versions in both byte orders give the same tensors") {
  for (const bool big : {false, true}) {
    for (const std::uint32_t version : {2u, 3u}) {
      CAPTURE(big);
      CAPTURE(version);
      GgufBytes b(big);
      b.version = version;
      b.metadata("k", test::kGgufI16, b.number(static_cast<std::uint16_t>(-3), 2));
      b.tensor("f", {3, 2}, test::kGgmlF32, 0).tensor("h", {2}, test::kGgmlF16, 32);
      b.tensor("i", {2}, test::kGgmlI16, 64).tensor("d", {}, test::kGgmlF64, 96);
      std::string data;
      for (const float v : {1.0f, 2.0f, 3.0f, -4.0f, 0.5f, 6.0f}) {
        data += b.number(std::bit_cast<std::uint32_t>(v), 4);
      }
      data.resize(32, '\0');
      data += f16(0x3C00, big) + f16(0xC000, big) + std::string(28, '\0');
      data += b.number(0x1234, 2) + b.number(0xFFFE, 2) + std::string(28, '\0');
      data += b.number(std::bit_cast<std::uint64_t>(-2.25), 8);
      const Opened file(b.file(data));
      CHECK(file->info().container == "gguf");
      CHECK(file->metadata() == std::vector<std::pair<std::string, std::string>>{{"k", "-3"}});
      CHECK(file.tensor("f").shape == std::vector<std::int64_t>{2, 3});
      CHECK(file.floats("f") == std::vector<float>{1.0f, 2.0f, 3.0f, -4.0f, 0.5f, 6.0f});
      CHECK(file.floats("h") == std::vector<float>{1.0f, -2.0f});
      std::uint16_t words[2];
      file->read_raw(file.tensor("i"), 0, 1, 0, 2, words);
      CHECK(words[0] == 0x1234);
      CHECK(words[1] == 0xFFFE);
      CHECK(file.tensor("i").dtype == DType::kOther);
      double d = 0;
      file->read_f64(file.tensor("d"), 0, 1, 0, 1, &d);
      CHECK(d == -2.25);
      CHECK(file.tensor("d").shape.empty());
    }
  }
}

TEST_CASE("metadata of every value type has a text") {
  const GgufBytes b;
  const auto n = [&](std::uint64_t value, int bytes) { return b.number(value, bytes); };
  const auto array = [&](std::uint32_t type, std::uint64_t count, const std::string& elements) {
    return n(type, 4) + n(count, 8) + elements;
  };
  std::string many, words;
  for (std::uint64_t i = 0; i < 100; ++i) many += n(i, 4), words += b.string("w");
  const std::string inner = array(test::kGgufU8, 2, "\x01\x02") + array(test::kGgufU8, 0, "");
  const struct {
    std::uint32_t type;
    std::string stored;
    const char* text;
  } cases[] = {
      {test::kGgufU8, "\xFF", "255"},
      {test::kGgufI8, "\x80", "-128"},
      {test::kGgufU16, n(65535, 2), "65535"},
      {test::kGgufI16, n(0x8000, 2), "-32768"},
      {test::kGgufValueU32, n(0xFFFFFFFF, 4), "4294967295"},
      {test::kGgufI32, n(0x80000000, 4), "-2147483648"},
      {test::kGgufF32, n(0x3FC00000, 4), "1.5"},
      {test::kGgufF32, n(0x7F800000, 4), "inf"},
      {test::kGgufBool, std::string(1, '\0'), "false"},
      {test::kGgufBool, "\x01", "true"},
      {test::kGgufString, b.string("größe"), "größe"},
      {test::kGgufString, b.string(""), ""},
      {test::kGgufString, b.string(std::string("a\0\n", 3)), nullptr},
      {test::kGgufU64, n(UINT64_MAX, 8), "18446744073709551615"},
      {test::kGgufI64, n(UINT64_C(1) << 63, 8), "-9223372036854775808"},
      {test::kGgufF64, n(std::bit_cast<std::uint64_t>(-2.25), 8), "-2.25"},
      {test::kGgufArray, array(test::kGgufI16, 2, n(0xFFFF, 2) + n(2, 2)), "i16[2]: -1, 2"},
      {test::kGgufArray, array(test::kGgufU8, 0, ""), "u8[0]:"},
      {test::kGgufArray, array(test::kGgufString, 2, b.string("a") + b.string("\x1b[2J")),
       "string[2]: \"a\", \"\\x1b[2J\""},
      {test::kGgufArray, array(test::kGgufI32, 100, many), "i32[100]: 0, 1, 2, 3, 4, 5, 6, 7, ..."},
      {test::kGgufArray, array(test::kGgufString, 100, words),
       "string[100]: \"w\", \"w\", \"w\", \"w\", \"w\", \"w\", \"w\", \"w\", ..."},
      {test::kGgufArray, array(test::kGgufArray, 2, inner), "array[2]: [1, 2], []"},
  };
  GgufBytes file_bytes;
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    file_bytes.metadata("key." + std::to_string(i), cases[i].type, cases[i].stored);
  }
  const Opened file(file_bytes.file(""));
  REQUIRE(file->metadata().size() == std::size(cases));
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    CHECK(file->metadata()[i].first == "key." + std::to_string(i));
    CHECK(file->metadata()[i].second ==
          (cases[i].text != nullptr ? cases[i].text : std::string("a\0\n", 3)));
  }
  CHECK(file->tensors().empty());
}

TEST_CASE("long strings are cut") {
  GgufBytes b;
  b.metadata("long", test::kGgufString, b.string(std::string(70000, 'x')));
  const Opened file(b.file(""));
  CHECK(file->metadata()[0].second == std::string(65536, 'x') + "... (70000 bytes)");
}

TEST_CASE("blocks decode as ggml does, in files of both byte orders") {
  for (const bool big : {false, true}) {
    CAPTURE(big);
    const GgufBytes order(big);
    // 0x3800 is 0.5, 0xC400 is -4. Bytes 0x?? of nibbles: element 0 low, element 16 high.
    const std::string d = f16(0x3800, big), m = f16(0xC400, big);
    // Q5: bit 0 and bit 31 of the high bits.
    const std::string high = order.number(0x80000001u, 4);
    std::string q8(32, '\0');
    q8[0] = '\x80', q8[31] = '\x7F';
    // Q6_K: low nibbles 128, high bits 64, scales 16, d.
    std::string q6 = std::string(128, '\0') + std::string(64, '\0') + std::string(16, '\x01') + d;
    q6[0] = '\x5F';                              // element 0: low 15; element 64: low 5
    q6[32] = '\x01';                             // element 32: low 1
    q6[128] = static_cast<char>(0b11'10'01'00);  // bits of elements 96, 64, 32, 0
    q6[127] = '\x40';                            // element 255: low 4
    q6[191] = static_cast<char>(0b01'00'00'00);  // element 255: bits 1
    q6[192] = '\x02';                            // scale of elements 0 to 15
    q6[207] = static_cast<char>(-3);             // scale of elements 240 to 255
    const struct {
      std::uint32_t type;
      std::string block;
      std::map<std::size_t, float> values;
      float rest;
    } cases[] = {
        // (q - 8) * 0.5
        {test::kGgmlQ4_0,
         d + nibbles(0xA1, 0x0F),
         {{0, -3.5f}, {16, 1.0f}, {15, 3.5f}, {31, -4.0f}},
         -4.0f},
        // q * 0.5 - 4
        {test::kGgmlQ4_1,
         d + m + nibbles(0xA1, 0x0F),
         {{0, -3.5f}, {16, 1.0f}, {15, 3.5f}, {31, -4.0f}},
         -4.0f},
        // (q + 16 * bit - 16) * 0.5
        {test::kGgmlQ5_0,
         d + high + nibbles(0xA1, 0x0F),
         {{0, 0.5f}, {16, -3.0f}, {15, -0.5f}, {31, 0.0f}},
         -8.0f},
        // (q + 16 * bit) * 0.5 - 4
        {test::kGgmlQ5_1,
         d + m + high + nibbles(0xA1, 0x0F),
         {{0, 4.5f}, {16, 1.0f}, {15, 3.5f}, {31, 4.0f}},
         -4.0f},
        {test::kGgmlQ8_0, d + q8, {{0, -64.0f}, {31, 63.5f}}, 0.0f},
        // 0.5 * scale * (q - 32): q of 0 is -32; element 0 is 15 with scale 2, 32 is 1 + 16 * 1,
        // 64 is 5 + 16 * 2, 96 is 0 + 16 * 3, 255 is 4 + 16 * 1 with scale -3.
        {test::kGgmlQ6_K,
         q6,
         {{0, -17.0f}, {32, -7.5f}, {64, 2.5f}, {96, 8.0f}, {255, 18.0f}},
         -16.0f},
    };
    for (const auto& c : cases) {
      CAPTURE(c.type);
      const std::uint64_t elements = c.type == test::kGgmlQ6_K ? 256 : 32;
      GgufBytes b(big);
      b.tensor("w", {2 * elements, 2}, c.type, 0);
      const Opened file(b.file(std::string(c.block.size(), '\0') + c.block + c.block + c.block));
      const TensorInfo& w = file.tensor("w");
      CHECK(w.dtype == DType::kF32);
      CHECK(w.decoded);
      CHECK(w.bytes == static_cast<std::int64_t>(4 * c.block.size()));
      const std::vector<float> values = file.floats("w");
      for (std::size_t i = 0; i < elements; ++i) {
        CAPTURE(i);
        const auto at = c.values.find(i);
        // Elements of the scales 2 and -3 that are not listed.
        float want = at != c.values.end() ? at->second : c.rest;
        if (c.type == test::kGgmlQ6_K && at == c.values.end()) {
          if (i < 16) want = -32.0f;
          if (i >= 240) want = 48.0f;
        }
        for (std::size_t block = 1; block < 4; ++block) CHECK(values[block * elements + i] == want);
      }
      // A rectangle that starts and ends inside blocks.
      std::vector<float> part(elements);
      file->read_f32(w, 1, 1, static_cast<std::int64_t>(elements / 2),
                     static_cast<std::int64_t>(elements), part.data());
      CHECK(part.front() == values[2 * elements + elements / 2]);
      CHECK(part.back() == values[3 * elements + elements / 2 - 1]);
    }
  }
}

TEST_CASE("only the sum of Q4_1 rounds, the products of Q6_K are exact") {
  // 15 * (1 + 2^-10) has the unit 2^-20 in its last place. 0.5 and 1.5 units more, as FP16
  // subnormals, are ties that go to even: down, and up to two units.
  for (const auto& [m, want] : {std::pair{0x08, 0x1.e078p+3f}, {0x18, 0x1.e07804p+3f}}) {
    GgufBytes b;
    b.tensor("w", {32}, test::kGgmlQ4_1, 0);
    const Opened file(
        b.file(std::string("\x01\x3C", 2) + static_cast<char>(m) + '\0' + std::string(16, '\xFF')));
    for (const float v : file.floats("w")) CHECK(v == want);
  }
  GgufBytes k;
  k.tensor("w", {256}, test::kGgmlQ6_K, 0);
  const Opened six(k.file(std::string(192, '\xFF') + std::string(16, '\x7F') + "\x01\x3C"));
  for (const float v : six.floats("w")) CHECK(v == 3937.0f * (1.0f + 0x1p-10f));
}

TEST_CASE("MXFP4 and NVFP4 blocks decode, and their codes and scales have names") {
  // MXFP4: scale 2^(129-127) = 4, codes: byte j has element j low, j + 16 high.
  std::string mx = "\x81";
  for (int j = 0; j < 16; ++j) mx += static_cast<char>(j | (15 - j) << 4);
  // NVFP4: scales 1 (0x38), 2 (0x40), 2^-9 (0x01), 448 (0x7E); byte j of 8: j low, j + 8 high.
  std::string nv = "\x38\x40\x01\x7E";
  for (int s = 0; s < 4; ++s) {
    for (int j = 0; j < 8; ++j) nv += static_cast<char>(j | (j + 8) << 4);
  }
  const float e2m1[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, -.5f, -1, -1.5f, -2, -3, -4, -6};
  GgufBytes b;
  b.tensor("m", {32, 2}, test::kGgmlMxfp4, 0).tensor("n", {64}, test::kGgmlNvfp4, 64);
  const Opened file(b.file(mx + mx + std::string(30, '\0') + nv));

  std::vector<std::string> names;
  for (const TensorInfo& tensor : file->tensors()) names.push_back(tensor.name);
  CHECK(names == std::vector<std::string>{"m", "m.codes", "m.scales", "n", "n.codes", "n.scales"});
  const std::vector<float> m = file.floats("m"), n = file.floats("n");
  for (std::size_t i = 0; i < 32; ++i) {
    CHECK(m[i] == 4 * e2m1[i < 16 ? i : 31 - i]);
    CHECK(m[32 + i] == m[i]);
  }
  const float scales[4] = {1.0f, 2.0f, 0x1p-9f, 448.0f};
  for (std::size_t i = 0; i < 64; ++i) CHECK(n[i] == scales[i / 16] * e2m1[i % 16]);
  // ggml's table has no negative zero.
  CHECK(std::bit_cast<std::uint32_t>(m[8]) == 0);

  CHECK(file.tensor("m").decoded);
  CHECK(!file.tensor("m").derived);
  CHECK(file.tensor("m.codes").derived);
  CHECK(file.tensor("m.codes").dtype == DType::kU8);
  CHECK(file.tensor("m.codes").shape == std::vector<std::int64_t>{2, 16});
  CHECK(file.tensor("m.scales").shape == std::vector<std::int64_t>{2, 1});
  CHECK(file.tensor("n.codes").shape == std::vector<std::int64_t>{32});
  CHECK(file.tensor("n.scales").shape == std::vector<std::int64_t>{4});
  CHECK(file.bytes("m.scales") == std::vector<std::uint8_t>{0x81, 0x81});
  CHECK(file.bytes("n.scales") == std::vector<std::uint8_t>{0x38, 0x40, 0x01, 0x7E});
  // Element 0 in the low nibble: 0 1, 2 3, ... then 15 14, 13 12, ...
  CHECK(file.bytes("m.codes") ==
        std::vector<std::uint8_t>{0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, 0xEF, 0xCD, 0xAB,
                                  0x89, 0x67, 0x45, 0x23, 0x01, 0x10, 0x32, 0x54, 0x76, 0x98, 0xBA,
                                  0xDC, 0xFE, 0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01});
  std::vector<std::uint8_t> in_order;
  for (int s = 0; s < 4; ++s) {
    for (const int byte : {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE}) {
      in_order.push_back(static_cast<std::uint8_t>(byte));
    }
  }
  CHECK(file.bytes("n.codes") == in_order);
}

TEST_CASE("scale bytes at the ends decode as ggml's own code has them") {
  // MXFP4 bytes 0, 1, 254, 255: 2^-127, 2^-126, 2^127, 2^128 (no NaN), here times 0.5 and 6.
  GgufBytes b;
  b.tensor("m", {128}, test::kGgmlMxfp4, 0).tensor("n", {64}, test::kGgmlNvfp4, 96);
  std::string data;
  for (const int scale : {0, 1, 254, 255}) {
    data += static_cast<char>(scale) + std::string("\x71") + std::string(15, '\0');
  }
  data.resize(96, '\0');
  // UE4M3: 0x7F is 0, bit 7 is ignored except that 0xFF is 480 (the package agrees).
  data += std::string("\x7F\xFF\x80\xB8", 4);
  for (int s = 0; s < 4; ++s) data += std::string("\x02") + std::string(7, '\0');
  const Opened file(b.file(data));
  const std::vector<float> m = file.floats("m"), n = file.floats("n");
  CHECK(m[0] == 0x1p-128f);
  CHECK(m[16] == 0x1.8p-125f);
  CHECK(m[32] == 0x1p-127f);
  CHECK(m[64] == 0x1p126f);
  CHECK(std::bit_cast<std::uint32_t>(m[80]) == 0x7F800000);  // 6 * 2^127
  CHECK(m[96] == 0x1p127f);
  CHECK(n[0] == 0.0f);
  CHECK(n[16] == 480.0f);
  CHECK(n[32] == 0.0f);
  CHECK(n[48] == 1.0f);
}

TEST_CASE("a stored tensor keeps its name where a companion would have the same") {
  GgufBytes b;
  b.tensor("m.codes", {2}, test::kGgmlF32, 0).tensor("m", {32}, test::kGgmlMxfp4, 32);
  const Opened file(b.file(std::string(49, '\0')));
  CHECK(file->tensors().size() == 3);
  CHECK(file.tensor("m.codes").dtype == DType::kF32);
  CHECK(file.has("m.scales"));
}

TEST_CASE("types without a decoder are listed with their size and refused when they are read") {
  GgufBytes b;
  b.tensor("k", {256, 2}, test::kGgmlQ4_K, 0).tensor("new", {7}, 99, 288);
  b.tensor("old", {32}, 31, 288);
  const Opened file(b.file(std::string(288, '\0')));
  const TensorInfo& k = file.tensor("k");
  CHECK(k.dtype_text == "Q4_K");
  CHECK(k.bytes == 288);
  CHECK(k.known_dtype);
  CHECK(!k.decoded);
  CHECK(file.tensor("new").dtype_text == "type 99");
  CHECK(!file.tensor("new").known_dtype);
  CHECK(file.tensor("old").dtype_text == "Q4_0_4_4");
  for (const char* name : {"k", "new", "old"}) {
    try {
      file.floats(name);
      FAIL_CHECK("the tensor was read");
    } catch (const Error& error) {
      CHECK(error.exit_code() == 4);
      CHECK(std::string(error.what()).find(file.tensor(name).dtype_text) != std::string::npos);
    }
  }
}

TEST_CASE("alignment, empty tensors, holes and bytes behind the data are accepted") {
  GgufBytes b;
  b.metadata("general.alignment", test::kGgufValueU32, b.number(8, 4));
  b.tensor("a", {1}, test::kGgmlF32, 0).tensor("empty", {0, 5}, test::kGgmlF32, 8);
  b.tensor("b", {1}, test::kGgmlF32, 16);
  const std::string data = std::string("\0\0\x80\x3F", 4) + std::string(12, 'x') +
                           std::string("\0\0\0\x40", 4) + "behind";
  const Opened file(b.file(data, 8));
  CHECK(file.floats("a") == std::vector<float>{1.0f});
  CHECK(file.floats("b") == std::vector<float>{2.0f});
  CHECK(file.floats("empty").empty());
  // Without data the file may end behind the header.
  GgufBytes none;
  none.tensor("empty", {0}, test::kGgmlF32, 0);
  CHECK(Opened(none.header()).floats("empty").empty());
}

TEST_CASE("w_mixed.gguf has the values that the gguf package decoded") {
  if (!test::have_shared("tensors/formats/w_mixed.gguf")) return;
  const auto folder = test::shared_dir() / "tensors/formats";
  const Opened file(folder / "w_mixed.gguf"), want(folder / "w_mixed_gguf_expected.safetensors");
  int compared = 0;
  for (const TensorInfo& tensor : want->tensors()) {
    CAPTURE(tensor.name);
    CHECK(file.tensor(tensor.name).shape == tensor.shape);
    const std::vector<float> a = file.floats(tensor.name), b = want.floats(tensor.name);
    REQUIRE(a.size() == b.size());
    std::size_t different = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      different += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]);
    }
    CHECK(different == 0);
    ++compared;
  }
  CHECK(compared == 3);
}
