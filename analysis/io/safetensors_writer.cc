// safetensors_writer.cc: a safetensors file whose tensors are known in advance and whose data may
// arrive in any order. The header is padded with spaces so that the data starts at a multiple of 8;
// tensors are laid out by falling element size, so that each is aligned to its elements.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_set>

#include "analysis/io/mapped_source.h"
#include "analysis/io/message.h"
#include "analysis/io/safetensors_format.h"
#include "analysis/io/sinks.h"
#include "sim/error.h"

namespace fp4scope {

struct SafetensorsWriter::Impl {
  explicit Impl(const std::string& path) : target(path), file(path) {}
  struct Range {
    std::string name;
    std::int64_t offset = 0, bytes = 0;
    std::atomic<std::int64_t> written{0};
  };
  std::string target;
  AtomicFile file;
  std::int64_t data_start = 0;
  std::vector<Range> ranges;

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::kData, fmt::format("cannot write {}: {}", printable(target), why));
  }
};

SafetensorsWriter::SafetensorsWriter(
    const std::string& path, const std::vector<Entry>& entries,
    const std::vector<std::pair<std::string, std::string>>& metadata)
    : impl_(std::make_unique<Impl>(path)) {
  Impl& writer = *impl_;
  writer.ranges = std::vector<Impl::Range>(entries.size());
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.name == "__metadata__" || !names.insert(entry.name).second) {
      writer.fail(
          fmt::format("the tensor name {} occurs twice or is reserved", in_quotes(entry.name)));
    }
    const std::optional<std::int64_t> elements = checked_product(entry.shape);
    std::int64_t bytes = 0;
    if (entry.dtype == DType::kOther || !elements ||
        __builtin_mul_overflow(*elements, dtype_bytes(entry.dtype), &bytes)) {
      writer.fail(fmt::format("tensor {} with shape {} cannot be stored", in_quotes(entry.name),
                              shape_text(entry.shape)));
    }
    writer.ranges[i].name = entry.name;
    writer.ranges[i].bytes = bytes;
  }
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return dtype_bytes(entries[a].dtype) > dtype_bytes(entries[b].dtype);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    nlohmann::ordered_json& texts = header["__metadata__"] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : metadata) texts[key] = value;
  }
  // Appending text per tensor: the ordered JSON object searches linearly on every insertion.
  std::string text;
  std::int64_t next = 0;
  try {
    text = header.dump();
    text.pop_back();
    for (const std::size_t i : order) {
      const Entry& entry = entries[i];
      Impl::Range& range = writer.ranges[i];
      range.offset = next;
      if (__builtin_add_overflow(next, range.bytes, &next)) {
        writer.fail("the tensors need more than 2^63 bytes");
      }
      if (text.size() > 1) text += ',';
      text += nlohmann::json(entry.name).dump();
      text +=
          fmt::format(R"(:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                      safetensors_name(entry.dtype), shape_text(entry.shape), range.offset, next);
    }
    text += '}';
  } catch (const nlohmann::json::exception&) {
    writer.fail("a tensor name or metadata text is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    writer.fail(fmt::format("the header would have {} bytes, at most {} are allowed", text.size(),
                            kMaxSafetensorsHeader));
  }
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(text.size() >> (8 * i));
  writer.file.write(length, sizeof length);
  writer.file.write(text.data(), text.size());
  writer.data_start = static_cast<std::int64_t>(sizeof length + text.size());
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::size_t index, std::int64_t offset, const void* data,
                              std::size_t bytes) {
  Impl::Range& range = impl_->ranges.at(index);
  const auto count = static_cast<std::int64_t>(bytes);
  if (offset < 0 || count > range.bytes || offset > range.bytes - count) {
    impl_->fail(fmt::format("bytes {} to {} do not fit into the {} bytes of tensor {}", offset,
                            offset + count, range.bytes, in_quotes(range.name)));
  }
  impl_->file.write_at(impl_->data_start + range.offset + offset, data, bytes);
  range.written += count;
}

void SafetensorsWriter::commit() {
  for (const Impl::Range& range : impl_->ranges) {
    if (range.written != range.bytes) {
      impl_->fail(fmt::format("only {} of {} bytes of tensor {} were written", range.written.load(),
                              range.bytes, in_quotes(range.name)));
    }
  }
  impl_->file.commit();
}

}  // namespace fp4scope
