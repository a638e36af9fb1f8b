// hdf5_dataset.cc: see hdf5_dataset.h. A rectangle of the flattened tensor is a few blocks of the
// dataset's own dimensions, each read without conversion.
#include "analysis/io/hdf5_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "analysis/io/mapped_source.h"

namespace fp4scope {
namespace {

constexpr std::int64_t kCacheBytes = std::int64_t{64} << 20;
// Wide tensors: without room for the whole band, every tile unpacks all of it again.
constexpr std::int64_t kLargestBand = std::int64_t{256} << 20;
constexpr std::int64_t kMostSlots = 100'003;

// Bytes of the chunks that reading row after row of the flattened tensor touches again: those with
// the same first index. Of the dimensions from 1 on, those before `end` count.
std::int64_t band_bytes(const std::vector<std::int64_t>& shape, const Hdf5Layout& layout,
                        std::size_t end) {
  std::int64_t bytes = layout.chunk_bytes;
  for (std::size_t d = 1; d < std::min({shape.size(), layout.chunk.size(), end}); ++d) {
    const std::int64_t chunks = shape[d] / layout.chunk[d] + (shape[d] % layout.chunk[d] != 0);
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(chunks, 1), &bytes)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return bytes;
}

}  // namespace

bool read_shape(hid_t dataset, std::vector<std::int64_t>& shape) {
  const Hid space(H5Dget_space(dataset));
  const int rank = space ? H5Sget_simple_extent_ndims(space.get()) : -1;
  if (rank < 0 || rank > H5S_MAX_RANK) return false;
  shape.clear();
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) {
    shape.push_back(0);
    return true;
  }
  std::array<hsize_t, H5S_MAX_RANK> extents{};
  if (rank > 0 && H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) < 0) return false;
  for (int d = 0; d < rank; ++d) {
    const hsize_t extent = extents[static_cast<std::size_t>(d)];
    if (extent > static_cast<hsize_t>(std::numeric_limits<std::int64_t>::max())) return false;
    shape.push_back(static_cast<std::int64_t>(extent));
  }
  return checked_product(shape).has_value();
}

Hdf5Dataset describe_dataset(hid_t dataset, std::int64_t file_bytes) {
  Hdf5Dataset out;
  const auto damaged = [](const std::string& what) {
    return unreadable_dataset(Hdf5Status::kData, what);
  };
  const Hid type(H5Dget_type(dataset));
  if (!type) return damaged("has a type that cannot be read: " + hdf5_error());
  const Hdf5Type described = describe_type(type.get());
  H5Eclear2(H5E_DEFAULT);
  out.dtype = described.dtype;
  out.dtype_text = described.text;
  out.known_dtype = described.known;
  out.bytes = described.bytes;
  out.swapped = described.swapped;
  // Before the shape: that of a virtual dataset may depend on other files.
  const std::int64_t element =
      described.bytes == 0 ? 0 : static_cast<std::int64_t>(H5Tget_size(type.get()));
  Hdf5Layout layout = describe_layout(dataset, element, file_bytes);
  out.refusal = layout.refusal;
  out.reason = std::move(layout.reason);
  if (!read_shape(dataset, out.shape)) {
    H5Eclear2(H5E_DEFAULT);
    return damaged("has a shape that cannot be read or has more than 2^63 elements");
  }
  out.array_rank = static_cast<std::int32_t>(described.inner.size());
  out.shape.insert(out.shape.end(), described.inner.begin(), described.inner.end());
  const auto elements = checked_product(out.shape);
  std::int64_t total = 0;
  if (!elements ||
      __builtin_mul_overflow(*elements, static_cast<std::int64_t>(out.bytes), &total)) {
    return damaged("has more than 2^63 bytes");
  }
  return out;
}

Hdf5Failure cannot_open() {
  const std::string reason = hdf5_error();
  if (reason.find("version") == std::string::npos) {
    return {Hdf5Status::kData, "cannot be opened: " + reason};
  }
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return {Hdf5Status::kUnsupported,
          fmt::format("cannot be opened by HDF5 {}.{}.{}, as if a newer version wrote it: {} (h5py "
                      "writes for older ones with libver='v110')",
                      major, minor, release, reason)};
}

OpenDataset::OpenDataset(hid_t file, const std::string& path, std::int64_t file_bytes) {
  if (open(file, path, file_bytes)) return;
  const Hdf5Failure failure = cannot_open();
  layout_.refusal = failure.status;
  layout_.reason = failure.reason;
}

