// source_cache.cc: see source_cache.h.
#include "analysis/compare/source_cache.h"

#include <fmt/format.h>

#include <filesystem>

#include "analysis/analyze.h"
#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {

const SourceCache::File& SourceCache::file(const std::string& path) {
  auto& entry = files_[path];
  if (!entry) {
    auto opened = std::make_unique<File>();
    opened->source = open_source(path, options_);
    for (const TensorInfo& tensor : opened->source->tensors()) {
      opened->by_name.emplace(tensor.name, &tensor);
    }
    entry = std::move(opened);
    order_.push_back(entry.get());
  }
  return *entry;
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
  const File& opened = file(parts.file);
  if (parts.tensor.empty()) {
    if (opened.source->tensors().size() == 1) {
      return {opened.source.get(), opened.source->tensors().data()};
    }
    throw Error(ErrorKind::kUsage,
                fmt::format("{} {}: the file holds {} tensors, expected FILE:TENSOR", option,
                            printable(operand), opened.source->tensors().size()));
  }
  const auto found = opened.by_name.find(parts.tensor);
  if (found == opened.by_name.end()) {
    throw Error(ErrorKind::kData,
                fmt::format("{} {}: {} holds no tensor {}; it has {} tensors", option,
                            printable(operand), printable(parts.file), in_quotes(parts.tensor),
                            opened.source->tensors().size()));
  }
  return {opened.source.get(), found->second};
}

const TensorSource& SourceCache::open_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return *file(path).source;
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
