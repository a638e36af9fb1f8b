// golden_test.cc: golden files are read back byte by byte here and recounted: scale codes against
// the closed form of what a contract can store, ties against the midpoints of the code table, the
// planes against the exact backend and against `quantize`.
#include "analysis/golden.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/analyze.h"
#include "sim/error.h"
#include "tests/support/backends.h"
#include "tests/support/container_bytes.h"
#include "tests/support/floats.h"
#include "tests/support/paths.h"
#include "tests/support/quantized.h"

using namespace fp4scope;
using fp4scope::test::TempDir;
using nlohmann::json;

namespace {

struct StoredPlane {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
struct StoredFile {
  std::map<std::string, StoredPlane> planes;
  std::map<std::string, std::string> metadata;
  json cases;
  const StoredPlane& plane(const std::string& name) const { return planes.at(name); }
  bool has(const std::string& name) const { return planes.count(name) != 0; }
};

StoredFile read_safetensors(const std::string& path) {
  const std::string bytes = test::read_file(path);
  std::uint64_t length = 0;
  for (int i = 0; i < 8; ++i)
    length |= std::uint64_t{static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)])}
              << (8 * i);
  const json header = json::parse(bytes.substr(8, length));
  StoredFile file;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      file.metadata = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    const auto from = entry["data_offsets"][0].get<std::size_t>();
    const auto to = entry["data_offsets"][1].get<std::size_t>();
    file.planes[name] = {entry["dtype"].get<std::string>(),
                         entry["shape"].get<std::vector<std::int64_t>>(),
                         bytes.substr(8 + length + from, to - from)};
  }
  file.cases = json::parse(file.metadata.at("cases"));
  return file;
}

std::uint32_t little(const std::string& bytes, std::size_t at, std::size_t width) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < width; ++i)
    value |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}
// x or values of a case, widened by the definition of each type.
std::vector<float> floats_of(const StoredPlane& plane) {
  std::vector<float> values;
  const std::size_t width = plane.dtype == "F32" ? 4 : 2;
  for (std::size_t at = 0; at < plane.bytes.size(); at += width) {
    const std::uint32_t bits = little(plane.bytes, at, width);
    if (plane.dtype == "F32") {
      values.push_back(std::bit_cast<float>(bits));
    } else if (plane.dtype == "BF16") {
      values.push_back(std::bit_cast<float>(bits << 16));
    } else {
      const int exponent = static_cast<int>(bits >> 10 & 31), fraction = bits & 1023;
      float v = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
      values.push_back(bits >> 15 != 0 ? -v : v);
    }
  }
  return values;
}

StoredFile golden_of(const std::string& recipe, const TempDir& folder,
                     SourceType source = SourceType::kF32) {
  GoldenOptions options;
  options.source = source;
  options.search_blocks = 0;
  const Golden golden = make_golden(parse_recipe(recipe), options);
  CHECK(golden.made_by.find("exact backend (oracle)") != std::string::npos);
  const std::string path = folder.file("golden.safetensors");
  const std::int64_t bytes = write_golden(golden, path);
  CHECK(bytes > 10000);
  CHECK(bytes < 2000000);
  return read_safetensors(path);
}

std::set<int> scale_bytes(const StoredFile& file, std::size_t stride) {
  std::set<int> seen;
  for (const auto& [name, plane] : file.planes) {
    if (!name.ends_with(".scales")) continue;
    for (std::size_t at = 0; at < plane.bytes.size(); at += stride)
      seen.insert(static_cast<unsigned char>(plane.bytes[at]));
  }
  return seen;
}
// [first, last], and more.
std::set<int> range(int first, int last, std::initializer_list<int> more = {}) {
  std::set<int> all(more);
  for (int i = first; i <= last; ++i) all.insert(i);
  return all;
}

const std::vector<double> kE2m1Midpoints = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0};

// Value of a scale byte.
double e8m0(int byte) {
  return std::ldexp(1.0, byte - 127);
}
double ue4m3(int byte) {
  const int field = byte >> 3, fraction = byte & 7;
  return field == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, field - 10);
}