bool OpenDataset::open(hid_t file, const std::string& path, std::int64_t file_bytes) {
  dataset_ = Hid(H5Dopen2(file, path.c_str(), H5P_DEFAULT));
  const Hid type(dataset_ ? H5Dget_type(dataset_.get()) : -1);
  if (!type) return false;
  const Hdf5Type described = describe_type(type.get());
  memory_type_ = memory_type(type.get(), described);
  element_bytes_ = static_cast<std::int64_t>(H5Tget_size(type.get()));
  layout_ = describe_layout(dataset_.get(), element_bytes_, file_bytes);
  if (layout_.refusal != Hdf5Status::kOk) return true;
  if (!memory_type_ || !read_shape(dataset_.get(), shape_)) return false;
  if (!layout_.chunked) return true;
  if (layout_.chunk.size() != shape_.size()) return false;

  const bool small = layout_.chunk_bytes <= kCacheBytes;
  if (small || !layout_.filters.empty()) {
    const std::int64_t band = band_bytes(shape_, layout_, shape_.size());
    cache_bytes_ = std::max(std::min(band, kLargestBand), layout_.chunk_bytes);
  }
  std::int64_t library_bytes = cache_bytes_;
  if (!described.converts && can_undo(layout_.filters) && cache_bytes_ > 0) {
    chunks_.emplace(shape_, layout_.chunk, layout_.filters, layout_.plain_edges, element_bytes_,
                    layout_.chunk_bytes, cache_bytes_);
    library_bytes = 0;  // then it fills what was never written without a chunk in memory
  }
  // The cache is set when a dataset is opened and no other handle of it is open.
  const std::int64_t slots =
      std::clamp<std::int64_t>(100 * (library_bytes / layout_.chunk_bytes), 521, kMostSlots);
  const Hid access(H5Pcreate(H5P_DATASET_ACCESS));
  H5Pset_chunk_cache(access.get(), static_cast<std::size_t>(slots),
                     static_cast<std::size_t>(library_bytes), 1.0);
  dataset_ = Hid();
  dataset_ = Hid(H5Dopen2(file, path.c_str(), access.get()));
  return static_cast<bool>(dataset_);
}

std::string OpenDataset::read_block(const Hdf5Block& block, unsigned char* out) {
  if (chunks_) return chunks_->read(dataset_.get(), memory_type_.get(), block, out);
  const Hid space(H5Dget_space(dataset_.get()));
  hsize_t elements = 1;
  for (const hsize_t n : block.count) elements *= n;
  if (!space ||
      (!block.count.empty() && H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, block.start.data(),
                                                   nullptr, block.count.data(), nullptr) < 0)) {
    return hdf5_error();
  }
  const Hid memory(H5Screate_simple(1, &elements, nullptr));
  if (!memory || H5Dread(dataset_.get(), memory_type_.get(), memory.get(), space.get(), H5P_DEFAULT,
                         out) < 0) {
    return hdf5_error();
  }
  return "";
}

std::int64_t OpenDataset::columns_at_once() const {
  if (!chunks_) return 0;
  if (shape_.size() < 2) return shape_.empty() ? 1 : shape_[0];
  // Chunks side by side along the last dimension, with all that lies between it and the first one.
  const std::int64_t side_by_side = cache_bytes_ / band_bytes(shape_, layout_, shape_.size() - 1);
  if (side_by_side >= shape_.back() / layout_.chunk.back() + 1) return shape_.back();
  return side_by_side * layout_.chunk.back();
}

std::string OpenDataset::read(const Hdf5Request& rectangle, unsigned char* out) {
  TensorInfo flat;
  flat.shape = shape_;
  std::int64_t elements = 0, bytes = 0;
  const Hdf5Request& r = rectangle;
  if (r.row < 0 || r.rows <= 0 || r.col < 0 || r.cols <= 0 || r.rows > flat.rows() ||
      r.row > flat.rows() - r.rows || r.cols > flat.cols() || r.col > flat.cols() - r.cols ||
      __builtin_mul_overflow(r.rows, r.cols, &elements) ||
      __builtin_mul_overflow(elements, element_bytes_, &bytes) || bytes > kHdf5Window) {
    return "the rectangle is not inside the dataset";
  }
  const std::size_t rank = shape_.size();
  Hdf5Block block{std::vector<hsize_t>(rank), std::vector<hsize_t>(rank)};
  auto& [start, count] = block;
  const std::size_t leading = rank == 0 ? 0 : rank - 1;
  if (rank > 0) {
    start.back() = static_cast<hsize_t>(r.col);
    count.back() = static_cast<hsize_t>(r.cols);
  }
  for (std::int64_t row = r.row, end = r.row + r.rows; row < end;) {
    // The largest block of leading dimensions that starts at `row` and ends in the rectangle.
    std::int64_t inside = 1, taken = 1;  // rows per index of dimension d; rows of the block
    std::int64_t rest = row;
    bool grows = true;
    for (std::size_t d = leading; d-- > 0;) {
      const std::int64_t extent = shape_[d], at = rest % extent;
      rest /= extent;
      start[d] = static_cast<hsize_t>(at);
      count[d] = 1;
      if (!grows) continue;
      const std::int64_t n = std::min(extent - at, (end - row) / inside);
      count[d] = static_cast<hsize_t>(n);
      taken = n * inside;
      // Goes on to the next dimension only with all of this one.
      grows = at == 0 && n == extent;
      inside *= extent;
    }
    const std::string failure = read_block(block, out + (row - r.row) * r.cols * element_bytes_);
    if (!failure.empty()) return failure;
    row += leading == 0 ? r.rows : taken;
  }
  return "";
}

}  // namespace fp4scope
