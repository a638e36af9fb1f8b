// gguf_source.cc: GGUF files of versions 2 and 3 in either byte order (ggml docs/gguf.md, ggml
// d99724f src/gguf.cpp): magic, version, two 64-bit counts; metadata; for each tensor its name,
// dimensions with the fastest first, type and offset into the data; then the data, which starts at
// a multiple of general.alignment as every tensor does. Dimensions are reversed into row-major
// order. FP4 tensors NAME get companions NAME.codes and NAME.scales for commands that compare
// stored bytes, unless the file has a tensor of that name.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "analysis/io/gguf_cursor.h"
#include "analysis/io/gguf_types.h"
#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {
namespace {

constexpr std::int64_t kStartBytes = 24;
constexpr std::uint64_t kMostDimensions = 4;
// The least that an entry takes: a length, a type and a byte; a length, a count, a type and an
// offset.
constexpr std::int64_t kLeastMetadata = 8 + 4 + 1, kLeastTensor = 8 + 4 + 4 + 8;

struct Entry {
  std::string_view name;
  std::vector<std::int64_t> shape;
  std::uint32_t type = 0;
  std::uint64_t begin = 0;  // in the data
  std::int64_t bytes = 0;
};

class GgufParser {
 public:
  GgufParser(const std::shared_ptr<MappedFile>& file, Contents& contents)
      : file_(*file),
        path_(file->path()),
        cursor_(file->text(0, file->size()), path_),
        contents_(contents),
        file_index_(add_file(file, contents)) {}

  void parse() {
    read_start();
    read_metadata();
    read_tensors();
    place_data();
    for (const Entry& entry : entries_) {
      append(entry);
      append_companions(entry);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kData, fmt::format("{}: {}", printable(path_), what));
  }
  [[noreturn]] void fail(const Entry& entry, const std::string& what) const {
    fail(fmt::format("tensor {} of the GGUF file {}", in_quotes(entry.name), what));
  }
  std::string dtype_and_shape(const Entry& entry) const {
    return fmt::format("{} {}", gguf_type_name(entry.type), shape_text(entry.shape));
  }

  void read_start() {
    if (file_.size() < kStartBytes) {
      fail(fmt::format("the file has {} bytes, a GGUF file has at least {} (truncated?)",
                       file_.size(), kStartBytes));
    }
    cursor_.skip(4);
    const auto little = static_cast<std::uint32_t>(cursor_.number(4));
    // Versions are small: the one that is not belongs to a file of the other byte order.
    big_endian_ = (little & 0xFFFF) == 0 && little != 0;
    cursor_.set_big_endian(big_endian_);
    const std::uint32_t version = big_endian_ ? __builtin_bswap32(little) : little;
    if (version == 1 || version > 3) {
      throw Error(
          ErrorKind::kUnsupported,
          fmt::format("{}: GGUF version {}, expected 2 or 3{}", printable(path_), version,
                      version == 1 ? "; a converter of llama.cpp can write the file anew" : ""));
    }
    if (version == 0) fail("GGUF version 0, expected 2 or 3");
    tensor_count_ = cursor_.number(8);
    metadata_count_ = cursor_.number(8);
    const auto check_count = [&](std::uint64_t count, const char* what, std::int64_t least) {
      if (count <= static_cast<std::uint64_t>(cursor_.remaining() / least)) return;
      fail(
          fmt::format("the GGUF header claims {} {}, but the {} bytes of the file hold at most {} "
                      "(truncated?)",
                      count, what, file_.size(), cursor_.remaining() / least));
    };
    check_count(metadata_count_, "metadata entries", kLeastMetadata);
    check_count(tensor_count_, "tensors", kLeastTensor);
  }

  void read_metadata() {
    std::unordered_set<std::string_view> keys;
    for (std::uint64_t i = 0; i < metadata_count_; ++i) {
      cursor_.enter(fmt::format("metadata entry {} of {}", i + 1, metadata_count_));
      const std::string_view key = cursor_.string("a key", kMostGgufName);
      cursor_.enter("metadata " + in_quotes(key));
      if (!keys.insert(key).second) cursor_.fail("comes twice");
      GgufValue value = read_gguf_value(cursor_);
      if (key == "general.alignment") set_alignment(value);
      contents_.metadata.emplace_back(key, std::move(value.text));
    }
  }

  void set_alignment(const GgufValue& value) {
    const std::uint64_t n = value.number;
    if (value.type != kGgufU32 || n == 0 || (n & (n - 1)) != 0) {
      cursor_.fail(fmt::format("is {} as {}, expected a power of two as u32",
                               printable(value.text, 40), gguf_value_type_name(value.type)));
    }
    alignment_ = static_cast<std::int64_t>(n);
  }

  void read_tensors() {
    std::unordered_set<std::string_view> names;
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      Entry& entry = entries_.emplace_back();
      cursor_.enter(fmt::format("tensor entry {} of {}", i + 1, tensor_count_));
      entry.name = cursor_.string("a name", kMostGgufName);
      cursor_.enter("tensor " + in_quotes(entry.name));
      if (!names.insert(entry.name).second) cursor_.fail("comes twice");
      const std::uint64_t dimensions = cursor_.number(4);
      if (dimensions > kMostDimensions) {
        cursor_.fail(
            fmt::format("has {} dimensions, at most {} are allowed", dimensions, kMostDimensions));
      }
      for (std::uint64_t d = 0; d < dimensions; ++d) {
        const std::uint64_t extent = cursor_.number(8);
        if (extent > static_cast<std::uint64_t>(INT64_MAX)) {
          cursor_.fail(fmt::format("has an extent of {}, expected 0 to 2^63-1", extent));
        }
        entry.shape.push_back(static_cast<std::int64_t>(extent));
      }
      std::reverse(entry.shape.begin(), entry.shape.end());
      entry.type = static_cast<std::uint32_t>(cursor_.number(4));
      entry.begin = cursor_.number(8);
      check_size(entry);
    }
    names_ = std::move(names);
  }