// (signed midpoint index, scale byte) of all elements that sit exactly on a midpoint of E2M1 times
// their scale; with neighbours: the numbers before and after are in the same block too.
struct Ties {
  std::set<std::pair<int, int>> exact, with_neighbours;
};
Ties ties_of(const StoredFile& file, int block, double (*value)(int),
             const std::function<bool(const std::string&)>& takes) {
  Ties ties;
  for (const auto& [name, plane] : file.planes) {
    const std::string suffix = ".scales";
    if (!name.ends_with(suffix)) continue;
    const std::string which = name.substr(0, name.size() - suffix.size());
    if (!takes(which)) continue;
    const StoredPlane& x = file.plane(which + ".x");
    const std::vector<float> v = floats_of(x);
    const auto cols = static_cast<std::size_t>(x.shape[1]);
    const std::size_t blocks =
        (cols + static_cast<std::size_t>(block) - 1) / static_cast<std::size_t>(block);
    for (std::size_t i = 0; i < v.size(); ++i) {
      const std::size_t row = i / cols, b = i % cols / static_cast<std::size_t>(block);
      const int byte = static_cast<unsigned char>(plane.bytes[row * blocks + b]);
      const std::size_t first = row * cols + b * static_cast<std::size_t>(block);
      const std::size_t last = std::min(first + static_cast<std::size_t>(block), (row + 1) * cols);
      for (std::size_t m = 0; m < kE2m1Midpoints.size(); ++m) {
        if (std::fabs(double{v[i]}) != kE2m1Midpoints[m] * value(byte)) continue;
        const int index = static_cast<int>(m) + 1;
        const std::pair<int, int> key{v[i] < 0 ? -index : index, byte};
        ties.exact.insert(key);
        const auto has = [&](float wanted) {
          return std::find(v.begin() + static_cast<std::ptrdiff_t>(first),
                           v.begin() + static_cast<std::ptrdiff_t>(last),
                           wanted) != v.begin() + static_cast<std::ptrdiff_t>(last);
        };
        if (has(std::nextafterf(v[i], INFINITY)) && has(std::nextafterf(v[i], -INFINITY)))
          ties.with_neighbours.insert(key);
      }
    }
  }
  return ties;
}
std::map<int, int> scales_by_tie(const std::set<std::pair<int, int>>& ties) {
  std::map<int, int> count;
  for (const auto& [midpoint, byte] : ties) ++count[midpoint];
  return count;
}

}  // namespace

TEST_CASE("every scale code that a contract can store occurs, and no other") {
  struct Case {
    const char* recipe;
    std::size_t stride;
    std::set<int> want;
    const char* why;
  };
  // FLT_MAX lies in [2^127, 2^128), so floor gives 254 - emax at most and ceil one more; 255 is NaN
  // or infinity. UE4M3 has 0x00 to 0x7e, 0x7f is NaN. Clamps: spec/nvfp4.md 6, spec/more.md 4.2.
  const Case cases[] = {
      {"mxfp4:contract=torchao-floor", 1, range(0, 252, {255}), "emax 2"},
      {"mxfp4:contract=torchao-ceil", 1, range(0, 253, {255}), "emax 2"},
      {"mxfp4", 1, range(0, 253, {255}), "FLT_MAX/6 lies in (2^125, 2^126)"},
      {"mxfp4:contract=flashinfer-cuda", 1, range(0, 254), "an infinite scale is 254"},
      {"mxfp4:contract=deepgemm-fp4", 1, range(112, 254), "1e-4/6 lies in (2^-16, 2^-15)"},
      {"mxfp8e4m3:contract=torchao-floor", 1, range(0, 246, {255}), "emax 8"},
      {"mxfp8e5m2:contract=torchao-floor", 1, range(0, 239, {255}), "emax 15"},
      {"mxfp6e3m2:contract=torchao-floor", 1, range(0, 250, {255}), "emax 4"},
      {"mxint8", 1, range(0, 255), "emax 0"},
      {"nvfp4", 1, range(0x00, 0x7e), "UE4M3"},
      {"nvfp4:block=2d", 1, range(0x00, 0x7e), "UE4M3"},
      {"nvfp4:contract=torchao,scale=none", 1, range(0x08, 0x7e), "at least 2^-6"},
      {"nvfp4:contract=mslk", 1, range(0x01, 0x7e), "at least 2^-9"},
      {"nvfp4:contract=onednn", 1, range(0x20, 0x7e), "at least 2^-3"},
      {"nvfp4:contract=compressed-tensors,scale=none", 1, range(0x01, 0x7e), "0 becomes 0x20"},
      {"hif4", 4, range(0x00, 0xfe), "E6M2"},
      {"hif4:contract=amct", 4, range(0x00, 0xff), "E6M2, 0xff for NaN"},
      {"fp8:contract=verl-dsv4", 1, range(0, 247, {254, 255}),
       "FLT_MAX/448 lies in (2^119, 2^120); an infinity is clamped to 2^127"},
  };
  TempDir folder;
  for (const Case& c : cases) {
    CAPTURE(c.recipe);
    CAPTURE(c.why);
    const StoredFile file = golden_of(c.recipe, folder);
    const std::set<int> seen = scale_bytes(file, c.stride);
    for (const int byte : c.want) CHECK_MESSAGE(seen.count(byte) == 1, "missing " << byte);
    for (const int byte : seen) CHECK_MESSAGE(c.want.count(byte) == 1, "unexpected " << byte);
    // The file says the same of itself.
    const json coverage = json::parse(file.metadata.at("coverage"));
    CHECK(coverage["scale_codes"] == seen.size());
  }
}

