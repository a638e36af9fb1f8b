// safetensors_source.cc: the header of a safetensors file, checked against the rules of the format
// (spec/layouts.md section 6): 8 bytes little-endian header length (at most 100 MB), a JSON object
// that maps names to dtype, shape and data_offsets, then the data, which the byte ranges tile
// exactly. The JSON goes through a SAX reader, which is iterative (nesting cannot exhaust the
// stack) and sees duplicate keys.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "analysis/io/header_sax.h"
#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "analysis/io/safetensors_format.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::size_t kMaxRank = 64;
constexpr const char* kFields = "expected dtype, shape and data_offsets";

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
  std::size_t offset_count = 0;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// { NAME: {dtype, shape, data_offsets}..., __metadata__: {KEY: string...} }
class SafetensorsSax final : public HeaderSax {
 public:
  SafetensorsSax(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {}
  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;

 private:
  enum class At { kFile, kTop, kEntry, kShape, kOffsets, kMetadata };

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kData, fmt::format("{}: {}", printable(file_), what));
  }
  [[noreturn]] void fail_entry(const std::string& what) const {
    fail(fmt::format("tensor {} of the safetensors header {}", in_quotes(entries.back().name),
                     what));
  }
  // A scalar or container where none is allowed.
  [[noreturn]] void misplaced(const char* found) const {
    switch (at_) {
      case At::kFile:
        fail(fmt::format("the safetensors header is {}, expected an object", found));
      case At::kTop:
        fail(fmt::format("the safetensors header gives {} for {}, expected an object", found,
                         in_quotes(key_)));
      case At::kEntry:
        fail_entry(fmt::format("has {} as {}, expected {}", found, key_,
                               key_ == "dtype" ? "a string" : "an array"));
      case At::kShape:
        fail_entry(fmt::format("has {} in its shape, expected integers from 0 to 2^63-1", found));
      case At::kOffsets:
        fail_entry(fmt::format("has {} in data_offsets, expected two integers", found));
      case At::kMetadata:
        fail(
            fmt::format("__metadata__ gives {} for {}, expected a string", found, in_quotes(key_)));
    }
    fail("the safetensors header is malformed");
  }
  bool is_known_field() const {
    return key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
  }

  bool scalar(const char* what) override {
    // Unknown fields of a tensor are ignored, as other readers do.
    if (at_ == At::kEntry && !is_known_field()) return true;
    misplaced(what);
  }
  bool number_unsigned(std::uint64_t value) override {
    if (skipping()) return true;
    if (at_ == At::kShape) {
      if (value > static_cast<std::uint64_t>(INT64_MAX)) misplaced("a number above 2^63-1");
      if (entries.back().shape.size() == kMaxRank) {
        fail_entry(fmt::format("has more than {} dimensions", kMaxRank));
      }
      entries.back().shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (at_ == At::kOffsets) {
      Entry& entry = entries.back();
      if (entry.offset_count == 2) fail_entry("has more than two data_offsets");
      (entry.offset_count++ == 0 ? entry.begin : entry.end) = value;
      return true;
    }
    return scalar("a number");
  }
  bool string(std::string& value) override {
    if (skipping()) return true;
    if (at_ == At::kEntry && key_ == "dtype") {
      entries.back().dtype = value;
      return true;
    }
    if (at_ == At::kMetadata) {
      metadata.emplace_back(key_, value);
      return true;
    }
    return scalar("a string");
  }
  bool start_object() override {
    if (at_ == At::kFile) {
      at_ = At::kTop;
    } else if (at_ == At::kTop) {
      if (key_ == "__metadata__") {
        at_ = At::kMetadata;
      } else {
        entries.emplace_back().name = key_;
        at_ = At::kEntry;
      }
      inner_keys_.clear();
    } else if (at_ == At::kEntry && !is_known_field()) {
      skip();
    } else {
      misplaced("an object");
    }
    return true;
  }
  bool end_object() override {
    if (at_ == At::kEntry) {
      const Entry& entry = entries.back();
      if (!entry.has_dtype) fail_entry(fmt::format("has no dtype, {}", kFields));
      if (!entry.has_shape) fail_entry(fmt::format("has no shape, {}", kFields));
      if (!entry.has_offsets) fail_entry(fmt::format("has no data_offsets, {}", kFields));
    }
    at_ = at_ == At::kTop ? At::kFile : At::kTop;
    return true;
  }
  bool start_array() override {
    if (at_ == At::kEntry && key_ == "shape") {
      at_ = At::kShape;
    } else if (at_ == At::kEntry && key_ == "data_offsets") {
      at_ = At::kOffsets;
    } else if (at_ == At::kEntry && key_ != "dtype") {
      skip();
    } else {
      misplaced("an array");
    }
    return true;
  }
  bool end_array() override {
    if (at_ == At::kOffsets && entries.back().offset_count != 2) {
      fail_entry(fmt::format("has {} data_offsets, expected two", entries.back().offset_count));
    }
    at_ = At::kEntry;
    return true;
  }
  bool key(std::string& name) override {
    if (skipping()) return true;
    key_ = name;
    const bool top = at_ == At::kTop;
    if (!(top ? top_keys_ : inner_keys_).insert(name).second) {
      if (top) fail(fmt::format("the safetensors header has the key {} twice", in_quotes(name)));
      if (at_ == At::kMetadata) fail(fmt::format("__metadata__ has {} twice", in_quotes(name)));
      fail_entry(fmt::format("has the key {} twice", in_quotes(name)));
    }
    if (at_ == At::kEntry) {
      Entry& entry = entries.back();
      entry.has_dtype |= name == "dtype";
      entry.has_shape |= name == "shape";
      entry.has_offsets |= name == "data_offsets";
    }
    return true;
  }
  bool malformed(std::size_t position) override {
    fail(fmt::format("the safetensors header is not valid JSON ({})", json_place(text_, position)));
  }

  std::string file_;
  std::string_view text_;
  std::string key_;
  std::unordered_set<std::string> top_keys_, inner_keys_;
  At at_ = At::kFile;
};