  void check_size(Entry& entry) {
    const std::optional<std::int64_t> elements = checked_product(entry.shape);
    std::int64_t bits = 0;
    // The margin of 64 covers the bits of every type.
    if (!elements || __builtin_mul_overflow(*elements, std::int64_t{64}, &bits)) {
      fail(entry,
           fmt::format("has the shape {}, whose size exceeds 64 bits", shape_text(entry.shape)));
    }
    const GgufType* type = find_gguf_type(entry.type);
    if (type == nullptr || type->bytes == 0) return;  // listed; its size cannot be known
    const std::int64_t row = entry.shape.empty() ? 1 : entry.shape.back();
    if (row % type->elements != 0) {
      fail(entry, fmt::format("is {}: rows of {} elements do not fill blocks of {}",
                              dtype_and_shape(entry), row, type->elements));
    }
    entry.bytes = *elements / type->elements * type->bytes;
  }

  // Where the data starts, and whether every tensor lies in it, aligned and without overlap.
  void place_data() {
    const std::int64_t header_end = cursor_.at();
    const std::int64_t padding = (alignment_ - header_end % alignment_) % alignment_;
    data_start_ = header_end + padding;
    const std::int64_t data_bytes = std::max<std::int64_t>(file_.size() - data_start_, 0);
    for (const Entry& entry : entries_) {
      if (entry.begin % static_cast<std::uint64_t>(alignment_) != 0) {
        fail(entry, fmt::format("starts at byte {} of the data, expected a multiple of the "
                                "alignment {}",
                                entry.begin, alignment_));
      }
      if (entry.begin > static_cast<std::uint64_t>(data_bytes) ||
          entry.bytes > data_bytes - static_cast<std::int64_t>(entry.begin)) {
        fail(entry, fmt::format("is {}: its {} bytes from byte {} of the data are not in the file, "
                                "which has {} bytes of data (truncated?)",
                                dtype_and_shape(entry), entry.bytes, entry.begin, data_bytes));
      }
    }
    check_overlap();
  }

  void check_overlap() {
    std::vector<std::size_t> order(entries_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::erase_if(order, [&](std::size_t i) { return entries_[i].bytes == 0; });
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return entries_[a].begin < entries_[b].begin; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const Entry& before = entries_[order[i - 1]];
      const Entry& entry = entries_[order[i]];
      const std::uint64_t end = before.begin + static_cast<std::uint64_t>(before.bytes);
      if (entry.begin >= end) continue;
      fail(entry, fmt::format("starts at byte {} of the data, inside tensor {}, which ends at byte "
                              "{}",
                              entry.begin, in_quotes(before.name), end));
    }
  }

  void append(const Entry& entry) {
    const GgufType* type = find_gguf_type(entry.type);
    TensorInfo tensor;
    tensor.name = entry.name;
    tensor.dtype_text = gguf_type_name(entry.type);
    tensor.known_dtype = type != nullptr && type->bytes != 0;
    tensor.shape = entry.shape;
    tensor.elements = *checked_product(entry.shape);
    tensor.bytes = entry.bytes;
    tensor.file = path_;
    Storage storage;
    storage.file = file_index_;
    // An empty tensor may lie where the file has ended already.
    storage.offset = entry.bytes == 0 ? 0 : data_start_ + static_cast<std::int64_t>(entry.begin);
    if (type != nullptr) {
      tensor.dtype = type->dtype;
      tensor.decoded = type->codecs != nullptr;
      storage.bits = type->bits;
      if (type->codecs != nullptr) {
        storage.codec = big_endian_ ? &type->codecs->big : &type->codecs->little;
      } else {
        storage.big_endian = big_endian_ && type->bits > 8;
      }
    }
    contents_.tensors.push_back(std::move(tensor));
    contents_.storage.push_back(std::move(storage));
  }

  void append_companions(const Entry& entry) {
    const GgufType* type = find_gguf_type(entry.type);
    if (type == nullptr || type->codecs == nullptr || type->codecs->codes.decode == nullptr) return;
    const TensorInfo whole = contents_.tensors.back();
    const Storage place = contents_.storage.back();
    const auto companion = [&](const char* ending, const BlockCodec& codec) {
      TensorInfo tensor = whole;
      tensor.name += ending;
      if (names_.contains(tensor.name)) return;
      tensor.dtype = DType::kU8;
      tensor.dtype_text = "U8";
      tensor.decoded = false;
      tensor.derived = true;
      // A block of type->elements elements has codec.elements of these.
      tensor.shape.back() = tensor.shape.back() / type->elements * codec.elements;
      tensor.elements = *checked_product(tensor.shape);
      tensor.bytes = tensor.elements;
      Storage storage = place;
      storage.bits = 8;
      storage.codec = &codec;
      contents_.tensors.push_back(std::move(tensor));
      contents_.storage.push_back(std::move(storage));
    };
    companion(".codes", type->codecs->codes);
    companion(".scales", type->codecs->scales);
  }

  const MappedFile& file_;
  const std::string& path_;
  GgufCursor cursor_;
  Contents& contents_;
  std::size_t file_index_;
  bool big_endian_ = false;
  std::uint64_t tensor_count_ = 0, metadata_count_ = 0;
  std::int64_t alignment_ = 32;
  std::int64_t data_start_ = 0;
  std::vector<Entry> entries_;
  std::unordered_set<std::string_view> names_;
};

}  // namespace

void append_gguf(const std::shared_ptr<MappedFile>& file, Contents& contents) {
  GgufParser(file, contents).parse();
}

}  // namespace fp4scope
