// composite_source.cc: see composite_source.h.
#include "analysis/io/composite_source.h"

#include <fmt/format.h>

#include <functional>

#include "analysis/io/message.h"
#include "sim/error.h"

namespace fp4scope {

CompositeSource::CompositeSource(const std::string& path,
                                 std::vector<std::unique_ptr<TensorSource>> sources)
    : sources_(std::move(sources)) {
  info_.path = path;
  info_.container = "directory";
  for (const auto& source : sources_) {
    info_.bytes += source->info().bytes;
    info_.faults.insert(info_.faults.end(), source->info().faults.begin(),
                        source->info().faults.end());
    for (const TensorInfo& tensor : source->tensors()) {
      index_.emplace(tensor.file + '\0' + tensor.name, tensors_.size());
      tensors_.push_back(tensor);
      parts_.push_back({source.get(), &tensor});
    }
  }
}

const CompositeSource::Part& CompositeSource::part(const TensorInfo& tensor) const {
  const std::less<const TensorInfo*> before;
  const TensorInfo* const first = tensors_.data();
  if (!tensors_.empty() && !before(&tensor, first) && before(&tensor, first + tensors_.size())) {
    return parts_[static_cast<std::size_t>(&tensor - first)];
  }
  const auto found = index_.find(tensor.file + '\0' + tensor.name);
  if (found == index_.end()) {
    throw Error(ErrorKind::kData, fmt::format("{} holds no tensor {}", printable(info_.path),
                                              in_quotes(tensor.name)));
  }
  return parts_[found->second];
}

void CompositeSource::read_f32(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                               std::int64_t col, std::int64_t cols, float* out) const {
  const Part& p = part(tensor);
  p.source->read_f32(*p.tensor, row, rows, col, cols, out);
}

void CompositeSource::read_f64(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                               std::int64_t col, std::int64_t cols, double* out) const {
  const Part& p = part(tensor);
  p.source->read_f64(*p.tensor, row, rows, col, cols, out);
}

void CompositeSource::read_raw(const TensorInfo& tensor, std::int64_t row, std::int64_t rows,
                               std::int64_t col, std::int64_t cols, void* out) const {
  const Part& p = part(tensor);
  p.source->read_raw(*p.tensor, row, rows, col, cols, out);
}

}  // namespace fp4scope