TEST_CASE("both values of every level bit of HiF4 occur") {
  TempDir folder;
  const StoredFile file = golden_of("hif4", folder);
  std::set<int> set, clear;
  for (const auto& [name, plane] : file.planes) {
    if (!name.ends_with(".scales")) continue;
    REQUIRE(plane.shape.size() == 3);
    for (std::size_t at = 0; at < plane.bytes.size(); at += 4) {
      const std::uint32_t word = little(plane.bytes, at, 4);
      for (int bit = 8; bit < 32; ++bit) ((word >> bit & 1) != 0 ? set : clear).insert(bit);
    }
  }
  CHECK(set.size() == 24);
  CHECK(clear.size() == 24);
}

TEST_CASE("every tie of E2M1 occurs with both neighbours, of both signs and under several scales") {
  TempDir folder;
  for (const char* recipe : {"mxfp4", "mxfp4:contract=torchao-floor", "mxfp4:contract=ggml-cpu"}) {
    CAPTURE(recipe);
    const auto any = [](const std::string&) { return true; };
    const Ties ties = ties_of(golden_of(recipe, folder), 32, e8m0, any);
    const std::map<int, int> scales = scales_by_tie(ties.with_neighbours);
    CHECK(scales.size() == 14);
    for (const auto& [midpoint, count] : scales)
      CHECK_MESSAGE(count >= 3, "midpoint " << midpoint << " under " << count << " scales");
  }
  // With g = 1 a decode scale is the value of its byte, and midpoints are exact. 2688 is the
  // maximum of the cases without a number.
  const auto with_g1 = [](const std::string& name) { return name == "ties" || name == "scales"; };
  const Ties ties = ties_of(golden_of("nvfp4", folder), 16, ue4m3, with_g1);
  const std::map<int, int> scales = scales_by_tie(ties.exact);
  CHECK(scales.size() == 14);
  for (const auto& [midpoint, count] : scales)
    CHECK_MESSAGE(count >= 3, "midpoint " << midpoint << " under " << count << " scales");
}

TEST_CASE("the planes are those of the exact backend and of quantize") {
  TempDir folder;
  for (const char* text :
       {"mxfp4", "mxfp8e5m2:contract=te-rceil", "nvfp4", "nvfp4:scale=row", "nvfp4:block=2d",
        "nvfp4:select=mae", "hif4:contract=a6", "int4:contract=skyrl", "fp8:contract=sgl-token",
        "fp8:contract=hf-block", "if4", "bf16", "nvfp4:scale=given,g=0x45280000"}) {
    CAPTURE(text);
    const Recipe recipe = parse_recipe(text);
    const StoredFile file = golden_of(text, folder);
    int compared = 0;
    for (const auto& [name, facts] : file.cases.items()) {
      if (facts.contains("refused")) {
        CHECK(!file.has(name + ".codes"));
        continue;
      }
      const StoredPlane& x = file.plane(name + ".x");
      const std::int64_t rows = x.shape[0], cols = x.shape[1];
      CHECK(rows == facts["rows"].get<std::int64_t>());
      // Values from the oracle.
      const test::Quantized want =
          test::quantized(oracle_backend(), recipe, floats_of(x), rows, cols);
      const std::vector<float> values = floats_of(file.plane(name + ".values"));
      REQUIRE(values.size() == want.values.size());
      for (std::size_t i = 0; i < values.size(); ++i)
        REQUIRE(test::same_float(values[i], want.values[i]));
      if (recipe.format.scale_bytes > 0) {
        const std::string scales(want.tile.scales.begin(), want.tile.scales.end());
        CHECK(file.plane(name + ".scales").bytes == scales);
      }
      // Bytes from `quantize` on a file with the same x.
      const std::string in = folder.file("in.safetensors"), out = folder.file("out.safetensors");
      test::write_file(in, test::safetensors_bytes(
                               "{\"t\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(rows) +
                                   "," + std::to_string(cols) + "],\"data_offsets\":[0," +
                                   std::to_string(x.bytes.size()) + "]}}",
                               x.bytes));
      QuantizeOptions options;
      options.recipe = recipe;
      (void)quantize_file(in, out, options);
      const std::string header = test::read_file(out);
      const std::size_t length = little(header, 0, 4);
      const json entries = json::parse(header.substr(8, length));
      for (const char* plane : {"codes", "scales", "choice", "amax", "outer_scale"}) {
        CAPTURE(plane);
        const bool stored = entries.contains(std::string("t.") + plane);
        REQUIRE(file.has(name + "." + plane) == stored);
        if (!stored) continue;
        const json& entry = entries[std::string("t.") + plane];
        const auto from = entry["data_offsets"][0].get<std::size_t>();
        const auto to = entry["data_offsets"][1].get<std::size_t>();
        const StoredPlane& got = file.plane(name + "." + plane);
        CHECK(entry["shape"] == json(got.shape));
        CHECK(got.bytes == header.substr(8 + length + from, to - from));
      }
      ++compared;
    }
    CHECK(compared >= 15);
  }
}