// Checks one entry against its dtype and the size of the data; fills `tensor`. Returns its bits.
int check_entry(const Entry& entry, const std::string& file, std::int64_t data_bytes,
                TensorInfo& tensor) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: tensor {} {}", printable(file), in_quotes(entry.name), what));
  };
  if (entry.begin > entry.end) {
    fail(fmt::format(
        "has the reversed data_offsets [{}, {}], expected the first byte before the end",
        entry.begin, entry.end));
  }
  if (entry.end > static_cast<std::uint64_t>(data_bytes)) {
    fail(fmt::format("ends at byte {} of the data, but the file holds only {} (truncated?)",
                     entry.end, data_bytes));
  }
  const SafetensorsDType dtype = safetensors_dtype(entry.dtype);
  const std::optional<std::int64_t> elements = checked_product(entry.shape);
  std::int64_t bits = 0;
  tensor.shape = entry.shape;
  // The margin of 64 covers every element width, the unknown one too. An empty tensor may still
  // have long rows.
  if (!elements ||
      __builtin_mul_overflow(std::max(*elements, tensor.cols()), std::int64_t{64}, &bits)) {
    fail(fmt::format("has the shape {}, whose size exceeds 64 bits", shape_text(entry.shape)));
  }
  tensor.name = entry.name;
  tensor.dtype = dtype.dtype;
  tensor.dtype_text = entry.dtype;
  tensor.elements = *elements;
  tensor.bytes = static_cast<std::int64_t>(entry.end - entry.begin);
  tensor.file = file;
  tensor.known_dtype = dtype.bits != 0;
  if (dtype.bits == 0) return 0;  // unknown: listed, its size cannot be checked
  bits = *elements * dtype.bits;
  if (tensor.cols() * dtype.bits % 8 != 0) {
    fail(fmt::format("is {} {}: a row of {} bits does not end at a whole byte", entry.dtype,
                     shape_text(entry.shape), tensor.cols() * dtype.bits));
  }
  if (tensor.bytes != bits / 8) {
    fail(fmt::format("is {} {}, expected {} bytes of data, found {}", printable(entry.dtype),
                     shape_text(entry.shape), bits / 8, tensor.bytes));
  }
  return dtype.bits;
}

// The byte ranges have to follow each other without hole or overlap up to the end of the file.
void check_tiling(const std::vector<Entry>& entries, const std::string& file,
                  std::int64_t data_bytes) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(entries[a].begin, entries[a].end) <
           std::pair(entries[b].begin, entries[b].end);
  });
  std::uint64_t expected = 0;
  for (const std::size_t i : order) {
    const Entry& entry = entries[i];
    if (entry.begin != expected) {
      throw Error(ErrorKind::kData,
                  fmt::format("{}: {} before the data of tensor {}, which starts at byte {} where "
                              "{} was expected",
                              printable(file), entry.begin < expected ? "overlap" : "hole",
                              in_quotes(entry.name), entry.begin, expected));
    }
    expected = entry.end;
  }
  if (expected != static_cast<std::uint64_t>(data_bytes)) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: {} trailing bytes after the last tensor, expected the data to end "
                            "with it",
                            printable(file), static_cast<std::uint64_t>(data_bytes) - expected));
  }
}

}  // namespace

void append_safetensors(const std::shared_ptr<MappedFile>& file, Contents& contents) {
  const std::string& path = file->path();
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorKind::kData, fmt::format("{}: {}", printable(path), what));
  };
  constexpr std::int64_t kLengthBytes = 8;
  if (file->size() < kLengthBytes + 2) {
    fail(fmt::format("the file has {} bytes, a safetensors file has at least {}", file->size(),
                     kLengthBytes + 2));
  }
  const std::uint64_t length = read_header_length(*file);
  if (length > kMaxSafetensorsHeader) {
    fail(
        fmt::format("the safetensors header claims {} bytes, at most {} are allowed; what starts "
                    "with {} may be another kind of file",
                    length, kMaxSafetensorsHeader, in_quotes(file->text(0, kLengthBytes))));
  }
  const auto header_bytes = static_cast<std::int64_t>(length);
  if (header_bytes > file->size() - kLengthBytes) {
    fail(fmt::format("the safetensors header claims {} bytes, but only {} follow (truncated?)",
                     header_bytes, file->size() - kLengthBytes));
  }
  const std::string_view header = file->text(kLengthBytes, header_bytes);
  if (header.empty() || header.front() != '{') {
    fail(
        fmt::format("the safetensors header does not start with '{{', {}",
                    header.empty() ? "it is empty" : "but with " + in_quotes(header.substr(0, 8))));
  }
  SafetensorsSax sax(path, header);
  parse_json_header(header, sax);

  const std::int64_t data_start = kLengthBytes + header_bytes;
  const std::int64_t data_bytes = file->size() - data_start;
  const std::size_t file_index = add_file(file, contents);
  for (const Entry& entry : sax.entries) {
    TensorInfo tensor;
    Storage storage;
    storage.bits = check_entry(entry, path, data_bytes, tensor);
    storage.file = file_index;
    storage.offset = data_start + static_cast<std::int64_t>(entry.begin);
    contents.tensors.push_back(std::move(tensor));
    contents.storage.push_back(storage);
  }
  check_tiling(sax.entries, path, data_bytes);
  contents.metadata = std::move(sax.metadata);
}

}  // namespace fp4scope
