// golden_write.cc: a golden file as safetensors or JSON (golden.h).
#include <fmt/format.h>

#include <bit>
#include <filesystem>

#include "analysis/golden.h"
#include "analysis/io/message.h"
#include "analysis/io/sinks.h"
#include "analysis/json_text.h"
#include "analysis/quantize_layout.h"
#include "formats/minifloat.h"
#include "sim/custom_format.h"
#include "sim/error.h"
#include "sim/rcp_table.h"

namespace fp4scope {
namespace {

constexpr const char* kAbout =
    "Test vectors of one recipe, made by fp4scope. Of each case: x is the input; codes are packed "
    "two to a byte with element 0 in the low nibble (one byte per code of 6 and 8 bits, two of "
    "bf16); scales are the stored bytes per block (HiF4: E6M2, level-2 bits, level-3 low, level-3 "
    "high, LSB first; binary32, BF16 and FP16 scales little endian); choice is 1 for map-to-4; "
    "amax "
    "and outer_scale are one binary32 number, or one per row; values are decoded, binary32. A case "
    "with \"refused\" has an input that the sources of the contract say nothing about, and no "
    "expected bytes; NaN values have no particular payload.";
constexpr const char* kAboutHex =
    " Planes are hexadecimal numbers, one string per row: 8 digits per binary32, 4 per BF16 or "
    "FP16 "
    "element of x, 2 per byte of codes, scales and choice; elements follow each other from the "
    "left.";

DType dtype_of(SourceType source) {
  return source == SourceType::kBf16  ? DType::kBF16
         : source == SourceType::kF16 ? DType::kF16
                                      : DType::kF32;
}

// Bits of a value that the type represents.
std::uint32_t source_bits(float v, SourceType source) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
  if (source == SourceType::kF32) return bits;
  if (source == SourceType::kBf16) return bits >> 16;
  if (v != v) return 0x7e00u | (bits >> 16 & 0x8000u);
  if ((bits & kMagnitudeMask) == kInfBits) return 0x7c00u | bits >> 31 << 15;
  return encode<Lane<1>>(kFP16, Rounding::kEven, v);
}

// Facts of a case in the metadata of both forms.
Json facts_of(const GoldenCase& c) {
  Json facts = {{"what", c.what}, {"rows", c.rows}, {"cols", c.cols}};
  if (!c.refusal.empty()) facts["refused"] = c.refusal;
  if (!c.has_codes) facts["values_only"] = true;
  return facts;
}

Json facts_of(const Coverage& coverage) {
  Json facts = {{"blocks", coverage.blocks}, {"elements", coverage.elements}};
  facts["scale_codes"] = coverage.scales_hit;
  if (coverage.scales_all > 0) {
    facts["scale_codes_of_the_type"] = coverage.scales_all;
    facts["scale_codes_not_reached"] = coverage.scales_missing;
  }
  facts["ties"] = coverage.ties_hit;
  facts["ties_of_the_element"] = coverage.ties_all;
  if (coverage.level_bits_all > 0) {
    facts["level_bits"] = coverage.level_bits_hit;
    facts["level_bits_of_the_format"] = coverage.level_bits_all;
  }
  return facts;
}

// Everything about the file but its planes.
Json facts_of(const Golden& golden) {
  Json facts;
  facts["fp4scope"] = FP4SCOPE_VERSION;
  facts["about"] = kAbout;
  facts["recipe"] = to_full_string(golden.recipe);
  facts["seed"] = std::to_string(golden.seed);
  facts["dtype"] = dtype_name(dtype_of(golden.source));
  facts["made_by"] = golden.made_by;
  if (golden.recipe.library) facts["format_file"] = golden.recipe.library->hash;
  if (golden.recipe.user_rcp) facts["rcp_table"] = golden.recipe.user_rcp->hash;
  facts["coverage"] = facts_of(golden.coverage);
  facts["separated_from"] = golden.separated;
  facts["not_separated_from"] = golden.equal;
  return facts;
}

// One plane of a case: bytes in little-endian order and their element type.
struct Plane {
  const char* name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

template <class T>
void put(std::vector<std::uint8_t>& bytes, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bytes.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}
std::vector<std::uint8_t> bytes_of(const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  for (const float v : values) put(bytes, std::bit_cast<std::uint32_t>(v));
  return bytes;
}

std::vector<Plane> planes_of(const Golden& golden, const GoldenCase& c) {
  std::vector<Plane> planes;
  Plane x{"x", dtype_of(golden.source), {c.rows, c.cols}, {}};
  for (const float v : c.x) {
    const std::uint32_t bits = source_bits(v, golden.source);
    if (golden.source == SourceType::kF32) {
      put(x.bytes, bits);
    } else {
      put(x.bytes, static_cast<std::uint16_t>(bits));
    }
  }
  planes.push_back(std::move(x));
  if (!c.refusal.empty()) return planes;
  if (c.has_codes) {
    const Planes shape = planes_of(golden.recipe, c.rows, c.cols);
    planes.push_back({"codes", DType::kU8, {c.rows, shape.code_cols}, c.codes});
    if (shape.scale_bytes > 0)
      planes.push_back({"scales", DType::kU8, scales_shape(shape), c.scales});
    if (shape.chooses) planes.push_back({"choice", DType::kU8, {c.rows, shape.blocks}, c.choice});
    if (shape.outer_entries > 0) {
      planes.push_back({"amax", DType::kF32, {shape.outer_entries}, bytes_of(c.amax)});
      planes.push_back(
          {"outer_scale", DType::kF32, {shape.outer_entries}, bytes_of(c.outer_scale)});
    }
  }
  planes.push_back({"values", DType::kF32, {c.rows, c.cols}, bytes_of(c.values)});
  return planes;
}

std::int64_t write_safetensors(const Golden& golden, const std::string& out) {
  std::vector<SafetensorsWriter::Entry> entries;
  std::vector<Plane> planes;
  Json cases = Json::object();
  for (const GoldenCase& c : golden.cases) {
    cases[c.name] = facts_of(c);
    for (Plane& plane : planes_of(golden, c)) {
      entries.push_back({c.name + "." + plane.name, plane.dtype, plane.shape});
      planes.push_back(std::move(plane));
    }
  }
  std::vector<std::pair<std::string, std::string>> metadata;
  const Json facts = facts_of(golden);
  for (const auto& [key, value] : facts.items())
    metadata.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  metadata.emplace_back("cases", cases.dump());
  SafetensorsWriter writer(out, entries, metadata);
  for (std::size_t i = 0; i < planes.size(); ++i) {
    writer.write(i, 0, planes[i].bytes.data(), planes[i].bytes.size());
  }
  writer.commit();
  return static_cast<std::int64_t>(std::filesystem::file_size(out));
}

// Rows of hexadecimal numbers of `width` bytes each, most significant digit first.
Json hex_rows(const Plane& plane) {
  const auto width = static_cast<std::size_t>(dtype_bytes(plane.dtype));
  const std::size_t rows =
      plane.shape.size() > 1 ? static_cast<std::size_t>(plane.shape.front()) : 1;
  const std::size_t row_bytes = rows == 0 ? 0 : plane.bytes.size() / rows;
  Json lines = Json::array();
  for (std::size_t r = 0; r < rows; ++r) {
    std::string line;
    for (std::size_t at = 0; at < row_bytes; at += width) {
      for (std::size_t i = width; i > 0; --i)
        line += fmt::format("{:02x}", plane.bytes[r * row_bytes + at + i - 1]);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::int64_t write_json(const Golden& golden, const std::string& out) {
  Json file = facts_of(golden);
  file["about"] = std::string(kAbout) + kAboutHex;
  Json cases = Json::array();
  for (const GoldenCase& c : golden.cases) {
    Json entry = {{"name", c.name}};
    entry.update(facts_of(c));
    for (const Plane& plane : planes_of(golden, c)) entry[plane.name] = hex_rows(plane);
    cases.push_back(std::move(entry));
  }
  file["cases"] = std::move(cases);
  const std::string text = json_text(file);
  AtomicFile sink(out);
  sink.write(text.data(), text.size());
  sink.commit();
  return std::ssize(text);
}

}  // namespace

void require_golden_ending(const std::string& out) {
  if (out.ends_with(".safetensors") || out.ends_with(".json")) return;
  throw Error(
      ErrorKind::kUsage,
      fmt::format("{}: expected a name that ends in .safetensors or .json", printable(out)));
}

std::int64_t write_golden(const Golden& golden, const std::string& out) {
  require_golden_ending(out);
  return out.ends_with(".json") ? write_json(golden, out) : write_safetensors(golden, out);
}

}  // namespace fp4scope