TEST_CASE("JSON and safetensors hold the same bytes") {
  TempDir folder;
  struct Case {
    const char* recipe;
    SourceType source;
    const char* dtype;
  };
  for (const Case& c :
       {Case{"mxfp4", SourceType::kF32, "f32"}, Case{"nvfp4:select=mse", SourceType::kBf16, "bf16"},
        Case{"hif4", SourceType::kF16, "f16"},
        Case{"fp8:contract=te-delayed", SourceType::kF32, "f32"}}) {
    CAPTURE(c.recipe);
    GoldenOptions options;
    options.source = c.source;
    options.search_blocks = 0;
    options.with_oracle = false;
    const Golden golden = make_golden(parse_recipe(c.recipe), options);
    (void)write_golden(golden, folder.file("g.safetensors"));
    (void)write_golden(golden, folder.file("g.json"));
    const StoredFile file = read_safetensors(folder.file("g.safetensors"));
    const json text = json::parse(test::read_file(folder.file("g.json")));
    CHECK(text["recipe"] == file.metadata.at("recipe"));
    CHECK(text["dtype"] == c.dtype);
    CHECK(file.metadata.at("dtype") == c.dtype);
    CHECK(text["cases"].size() == file.cases.size());
    std::size_t planes = 0;
    for (const json& one : text["cases"]) {
      const std::string name = one["name"];
      CHECK(one["what"] == file.cases[name]["what"]);
      for (const char* plane :
           {"x", "codes", "scales", "choice", "amax", "outer_scale", "values"}) {
        if (!one.contains(plane)) {
          CHECK(!file.has(name + "." + plane));
          continue;
        }
        ++planes;
        const StoredPlane& stored = file.plane(name + "." + plane);
        const std::size_t width = stored.dtype == "F32" ? 4 : stored.dtype == "U8" ? 1 : 2;
        std::string digits, want;
        for (const json& row : one[plane]) digits += row.get<std::string>();
        for (std::size_t at = 0; at < stored.bytes.size(); at += width) {
          char number[9];
          std::snprintf(number, sizeof number, "%0*x", static_cast<int>(2 * width),
                        little(stored.bytes, at, width));
          want += number;
        }
        CHECK(digits == want);
      }
    }
    CHECK(planes == file.planes.size());
  }
}

TEST_CASE("inputs of half types hit the same scale codes") {
  TempDir folder;
  const StoredFile bf16 = golden_of("nvfp4", folder, SourceType::kBf16);
  CHECK(bf16.plane("scales.x").dtype == "BF16");
  CHECK(scale_bytes(bf16, 1) == range(0x00, 0x7e));
  // 65504 and 2^-24 are the ends of FP16: byte 127 + 15 - 2, and 127 - 24 - 2.
  const StoredFile f16 = golden_of("mxfp4:contract=torchao-floor", folder, SourceType::kF16);
  CHECK(f16.plane("scales.x").dtype == "F16");
  CHECK(scale_bytes(f16, 1) == range(101, 140, {0, 255}));
}

TEST_CASE("refused input is there without expected bytes, and values without codes") {
  TempDir folder;
  const StoredFile gfloat = golden_of("mxfp4:contract=gfloat", folder);
  REQUIRE(gfloat.cases.contains("nan-refused"));
  CHECK(gfloat.cases["nan-refused"].contains("refused"));
  CHECK(gfloat.has("nan-refused.x"));
  CHECK(!gfloat.has("nan-refused.values"));
  const StoredFile quark = golden_of("mxfp4:contract=quark-even", folder);
  REQUIRE(quark.cases.contains("nan"));
  CHECK(quark.cases["nan"]["values_only"] == true);
  CHECK(quark.has("nan.values"));
  CHECK(!quark.has("nan.codes"));
}

TEST_CASE("a name with another ending is refused and nothing is written") {
  TempDir folder;
  GoldenOptions options;
  options.search_blocks = 0;
  options.with_oracle = false;
  const Golden golden = make_golden(parse_recipe("mxfp4"), options);
  CHECK_THROWS_AS((void)write_golden(golden, folder.file("g.txt")), Error);
  CHECK(std::filesystem::is_empty(folder.path()));
}
