// source_cache.cc: see source_cache.h.
#include "analysis/compare/source_cache.h"

#include <fmt/format.h>

#include <filesystem>

#include "analysis/analyze.h"
#include "analysis/io/message.h"
#include "analysis/io/near_names.h"
#include "analysis/io/scratch.h"
#include "sim/error.h"

namespace fp4scope {

namespace {

OpenOptions without_raw(OpenOptions options) {
  options.raw.reset();
  return options;
}

}  // namespace

SourceCache::SourceCache(const OpenOptions& options)
    : inputs_(options), others_(without_raw(options)), has_raw_(options.raw.has_value()) {}

const SourceCache::File& SourceCache::file(const std::string& path, bool is_input) {
  const bool is_raw = is_input && has_raw_;
  auto& entry = (is_raw ? raw_files_ : files_)[path];
  if (!entry) {
    auto opened = std::make_unique<File>();
    opened->source = (is_raw ? inputs_ : others_).open(path);
    for (const TensorInfo& tensor : opened->source->tensors()) {
      if (!opened->by_name.emplace(tensor.name, &tensor).second) {
        opened->again.emplace(tensor.name, &tensor);
      }
    }
    entry = std::move(opened);
    order_.push_back(entry.get());
  }
  return *entry;
}

// --shape and --dtype say what --input is; for the others a header has to.
const SourceCache::File& SourceCache::open_plane(const std::string& path, std::string_view option) {
  if (option == "--input") return file(path, true);
  try {
    return file(path, false);
  } catch (const UnknownContainer& error) {
    // What came through a pipe is gone.
    const std::string shown = is_stream(path) ? "FILE" : in_quotes(path);
    throw Error(error.kind(),
                fmt::format("{} {}; only --input can be without a header (--shape, --dtype). Wrap "
                            "the bytes with numpy, as in np.save(\"x.npy\", np.fromfile({}, "
                            "np.uint8).reshape(ROWS, -1)), and name x.npy instead",
                            option, error.what(), shown));
  }
}

SourceCache::Opened SourceCache::open(const std::string& operand, std::string_view option) {
  const std::lock_guard lock(mutex_);
  // The usual case first: a file that is open already, without asking the disk.
  const std::size_t colon = operand.rfind(':');
  Operand parts;
  if (colon != std::string::npos && files_.contains(operand.substr(0, colon))) {
    parts = {operand.substr(0, colon), operand.substr(colon + 1)};
  } else {
    parts = split_operand(operand);
  }
  const File& opened = open_plane(parts.file, option);
  if (parts.tensor.empty()) {
    if (opened.source->tensors().size() == 1) {
      refuse_damaged(opened.source->tensors()[0]);
      return {opened.source.get(), opened.source->tensors().data()};
    }
    throw Error(ErrorKind::kUsage, fmt::format("{} {}: the file holds {}, expected FILE:TENSOR",
                                               option, printable(operand),
                                               counted(opened.source->tensors().size(), "tensor")));
  }
  const auto found = opened.by_name.find(parts.tensor);
  if (found == opened.by_name.end()) {
    throw Error(ErrorKind::kData,
                fmt::format("{} {}: {} holds no tensor {}; it has {}{}", option, printable(operand),
                            printable(parts.file), in_quotes(parts.tensor),
                            counted(opened.source->tensors().size(), "tensor"),
                            near_names(opened.source->tensors(), parts.tensor)));
  }
  if (const auto again = opened.again.find(parts.tensor); again != opened.again.end()) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("{} {}: the tensor is in {} and in {}, expected FILE:TENSOR of one file",
                    option, printable(operand), printable(found->second->file),
                    printable(again->second->file)));
  }
  refuse_damaged(*found->second);
  return {opened.source.get(), found->second};
}

const TensorSource& SourceCache::open_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return *file(path, false).source;
}

std::vector<Report::Source> SourceCache::sources() const {
  const std::lock_guard lock(mutex_);
  std::vector<Report::Source> out;
  for (const File* file : order_) {
    const SourceInfo& info = file->source->info();
    out.push_back({info.path, info.container, info.bytes});
  }
  return out;
}

}  // namespace fp4scope
